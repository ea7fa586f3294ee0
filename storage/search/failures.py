"""The catalogue of failures: which requests failed, were limited, refused or corrected, by kind, over time, one by one.

The index takes the failures of a run in when it comes to rest, so that no view reads the events of runs.
"""

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from conductor_core import errors
from conductor_core.errors import codes_of
from conductor_core.run import events as ev
from conductor_core.run.request import PASS_PURPOSE
from conductor_core.run.values import Path
from conductor_core.workflow.model import Frozen
from storage.encoding import Moment, Text, read_models
from storage.merkle.formats import text_of
from storage.search.filters import ANY, Filters

Kind = Literal["failed", "limited", "empty", "refused", "looping", "corrected"]
KINDS: Mapping[str, tuple[str, str, str]] = {
    "failed": ("✕", "failed", "a call, a step, a plan or the run itself failed"),
    "limited": ("⊘", "limited", "a budget, a rate limit, a key, or the length of a context or an answer"),
    "empty": ("∅", "empty", "an answer had no text"),
    "refused": ("⊗", "refused", "a model refused, or a filter took the answer"),
    "looping": ("↻", "retried or looping", "a call was made again, or a worker called tools again and again"),
    "corrected": ("✎", "corrected", "an answer or a plan had not the form asked for, and was mended or written again"),
}
"""By kind: its glyph, its word, and what it means."""
SAME_CALLS, MANY_TURNS = 3, 8
"""From so many calls of a tool with the same arguments on, and so many turns with tools, a step counts as looping."""
MOST_SAID = 300
_LIMITED = codes_of(
    errors.LimitReached,
    errors.WorkerRateLimited,
    errors.WorkerUnpaid,
    errors.WorkerKeyRefused,
    errors.WorkerContextOverflow,
    errors.WorkerOutputTooLarge,
    errors.ConductorRateLimited,
    errors.ConductorUnpaid,
    errors.ConductorKeyRefused,
    errors.PromptOverflows,
) | {"cut", "AnswerCut"}
_REFUSED = codes_of(errors.WorkerFiltered) | {"refused", "filtered", "AnswerRefused", "AnswerFiltered"}
_EMPTY = {"empty", "AnswerEmpty"}
_LOOPING = {"TooManyToolCalls"}


def kind_of(code: str, otherwise: Kind = "failed") -> Kind:
    """Returns the kind of a recorded code. ``otherwise``: of a code that says only that something failed."""
    for kind, codes in (("limited", _LIMITED), ("refused", _REFUSED), ("empty", _EMPTY), ("looping", _LOOPING)):
        if code in codes:
            return kind  # type: ignore[return-value]  # mypy widens the literals of the tuple
    return otherwise


@dataclass(frozen=True, slots=True)
class Noted:
    """A failure in a run. ``event``: sequence of the event that says so. ``path``, ``agent``: empty: of the run."""

    kind: Kind
    code: str
    event: int
    path: Path = ()
    agent: str = ""
    said: str = ""


def loops(calls: Iterable[tuple[int, ev.ToolCalled]], agents: dict[Path, str]) -> list[Noted]:
    """Returns where workers called tools too often, each once a step. ``agents``: who answers a step."""
    turns, same, found = Counter[Path](), Counter[tuple[Path, str, str]](), []
    for at, event in calls:
        agent = event.agent or agents.get(event.path, "")
        turns[event.path] += 1
        if turns[event.path] == MANY_TURNS:
            said = f"{MANY_TURNS} turns with tools and more"
            found.append(Noted("looping", "ManyToolTurns", at, event.path, agent, said))
        for call in event.calls:
            key = (event.path, call.name, call.arguments)
            same[key] += 1
            if same[key] == SAME_CALLS:
                said = f"called {call.name} {SAME_CALLS} times and more with the same arguments: {call.arguments}"
                found.append(Noted("looping", "SameToolCall", at, event.path, agent, said))
    return found


# What is asked.

By = Literal["kind", "worker", "step", "model"]
_GROUPS = {"kind": "f.kind", "worker": "f.agent", "step": "f.path", "model": "f.served"}
ASKED = "asked"
"""The purpose of what clients and people asked for: all but replays, evaluations, shadows, judgements and the like."""


class Narrowed(Frozen):
    """Only failures for which all of this holds; None: any.

    Attributes:
        agent: the worker's name. served: the model that the client asked.
        purpose: of the run; ``asked``: what clients and people asked for; ``*``: any.
    """

    kind: Kind | None = None
    agent: str | None = None
    served: str | None = None
    purpose: str = ASKED

    def condition(self) -> tuple[str, dict[str, Any]]:
        """Returns the SQL condition over ``search_failures`` (``f``) and ``runs`` (``r``), and what to bind."""
        single = {"f.kind": self.kind, "f.agent": self.agent, "f.served": self.served}
        parts = [f"{column} = :narrow{at}" for at, (column, value) in enumerate(single.items()) if value is not None]
        bound: dict[str, Any] = {f"narrow{at}": value for at, value in enumerate(single.values()) if value is not None}
        of_runs, more = self.of_runs
        return " AND ".join([*parts, of_runs]), bound | more

    @property
    def of_runs(self) -> tuple[str, dict[str, Any]]:
        """The part of the condition that is over ``runs`` alone."""
        if self.purpose == ASKED:
            return "r.purpose IN ('', :passed)", {"passed": PASS_PURPOSE}
        return ("true", {}) if self.purpose == ANY else ("r.purpose = :purpose", {"purpose": self.purpose})


EVERYTHING = Narrowed(purpose=ANY)


# What is answered.


class Failure(Frozen):
    """A code: how many runs had it, how often in all, what was last said of it, and tasks that had it.

    ``run_ids``: of each of the tasks, the newest run that had it.
    """

    kind: Text
    code: Text
    runs: int
    times: int
    said: Text
    tasks: tuple[str, ...]
    run_ids: tuple[str, ...]


class FailureCount(Frozen):
    """How many requests had failures of one group, how often in all, and when the last of them began.

    ``name``: of the group; empty: of no step, of no worker, or not asked through the endpoint.
    """

    name: Text
    runs: int
    times: int
    last_utc: Moment


class FailureBucket(Frozen):
    """How many requests of a day or an hour, which ``begin`` names as ISO 8601 does, had failures of a kind."""

    begin: str
    kind: Text
    runs: int


class FailedRequest(Frozen):
    """A request with a failure of this kind and code, where that was last, and how often.

    Attributes:
        cursor: of the next page. event: sequence of the event that says so. path: of the step, as people read it.
        served: the model that the client asked; empty: none.
    """

    cursor: int
    run_id: Text
    created_at_utc: Moment
    status: Text
    task: Annotated[str, BeforeValidator(lambda task: text_of(task or ""))]
    purpose: Text
    simulated: bool
    kind: Text
    code: Text
    path: Text
    agent: Text
    served: Text
    said: Text
    event: int
    times: int


_FROM = (
    "FROM search_failures f CROSS JOIN search_runs s ON s.run = f.run CROSS JOIN runs r ON r.run_id = s.run_id WHERE "
)
_AT = "SELECT run, id FROM search_failures WHERE id = :before"
_MOST_TASKS = 3


class Catalogue:
    """The failures of the runs of ``filters``. Imported runs are left out, unless they are asked for.

    All methods raise sqlite3.Error.
    """

    def __init__(self, connection: sqlite3.Connection, filters: Filters, narrowed: Narrowed) -> None:
        self._connection, self._filters, self._narrowed = connection, filters, narrowed
        of_runs, bound = filters.condition()
        of_failures, more = narrowed.condition()
        self._where = f"{of_runs}{filters.own} AND {of_failures}"
        self._bound = bound | more
        all_runs, of_all = narrowed.of_runs
        self._all = f"{of_runs}{filters.own} AND {all_runs}", bound | of_all

    def but(self, **changed: str | None) -> "Catalogue":
        """Returns the catalogue of the same runs, narrowed otherwise: the fields of ``Narrowed`` that change."""
        return Catalogue(self._connection, self._filters, self._narrowed.model_copy(update=changed))

    def by_code(self) -> list[Failure]:
        """Returns each kind and code, the most frequent first."""
        query = (
            f"SELECT f.kind, f.code, count(DISTINCT f.run), count(*), max(f.id) {_FROM}{self._where} "
            "GROUP BY f.kind, f.code ORDER BY 3 DESC, f.code, f.kind"
        )
        found = []
        for kind, code, runs, times, last in self._connection.execute(query, self._bound).fetchall():
            newest = self._newest(kind, code)
            ((said,),) = self._connection.execute("SELECT said FROM search_failures WHERE id = ?", (last,)).fetchall()
            tasks, run_ids = tuple(newest), tuple(newest.values())
            found.append(Failure(kind=kind, code=code, runs=runs, times=times, said=said, tasks=tasks, run_ids=run_ids))
        return found

    def _newest(self, kind: str, code: str) -> dict[str, str]:
        """Returns some tasks with this failure, each with the newest run that had it; newest first."""
        query = (
            f"SELECT DISTINCT substr(r.task, 1, 200), r.run_id, f.run {_FROM}f.kind = :kind AND f.code = :code "
            f"AND {self._where} ORDER BY f.run DESC LIMIT :most"
        )
        bound = self._bound | {"kind": kind, "code": code, "most": 10 * _MOST_TASKS}
        newest: dict[str, str] = {}
        for task, run_id, _ in self._connection.execute(query, bound).fetchall():
            newest.setdefault(text_of(task), text_of(run_id))
        return dict(islice(newest.items(), _MOST_TASKS))

    def counts(self, by: By = "kind") -> list[FailureCount]:
        """Returns the groups, that with most requests first."""
        query = (
            f"SELECT {_GROUPS[by]}, count(DISTINCT f.run), count(*), max(r.created_at_utc) {_FROM}{self._where} "
            "GROUP BY 1 ORDER BY 2 DESC, 1"
        )
        return read_models(FailureCount, self._connection, query, self._bound)

    def totals(self) -> tuple[int, int]:
        """Returns how many requests had any of these failures, and how many there are with and without."""
        ((failed,),) = self._connection.execute(f"SELECT count(DISTINCT f.run) {_FROM}{self._where}", self._bound)
        where, bound = self._all
        runs = f"FROM search_runs s CROSS JOIN runs r ON r.run_id = s.run_id WHERE {where}"
        ((every,),) = self._connection.execute(f"SELECT count(*) {runs}", bound)
        return int(failed), int(every)

    def trend(self, *, hours: bool) -> list[FailureBucket]:
        """Returns the requests with failures by kind and day of UTC, or ``hours``; buckets of none are left out."""
        bucket = f"substr(r.created_at_utc, 1, {13 if hours else 10})"
        query = f"SELECT {bucket}, f.kind, count(DISTINCT f.run) {_FROM}{self._where} GROUP BY 1, 2 ORDER BY 1, 2"
        return read_models(FailureBucket, self._connection, query, self._bound)

    def requests(self, before: int | None = None, limit: int = 20) -> list[FailedRequest]:
        """Returns a page of requests, newest first, one row for each kind and code that it had."""
        columns = (
            "max(f.id) AS cursor, r.run_id, r.created_at_utc, r.status, r.task, r.purpose, r.simulated, f.kind, "
            "f.code, f.path, f.agent, f.served, f.said, f.event, count(*)"
        )
        # SQLite takes a group's other columns from the row with the maximum.
        having = "" if before is None else f"HAVING (f.run, cursor) < ({_AT}) "
        query = (
            f"SELECT {columns} {_FROM}{self._where} GROUP BY f.run, f.kind, f.code {having}"
            "ORDER BY f.run DESC, cursor DESC LIMIT :limit"
        )
        return read_models(FailedRequest, self._connection, query, self._bound | {"before": before, "limit": limit})


def hourly(filters: Filters, now: Callable[[], Any] = ev.now_utc) -> bool:
    """Tells whether a trend of these runs is better drawn by hour: it covers three days at most."""
    return filters.since_utc is not None and (filters.until_utc or now()) - filters.since_utc <= timedelta(days=3)
