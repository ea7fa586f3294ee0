"""What tells a run from the others of its task, in a few words: its plan, or what was changed since another run."""

from conductor_core.run.request import REPLAY_PURPOSE, TOUR_PURPOSE
from conductor_core.run.trace import RunTrace


def changes_of(trace: RunTrace) -> tuple[str, ...]:
    """Returns what was changed since the run that it came from, a text for each step and each given output."""
    return (*trace.root.edits, *trace.overrides.sentences)


def name_of(trace: RunTrace) -> str:
    """Names a re-run by its changes (``step 3 also reads step 1``, ``again``), any other run by who wrote its plan."""
    if trace.parent_run_id is None:
        if trace.purpose == TOUR_PURPOSE:
            return "Plan of the tour"
        by_conductor = trace.conductor is not None and trace.root.source in (None, "conductor")
        return f"Plan by {trace.conductor.name if by_conductor and trace.conductor else 'hand'}"
    if trace.resumed:
        missing = sum(step.reused_from is None for step in trace.steps)
        return f"the {missing} missing steps" if missing > 1 else "the missing step" if missing else "its missing steps"
    before = trace.root.before_edit
    # What else a replay was told is the same in all of them.
    changes = trace.root.edits if trace.purpose == REPLAY_PURPOSE else changes_of(trace)
    return ", ".join(changes) or ("again" if before is None else "the plan's text changed, but no step")
