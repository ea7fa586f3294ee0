"""Workers of a training, behind a cache and a cap: each question is paid for once, however many rollouts ask it.

``AnswerCache`` keeps what a training has paid for (workers' answers by step identity, costs of calls, rewards of
rollouts) in one SQLite file beside the checkpoints. An answer is durable before any step reads it. A training that was
killed, stopped by its cost cap or stopped by failing workers continues where it was and pays for nothing twice.

One process at a time holds the file. Its exclusive lock also avoids a bug of SQLite 3.7.0 to 3.51.2 that occurs when
two connections write to one WAL: https://www.sqlite.org/wal.html#walresetbug.

Two rollouts that ask the same question at the same time share one call. Identical steps of one workflow are
independent attempts (best of n): the first gets sample 0 of the question, the second sample 1, and so on.
"""

import asyncio
import itertools
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, get_args

from conductor_core.chat.messages import (
    Chunk,
    Finished,
    FinishReason,
    Message,
    ReasoningDelta,
    TextDelta,
    TextWasReasoning,
    Usage,
    Worker,
)
from conductor_core.chat.usage import estimate_input_tokens, tokens_of
from conductor_core.engine.budgets import CostCap
from conductor_core.engine.pools import Pool
from conductor_core.engine.prompts import worker_identity
from conductor_core.engine.recorder import closing
from conductor_core.engine.step import cost_of
from conductor_core.errors import (
    BadInput,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    StoreTooNew,
    WorkerRefused,
    WorkerStreamCut,
    WorkerTimedOut,
)
from conductor_core.text import whole_characters

VERSION = 2
_FINISH_REASONS: frozenset[str] = frozenset(get_args(FinishReason))

_SCHEMA = """
CREATE TABLE answer (
    identity TEXT NOT NULL,          -- engine.identity.worker_identity
    sample INTEGER NOT NULL,         -- which of several independent answers to the same question within one workflow
    output TEXT NOT NULL,
    finish_reason TEXT NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    estimated INTEGER NOT NULL,
    cost_usd REAL,
    model TEXT,
    PRIMARY KEY (identity, sample)
) WITHOUT ROWID;
CREATE TABLE spending (
    id INTEGER PRIMARY KEY,
    worker TEXT NOT NULL,
    answered INTEGER NOT NULL,       -- 0: the call is under way or broke off, and its figures are the most it may cost
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cost_usd REAL NOT NULL
);
CREATE TABLE outcome (
    digest TEXT PRIMARY KEY,         -- task, workflow, workers, grader: all that determines a reward
    task_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    plan TEXT NOT NULL,              -- the three lists, numbered by the whole pool
    answer TEXT,
    score REAL NOT NULL,
    reason TEXT NOT NULL
) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class CachedAnswer:
    """A worker's whole answer, with what the provider reported about it."""

    output: str
    finish_reason: FinishReason
    usage: Usage
    cost_usd: float | None = None
    model: str | None = None


@dataclass(frozen=True)
class Spent:
    """Totals over the whole training: calls that were answered, calls that broke off, tokens and USD of both.

    A call that broke off, or was under way when its process ended, counts with the most that it may have cost.
    """

    answered: int = 0
    broken_off: int = 0
    tokens: int = 0
    usd: float = 0.0


@dataclass(frozen=True)
class RolloutOutcome:
    """The outcome of one workflow for one task. ``answer`` is None if the run gave none. ``score`` is 1 if right."""

    task_id: str
    run_id: str
    plan: str
    answer: str | None
    score: float
    reason: str


class AnswerCache:
    """The file. One thread at a time may use it. Each write is durable when it returns."""

    def __init__(self, path: Path) -> None:
        """Opens the file. Raises: StoreLocked while another training uses it; StoreTooNew, StoreDamaged, StoreError."""
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreReadOnly(f"{path.parent} cannot be made: {error.strerror or error}") from error
        with self._named():
            self._db = sqlite3.connect(path, timeout=1.0, isolation_level=None, check_same_thread=False)
            try:
                self._prepare()
            except BaseException:
                self._db.close()
                raise

    def _prepare(self) -> None:
        db = self._db
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("BEGIN IMMEDIATE")
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version > VERSION:
            raise StoreTooNew(f"{self.path} was written by a newer version of this program; update it")
        if version == 1:
            # Version 1 scored a worker without credit, key or model as a wrong answer. Those runs are repeated.
            db.execute("DELETE FROM outcome WHERE answer IS NULL AND reason LIKE 'worker %'")
        if version == 0:
            for statement in _SCHEMA.split(";\n"):
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {VERSION}")
        db.execute("COMMIT")

    def answer(self, identity: str, sample: int) -> CachedAnswer | None:
        """Returns the recorded answer, or None. Raises: StoreError."""
        rows = self._rows(
            "SELECT output, finish_reason, input_tokens, output_tokens, estimated, cost_usd, model FROM answer"
            " WHERE identity = ? AND sample = ?",
            identity,
            sample,
        )
        if not rows:
            return None
        output, reason, input_tokens, output_tokens, estimated, cost_usd, model = rows[0]
        usage = Usage(input_tokens=input_tokens, output_tokens=output_tokens, estimated=bool(estimated))
        return CachedAnswer(output, reason if reason in _FINISH_REASONS else "other", usage, cost_usd, model)

    def begin_call(self, worker: str, most: Usage, most_usd: float) -> int:
        """Counts a call at its highest cost before it is sent, so that a kill does not hide it. Returns its number.

        Raises: StoreError.
        """
        with self._named():
            added = self._db.execute(
                "INSERT INTO spending (worker, answered, input_tokens, output_tokens, cost_usd) VALUES (?, 0, ?, ?, ?)",
                (worker, most.input_tokens, most.output_tokens, most_usd),
            )
        return int(added.lastrowid or 0)

    def drop_call(self, number: int) -> None:
        """Forgets a call that costs nothing. Raises: StoreError."""
        self._rows("DELETE FROM spending WHERE id = ?", number)

    def keep_answer(self, identity: str, sample: int, number: int, answer: CachedAnswer, paid_usd: float) -> None:
        """Keeps the answer of call ``number`` and its price in one transaction. Raises: StoreError."""
        tokens, estimated = (answer.usage.input_tokens, answer.usage.output_tokens), answer.usage.estimated
        kept = (answer.output, answer.finish_reason, *tokens, estimated, answer.cost_usd, answer.model)
        with self._named(), self._transaction():
            self._db.execute("INSERT INTO answer VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (identity, sample, *kept))
            self._db.execute(
                "UPDATE spending SET answered = 1, input_tokens = ?, output_tokens = ?, cost_usd = ? WHERE id = ?",
                (*tokens, paid_usd, number),
            )

    def spent(self) -> Spent:
        """Returns the totals. Raises: StoreError."""
        (totals,) = self._rows(
            "SELECT coalesce(sum(answered), 0), coalesce(sum(1 - answered), 0),"
            " coalesce(sum(input_tokens + output_tokens), 0), coalesce(sum(cost_usd), 0.0) FROM spending"
        )
        return Spent(*totals)

    def outcome(self, digest: str) -> RolloutOutcome | None:
        """Returns the outcome of a rollout, None if it has not been carried out. Raises: StoreError."""
        rows = self._rows("SELECT task_id, run_id, plan, answer, score, reason FROM outcome WHERE digest = ?", digest)
        return RolloutOutcome(*rows[0]) if rows else None

    def outcomes(self, task_id: str) -> list[RolloutOutcome]:
        """Returns all outcomes of a task in a fixed order, which is not the order of time. Raises: StoreError."""
        rows = self._rows(
            "SELECT task_id, run_id, plan, answer, score, reason FROM outcome WHERE task_id = ? ORDER BY digest",
            task_id,
        )
        return [RolloutOutcome(*row) for row in rows]

    def keep_outcome(self, digest: str, outcome: RolloutOutcome) -> None:
        """Keeps the outcome of a rollout. Raises: StoreError."""
        self._rows("INSERT OR REPLACE INTO outcome VALUES (?, ?, ?, ?, ?, ?, ?)", digest, *astuple(outcome))

    def close(self) -> None:
        self._db.close()

    def _rows(self, statement: str, *values: Any) -> list[Any]:
        """Executes one statement, which is durable at once, and returns its rows."""
        with self._named():
            return self._db.execute(statement, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Turns SQLite's errors into ours, which say what to do."""
        try:
            yield
        except UnicodeEncodeError as error:
            raise BadInput(f"an answer cannot be kept: it holds half a character ({error.reason})") from error
        except sqlite3.Error as error:
            raise _store_error(self.path, error) from error


def _store_error(path: Path, error: sqlite3.Error) -> StoreError:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreLocked(f"{path} is in use by another training; wait for it, or give this one a folder of its own")
    if name.startswith("SQLITE_FULL"):
        return StoreFull(f"no space left for {path}; free some and start again: what is finished is kept")
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM")):
        return StoreReadOnly(f"{path} cannot be written: {error}; choose another folder or correct its rights")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return StoreDamaged(f"{path} is damaged or not a cache of answers: {error}; move it away to start afresh")
    return StoreError(f"{path}: {error}")


# Workers behind the cache.

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
                    if isinstance(chunk, TextWasReasoning):
                        self._pieces.clear()
                        continue
                    self._characters += len(chunk.text)
                    if not isinstance(chunk, ReasoningDelta):
                        self._pieces.append(chunk.text)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise WorkerTimedOut(f"worker {spec.name} gave no complete answer within {spec.timeout_s:g} s") from error
        raise WorkerStreamCut(f"the answer of worker {spec.name} was cut: its stream ended without a finish_reason")
