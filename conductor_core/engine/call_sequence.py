"""Whom a step asks, call after call: its worker, the same with more tokens, its fallback."""

from dataclasses import dataclass
from typing import Any, Literal

from conductor_core.chat import Worker, WorkerSpec
from conductor_core.endings import Ending
from conductor_core.engine.pool import open_worker
from conductor_core.engine.retry import left_s, wait_before_retry_s
from conductor_core.engine.state import RunState
from conductor_core.errors import WorkerError

MORE_TOKENS = 4
"""A cut answer is asked for again with so many times the tokens: thinking models are seldom helped by twice as many."""
_LIMITS = ("max_completion_tokens", "max_tokens")
"""The parameters by which pool files bound an answer, the more specific first."""
_USUAL_LIMITS = {"anthropic": 4096, "local": 1024}
"""What providers are sent that must be told a limit, where the pool file has none."""


@dataclass(frozen=True, slots=True)
class NextCall:
    """What follows a call that brought no whole answer. ``max_tokens``: its limit, if that is another than before."""

    how: Literal["again", "more_tokens", "fallback"]
    wait_s: float = 0.0
    max_tokens: int | None = None


class CallSequence:
    """The calls of one step. Each worker has its own attempts.

    Attributes:
        worker: who is asked next.
        agent: its name; that of the step's own worker also where it is asked with more tokens.
    """

    def __init__(self, state: RunState, agent: str) -> None:
        self._state = state
        self._asked: set[str] = set()
        self._opened: list[Worker] = []
        self._set(state.pool.workers[agent])

    def _set(self, worker: Worker) -> None:
        self.worker, self.agent = worker, worker.spec.name
        self._asked.add(self.agent)
        self._failed = self._grown = 0

    async def aclose(self) -> None:
        """Closes what was opened for this step alone."""
        for worker in self._opened:
            await worker.aclose()

    def after_error(self, error: WorkerError) -> NextCall | None:
        """What follows a call that failed; None: nothing more can be done."""
        attempts = self._state.settings.step_attempts
        self._failed += not error.loading
        if error.retryable and self._failed < attempts:
            wait_s = wait_before_retry_s(error, self._failed, self._state.settings, left_s(self._state))
            # A long wait that the provider asks for is only waited out where nobody else can be asked.
            longest_s = self._state.settings.retry_max_s
            if wait_s is not None and (error.loading or wait_s <= longest_s or self._next() is None):
                return NextCall("again", wait_s)
        return self._fallback()

    def after_ending(self, ending: Ending, written_tokens: int) -> NextCall | None:
        """What follows an answer that is no whole one, as the run's setting has it; None: it stands.

        Args:
            written_tokens: how many the answer took: its limit, if nobody knows that.
        """
        policy = self._state.on_incomplete
        if policy == "fallback":
            return self._fallback()
        if policy == "more_tokens" and ending == "cut" and self._grown + 1 < self._state.settings.step_attempts:
            return self._with_more_tokens(written_tokens)
        return None

    def _next(self) -> Worker | None:
        """Who can be asked in the place of this worker."""
        name = self.worker.spec.fallback
        return None if name is None or name in self._asked else self._state.pool.workers.get(name)

    def _fallback(self) -> NextCall | None:
        worker = self._next()
        if worker is None:
            return None
        self._set(worker)
        return NextCall("fallback")

    def _with_more_tokens(self, written_tokens: int) -> NextCall:
        spec = self.worker.spec
        name, most = limit_of(spec)
        most = MORE_TOKENS * max(most or written_tokens, 1)
        params: dict[str, Any] = {**spec.params, name: most}
        self.worker = open_worker(
            spec.model_copy(update={"params": params}), self._state.settings, self._state.pool.seed
        )
        self._opened.append(self.worker)
        self._grown += 1
        self._failed = 0
        return NextCall("more_tokens", max_tokens=most)


def limit_of(spec: WorkerSpec) -> tuple[str, int | None]:
    """The parameter that bounds an answer of ``spec``, and its value; None: nobody knows it."""
    for name in _LIMITS:
        if isinstance(most := spec.params.get(name), int):
            return name, most
    return "max_tokens", _USUAL_LIMITS.get(spec.provider)
