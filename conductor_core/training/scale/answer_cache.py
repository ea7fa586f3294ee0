"""Keeps what a training has paid for: workers' answers by step identity, costs of calls, and rewards of rollouts.

It is one SQLite file beside the checkpoints. An answer is durable before any step reads it. A training that was killed,
stopped by its cost cap or stopped by failing workers continues where it was and pays for nothing twice.

One process at a time holds the file. Its exclusive lock also avoids a bug of SQLite 3.7.0 to 3.51.2 that occurs when
two connections write to one WAL: https://www.sqlite.org/wal.html#walresetbug.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, get_args

from conductor_core.chat import FinishReason, Usage
from conductor_core.errors import BadInput, StoreDamaged, StoreError, StoreFull, StoreLocked, StoreReadOnly, StoreTooNew

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
        return StoreFull(f"there is no space left for {path}; make some and start again: what is finished is kept")
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM")):
        return StoreReadOnly(f"{path} cannot be written: {error}; choose another folder or correct its rights")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return StoreDamaged(f"{path} is no cache of answers, or is damaged: {error}; move it away to start anew")
    return StoreError(f"{path}: {error}")
