"""The dialog that begins with a plan: a template, a text or a file, an earlier run, or several from the Conductor."""

from collections.abc import Callable

import streamlit as st

from conductor_core.errors import InspectorError
from conductor_core.privacy.masking import one_line
from conductor_core.run.request import (
    LEAST_PLANS,
    MOST_PLANS,
    MOST_TEMPERATURE,
    REPLAY_PURPOSE,
    USUAL_PLANS,
    USUAL_TEMPERATURE,
)
from conductor_core.workflow.model import Fault, Workflow
from conductor_core.workflow.topology import BLANK, TEMPLATES, Template, topology
from pages.components.app.access_log import viewed
from pages.components.app.session import current
from pages.components.app.widgets import fault_box, worded
from pages.components.run import new_plan, settings, task_box
from pages.components.run.pasted_plan import MOST_MIB, GivenPlan, given_plan, text_of
from pages.components.run.task_box import PLANS_ASKED, TASK
from pages.components.style.formats import ago, inert, instruction_markdown, plural
from storage import RunSummary

TEMPLATE, TEXT, EARLIER, SEVERAL = "A template", "A text or file", "An earlier run", "Several to choose from"
KIND, GIVEN, FILE_FAULT = "plans-kind", "plans-given", "plans-file-fault"
_BLANK = "Blank"
_RUN = "plans-run"
_EARLIER_LISTED, _FAULTS_SHOWN = 60, 6


def plans_dialog() -> None:
    """Draws the dialog while it is open. Call it in every drawing of the page: else Streamlit closes it."""
    if st.session_state.get(PLANS_ASKED):
        _dialog()


def _close() -> None:
    st.session_state.pop(PLANS_ASKED, None)


@st.dialog("Start from a plan", width="medium", on_dismiss=_close)
def _dialog() -> None:
    if not st.session_state.get(PLANS_ASKED):
        st.rerun()  # a button of the dialog has done its work
    # A dialog lies outside the element that says which of the two colour schemes the page has.
    scheme = "dark" if st.context.theme.type == "dark" else "light"
    st.html(f"<style>.stDialog {{ color-scheme: {scheme}; }}</style>")
    _go_on()
    with st.container(key="plans-dialog", gap="small"):
        kind = st.segmented_control(
            "Begin with",
            [TEMPLATE, TEXT, EARLIER, SEVERAL],
            default=TEMPLATE,
            required=True,
            key=KIND,
            label_visibility="collapsed",
            persist_state="session",
        )
        {TEMPLATE: _template, TEXT: _text, EARLIER: _earlier, SEVERAL: _several}[kind or TEMPLATE]()


def _go_on() -> None:
    """Offers the plan that is kept and not shown."""
    steps = new_plan.kept_steps()
    if steps is None or new_plan.editing() is not None:
        return
    label = f"Go on with your plan of {plural(steps, 'step')}"
    st.button(label, key="plans-go-on", icon=":material/edit:", on_click=_act, args=(new_plan.show,))


def _template() -> None:
    cast = new_plan.cast()
    if cast is None:
        st.error("The chosen pool cannot be used: choose another one in the settings of the run.")
        return
    most = settings.limits().max_steps
    fitting = {template.name: template for template in TEMPLATES if template.fits(most)}
    names = [_BLANK, *fitting]
    captions = ["No steps yet.", *(template.says for template in fitting.values())]
    chosen_at, shown_at = st.columns([4, 6], gap="medium")
    with chosen_at:
        default = names.index("Planner, executor, verifier") if "Planner, executor, verifier" in names else 0
        name = st.radio(
            "Template", names, index=default, captions=captions, key="plans-template", label_visibility="collapsed"
        )
    template = fitting.get(name or "")
    with shown_at:
        with st.container(horizontal=True, vertical_alignment="bottom", horizontal_alignment="distribute"):
            workflow = BLANK if template is None else template.workflow(cast, _branches(template, most))
            _open_button(workflow)
        _preview(workflow)
        if left := [each.name for each in TEMPLATES if each.name not in fitting]:
            verb = "needs" if len(left) == 1 else "need"
            st.caption(f"{', '.join(left)} {verb} more than the {plural(most, 'step')} that the settings allow.")


def _branches(template: Template, max_steps: int) -> int | None:
    most = template.most(max_steps)
    if not template.per_branch or most == template.least:
        st.caption(f"Of a fixed size within {plural(max_steps, 'step')}.", width="stretch")
        return template.least or None
    usual = min(template.usual, most)
    number = st.number_input(
        f"Number of {template.branch}{'es' if template.branch.endswith('ch') else 's'}",
        template.least,
        most,
        usual,
        key=f"plans-branches-{template.name}",
        width=190,
    )
    return int(number)


def _preview(workflow: Workflow) -> None:
    """Shows who does what after whom, a line for each step."""
    if not workflow.steps:
        st.caption("A plan without steps: add them in the editor.")
        return
    st.caption(f"{plural(len(workflow.steps), 'step')} · {topology(workflow)}")
    lines = []
    for index, step in enumerate(workflow.steps):
        reads = ", ".join(map(str, workflow.reads(index)))
        sees = f"sees {reads}" if reads else "sees nothing"
        said = instruction_markdown(step.instruction, 160)
        lines.append(f"**{index} · {inert(step.agent)}** :small[:gray[{sees}]]  \n:small[{said}]")
    with st.container(key="plans-preview", gap="xsmall"):
        for line in lines:
            st.markdown(line)


def _open_button(workflow: Workflow, task: str | None = None) -> None:
    st.button(
        "Open in the editor",
        key="plans-open",
        type="primary",
        on_click=_act,
        args=(lambda: new_plan.take(workflow, task),),
    )


def _act(act: Callable[[], None]) -> None:
    act()
    _close()


def _text() -> None:
    st.file_uploader(
        "Choose or drop a file",
        key="plans-file",
        max_upload_size=MOST_MIB,
        on_change=_read_file,
        help="A workflow file (JSON), or a text with the Conductor's three lists",
    )
    if message := st.session_state.get(FILE_FAULT):
        st.error(inert(message), icon=":material/error:")
    st.text_area(
        "The plan",
        key=GIVEN,
        height=180,
        persist_state="session",
        placeholder='{"steps": [{"instruction": …, "agent": …, "access_list": []}]}, or model_id = […], '
        "subtasks = […], access_list = […]",
    )
    text = st.session_state.get(GIVEN) or ""
    if not text.strip():
        st.caption("Paste a plan, or choose a file: JSON with steps, or the Conductor's three lists.")
        return
    pool = new_plan.chosen_pool()
    given = given_plan(text, [] if pool is None else [spec.name for spec in pool.workers])
    _say(given)
    if given.workflow is not None:
        _open_button(given.workflow, given.task)
        typed = str(st.session_state.get(TASK) or "").strip()
        if given.task and typed and typed != given.task.strip():
            st.caption(f"Your task stays in the box. That of the text is not used: {inert(given.task[:160])}")
        _preview(given.workflow)


def _read_file() -> None:
    """Puts the file's text into the field, where its faults can be mended."""
    st.session_state.pop(FILE_FAULT, None)
    uploaded = st.session_state.get("plans-file")
    if uploaded is None:
        return
    try:
        st.session_state[GIVEN] = text_of(uploaded.getvalue(), one_line(uploaded.name))
    except InspectorError as error:
        st.session_state[FILE_FAULT] = str(error)


def _say(given: GivenPlan) -> None:
    for fault in given.faults[:_FAULTS_SHOWN]:
        st.markdown(f":red[:material/error: {inert(_place(fault) + fault.message)}]")
    if (more := len(given.faults) - _FAULTS_SHOWN) > 0:
        st.caption(f"And {plural(more, 'more fault')}.")
    for repair in given.repairs[:_FAULTS_SHOWN]:
        st.markdown(f":orange[:material/build: {inert(repair)}]")


def _place(fault: Fault) -> str:
    return "" if fault.line is None else f"line {fault.line}, column {fault.column}: "


def _earlier() -> None:
    try:
        listed = current().store.runs(limit=4 * _EARLIER_LISTED, without=REPLAY_PURPOSE)
        listed = [run for run in listed if run.topology and run.damage is None]
    except InspectorError as error:
        fault_box(error)
        return
    runs = {run.run_id: run for run in listed[:_EARLIER_LISTED]}
    if not runs:
        st.caption("No run has a plan yet. Run a task, then its plan can be taken from here.")
        return
    run_id = st.selectbox(
        "Run",
        list(runs),
        key=_RUN,
        format_func=worded(_RUN, {each: _label(run) for each, run in runs.items()}),
        accept_new_options=True,
        help="The newest runs. For an older one, type or paste its id.",
    )
    if not run_id:
        return
    try:
        trace = current().store.trace(current().store.resolve(run_id.strip()))[0]
    except InspectorError as error:
        fault_box(error)
        return
    viewed([trace.run_id], "run page")
    if trace.root.workflow is None:
        st.error("This run has no plan.", icon=":material/error:")
        return
    _open_button(trace.root.workflow, trace.task)
    _preview(trace.root.workflow)


def _label(run: RunSummary) -> str:
    plan = f"{run.topology}, {plural(run.steps, 'step')}"
    return f"{ago(run.created_at_utc)} · {plan} · {one_line(run.task[:80])} · {run.run_id[-6:]}"


def _several() -> None:
    st.caption(
        f"The Conductor {inert(settings.conductor())} writes several plans for the task, each with a fresh seed. "
        "No worker is called. Then choose one, edit one, or run them all."
    )
    count_at, temperature_at = st.columns(2)
    count = count_at.number_input(
        "Plans", LEAST_PLANS, MOST_PLANS, USUAL_PLANS, key="plans-count", persist_state="session"
    )
    temperature = temperature_at.number_input(
        "Temperature",
        0.0,
        MOST_TEMPERATURE,
        USUAL_TEMPERATURE,
        step=0.1,
        format="%.1f",
        key="plans-temperature",
        persist_state="session",
        help="At 0 the likeliest word is always taken, so all plans are equal. A Conductor whose file sets a "
        "temperature keeps its own.",
    )
    task = str(st.session_state.get(TASK) or "").strip()
    if not task:
        st.warning("There is no task yet: close this, and type one or take an example.", icon=":material/warning:")
    st.button(
        f"Write {count} plans",
        key="plans-write",
        type="primary",
        disabled=not task,
        on_click=_act,
        args=(lambda: task_box.begin_plans(task, int(count), float(temperature)),),
    )
