"""The fields of one step in the plan editor: what it is told, who does it, what it sees; faults at each."""

import streamlit as st

from conductor_core.workflow.model import AccessList, Fault, Step
from conductor_core.workflow.validation import Checked
from pages.components import draft as drafts
from pages.components.editing import Editing
from pages.components.words import inert

ALL, CHOSEN = "All earlier steps", "Only these"


def step_fields(editing: Editing, index: int, step_id: int, checked: Checked) -> None:
    """Draws the fields of step ``index``. Each change goes into the draft at once."""
    told, who, sees = st.columns([5, 2, 3], gap="medium")
    with told:
        st.text_area(
            f"Instruction of step {index}",
            value=editing.draft.workflow.steps[index].instruction,
            key=editing.field_key(step_id, "instruction"),
            height=88,
            placeholder="What this agent is told. {question} stands for the task.",
            help="{question} stands for the task's text.",
            on_change=_take_instruction,
            args=(editing, step_id),
        )
        _faults_at(checked, index, "instruction")
    with who:
        _agent_field(editing, index, step_id)
        _faults_at(checked, index, "agent")
    with sees:
        _access_field(editing, index, step_id)
        _faults_at(checked, index, "access_list")
    _faults_at(checked, index, "workflow")


def _agent_field(editing: Editing, index: int, step_id: int) -> None:
    step = editing.draft.workflow.steps[index]
    descriptions = {spec.name: spec.description for spec in editing.trace.pool.workers}
    offered = list(editing.offered_agents)
    if step.agent not in offered:
        offered.append(step.agent)
    st.selectbox(
        f"Agent of step {index}",
        offered,
        index=offered.index(step.agent),
        key=editing.field_key(step_id, "agent"),
        help=descriptions.get(step.agent) or None,
        on_change=_take_agent,
        args=(editing, step_id),
    )


def _access_field(editing: Editing, index: int, step_id: int) -> None:
    if index == 0:
        st.caption("Sees nothing: it is the first step.")
        return
    step, ids = editing.draft.workflow.steps[index], editing.draft.now.ids
    st.segmented_control(
        f"Step {index} sees",
        [ALL, CHOSEN],
        default=ALL if step.access_list == "all" else CHOSEN,
        required=True,
        key=editing.field_key(step_id, "access-kind"),
        on_change=_take_access,
        args=(editing, step_id),
    )
    if step.access_list == "all":
        return
    agents = {each: editing.draft.workflow.steps[number].agent for number, each in enumerate(ids)}
    st.multiselect(
        f"Steps that step {index} sees",
        ids[:index],
        default=[ids[earlier] for earlier in step.access_list if 0 <= earlier < index],
        format_func=lambda each: f"{ids.index(each)} · {agents[each]}" if each in agents else "removed",
        key=_chosen_key(editing, step_id),
        label_visibility="collapsed",
        placeholder="Sees nothing",
        on_change=_take_access,
        args=(editing, step_id),
    )


def _chosen_key(editing: Editing, step_id: int) -> str:
    """Another key for other earlier steps: what can be chosen is then another set."""
    ids = editing.draft.now.ids
    return editing.field_key(step_id, f"access-{'-'.join(map(str, ids[: ids.index(step_id)]))}")


def _take(editing: Editing, step_id: int, *, field: str, value: str | AccessList) -> None:
    draft = editing.draft
    index = draft.now.ids.index(step_id)
    step = draft.workflow.steps[index]
    editing.keep(drafts.change(draft, index, Step.model_validate({**step.model_dump(), field: value})))


def _take_instruction(editing: Editing, step_id: int) -> None:
    typed = st.session_state[editing.field_key(step_id, "instruction")]
    _take(editing, step_id, field="instruction", value=typed)


def _take_agent(editing: Editing, step_id: int) -> None:
    _take(editing, step_id, field="agent", value=st.session_state[editing.field_key(step_id, "agent")])


def _take_access(editing: Editing, step_id: int) -> None:
    ids = editing.draft.now.ids
    if st.session_state[editing.field_key(step_id, "access-kind")] == ALL:
        _take(editing, step_id, field="access_list", value="all")
        return
    # Just switched from "all": the field of single steps does not exist yet and begins with every step chosen.
    chosen = st.session_state.get(_chosen_key(editing, step_id), ids[: ids.index(step_id)])
    _take(editing, step_id, field="access_list", value=tuple(sorted(ids.index(each) for each in chosen)))


def _faults_at(checked: Checked, index: int, field: str) -> None:
    for fault in checked.faults:
        if fault.step == index and fault.field == field:
            say(fault, "red", "error")
    for warning in checked.warnings:
        if warning.step == index and warning.field == field:
            say(warning, "orange", "warning")


def say(fault: Fault, colour: str, icon: str) -> None:
    # Faults quote what was typed: the text must not act as markdown.
    st.markdown(f":{colour}[:material/{icon}: {inert(fault.message)}]")
