"""Checks what is derived from the events against them: rows of runs, snapshots, images, lists, the search index."""

import hashlib
import json
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from typing import get_args

from conductor_core.chat.messages import ImageType, images_in
from conductor_core.errors import ContentMissing, UnknownRun
from conductor_core.run.trace import AT_REST, RunTrace, RunUnreadable
from storage.database import schema
from storage.deleted_responses import DELETED
from storage.deleted_responses import row_digest as row_digest_of_response
from storage.evidence.database_audit import reading
from storage.evidence.history import Report, counted
from storage.evidence.search_index import REBUILD, IndexCheck
from storage.judgements import ADDED
from storage.judgements import row_digest as row_digest_of_judgement
from storage.log.live_runs import changing_columns, fixed_columns, read_image
from storage.log.owner import OWNER_ID
from storage.log.reading import read_apart
from storage.merkle.formats import read_record, text_of
from storage.privacy import SEALED, Sealed, Vault
from storage.records import ERASED, SEALED_COLUMNS
from storage.search.index import FULL_TEXT, is_shadow
from storage.service_keys import CREATED, FIXED, REVOKED, row_digest

_RECORDS = (
    "SELECT run_id, record FROM leaves WHERE record IS NOT NULL AND (instr(record, '\"run.deleted\"') "
    "OR instr(record, '\"run.held\"') OR instr(record, '\"run.released\"')) ORDER BY position"
)
_DELETION = (
    "run_id", "deleted_at_utc", "actor", "door", "created_at_utc", "status", "events", "events_sha256", "erased",
)  # fmt: skip
_OF_HOLD = ("held", "at_utc", "actor", "door")
_ERASED = (
    "run_id", "sequence", "created_at_utc", "status", "door", "conductor", "pool", "parent_run_id", "simulated",
    "plan_only", "topology", "agents", "steps", "steps_completed", "steps_reused", "steps_failed", "input_tokens",
    "output_tokens", "cost_usd", "duration_ms", "vocabulary", "batch_id", "batch_name", "batch_size", "known_usd",
    "cost_estimated", "actor", "imported", "imported_answers", "recorded",
)  # fmt: skip
"""What an erased run keeps in its row. Its events are gone, so its record has a digest of this."""

Record = dict[str, object]


@dataclass
class Removals:
    """What the log has of deletions and holds, by run: the records, and the runs that went while they were held."""

    deletions: dict[str, Record] = field(default_factory=dict)
    holds: dict[str, list[Record]] = field(default_factory=lambda: defaultdict(list))
    gone: set[str] = field(default_factory=set)

    @property
    def erased(self) -> set[str]:
        return {run_id for run_id, record in self.deletions.items() if record.get("erased")}

    @property
    def held(self) -> set[str]:
        return {run_id for run_id, records in self.holds.items() if records[-1]["held"]}


def deletion_digest(row: Mapping[str, object]) -> str:
    """Returns the digest of a row of ``deletions``, by its columns without ``id``; its record in the log has it."""
    values = [row.get(name) for name in _DELETION[:-1]] + [int(bool(row.get("erased")))]
    return hashlib.sha256(json.dumps(values, default=repr).encode()).hexdigest()


def read_removals(connection: sqlite3.Connection) -> Removals:
    """Returns what the log says. Damaged records are findings about the evidence, and are passed over here."""
    found = Removals()
    for run_id, text in connection.execute(_RECORDS).fetchall():
        record = _read(text)
        run_id = str(record.get("run", run_id))
        match record.get("kind"):
            case "run.held" | "run.released" as kind:
                found.holds[run_id].append({**record, "held": kind == "run.held"})
            case "run.deleted":
                found.gone |= found.held & {run_id}
                found.deletions[run_id] = record
    return found


def digest_of(rows: Iterable[Sequence[object]]) -> str:
    return hashlib.sha256(json.dumps([list(row) for row in rows], default=repr).encode()).hexdigest()


def erased_row(connection: sqlite3.Connection | sqlite3.Cursor, run_id: str) -> Sequence[object]:
    """Returns what is kept of an erased run in its row, None for what it lacks; nothing, if there is none.

    Raises: sqlite3.Error.
    """
    rows = _rows(connection, "SELECT * FROM runs WHERE run_id = ?", run_id)
    if not rows:
        return ()
    # Records of before there were conversations, and runs about other runs, have a digest without them.
    later = [rows[0].get(name) for name in ("conversation_id", "about_run_id")]
    while later and later[-1] is None:
        later.pop()
    return [rows[0].get(name) for name in _ERASED] + later


def check_removals(connection: sqlite3.Connection, logged: Removals, report: Report) -> None:
    for run_id in sorted(logged.gone):
        report.add("derived", run_id, None, "the run was held when it was deleted or erased")
    for what, check in (
        ("the table deletions", _check_deletions),
        ("the table holds", _check_holds),
        ("the rows of erased runs", _check_erased_rows),
    ):
        with reading(report, what):
            check(connection, logged, report)


def _rows(connection: sqlite3.Connection | sqlite3.Cursor, query: str, *bound: str) -> list[Record]:
    cursor = connection.execute(query, bound)
    names = [name for name, *_ in cursor.description]
    return [dict(zip(names, each, strict=True)) for each in cursor.fetchall()]


def _check_deletions(connection: sqlite3.Connection, logged: Removals, report: Report) -> None:
    found = _rows(connection, "SELECT * FROM deletions ORDER BY id")
    rows = {str(row.get("run_id")): row for row in found}
    if len(rows) < len(found):
        report.add("derived", None, None, "the table of deletions has a run twice")
    for run_id in sorted(logged.deletions.keys() - rows.keys()):
        what = "the log says that the run was deleted, and the table of deletions does not"
        report.add("derived", run_id, None, what)
    recorded = [run_id for run_id in rows if run_id in logged.deletions]
    if recorded != [run_id for run_id in logged.deletions if run_id in rows]:
        report.add("derived", None, None, "the table of deletions has runs in another order than the log")
    for run_id, row in rows.items():
        if (record := logged.deletions.get(run_id)) is None:
            report.add("derived", run_id, None, "the table of deletions has the run, and no record in the log does")
        elif wrong := _wrong(record, row):
            report.add("derived", run_id, None, f"the table of deletions differs from the log: {wrong}")


def _check_erased_rows(connection: sqlite3.Connection, logged: Removals, report: Report) -> None:
    for run_id in sorted(logged.erased):
        row = erased_row(connection, run_id)
        if not row:
            report.add("derived", run_id, None, "the run was erased, and lists do not show it")
        elif digest_of([row]) != logged.deletions[run_id].get("run_sha256"):
            report.add("derived", run_id, None, "the row of the erased run is not as it was left")


def _wrong(record: Record, row: Mapping[str, object]) -> str:
    said = {**record, "deleted_at_utc": record.get("at_utc")}
    kept = {**row, "actor": _actor(row.get("actor")), "erased": bool(row.get("erased"))}
    said["erased"] = bool(record.get("erased"))
    wrong = [name for name in ("deleted_at_utc", "actor", "door", "erased") if kept.get(name) != said.get(name)]
    if not wrong and record.get("row_sha256") != deletion_digest(row):
        wrong = ["what it says of the run"]
    return ", ".join(wrong)


def _check_holds(connection: sqlite3.Connection, logged: Removals, report: Report) -> None:
    rows: dict[str, list[Record]] = defaultdict(list)
    for row in _rows(connection, "SELECT * FROM holds ORDER BY id"):
        rows[str(row.get("run_id"))].append({**row, "actor": _actor(row.get("actor"))})
    for run_id in sorted({*rows, *logged.holds} - logged.gone):
        of_run, records = rows[run_id], logged.holds.get(run_id, [])
        kept, said = ([[each.get(name) for name in _OF_HOLD] for each in some] for some in (of_run, records))
        if run_id in logged.held and not (of_run and of_run[-1].get("held")):
            report.add("derived", run_id, None, "the log says that the run is held, and the table of holds does not")
        elif kept[len(kept) - len(said) :] != said:
            report.add("derived", run_id, None, "the table of holds differs from the log")
        elif len(kept) > len(said):
            report.add("derived", run_id, None, "the table of holds has the run, and no record in the log does")


_KEY_RECORDS = (
    "SELECT record FROM leaves WHERE record IS NOT NULL AND run_id IS NULL "
    "AND instr(record, '\"service_key.') ORDER BY position"
)


def _check_service_keys(connection: sqlite3.Connection, report: Report) -> None:
    """Adds service keys that the table has and no record does, or the other way round, and those that differ."""
    logged: dict[str, dict[str, Record]] = {CREATED: {}, REVOKED: {}}
    for (text,) in connection.execute(_KEY_RECORDS).fetchall():
        record = _read(text)
        logged.get(str(record.get("kind")), {})[str(record.get("key"))] = record
    exists = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'service_keys'").fetchall()
    found = _rows(connection, "SELECT * FROM service_keys ORDER BY created_at_utc, id") if exists else []
    rows = {str(row.get("id")): row for row in found}
    for key_id in logged[CREATED].keys() - rows.keys():
        what = f"the log says that the service key {key_id} was created, and the table of service keys lacks it"
        report.add("derived", None, None, what)
    for key_id, row in rows.items():
        key = f"the service key {key_id[:80]}"
        created, revoked = logged[CREATED].get(key_id), logged[REVOKED].get(key_id, {}).get("at_utc")
        if created is None:
            report.add("derived", None, None, f"the table of service keys has {key}, and no record in the log does")
        elif created.get("row_sha256") != row_digest(row):
            said, kept = ({name: _of_key(each, name) for name in FIXED} for each in (created, row))
            wrong = [name for name in FIXED if name not in ("id", "digest") and kept[name] != said[name]]
            what = ", ".join(wrong) or "which key it is"
            report.add("derived", None, None, f"{key} differs from the log: {what}")
        if row.get("revoked_at_utc") != revoked:
            says = "that it was revoked" if revoked else "nothing of its being revoked"
            report.add("derived", None, None, f"{key} differs from the log, which says {says}: revoked_at_utc")


_RESPONSE_RECORDS = (
    "SELECT record FROM leaves WHERE record IS NOT NULL AND instr(record, '\"response.deleted\"') ORDER BY position"
)


def _check_deleted_responses(connection: sqlite3.Connection, gone: Container[str], report: Report) -> None:
    """Adds deleted responses that the table has and no record does, or the other way round, and those that differ.

    ``gone``: runs that were deleted or erased, with their deleted responses.
    """
    records = [_read(text) for (text,) in connection.execute(_RESPONSE_RECORDS).fetchall()]
    logged = {str(each.get("response")): each for each in records if each.get("kind") == DELETED}
    wanted = {response: each for response, each in logged.items() if str(each.get("run")) not in gone}
    exists = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'deleted_responses'").fetchall()
    found = _rows(connection, "SELECT * FROM deleted_responses ORDER BY response_id") if exists else []
    rows = {str(row.get("response_id")): row for row in found}
    for response, record in wanted.items():
        what = f"the deleted response {response[:80]}"
        if (row := rows.get(response)) is None:
            report.add("derived", str(record.get("run")), None, f"the table of deleted responses lacks {what}")
        elif record.get("row_sha256") != row_digest_of_response(row):
            report.add("derived", str(record.get("run")), None, f"{what} differs from the log")
    for response in rows.keys() - wanted.keys():
        what = f"the table of deleted responses has {response[:80]}, and no record in the log does"
        report.add("derived", text_of(rows[response].get("run_id")), None, what)


_JUDGEMENT_RECORDS = (
    "SELECT record FROM leaves WHERE record IS NOT NULL AND instr(record, '\"judgement.added\"') ORDER BY position"
)


def _check_judgements(connection: sqlite3.Connection, gone: Container[str], report: Report) -> None:
    """Adds judgements that the table has and no record does, or the other way round, and those that differ.

    ``gone``: runs that were deleted or erased, with what was held of them.
    """
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'judgements'").fetchall():
        return
    wanted: dict[int, Record] = {}
    for (text,) in connection.execute(_JUDGEMENT_RECORDS):
        record = _read(text)
        number, added = record.get("judgement"), record.get("kind") == ADDED
        if added and isinstance(number, int) and str(record.get("run")) not in gone:
            wanted[number] = record
    for row in _rows(connection, "SELECT * FROM judgements ORDER BY id"):
        number = row.get("id")
        said = wanted.pop(number, None) if isinstance(number, int) else None
        if said is None:
            what = f"the table of judgements has number {str(number)[:40]}, and no record in the log does"
            report.add("derived", text_of(row.get("run_id")), None, what)
        elif said.get("row_sha256") != row_digest_of_judgement(row):
            report.add("derived", str(said.get("run")), None, f"the judgement {number} differs from the log")
    for each, record in wanted.items():
        report.add("derived", str(record.get("run")), None, f"the table of judgements lacks number {each}")


def _read(text: object) -> Record:
    return read_record(text.encode(errors="replace") if isinstance(text, str) else b"")


def _of_key(said: Record, name: str) -> object:
    """Returns what a record or a row says of a key, so that both can be compared."""
    value = said.get("at_utc" if name == "created_at_utc" and "at_utc" in said else name)
    if name == "actor":
        return _actor(value)
    if name in ("models", "excluded_providers") and isinstance(value, list):
        return json.dumps(value)
    return value


def _actor(stored: object) -> object:
    return (read_record(stored.encode(errors="replace")) if isinstance(stored, str) else {}) or stored


_PARTS = "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
_SEALED = frozenset(
    {("runs", "task"), ("runs", "error"), ("snapshots", "trace"), ("commands", "payload"), ("judgements", "note")}
)
"""Columns of text that hold bytes in an encrypted run."""
_CHECKED_WITH_EVENTS = ("events", "leaves")
_COUNTED = ("commands", "deletions", "events", "holds", "judgements")
"""Tables whose ids are never given twice: SQLite keeps the last one."""
_GO_WITH_RUNS = ("commands", "judgements")

Part = tuple[str, str, str]


def read_version(connection: sqlite3.Connection) -> str | None:
    """Returns the version of the schema; None: the database does not say."""
    try:
        rows = connection.execute("SELECT version_num FROM alembic_version").fetchmany(2)
    except sqlite3.Error:
        return None
    return rows[0][0] if len(rows) == 1 and isinstance(rows[0][0], str) else None


def parts(connection: sqlite3.Connection) -> set[Part]:
    """Returns kind, name and text of tables, indexes, triggers and views.

    The text is without layout. That of the parts of a full-text table is SQLite's own, and left out.
    """
    return {
        (str(kind), str(name), "" if is_shadow(str(name)) else re.sub(r'[\s"]+', "", str(sql or "")).lower())
        for kind, name, sql in connection.execute(_PARTS)
    }


@cache
def made(version: str) -> tuple[frozenset[Part], dict[str, tuple[tuple[str, str, bool], ...]]]:
    """Returns the parts of a new database of this version, and the columns of its tables.

    Of each column: its name, its type, and whether it may be NULL.
    """
    with closing(sqlite3.connect(":memory:")) as connection:
        schema.make(connection.cursor(), version)
        found = frozenset(parts(connection))
        tables = [name for kind, name, _ in found if kind == "table" and not name.startswith(FULL_TEXT)]
        columns = {
            table: tuple(
                (str(name), str(kind).partition("(")[0], not (needed or key))
                for _, name, kind, needed, _, key in connection.execute(f"PRAGMA table_info({table})")
            )
            for table in sorted(tables)
        }
    return found, columns


def differences(connection: sqlite3.Connection, version: str) -> Iterator[str]:
    """Yields what is missing, changed or added. Raises: sqlite3.Error."""
    there = {(kind, name): text for kind, name, text in parts(connection)}
    wanted = {(kind, name): text for kind, name, text in made(version)[0]}
    for kind, name in sorted(wanted.keys() | there.keys()):
        if (kind, name) not in there:
            yield f"the {kind} {name} is missing"
        elif (kind, name) not in wanted:
            yield f"the {kind} {name[:80]} was added: this program makes none of that name"
        elif wanted[kind, name] != there[kind, name]:
            yield f"the {kind} {name} is not as this program makes it"


def check_schema(connection: sqlite3.Connection, report: Report) -> None:
    """Adds what is missing, changed or added, and values that are not of the type of their column."""
    version = read_version(connection)
    if version not in [f"{number:04}" for number in range(schema.BASELINE, int(schema.HEAD) + 1)]:
        what = "the database does not say of which version it is"
        if version is not None:
            what = f"the database says it is of version {version[:40]!r}, which this program does not know"
        report.add("schema", None, None, f"{what}: it is compared with version {schema.HEAD}")
        version = schema.HEAD
    with reading(report, "the schema"):
        for what in differences(connection, version or schema.HEAD):
            report.add("schema", None, None, f"{what}; {REBUILD}" if "search_" in what else what)
    there = {name for kind, name, _ in parts(connection) if kind == "table"}
    for table, of_table in made(version)[1].items():
        if table in there and table not in _CHECKED_WITH_EVENTS:
            with reading(report, f"the table {table}"):
                _check_types(connection, table, of_table, report)
    with reading(report, "the last numbers of tables"):
        _check_numbers(connection, report)


def _check_types(
    connection: sqlite3.Connection, table: str, columns: tuple[tuple[str, str, bool], ...], report: Report
) -> None:
    odd = ", ".join(f"total({_is_odd(table, *column)})" for column in columns)
    counts = connection.execute(f"SELECT {odd} FROM {table}").fetchone()  # noqa: S608  own names
    for (name, *_), count in zip(columns, counts, strict=True):
        if count:
            are = counted(int(count), "value is", "values are")
            report.add("derived", None, None, f"{are} not of the type of the column {table}.{name}")


def _is_odd(table: str, name: str, kind: str, optional: bool) -> str:
    types = {"FLOAT": ["real"], "BLOB": ["blob"], "INTEGER": ["integer"], "BOOLEAN": ["integer"]}.get(kind, ["text"])
    types = types + ["blob"] * ((table, name) in _SEALED) + ["null"] * optional
    is_odd = f"typeof({name}) NOT IN ({', '.join(repr(each) for each in types)})"
    return f"{is_odd} OR {name} NOT IN (0, 1)" if kind == "BOOLEAN" else is_odd


def _check_numbers(connection: sqlite3.Connection, report: Report) -> None:
    """Compares the last ids that SQLite keeps with the tables. That of events is compared with their evidence."""
    rows = connection.execute("SELECT name, seq FROM sqlite_sequence").fetchall()
    kept = dict(rows)
    if len(kept) != len(rows) or not kept.keys() <= set(_COUNTED):
        report.add("schema", None, None, "the last numbers of tables are not those of this program's tables")
    there = {name for kind, name, _ in parts(connection) if kind == "table"}
    for table in there.intersection(_COUNTED) - {"events"}:
        ((newest,),) = connection.execute(f"SELECT coalesce(max(id), 0) FROM {table}")  # noqa: S608  own names
        last = kept.get(table, 0)
        if last != newest and not (table in _GO_WITH_RUNS and isinstance(last, int) and last > newest):
            report.add("schema", None, None, f"the last number of the table {table} is {newest}, not {str(last)[:40]}")


_OF_RUNS = ("runs", "snapshots", "run_contents")
IMAGE_TYPES = frozenset(get_args(ImageType))
_TEXTS = (
    "SELECT run_id, status, ifnull(task, '') <> '' OR ifnull(error, '') <> '' OR ifnull(purpose, '') <> '' "
    "OR ifnull(owner_id, '') <> '' OR asked_for IS NOT NULL OR batch_row IS NOT NULL "
    "OR EXISTS (SELECT 1 FROM snapshots s WHERE s.run_id = runs.run_id) "
    "OR EXISTS (SELECT 1 FROM run_contents c WHERE c.run_id = runs.run_id) FROM runs"
)
_IMAGES = "SELECT sha256 FROM run_contents WHERE run_id = ?"
_FIRST = "SELECT substr(CAST(payload AS BLOB), 1, 1) FROM events WHERE run_id = ? ORDER BY sequence LIMIT 1"


def check(connection: sqlite3.Connection, report: Report, progress: Callable[[str, int], None], vault: Vault) -> None:
    """Adds a finding for whatever lists, snapshots, images or the search index say otherwise than events and records.

    An erased run has no events that can be read: its row must be empty, and the log must say who erased it. Rows of
    encrypted runs whose key is away are not compared; a note says how many, and what to do. What cannot be read is a
    finding, and the rest is compared. Raises: StoreError.
    """
    named = {each.run_id for each in report.findings}
    check_schema(connection, report)
    with reading(report, "what the log says of deletions and holds"):
        logged = read_removals(connection)
        check_removals(connection, logged, report)
        named |= _check_erased(connection, logged.erased, named, report, vault)
    with reading(report, "the table service_keys"):
        _check_service_keys(connection, report)
    with reading(report, "the table deleted_responses"):
        _check_deleted_responses(connection, read_removals(connection).deletions, report)
    with reading(report, "the table judgements"):
        _check_judgements(connection, read_removals(connection).deletions, report)
    for part, has, lacks, what in (
        *((f"the table {table}", table, "events", f"{table} knows a run that has no event") for table in _OF_RUNS),
        ("which runs lists lack", "events", "runs", "the run has events, and no row: lists do not show it"),
    ):
        with reading(report, part):
            query = f"SELECT DISTINCT run_id FROM {has} WHERE run_id NOT IN (SELECT run_id FROM {lacks})"  # noqa: S608  own names
            for (run_id,) in connection.execute(query).fetchall():
                if run_id not in named:
                    report.add("derived", str(run_id), None, what)
    images = _Images(connection, report)
    closed: Counter[str] = Counter()
    index = IndexCheck(connection, report, lambda: progress("runs", 0))
    index.check_rows_of_no_run()
    with reading(report, "the table runs"):
        for number, (run_id,) in enumerate(connection.execute("SELECT run_id FROM runs ORDER BY sequence").fetchall()):
            progress("runs", number)
            if run_id not in named and isinstance(run_id, str):
                with reading(report, f"what is kept of run {run_id[:80]}"):
                    if _is_encrypted(connection, run_id) and (why := vault.away(run_id)) is not None:
                        closed[str(why)] += 1
                    else:
                        _check_run(connection, run_id, images, report, vault)
                    index.check_run(run_id)
    index.check_answers()
    for said, number in closed.items():
        away = counted(number, "run is encrypted, and its key is", "runs are encrypted, and their keys are")
        report.notes.append(f"{away} away, so lists were not compared to that: {said}")


def _check_erased(
    connection: sqlite3.Connection, erased: set[str], named: set[str | None], report: Report, vault: Vault
) -> set[str]:
    """Compares the rows that say that their run was erased with the log. Returns the runs that need no other check."""
    done: set[str] = set()
    for run_id, status, has_text in connection.execute(_TEXTS):
        if run_id in named or (status != ERASED and run_id not in erased):
            continue
        done.add(run_id)
        if status != ERASED:
            report.add("derived", run_id, None, "the run was erased, and lists do not say so")
        elif run_id not in erased:
            what = "lists say that the run was erased, and no record in the log does"
            report.add("derived", text_of(run_id), None, what)
        elif has_text:
            report.add("derived", run_id, None, "the run was erased, and its row or a snapshot holds a text")
        elif vault.all_of([run_id]):
            report.add("derived", run_id, None, "the run was erased, and its key is still there: erase it again")
    return done


def _is_encrypted(connection: sqlite3.Connection, run_id: str) -> bool:
    row = connection.execute(_FIRST, (run_id,)).fetchone()
    return row is not None and row[0] == SEALED


class _Images:
    """The contents of a database: which are whole, and of which media type they say they are."""

    def __init__(self, connection: sqlite3.Connection, report: Report) -> None:
        self._connection = connection
        self._types: dict[object, object] = {}
        self._missing: dict[object, str] = {}
        with reading(report, "the table contents"):
            for sha256, media_type in connection.execute("SELECT sha256, media_type FROM contents").fetchall():
                self._types[sha256] = media_type
                self._look(sha256)
                if sha256 in self._missing or media_type not in IMAGE_TYPES:
                    why = self._missing.get(sha256, f"the content {str(sha256)[:12]} is of no type of an image")
                    report.add("derived", None, None, f"an image is not as it was kept: {why}")

    def _look(self, sha256: object) -> None:
        try:
            read_image(self._connection, sha256 if isinstance(sha256, str) else "")
        except ContentMissing as error:
            self._missing[sha256] = str(error)

    def check(self, trace: RunTrace, report: Report) -> None:
        """Compares what a run's events name with what is kept. A file that was imported may have come without it."""
        named = {image.sha256: image for turn in trace.conversation for image in images_in(turn.content)}
        kept = {sha256 for (sha256,) in self._connection.execute(_IMAGES, (trace.run_id,))}
        if kept - named.keys():
            report.add("derived", trace.run_id, None, "a list says that the run needs an image that it does not name")
        for sha256, image in named.items():
            if sha256 not in self._types:
                self._look(sha256)
            if sha256 in self._missing and (trace.imported is None or sha256 in kept):
                report.add("derived", trace.run_id, None, f"an image of the run is missing: {self._missing[sha256]}")
            elif sha256 in self._types and self._types[sha256] != image.media_type:
                report.add("derived", trace.run_id, None, f"the image {sha256[:12]} is kept as one of another type")
            elif sha256 in self._types and sha256 not in kept:
                report.add("derived", trace.run_id, None, f"no list says that the run needs the image {sha256[:12]}")


def _check_run(connection: sqlite3.Connection, run_id: str, images: _Images, report: Report, vault: Vault) -> None:
    try:
        reading, other = read_apart(connection, run_id, vault)
    except (RunUnreadable, UnknownRun) as error:
        report.add("derived", run_id, None, f"the run cannot be read: {error}")
        return
    if other:
        report.add("derived", run_id, None, f"the snapshot of the run {other}")
    images.check(reading.trace, report)
    (row,) = _rows(connection, "SELECT * FROM runs WHERE run_id = ?", run_id)
    encrypted = _is_encrypted(connection, run_id)
    for name in SEALED_COLUMNS:
        if isinstance(stored := row.get(name), bytes) and encrypted:
            try:
                row[name] = vault.open(run_id, f"runs {name}", stored).decode() if stored[:1] == SEALED else stored
            except (Sealed, UnicodeDecodeError):
                report.add("derived", run_id, None, f"the {name} in the row of the run cannot be decrypted")
                return
        elif encrypted and stored is not None:
            report.add("derived", run_id, None, f"the {name} of the encrypted run is in plain sight in its row")
    ((first,),) = connection.execute("SELECT min(sequence) FROM events WHERE run_id = ?", (run_id,))
    wanted = fixed_columns(reading.trace, first) | changing_columns(reading.trace)
    wrong = [name for name, value in wanted.items() if name in row and not _same(row[name], value)]
    owner, vocabulary = row.get("owner_id"), row.get("vocabulary")
    # The row names an owner only while the run goes on. Which process that is, no event says.
    goes_on = not reading.trace.ended and reading.trace.status not in AT_REST
    fits = isinstance(owner, str) and OWNER_ID.fullmatch(owner) is not None if goes_on else owner == ""
    wrong += ["owner_id"] * (not fits)
    wrong += ["vocabulary"] * (not isinstance(vocabulary, int) or vocabulary < 1)
    if wrong:
        report.add("derived", run_id, None, f"the row of the run differs from its events: {', '.join(sorted(wrong))}")


def _same(stored: object, value: object) -> bool:
    return stored == value and (not isinstance(value, float) or repr(stored) == repr(value))
