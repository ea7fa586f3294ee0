"""The card where a run begins: the task, its images, examples, and the settings of the run.

A double press starts one run. The bytes of images are kept in the database as soon as they come, so a reload of the
page or a look at another page loses none.
"""

import time
from collections.abc import Callable, Sequence
from typing import Literal

import streamlit as st

from conductor_core.chat.images import prepare
from conductor_core.chat.messages import ImagePart, Message, WorkerSpec, content_of
from conductor_core.engine.models import EXAMPLES
from conductor_core.engine.pools import images_given
from conductor_core.engine.repeats import plans_requested
from conductor_core.engine.request import asks_conductor
from conductor_core.errors import BadInput, InspectorError
from conductor_core.privacy.masking import one_line
from conductor_core.run.request import MOST_IMAGES, RunRequest
from conductor_core.run.trace import RunTrace
from conductor_core.workflow.model import Workflow
from pages.components.app import places
from pages.components.app.session import current
from pages.components.app.widgets import across, button, kept_fault, show_fault, text_button
from pages.components.run import preflight, settings, who_answers
from pages.components.run.settings import leads
from pages.components.run.who_answers import Asking
from pages.components.style.formats import html, inert, plural

# Starting.

_SHOWN = 400
_LAST = "begun-last"
DOUBLE_PRESS_S = 3.0


def start(request: RunRequest) -> str:
    """Starts a run and returns its id: that of the run just begun here if the same is asked for while it goes on.

    Raises: InspectorError.
    """
    now_s = time.monotonic()
    asked = request.model_copy(update={"run_id": ""})
    last: tuple[RunRequest, str, float] | None = st.session_state.get(_LAST)
    twice = last is not None and last[0] == asked and now_s - last[2] < DOUBLE_PRESS_S
    if last is not None and twice and last[1] in current().host.active():
        return last[1]
    run_id = current().host.start(request, keys=settings.typed_keys())
    st.session_state[_LAST] = (asked, run_id, now_s)
    return run_id


# Images.

IMAGES = "task-images"
_FAULT = "task-image-fault"
_UPLOADS = "task-image-uploads"
"""How many uploads were taken: each gets a field of its own, which is empty."""


def chosen() -> tuple[ImagePart, ...]:
    return tuple(st.session_state.get(IMAGES, ()))


def put(images: Sequence[ImagePart]) -> None:
    st.session_state[IMAGES] = tuple(images)
    st.session_state[_FAULT] = None


def image_field() -> None:
    """Draws the button that takes images. What is dropped on the card, or pasted, comes through it, too.

    It takes any file: of one that is too large or no image ``prepare`` says so, where Streamlit's field says nothing.
    """
    key = f"task-image-{st.session_state.get(_UPLOADS, 0)}"
    with st.container(key="task-image-field", width="content"):
        st.file_uploader("Add images", None, True, key, None, _take, (key,), label_visibility="collapsed")


def images_row(specs: Sequence[WorkerSpec]) -> None:
    images = chosen()
    if images:
        with across("task-images", gap="small"):
            for number, image in enumerate(images):
                with st.container(key=f"task-image-shown-{number}", horizontal=True, gap=None, width="content"):
                    st.html(html("run/run", "thumbnail", image=image, number=number + 1))
                    others = [other for other in images if other is not image]
                    text_button(f"Remove image {number + 1}", f"task-image-out-{number}", put, others, icon="close")
    # It stays until the next image: a drawing of the page that another one breaks off must not take it along.
    if message := st.session_state.get(_FAULT):
        st.error(message, icon=":material/error:")
    turn = Message(role="user", content=content_of("", images))
    given = images_given((turn,), {spec.name: spec for spec in specs}, every_step=False)
    if given is not None and not given.agents:
        st.warning(
            f"No worker of the pool {inert(settings.pool())} accepts images. Choose a pool with one that does "
            f'(`accepts = ["text", "image"]` in its file), or remove the image{"s" if images[1:] else ""}.',
            icon=":material/warning:",
        )


def _take(key: str) -> None:
    """Takes what was chosen, dropped or pasted into the field, and empties it."""
    files = st.session_state.get(key)
    if not files:
        return
    st.session_state[_UPLOADS] = st.session_state.get(_UPLOADS, 0) + 1
    images, faults = list(chosen()), []
    for file in files:
        try:
            if len(images) == MOST_IMAGES:
                raise BadInput(f"at most {MOST_IMAGES} images can come with one task")
            loaded = prepare(file.getvalue(), f"image {one_line(file.name, limit=80)}")
            current().store.keep_images([loaded])
            image = ImagePart.of(loaded)
            images += [] if image in images else [image]
        except InspectorError as error:
            faults.append(str(error))
    put(images)
    if faults:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        st.session_state[_FAULT] = inert(f"{faults[0]}{more}")


TASK = "task"
ERROR = "start-error"
PLANS_ASKED = "plans-asked-for"  # whether the dialog about plans is open
PLANS_HELP = "Start from a plan of your own, or have several written and choose"
MOST_CHARACTERS = 20_000
"""A longer task is not put into the box: a browser takes minutes to lay out megabytes in a field."""
_OFFERED = tuple(example for example in reversed(EXAMPLES) if example.shape != "one shot")
"""A question that one step answers shows no workflow."""
_CHOSEN = "run-menu-chosen"  # how often something of the menu was chosen
_OWN_PLAN = "task-own-plan"
_FROM_RUN = "task-from-run"  # the run whose task was put into the box, and the box's text then


def task_box(
    trace: RunTrace | None, beside: Callable[[RunTrace | None], None] | None, *, own_plan: bool = False
) -> bool:
    """Draws the card, and below it who could answer, if that is to be said first. Returns whether it is.

    The start of a run puts its id into the address (``?run=``); the card shows a refusal. Who writes an ``own_plan``
    has chosen its workers and is not asked.

    ``beside`` draws beside the examples; None: the page has that elsewhere.

    The box takes over the task of the run on the page, unless someone has typed another one.
    """
    _fill_task_of(trace)
    preflight.apply_choices_of(trace)
    st.session_state[_OWN_PLAN] = own_plan
    asking = None
    if not own_plan:
        asking = who_answers.asking(st.session_state.get(TASK, ""), None if trace is None else trace.task)
    with st.container(border=True, key="task-box"):
        with across("task-row", wrap=False, gap="xsmall"):
            st.text_area(
                "Task", key=TASK, height=68, label_visibility="collapsed", placeholder="Type a task of your own…",
                persist_state="session",
            )  # fmt: skip
            image_field()
            shown_pool, answering = None if trace is None else trace.pool, None if asking is None else asking.in_words
            specs = settings.expander(shown_pool, answering)
            if trace is not None and beside is not None:
                beside(trace)
            text, shown = st.session_state.get(TASK, "").strip(), "" if trace is None else trace.task.strip()
            waits = beside is None and not text  # the first screen's filled button is the tour's
            _run_buttons(asking, is_new=not waits and (trace is None or text != shown or asking is not None))
        show_fault(ERROR)
        if message := st.session_state.get(settings.KEPT_ERROR):
            st.warning(inert(message), icon=":material/warning:")
        images_row([spec for spec in specs if spec.name not in settings.excluded()])
        if note := preflight.missing_note():
            st.warning(note, icon=":material/warning:")
        if asking is None:
            preflight.preflight_notice(specs, st.session_state.get(TASK, ""))
            preflight.propose_larger_conductor()
    if not own_plan and who_answers.only_simulated():
        with st.container(key="asks-while-typing"):
            st.html("<i></i>")  # typing.js finds it: a task is looked at as it is typed
    if asking is not None:
        who_answers.panel(asking, lambda: _start(True))
    elif trace is None:
        with across("examples", gap="xsmall", wrap=False):
            st.caption("or try", width="content")
            for number, example in enumerate(_OFFERED):
                text_button(example.title, f"example-{number}", _fill_example, example.task)
            if beside is not None:
                beside(trace)
    if trace is not None and st.session_state.get(TASK, "").strip() != trace.task.strip():
        with st.container(key="task-below"):
            long = f", {len(trace.task):,} characters, begins" if len(trace.task) > MOST_CHARACTERS else ""
            st.caption(f"The task of the run below{long}: {inert(trace.task[:_SHOWN])}{'…' if long else ''}")
    if trace is not None and trace.turns_before:
        turns = plural(len(trace.turns_before), "turn")
        st.caption(f"The run below came after {turns} of a conversation. A new run of this task is without them.")
    return asking is not None


def arrive_first() -> None:
    """Empties the box of a run's task, when the rail's name was just pressed. A task that was not run stays.

    Who should answer it is asked again once somebody goes on with it. Call it before the box is drawn.
    """
    if not st.session_state.pop(places.FIRST, False):
        return
    text, (_, of_run) = st.session_state.get(TASK, ""), st.session_state.get(_FROM_RUN, (None, None))
    if of_run is not None and text.strip() == of_run.strip():
        st.session_state[TASK] = ""
        put(())
    else:
        who_answers.put_off(text)


def _run_buttons(asking: Asking | None, *, is_new: bool) -> None:
    """Draws Run, and beside it what else can be begun. Only a new task has the filled button."""
    with st.container(horizontal=True, width="content", key="run-buttons", wrap=False, gap=None):
        kind: Literal["primary", "secondary"] = "primary" if is_new else "secondary"
        label = "Run" if asking is None else inert(asking.run_label)
        button(label, "run", _start, False, type=kind, shortcut="Mod+Enter")
        # Another key is another menu, which is closed.
        menu = f"run-menu-{st.session_state.get(_CHOSEN, 0)}"
        with st.popover("More ways to begin", icon=":material/arrow_drop_down:", key=menu, type=kind):
            text_button("Plan only", "plan-only", _start, True)
            text_button("Plans…", "plans", _ask_for_plans, help=PLANS_HELP)


def _fill_task_of(trace: RunTrace | None) -> None:
    if trace is None:
        return
    text = st.session_state.get(TASK, "")
    run_id, text_then = st.session_state.get(_FROM_RUN, (None, None))
    if run_id != trace.run_id and (not text.strip() or text == text_then):  # else someone has typed
        shown = trace.task if len(trace.task) <= MOST_CHARACTERS else ""
        st.session_state[TASK] = shown
        put(trace.images)
        st.session_state[_FROM_RUN] = (trace.run_id, shown)


def _fill_example(task: str) -> None:
    st.session_state[TASK] = task
    put(())


def _ask_for_plans() -> None:
    st.session_state[_CHOSEN] = st.session_state.get(_CHOSEN, 0) + 1
    st.session_state[PLANS_ASKED] = True


def _start(plan_only: bool) -> None:
    """Starts a run with what is chosen now, because a field may have changed with the click."""
    st.session_state[_CHOSEN] = st.session_state.get(_CHOSEN, 0) + 1
    task = st.session_state.get(TASK, "").strip()
    with kept_fault(ERROR):
        if not task:
            raise BadInput("There is no task yet: type one, or take an example.")
        answering, can_begin = (None, True) if st.session_state.get(_OWN_PLAN) else who_answers.take(task)
        if can_begin:
            begin(task, plan_only=plan_only, answering=answering)


def begin(
    task: str, *, plan_only: bool = False, workflow: Workflow | None = None, answering: tuple[str, str] | None = None
) -> bool:
    """Starts a run of ``task`` with what is chosen, and opens it. The card shows a refusal; then it returns False.

    Args:
        workflow: the plan to carry out; None: the Conductor writes one.
        answering: Conductor and pool of this run alone; None: those of the settings.
    """
    with kept_fault(ERROR):
        request = settings.request(task, plan_only=plan_only, answering=answering)
        request = request.model_copy(update={"images": chosen()})
        if workflow is not None:
            asked = request.conductor if asks_conductor(workflow) else None
            request = request.model_copy(update={"workflow": workflow, "conductor": asked})
        if not leads(request.conductor):
            run_id = start(request)
            preflight.may_be_asked(request.conductor)
            open_run(run_id, task)
            return True
    return False


def begin_plans(task: str, count: int, temperature: float | None) -> None:
    """Has the Conductor write ``count`` plans for ``task`` at once, and opens the first. The card shows a refusal."""
    begun: list[str] = []
    with kept_fault(ERROR):
        each = settings.request(task, plan_only=True).model_copy(update={"images": chosen()})
        if leads(each.conductor):
            return
        for request in plans_requested(each, count, temperature=temperature):
            begun.append(current().host.start(request, keys=settings.typed_keys()))
        preflight.may_be_asked(each.conductor)
    if begun:
        open_run(begun[0], task)


def open_run(run_id: str, task: str) -> None:
    st.session_state[_FROM_RUN] = (run_id, st.session_state.get(TASK, task))
    settings.close()
    places.write("run", run_id)
