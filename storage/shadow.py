"""Reads forwarded requests, the Conductor's runs of them, and what was said of both, from rows alone.

No run is folded, so ten thousand requests are read at once. Lists check single rows against their events
(``Store.runs``), and ``conductor log verify`` all of them.
"""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from conductor_core.analysis.shadow import VERDICTS, Answer, Request, Traffic, Verdict
from conductor_core.run.costs import Cost
from conductor_core.run.request import JUDGE_PURPOSE, PASS_PURPOSE, SHADOW_PURPOSE
from storage.database.connections import Database
from storage.encoding import read_count, read_time
from storage.log.reading import BadRecord, opened
from storage.merkle.formats import text_of
from storage.privacy import Vault

_COLUMNS = (
    "run_id", "purpose", "about_run_id", "created_at_utc", "status", "agents", "conductor", "input_tokens",
    "output_tokens", "cost_usd", "known_usd", "duration_ms", "simulated",
)  # fmt: skip
_RUNS = (
    f"SELECT {', '.join(_COLUMNS)} FROM runs WHERE purpose IN (?, ?, ?) AND NOT imported "  # noqa: S608  own names
    "AND created_at_utc >= ? ORDER BY sequence DESC"
)
_OLDER = "SELECT run_id FROM runs WHERE purpose = ? AND run_id IN (SELECT value FROM json_each(?))"
_MARKS = (
    "SELECT run_id, judge, judged_by, mark, compared_with FROM judgements WHERE path IS NULL "
    "AND run_id IN (SELECT value FROM json_each(?)) ORDER BY id"
)
_FAULTS = (
    "SELECT run_id, sequence, CAST(kind AS BLOB), CAST(at_utc AS BLOB), CAST(payload AS BLOB) FROM events "
    "WHERE run_id IN (SELECT value FROM json_each(?)) AND kind IN ('run.failed', 'step.failed')"
)
_STATE = (
    "SELECT (SELECT max(sequence) FROM events), (SELECT max(id) FROM judgements), (SELECT max(id) FROM deletions), "
    "(SELECT count(*) FROM judgements)"
)
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
        with self._database.reading() as connection:
            rows = connection.execute(_RUNS, (PASS_PURPOSE, SHADOW_PURPOSE, JUDGE_PURPOSE, since)).fetchall()
            read = _Rows.of(dict(zip(_COLUMNS, row, strict=True)) for row in rows)
            gone = read.without_forwarded()
            if gone and since:
                asked = json.dumps([about for about in gone if isinstance(about, str)])
                older = {run_id for (run_id,) in connection.execute(_OLDER, (PASS_PURPOSE, asked))}
                gone = [about for about in gone if about not in older]
            read.limited = _limited(connection, read.failed(), self._database.vault)
            marks = _Marks()
            for mark in connection.execute(_MARKS, (json.dumps(list(read.judged())),)):
                marks.add(*mark)
        requests, repeated = read.requests(marks)
        return Traffic(requests, gone=len(gone), repeated=repeated)


Row = Mapping[str, Any]


@dataclass
class _Rows:
    """``shadows``: by the forwarded run, the newest first. ``judgings``: by the shadow. ``limited``: ids of runs."""

    forwarded: list[Row] = field(default_factory=list)
    shadows: defaultdict[str | None, list[Row]] = field(default_factory=lambda: defaultdict(list))
    judgings: defaultdict[str | None, list[Row]] = field(default_factory=lambda: defaultdict(list))
    limited: Collection[str] = ()

    @classmethod
    def of(cls, rows: Iterable[Row]) -> "_Rows":
        found = cls()
        for row in rows:
            if row["purpose"] == PASS_PURPOSE:
                found.forwarded.append(row)
            else:
                under = found.shadows if row["purpose"] == SHADOW_PURPOSE else found.judgings
                under[row["about_run_id"]].append(row)
        return found

    def without_forwarded(self) -> list[str | None]:
        """Returns what shadows are about without being about a forwarded request, once for each shadow."""
        there = {row["run_id"] for row in self.forwarded}
        return [about for about, rows in self.shadows.items() if about not in there for _ in rows]

    def failed(self) -> list[str]:
        rows = [*self.forwarded, *(row for rows in self.shadows.values() for row in rows)]
        return [row["run_id"] for row in rows if row["status"] == "failed"]

    def judged(self) -> Iterable[str]:
        """Returns the runs of which a judgement counts here."""
        for row in self.forwarded:
            if shadows := self.shadows.get(row["run_id"]):
                yield row["run_id"]
                yield shadows[0]["run_id"]

    def requests(self, marks: "_Marks") -> tuple[tuple[Request, ...], int]:
        """Returns the requests, and how many further shadows they have."""
        found, repeated = [], 0
        for row in self.forwarded:
            forwarded = self._answer(row)
            shadows = self.shadows.get(row["run_id"])
            if not shadows:
                found.append(Request(forwarded))
                continue
            repeated += len(shadows) - 1
            shadow = self._answer(shadows[0])
            judging, judgings = Cost(), self.judgings.get(shadow.run_id, ())
            for each in judgings:
                judging += Cost(each["cost_usd"], each["known_usd"] or 0.0)
            compared, disputed = marks.of_pair(forwarded.run_id, shadow.run_id)
            found.append(
                Request(
                    replace(forwarded, right=marks.right(forwarded.run_id)),
                    replace(shadow, right=marks.right(shadow.run_id)),
                    compared,
                    disputed,
                    len(judgings),
                    judging.usd,
                    judging.known_usd,
                )
            )
        return tuple(found), repeated

    def _answer(self, row: Row) -> Answer:
        return Answer(
            run_id=row["run_id"],
            at_utc=read_time(row["created_at_utc"]) or _UNKNOWN_TIME,
            status="limited" if row["run_id"] in self.limited else text_of(row["status"]),
            by=_model(row["agents"]) if row["purpose"] == PASS_PURPOSE else text_of(row["conductor"] or GIVEN),
            tokens=read_count(row["input_tokens"]) + read_count(row["output_tokens"]),
            cost_usd=_number(row["cost_usd"]),
            known_usd=_number(row["known_usd"]) or 0.0,
            duration_ms=_number(row["duration_ms"]),
            simulated=bool(row["simulated"]),
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


def _limited(connection: sqlite3.Connection, failed: list[str], vault: Vault) -> set[str]:
    """Returns those of the failed runs that a provider's rate limit made fail, as far as their events can be read."""
    found = set()
    if failed:
        for run_id, *event in connection.execute(_FAULTS, (json.dumps(failed),)):
            with suppress(BadRecord, ValueError, RecursionError):
                document = json.loads(opened(tuple(event), run_id, vault).payload)
                if isinstance(document, dict) and str(document.get("error_code")).endswith("RateLimited"):
                    found.add(run_id)
    return found


class _Marks:
    """What counts of the judgements on the answers of runs: of each judge the last on the same thing."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str | None, str], tuple[str, str]] = {}
        self._of: defaultdict[tuple[str, str | None], list[tuple[int, str]]] = defaultdict(list)

    def add(self, run_id: str, judge: str, by: str, mark: str | None, compared_with: str | None) -> None:
        self._found.pop((run_id, compared_with, judge), None)  # the last one comes last
        if mark is not None:
            self._found[run_id, compared_with, judge] = (by, mark)
        self._of.clear()

    def _on(self, run_id: str, compared_with: str | None) -> list[tuple[int, str]]:
        """Returns rank and mark of each judge, in their order."""
        if not self._of:
            for (run, other, _), (by, mark) in self._found.items():
                self._of[run, other].append((_RANKS.get(by, 0), mark))
        return self._of.get((run_id, compared_with), [])

    def right(self, run_id: str) -> bool | None:
        marks = [(rank, mark) for rank, mark in self._on(run_id, None) if mark in ("right", "wrong")]
        return _believed(marks) == "right" if marks else None

    def of_pair(self, forwarded: str, shadow: str) -> tuple[Verdict | None, bool]:
        """Returns what was said of the shadow in comparison, and whether two judges contradict each other."""
        marks: list[tuple[int, Verdict]] = []
        for of, other, way in ((forwarded, shadow, _INVERTED), (shadow, forwarded, _AS_SAID)):
            marks += [(rank, way[mark]) for rank, mark in self._on(of, other) if mark in way]
        said = [{mark for _, mark in self._on(run_id, None)} for run_id in (forwarded, shadow)]
        rights = (self.right(forwarded), self.right(shadow))
        verdicts = {verdict for _, verdict in marks}
        if None not in rights and rights[0] != rights[1]:
            verdicts.add("better" if rights[1] else "worse")
        disputed = {"better", "worse"} <= verdicts or any({"right", "wrong"} <= each for each in said)
        return (_believed(marks) if marks else None), disputed


def _believed(marks: list[tuple[int, Any]]) -> Any:
    """Returns the last mark of the highest rank."""
    highest = max(rank for rank, _ in marks)
    return [mark for rank, mark in marks if rank == highest][-1]
