"""Adds up what a step spent with all that it set going: a step of the Conductor spends what its round does."""

from collections.abc import Iterator
from dataclasses import dataclass

from conductor_core.chat.messages import Usage
from conductor_core.run.costs import Cost, cost_of_part
from conductor_core.run.trace import RoundTrace, RunTrace, StepTrace


@dataclass(frozen=True, slots=True)
class Spent:
    """Attributes: cost_usd: None if the price of a part is unknown. at_list_price: as in ``StepTrace``."""

    usage: Usage
    cost_usd: float | None
    known_usd: float
    at_list_price: bool
    cost_at_most: bool

    @property
    def cost(self) -> Cost:
        return Cost(self.cost_usd, self.known_usd, self.cost_at_most)


def spent_on(trace: RunTrace, step: StepTrace) -> Spent:
    """Returns what ``step`` spent, with its round: the plan, and the steps of it."""
    parts = list(_parts(step))
    cost = sum((cost_of_part(trace, part) for part in parts), Cost())
    at_list_price = any(part.at_list_price for part in parts)
    return Spent(usage_of(step), cost.usd, cost.known_usd, at_list_price, cost.at_most)


def usage_of(step: StepTrace) -> Usage:
    """Returns the tokens of ``step`` with those of its round."""
    return sum((part.usage for part in _parts(step)), Usage())


def _parts(step: StepTrace) -> Iterator[RoundTrace | StepTrace]:
    yield step
    if step.round is not None:
        yield step.round
        for inner in step.round.steps:
            yield from _parts(inner)


def waits_for_a_slot(trace: RunTrace, step: StepTrace) -> bool:
    """Whether a step waits for nothing but its worker, which answers ``max_concurrency`` calls already."""
    by_a_worker = any(spec.name == step.agent for spec in trace.pool.workers)
    if trace.status != "running" or step.status != "waiting" or not by_a_worker:
        return False
    round_ = trace.root if len(step.path) == 1 else trace.round_at(step.path[:-1])
    if any(approval.path in (step.path, round_.path) for approval in trace.asked_for):
        return False
    if round_.workflow is None or (not round_.path and step.index not in trace.overrides.needed(round_.workflow)):
        return False
    return all(round_.steps[index].finish_reason is not None for index in step.reads)
