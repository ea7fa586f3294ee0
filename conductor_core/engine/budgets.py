"""Caps on what is spent: of many runs together (``CostCap``: a training, a batch) and of one run (``Budget``).

A cap lets a call through only if what has been spent, what is under way (at its most) and the call itself (at its most)
stay within it, so it holds even with hundreds of calls at once. While calls are under way a further one waits for them
to turn out cheaper than their most; when none is, the cap is reached, and from then on no call is made.

A run's budget is checked before each call to a worker, while an answer streams (by estimate) and when its usage
arrives. A run that reaches a limit fails with ``LimitReached``; running calls are cancelled and finished steps kept. A
run that has its answer is never failed for what that answer cost. The limits:

- Steps: ``max_steps`` bounds each workflow, and ``max_steps * (max_depth + 1)`` the calls to workers of the whole run:
  with one level of recursion twice the budget, as in the paper. Retries and reused steps do not count.
- USD: what workers and Conductor cost. A call whose price is unknown is not counted, since nothing is known about it.
  A limit of 0 allows free calls. A call begins once all that is under way would stay within the limit at its most: so
  the limit is exceeded by no more than the most of one call.
- Seconds: the whole run, planning included.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from conductor_core.chat.messages import ConductorInfo, Message, Price, Usage, WorkerSpec, images_in
from conductor_core.errors import BadInput, LimitReached
from conductor_core.run.costs import Cost
from conductor_core.run.events import BrokenOff
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import Limits, Path

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
    taken: tuple[Usage, float] | None = None
    """What it took, which counts from the end of its context on; None: its caller adds it."""

    def took(self, usage: Usage, said_usd: float | None = None) -> None:
        self.taken = usage, self.cost_usd(usage, said_usd)

    def cost_usd(self, usage: Usage, said_usd: float | None) -> float:
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
        unpriced = [spec.name for spec in specs if self._price(spec) is None and spec.provider in _PAID]
        if self.max_usd is not None and unpriced:
            raise BadInput(
                f"a cap of {self.max_usd:g} USD cannot be kept: no price is known of {', '.join(unpriced)}; give "
                f"usd_per_mtok in the pool file{self._or_else}"
            )
        # The others have one of their own: Anthropic's interface demands it.
        unlimited = [spec.name for spec in specs if spec.provider == "openai" and answer_limit(spec) is None]
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
            if call.taken is not None:
                self.add(*call.taken)
            async with self._changed:
                self._under_way.remove(call)
                self._changed.notify_all()

    def add(self, usage: Usage, usd: float) -> None:
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
    return Usage(input_tokens=longest_question(messages), output_tokens=longest_answer(spec), estimated=True)


def longest_plan(messages: Sequence[Message], plan_max_tokens: int) -> Usage:
    return Usage(input_tokens=longest_question(messages), output_tokens=plan_max_tokens, estimated=True)


def longest_usd(price: Price, spec: WorkerSpec, messages: Sequence[Message]) -> float:
    return price.cost_usd(longest_call(spec, messages))


def longest_question(messages: Sequence[Message]) -> int:
    """Returns an upper bound on the tokens of messages: a tokenizer makes at most one token per byte."""
    images = sum(len(images_in(message.content)) for message in messages)
    text = sum(len(message.text.encode("utf-8", "surrogatepass")) for message in messages)
    return text + images * LONGEST_IMAGE_TOKENS + len(messages) * _TURN_TOKENS


def longest_answer(spec: WorkerSpec) -> int:
    return answer_limit(spec) or ASSUMED_OUTPUT_TOKENS


def answer_limit(spec: WorkerSpec) -> int | None:
    values = [spec.params.get(name) for name in _OUTPUT_LIMITS]
    return max((value for value in values if type(value) is int and value > 0), default=None)


# The budget of a run.


@dataclass(slots=True)
class LiveCall:
    """A call that is going on, with estimated tokens. Price None: unknown. ``most_usd``: what it may cost at most."""

    price: Price | None
    input_tokens: int
    output_tokens: int = 0
    most_usd: float = 0.0

    @property
    def usage(self) -> Usage:
        return Usage(input_tokens=self.input_tokens, output_tokens=self.output_tokens, estimated=True)

    @property
    def cost_usd(self) -> float | None:
        return None if self.price is None else self.price.cost_usd(self.usage)


class Budget:
    """What a run has spent (by its trace) and is spending (by estimate), against its limits."""

    def __init__(self, limits: Limits, trace: RunTrace) -> None:
        self.limits = limits
        self._trace = trace
        # A run that waited goes on with what it has spent.
        begun = [
            step for step in trace.walk() if step.round is None and step.reused_from is None and step.given is None
        ]
        self._calls = sum(step.started_ms is not None for step in begun)
        self._known_usd = trace.known_usd
        self._live: dict[Path, LiveCall] = {}
        self._admitted: dict[Path, float] = {}
        self._settled = asyncio.Event()

    async def room(self, path: Path, most_usd: float) -> None:
        """Waits until what is spent, with all calls under way at their most, is within the budget in USD.

        So a run exceeds its budget by no more than one call's most. ``most_usd``: of the call that is to begin.
        Raises: LimitReached.
        """
        max_usd = self.limits.max_usd
        if max_usd is None or not most_usd:
            return
        while self._under_way() and self._known_usd + self._under_way() >= max_usd:
            await self._settled.wait()
        self._check_before(most_usd)
        self._admitted[path] = most_usd

    def _check_before(self, most_usd: float) -> None:
        """Raises: LimitReached, which says what the next call may cost."""
        try:
            self.check()
        except LimitReached as error:
            if error.limit != "usd" or not most_usd:
                raise
            most = "at most " if self._trace.cost_at_most else ""
            spent = f"{most}{self._known_usd:.6f} USD spent, and " if self._known_usd else ""
            enough = f"a limit of {self._known_usd + most_usd:.6f} USD would leave room for it"
            raise LimitReached(
                f"the cost limit of this run is reached: {spent}the next call would cost up to {most_usd:.6f} USD, "
                f"over the limit of {self.limits.max_usd:g} USD; {enough}",
                limit="usd",
            ) from error

    def _under_way(self) -> float:
        live = sum(max(call.most_usd, call.cost_usd or 0.0) for call in self._live.values())
        return live + sum(self._admitted.values())

    def start_step(self) -> None:
        """Counts a step that is about to call its worker. Raises: LimitReached."""
        self.check()
        allowed = self.limits.max_steps * (self.limits.max_depth + 1)
        if self._calls >= allowed:
            raise LimitReached(
                f"the step limit of this run is reached: {self._calls} of {allowed} calls to workers "
                f"({self.limits.max_steps} a workflow, {self.limits.max_depth} levels of recursion)",
                limit="steps",
            )
        self._calls += 1

    def begin_call(self, path: Path, input_tokens: int, price: Price | None, most_usd: float = 0.0) -> LiveCall:
        """Adds a call (of a step, or of the Conductor for a round). Its estimate counts until the call is settled.

        The caller raises its ``output_tokens`` as the answer streams, and checks. Raises: LimitReached; then the call
        must not be made, and does not count.
        """
        self._admitted.pop(path, None)
        call = self._live[path] = LiveCall(price, input_tokens, most_usd=most_usd)
        try:
            self._check_before(most_usd)
        except LimitReached:
            self.settle(path)
            raise
        return call

    def settle(self, path: Path, cost_usd: float | None = None) -> None:
        """Drops the estimate of a call that has ended, and counts its known cost."""
        self._live.pop(path, None)
        self._admitted.pop(path, None)
        self._known_usd += cost_usd or 0.0
        self._settled.set()
        self._settled = asyncio.Event()

    def check(self) -> None:
        """Raises: LimitReached if tokens or USD are spent. Cheap: called for each piece of an answer."""
        max_tokens, max_usd = self.limits.max_tokens, self.limits.max_usd
        if max_tokens is not None:
            tokens = self._trace.usage.total_tokens
            tokens += sum(call.input_tokens + call.output_tokens for call in self._live.values())
            if tokens >= max_tokens:
                raise LimitReached(
                    f"the token limit of this run is reached: {tokens} of {max_tokens} tokens", limit="tokens"
                )
        if max_usd is not None:
            usd = self._known_usd + sum(call.cost_usd or 0.0 for call in self._live.values())
            if 0 < usd >= max_usd:
                most = "at most " if self._trace.cost_at_most else ""
                raise LimitReached(
                    f"the cost limit of this run is reached: {most}{usd:.6f} USD spent, the limit is {max_usd:g} USD",
                    limit="usd",
                )

    def total(self) -> tuple[Usage, Cost]:
        """Returns what was spent so far. Broken-off calls count by estimate."""
        usage, cost = self._trace.usage, Cost(self._trace.cost_usd, self._trace.known_usd)
        for call in self._live.values():
            usage += call.usage
            cost += Cost(call.cost_usd, call.cost_usd or 0.0)
        return usage, cost

    def broken_off(self) -> tuple[BrokenOff, ...]:
        return tuple(
            BrokenOff(path=path, usage=call.usage, cost_usd=call.cost_usd) for path, call in self._live.items()
        )
