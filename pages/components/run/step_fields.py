"""The fields of one step in the plan editor (what it is told, who does it, what it sees), each with its faults."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import streamlit as st

from conductor_core.workflow.model import QUESTION, AccessList, Fault, Step
from conductor_core.workflow.validation import UNTOLD, Checked
from pages.components.run import draft as drafts
from pages.components.run.editing import Editing
from pages.components.style.formats import inert

ALL, CHOSEN = "All earlier steps", "Only these"


def add_task_button(editing: Editing, checked: Checked, index: int, step_id: int) -> None:
    """Draws the button that adds the task to step ``index``, if no step that matters is told the task."""
    if not any(warning.code == UNTOLD and warning.step == index for warning in checked.warnings):
        return
    st.button(
        "Tell it the task",
        icon=":material/add:",
        key=editing.button_key(step_id, "tell"),
        help=f"Adds {QUESTION}, which stands for the task, to the instruction",
        type="tertiary",
        on_click=_add_task,
        args=(editing, step_id),
    )


def _add_task(editing: Editing, step_id: int) -> None:
    if step_id in editing.draft.now.ids:
        editing.keep(drafts.add_task(editing.draft, editing.draft.now.ids.index(step_id)))


def step_fields(editing: Editing, index: int, step_id: int, checked: Checked) -> None:
    """Draws the fields of step ``index``. Each change goes into the draft at once."""
    instruction_column, agent_column, access_column = st.columns([5, 2, 3], gap="medium")
    with instruction_column:
        key = editing.field_key(step_id, "instruction")
        st.text_area(
            f"Instruction of step {index}",
            value=editing.draft.workflow.steps[index].instruction,
            key=key,
            height=88,
            placeholder="What this agent is told. {question} stands for the task.",
            help="{question} stands for the task's text.",
            on_change=_apply_value,
            args=(editing, step_id, "instruction", key, editing.draft.workflow.steps[index].instruction),
        )
        _faults_at(checked, index, "instruction")
        add_task_button(editing, checked, index, step_id)
    with agent_column:
        _agent_field(editing, index, step_id)
        _faults_at(checked, index, "agent")
    with access_column:
        _access_field(editing, index, step_id)
        _faults_at(checked, index, "access_list")
        _cut_button(editing, index, step_id)
    _faults_at(checked, index, "workflow")


def _agent_field(editing: Editing, index: int, step_id: int) -> None:
    step = editing.draft.workflow.steps[index]
    descriptions = {spec.name: spec.description for spec in editing.specs}
    offered = list(dict.fromkeys([*editing.offered_agents, step.agent]))
    key = editing.field_key(step_id, "agent")
    st.selectbox(
        f"Agent of step {index}",
        offered,
        index=offered.index(step.agent),
        key=key,
        help=descriptions.get(step.agent) or None,
        on_change=_apply_value,
        args=(editing, step_id, "agent", key, step.agent),
    )


def _access_field(editing: Editing, index: int, step_id: int) -> None:
    if index == 0:
        st.caption("Sees nothing: it is the first step.")
        return
    step, ids = editing.draft.workflow.steps[index], editing.draft.now.ids
    labels = {
        each: f"{number} · {earlier.agent}"
        for number, (each, earlier) in enumerate(zip(ids[:index], editing.draft.workflow.steps, strict=False))
    }
    kind_key, chosen_key = editing.field_key(step_id, "access-kind"), _chosen_key(editing, step_id, labels)
    shown = ids[:index] if step.access_list == "all" else [ids[each] for each in step.access_list if 0 <= each < index]
    drawn = _Access(kind_key, ALL if step.access_list == "all" else CHOSEN, chosen_key, frozenset(shown))
    st.segmented_control(
        f"Step {index} sees",
        [ALL, CHOSEN],
        default=drawn.kind,
        required=True,
        key=kind_key,
        on_change=_apply_access,
        args=(editing, step_id, drawn),
    )
    if step.access_list == "all":
        return
    st.multiselect(
        f"Steps that step {index} sees",
        ids[:index],
        default=shown,
        format_func=lambda each: labels.get(each, "removed"),
        key=chosen_key,
        label_visibility="collapsed",
        placeholder="Sees nothing",
        on_change=_apply_access,
        args=(editing, step_id, drawn),
    )


def _cut_button(editing: Editing, index: int, step_id: int) -> None:
    """Draws the button that cuts access that no field shows: to the step itself, to later ones and to none at all."""
    access = editing.draft.workflow.steps[index].access_list
    if access == "all":
        return
    possible = tuple(dict.fromkeys(each for each in access if 0 <= each < index))
    if possible == access:
        return
    st.button(
        "Cut what it cannot see",
        icon=":material/content_cut:",
        key=editing.button_key(step_id, "cut"),
        help="Keeps its access to earlier steps",
        type="tertiary",
        on_click=_apply,
        args=(editing, step_id, "access_list", possible),
    )


def _chosen_key(editing: Editing, step_id: int, labels: Mapping[int, str]) -> str:
    """Returns a key that changes with the options and their names: the browser keeps a choice by the names it saw."""
    shown = hashlib.sha256(repr(sorted(labels.items())).encode()).hexdigest()[:12]
    return editing.field_key(step_id, f"access-{shown}")


@dataclass(frozen=True)
class _Access:
    """The two fields of an access list as they were drawn: their keys, and what they showed."""

    kind_key: str
    kind: str
    chosen_key: str
    chosen: frozenset[int]


# Each callback gets its field as it was drawn, because another callback of the same click may have changed the draft.
# The browser may also send a field whose card was closed meanwhile: Streamlit has then dropped its value, and the
# callback does nothing. And it may send what a field showed, though nobody touched it: a draft that was changed
# elsewhere since (in the graph, by Undo) must not take that back.


def _apply_value(editing: Editing, step_id: int, field: Literal["instruction", "agent"], key: str, shown: str) -> None:
    if key in st.session_state and st.session_state[key] != shown:
        _apply(editing, step_id, field, st.session_state[key])


def _apply_access(editing: Editing, step_id: int, drawn: _Access) -> None:
    kind = st.session_state.get(drawn.kind_key, CHOSEN if drawn.chosen_key in st.session_state else drawn.kind)
    # The field of single steps is drawn for "Only these" alone. After a switch from "all" it does not exist yet and
    # begins with every step chosen.
    chosen = frozenset(st.session_state.get(drawn.chosen_key, drawn.chosen))
    if kind == drawn.kind and (kind == ALL or chosen == drawn.chosen):
        return
    if kind == ALL:
        _apply(editing, step_id, "access_list", "all")
        return
    ids = editing.draft.now.ids
    earlier = ids[: ids.index(step_id)] if step_id in ids else ()
    _apply(editing, step_id, "access_list", tuple(number for number, each in enumerate(earlier) if each in chosen))


def _apply(editing: Editing, step_id: int, field: str, value: str | AccessList) -> None:
    draft = editing.draft
    if step_id not in draft.now.ids:  # removed by the same click
        return
    index = draft.now.ids.index(step_id)
    step = draft.workflow.steps[index]
    editing.keep(drafts.change(draft, index, Step.model_validate({**step.model_dump(), field: value})))


def _faults_at(checked: Checked, index: int, field: str) -> None:
    for found, colour, icon in ((checked.faults, "red", "error"), (checked.warnings, "orange", "warning")):
        for fault in found:
            if fault.step == index and fault.field == field:
                say(fault, colour, icon)


def say(fault: Fault, colour: str, icon: str) -> None:
    # Faults quote what was typed: the text must not act as markdown.
    st.markdown(f":{colour}[:material/{icon}: {inert(fault.message)}]")
