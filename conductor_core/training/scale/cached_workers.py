"""Workers of a training, behind the cache and the cap: each question is paid for once, however many rollouts ask it.

Two rollouts that ask the same question at the same time share one call. Identical steps of one workflow are independent
attempts (best of n): the first gets sample 0 of the question, the second sample 1, and so on.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence

from conductor_core.characters import whole_characters
from conductor_core.chat import Chunk, Finished, Message, ReasoningDelta, TextDelta, Usage, Worker
from conductor_core.engine.cost_cap import CostCap
from conductor_core.engine.identity import worker_identity
from conductor_core.engine.pool import Pool
from conductor_core.engine.recorder import closing
from conductor_core.engine.step import cost_of
from conductor_core.errors import WorkerRefused, WorkerStreamCut, WorkerTimedOut
from conductor_core.token_estimates import estimate_input_tokens, tokens_of
from conductor_core.training.scale.answer_cache import AnswerCache, CachedAnswer

_NO_LIMIT_S = 30 * 24 * 3600.0
"""The engine's time limit for a step. Calls keep the pool file's own limit, and a step may wait for the cap."""

_Key = tuple[str, int]


class CachedPool:
    """A pool behind the cache and the cap. It belongs to one event loop."""

    def __init__(self, pool: Pool, cache: AnswerCache, cap: CostCap) -> None:
        self.pool = pool
        self._cache, self._cap = cache, cap
        self._under_way: dict[_Key, asyncio.Task[CachedAnswer]] = {}
        self.gone: dict[str, WorkerRefused] = {}
        """Why a worker refuses every request, by the worker's name."""

    def for_run(self, names: Sequence[str]) -> Pool:
        """Returns the workers ``names`` for one run, in that order. Raises: KeyError."""
        taken: set[_Key] = set()
        workers = {name: CachedWorker(self, self.pool.workers[name], taken) for name in names}
        return Pool(name=self.pool.name, workers=workers, seed=self.pool.seed)

    async def drain(self) -> None:
        """Waits until every call under way has ended and is kept, because a call that was sent is charged anyway."""
        while self._under_way:
            await asyncio.gather(*self._under_way.values(), return_exceptions=True)

    async def aclose(self) -> None:
        """Cancels the calls under way and closes the workers."""
        calls = list(self._under_way.values())
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await self.pool.aclose()

    async def ask(self, worker: Worker, messages: Sequence[Message], identity: str, sample: int) -> CachedAnswer:
        """Returns the answer from the file, from a call that is under way, or from a new call.

        A call goes on even if its caller is cancelled. Raises: WorkerError, CostCapReached, StoreError.
        """
        kept = self._cache.answer(identity, sample)
        if kept is not None:
            return kept
        key = (identity, sample)
        call = self._under_way.get(key)
        if call is None:
            call = self._under_way[key] = asyncio.create_task(self._pay(worker, messages, key))
            call.add_done_callback(lambda done: self._ended(key, done))
        return await asyncio.shield(call)

    def _ended(self, key: _Key, call: "asyncio.Task[CachedAnswer]") -> None:
        del self._under_way[key]
        if not call.cancelled():
            call.exception()  # Marks the exception as seen, even if every caller has been cancelled.

    async def _pay(self, worker: Worker, messages: Sequence[Message], key: _Key) -> CachedAnswer:
        async with self._cap.call(worker.spec, messages) as call:
            number = self._cache.begin_call(worker.spec.name, call.most, call.most_usd)
            collected = _Collected(messages)
            try:
                finished = await collected.read(worker, messages)
            except (Exception, asyncio.CancelledError) as error:
                if collected.may_be_charged(error):
                    # Counted with its highest cost, as in the file already: nobody reports how far its thinking was.
                    self._cap.add(call.most, call.most_usd)
                else:
                    self._cache.drop_call(number)
                if isinstance(error, WorkerRefused) and not error.of_request:
                    self.gone[worker.spec.name] = error
                raise
            usage = finished.usage or collected.usage
            cost_usd = finished.cost_usd if finished.cost_usd is not None else cost_of(worker.spec, usage)
            answer = CachedAnswer(
                whole_characters(collected.text), finished.finish_reason, usage, cost_usd, finished.model
            )
            paid_usd = call.cost_usd(usage, finished.cost_usd)
            self._cache.keep_answer(*key, number, answer, paid_usd)
            self._cap.add(usage, paid_usd)
            return answer


class CachedWorker:
    """One worker, for one run.

    The trace of a run shows the usage and cost of its answers at the time when they were given. The cache's totals
    show what the training paid.

    Attributes:
        taken: the samples of each question that this run already has.
    """

    def __init__(self, calls: CachedPool, worker: Worker, taken: set[_Key]) -> None:
        self._calls, self._worker, self._taken = calls, worker, taken
        self.spec = worker.spec.model_copy(update={"timeout_s": _NO_LIMIT_S, "fallback": None})

    async def answer(self, messages: Sequence[Message]) -> AsyncIterator[Chunk]:
        identity = worker_identity(self._worker.spec, messages, self._calls.pool.seed)
        sample = next(number for number in itertools.count() if (identity, number) not in self._taken)
        self._taken.add((identity, sample))
        try:
            answer = await self._calls.ask(self._worker, messages, identity, sample)
        except BaseException:
            self._taken.discard((identity, sample))
            raise
        yield TextDelta(text=answer.output)
        yield Finished(
            finish_reason=answer.finish_reason, usage=answer.usage, cost_usd=answer.cost_usd, model=answer.model
        )

    async def aclose(self) -> None:
        """Does nothing, because the worker itself serves other runs."""


class _Collected:
    """Collects the stream of one call within the worker's own time limit."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._pieces: list[str] = []
        self._input_tokens = estimate_input_tokens(tuple(messages))
        self._characters = 0

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    @property
    def usage(self) -> Usage:
        """Returns an estimate of the usage, for calls of which the provider reports none."""
        return Usage(input_tokens=self._input_tokens, output_tokens=tokens_of(self._characters), estimated=True)

    def may_be_charged(self, error: BaseException) -> bool:
        """Says whether the provider may have begun on a call that broke off, and so may charge it."""
        return self._characters > 0 or isinstance(error, WorkerTimedOut | WorkerStreamCut | asyncio.CancelledError)

    async def read(self, worker: Worker, messages: Sequence[Message]) -> Finished:
        """Reads the whole stream. Raises: WorkerError."""
        spec = worker.spec
        try:
            async with asyncio.timeout(spec.timeout_s) as limit, closing(worker.answer(messages)) as stream:
                async for chunk in stream:
                    if isinstance(chunk, Finished):
                        return chunk
                    self._characters += len(chunk.text)
                    if not isinstance(chunk, ReasoningDelta):
                        self._pieces.append(chunk.text)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise WorkerTimedOut(f"worker {spec.name} gave no complete answer within {spec.timeout_s:g} s") from error
        raise WorkerStreamCut(f"the answer of worker {spec.name} was cut: its stream ended without a finish_reason")
