"""Works out what a run costs so far and what the figure is based on, and writes it in words."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from conductor_core.chat.messages import FREE, Usage, sum_of_costs
from conductor_core.chat.usage import estimate_input_tokens, estimate_tokens
from conductor_core.formats import dollars
from conductor_core.run.events import BrokenOff, PlanCompleted, PlanRejected, RunInterrupted, StepCompleted
from conductor_core.run.trace import Paid, RoundTrace, RunTrace, StepTrace

Basis = Literal["unknown", "free", "provider", "list_price", "at_most", "estimated"]
"""What a cost is based on: no price, nothing to pay, the provider's own figure, exact tokens at list price, at
most that (a cache has no price), or estimated tokens. A sum has the weakest basis of its parts."""

IN_WORDS: dict[Basis, str] = {
    "unknown": "",
    "free": "",
    "provider": "as the provider says",
    "list_price": "at list price",
    "at_most": "at list price; what the provider's cache saved is not known",
    "estimated": "estimated",
}


_WITHOUT_AN_END = ("planning", "unfinished")
"""Statuses of a plan whose last call no event has ended."""


@dataclass(frozen=True, slots=True)
class Cost:
    """A cost, or a sum of costs.

    Attributes:
        usd: None if the price of a part is unknown.
        known_usd: the cost of the parts with a known price: the whole or the least cost.
        at_most: whether a part may have cost less: nobody said what a provider's cache costs.
    """

    usd: float | None = 0.0
    known_usd: float = 0.0
    at_most: bool = False

    def __add__(self, other: "Cost") -> "Cost":
        usd = sum_of_costs((self.usd, other.usd))
        return Cost(usd, self.known_usd + other.known_usd, self.at_most or other.at_most)

    @property
    def at_least(self) -> bool:
        """Whether ``known_usd`` is only a bound."""
        return self.usd is None

    def __str__(self) -> str:
        """Returns ``$0.0123`` or ``at most $0.0123``; with an unknown part ``at least $0.0123``, or ``unknown``."""
        if self.usd is not None:
            return f"at most {dollars(self.usd)}" if self.at_most and self.usd > 0 else dollars(self.usd)
        if self.at_most and self.known_usd > 0:
            return "unknown"  # neither the most nor the least
        return f"at least {dollars(self.known_usd)}" if self.known_usd > 0 else "unknown"

    @property
    def in_line(self) -> str:
        """The cost in words, for places where no label says that it is a cost."""
        said = str(self)
        return "cost unknown" if said == "unknown" else said


def basis(spent: Paid) -> Basis:
    if spent.cost_usd is None:
        return "unknown"
    if spent.cost_usd == 0:
        return "free"
    if not spent.at_list_price:
        return "provider"
    if spent.usage.estimated:
        return "estimated"
    return "at_most" if spent.cost_at_most else "list_price"


def is_estimated(trace: RunTrace) -> bool:
    return trace.known_usd > 0 and trace.at_list_price and trace.usage.estimated


def cost_so_far(trace: RunTrace) -> Cost:
    """Returns the cost of all calls that ended; unknown if one of them, or a running call, has no price."""
    unknown = not trace.ended and any(_broken_off(trace, part) for part in (trace.root, *_parts(trace)))
    return Cost(None if unknown else trace.cost_usd, trace.known_usd, trace.cost_at_most)


def in_list(cost: Cost, *, estimated: bool) -> str:
    """The cost for a line or a cell, with a sign if it is computed from estimated tokens."""
    return f"≈ {cost.in_line}" if estimated and cost.known_usd > 0 else cost.in_line


def cost_of_part(trace: RunTrace, part: RoundTrace | StepTrace) -> Cost:
    """Returns the cost of a step or a plan; unknown also if a call without a price is running or broke off."""
    return Cost(None if _broken_off(trace, part) else part.cost_usd, part.known_usd, part.cost_at_most)


def cost_of_call(event: PlanCompleted | PlanRejected | StepCompleted) -> Cost:
    return Cost(event.cost_usd, event.cost_usd or 0.0)


def interruption(trace: RunTrace) -> RunInterrupted:
    """Returns the event that ends a run whose process is gone. ``trace`` is as the process left it."""
    usage, cost = with_calls_that_are_on(trace)
    return RunInterrupted(
        run_id=trace.run_id,
        at_ms=trace.last_at_ms,
        usage=usage,
        cost_usd=cost.usd,
        known_usd=cost.known_usd,
        broken_off=tuple(_calls_that_are_on(trace)),
    )


def with_calls_that_are_on(trace: RunTrace) -> tuple[Usage, Cost]:
    """What a run spent whose record breaks off: the calls that were on then count by estimate, by what was heard."""
    usage, cost = trace.usage, Cost(trace.cost_usd, trace.known_usd)
    for call in _calls_that_are_on(trace):
        usage, cost = usage + call.usage, cost + Cost(call.cost_usd, call.cost_usd or 0.0)
    return usage, cost


def _calls_that_are_on(trace: RunTrace) -> Iterator[BrokenOff]:
    prices = {spec.name: spec.price for spec in trace.pool.workers}
    for part in (trace.root, *_parts(trace)):
        if isinstance(part, RoundTrace):
            # As for a cancelled run, a plan of which nothing has arrived counts as free.
            on = part.status in _WITHOUT_AN_END and bool(part.raw or part.reasoning)
            price, received = None if trace.conductor is None else trace.conductor.price, part.raw + part.reasoning
        else:
            on = part.status in ("running", "cancelled") and bool(part.messages)
            price, received = prices.get(part.asked, FREE), part.output + part.reasoning
        if on:
            read, written = estimate_input_tokens(part.messages), estimate_tokens(received)
            usage = Usage(input_tokens=read, output_tokens=written, estimated=True)
            yield BrokenOff(path=part.path, usage=usage, cost_usd=None if price is None else price.cost_usd(usage))


def _parts(trace: RunTrace) -> Iterator[RoundTrace | StepTrace]:
    for step in trace.walk():
        yield step if step.round is None else step.round


def _broken_off(trace: RunTrace, part: RoundTrace | StepTrace) -> bool:
    """Whether a call of unknown price has begun whose cost no event reports yet, or ever."""
    if isinstance(part, RoundTrace):
        unpriced = trace.conductor is not None and trace.conductor.price is None
        return unpriced and part.status in _WITHOUT_AN_END and bool(part.raw if trace.ended else part.messages)
    if part.started_ms is None or part.status not in ("running", "cancelled"):
        return False
    return {spec.name: spec.price for spec in trace.pool.workers}.get(part.asked, FREE) is None


# A step with all that it set going.


class Spent(Paid):
    @property
    def cost(self) -> Cost:
        return Cost(self.cost_usd, self.known_usd, self.cost_at_most)


def spent_on(trace: RunTrace, step: StepTrace) -> Spent:
    """Returns what ``step`` spent, with its round: the plan, and the steps of it."""
    parts = _with_round(step)
    cost = sum((cost_of_part(trace, part) for part in parts), Cost())
    at_list_price = any(part.at_list_price for part in parts)
    return Spent(
        usage=usage_of(step),
        cost_usd=cost.usd,
        known_usd=cost.known_usd,
        at_list_price=at_list_price,
        cost_at_most=cost.at_most,
    )


def usage_of(step: StepTrace) -> Usage:
    return sum((part.usage for part in _with_round(step)), Usage())


def _with_round(step: StepTrace) -> list[RoundTrace | StepTrace]:
    return [step] if step.round is None else [step, *step.round.rounds(), *step.round.walk()]


def waits_for_a_slot(trace: RunTrace, step: StepTrace) -> bool:
    """Whether a step waits for nothing but its worker, which answers ``max_concurrency`` calls already."""
    by_a_worker = any(spec.name == step.agent for spec in trace.pool.workers)
    if trace.status != "running" or step.status != "waiting" or not by_a_worker:
        return False
    round_ = trace.round_at(step.path[:-1])
    if any(approval.path in (step.path, round_.path) for approval in trace.asked_for):
        return False
    if round_.workflow is None or (not round_.path and step.index not in trace.overrides.needed(round_.workflow)):
        return False
    return all(round_.steps[index].finish_reason is not None for index in step.reads)
