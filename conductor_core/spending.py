"""What a run costs, for whoever shows it: what is known so far, and what its figures rest on."""

from collections.abc import Iterator
from typing import Literal

from conductor_core.chat import FREE
from conductor_core.trace import RoundTrace, RunTrace, StepTrace

Basis = Literal["unknown", "free", "provider", "list_price", "estimated"]
"""What a cost rests on: no price, nothing to pay, the provider's own figure, exact tokens at list price, or estimated
tokens.

Of a sum it is the weakest of its parts.
"""

IN_WORDS: dict[Basis, str] = {
    "unknown": "",
    "free": "",
    "provider": "as the provider says",
    "list_price": "at list price",
    "estimated": "estimated",
}


def basis(spent: RunTrace | RoundTrace | StepTrace) -> Basis:
    if spent.cost_usd is None:
        return "unknown"
    if spent.cost_usd == 0:
        return "free"
    if not spent.at_list_price:
        return "provider"
    return "estimated" if spent.usage.estimated else "list_price"


def cost_so_far(trace: RunTrace) -> float | None:
    """USD of all calls that came to an end; None if the price of one, or of one that is on, is unknown."""
    return None if not trace.ended and _unknown_is_on(trace) else trace.cost_usd


def cost_of_part(trace: RunTrace, part: RoundTrace | StepTrace) -> float | None:
    """USD of a step or of the writing of a round; None also if a call of unknown price is on or was broken off."""
    return None if _broken_off(trace, part) else part.cost_usd


def _unknown_is_on(trace: RunTrace) -> bool:
    return any(_broken_off(trace, part) for part in (trace.root, *_parts(trace)))


def _parts(trace: RunTrace) -> Iterator[RoundTrace | StepTrace]:
    for step in trace.walk():
        yield step if step.round is None else step.round


def _broken_off(trace: RunTrace, part: RoundTrace | StepTrace) -> bool:
    """Whether a call of unknown price has begun of which no event says yet, or ever, what it cost."""
    if isinstance(part, RoundTrace):
        unpriced = trace.conductor is not None and trace.conductor.price is None
        return unpriced and part.status == "planning" and bool(part.raw if trace.ended else part.messages)
    price = {spec.name: spec.price for spec in trace.pool.workers}.get(part.agent, FREE)
    return price is None and part.started_ms is not None and part.status in ("running", "cancelled")
