"""Budgets of a run: steps, tokens, USD, seconds, depth.

Checked before each call to a worker, while an answer streams (by estimate) and when its usage arrives. A run that
reaches one fails with ``LimitReached``; running calls are cancelled and finished steps kept. A run that has its answer
is never failed for what that answer cost.

- Steps: ``max_steps`` bounds each workflow, and ``max_steps * (max_depth + 1)`` the calls to workers of the whole run:
  with one level of recursion twice the budget, as in the paper. Retries and reused steps do not count.
- USD: what workers and Conductor cost. A call whose price is unknown is not counted, since nothing is known about it.
  A limit of 0 allows free calls.
- Seconds: the whole run, planning included.
"""

from dataclasses import dataclass

from conductor_core.chat import Price, Usage
from conductor_core.errors import LimitReached
from conductor_core.events import Limits, Path
from conductor_core.spending import Cost
from conductor_core.trace import RunTrace


@dataclass(slots=True)
class LiveCall:
    """A call that is going on, with estimated tokens. Price None: unknown."""

    price: Price | None
    input_tokens: int
    output_tokens: int = 0

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

    def begin_call(self, path: Path, input_tokens: int, price: Price | None) -> LiveCall:
        """Adds a call (of a step, or of the Conductor for a round). Its estimate counts until the call is settled.

        The caller raises its ``output_tokens`` as the answer streams, and checks. Raises: LimitReached; then the call
        must not be made, and does not count.
        """
        call = self._live[path] = LiveCall(price, input_tokens)
        try:
            self.check()
        except LimitReached:
            self.settle(path)
            raise
        return call

    def settle(self, path: Path, cost_usd: float | None = None) -> None:
        """Drops the estimate of a call that has ended, and counts its known cost."""
        self._live.pop(path, None)
        self._known_usd += cost_usd or 0.0

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
                raise LimitReached(f"the cost limit of this run is reached: {usd:.6f} of {max_usd:g} USD", limit="usd")

    def total(self) -> tuple[Usage, Cost]:
        """Returns what was spent so far. Broken-off calls count by estimate."""
        usage, cost = self._trace.usage, Cost(self._trace.cost_usd, self._trace.known_usd)
        for call in self._live.values():
            usage += call.usage
            cost += Cost(call.cost_usd, call.cost_usd or 0.0)
        return usage, cost

    def out_of_time(self) -> LimitReached:
        """Returns the error of a run whose time is up."""
        return LimitReached(
            f"the time limit of this run is reached: {self.limits.max_seconds:g} s, planning included", limit="seconds"
        )
