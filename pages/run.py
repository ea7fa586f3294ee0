"""Run: takes a task, draws its workflow and runs it live, edits and re-runs it."""

from typing import Any

import streamlit as st

from conductor_core.chat.messages import INCOMPLETE
from conductor_core.engine.estimates import RerunPreview, preview
from conductor_core.engine.pools import pool_info
from conductor_core.engine.request import carried, may_run_here, pinned_if_recorded, rerun_of, resume_of
from conductor_core.errors import BadInput, InspectorError
from conductor_core.run.actor import Caller, local_caller
from conductor_core.run.commands import Edit
from conductor_core.run.request import Overrides, RunRequest
from conductor_core.run.trace import RunTrace, RunUnreadable
from conductor_core.workflow.edits import Origins
from conductor_core.workflow.model import Workflow
from pages.components.app import places
from pages.components.app.session import current, viewed
from pages.components.app.widgets import damage, fault_box, kept_fault, notes, show_fault
from pages.components.compare.page import tree_dialog, tree_words
from pages.components.live_workflow.component import Intent, changes_of, intent_of, live_workflow
from pages.components.run import draft, lineage, new_plan, settings, who_answers
from pages.components.run.batches import again_dialog, again_results, ask_again, plan_choices
from pages.components.run.draft import Draft, Sent
from pages.components.run.draft_store import PageDraft, offered
from pages.components.run.editing import EDITING, Editing, PlanState, applied, as_data, export_dialog, read_plan
from pages.components.run.lineage import kin, origin_notes
from pages.components.run.new_plan import plans_dialog
from pages.components.run.task_box import TASK, arrive_first, start, task_box
from pages.components.tour import drive, first_screen

# The page that an intent leads to, and the name of the run in its address.
LIVE = "live"
RERUN_ERROR = "rerun-error"


def show() -> None:
    settings.go()
    arrive_first()
    run_id = places.read("run")
    trace, fault = _read(run_id) if run_id else (None, None)
    whole = trace if fault is None else None
    stop = drive.arrive(whole)
    if trace is not None:
        viewed([trace.run_id], "run page")
    if trace is not None and PageDraft(trace.run_id).restore():
        st.session_state[EDITING] = trace.run_id
    # Before the task box, whose text it may bring back after a reload.
    own_plan = run_id is None and new_plan.editing() is not None
    first = run_id is None and not own_plan and first_screen.is_due()
    # What follows keeps its place on the page, and so its state, because this is one container whatever it holds.
    with st.container(gap="xsmall"):
        notes()
        if first:
            typed = st.session_state.get(TASK, "").strip()
            first_screen.introduction(lambda: drive.tour_button(None, "secondary" if typed else "primary"))
        asks = stop is None and task_box(trace, None if first else drive.tour_button, own_plan=own_plan)
        if whole is not None:
            for key in (RERUN_ERROR, lineage.FAULT):
                show_fault(key)
            if stop is None:
                origin_notes(whole)
                plan_choices(whole, _edit_plan)
                again_results(whole)
            else:
                drive.tour_strip(stop, whole)  # in the task box's place
        if trace is None and fault is not None:
            damage(fault)
    own = whole if stop is None else None  # a run of the tour has neither relatives nor a conversation to show
    if run_id is not None or not asks:
        related = None if own is None else kin(own, tree_words)
        turns = None if own is None else lineage.turns(own)
        _workspace(trace, readable=fault is None, opened=run_id is not None, first=first, related=related, turns=turns)
    if own is not None:
        lineage.follow(own)
    plans_dialog()
    if trace is not None and fault is not None:
        damage(fault)


@st.fragment
def _workspace(
    trace: RunTrace | None,
    *,
    readable: bool,
    opened: bool,
    first: bool,
    related: dict[str, str] | None,
    turns: list[dict[str, Any]] | None,
) -> None:
    """Draws the run or the plan, and what is edited of it. An edit draws this fragment and nothing else of the page.

    ``opened``: whether the address names a run. ``first``: whether this is the first screen. ``related``: see ``kin``.
    ``turns``: see ``lineage``.
    """
    plan = None if opened else new_plan.editing()
    if plan is not None:
        _new_plan(plan)
        return
    if trace is None or not readable:
        if first:
            first_screen.story(plays=not st.session_state.get(TASK, "").strip())
        else:
            live_workflow(None if trace is None else trace.run_id, key=LIVE)
        return
    if not trace.ended:
        trace = _read(trace.run_id)[0] or trace  # it may have gone on since the page was drawn
        if trace.ended:
            st.rerun()  # what the page draws of ended runs can appear
    sent, left, rebased = draft.read_sent(changes_of(LIVE)), None, False
    editing = _editing(trace, sent)
    if editing is not None:
        rebased = editing.rebase()
        left = editing.apply_changes(sent)
        if left == "close":
            st.session_state.pop(EDITING, None)
            editing = None
    plan_state = None if editing is None else _read_plan(trace, editing)
    PageDraft(trace.run_id).note()
    intent = live_workflow(
        trace.run_id,
        key=LIVE,
        editable=may_run_here(trace),
        go_on=None if drive.on_tour() else _go_on_label(trace),
        ways=list(lineage.ways_out(trace).items()),
        kept=offered(trace.run_id) if editing is None and _editable(trace) and not drive.on_tour() else (),
        kin=related,
        turns=turns,
        editor=None if editing is None or plan_state is None else as_data(editing, plan_state),
        edited=None if plan_state is None else plan_state.drawn,
        taken=applied().as_data(),
        said="" if editing is None else editing.draft.note,
        ended=trace.ended,
        on_intent=_before_drawing,
    )
    # These come last, because they may draw the whole page anew.
    if editing is not None and plan_state is not None:
        workflow = plan_state.checked.workflow
        if left == "start" and not rebased and workflow is not None:
            if trace.ended:
                origins, given = editing.draft.origins, _overrides(trace, workflow, editing.draft)
                _begin(trace, rerun_of(trace, workflow, door="page", origins=origins, overrides=given), edited=True)
            else:
                _edit(trace, workflow, editing.draft.origins)
        if intent is not None and intent.kind == "export":
            export_dialog(editing, workflow)
            return
    _apply_intent(trace, intent)
    if trace.ended and st.session_state.get(drive.WAITS):
        st.rerun()
    again_dialog(trace)


def _new_plan(plan: Editing) -> None:
    left = plan.apply_changes(draft.read_sent(changes_of(LIVE)))
    if left == "close":
        new_plan.close()
        st.rerun()
    pool = new_plan.chosen_pool()
    plan_state = new_plan.plan_state(plan, plan.specs, "" if pool is None else pool.name)
    new_plan.keep()
    new_plan.STORE.note()
    intent = live_workflow(
        None,
        key=LIVE,
        editor=as_data(plan, plan_state),
        edited=plan_state.drawn,
        taken=applied().as_data(),
        said=plan.draft.note,
    )
    workflow = plan_state.checked.workflow
    if left == "start" and workflow is not None and not plan.missing:
        new_plan.run(workflow)
        st.rerun()
    if intent is not None and intent.kind == "export":
        export_dialog(plan, workflow)


def _editable(trace: RunTrace) -> bool:
    """Tells whether the plan can change: it is whole and nothing runs on it."""
    at_rest = trace.ended or (trace.status == "waiting" and trace.waits_for == "approval")
    return at_rest and trace.root.workflow is not None and may_run_here(trace)


def _read(run_id: str) -> tuple[RunTrace | None, RunUnreadable | None]:
    try:
        return current().store.trace(run_id)[0], None
    except RunUnreadable as fault:
        return fault.trace, fault
    except InspectorError as error:
        fault_box(error)
        return None, None


def _before_drawing() -> None:
    intent = intent_of(LIVE)
    if intent is None or intent.run_id is None:
        return
    store = PageDraft(intent.run_id)
    if intent.kind == "edit" or (intent.kind == "kept-edit" and store.take_up(intent.name) is not None):
        st.session_state[EDITING] = intent.run_id
    elif intent.kind == "open-run" and intent.name:
        places.write("run", intent.name)
    elif intent.kind == "throw-edit":
        store.forget(intent.name)
    elif intent.kind == "workers" and (trace := _read(intent.run_id)[0]) is not None:
        st.session_state[TASK] = trace.task
        who_answers.ask_for(trace.task)
    elif intent.kind.startswith("way-") and (trace := _read(intent.run_id)[0]) is not None:
        lineage.take_way_out(trace, intent.kind)


def _edit_plan(run_id: str) -> None:
    st.session_state[EDITING] = run_id
    places.write("run", run_id)


def _editing(trace: RunTrace, sent: Sent | None) -> Editing | None:
    """Returns the open editor; None: it is closed, or the run goes on and has no whole plan.

    A change of the plan opens it.
    """
    if not _editable(trace):
        return None
    if sent is not None and sent.run_id == trace.run_id and applied().brings_more(sent):
        st.session_state[EDITING] = trace.run_id
    return Editing.of_run(trace) if st.session_state.get(EDITING) == trace.run_id else None


def _apply_intent(trace: RunTrace, intent: Intent | None) -> None:
    if intent is None or intent.run_id != trace.run_id:
        return
    if intent.kind == "blame":
        st.switch_page(places.BLAME, query_params={"run": trace.run_id})
    if intent.kind in ("workers", "open-run") or intent.kind.startswith("way-"):
        st.rerun()  # the whole page asks who should answer, or shows that run or the settings
    elif intent.kind == "edit" and not _editable(trace):
        st.rerun()  # reads the run anew: it may have ended meanwhile
    elif intent.kind == "tree":
        tree_dialog(trace.run_id)
    elif intent.kind == "again" and intent.path:
        ask_again(trace, intent.path[0])
    elif intent.kind == "go-on" and _go_on_label(trace) is not None:
        if trace.root.workflow is None:
            _begin(trace, lineage.request_again(trace))
        elif trace.status in ("planned", "completed", *INCOMPLETE):
            _begin(trace, rerun_of(trace, door="page"))
        else:
            _begin(trace, resume_of(trace, *current().store.resumed_from(trace), door="page"))


def _go_on_label(trace: RunTrace) -> str | None:
    """Returns what a run that stopped or was only planned offers. Nobody pays for finished steps again."""
    if not trace.ended or not may_run_here(trace):
        return None
    if trace.root.workflow is None:
        return "Try again" if trace.status == "failed" else None
    if trace.status == "completed":
        return None if trace.overrides.last_step is None else "Run the rest"
    if trace.status == "planned":
        return "Run this plan"
    if trace.status in INCOMPLETE:
        return "Ask again"
    return "Resume" if any(step.answered for step in trace.steps) else "Run again"


def _read_plan(trace: RunTrace, editing: Editing) -> PlanState:
    try:
        specs = pool_info(trace.pool, current().settings).workers
    except InspectorError as error:
        st.session_state[RERUN_ERROR] = str(error)
        st.session_state.pop(EDITING, None)
        st.rerun()
    if any(step.answered for step in trace.walk()):

        def previewed(workflow: Workflow, draft: Draft) -> RerunPreview:
            given = _overrides(trace, workflow, draft)
            return preview(trace, workflow, specs, origins=draft.origins, overrides=given)

        return read_plan(editing, previewed)
    return new_plan.plan_state(editing, specs, trace.pool.name)  # nothing can be reused, and no answer says how long


def _overrides(trace: RunTrace, workflow: Workflow, draft: Draft) -> Overrides:
    """Returns what the run of a draft does otherwise with single steps: seeds as they were, outputs as given now."""
    outputs = []
    for output in draft.outputs:
        caller, origin = Caller(actor=output.given.actor, door=output.given.door), draft.origins[output.step]
        # A written one is pinned if nobody changed a letter of what the worker answered.
        written = output.given.how == "written"
        pinned = pinned_if_recorded(trace, origin, output.text, caller) if written else None
        outputs.append(output if pinned is None else output.model_copy(update={"given": pinned}))
    return carried(trace, workflow, draft.origins).model_copy(update={"outputs": tuple(outputs)})


def _edit(trace: RunTrace, workflow: Workflow, origins: Origins) -> None:
    before = trace.root.workflow
    begun = [step.index for step in trace.steps if step.status != "waiting"]
    kept = () if before is None else before.steps
    changed = [index for index in begun if workflow.steps[index : index + 1] != kept[index : index + 1]]
    with kept_fault(RERUN_ERROR):
        if changed:
            said = "has run already and cannot change in this run: change only steps that have not run."
            raise BadInput(f"Step {changed[0]} {said}")
        caller = local_caller("page")
        who = {"actor": caller.actor, "door": caller.door}
        current().store.send(Edit(run_id=trace.run_id, workflow=workflow, origins=origins, edited=before, **who))
        PageDraft(trace.run_id).forget()
        st.session_state.pop(EDITING, None)
    st.rerun()


def _begin(trace: RunTrace, request: RunRequest, *, edited: bool = False) -> None:
    """Starts ``request``, which takes up ``trace``; ``edited``: with the plan of the editor."""
    with kept_fault(RERUN_ERROR):
        run_id = start(drive.adopted(trace, request))
        if edited:
            PageDraft(trace.run_id).forget()
        st.session_state.pop(EDITING, None)
        places.write("run", run_id)
    st.rerun()


show()
