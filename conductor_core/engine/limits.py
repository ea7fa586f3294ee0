"""Budgets of a run: steps, tokens, USD, seconds, depth.

Checked before each call to a worker, while an answer streams (by estimate) and when its usage arrives. A run that
reaches one fails with ``LimitReached``; running calls are cancelled and finished steps kept. A run that has its answer
is never failed for what that answer cost.

- Steps: ``max_steps`` bounds each workflow, and ``max_steps * (max_depth + 1)`` the calls to workers of the whole run:
  with one level of recursion twice the budget, as in the paper. Retries and reused steps do not count.
- USD: a call whose price is unknown is not counted, since nothing is known about it. A limit of 0 allows free calls.
- Seconds: the whole run, planning included.
"""

from conductor_core.chat import Message, Usage
from conductor_core.errors import LimitReached
from conductor_core.events import Limits, Path
from conductor_core.trace import RunTrace


def estimate_tokens(text: str) -> int:
    """Tokens of ``text``, by the rule of thumb of four characters a token; 0 only for no text."""
    return -(-len(text) // 4)


def estimate_input_tokens(messages: tuple[Message, ...]) -> int:
    """Tokens of a prompt; four more for each message, for its role and separators."""
    return sum(estimate_tokens(message.content) + 4 for message in messages)


class Budget:
    """What a run has spent (by its trace) and is spending (by estimate) against its limits."""

    def __init__(self, limits: Limits, trace: RunTrace) -> None:
        self.limits = limits
        self._trace = trace
        self._calls = 0
        self._known_usd = 0.0
        self._live: dict[Path, tuple[int, int, float | None]] = {}
        self._live_tokens = 0
        self._live_usd = 0.0

    def start_call(self) -> None:
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

    def streaming(self, path: Path, input_tokens: int, output_tokens: int, cost_usd: float | None) -> None:
        """Sets the estimate for a call that is on. Raises: LimitReached."""
        self.settle(path)
        self._live[path] = (input_tokens, output_tokens, cost_usd)
        self._live_tokens += input_tokens + output_tokens
        self._live_usd += cost_usd or 0.0
        self.check()

    def settle(self, path: Path, cost_usd: float | None = None) -> None:
        """Drops the estimate for a call that has ended; its known cost counts from now on."""
        input_tokens, output_tokens, live_usd = self._live.pop(path, (0, 0, None))
        self._live_tokens -= input_tokens + output_tokens
        self._live_usd -= live_usd or 0.0
        self._known_usd += cost_usd or 0.0

    def check(self) -> None:
        """Raises: LimitReached if tokens or USD are spent."""
        tokens = self._trace.usage.total_tokens + self._live_tokens
        if self.limits.max_tokens is not None and tokens >= self.limits.max_tokens:
            raise LimitReached(
                f"the token limit of this run is reached: {tokens} of {self.limits.max_tokens} tokens", limit="tokens"
            )
        usd = self._known_usd + self._live_usd
        if self.limits.max_usd is not None and usd > 0 and usd >= self.limits.max_usd:
            raise LimitReached(
                f"the cost limit of this run is reached: {usd:.4f} of {self.limits.max_usd:.4f} USD", limit="usd"
            )

    def total(self) -> tuple[Usage, float | None]:
        """Usage and USD so far; calls that were broken off count by estimate. USD is None if any part is unknown."""
        usage, cost_usd = self._trace.usage, self._trace.cost_usd
        for input_tokens, output_tokens, live_usd in self._live.values():
            usage += Usage(input_tokens=input_tokens, output_tokens=output_tokens, estimated=True)
            cost_usd = None if cost_usd is None or live_usd is None else cost_usd + live_usd
        return usage, cost_usd

    def out_of_time(self) -> LimitReached:
        """The error of a run whose time is up."""
        return LimitReached(
            f"the time limit of this run is reached: {self.limits.max_seconds:g} s, planning included", limit="seconds"
        )
