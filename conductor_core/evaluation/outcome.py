"""Makes the row that is kept of an attempt from its traces."""

from conductor_core.chat import sum_of_costs
from conductor_core.endings import INCOMPLETE
from conductor_core.evaluation.orchestrators.protocol import GivenTask, TaskAttempt
from conductor_core.records.evaluation import Outcome
from conductor_core.trace import RunTrace
from conductor_core.workflow.model import CONDUCTOR_AGENT

_ABSENT = "unknown_agent"
"""Code of the fault of a plan that names an absent worker (``workflow.faults``)."""


_CALLED = frozenset({"completed", "failed"}) | INCOMPLETE


def outcome(name: str, asked: GivenTask, attempt: TaskAttempt, score: float, *, subset: bool) -> Outcome:
    """Returns the row of one attempt.

    Args:
        subset: whether only a part of the pool was present.
    """
    traces = (attempt.trace, *attempt.also)
    rounds = [round_ for trace in traces for round_ in trace.root.rounds()]
    plan_tokens = sum(round_.usage.total_tokens for round_ in rounds)
    own = [round_ for round_ in attempt.trace.root.rounds() if round_.workflow is not None]
    return Outcome(
        orchestrator=name,
        task_id=asked.task.task_id,
        family=asked.task.family,
        difficulty=asked.task.difficulty,
        run_id=attempt.trace.run_id,
        score=score,
        tokens=sum(trace.usage.total_tokens for trace in traces) - plan_tokens,
        conductor_tokens=plan_tokens,
        cost_usd=sum_of_costs(trace.cost_usd for trace in traces),
        known_usd=sum(trace.known_usd for trace in traces),
        duration_ms=sum(trace.duration_ms or 0.0 for trace in traces),
        steps=sum(_calls(trace) for trace in traces),
        rounds=sum(round_.status == "planned" for round_ in own),
        stops=sum(round_.status == "stopped" for round_ in own),
        topology=attempt.trace.root.topology,
        present=asked.agents if subset else (),
        rejected_plans=sum(len(round_.rejected) for round_ in rounds),
        absent_named=sum(
            any(fault.code == _ABSENT for fault in plan.faults) for round_ in rounds for plan in round_.rejected
        ),
        fault=_fault(attempt.trace),
        also=tuple(trace.run_id for trace in attempt.also),
    )


def error_code(done: Outcome) -> str | None:
    """Returns the code of the error that left a task without an answer, or None."""
    return None if done.fault is None else done.fault.partition(":")[0]


def _calls(trace: RunTrace) -> int:
    """Counts the calls to workers that were made and ended. A recursion itself is no such call."""
    return sum(step.agent != CONDUCTOR_AGENT and step.status in _CALLED for step in trace.walk())


def _fault(trace: RunTrace) -> str | None:
    if trace.answer is not None:
        return None
    return f"{trace.error_code or trace.status}: {trace.error or 'there is no answer'}"
