"""What a run concludes, in view of all that its last step was asked, and what tells it from the others of its task."""

from conductor_core.analysis.conclusion import Conclusion, conclude
from conductor_core.run.request import REPLAY_PURPOSE, TOUR_PURPOSE
from conductor_core.run.trace import RunTrace, StepTrace


def asked(trace: RunTrace, step: StepTrace | None = None) -> str:
    """Returns the task, and below it the instruction of ``step``; None: of the step whose answer is the run's."""
    step = step or trace.last
    if step is None:
        return trace.task
    return f"{trace.task}\n{step.instruction.replace('{question}', trace.task)}"


def concluded(trace: RunTrace) -> Conclusion | None:
    """Returns the conclusion of a run's answer; None: it has no answer."""
    return None if trace.answer is None else conclude(trace.answer, asked(trace))


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
