"""The conclusion of a run's answer, in view of all that its last step was asked: an echo of it is not an answer."""

from conductor_core.analysis.conclusion import Conclusion, conclude
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
