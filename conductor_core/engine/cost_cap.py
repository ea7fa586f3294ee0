"""What many runs together may spend on their workers, in USD and in tokens: a training, or a batch of tasks.

A call is let through only if what has been spent, what is under way (at its most) and the call itself (at its most)
stay within the cap, so the cap holds even with hundreds of calls at once. While calls are under way a further one
waits for them to turn out cheaper than their most; when none is, the cap is reached, and from then on no call is made.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from conductor_core.chat import ConductorInfo, Message, Price, Usage, WorkerSpec
from conductor_core.errors import BadInput, LimitReached
from conductor_core.message_parts import images_in

ASSUMED_OUTPUT_TOKENS = 4096
"""The longest answer of a worker whose parameters do not say: the paper's limit during its training."""

LONGEST_IMAGE_TOKENS = 50_000
"""An upper bound on the tokens of one image. The most that a provider documents is 48,169: 2,833 and 5,667 for each of
8 tiles (OpenAI's documentation, "Images and vision", GPT-4o mini at high detail)."""

_OUTPUT_LIMITS = ("max_tokens", "max_completion_tokens")
_TURN_TOKENS = 16
"""For a message's role and separators, at the most."""
_PAID: frozenset[str] = frozenset({"openai", "anthropic"})
_ROUNDING = 1e-9


class CostCapReached(LimitReached):
    """No more may be spent. Everything finished is kept; with a higher cap it goes on."""


class Spent(Protocol):
    """What was spent before."""

    @property
    def usd(self) -> float: ...

    @property
    def tokens(self) -> int: ...


@dataclass
class Call:
    """A call that is under way. It counts with its highest possible cost until its context ends."""

    price: Price | None
    most: Usage
    most_usd: float

    def cost_usd(self, usage: Usage, said_usd: float | None) -> float:
        """Returns the USD that the provider states, else the USD by price, else 0."""
        if said_usd is not None:
            return said_usd
        return 0.0 if self.price is None else self.price.cost_usd(usage)


class CostCap:
    """Lets calls through while they fit. Belongs to one event loop.

    Attributes:
        reached: the error that every call gets once the cap is reached; None before.
    """

    def __init__(
        self,
        spent: Spent,
        *,
        max_usd: float | None = None,
        max_tokens: int | None = None,
        assumed_price: Price | None = None,
        or_else: str = "",
        then: str = "start the same command with --resume",
    ) -> None:
        """
        Args:
            assumed_price: of workers without one in the pool file, until the provider says what a call cost.
            or_else: what else than the pool file can name a price, for messages.
            then: what is to be done after a reached cap was raised, for messages.
        """
        self.max_usd, self.max_tokens = max_usd, max_tokens
        self.usd, self.tokens = spent.usd, spent.tokens
        self.reached: CostCapReached | None = None
        self._assumed_price, self._or_else, self._then = assumed_price, or_else, then
        self._under_way: list[Call] = []
        self._changed = asyncio.Condition()

    def check_workers(self, specs: Sequence[WorkerSpec]) -> None:
        """Raises: BadInput for workers that could go beyond the cap: without a price, or a limit to their answers."""
        unpriced = [
            spec.name for spec in specs if self._price(spec) is None and spec.provider in ("openai", "anthropic")
        ]
        if self.max_usd is not None and unpriced:
            raise BadInput(
                f"a cap of {self.max_usd:g} USD cannot be kept: no price is known of {', '.join(unpriced)}; give "
                f"usd_per_mtok in the pool file{self._or_else}"
            )
        # The others have one of their own: Anthropic's interface demands it.
        unlimited = [spec.name for spec in specs if spec.provider == "openai" and _limit(spec) is None]
        if (self.max_usd is not None or self.max_tokens is not None) and unlimited:
            raise BadInput(
                f"a cap cannot be kept: nothing limits the answers of {', '.join(unlimited)}; give "
                f"params = {{ max_tokens = {ASSUMED_OUTPUT_TOKENS} }} in the pool file, or max_completion_tokens where "
                "the model calls it so"
            )

    def check_conductor(self, info: ConductorInfo) -> None:
        """Raises: BadInput for a Conductor whose plans could go beyond the cap, because it has no price."""
        if self.max_usd is not None and info.price is None:
            raise BadInput(
                f"a budget of {self.max_usd:g} USD cannot be kept: no price is known of the Conductor {info.name}"
            )

    def _price(self, spec: WorkerSpec) -> Price | None:
        return spec.usd_per_mtok or (self._assumed_price if spec.provider in _PAID else None)

    @asynccontextmanager
    async def call(self, spec: WorkerSpec, messages: Sequence[Message]) -> AsyncIterator[Call]:
        """Reserves the cost of one worker call until the context ends; waits for room. Raises: CostCapReached."""
        async with self.room(self._price(spec), longest_call(spec, messages)) as call:
            yield call

    @asynccontextmanager
    async def room(self, price: Price | None, most: Usage) -> AsyncIterator[Call]:
        """Reserves ``most`` until the context ends; waits for room. Raises: CostCapReached."""
        call = Call(price, most, 0.0 if price is None else price.cost_usd(most))
        async with self._changed:
            while not self._fits(call):
                if self.reached is None and not self._under_way:
                    self.reached = self._error(call)
                if self.reached is not None:
                    self._changed.notify_all()
                    raise self.reached
                await self._changed.wait()
            self._under_way.append(call)
        try:
            yield call
        finally:
            async with self._changed:
                self._under_way.remove(call)
                self._changed.notify_all()

    def add(self, usage: Usage, usd: float) -> None:
        """Adds the tokens and USD of a call that has ended."""
        self.usd += usd
        self.tokens += usage.total_tokens

    def _fits(self, call: Call) -> bool:
        if self.reached is not None:
            return False
        calls = [*self._under_way, call]
        usd = self.usd + sum(each.most_usd for each in calls)
        tokens = self.tokens + sum(each.most.total_tokens for each in calls)
        return (self.max_usd is None or usd <= self.max_usd + _ROUNDING) and (
            self.max_tokens is None or tokens <= self.max_tokens
        )

    def _error(self, call: Call) -> CostCapReached:
        if self.max_usd is not None and self.usd + call.most_usd > self.max_usd + _ROUNDING:
            digits = 4 if call.most_usd >= 0.01 else 6
            next_usd = f"{call.most_usd:.{digits}f}"
            spent = f"{self.usd:.{digits}f} of {self.max_usd:g} USD are spent and the next call may cost {next_usd}"
            limit, option = "usd", "max_usd"
        else:
            needed = call.most.total_tokens
            spent = f"{self.tokens} of {self.max_tokens} tokens are used and the next call may need {needed}"
            limit, option = "tokens", "max_tokens"
        return CostCapReached(
            f"the cost cap is reached: {spent}. All that is finished is kept: raise {option} and {self._then}",
            limit=limit,
        )


def longest_call(spec: WorkerSpec, messages: Sequence[Message]) -> Usage:
    """Returns the most tokens that one call can use."""
    return Usage(input_tokens=longest_question(messages), output_tokens=longest_answer(spec), estimated=True)


def longest_plan(messages: Sequence[Message], plan_max_tokens: int) -> Usage:
    """Returns the most tokens that one plan can use."""
    return Usage(input_tokens=longest_question(messages), output_tokens=plan_max_tokens, estimated=True)


def longest_usd(price: Price, spec: WorkerSpec, messages: Sequence[Message]) -> float:
    """Returns the highest possible cost of one call in USD."""
    return price.cost_usd(longest_call(spec, messages))


def longest_question(messages: Sequence[Message]) -> int:
    """Returns an upper bound on the tokens of messages: a tokenizer makes at most one token per byte."""
    return sum(_longest(message) + _TURN_TOKENS for message in messages)


def _longest(message: Message) -> int:
    images = len(images_in(message.content)) * LONGEST_IMAGE_TOKENS
    return len(message.text.encode("utf-8", "surrogatepass")) + images


def longest_answer(spec: WorkerSpec) -> int:
    """Returns the most tokens that a worker may write in one answer."""
    return _limit(spec) or ASSUMED_OUTPUT_TOKENS


def _limit(spec: WorkerSpec) -> int | None:
    values = [spec.params.get(name) for name in _OUTPUT_LIMITS]
    return max((value for value in values if type(value) is int and value > 0), default=None)
