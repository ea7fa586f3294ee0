"""Reads, lists and counts rows of runs. Events are only added, and in order, so no two statements need one transaction.

A list checks each row of ``runs`` against the run's events, from which it was folded.
"""

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, get_args

from conductor_core.chat.messages import Usage
from conductor_core.errors import StoreDamaged
from conductor_core.run import trace as folding
from conductor_core.run.costs import Cost, interruption
from conductor_core.run.judgement import TAKEN_BACK, Judged
from conductor_core.run.request import REPLAY_PURPOSE
from conductor_core.run.trace import (
    ENDED_STATUSES,
    UNREADABLE_STATUSES,
    RunStatus,
    RunTrace,
    RunUnreadable,
    unreadable_status,
)
from conductor_core.workflow.model import Frozen
from storage import errors
from storage.encoding import count_of, read_caller, read_count, read_time
from storage.log.event_log import changing_columns, fixed_columns
from storage.log.reading import read_deletion, read_run
from storage.merkle.formats import text_of
from storage.privacy import Vault
from storage.records import ERASED, SEALED_COLUMNS, BatchSummary, RunSummary

_FROM_EVENTS = ("damage", "named", "conclusion", "answer_key")
_SUMMARY = [name for name in RunSummary.model_fields if name not in ("usage", "caller", *_FROM_EVENTS)]
_SUMMARY += ["input_tokens", "output_tokens", "actor", "door"]


def _opened(column: str) -> str:
    return f"CASE WHEN typeof({column}) = 'blob' THEN plain(run_id, '{column}', {column}) ELSE {column} END"


_COLUMNS = ", ".join(f"{_opened(name)} AS {name}" if name in SEALED_COLUMNS else name for name in _SUMMARY)
_RUNS = f"SELECT {_COLUMNS} FROM runs WHERE "  # noqa: S608  own names
_TREE = (
    "WITH RECURSIVE above(id) AS (VALUES (:tree) UNION SELECT parent_run_id FROM runs JOIN above ON run_id = id "
    "WHERE parent_run_id IS NOT NULL), whole(id) AS (SELECT id FROM above UNION SELECT run_id FROM runs JOIN whole "
    "ON parent_run_id = id) SELECT id FROM whole"
)
_IN_TASK = f"instr(lower({_opened('task')}), lower(:text))"
FEWEST_OF_ID = 6
"""Characters of a run's id that a search finds it by: pages show its last six."""
_IN_ID = f"(length(:text) >= {FEWEST_OF_ID} AND instr(run_id, lower(:text)))"
_MOST_TEXTS = 20_000
"""The newest texts of the index in which a search looks for answers."""
# An answer is the output of the last step of a run's own plan. The index has the texts of runs at rest.
_IN_ANSWER = (
    "run_id IN (SELECT s.run_id FROM "  # noqa: S608  own names
    f"(SELECT rowid FROM {{table}} WHERE {{table}} MATCH :match ORDER BY rowid DESC LIMIT {_MOST_TEXTS}) found "
    "CROSS JOIN search_places p ON p.text_id = found.rowid CROSS JOIN search_runs s ON s.run = p.run "
    "WHERE p.field = 'output' AND CAST(p.path AS INTEGER) = (SELECT max(CAST(o.path AS INTEGER)) FROM search_places o "
    "WHERE o.run = p.run AND o.field = 'output'))"
)
_FILTERS = {
    "text": f"({_IN_TASK} OR {_IN_ID})",
    "parent": "parent_run_id = :parent",
    "tree": f"run_id IN ({_TREE})",
    "without": "purpose NOT IN (SELECT value FROM json_each(:without))",
    "purpose": "purpose = :purpose",
    "batch": "batch_id = :batch",
    "alone": "batch_id IS NULL",
    "recorded": "recorded",
    "conversation": (
        "run_id IN (SELECT :conversation UNION ALL SELECT run_id FROM runs WHERE conversation_id = :conversation)"
    ),
    "among": "run_id IN (SELECT value FROM json_each(:among))",
}
LATEST_JUDGEMENT = (
    "NOT EXISTS (SELECT 1 FROM judgements later WHERE later.run_id = j.run_id AND later.path IS j.path "
    "AND later.compared_with IS j.compared_with AND later.judge = j.judge AND later.id > j.id)"
)
"""Of the judgement ``j``: its judge added no later one on the same thing."""
_OF_ANSWER = f"SELECT j.run_id FROM judgements j WHERE {LATEST_JUDGEMENT} AND j.path IS NULL AND "  # noqa: S608  own text
JUDGED: Mapping[Judged, str] = {
    "right": f"run_id IN ({_OF_ANSWER}j.mark = 'right')",
    "wrong": f"run_id IN ({_OF_ANSWER}j.mark = 'wrong')",
    "unjudged": f"run_id NOT IN ({_OF_ANSWER}(j.mark IS NOT NULL OR j.score IS NOT NULL))",
    "noted": (
        f"run_id IN (SELECT j.run_id FROM judgements j WHERE {LATEST_JUDGEMENT} AND j.note NOT IN ('', '{TAKEN_BACK}'))"  # noqa: S608  own text
    ),
}
"""Which runs a filter by judgements finds. ``noted``: also if the note is on a step."""
_PAGE = {"before": "sequence < :before", "status": "status = :status"}
_WAITING = {"status": "asked_for IS NOT NULL"}
APPROVALS = "SELECT count(*) FROM runs WHERE asked_for IS NOT NULL AND substr(asked_for, 1, ?) <> ?"
ROOT = "SELECT coalesce(conversation_id, run_id) FROM runs WHERE run_id = ?"
TURNS = (
    "WITH begun(id) AS (SELECT DISTINCT coalesce(conversation_id, run_id) FROM runs "
    "WHERE run_id IN (SELECT value FROM json_each(?))), turns(begun, run_id, sequence) AS ("
    "SELECT id, run_id, sequence FROM begun CROSS JOIN runs ON runs.conversation_id = id UNION ALL "
    "SELECT id, run_id, sequence FROM begun CROSS JOIN runs ON runs.run_id = id) "
    "SELECT run_id, row_number() OVER (PARTITION BY begun ORDER BY sequence), count(*) OVER (PARTITION BY begun) "
    "FROM turns"
)
SPENT = (
    "SELECT total(known_usd), sum(input_tokens + output_tokens) FROM runs "
    "WHERE purpose IN (SELECT value FROM json_each(?)) AND created_at_utc >= ?"
)
_ENDED = sorted({*ENDED_STATUSES, ERASED})
_IN_GAPS = "status < ? OR " + "status > ? AND status < ? OR " * (len(_ENDED) - 1) + "status > ?"
ENDED_BOUNDS = (_ENDED[0], *chain.from_iterable(pairwise(_ENDED)), _ENDED[-1])
# It looks in the gaps between the statuses of ended runs, so that SQLite uses the index of statuses, and orders by an
# expression, so that it does not use the index of sequences, with which it would read all runs.
UNFINISHED = f"SELECT run_id, owner_id FROM runs WHERE {_IN_GAPS} ORDER BY +sequence"  # noqa: S608  no value in it
"""Id and owner of each run that has not ended, or is of an unknown status, oldest first. Bind ``ENDED_BOUNDS``."""
_BEGINS = "run_id BETWEEN :prefix AND :prefix || char(1114111)"


@dataclass(frozen=True)
class Search:
    """Which runs to find: the arguments of ``Store.runs``.

    Attributes:
        without: purposes, and among: ids, each as a JSON list. match: ``text`` for the full-text table ``table``; None:
            answers are not searched.
    """

    limit: int
    before: int | None = None
    text: str | None = None
    status: str | None = None
    parent: str | None = None
    batch: str | None = None
    alone: bool = False
    tree: str | None = None
    recorded: bool = False
    without: str | None = None
    among: str | None = None
    answers: bool = False
    conversation: str | None = None
    judged: Judged | None = None
    purpose: str | None = None
    match: str | None = None
    table: str = ""

    def finds(self, run: RunSummary) -> bool:
        """Whether the search finds ``run``, apart from the limit. Of a tree it finds the run and its re-runs alone.

        By judgements it finds none.
        """
        names = self.text is not None and len(self.text) >= FEWEST_OF_ID and self.text.lower() in run.run_id
        return (
            (self.before is None or run.sequence < self.before)
            and (not self.text or self.text.lower() in run.task.lower() or names)
            and (self.status in (None, run.status) or (self.status == "waiting" and run.asked_for is not None))
            and self.parent in (None, run.parent_run_id)
            and self.tree in (None, run.parent_run_id, run.run_id)
            and self.batch in (None, run.batch_id)
            and self.conversation in (None, run.conversation_id, run.run_id)
            and self.purpose in (None, run.purpose)
            and (self.without is None or run.purpose not in json.loads(self.without))
            and not (self.alone and run.batch_id is not None)
            and not (self.recorded and not run.recorded)
            and (self.among is None or run.run_id in json.loads(self.among))
            and self.judged is None
        )


def read_rows(connection: sqlite3.Connection, search: Search) -> list[dict[str, Any]]:
    page = _PAGE | (_WAITING if search.status == "waiting" else {})
    query = f"{_RUNS}{condition(search, _FILTERS | page)} ORDER BY sequence DESC LIMIT :limit"
    return [dict(zip(_SUMMARY, row, strict=True)) for row in connection.execute(query, vars(search))]


def read_row(connection: sqlite3.Connection, run_id: str) -> dict[str, Any] | None:
    row = connection.execute(f"{_RUNS}run_id = ?", (run_id,)).fetchone()
    return None if row is None else dict(zip(_SUMMARY, row, strict=True))


def condition(search: Search, filters: Mapping[str, str] = _FILTERS) -> str:
    """Returns the SQL condition of ``search`` without its page and status. Bind ``vars(search)``."""
    asked = [name for name, value in vars(search).items() if value is not None and value is not False]
    if search.text is not None and search.match is not None:
        filters = {**filters, "text": f"({_IN_TASK} OR {_IN_ID} OR {_IN_ANSWER.format(table=search.table)})"}
    if search.judged is not None:
        filters = {**filters, "judged": JUDGED[search.judged]}
    return " AND ".join(filters[name] for name in asked if name in filters) or "true"


def read_run_ids(connection: sqlite3.Connection, prefix: str, limit: int) -> list[str]:
    """Returns the ids that begin with ``prefix``, newest first."""
    of_runs = f"SELECT run_id FROM runs WHERE {_BEGINS} ORDER BY +sequence DESC LIMIT :most"  # noqa: S608  no value in it
    # A run whose own row is damaged still has its events.
    of_events = f"SELECT DISTINCT run_id FROM events WHERE {_BEGINS} LIMIT :most"  # noqa: S608  no value in it
    for query in (of_runs, of_events):
        if found := [run_id for (run_id,) in connection.execute(query, {"prefix": prefix, "most": limit})]:
            return found
    return []


def summary(row: Mapping[str, Any]) -> RunSummary:
    """Turns a row into a summary. Raises: ValueError or TypeError for a damaged row."""
    values = {name: row[name] for name in _SUMMARY}
    values["task"] = values["task"] or ""  # NULL: it is encrypted, and its key is away
    values["usage"] = Usage(input_tokens=values.pop("input_tokens"), output_tokens=values.pop("output_tokens"))
    values["caller"] = read_caller(values.pop("actor"), values.pop("door"))
    values["created_at_utc"] = datetime.fromisoformat(values["created_at_utc"])
    values["agents"] = tuple(json.loads(values["agents"]))
    return RunSummary(**values)


# Lists.

_PAGE_ROWS = 200
_MOST_TOLD = 2000
"""Runs of which the name and the conclusion stay in memory, and only there."""

Row = Mapping[str, Any]


class Listing:
    """Lists the runs of one database. It checks a run that has ended and is whole only once, until ``doubt``.

    Attributes:
        fault: what was wrong with the file when runs were last listed. All that could be read was listed.
    """

    def __init__(self, path: Path, stopped: Set[str], vault: Vault) -> None:
        """``stopped``: runs to show as interrupted though no event says so."""
        self._path, self._vault = path, vault
        self._stopped = stopped
        self._whole: set[str] = set()
        self._told: dict[str, dict[str, Any]] = {}
        self.fault: StoreDamaged | None = None

    def doubt(self, run_id: str) -> None:
        self._whole.discard(run_id)
        self._told.pop(run_id, None)

    def read(self, connection: sqlite3.Connection, search: Search) -> list[RunSummary]:
        """Returns the runs that ``search`` finds, newest first. Raises: StoreError."""
        self.fault = None
        try:
            with errors.translated(self._path):
                return self._read(connection, search)
        except StoreDamaged as error:
            self.fault = error
        return [run for run in self._salvaged(connection, search) if search.finds(run)][: search.limit]

    def _read(self, connection: sqlite3.Connection, search: Search) -> list[RunSummary]:
        if search.status not in UNREADABLE_STATUSES:
            return [self._checked(connection, row, search) for row in read_rows(connection, search)]
        found: list[RunSummary] = []
        page = replace(search, limit=_PAGE_ROWS, status=None)
        more = True
        while more and len(found) < search.limit:
            rows = read_rows(connection, page)
            found += [run for row in rows if (run := self._checked(connection, row, search)).status == search.status]
            more = len(rows) == _PAGE_ROWS
            if more:
                page = replace(page, before=rows[-1]["sequence"])
        return found[: search.limit]

    def _checked(self, connection: sqlite3.Connection, row: Row, search: Search) -> RunSummary:
        run_id = row["run_id"]
        filed: RunSummary | None = None
        with suppress(KeyError, ValueError, TypeError):  # the row is damaged; the run itself may be whole
            filed = summary(row)
        if filed is not None and filed.status == ERASED:
            self.doubt(run_id)
            erasure = read_deletion(connection, run_id)
            return filed.model_copy(update={"damage": None if erasure is None else erasure.in_words})
        if filed is not None and row["task"] is None:  # its key is away
            self.doubt(run_id)
        if filed is not None and run_id in self._whole and not search.answers:
            return filed
        if filed is not None and (told := self._told.get(run_id)) is not None:
            return filed.model_copy(update=told)
        try:
            with errors.translated(self._path):
                trace = read_run(connection, run_id, self._vault).trace
        except (RunUnreadable, StoreDamaged) as error:
            return _unreadable(row, filed, error)
        if run_id in self._stopped:
            interrupt(trace)
        found = _summary_of(trace, row)
        whole = trace.ended and filed == found
        if whole:
            self._whole.add(run_id)
        if search.answers:
            # When used: it takes a while to load, and few lists say what answers come to.
            from conductor_core.analysis.conclusion import concluded, key_of, name_of

            said = concluded(trace) if trace.ended else None
            key = "" if said is None else "\n".join(key_of(trace.answer or "", said))
            key = key and sha256(key.encode()).hexdigest()
            told = {"named": name_of(trace), "conclusion": said, "answer_key": key}
            found = found.model_copy(update=told)
            if whole:
                self._told[run_id] = told
                for oldest in list(self._told)[: len(self._told) - _MOST_TOLD]:
                    self._told.pop(oldest, None)
        return found

    def _salvaged(self, connection: sqlite3.Connection, search: Search) -> list[RunSummary]:
        """Returns all runs of a file in which some rows cannot be read, newest first."""
        ids: dict[str, None] = {}
        # Each query reads only an index. If one index is broken, the other may be whole.
        for query in ("SELECT run_id FROM runs", "SELECT DISTINCT run_id FROM events"):
            with suppress(sqlite3.Error):
                ids.update(dict.fromkeys(run_id for (run_id,) in connection.execute(query)))
        found = [self._checked(connection, _row(connection, run_id), search) for run_id in ids]
        return sorted(found, key=lambda run: run.sequence, reverse=True)


def interrupt(trace: RunTrace) -> None:
    """Ends the trace of a dead process's run as ``run.interrupted`` will once that can be written."""
    if not trace.ended:
        folding.apply(trace, interruption(trace))


def _row(connection: sqlite3.Connection, run_id: str) -> Row:
    """Returns the run's row. If it cannot be read, takes the run's place from the index of events."""
    with suppress(sqlite3.Error):
        row = read_row(connection, run_id)
        if row is not None:
            return row
    sequence: int | None = None
    with suppress(sqlite3.Error):
        ((sequence,),) = connection.execute("SELECT min(sequence) FROM events WHERE run_id = ?", (run_id,))
    return {"run_id": run_id, "sequence": sequence}


def _summary_of(trace: RunTrace, row: Row) -> RunSummary:
    return summary(fixed_columns(trace, read_count(row["sequence"])) | changing_columns(trace))


def _unreadable(row: Row, filed: RunSummary | None, error: RunUnreadable | StoreDamaged) -> RunSummary:
    """Returns what is known of a run that cannot be read to its end, marked as such."""
    if filed is None and isinstance(error, RunUnreadable) and error.trace is not None:
        filed = _summary_of(error.trace, row)
    if filed is None:
        filed = RunSummary(run_id=row["run_id"], sequence=read_count(row["sequence"]))
    return filed.model_copy(update={"status": unreadable_status(error), "damage": str(error)})


# Sums of a search: runs of each status, their tokens and their cost.

MOST_COUNTED = 100_000
"""The most runs that one search reads, newest first. More would take too long."""


class Totals(Frozen):
    """
    Attributes:
        statuses: how many runs there are of each. A run counts as waiting if anything of it waits for an approval, or
            it waits for tools. The search's status narrows all fields but this.
        replays: of blames, which are no part of ``statuses``, but of tokens and costs. Of one batch all are runs.
        more: whether there are more runs than were counted.
        cost_usd: None if a price is unknown, which holds for ``unpriced`` runs. known_usd: of what has a price.
        imported: how many of the runs are imported: they are in no figure of tokens or cost.
    """

    statuses: dict[str, int]
    replays: int = 0
    tokens: int
    cost_usd: float | None
    known_usd: float
    unpriced: int
    more: bool
    imported: int = 0

    @property
    def runs(self) -> int:
        return sum(self.statuses.values())

    @property
    def cost(self) -> Cost:
        return Cost(self.cost_usd, self.known_usd)


def read_totals(connection: sqlite3.Connection, search: Search) -> Totals:
    status = "CASE WHEN asked_for IS NULL THEN status ELSE 'waiting' END AS status"
    replay = f"purpose = '{REPLAY_PURPOSE}' AND :batch IS NULL AS replay"
    columns = f"{status}, {replay}, cost_usd, known_usd, input_tokens, output_tokens, imported"
    some = f"SELECT {columns} FROM runs WHERE {condition(search)} ORDER BY sequence DESC LIMIT {MOST_COUNTED + 1}"  # noqa: S608
    tokens = count_of("CASE WHEN imported THEN 0 ELSE input_tokens + output_tokens END")
    own = "sum(CASE WHEN imported THEN 0 ELSE known_usd END), sum(cost_usd IS NULL AND NOT imported), sum(imported)"
    sums = f"status, replay, count(*), {tokens}, {own}"
    query = f"SELECT {sums} FROM ({some}) GROUP BY status, replay"  # noqa: S608  no value in it
    rows = connection.execute(query, vars(search)).fetchall()
    read = sum(count for _, _, count, *_ in rows)
    counts = {status: count for status, replay, count, *_ in rows if not replay}
    rows = [row for row in rows if search.status in (None, row[0])]
    known_usd = sum(row[4] or 0.0 for row in rows)
    unpriced = sum(row[5] or 0 for row in rows)
    return Totals(
        statuses=counts,
        replays=sum(count for _, replay, count, *_ in rows if replay),
        tokens=sum(row[3] or 0 for row in rows),
        cost_usd=None if unpriced else known_usd,
        known_usd=known_usd,
        unpriced=unpriced,
        more=read > MOST_COUNTED,
        imported=sum(row[6] or 0 for row in rows),
    )


_FIRST_OF_BATCH = (
    "SELECT batch_id, min(sequence) AS sequence, created_at_utc, batch_name AS name, batch_size AS size FROM runs "
    "WHERE batch_id IS NOT NULL GROUP BY batch_id"
)
"""SQLite takes a group's other columns from the row with the minimum."""
_STATUSES = frozenset(get_args(RunStatus))


def read_batches(
    connection: sqlite3.Connection,
    limit: int,
    before: int | None = None,
    name: str | None = None,
    batch: str | None = None,
) -> list[BatchSummary]:
    """Returns batches, newest first, each as its first run describes it that was not deleted."""
    asked = {"sequence < :before": before, "batch_id = :batch": batch, "name = :name": name}
    narrowed = " AND ".join(condition for condition, value in asked.items() if value is not None) or "true"
    query = f"SELECT * FROM ({_FIRST_OF_BATCH}) WHERE {narrowed} ORDER BY sequence DESC LIMIT :limit"  # noqa: S608  own names
    bound = {"limit": limit, "before": before, "batch": batch, "name": name}
    rows = connection.execute(query, bound).fetchall()
    counts = _counts(connection, [row[0] for row in rows])
    # Of a damaged row what can be read, because the batch's runs may be whole and are found by this row.
    return [
        BatchSummary(
            batch_id=text_of(batch_id),
            sequence=sequence,
            created_at_utc=read_time(created_at_utc),
            name=text_of(name or ""),
            size=read_count(size) or sum(counts[batch_id]["statuses"].values()),
            **counts[batch_id],
        )
        for batch_id, sequence, created_at_utc, name, size in rows
    ]


def _counts(connection: sqlite3.Connection, ids: list[str]) -> dict[str, dict[str, Any]]:
    own = f"FROM runs WHERE batch_id IN ({', '.join('?' * len(ids))})"
    totals = (
        f"SELECT batch_id, count(*), max(simulated), {count_of('input_tokens')}, {count_of('output_tokens')}, "
        "sum(cost_usd), "
        f"count(cost_usd), sum(known_usd), max(cost_estimated) {own} GROUP BY batch_id"
    )
    # A task has the status of its latest run: SQLite takes a group's other columns from the row with the maximum.
    last = f"SELECT batch_id, status, max(sequence) {own} GROUP BY batch_id, batch_row"
    statuses: defaultdict[str, Counter[str]] = defaultdict(Counter)
    known = {*_STATUSES, ERASED}
    for batch_id, status, _ in connection.execute(last, ids):
        statuses[batch_id][status if status in known else "too_new"] += 1
    counted: dict[str, dict[str, Any]] = {}
    for batch_id, runs, simulated, read, written, usd, priced, known, estimated in connection.execute(totals, ids):
        counted[batch_id] = {
            "runs": runs,
            "simulated": bool(simulated),
            "usage": Usage(input_tokens=read_count(read), output_tokens=read_count(written)),
            "cost_usd": usd if priced == runs else None,
            "known_usd": known,
            "cost_estimated": priced == runs and bool(estimated),
            "statuses": dict(statuses[batch_id]),
        }
    return counted
