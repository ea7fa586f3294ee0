"""One step: a call to its worker, its stream, its attempts, its end."""

import asyncio
import logging
from collections.abc import Sequence

from tenacity import AsyncRetrying, RetryCallState, wait_exponential_jitter

from conductor_core import events as ev
from conductor_core import masking
from conductor_core.chat import Finished, ReasoningDelta, Usage, WorkerSpec
from conductor_core.engine.context import Answer
from conductor_core.engine.identity import digest_text
from conductor_core.engine.limits import LiveCall, estimate_input_tokens, tokens_of
from conductor_core.engine.question import Question
from conductor_core.engine.recorder import DeltaBuffer, Piece, closing
from conductor_core.engine.state import RunState
from conductor_core.errors import InspectorError, WorkerError, WorkerStreamCut, WorkerTimedOut
from conductor_core.settings import Settings
from conductor_core.workers.text import whole_characters
from conductor_core.workflow.model import Step

log = logging.getLogger(__name__)


def wait_before_retry_s(error: WorkerError, attempt: int, settings: Settings) -> float:
    """Seconds to wait after failed attempt number ``attempt`` (from 1).

    What the provider asked for (Retry-After) if it did, else exponential with jitter; never more than the settings'
    longest wait.
    """
    if error.retry_after_s is not None:
        return min(max(error.retry_after_s, 0.0), settings.retry_max_s)
    state = RetryCallState(AsyncRetrying(), None, (), {})
    state.attempt_number = attempt
    initial_s = settings.retry_initial_s
    return wait_exponential_jitter(multiplier=initial_s, max=settings.retry_max_s, jitter=initial_s)(state)


def cost_of(spec: WorkerSpec, usage: Usage) -> float | None:
    """USD by the worker's price; None if that is unknown."""
    return None if spec.price is None else spec.price.cost_usd(usage)


class StepCall:
    """Calls one worker for one step, records everything, and gives its answer, or None if it failed for good."""

    def __init__(self, state: RunState, path: ev.Path, step: Step, question: Question) -> None:
        self._state, self._path, self._step, self._question = state, path, step, question
        self._recorder, self._budget = state.recorder, state.budget
        self._worker = state.pool.workers[step.agent]
        self._spec = self._worker.spec
        self._gate = state.gates.of(self._spec)
        self._input_tokens = estimate_input_tokens(question.context.messages)
        self._live = LiveCall(self._spec.price, self._input_tokens)
        self._deltas = DeltaBuffer(state.recorder, state.settings.delta_interval_ms, self._delta_events)
        self._started_ms = 0.0
        self._asked = False
        self._begin_attempt()

    async def run(self) -> Answer | None:
        """Raises: StoreError, LimitReached; cancelled, it closes the provider's connection and keeps what streamed."""
        attempts = self._state.settings.step_attempts
        try:
            for attempt in range(1, attempts + 1):
                try:
                    finished = await self._attempt(attempt)
                except WorkerError as error:
                    if not error.retryable or attempt == attempts:
                        await self._fail(error.code, str(error), attempt, self._spent(error))
                        return None
                    await self._retry(error, attempt)
                except InspectorError:
                    raise
                except (Exception, asyncio.CancelledError) as error:
                    if isinstance(error, asyncio.CancelledError) and _asked_to_stop():
                        raise
                    log.exception("worker %s broke in step %s of run %s", self._spec.name, self._path, self._run_id)
                    name = type(error).__name__
                    message = f"worker {self._spec.name} broke unexpectedly, see the log: {name}: {error}"
                    await self._fail(name, masking.known().text(message), attempt, self._spent(None))
                    return None
                else:
                    return await self._complete(finished, attempt)
        finally:
            self._recorder.defer(self._deltas.take())
        return None

    @property
    def _run_id(self) -> str:
        return self._recorder.run_id

    def _begin_attempt(self) -> None:
        self._text: list[str] = []
        self._output_characters = 0
        self._first_token_ms: float | None = None

    async def _attempt(self, attempt: int) -> Finished:
        """One call, once there is room for it, also in what many runs may spend together. Raises: WorkerError."""
        async with self._gate:
            cap = self._state.cap
            if cap is None:
                return await self._call(attempt)
            async with cap.call(self._spec, self._question.context.messages) as call:
                usage, cost_usd = Usage(), 0.0
                try:
                    finished = await self._call(attempt)
                    usage = finished.usage or call.most
                    cost_usd = call.cost_usd(usage, finished.cost_usd)
                    return finished
                except WorkerError as error:
                    if self._spent(error).total_tokens:
                        usage, cost_usd = call.most, call.most_usd
                    raise
                except BaseException:
                    # Stopped from outside: how far its provider was, nobody says.
                    if self._asked:
                        usage, cost_usd = call.most, call.most_usd
                    raise
                finally:
                    cap.add(usage, cost_usd)

    async def _call(self, attempt: int) -> Finished:
        """One call, from the first byte to the last chunk. Raises: WorkerError."""
        self._asked = False
        if attempt == 1:
            await self._start()
        self._begin_attempt()
        self._live = self._budget.begin_call(self._path, self._input_tokens, self._spec.price)
        self._asked = True
        answer = self._worker.answer(self._question.context.messages)
        try:
            async with asyncio.timeout(self._spec.timeout_s) as limit, closing(answer) as stream:
                async for chunk in stream:
                    if isinstance(chunk, Finished):
                        return chunk
                    self._receive(whole_characters(chunk.text), reasoning=isinstance(chunk, ReasoningDelta))
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise WorkerTimedOut(
                f"worker {self._spec.name} gave no complete answer within {self._spec.timeout_s:g} s"
            ) from error
        raise WorkerStreamCut(
            f"the answer of worker {self._spec.name} was cut: its stream ended without a finish_reason"
        )

    async def _start(self) -> None:
        self._budget.start_step()
        self._started_ms = self._recorder.now_ms()
        await self._recorder.emit(
            ev.StepStarted(
                run_id=self._run_id,
                at_ms=self._started_ms,
                path=self._path,
                agent=self._step.agent,
                identity=self._question.identity,
                messages=self._question.context.messages,
                granted=self._question.context.granted,
                withheld=self._question.context.withheld,
            )
        )

    def _receive(self, text: str, *, reasoning: bool) -> None:
        if not text:
            return
        if self._first_token_ms is None:
            self._first_token_ms = self._recorder.now_ms() - self._started_ms
        if not reasoning:
            self._text.append(text)
        self._output_characters += len(text)
        self._deltas.add(text, reasoning=reasoning)
        self._live.output_tokens = tokens_of(self._output_characters)
        self._budget.check()

    def _delta_events(self, pieces: Sequence[Piece]) -> list[ev.Event]:
        output_tokens, at_ms = self._live.output_tokens, self._recorder.now_ms()
        return [
            ev.StepDelta(
                run_id=self._run_id,
                at_ms=at_ms,
                path=self._path,
                text=text,
                reasoning=reasoning,
                output_tokens=output_tokens,
            )
            for reasoning, text in pieces
        ]

    def _spent(self, error: WorkerError | None) -> Usage:
        """What a failed attempt cost: by estimate if the provider had begun to answer, or may have; else nothing."""
        began = self._output_characters > 0 or isinstance(error, WorkerTimedOut | WorkerStreamCut)
        return self._live.usage if began else Usage()

    def _settle(self, usage: Usage, cost_usd: float | None = None) -> float | None:
        """Moves the attempt's spending from estimate to record; gives its cost in USD, None if unknown."""
        if cost_usd is None:
            cost_usd = 0.0 if usage.total_tokens == 0 else cost_of(self._spec, usage)
        self._budget.settle(self._path, cost_usd)
        return cost_usd

    async def _retry(self, error: WorkerError, attempt: int) -> None:
        usage = self._spent(error)
        wait_s = wait_before_retry_s(error, attempt, self._state.settings)
        await self._recorder.emit(
            *self._deltas.take(),
            ev.StepRetried(
                run_id=self._run_id,
                at_ms=self._recorder.now_ms(),
                path=self._path,
                attempt=attempt,
                error_code=error.code,
                error=str(error),
                wait_ms=wait_s * 1000,
                partial="".join(self._text),
                usage=usage,
                cost_usd=self._settle(usage),
            ),
        )
        self._begin_attempt()
        self._budget.check()
        await asyncio.sleep(wait_s)

    async def _fail(self, code: str, message: str, attempt: int, usage: Usage) -> None:
        streamed = self._deltas.take()
        now_ms = self._recorder.now_ms()
        await self._recorder.emit(
            *streamed,
            ev.StepFailed(
                run_id=self._run_id,
                at_ms=now_ms,
                path=self._path,
                error_code=code,
                error=message,
                partial="".join(self._text),
                attempts=attempt,
                usage=usage,
                cost_usd=self._settle(usage),
                duration_ms=now_ms - self._started_ms,
            ),
        )

    async def _complete(self, finished: Finished, attempt: int) -> Answer:
        output, streamed = "".join(self._text), self._deltas.take()
        usage = finished.usage or self._live.usage
        cost_usd = self._settle(usage, finished.cost_usd)
        digest = digest_text(output)
        now_ms = self._recorder.now_ms()
        await self._recorder.emit(
            *streamed,
            ev.StepCompleted(
                run_id=self._run_id,
                at_ms=now_ms,
                path=self._path,
                output=output,
                output_sha256=digest,
                finish_reason=finished.finish_reason,
                incomplete=finished.finish_reason != "stop",
                usage=usage,
                cost_usd=cost_usd,
                cost_estimated=finished.cost_usd is None and cost_usd is not None,
                model=finished.model,
                attempts=attempt,
                first_token_ms=self._first_token_ms,
                duration_ms=now_ms - self._started_ms,
            ),
        )
        return Answer.of(self._path, self._step, self._state.request.task, output, digest, usage)


def _asked_to_stop() -> bool:
    """Whether this task was cancelled from outside; if not, a ``CancelledError`` is a fault of the worker's."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
