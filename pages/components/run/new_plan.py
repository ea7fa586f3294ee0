"""A plan of one's own before any run: kept in the page's state and for the browser, edited, then run.

The Run page shows it while no run is open. Nothing is sent before the person runs it.
"""

from collections.abc import Sequence
from contextlib import suppress

import streamlit as st

from conductor_core.chat.messages import WorkerSpec, conversation_of, images_in
from conductor_core.engine.estimates import (
    ANSWER_TOKENS,
    RerunPreview,
    Rounds,
    forecast,
    recorded_rounds,
    usual_answer_tokens,
)
from conductor_core.engine.models import cast_of
from conductor_core.engine.pools import pool_info
from conductor_core.errors import InspectorError
from conductor_core.run.values import PoolInfo
from conductor_core.workflow.edits import Origins, compare
from conductor_core.workflow.model import CONDUCTOR_AGENT, Workflow
from conductor_core.workflow.topology import Cast
from pages.components.app import address
from pages.components.app.security import browser_id
from pages.components.app.session import current
from pages.components.run import draft as drafts
from pages.components.run import draft_file, settings, task_box
from pages.components.run.draft import Draft
from pages.components.run.draft_file import NewPlan
from pages.components.run.editing import Editing
from pages.components.run.plan_state import PlanState, read_plan
from pages.components.style.formats import inert

KEY = "draft:new"
PARAMETER = "plan"
APART = (
    "Another page of this browser writes the same plan. Yours is kept apart from it from now on, and this page's "
    "address names it."
)
_SHOWN, _READ, _WRITTEN, _FAULT = "new-plan-shown", "new-plan-read", "new-plan-written", "new-plan-fault"
_PLACE, _NOTE = "new-plan-place", "new-plan-note"
_RUNS_READ = 50
_ROUNDS_READ = 20
NO_TASK = "There is no task yet: type one above."


def take(workflow: Workflow, task: str | None = None) -> None:
    """Opens ``workflow`` in the editor. An earlier plan of one's own can be had back with Undo.

    ``task``: what came with it; it goes into an empty task box.
    """
    before = _draft()
    _keep(drafts.begin(workflow) if before is None else drafts.restart(before, workflow))
    if task and not _task():
        st.session_state[task_box.TASK] = task
    show()


def show() -> None:
    """Shows the kept plan in place of a run."""
    st.session_state[_SHOWN] = True
    address.write("run", None)
    _write()


def kept_steps() -> int | None:
    """Returns how many steps the kept plan has; None: there is none."""
    found = _draft()
    return None if found is None else len(found.workflow.steps)


def editing() -> Editing | None:
    """Returns the editor of the plan; None: there is none, or it is closed. Call it before the task box is drawn."""
    found = _draft()
    if found is None or not st.session_state.get(_SHOWN):
        return None
    pool, limits = chosen_pool(), settings.limits()
    return Editing(
        key=KEY,
        run_id=None,
        of="new",
        original=found.original,
        task=_task(),
        specs=() if pool is None else pool.workers,
        recursive=limits.max_depth > 0,
        max_steps=limits.max_steps,
        give_question=_every_step(),
        conversation=conversation_of(_task(), task_box.chosen(), ()),
        missing="" if _task() else NO_TASK,
        on_change=lambda _: _write(),
    )


def plan_state(edited: Editing, specs: Sequence[WorkerSpec], pool: str) -> PlanState:
    """Returns what follows from a plan of which nothing has run: its faults, its likely cost, what the graph draws.

    Args:
        specs, pool: who would be called, and the name of their pool.
    """
    answer_tokens = _answer_tokens(pool)
    *before, asked = edited.conversation

    def preview(workflow: Workflow, draft: Draft) -> RerunPreview:
        expected = forecast(
            workflow,
            specs,
            edited.task,
            answer_tokens=answer_tokens,
            give_question=edited.give_question,
            images=tuple(images_in(asked.content)),
            turns_before=tuple(before),
            rounds=_rounds() if _asks_again(workflow) else Rounds(),
        )
        return expected if edited.of == "new" else _with_changes(expected, edited.original, workflow, draft.origins)

    return read_plan(edited, preview)


def _with_changes(expected: RerunPreview, planned: Workflow, workflow: Workflow, origins: Origins) -> RerunPreview:
    """Says of each step first what became of it in the plan of a run."""
    changes = compare(planned, workflow, origins)
    will_run = tuple(
        step.model_copy(update={"reason": ", ".join(filter(None, (changes.in_words(step.index), step.reason)))})
        for step in expected.will_run
    )
    return expected.model_copy(update={"will_run": will_run})


def keep_task() -> None:
    """Keeps the task with the plan: it may be another by now."""
    _write()


def run(workflow: Workflow) -> None:
    """Starts the run of the plan. The card of the task shows a refusal, and the plan stays."""
    if task_box.begin(_task(), workflow=workflow):
        st.session_state.pop(KEY, None)
        _write()


def close() -> None:
    """Leaves the editor. The plan is kept."""
    st.session_state[_SHOWN] = False
    _write()


def fault_note() -> None:
    """Says why the plan will not outlive a reload of the page, if so, or that another page has one like it."""
    if message := st.session_state.get(_FAULT) or st.session_state.pop(_NOTE, None):
        st.warning(inert(message), icon=":material/warning:")


def chosen_pool() -> PoolInfo | None:
    """Returns the pool of the next run; None if it cannot be used, which the settings say."""
    try:
        info = pool_info(settings.pool(), current().settings)
        names = [spec.name for spec in info.workers]
        return info.without([name for name in settings.excluded() if name in names])
    except InspectorError:
        return None


def cast() -> Cast | None:
    """Returns who of the chosen pool suits which role; None: it has nobody. With images, those who accept them."""
    pool = chosen_pool()
    if pool is None:
        return None
    return cast_of(_accepting(pool.workers) or pool.workers)


def _accepting(specs: tuple[WorkerSpec, ...]) -> tuple[WorkerSpec, ...]:
    if not task_box.chosen():
        return specs
    return tuple(spec for spec in specs if "image" in spec.accepts)


def _task() -> str:
    return str(st.session_state.get(task_box.TASK) or "").strip()


def _every_step() -> bool:
    """Tells whether every step is told the task."""
    chosen = settings.chosen_policies().give_question
    if chosen is not None:
        return chosen
    of_pool = settings.policies_of_pool(settings.pool())
    return of_pool is not None and bool(of_pool.give_question)


def pool_name() -> str:
    pool = chosen_pool()
    return "" if pool is None else pool.name


def _answer_tokens(pool: str) -> int:
    try:
        return usual_answer_tokens(pool, current().store.runs(_RUNS_READ))
    except InspectorError:  # the database is damaged, which the page says
        return ANSWER_TOKENS


def _asks_again(workflow: Workflow) -> bool:
    return any(step.agent == CONDUCTOR_AGENT for step in workflow.steps)


@st.cache_data(ttl=60, max_entries=1, show_spinner=False)
def _rounds() -> Rounds:
    """Returns what the rounds of the latest runs spent, as far as they can be read."""
    store, traces = current().store, []
    try:
        for run in store.runs(_ROUNDS_READ):
            with suppress(InspectorError):
                traces.append(store.trace(run.run_id)[0])
    except InspectorError:  # the database is damaged, which the page says
        return Rounds()
    return recorded_rounds(traces)


def _draft() -> Draft | None:
    """Returns the plan in the page's state; a new page's is the one that the browser kept."""
    if not st.session_state.get(_READ):
        st.session_state[_READ] = True
        _read()
    found: Draft | None = st.session_state.get(KEY)
    return found


def _read() -> None:
    """Takes up the plan that the address names, else the newest of this browser."""
    browser, named = browser_id(), st.query_params.get(PARAMETER)
    if browser is None:
        return
    try:
        found = draft_file.read(current().settings.data_folder, browser, named)
        if found is None and named is not None:  # it was run, or another browser has it
            st.query_params.pop(PARAMETER, None)
            return
    except InspectorError as error:
        st.session_state[_FAULT] = str(error)
        return
    if found is None:
        return
    plan, st.session_state[_PLACE] = found.plan, found.place
    st.session_state[KEY], st.session_state[_SHOWN], st.session_state[_WRITTEN] = plan.draft, plan.shown, plan
    if plan.shown and plan.task and not _task():
        st.session_state[task_box.TASK] = plan.task


def _keep(draft: Draft) -> None:
    st.session_state[KEY] = draft


def _write() -> None:
    """Keeps the plan for the browser if it has changed."""
    browser, draft = browser_id(), st.session_state.get(KEY)
    plan = None if draft is None else NewPlan(draft, _task(), bool(st.session_state.get(_SHOWN)))
    if browser is None or plan == st.session_state.get(_WRITTEN):
        return
    st.session_state[_WRITTEN] = plan
    folder, before = current().settings.data_folder, st.session_state.get(_PLACE)
    try:
        if plan is not None:
            place = draft_file.write(folder, browser, plan, before)
            if before is not None and place.edit_id != before.edit_id:
                st.session_state[_NOTE] = APART
            st.session_state[_PLACE] = place
            if st.query_params.get(PARAMETER) != place.edit_id:
                st.query_params[PARAMETER] = place.edit_id
        elif before is not None:
            draft_file.remove(folder, browser, before)
            st.session_state.pop(_PLACE)
            st.query_params.pop(PARAMETER, None)
        st.session_state.pop(_FAULT, None)
    except InspectorError as error:
        st.session_state[_FAULT] = str(error)
