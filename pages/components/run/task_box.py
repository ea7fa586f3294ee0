"""The card where a run begins: the task, examples, and the settings of the run."""

from collections.abc import Callable

import streamlit as st

from conductor_core.engine.catalogue import EXAMPLES
from conductor_core.engine.request import asks_conductor
from conductor_core.engine.resampling import plans_requested
from conductor_core.errors import InspectorError
from conductor_core.trace import RunTrace
from conductor_core.workflow.model import Workflow
from pages.components.look.words import inert, plural
from pages.components.run import begin_once, images, run_settings
from pages.components.run.larger_conductor import propose_larger_conductor
from pages.components.run.preflight import preflight_notice
from pages.components.run.run_choices import may_be_asked, missing_note, take_choices_of
from pages.components.run.to_models import leads
from pages.components.shell import address
from pages.components.shell.faults import fault_box
from pages.components.shell.runtime import current

TASK = "task"
ERROR = "start-error"
PLANS_ASKED = "plans-asked-for"  # whether the dialog about plans is open
PLANS_HELP = "Start from a plan of your own, or have several written and choose"
_FROM_RUN = "task-from-run"  # the run whose task was put into the box, and the box's text then


def task_box(trace: RunTrace | None, beside: Callable[[RunTrace | None], None]) -> None:
    """Draws the card. The start of a run puts its id into the address (``?run=``); the card shows a refusal.

    ``beside`` draws beside the examples.

    The box takes over the task of the run on the page, unless someone has typed another one.
    """
    _take_task_of(trace)
    take_choices_of(trace)
    with st.container(border=True, key="task-box"):
        with st.container(horizontal=True, vertical_alignment="top", key="task-row", wrap=False):
            st.text_area(
                "Task",
                key=TASK,
                height="content",
                label_visibility="collapsed",
                placeholder="Type a task, or take an example. The Conductor writes a workflow for it.",
                persist_state="session",
            )
            with st.container(horizontal=True, width="content", key="task-actions", wrap=False):
                images.image_field()
                st.button("Plans…", key="plans", type="tertiary", help=PLANS_HELP, on_click=_ask_for_plans)
                st.button("Plan only", key="plan-only", on_click=_start, args=(True,))
                st.button("Run", key="run", type="primary", on_click=_start, args=(False,), shortcut="Mod+Enter")
        if message := st.session_state.pop(ERROR, None):
            fault_box(message)
        with st.container(key="settings-row"):
            specs = run_settings.expander(trace.pool if trace is not None else None)
        with st.container(key="examples", horizontal=True, gap="xsmall", vertical_alignment="center", wrap=False):
            st.caption("Try", width="content")
            for number, example in enumerate(EXAMPLES):
                take, label = (example.task,), f"{example.title} · {example.shows}"
                st.button(label, key=f"example-{number}", type="tertiary", on_click=_take_example, args=take)
            beside(trace)
        images.images_row([spec for spec in specs if spec.name not in run_settings.excluded()])
        if note := missing_note():
            st.warning(note, icon=":material/warning:")
        preflight_notice(specs, st.session_state.get(TASK, ""))
        propose_larger_conductor()
    if trace is not None and st.session_state.get(TASK, "").strip() != trace.task.strip():
        st.caption(f"The task of the run below: {inert(trace.task[:400])}")
    if trace is not None and trace.turns_before:
        turns = plural(len(trace.turns_before), "turn")
        st.caption(f"The run below came after {turns} of a conversation. A new run of this task is without them.")


def _take_task_of(trace: RunTrace | None) -> None:
    if trace is None:
        return
    text = st.session_state.get(TASK, "")
    run_id, text_then = st.session_state.get(_FROM_RUN, (None, None))
    if run_id != trace.run_id and (not text.strip() or text == text_then):  # else someone has typed
        st.session_state[TASK] = trace.task
        images.put(trace.images)
        st.session_state[_FROM_RUN] = (trace.run_id, trace.task)


def _take_example(task: str) -> None:
    st.session_state[TASK] = task
    images.put(())


def _ask_for_plans() -> None:
    st.session_state[PLANS_ASKED] = True


def _start(plan_only: bool) -> None:
    """Starts a run with what is chosen now, because a field may have changed with the click."""
    task = st.session_state.get(TASK, "").strip()
    if not task:
        st.session_state[ERROR] = "There is no task yet: type one, or take an example."
        return
    begin(task, plan_only=plan_only)


def begin(task: str, *, plan_only: bool = False, workflow: Workflow | None = None) -> bool:
    """Starts a run of ``task`` with what is chosen, and opens it. The card shows a refusal; then it returns False.

    ``workflow``: the plan to carry out; None: the Conductor writes one.
    """
    try:
        request = run_settings.request(task, plan_only=plan_only).model_copy(update={"images": images.chosen()})
        if workflow is not None:
            asked = request.conductor if asks_conductor(workflow) else None
            request = request.model_copy(update={"workflow": workflow, "conductor": asked})
        if leads(request.conductor):
            return False
        run_id = begin_once.start(request)
        may_be_asked(request.conductor)
    except InspectorError as error:
        st.session_state[ERROR] = str(error)
        return False
    open_run(run_id, task)
    return True


def begin_plans(task: str, count: int, temperature: float | None) -> None:
    """Has the Conductor write ``count`` plans for ``task`` at once, and opens the first. The card shows a refusal."""
    begun: list[str] = []
    try:
        each = run_settings.request(task, plan_only=True).model_copy(update={"images": images.chosen()})
        if leads(each.conductor):
            return
        for request in plans_requested(each, count, temperature=temperature):
            begun.append(current().host.start(request))
        may_be_asked(each.conductor)
    except InspectorError as error:
        st.session_state[ERROR] = str(error)
    if begun:
        open_run(begun[0], task)


def open_run(run_id: str, task: str) -> None:
    """Opens a run that was begun here. The box keeps its text."""
    st.session_state[_FROM_RUN] = (run_id, st.session_state.get(TASK, task))
    run_settings.close()
    address.write("run", run_id)
