"""The plan editor: a card per step, faults at the field, undo, and what a re-run would call before it starts."""

from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st

from conductor_core.engine.rerun import RerunPreview
from conductor_core.trace import RunTrace
from conductor_core.workflow.model import CONDUCTOR_AGENT, AccessList, Fault, Step, Workflow
from conductor_core.workflow.topology import topology
from conductor_core.workflow.validation import Checked, validate
from pages.components import draft as drafts
from pages.components.draft import Draft
from pages.components.words import inert

ALL, CHOSEN = "All earlier steps", "Only these"
NEW_INSTRUCTION = "Answer this task, using what the earlier steps found: {question}"


@dataclass(frozen=True)
class Editing:
    """One open editor: which run's plan, and where its draft is kept in the page's state."""

    trace: RunTrace

    @property
    def key(self) -> str:
        return f"draft:{self.trace.run_id}"

    @property
    def agents(self) -> list[str]:
        return [spec.name for spec in self.trace.pool.workers]

    @property
    def draft(self) -> Draft:
        if self.key not in st.session_state:
            st.session_state[self.key] = drafts.begin(self.trace.root.workflow or Workflow(steps=()))
        kept: Draft = st.session_state[self.key]
        return kept

    def keep(self, draft: Draft) -> None:
        st.session_state[self.key] = draft

    def check(self) -> Checked:
        limits = self.trace.limits
        return validate(
            self.draft.workflow, self.agents, max_steps=limits.max_steps, allow_recursion=limits.max_depth > 0
        )

    def field_key(self, step_id: int, field: str) -> str:
        return f"{self.key}:{self.draft.generation}:{step_id}:{field}"


def plan_editor(
    trace: RunTrace,
    preview: Callable[[Workflow], RerunPreview],
    start: Callable[[Workflow], None],
    close: Callable[[], None],
) -> None:
    """Draws the editor of ``trace``'s plan.

    Args:
        preview: what running a workflow would call and reuse. Not called while there are faults.
        start: starts the run of the edited workflow.
        close: leaves the editor; the draft is kept.
    """
    editing = Editing(trace)
    checked = editing.check()
    forecast = None if checked.workflow is None else preview(checked.workflow)
    with st.container(border=True, key="plan-editor"):
        if _toolbar(editing, checked, forecast, close) and checked.workflow is not None:
            start(checked.workflow)
        for index in range(len(editing.draft.workflow.steps)):
            _step_card(editing, index, checked, forecast)
        if not editing.draft.workflow.steps:
            st.button(
                "Add a step",
                icon=":material/add:",
                on_click=lambda: editing.keep(drafts.insert(editing.draft, 0, _new_step(editing, -1))),
            )


def _toolbar(editing: Editing, checked: Checked, forecast: RerunPreview | None, close: Callable[[], None]) -> bool:
    """Whether the person asked to run the plan as it now is."""
    draft = editing.draft
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown("**Edit the plan**", width="content")
        st.caption(topology(draft.workflow) if draft.workflow.steps else "no steps", width="stretch")
        changes: list[tuple[str, str, bool, Callable[[Draft], Draft]]] = [
            ("Undo", "undo", not draft.past, drafts.undo),
            ("Redo", "redo", not draft.future, drafts.redo),
            ("Reset", "restart_alt", not draft.changed, drafts.reset),
        ]
        for label, icon, disabled, act in changes:
            st.button(
                label,
                icon=f":material/{icon}:",
                type="tertiary",
                disabled=disabled,
                on_click=lambda act=act: editing.keep(act(editing.draft)),
                shortcut="Mod+Alt+Z" if label == "Undo" else None,
            )
        if st.button("Close", icon=":material/close:", help="Your changes are kept until you leave this run."):
            close()
        asked = st.button(
            _start_label(forecast),
            type="primary",
            icon=":material/play_arrow:",
            key="start-edited",
            disabled=forecast is None,
        )
    st.caption(_cost_in_words(forecast))
    for fault in checked.faults:
        if fault.step is None:
            _say(fault, "red", "error")
    if draft.note:
        st.info(draft.note, icon=":material/link_off:")
    return asked


def _start_label(forecast: RerunPreview | None) -> str:
    if forecast is None:
        return "Re-run"
    runs, reused = len(forecast.will_run), len(forecast.will_reuse)
    return f"Re-run {runs} of {runs + reused} steps" if reused else f"Run {runs} step{'s' if runs != 1 else ''}"


def _cost_in_words(forecast: RerunPreview | None) -> str:
    if forecast is None:
        return "There is a fault to mend before this plan can run."
    cost = "cost unknown" if forecast.estimated_usd is None else f"\\${forecast.estimated_usd:.4f}"
    reused = len(forecast.will_reuse)
    kept = f"{reused} answer{'s' if reused != 1 else ''} reused" if reused else "nothing reused"
    return f"{kept}, about {forecast.estimated_tokens:,} tokens and {cost} to pay. A new run: this one stays as it is."


def _step_card(editing: Editing, index: int, checked: Checked, forecast: RerunPreview | None) -> None:
    draft = editing.draft
    step, step_id = draft.workflow.steps[index], draft.now.ids[index]
    with st.container(border=True, key=f"edit-step-{index}"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"**Step {index}**", width="content")
            st.markdown(_fate(index, forecast), width="stretch")
            _structure_buttons(editing, index, step_id)
        told, who, sees = st.columns([5, 2, 3], gap="medium")
        with told:
            st.text_area(
                f"Instruction of step {index}",
                value=step.instruction,
                key=editing.field_key(step_id, "instruction"),
                height=92,
                placeholder="What this agent is told. {question} stands for the task.",
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


def _fate(index: int, forecast: RerunPreview | None) -> str:
    """What a run of the edited plan would do with this step, and why."""
    if forecast is None:
        return ""
    for each in forecast.will_reuse:
        if each.index == index:
            return f":gray-badge[↺ reused] :small[{inert(each.reason)}]"
    for each in forecast.will_run:
        if each.index == index:
            return f":blue-badge[▶ runs] :small[{inert(each.reason)}]"
    return ""


def _structure_buttons(editing: Editing, index: int, step_id: int) -> None:
    last = len(editing.draft.workflow.steps) - 1
    buttons: list[tuple[str, str, bool, Callable[[], Draft]]] = [
        ("Move up", "arrow_upward", index == 0, lambda: drafts.move(editing.draft, index, index - 1)),
        ("Move down", "arrow_downward", index == last, lambda: drafts.move(editing.draft, index, index + 1)),
        ("Add a step after", "add", False, lambda: drafts.insert(editing.draft, index + 1, _new_step(editing, index))),
        ("Remove", "delete", False, lambda: drafts.remove(editing.draft, index)),
    ]
    for label, icon, disabled, act in buttons:
        st.button(
            f":material/{icon}:",
            key=editing.field_key(step_id, label),
            help=f"{label} (step {index})",
            disabled=disabled,
            on_click=lambda act=act: editing.keep(act()),
            type="tertiary",
        )


def _new_step(editing: Editing, after: int) -> Step:
    agent = editing.draft.workflow.steps[after].agent if editing.draft.workflow.steps else editing.agents[0]
    return Step(instruction=NEW_INSTRUCTION, agent=agent, access_list=(after,) if after >= 0 else ())


def _agent_field(editing: Editing, index: int, step_id: int) -> None:
    step = editing.draft.workflow.steps[index]
    descriptions = {spec.name: spec.description for spec in editing.trace.pool.workers}
    offered = list(editing.agents)
    if editing.trace.limits.max_depth > 0 and editing.trace.conductor is not None:
        offered.append(CONDUCTOR_AGENT)
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
        key=editing.field_key(step_id, f"access-{'-'.join(map(str, ids[:index]))}"),
        label_visibility="collapsed",
        placeholder="Sees nothing",
        on_change=_take_access,
        args=(editing, step_id),
    )


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
    index = ids.index(step_id)
    if st.session_state[editing.field_key(step_id, "access-kind")] == ALL:
        _take(editing, step_id, field="access_list", value="all")
        return
    chosen_key = editing.field_key(step_id, f"access-{'-'.join(map(str, ids[:index]))}")
    # Just switched from "all": the field of single steps does not exist yet and begins with every step chosen.
    chosen = st.session_state.get(chosen_key, ids[:index])
    _take(editing, step_id, field="access_list", value=tuple(sorted(ids.index(each) for each in chosen)))


def _faults_at(checked: Checked, index: int, field: str) -> None:
    for fault in checked.faults:
        if fault.step == index and fault.field == field:
            _say(fault, "red", "error")
    for warning in checked.warnings:
        if warning.step == index and warning.field == field:
            _say(warning, "orange", "warning")


def _say(fault: Fault, colour: str, icon: str) -> None:
    # Faults quote what was typed: the text must not act as markdown.
    st.markdown(f":{colour}[:material/{icon}: {inert(fault.message)}]")
