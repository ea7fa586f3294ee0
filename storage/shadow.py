"""Reads forwarded requests, the Conductor's runs of them, and what was said of both, from rows alone.

No run is folded, so ten thousand requests are read at once. Lists check single rows against their events
(``Store.runs``), and ``conductor log verify`` all of them.
"""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

from conductor_core.analysis.shadow import CALLED, VERDICTS, Answer, Request, Traffic, Verdict
from conductor_core.run.request import JUDGE_PURPOSE, PASS_PURPOSE, SHADOW_PURPOSE
from storage.database.connections import Database
from storage.encoding import read_count, read_time
from storage.log.reading import BadRecord, opened
from storage.merkle.formats import text_of
from storage.privacy import Vault

_VALUES = (
    "created_at_utc", "status", "agents", "conductor", "input_tokens", "output_tokens", "cost_usd", "known_usd",
    "duration_ms", "simulated",
)  # fmt: skip
# The first condition is that of the index ix_runs_shadowed, to the sign: SQLite then reads nothing else.
_OF = "FROM runs WHERE purpose IN ('pass-through', 'shadow', 'judge') AND purpose = ? AND NOT imported"
_RUNS = f"SELECT run_id, about_run_id, {', '.join(_VALUES)} {_OF} AND created_at_utc >= ? ORDER BY sequence DESC"
_READ = "(SELECT source_run_id FROM judgements WHERE source_run_id IS NOT NULL)"
_UNREAD = f"total(duration_ms IS NOT NULL AND run_id NOT IN {_READ})"
_PAID = "total(cost_usd), count(cost_usd), total(known_usd)"
_JUDGINGS = f"SELECT about_run_id, count(*), {_PAID}, {_UNREAD} {_OF} GROUP BY about_run_id"
_OLDER = "SELECT run_id FROM runs WHERE purpose = ? AND run_id IN (SELECT value FROM json_each(?))"
# All of them: to look up each run's own takes longer.
_MARKS = "SELECT run_id, compared_with, judge, judged_by, mark FROM judgements WHERE path IS NULL ORDER BY id"
_FAULTS = (
    "SELECT run_id, sequence, CAST(kind AS BLOB), CAST(at_utc AS BLOB), CAST(payload AS BLOB) FROM events "
    "WHERE run_id IN (SELECT value FROM json_each(?)) AND kind IN ('run.failed', 'step.failed')"
)
_STATE = (
    "SELECT (SELECT max(sequence) FROM events), (SELECT max(id) FROM judgements), (SELECT max(id) FROM deletions), "
    "(SELECT count(*) FROM judgements)"
)
_LAST_KINDS = "SELECT kind FROM events WHERE run_id = ? ORDER BY sequence DESC LIMIT 3"
_RANKS = {"judge": 0, "grader": 1, "person": 2}
"""Who is believed where judges differ: the higher one, and of equals the last."""
_AS_SAID: Mapping[str, Verdict] = {verdict: verdict for verdict in VERDICTS}
_INVERTED: Mapping[str, Verdict] = {"better": "worse", "same": "same", "worse": "better"}
_UNKNOWN_TIME = datetime.min.replace(tzinfo=UTC)
GIVEN = "a given plan"
"""Who answered a shadow that no Conductor planned."""


class ShadowTraffic:
    """The forwarded requests of one database. Any thread may use it. Raises StoreError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def state(self) -> tuple[int, ...]:
        """Returns what changes whenever anything does that ``read`` returns."""
        with self._database.reading() as connection:
            (row,) = connection.execute(_STATE)
        return tuple(int(each or 0) for each in row)

    def read(self, since_utc: datetime | None = None) -> Traffic:
        """Returns all requests that were forwarded, or those since then, the newest first. Leaves out imported runs."""
        since = "" if since_utc is None else since_utc.astimezone(UTC).isoformat()
        rows = _Rows()
        with self._database.reading() as connection:
            for run_id, _, *values in connection.execute(_RUNS, (PASS_PURPOSE, since)):
                rows.forwarded[run_id] = (run_id, *values)
            for run_id, about, *values in connection.execute(_RUNS, (SHADOW_PURPOSE, since)):
                rows.add_shadow(text_of(about or ""), (run_id, *values))
            for shadow, number, usd, priced, known_usd, unread in connection.execute(_JUDGINGS, (JUDGE_PURPOSE,)):
                rows.judgings[shadow] = (number, usd if priced == number else None, known_usd, int(unread))
            gone = rows.without_forwarded()
            if gone and since:
                older = {run_id for (run_id,) in connection.execute(_OLDER, (PASS_PURPOSE, json.dumps(gone)))}
                gone = [about for about in gone if about not in older]
            told = _limited(connection, rows.of_status("failed"), self._database.vault)
            told |= _called(connection, rows.of_status("cancelled"))
            marks = _Marks()
            for mark in connection.execute(_MARKS):
                marks.add(*mark)
        return Traffic(rows.requests(marks, told), gone=len(gone), repeated=rows.repeated)


class _Rows:
    """Rows of runs, given in the order of ``_RUNS``: the newest first.

    Attributes:
        shadows: the newest one of each forwarded run. repeated: how many others there are.
        judgings: by shadow, how often a judge was asked about it, what that cost (None: unknown), of what has a
            price, and how many of these questions brought no verdict.
    """

    def __init__(self) -> None:
        self.forwarded: dict[str, tuple[Any, ...]] = {}
        self.shadows: dict[str, tuple[Any, ...]] = {}
        self.judgings: dict[str, tuple[int, float | None, float, int]] = {}
        self.repeated = 0
        self._models: dict[object, str] = {}

    def add_shadow(self, about: str, row: tuple[Any, ...]) -> None:
        if about in self.shadows:
            self.repeated += 1
        else:
            self.shadows[about] = row

    def without_forwarded(self) -> list[str]:
        """Returns what shadows are about without being about a forwarded request."""
        return [about for about in self.shadows if about not in self.forwarded]

    def of_status(self, status: str) -> list[str]:
        return [row[0] for rows in (self.forwarded, self.shadows) for row in rows.values() if row[2] == status]

    def requests(self, marks: "_Marks", told: Mapping[str, str]) -> tuple[Request, ...]:
        """``told``: by run, what its status is called here."""
        found = []
        for run_id, row in self.forwarded.items():
            forwarded = self._answer(row, told, marks.right(run_id), planned=False)
            if (row := self.shadows.get(run_id, ())) == ():
                found.append(Request(forwarded))
                continue
            shadow = self._answer(row, told, marks.right(row[0]), planned=True)
            judgings = self.judgings.get(shadow.run_id, (0, 0.0, 0.0, 0))
            compared, disputed = marks.of_pair(forwarded, shadow)
            found.append(Request(forwarded, shadow, compared, disputed, *judgings))
        return tuple(found)

    def _answer(self, row: tuple[Any, ...], told: Mapping[str, str], right: bool | None, *, planned: bool) -> Answer:
        run_id, at_utc, status, agents, conductor, read, wrote, usd, known_usd, duration_ms, simulated = row
        if planned:
            by = text_of(conductor or GIVEN)
        elif (by := self._models.get(agents, "")) == "":
            by = self._models[agents] = _model(agents)
        return Answer(
            run_id,
            read_time(at_utc) or _UNKNOWN_TIME,
            told.get(run_id) or text_of(status),
            by,
            read_count(read) + read_count(wrote),
            _number(usd),
            _number(known_usd) or 0.0,
            _number(duration_ms),
            bool(simulated),
            right,
        )


def _number(stored: object) -> float | None:
    return float(stored) if isinstance(stored, int | float) else None


def _model(agents: object) -> str:
    """Returns the worker that a request was forwarded to, of the names as JSON."""
    with suppress(ValueError, TypeError, RecursionError):
        names = json.loads(agents)  # type: ignore[arg-type]  # a damaged row may have anything
        if isinstance(names, list) and names:
            return text_of(names[0])
    return "unknown"


def _limited(connection: sqlite3.Connection, failed: list[str], vault: Vault) -> dict[str, str]:
    """Returns those of the failed runs that a provider's rate limit made fail, as far as their events can be read."""
    found = {}
    if failed:
        for run_id, *event in connection.execute(_FAULTS, (json.dumps(failed),)):
            with suppress(BadRecord, ValueError, RecursionError):
                document = json.loads(opened(tuple(event), run_id, vault).payload)
                if isinstance(document, dict) and str(document.get("error_code")).endswith("RateLimited"):
                    found[run_id] = "limited"
    return found


def _called(connection: sqlite3.Connection, cancelled: list[str]) -> dict[str, str]:
    """Returns those of the cancelled runs that ended as they waited for a tool of the client."""
    found = {}
    for run_id in cancelled:
        kinds = [kind for (kind,) in connection.execute(_LAST_KINDS, (run_id,))]
        if kinds == ["run.cancelled", "run.waiting", "tool.called"]:
            found[run_id] = CALLED
    return found


class _Marks:
    """What counts of the judgements on the answers of runs: of each judge the last on the same thing."""

    def __init__(self) -> None:
        # By the run and what it is compared with: judge, rank and mark.
        self._on: dict[tuple[str, str | None], list[tuple[str, int, str]]] = {}

    def add(self, run_id: str, compared_with: str | None, judge: str, by: str, mark: str | None) -> None:
        own = [] if mark is None else [(judge, _RANKS.get(by, 0), mark)]
        if (before := self._on.get((run_id, compared_with))) is not None:
            own = [*(each for each in before if each[0] != judge), *own]
        self._on[run_id, compared_with] = own

    def right(self, run_id: str) -> bool | None:
        marks = self._on.get((run_id, None))
        return _believed([(rank, mark) for _, rank, mark in marks]) == "right" if marks else None

    def of_pair(self, forwarded: Answer, shadow: Answer) -> tuple[Verdict | None, bool]:
        """Returns what was said of the shadow in comparison, and whether two judges contradict each other."""
        first, second = forwarded.run_id, shadow.run_id
        marks: list[tuple[int, Verdict]] = []
        for of, other, way in ((first, second, _INVERTED), (second, first, _AS_SAID)):
            if said := self._on.get((of, other)):
                marks += [(rank, way[mark]) for _, rank, mark in said if mark in way]
        disputed = self._mixed(first) or self._mixed(second)
        if marks and not disputed:
            verdicts = {verdict for _, verdict in marks}
            if forwarded.right is not None and shadow.right is not None and forwarded.right != shadow.right:
                verdicts.add("better" if shadow.right else "worse")
            disputed = {"better", "worse"} <= verdicts
        return (_believed(marks) if marks else None), disputed

    def _mixed(self, run_id: str) -> bool:
        marks = self._on.get((run_id, None), ())
        return len(marks) > 1 and len({mark for _, _, mark in marks}) > 1


_Mark = TypeVar("_Mark", bound=str)


def _believed(marks: Sequence[tuple[int, _Mark]]) -> _Mark:
    """Returns the last mark of the highest rank. ``marks``: at least one."""
    highest, believed = marks[0]
    for rank, mark in marks[1:]:
        if rank >= highest:
            highest, believed = rank, mark
    return believed
