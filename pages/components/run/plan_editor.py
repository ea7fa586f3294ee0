"""The plan editor: a line per step that opens to its fields, and what a re-run would call."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import streamlit as st

from conductor_core.engine.rerun import RerunPreview, StepForecast
from conductor_core.workflow.model import Step, Workflow
from conductor_core.workflow.topology import topology
from conductor_core.workflow.validation import Checked
from pages.components.run import draft as drafts
from pages.components.run.draft import Draft
from pages.components.run.edited_plan import edited_plan, new_plan
from pages.components.run.editing import LINES_OF_A_PART, Editing, Of
from pages.components.run.export_menu import export_menu
from pages.components.run.output_field import output_field
from pages.components.run.step_fields import add_task_button, say, step_fields
from pages.components.style.figures import agent_dot
from pages.components.style.formats import inert, numbers, told

Preview = Callable[[Workflow, Draft], RerunPreview]
_MOST_NAMED = 8
NEW_INSTRUCTION = "Answer this task, using what the earlier steps found: {question}"


@dataclass(frozen=True)
class PlanState:
    """All that follows from a draft.

    ``forecast`` is what its run would call and reuse; None: it has faults. ``drawn`` is what the graph draws of it;
    None: nothing is changed yet, so the graph draws the run. ``open_steps`` are the steps whose fields are shown, the
    last opened last.
    """

    checked: Checked
    forecast: RerunPreview | None
    drawn: dict[str, Any] | None
    open_steps: tuple[int, ...]


def read_plan(editing: Editing, preview: Preview) -> PlanState:
    """Returns what follows from the draft. ``preview`` tells what the run of a workflow would call and reuse."""
    checked, forecast = _checked(editing, editing.draft, preview)
    # A step that was removed and written again is another step.
    draft = editing.draft
    edited = draft.changed or draft.now.ids != drafts.begin(draft.original).now.ids
    drawn = _drawn(editing, checked, forecast, preview) if edited or editing.of == "new" else None
    return PlanState(checked, forecast, drawn, _open_steps(editing, checked))


def _checked(editing: Editing, draft: Draft, preview: Preview) -> tuple[Checked, RerunPreview | None]:
    checked = editing.check(draft.workflow)
    return checked, None if checked.workflow is None else preview(checked.workflow, draft)


def _drawn(editing: Editing, checked: Checked, forecast: RerunPreview | None, preview: Preview) -> dict[str, Any]:
    shown = drafts.last_readable(editing.draft, lambda workflow: editing.check(workflow).faults)
    if shown != editing.draft:
        forecast = _checked(editing, shown, preview)[1]
    if editing.of == "new":
        return new_plan(editing.draft, shown, forecast, checked.faults, editing.agents)
    return edited_plan(editing.draft, shown, forecast, checked.faults)


def plan_editor(
    editing: Editing, plan_state: PlanState, start: Callable[[Workflow, Draft], None], close: Callable[[], None]
) -> None:
    """Draws the editor. ``start`` starts the run of the edited workflow.

    ``close`` leaves the editor before the page is drawn, and keeps the draft.
    """
    checked, forecast = plan_state.checked, plan_state.forecast
    with st.container(border=True, key="plan-editor"):
        asked = _toolbar(editing, checked, forecast, close)
        shown = _part(editing, checked)
        with st.container(key="edit-steps", gap=None):
            for index in shown:
                _step(editing, index, checked, forecast)
            if not editing.draft.workflow.steps:
                st.button("Add a step", icon=":material/add:", key="add-first", on_click=_add, args=(editing, 0))
    if asked and checked.workflow is not None:
        start(checked.workflow, editing.draft)


def _part(editing: Editing, checked: Checked) -> range:
    """Draws the choice of a part of a long plan, and says which faults are in others. Returns the steps to list."""
    shown, count = editing.shown_steps(), len(editing.draft.workflow.steps)
    if len(shown) == count:
        return shown
    faulty = sorted({fault.step for fault in checked.faults if fault.step is not None})
    starts = range(0, count, LINES_OF_A_PART)

    def name(part: int) -> str:
        steps = range(starts[part], min(count, starts[part] + LINES_OF_A_PART))
        return f"{steps[0]}–{steps[-1]}{' ⚠' if any(step in steps for step in faulty) else ''}"

    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="edit-parts"):
        st.markdown(":small[:gray[Steps]]", width="content")
        st.segmented_control(
            "Steps that are listed",
            list(range(len(starts))),
            format_func=name,
            required=True,
            key=editing.parts_key,
            label_visibility="collapsed",
            width="content",
        )
        if elsewhere := [step for step in faulty if step not in shown]:
            named = ", ".join(map(str, elsewhere[:_MOST_NAMED])) + (" …" if len(elsewhere) > _MOST_NAMED else "")
            st.markdown(f":small[:red[:material/error: Also to fix: step {named}]]", width="content")
    return shown


def _toolbar(editing: Editing, checked: Checked, forecast: RerunPreview | None, close: Callable[[], None]) -> bool:
    """Draws the buttons. Returns whether the person asked to run the plan as it is now."""
    draft = editing.draft
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        shape = topology(draft.workflow) if draft.workflow.steps else "no steps"
        title = "A plan of your own" if editing.of == "new" else "Edit the plan"
        st.markdown(f"**{title}** :small[:gray[{shape}]]", width="content")
        st.markdown(f":small[{_in_words(forecast, editing)}]", width="stretch")
        changes: list[tuple[str, str, bool, str | None, Callable[[Draft], Draft]]] = [
            ("Undo", "undo", not draft.past, "Mod+Alt+Z", drafts.undo),
            ("Redo", "redo", not draft.future, "Mod+Alt+Y", drafts.redo),
            ("Reset", "restart_alt", not draft.changed, None, drafts.reset),
        ]
        with st.container(horizontal=True, width="content", gap="small", key="icon-only-plan"):
            for label, icon, disabled, shortcut, act in changes:
                st.button(
                    label,
                    icon=f":material/{icon}:",
                    key=label.lower(),
                    help=f"{label} ({shortcut.replace('Mod', modifier_key())})" if shortcut else label,
                    type="tertiary",
                    disabled=disabled,
                    on_click=editing.apply,
                    args=(act,),
                    shortcut=shortcut,
                )
        export_menu(editing, checked.workflow)
        kept = "Your changes are kept: the page of this run offers them again."
        if editing.of == "new":
            kept = "Your plan is kept: *Plans…* opens it again."
        st.button("Close", key="close-editor", help=kept, on_click=close)
        asked = st.button(
            _start_label(forecast, editing.of),
            type="primary",
            icon=":material/play_arrow:",
            key="start-edited",
            disabled=forecast is None or editing.missing != "",
            help=f"{modifier_key()} + Shift + Enter",
            shortcut="Mod+Shift+Enter",
        )
    for fault in checked.faults:
        if fault.step is None:
            say(fault, "red", "error")
    _note(editing)
    return asked


def _note(editing: Editing) -> None:
    """Says what else the last change removed. The line is always there, so that no step moves under the mouse."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="edit-note"):
        if note := editing.draft.note:
            st.markdown(f":material/edit_note: {note}", width="content")
            icon, act = ":material/undo:", editing.apply
            st.button("Undo", icon=icon, type="tertiary", key="undo-noted", on_click=act, args=(drafts.undo,))
        else:
            mod = modifier_key()
            starts = {"ended": "re-runs", "waiting": "uses this plan", "new": "runs"}[editing.of]
            keys = f"{mod} + Enter applies now · {mod} + Shift + Enter {starts} · {mod} + Z undoes outside a field"
            st.markdown(f":gray[Typing applies by itself, {keys}]")


def _start_label(forecast: RerunPreview | None, of: Of) -> str:
    if of != "ended":
        return "Run this plan" if of == "new" else "Use this plan"
    if forecast is None:
        return "Re-run"
    runs, reused = len(forecast.will_run), len(forecast.will_reuse)
    if not runs:
        return "Re-run"
    return f"Re-run {runs} of {runs + reused} steps" if reused else f"Run {runs} step{'s' if runs != 1 else ''}"


def _in_words(forecast: RerunPreview | None, editing: Editing) -> str:
    """Says what will run, what is reused and the likely cost, in one line."""
    if forecast is None:
        return ":red[Fix the fault before you run this plan.]"
    if editing.missing:
        return f":orange[:material/warning: {inert(editing.missing)}]"
    runs, reused = _numbers(forecast.will_run), _numbers(forecast.will_reuse)
    if editing.of == "waiting":
        one = f"step {reused} has run and stays as it is"
        several = f"steps {reused} have run and stay as they are"
        done = f"{several if len(forecast.will_reuse) > 1 else one} · " if reused else ""
        return f"‖ {done}this run goes on with the plan as soon as somebody approves it"
    if not runs:
        return f"↺ **{reused}** reused: nothing has changed, nothing to pay"
    cost = inert(forecast.cost.in_line)
    on_top = f" · {inert(forecast.on_top)}" if forecast.on_top else ""
    kept = f" · ↺ **{reused}** reused" if reused else ""
    first = "nothing is sent yet · " if editing.of == "new" else ""
    return f"{first}▶ **{runs}** will run{kept} · about {forecast.estimated_tokens:,} tokens, {cost}{on_top}"


def _numbers(forecasts: tuple[StepForecast, ...]) -> str:
    return numbers([each.index for each in forecasts])


def _step(editing: Editing, index: int, checked: Checked, forecast: RerunPreview | None) -> None:
    step_id = editing.draft.now.ids[index]
    opened = _is_open(editing, index, checked)
    with st.container(key=f"edit-row-{index}"):
        _line(editing, index, step_id, opened, forecast)
    if not opened:
        for warning in checked.warnings:
            if warning.step == index:
                say(warning, "orange", "warning")
        add_task_button(editing, checked, index, step_id)
        return
    with st.container(key=f"edit-fields-{index}"):
        step_fields(editing, index, step_id, checked)
        output_field(editing, index, step_id)


def _open_steps(editing: Editing, checked: Checked) -> tuple[int, ...]:
    """Returns the numbers of the steps whose fields are shown, the last opened last."""
    ids = editing.draft.now.ids
    opened = [index for index in editing.shown_steps() if _is_open(editing, index, checked)]
    return tuple(sorted(opened, key=lambda index: (*editing.open_ids, ids[index]).index(ids[index])))


def _is_open(editing: Editing, index: int, checked: Checked) -> bool:
    """Tells whether a step's fields are shown. A step with a fault is open by itself."""
    return editing.draft.now.ids[index] in editing.open_ids or any(fault.step == index for fault in checked.faults)


def _line(editing: Editing, index: int, step_id: int, opened: bool, forecast: RerunPreview | None) -> None:
    step = editing.draft.workflow.steps[index]
    name_at, sees_at, instruction_at, fate_at, buttons_at = st.columns(
        [2.1, 1.2, 4, 3.4, 1.7], vertical_alignment="center", gap="small", wrap=False
    )
    with name_at, st.container(horizontal=True, vertical_alignment="center", gap=None):
        st.button(
            f"**{index} · {inert(step.agent)}**",
            key=editing.button_key(step_id, "open"),
            icon=":material/expand_more:" if opened else ":material/chevron_right:",
            help=f"{'Close' if opened else 'Change'} step {index}",
            type="tertiary",
            on_click=editing.toggle,
            args=(step_id,),
        )
        st.html(agent_dot(step.agent, editing.agents), width="content")
    sees_at.markdown(f":small[:gray[{_sees(step, index)}]]")
    instruction_at.markdown(f":small[{told(step.instruction, 300)}]")
    fate_at.markdown(_fate(index, forecast))
    with buttons_at, st.container(horizontal=True, horizontal_alignment="right", gap=None, key=f"icon-only-{index}"):
        _structure_buttons(editing, index, step_id)


def _sees(step: Step, index: int) -> str:
    seen = (f"all {index}" if index else "") if step.access_list == "all" else ", ".join(map(str, step.access_list))
    return f"sees {seen or 'nothing'}"


_KEPT = {
    "": ":gray-badge[↺ reused]",
    "written": ":orange-badge[✎ by a person]",
    "pinned": ":orange-badge[⚲ pinned]",
}


def _fate(index: int, forecast: RerunPreview | None) -> str:
    """Says what a run of the edited plan would do with this step, and why."""
    if forecast is None:
        return ""
    reused = [(_KEPT[each.given], each) for each in forecast.will_reuse]
    runs = [(":blue-badge[▶ runs]", each) for each in forecast.will_run]
    said = (f"{badge} :small[:gray[{inert(each.reason)}]]" for badge, each in reused + runs if each.index == index)
    return next(said, "")


def _structure_buttons(editing: Editing, index: int, step_id: int) -> None:
    last = len(editing.draft.workflow.steps) - 1

    def button(name: str, label: str, icon: str, act: Callable[[], None], *, off: bool = False) -> None:
        key, glyph = editing.button_key(step_id, name), f":material/{icon}:"
        st.button(label, icon=glyph, key=key, help=label, disabled=off, on_click=act, type="tertiary")

    def move(to_index: int) -> None:
        editing.apply(lambda draft: drafts.move(draft, index, to_index))
        editing.show_step(step_id)

    button("up", f"Move step {index} up", "arrow_upward", lambda: move(index - 1), off=index == 0)
    button("down", f"Move step {index} down", "arrow_downward", lambda: move(index + 1), off=index == last)
    button("add", f"Add a step after step {index}", "add", lambda: _add(editing, index + 1))
    button("remove", f"Remove step {index}", "delete", lambda: editing.apply(lambda draft: drafts.remove(draft, index)))


def modifier_key() -> str:
    """Returns what Streamlit's ``Mod`` is on the person's keyboard."""
    return "⌘" if "Mac" in st.context.headers.get("User-Agent", "") else "Ctrl"


def _add(editing: Editing, index: int) -> None:
    """Adds a new step ``index``, open, that sees the step before it."""
    steps = editing.draft.workflow.steps
    agent = steps[index - 1].agent if index else next(iter(editing.agents), "")
    new = Step(instruction=NEW_INSTRUCTION, agent=agent, access_list=(index - 1,) if index else ())
    editing.keep(drafts.insert(editing.draft, index, new))
    editing.open_only(editing.draft.now.ids[index])
    editing.show_step(editing.draft.now.ids[index])
