"""Reads forwarded requests, the Conductor's runs of them, and what was said of both, from rows alone.

No run is folded, so ten thousand requests are read at once. Lists check single rows against their events
(``Store.runs``), and ``conductor log verify`` all of them.
"""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from conductor_core.analysis.shadow import CALLED, VERDICTS, Answer, Request, Traffic, Verdict
from conductor_core.run.request import JUDGE_PURPOSE, PASS_PURPOSE, SHADOW_PURPOSE
from storage.database.connections import Database
from storage.encoding import read_count, read_time
from storage.log.reading import BadRecord, opened
from storage.merkle.formats import text_of
from storage.privacy import Vault

# The first condition is that of the index ix_runs_shadowed, to the sign: SQLite then reads nothing else.
_OF = "FROM runs WHERE purpose IN ('pass-through', 'shadow', 'judge') AND purpose = ? AND NOT imported"
_READ = "(SELECT source_run_id FROM judgements WHERE source_run_id IS NOT NULL)"
_UNREAD = f"total(duration_ms IS NOT NULL AND run_id NOT IN {_READ})"
_PAID = "total(cost_usd), count(cost_usd), total(known_usd)"
_JUDGINGS = f"SELECT about_run_id, count(*), {_PAID}, {_UNREAD} {_OF} GROUP BY about_run_id"
_OLDER = "SELECT run_id FROM runs WHERE purpose = ? AND run_id IN (SELECT value FROM json_each(?))"
# Of each judge the last on the same thing: SQLite takes a group's other columns from the row with the maximum. All of
# them: to look up each run's own takes longer.
_MARKS = (
    "SELECT run_id, compared_with, judged_by, mark, max(id) FROM judgements WHERE path IS NULL "
    "GROUP BY run_id, compared_with, judge ORDER BY max(id)"
)
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
        return tuple(int(each or 0) for each in self._database.row(_STATE))

    def read(self, since_utc: datetime | None = None) -> Traffic:
        """Returns all requests that were forwarded, or those since then, the newest first. Leaves out imported runs."""
        since = "" if since_utc is None else since_utc.astimezone(UTC).isoformat()
        with self._database.reading() as connection:
            forwarded = {row.run_id: row for row in _runs(connection, PASS_PURPOSE, since)}
            every = _runs(connection, SHADOW_PURPOSE, since)
            shadows: dict[str, _Row] = {}  # by the run that each is about: the newest one
            for row in every:
                shadows.setdefault(text_of(row.about_run_id or ""), row)
            judgings: dict[str, tuple[int, float | None, float, int]] = {
                shadow: (number, usd if priced == number else None, known_usd, int(unread))
                for shadow, number, usd, priced, known_usd, unread in connection.execute(_JUDGINGS, (JUDGE_PURPOSE,))
            }
            gone = shadows.keys() - forwarded.keys()
            if gone and since:
                gone -= {run_id for (run_id,) in connection.execute(_OLDER, (PASS_PURPOSE, json.dumps(list(gone))))}
            runs = (*forwarded.values(), *shadows.values())
            told = _limited(connection, [row.run_id for row in runs if row.status == "failed"], self._database.vault)
            told |= _called(connection, [row.run_id for row in runs if row.status == "cancelled"])
            marks: _Marks = defaultdict(list)
            for run_id, compared_with, by, mark, _ in connection.execute(_MARKS):
                if mark is not None:
                    marks[run_id, compared_with].append((_RANKS.get(by, 0), mark))
        requests = []
        for run_id, row in forwarded.items():
            answer, about = _answer(row, _model(row.agents), told, marks), shadows.get(run_id)
            if about is None:
                requests.append(Request(answer))
                continue
            shadow = _answer(about, text_of(about.conductor or GIVEN), told, marks)
            judged = judgings.get(shadow.run_id, (0, 0.0, 0.0, 0))
            compared, disputed = _compared(marks, answer, shadow)
            requests.append(Request(answer, shadow, compared, disputed, *judged))
        return Traffic(tuple(requests), gone=len(gone), repeated=len(every) - len(shadows))


class _Row(NamedTuple):
    """Columns of a run. Somebody may have damaged a value."""

    run_id: str
    about_run_id: Any
    created_at_utc: Any
    status: Any
    agents: Any
    conductor: Any
    input_tokens: Any
    output_tokens: Any
    cost_usd: Any
    known_usd: Any
    duration_ms: Any
    simulated: Any


def _runs(connection: sqlite3.Connection, purpose: str, since: str) -> list[_Row]:
    return [_Row._make(row) for row in connection.execute(_RUNS, (purpose, since))]


_RUNS = f"SELECT {', '.join(_Row._fields)} {_OF} AND created_at_utc >= ? ORDER BY sequence DESC"


def _answer(row: _Row, by: str, told: Mapping[str, str], marks: "_Marks") -> Answer:
    """``told``: by run, what its status is called here."""
    own = marks.get((row.run_id, None))
    return Answer(
        row.run_id,
        read_time(row.created_at_utc) or _UNKNOWN_TIME,
        told.get(row.run_id) or text_of(row.status),
        by,
        read_count(row.input_tokens) + read_count(row.output_tokens),
        _number(row.cost_usd),
        _number(row.known_usd) or 0.0,
        _number(row.duration_ms),
        bool(row.simulated),
        _believed(own) == "right" if own else None,
    )


def _number(stored: object) -> float | None:
    return float(stored) if isinstance(stored, int | float) else None


@lru_cache(maxsize=256)
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


_Marks = dict[tuple[str, str | None], list[tuple[int, str]]]
"""By the run and what it is compared with: ranks and marks of all who judged so, each the last one, in their order."""


def _compared(marks: _Marks, forwarded: Answer, shadow: Answer) -> tuple[Verdict | None, bool]:
    """Returns what was said of the shadow in comparison, and whether two judges contradict each other."""
    first, second = forwarded.run_id, shadow.run_id
    said: list[tuple[int, Verdict]] = []
    for of, other, way in ((first, second, _INVERTED), (second, first, _AS_SAID)):
        said += [(rank, way[mark]) for rank, mark in marks.get((of, other), ()) if mark in way]
    disputed = any(len({mark for _, mark in marks.get((run_id, None), ())}) > 1 for run_id in (first, second))
    if said and not disputed:
        verdicts = {verdict for _, verdict in said}
        if forwarded.right is not None and shadow.right is not None and forwarded.right != shadow.right:
            verdicts.add("better" if shadow.right else "worse")
        disputed = {"better", "worse"} <= verdicts
    return (_believed(said) if said else None), disputed


_Mark = TypeVar("_Mark", bound=str)


def _believed(marks: Sequence[tuple[int, _Mark]]) -> _Mark:
    """Returns the last mark of the highest rank. ``marks``: at least one."""
    highest, believed = marks[0]
    for rank, mark in marks[1:]:
        if rank >= highest:
            highest, believed = rank, mark
    return believed
