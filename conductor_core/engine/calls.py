"""What all calls of a run share: its state, how many are made at once, and when a failed one is repeated.

A step calls its worker, the same worker with more tokens, and its fallback (``CallSequence``).
"""

import asyncio
from dataclasses import dataclass
from typing import Literal

from tenacity import AsyncRetrying, RetryCallState, wait_exponential_jitter

from conductor_core.chat.messages import HERE, Conductor, Ending, OnIncomplete, Worker, WorkerSpec
from conductor_core.engine.approvals import Approvals
from conductor_core.engine.budgets import Budget, CostCap
from conductor_core.engine.pools import Pool, open_worker
from conductor_core.engine.prompts import ReadContent, StepInputs
from conductor_core.engine.recorder import Recorder
from conductor_core.engine.request import EarlierAnswers
from conductor_core.engine.tool_calls import ToolCalls
from conductor_core.errors import CallError, WorkerError
from conductor_core.run.request import RunRequest
from conductor_core.settings import Settings


class ConcurrencyLimits:
    """Limits the calls of each worker to ``max_concurrency`` at once, over all runs of an engine."""

    def __init__(self) -> None:
        self._semaphores: dict[tuple[str | int | None, ...], asyncio.Semaphore] = {}

    def of(self, spec: WorkerSpec) -> asyncio.Semaphore:
        key = (spec.name, spec.provider, spec.model, spec.base_url, spec.max_concurrency)
        return self._semaphores.setdefault(key, asyncio.Semaphore(spec.max_concurrency))


@dataclass(frozen=True, slots=True)
class RunState:
    """Attributes:
    pool: without the workers that the request excludes.
    on_incomplete: what happens to a step whose answer is incomplete, as in ``run.created``.
    tools: calls of the pool's tool servers.
    cap: what this run and others may spend together; None: there is no cap.
    read_content: reads the images of the task; None: there are none.
    """

    request: RunRequest
    settings: Settings
    conductor: Conductor | None
    pool: Pool
    step_inputs: StepInputs
    recorder: Recorder
    budget: Budget
    source: EarlierAnswers
    concurrency: ConcurrencyLimits
    approvals: Approvals
    tools: ToolCalls
    on_incomplete: OnIncomplete = "allow"
    cap: CostCap | None = None
    read_content: ReadContent | None = None


# Failed calls.

LOADING_WAIT_S = 2.0
"""Between two calls of a server that loads its model, unless it says otherwise: loading takes seconds to minutes."""


def left_s(state: RunState) -> float | None:
    most_s = state.request.limits.max_seconds
    return None if most_s is None else max(0.0, most_s - state.recorder.now_ms() / 1000)


def wait_before_retry_s(error: CallError, attempt: int, settings: Settings, left_s: float | None) -> float | None:
    """Returns the seconds to wait after failed attempt ``attempt`` (from 1); None: waiting is useless.

    It follows the provider (Retry-After), and is useless if that is longer than the run has left (``left_s``). Without
    a wait from the provider, or with one of zero, it is exponential with jitter, up to the settings' longest wait. A
    server that loads its model is asked again after a fixed time.
    """
    if _beyond(error, left_s):
        return None
    if error.retry_after_s is not None and error.retry_after_s > 0:
        return error.retry_after_s
    if error.loading:
        return min(LOADING_WAIT_S, settings.retry_max_s)
    state = RetryCallState(AsyncRetrying(), None, (), {})
    state.attempt_number = attempt
    initial_s = settings.retry_initial_s
    return wait_exponential_jitter(multiplier=initial_s, max=settings.retry_max_s, jitter=initial_s)(state)


def name_the_limit(error: CallError, state: RunState) -> None:
    """Adds to ``error`` that the run's time limit is shorter than the wait that its server asks for."""
    if error.retryable and _beyond(error, left_s(state)):
        limit_s = state.request.limits.max_seconds
        error.args = (
            f"{error}; it asks to wait {error.retry_after_s:.0f} s, and this run may take {limit_s:g} s in all: "
            "try again later, or raise the run's time limit (max_seconds)",
        )


def _beyond(error: CallError, left_s: float | None) -> bool:
    return error.retry_after_s is not None and left_s is not None and error.retry_after_s >= left_s


MORE_TOKENS = 4
"""The factor by which the token limit grows after a cut answer. A factor of 2 seldom helps thinking models."""
_LIMITS = ("max_completion_tokens", "max_tokens")
"""The parameters by which pool files bound an answer, the more specific first."""
_USUAL_LIMITS = {"anthropic": 4096, "local": 1024, "gguf": 1024}
"""The limit sent to providers that require one, if the pool file gives none."""


@dataclass(frozen=True, slots=True)
class NextCall:
    """The call that follows one without a complete answer. ``max_tokens``: its new limit; None: no new limit."""

    how: Literal["again", "more_tokens", "fallback"]
    wait_s: float = 0.0
    max_tokens: int | None = None


class CallSequence:
    """The calls of one step. Each worker has its own attempts.

    Args:
        seed: the step's own, which takes the place of a worker's; None: the run's.
        limited: whether the client limits the answer, so that one which is cut is as long as it may be.

    Attributes:
        worker: the worker to call next.
        agent: the name of that worker. It stays the same when the worker is called with more tokens.
    """

    def __init__(self, state: RunState, agent: str, seed: int | None = None, *, limited: bool = False) -> None:
        self._state, self._seed, self._limited = state, seed, limited
        self._asked: set[str] = set()
        self._opened: list[Worker] = []
        self._set(state.pool.workers[agent])

    def _set(self, worker: Worker) -> None:
        if self._seed is not None and takes_seed(worker.spec):  # others draw afresh at every call
            worker = self._open(with_seed(worker.spec, self._seed))
        self.worker, self.agent = worker, worker.spec.name
        self._asked.add(self.agent)
        self._failed = self._grown = 0

    def _open(self, spec: WorkerSpec) -> Worker:
        seed = self._state.pool.seed if self._seed is None else self._seed
        worker = open_worker(spec, self._state.settings, seed)
        self._opened.append(worker)
        return worker

    async def aclose(self) -> None:
        for worker in self._opened:
            await worker.aclose()

    def after_error(self, error: WorkerError) -> NextCall | None:
        attempts = self._state.settings.step_attempts
        self._failed += not error.loading
        if error.retryable and self._failed < attempts:
            wait_s = wait_before_retry_s(error, self._failed, self._state.settings, left_s(self._state))
            # If the provider asks for a long wait, the step waits only if it has no fallback left.
            longest_s = self._state.settings.retry_max_s
            if wait_s is not None and (error.loading or wait_s <= longest_s or self._next() is None):
                return NextCall("again", wait_s)
        return self._fallback()

    def after_ending(self, ending: Ending, written_tokens: int) -> NextCall | None:
        """Returns the call that follows an incomplete answer, by the run's setting; None: the answer is kept.

        Args:
            written_tokens: the length of the answer, taken as its limit if the limit is unknown.
        """
        policy = self._state.on_incomplete
        if ending == "cut" and self._limited:
            return None
        if policy == "fallback":
            return self._fallback()
        if policy != "more_tokens" or ending != "cut" or self._grown + 1 >= self._state.settings.step_attempts:
            return None
        spec = self.worker.spec
        name, most = limit_of(spec)
        most = MORE_TOKENS * max(most or written_tokens, 1)
        self.worker = self._open(spec.model_copy(update={"params": {**spec.params, name: most}}))
        self._grown += 1
        self._failed = 0
        return NextCall("more_tokens", max_tokens=most)

    def _next(self) -> Worker | None:
        """Returns the fallback of this worker; None if there is none that the step has not called yet."""
        name = self.worker.spec.fallback
        return None if name is None or name in self._asked else self._state.pool.workers.get(name)

    def _fallback(self) -> NextCall | None:
        worker = self._next()
        if worker is None:
            return None
        self._set(worker)
        return NextCall("fallback")


def takes_seed(spec: WorkerSpec) -> bool:
    """Whether the answers of a worker depend on a seed that we choose: not every server knows the parameter."""
    return spec.provider in ("rehearsal", *HERE) or "seed" in spec.params


def with_seed(spec: WorkerSpec, seed: int) -> WorkerSpec:
    """Returns a worker that takes a seed, with this one. A simulated worker is opened with it instead."""
    return spec if spec.simulated else spec.model_copy(update={"params": {**spec.params, "seed": seed}})


def limit_of(spec: WorkerSpec) -> tuple[str, int | None]:
    """Returns the parameter that limits the answers of ``spec``, and its value; None: the value is unknown."""
    for name in _LIMITS:
        if isinstance(most := spec.params.get(name), int):
            return name, most
    return "max_tokens", _USUAL_LIMITS.get(spec.provider)
