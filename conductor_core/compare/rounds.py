"""The rounds of one run beside each other: each as a run of its own, so that two are compared as two runs are. Pure."""

from dataclasses import replace

from conductor_core.chat import Usage, sum_of_costs
from conductor_core.compare.runs import RunsCompared, compare_runs
from conductor_core.run_facts import Path
from conductor_core.trace import RoundTrace, RunTrace, StepTrace
from conductor_core.workflow.model import Workflow


def opened_rounds(trace: RunTrace) -> tuple[Path, ...]:
    """Returns the rounds that steps opened and that have a plan, each as the path of its step, in the plans' order."""
    return tuple(round_.path for round_ in trace.root.rounds() if round_.path and round_.workflow is not None)


def kept_answer(trace: RunTrace, path: Path) -> bool:
    """Whether the Conductor wrote no steps in this round, which leaves the answer as it was."""
    return not (trace.round_at(path).workflow or Workflow(steps=())).steps


def name_of(path: Path) -> str:
    """Returns ``round 1`` for the first round, ``round 2`` for one that a step of it opened."""
    return f"round {len(path) + 1}"


def compare_rounds(trace: RunTrace, path: Path) -> RunsCompared:
    """Compares the round that the step at ``path`` opened with the round of that step.

    Raises: KeyError if the step opened none.
    """
    above, opened = round_run(trace, path[:-1]), round_run(trace, path)
    return replace(compare_runs(above, opened), names=(name_of(path[:-1]), name_of(path)))


def round_run(trace: RunTrace, path: Path) -> RunTrace:
    """Returns one round as a run of its own, without the rounds that its steps opened in turn.

    A last step that opened another round is no part of it. Its answer is then what that step read, which the next round
    began with; else the output of the last step. Tokens, cost and time are those of this round. Raises: KeyError.
    """
    round_ = trace.round_at(path)
    own = _own_part(round_)
    parts: list[RoundTrace | StepTrace] = [round_, *(step for step in own.steps if step.reused_from is None)]
    opener = trace.step_at(path) if path else None
    answer = opener.output if opener is not None and kept_answer(trace, path) else _answer(round_)
    return trace.model_copy(
        update={
            "root": own,
            "answer": answer,
            "status": "completed" if answer is not None and trace.ended else trace.status,
            "usage": sum((part.usage for part in parts), Usage()),
            "cost_usd": sum_of_costs([part.cost_usd for part in parts]),
            "known_usd": sum(part.known_usd for part in parts),
            "at_list_price": any(part.at_list_price for part in parts),
            "duration_ms": _duration_ms(own),
        }
    )


def _own_part(round_: RoundTrace) -> RoundTrace:
    workflow, steps = round_.workflow, round_.steps
    if workflow is not None and steps and steps[-1].round is not None:
        workflow, steps = Workflow(steps=workflow.steps[:-1]), steps[:-1]
    own = [step.model_copy(update={"round": None}) for step in steps]
    return round_.model_copy(update={"workflow": workflow, "steps": own})


def _answer(round_: RoundTrace) -> str | None:
    last = round_.steps[-1:]
    if last and last[0].round is not None:
        last = [round_.steps[read] for read in last[0].reads[-1:]]
    return last[0].output if last and _has_output(last[0]) else None


def _has_output(step: StepTrace) -> bool:
    return step.answered or bool(step.output)


def _duration_ms(round_: RoundTrace) -> float | None:
    """From the first to the last moment of the round. A plan that was given has no time of its own."""
    own: list[RoundTrace | StepTrace] = [round_, *round_.steps]
    parts = [part for part in own if part.started_ms is not None]
    if not parts:
        return None
    begins_ms = min(part.started_ms or 0.0 for part in parts)
    return max((part.started_ms or 0.0) + (part.duration_ms or 0.0) for part in parts) - begins_ms
