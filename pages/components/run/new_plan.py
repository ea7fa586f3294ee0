"""A plan of one's own before any run: kept in the page's state and for the browser, edited, then run.

The Run page shows it while no run is open. Nothing is sent before the person runs it.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import streamlit as st

from conductor_core.chat.messages import WorkerSpec, conversation_of, images_in
from conductor_core.engine import estimates
from conductor_core.engine.models import cast_of
from conductor_core.engine.pools import pool_info
from conductor_core.engine.prompts import Asked
from conductor_core.errors import BadInput, InspectorError
from conductor_core.privacy.masking import one_line
from conductor_core.run import request
from conductor_core.run.values import PoolInfo
from conductor_core.workflow.edits import compare
from conductor_core.workflow.model import CONDUCTOR_AGENT, Fault, Step, Workflow
from conductor_core.workflow.parser import parse_workflow_file
from conductor_core.workflow.source import MAX_CHARACTERS
from conductor_core.workflow.topology import BLANK, TEMPLATES, Template, topology
from pages.components.app import places
from pages.components.app.session import current, readable, viewed
from pages.components.app.widgets import button, dialog_scheme, fault_box, fault_shown, kept_fault, segments, worded
from pages.components.run import draft as drafts
from pages.components.run import settings, task_box
from pages.components.run.draft import Draft
from pages.components.run.draft_store import PageDraft
from pages.components.run.editing import Editing, PlanState, read_plan
from pages.components.run.task_box import PLANS_ASKED, TASK
from pages.components.run_list.table import run_label
from pages.components.style.formats import inert, instruction_markdown, plural

MOST_MIB = 4 * MAX_CHARACTERS // 2**20 + 1  # a character has at most four bytes


@dataclass(frozen=True)
class GivenPlan:
    """What a text says.

    Attributes:
        workflow: None where the text cannot be read as a plan; then ``faults`` say why and where. Steps that break a
            rule (an unknown agent, a later step in an access list) are in it as written: the editor shows them.
        task: only from JSON.
        repairs: what was read otherwise than written.
    """

    workflow: Workflow | None
    task: str | None = None
    faults: tuple[Fault, ...] = ()
    repairs: tuple[str, ...] = ()


def given_plan(text: str, agents: Sequence[str]) -> GivenPlan:
    """Reads a plan: the three lists, or JSON, also with the keys of the proof of concept. Never raises.

    ``agents``: names by ordinal.
    """
    parsed = parse_workflow_file(text)
    if parsed.steps is None or parsed.faults or parsed.more_steps:
        said = f"The plan has more than {len(parsed.steps or ())} steps, which no run takes."
        too_many = Fault(code="too_many_steps", message=said)
        return GivenPlan(None, parsed.task, parsed.faults or (too_many,), parsed.repairs)
    steps = []
    for raw in parsed.steps:
        agent = raw.agent
        if isinstance(agent, int):
            agent = agents[agent] if 0 <= agent < len(agents) else str(agent)
        steps.append(Step(instruction=raw.instruction or "", agent=agent or "", access_list=raw.access_list or ()))
    return GivenPlan(Workflow(steps=tuple(steps)), parsed.task, (), parsed.repairs)


def text_of(raw: bytes, name: str) -> str:
    """Returns the text of a file. Raises: BadInput, which names the file, the fault and its place."""
    if len(raw) > MOST_MIB << 20:
        raise BadInput(f"{name}: it has more than {MOST_MIB} MiB, which no plan needs")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - raw.rfind(b"\n", 0, error.start)
        raise BadInput(f"{name}: line {line}, byte {column}: it is not UTF-8 text") from error


STORE = PageDraft()
_SHOWN, _READ = "new-plan-shown", "new-plan-read"
_RUNS_READ = 50
_ROUNDS_READ = 20
NO_TASK = "There is no task yet: type one above."


def take(workflow: Workflow, task: str | None = None) -> None:
    """Opens ``workflow`` in the editor. An earlier plan of one's own can be had back with Undo.

    ``task``: what came with it; it goes into an empty task box.
    """
    before = _draft()
    STORE.put(drafts.begin(workflow) if before is None else drafts.restart(before, workflow))
    if task and not _task():
        st.session_state[TASK] = task
    show()


def show() -> None:
    st.session_state[_SHOWN] = True
    places.write("run", None)
    keep()


def editing() -> Editing | None:
    """Returns the editor of the plan; None: there is none, or it is closed. Call it before the task box is drawn."""
    found = _draft()
    if found is None or not st.session_state.get(_SHOWN):
        return None
    pool, limits = chosen_pool(), settings.limits()
    every_step, of_pool = settings.chosen_policies().give_question, settings.policies_of_pool(settings.pool())
    if every_step is None:
        every_step = of_pool is not None and bool(of_pool.give_question)
    return Editing(
        store=STORE,
        of="new",
        original=found.original,
        task=_task(),
        specs=() if pool is None else pool.workers,
        recursive=limits.max_depth > 0,
        max_steps=limits.max_steps,
        give_question=every_step,
        conversation=conversation_of(_task(), task_box.chosen(), ()),
        missing="" if _task() else NO_TASK,
    )


def plan_state(edited: Editing, specs: Sequence[WorkerSpec], pool: str) -> PlanState:
    """Returns what follows from a plan of which nothing has run: its faults, its likely cost, what the graph draws.

    Args:
        specs, pool: who would be called, and the name of their pool.
    """
    answer_tokens = estimates.ANSWER_TOKENS
    with suppress(InspectorError):  # the database is damaged, which the page says
        answer_tokens = estimates.usual_answer_tokens(pool, current().store.runs(_RUNS_READ))
    *before, last = edited.conversation
    asked = Asked(edited.task, edited.give_question, tuple(images_in(last.content)), tuple(before))

    def preview(workflow: Workflow, draft: Draft) -> estimates.RerunPreview:
        recursive = any(step.agent == CONDUCTOR_AGENT for step in workflow.steps)
        rounds = _rounds() if recursive else estimates.Rounds()
        expected = estimates.forecast(workflow, specs, asked, answer_tokens=answer_tokens, rounds=rounds)
        if edited.of == "new":
            return expected
        changes = compare(edited.original, workflow, draft.origins)
        will_run = tuple(
            step.model_copy(update={"reason": ", ".join(filter(None, (changes.in_words(step.index), step.reason)))})
            for step in expected.will_run
        )
        return expected.model_copy(update={"will_run": will_run})

    return read_plan(edited, preview)


def keep() -> None:
    """Keeps the plan for the browser with the task, which may be another by now."""
    if (draft := STORE.now) is not None:
        STORE.keep(draft, _task(), shown=bool(st.session_state.get(_SHOWN)))


def run(workflow: Workflow) -> None:
    if task_box.begin(_task(), workflow=workflow):
        STORE.forget()
        STORE.drop()


def close() -> None:
    st.session_state[_SHOWN] = False
    keep()


def chosen_pool() -> PoolInfo | None:
    try:
        info = pool_info(settings.pool(), current().settings)
        names = [spec.name for spec in info.workers]
        return info.without([name for name in settings.excluded() if name in names])
    except InspectorError:
        return None


def _task() -> str:
    return str(st.session_state.get(TASK) or "").strip()


@st.cache_data(ttl=60, max_entries=1, show_spinner=False)
def _rounds() -> estimates.Rounds:
    try:
        runs = current().store.runs(_ROUNDS_READ)
    except InspectorError:  # the database is damaged, which the page says
        return estimates.Rounds()
    return estimates.recorded_rounds([trace for run in runs if (trace := readable(run.run_id)) is not None])


def _draft() -> Draft | None:
    """Returns the plan in the page's state; a new page's is the one that the browser kept."""
    if not st.session_state.get(_READ):
        st.session_state[_READ] = True
        kept = STORE.take_up(st.query_params.get(STORE.parameter))
        if kept is not None:
            st.session_state[_SHOWN] = kept.shown
            if kept.shown and kept.task and not _task():
                st.session_state[TASK] = kept.task
    return STORE.now


# The dialog that begins with a plan.

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
    dialog_scheme()
    found = _draft()
    if found is not None and editing() is None:
        label = f"Go on with your plan of {plural(len(found.workflow.steps), 'step')}"
        button(label, "plans-go-on", _act, show, icon="edit")
    with st.container(key="plans-dialog", gap="small"):
        kinds = {TEMPLATE: _template, TEXT: _text, EARLIER: _earlier, SEVERAL: _several}
        kind = segments("Begin with", kinds, KIND, default=TEMPLATE, required=True, persist_state="session")
        kinds[kind or TEMPLATE]()


def _template() -> None:
    pool = chosen_pool()
    seeing = tuple(spec for spec in pool.workers if "image" in spec.accepts) if pool and task_box.chosen() else ()
    found = None if pool is None else cast_of(seeing or pool.workers)  # who suits which role
    if found is None:
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
            workflow = BLANK if template is None else template.workflow(found, _branches(template, most))
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
    label = f"Number of {template.branch}{'es' if template.branch.endswith('ch') else 's'}"
    key = f"plans-branches-{template.name}"
    return int(st.number_input(label, template.least, most, usual, key=key, width=190))


def _preview(workflow: Workflow) -> None:
    if not workflow.steps:
        st.caption("A plan without steps: add them in the editor.")
        return
    st.caption(f"{plural(len(workflow.steps), 'step')} · {topology(workflow)}")
    with st.container(key="plans-preview", gap="xsmall"):
        for index, step in enumerate(workflow.steps):
            sees = f"sees {', '.join(map(str, workflow.reads(index))) or 'nothing'}"
            said = instruction_markdown(step.instruction, 160)
            st.markdown(f"**{index} · {inert(step.agent)}** :small[:gray[{sees}]]  \n:small[{said}]")


def _open_button(workflow: Workflow, task: str | None = None) -> None:
    button("Open in the editor", "plans-open", _act, partial(take, workflow, task), type="primary")


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
        fault_box(message)
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
    pool = chosen_pool()
    given = given_plan(text, [] if pool is None else [spec.name for spec in pool.workers])
    for fault in given.faults[:_FAULTS_SHOWN]:
        place = "" if fault.line is None else f"line {fault.line}, column {fault.column}: "
        st.markdown(f":red[:material/error: {inert(place + fault.message)}]")
    if (more := len(given.faults) - _FAULTS_SHOWN) > 0:
        st.caption(f"And {plural(more, 'more fault')}.")
    for repair in given.repairs[:_FAULTS_SHOWN]:
        st.markdown(f":orange[:material/build: {inert(repair)}]")
    if given.workflow is not None:
        _open_button(given.workflow, given.task)
        if given.task and _task() not in ("", given.task.strip()):
            st.caption(f"Your task stays in the box. That of the text is not used: {inert(given.task[:160])}")
        _preview(given.workflow)


def _read_file() -> None:
    """Puts the file's text into the field, where its faults can be mended."""
    st.session_state.pop(FILE_FAULT, None)
    uploaded = st.session_state.get("plans-file")
    if uploaded is None:
        return
    with kept_fault(FILE_FAULT):
        st.session_state[GIVEN] = text_of(uploaded.getvalue(), one_line(uploaded.name))


@fault_shown()
def _earlier() -> None:
    listed = current().store.runs(limit=4 * _EARLIER_LISTED, without=request.UNLISTED_PURPOSES)
    listed = [run for run in listed if run.topology and run.damage is None]
    listed = listed[:_EARLIER_LISTED]
    words = {run.run_id: run_label(run, f"{run.topology}, {plural(run.steps, 'step')}") for run in listed}
    if not words:
        st.caption("No run has a plan yet. Run a task, then its plan can be taken from here.")
        return
    run_id = st.selectbox(
        "Run",
        list(words),
        key=_RUN,
        format_func=worded(_RUN, words),
        accept_new_options=True,
        help="The newest runs. For an older one, type or paste its id.",
    )
    if not run_id:
        return
    trace = current().store.trace(current().store.resolve(run_id.strip()))[0]
    viewed([trace.run_id], "run page")
    if trace.root.workflow is None:
        st.error("This run has no plan.", icon=":material/error:")
        return
    _open_button(trace.root.workflow, trace.task)
    _preview(trace.root.workflow)


def _several() -> None:
    st.caption(
        f"The Conductor {inert(settings.conductor())} writes several plans for the task, each with a fresh seed. "
        "No worker is called. Then choose one, edit one, or run them all."
    )
    count_at, temperature_at = st.columns(2)
    bounds = (request.LEAST_PLANS, request.MOST_PLANS, request.USUAL_PLANS)
    count = count_at.number_input("Plans", *bounds, key="plans-count", persist_state="session")
    temperature = temperature_at.number_input(
        "Temperature",
        0.0,
        request.MOST_TEMPERATURE,
        request.USUAL_TEMPERATURE,
        step=0.1,
        format="%.1f",
        key="plans-temperature",
        persist_state="session",
        help="At 0 the likeliest word is always taken, so all plans are equal. A Conductor whose file sets a "
        "temperature keeps its own.",
    )
    task = _task()
    if not task:
        st.warning("There is no task yet: close this, and type one or take an example.", icon=":material/warning:")
    write = partial(task_box.begin_plans, task, int(count), float(temperature))
    button(f"Write {count} plans", "plans-write", _act, write, type="primary", disabled=not task)
