"""Checks what is derived from the events against them: rows of runs, snapshots, images, lists, the search index."""

import hashlib
import json
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import zip_longest
from typing import NamedTuple, get_args

from conductor_core.chat.messages import ImageType, images_in
from conductor_core.errors import ContentMissing, UnknownRun
from conductor_core.run.trace import AT_REST, RunTrace, RunUnreadable
from storage.database import schema
from storage.encoding import last_number, row_digest
from storage.endpoint import CREATED, DELETED, FIXED, RESPONSE_COLUMNS, REVOKED
from storage.evidence.database_audit import reading
from storage.evidence.history import Report, counted
from storage.judgements import ADDED
from storage.judgements import COLUMNS as JUDGEMENT_COLUMNS
from storage.log.event_log import changing_columns, fixed_columns, read_image
from storage.log.owner import OWNER_ID
from storage.log.reading import read_apart
from storage.merkle.formats import read_record, text_of
from storage.privacy import SEALED, Sealed, Vault
from storage.records import ERASED, SEALED_COLUMNS
from storage.search import index
from storage.search.filters import is_dense, quoted
from storage.search.reading import Record as Indexed
from storage.search.reading import read_record as read_indexed

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
    return row_digest({**row, "erased": int(bool(row.get("erased")))}, _DELETION)


def _logged(connection: sqlite3.Connection, *kinds: str) -> list[Record]:
    """Returns the log's records of these kinds, in order. Damaged ones are findings about the evidence."""
    holds = " OR ".join(["instr(record, ?)"] * len(kinds))
    query = f"SELECT run_id, record FROM leaves WHERE record IS NOT NULL AND ({holds}) ORDER BY position"  # noqa: S608  no value in it
    rows = connection.execute(query, [f'"{kind}"' for kind in kinds]).fetchall()
    found = [{"run": run_id, **read_record(str(text).encode(errors="replace"))} for run_id, text in rows]
    return [record for record in found if record.get("kind") in kinds]


def read_removals(connection: sqlite3.Connection) -> Removals:
    found = Removals()
    for record in _logged(connection, "run.deleted", "run.held", "run.released"):
        run_id, kind = str(record["run"]), record["kind"]
        if kind == "run.deleted":
            found.gone |= found.held & {run_id}
            found.deletions[run_id] = record
        else:
            found.holds[run_id].append({**record, "held": kind == "run.held"})
    return found


def erased_digest(connection: sqlite3.Connection | sqlite3.Cursor, run_id: str) -> str | None:
    """Returns the digest of what is kept of an erased run in its row; None: there is no row. Raises: sqlite3.Error."""
    rows = _rows(connection, "SELECT * FROM runs WHERE run_id = ?", run_id)
    if not rows:
        return None
    # Records of before there were conversations, and runs about other runs, have a digest without them.
    later = [rows[0].get(name) for name in ("conversation_id", "about_run_id")]
    while later and later[-1] is None:
        later.pop()
    kept = [rows[0].get(name) for name in _ERASED] + later
    return hashlib.sha256(json.dumps([kept], default=repr).encode()).hexdigest()


def check_removals(connection: sqlite3.Connection, logged: Removals, report: Report) -> None:
    for run_id in sorted(logged.gone):
        report.add("derived", "the run was held when it was deleted or erased", run_id)
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


def _newer_rows(connection: sqlite3.Connection, table: str, order: str) -> list[Record]:
    """Returns the rows of a table that older databases lack; none if it is not there, as another check says."""
    there = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchall()
    return _rows(connection, f"SELECT * FROM {table} ORDER BY {order}") if there else []  # noqa: S608  own names


def _check_deletions(connection: sqlite3.Connection, logged: Removals, report: Report) -> None:
    found = _rows(connection, "SELECT * FROM deletions ORDER BY id")
    rows = {str(row.get("run_id")): row for row in found}
    if len(rows) < len(found):
        report.add("derived", "the table of deletions has a run twice")
    for run_id in sorted(logged.deletions.keys() - rows.keys()):
        report.add("derived", "the log says that the run was deleted, and the table of deletions does not", run_id)
    recorded = [run_id for run_id in rows if run_id in logged.deletions]
    if recorded != [run_id for run_id in logged.deletions if run_id in rows]:
        report.add("derived", "the table of deletions has runs in another order than the log")
    for run_id, row in rows.items():
        if (record := logged.deletions.get(run_id)) is None:
            report.add("derived", "the table of deletions has the run, and no record in the log does", run_id)
        elif wrong := _wrong(record, row):
            report.add("derived", f"the table of deletions differs from the log: {wrong}", run_id)


def _check_erased_rows(connection: sqlite3.Connection, logged: Removals, report: Report) -> None:
    for run_id in sorted(logged.erased):
        digest = erased_digest(connection, run_id)
        if digest is None:
            report.add("derived", "the run was erased, and lists do not show it", run_id)
        elif digest != logged.deletions[run_id].get("run_sha256"):
            report.add("derived", "the row of the erased run is not as it was left", run_id)


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
            report.add("derived", "the log says that the run is held, and the table of holds does not", run_id)
        elif kept[len(kept) - len(said) :] != said:
            report.add("derived", "the table of holds differs from the log", run_id)
        elif len(kept) > len(said):
            report.add("derived", "the table of holds has the run, and no record in the log does", run_id)


def _check_service_keys(connection: sqlite3.Connection, report: Report) -> None:
    """Adds service keys that the table has and no record does, or the other way round, and those that differ."""
    logged: dict[object, dict[str, Record]] = {CREATED: {}, REVOKED: {}}
    for record in _logged(connection, CREATED, REVOKED):
        logged[record["kind"]][str(record.get("key"))] = record
    rows = {str(row.get("id")): row for row in _newer_rows(connection, "service_keys", "created_at_utc, id")}
    for key_id in logged[CREATED].keys() - rows.keys():
        what = f"the log says that the service key {key_id} was created, and the table of service keys lacks it"
        report.add("derived", what)
    for key_id, row in rows.items():
        key = f"the service key {key_id[:80]}"
        created, revoked = logged[CREATED].get(key_id), logged[REVOKED].get(key_id, {}).get("at_utc")
        if created is None:
            report.add("derived", f"the table of service keys has {key}, and no record in the log does")
        elif created.get("row_sha256") != row_digest(row, FIXED):
            said, kept = ({name: _of_key(each, name) for name in FIXED} for each in (created, row))
            wrong = [name for name in FIXED if name not in ("id", "digest") and kept[name] != said[name]]
            report.add("derived", f"{key} differs from the log: {', '.join(wrong) or 'which key it is'}")
        if row.get("revoked_at_utc") != revoked:
            says = "that it was revoked" if revoked else "nothing of its being revoked"
            report.add("derived", f"{key} differs from the log, which says {says}: revoked_at_utc")


class _OfRuns(NamedTuple):
    """A table whose rows are on record each, and go with their runs.

    ``name``: the column that names a row. ``said``: the field of its record that does. The rest: how findings begin.
    """

    table: str
    columns: Sequence[str]
    kind: str
    name: str
    said: str
    lacks: str
    has: str
    differs: str


_ON_RECORD = (
    _OfRuns(
        "deleted_responses", RESPONSE_COLUMNS, DELETED, "response_id", "response",
        lacks="the table of deleted responses lacks the deleted response {}",
        has="the table of deleted responses has {}",
        differs="the deleted response {}",
    ),
    _OfRuns(
        "judgements", JUDGEMENT_COLUMNS, ADDED, "id", "judgement",
        lacks="the table of judgements lacks number {}",
        has="the table of judgements has number {}",
        differs="the judgement {}",
    ),
)  # fmt: skip


def _check_on_record(connection: sqlite3.Connection, of: _OfRuns, gone: Container[str], report: Report) -> None:
    """Adds rows that the table has and no record does, or the other way round, and those that differ.

    ``gone``: runs that were deleted or erased, with their rows.
    """
    records = [record for record in _logged(connection, of.kind) if str(record["run"]) not in gone]
    wanted = {str(record.get(of.said)): record for record in records}
    for row in _newer_rows(connection, of.table, of.name):
        name = str(row.get(of.name))
        record = wanted.pop(name, None)
        if record is None:
            what = f"{of.has.format(name[:80])}, and no record in the log does"
            report.add("derived", what, text_of(row.get("run_id")))
        elif record.get("row_sha256") != row_digest(row, of.columns):
            report.add("derived", f"{of.differs.format(name[:80])} differs from the log", str(record["run"]))
    for name, record in wanted.items():
        report.add("derived", of.lacks.format(name[:80]), str(record["run"]))


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
        (str(kind), str(name), "" if index.is_shadow(str(name)) else re.sub(r'[\s"]+', "", str(sql or "")).lower())
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
        tables = [name for kind, name, _ in found if kind == "table" and not name.startswith(index.FULL_TEXT)]
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
        report.add("schema", f"{what}: it is compared with version {schema.HEAD}")
        version = schema.HEAD
    with reading(report, "the schema"):
        for what in differences(connection, version or schema.HEAD):
            report.add("schema", f"{what}; {REBUILD}" if "search_" in what else what)
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
            report.add("derived", f"{are} not of the type of the column {table}.{name}")


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
        report.add("schema", "the last numbers of tables are not those of this program's tables")
    there = {name for kind, name, _ in parts(connection) if kind == "table"}
    for table in there.intersection(_COUNTED) - {"events"}:
        ((newest,),) = connection.execute(f"SELECT coalesce(max(id), 0) FROM {table}")  # noqa: S608  own names
        last = kept.get(table, 0)
        if last != newest and not (table in _GO_WITH_RUNS and isinstance(last, int) and last > newest):
            report.add("schema", f"the last number of the table {table} is {newest}, not {str(last)[:40]}")


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
    for of in _ON_RECORD:
        with reading(report, f"the table {of.table}"):
            _check_on_record(connection, of, read_removals(connection).deletions, report)
    for part, has, lacks, what in (
        *((f"the table {table}", table, "events", f"{table} knows a run that has no event") for table in _OF_RUNS),
        ("which runs lists lack", "events", "runs", "the run has events, and no row: lists do not show it"),
    ):
        with reading(report, part):
            query = f"SELECT DISTINCT run_id FROM {has} WHERE run_id NOT IN (SELECT run_id FROM {lacks})"  # noqa: S608  own names
            for (run_id,) in connection.execute(query).fetchall():
                if run_id not in named:
                    report.add("derived", what, str(run_id))
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
            report.add("derived", "the run was erased, and lists do not say so", run_id)
        elif run_id not in erased:
            report.add("derived", "lists say that the run was erased, and no record in the log does", text_of(run_id))
        elif has_text:
            report.add("derived", "the run was erased, and its row or a snapshot holds a text", run_id)
        elif vault.all_of([run_id]):
            report.add("derived", "the run was erased, and its key is still there: erase it again", run_id)
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
                    report.add("derived", f"an image is not as it was kept: {why}")

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
            report.add("derived", "a list says that the run needs an image that it does not name", trace.run_id)
        for sha256, image in named.items():
            if sha256 not in self._types:
                self._look(sha256)
            if sha256 in self._missing and (trace.imported is None or sha256 in kept):
                report.add("derived", f"an image of the run is missing: {self._missing[sha256]}", trace.run_id)
            elif sha256 in self._types and self._types[sha256] != image.media_type:
                report.add("derived", f"the image {sha256[:12]} is kept as one of another type", trace.run_id)
            elif sha256 in self._types and sha256 not in kept:
                report.add("derived", f"no list says that the run needs the image {sha256[:12]}", trace.run_id)


def _check_run(connection: sqlite3.Connection, run_id: str, images: _Images, report: Report, vault: Vault) -> None:
    try:
        reading, other = read_apart(connection, run_id, vault)
    except (RunUnreadable, UnknownRun) as error:
        report.add("derived", f"the run cannot be read: {error}", run_id)
        return
    if other:
        report.add("derived", f"the snapshot of the run {other}", run_id)
    images.check(reading.trace, report)
    (row,) = _rows(connection, "SELECT * FROM runs WHERE run_id = ?", run_id)
    encrypted = _is_encrypted(connection, run_id)
    for name in SEALED_COLUMNS:
        if isinstance(stored := row.get(name), bytes) and encrypted:
            try:
                row[name] = vault.open(run_id, f"runs {name}", stored).decode() if stored[:1] == SEALED else stored
            except (Sealed, UnicodeDecodeError):
                report.add("derived", f"the {name} in the row of the run cannot be decrypted", run_id)
                return
        elif encrypted and stored is not None:
            report.add("derived", f"the {name} of the encrypted run is in plain sight in its row", run_id)
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
        report.add("derived", f"the row of the run differs from its events: {', '.join(sorted(wrong))}", run_id)


def _same(stored: object, value: object) -> bool:
    return stored == value and (not isinstance(value, float) or repr(stored) == repr(value))


# The search index. The full-text tables are copied into memory and compared there with ones made from the same texts:
# each word, the texts that it is in, and its places. That is what a search answers. On the database only rows are read.

_RUN = "SELECT run, indexed_to, fault FROM search_runs WHERE run_id = ?"
_AT_REST = f"SELECT max(sequence) FROM events WHERE run_id = ? AND sequence <= ? AND {index.AT_REST}"  # noqa: S608  no value in it
_CALLS = f"SELECT {index.CALL_COLUMNS} FROM search_calls WHERE run = ? ORDER BY id"  # noqa: S608  own names
_FACETS = "SELECT kind, value, run, times FROM search_facets WHERE run = ? ORDER BY kind, value"
_FAILURES = f"SELECT {index.FAILURE_COLUMNS} FROM search_failures WHERE run = ? ORDER BY id"  # noqa: S608  own names
_INDEXED_TEXTS = "SELECT text, dense FROM search_texts WHERE run = ? ORDER BY id"
_PLACES = (
    "SELECT t.text, p.field, p.event, p.path, p.agent, p.detail FROM search_places p JOIN search_texts t "
    "ON t.id = p.text_id AND t.run = p.run WHERE p.run = ? ORDER BY p.id"
)
_OF_NO_TEXT = (
    "SELECT count(*) FROM search_places p WHERE run = ? "
    "AND NOT EXISTS (SELECT 1 FROM search_texts t WHERE t.id = p.text_id AND t.run = p.run)"
)
_UNKNOWN = (
    "SELECT run_id FROM search_runs WHERE run_id NOT IN (SELECT run_id FROM events) "
    "OR run_id IN (SELECT run_id FROM runs WHERE status = ?) ORDER BY run_id"
)
_TABLES = ("search_calls", "search_facets", "search_failures", "search_texts", "search_places")
_OF_NO_RUN = "SELECT 1 FROM {} WHERE run NOT IN (SELECT run FROM search_runs) LIMIT 1"
_WITHOUT_FAILURES = ("0017", "0018", "0019", "0020", "0021")
_RUNS_OF_TEXTS = (
    "SELECT j.value, s.run_id FROM json_each(?) j LEFT JOIN search_texts t ON t.id = j.value "
    "LEFT JOIN search_runs s ON s.run = t.run"
)
_AT_ONCE = 20_000
REBUILD = "`conductor log search --rebuild` mends it"
_MOST_NAMED = 1_000


class IndexCheck:
    """Compares one run after the other, and then what the full-text tables answer. That they are as the program makes
    them, another check says. What cannot be read is a finding."""

    def __init__(self, connection: sqlite3.Connection, report: Report, progress: Callable[[], None]) -> None:
        """``progress``: called now and then while it looks at answers; what it raises ends the check."""
        self._connection, self._report, self._progress = connection, report, progress
        self._reached: int | None = None
        self._has_failures = True
        with self._reading():
            self._begin()

    def _begin(self) -> None:
        # A database of a version without this table is checked as it is.
        version = self._connection.execute("SELECT version_num FROM alembic_version").fetchall()
        self._has_failures = version not in [[(old,)] for old in _WITHOUT_FAILURES]
        rows = self._connection.execute("SELECT id, reached, residue FROM search_state").fetchall()
        if len(rows) != 1 or rows[0][0] != 1 or not isinstance(rows[0][1], int) or rows[0][2] not in (0, 1):
            self._wrong(None, "search_state does not say how far the index goes")
            return
        if not 0 <= rows[0][1] <= last_number(self._connection, "events", "sequence"):
            self._wrong(None, "search_state says that it goes further than the events do")
        self._reached = rows[0][1]

    def _wrong(self, run_id: str | None, what: str) -> None:
        self._report.add("derived", f"the search index does not answer as it must: {what}; {REBUILD}", run_id)

    @contextmanager
    def _reading(self, what: str = "") -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OverflowError) as error:
            self._wrong(None, f"{what}it cannot be read ({' '.join(str(error).split())[:200]})")
            self._reached = None if not what else self._reached

    def check_rows_of_no_run(self) -> None:
        """Finds what is in the index and belongs to no run that can be in it, and that nothing was found of yet."""
        if self._reached is None:
            return
        named = {each.run_id for each in self._report.findings}
        with self._reading():
            for (run_id,) in self._connection.execute(_UNKNOWN, (ERASED,)).fetchall():
                if run_id not in named:
                    what = f"the search index has rows of a run that is not in the log, or was erased; {REBUILD}"
                    self._report.add("derived", what, str(run_id))
            tables = _TABLES if self._has_failures else set(_TABLES) - {"search_failures"}
            if any(self._connection.execute(_OF_NO_RUN.format(table)).fetchone() for table in tables):
                self._report.add("derived", f"the search index has rows of no run in the log; {REBUILD}")

    def check_run(self, run_id: str) -> None:
        """Finds what the index has otherwise than the events of a run. Encrypted runs are not in it."""
        if self._reached is None:
            return
        with self._reading():
            if (wrong := self._fault(run_id, self._reached)) is not None:
                what = "the search index, from which ledger and hits are read, differs from the events of the run"
                self._report.add("derived", f"{what}: {wrong}; {REBUILD}", run_id)

    def _fault(self, run_id: str, reached: int) -> str | None:
        ((at_rest,),) = self._connection.execute(_AT_REST, (run_id, reached, *index.AT_REST_KINDS))
        row = self._connection.execute(_RUN, (run_id,)).fetchone()
        if at_rest is None:  # it never came to rest, or that is still to be taken in
            return None if row is None else "it is of other events"
        if row is None:
            return None if read_indexed(self._connection, run_id).encrypted else "it is missing"
        run, indexed_to, fault = row
        ((newest,),) = self._connection.execute("SELECT max(sequence) FROM events WHERE run_id = ?", (run_id,))
        if not isinstance(indexed_to, int) or not isinstance(fault, str) or not at_rest <= indexed_to <= newest:
            return "it is of other events"
        record = read_indexed(self._connection, run_id, to=indexed_to)
        if record.encrypted:
            return "it is encrypted, and none of it may be there"
        if record.run != run:
            return "it is of other events"
        if fault.startswith(index.NOT_INDEXED):
            # Whether that was so cannot be told any more; nothing of it is found by any search.
            return "only its name is there, because it could not be indexed"
        return self._differs(record, run, fault)

    def _differs(self, record: Indexed, run: int, fault: str) -> str | None:
        if record.fault != fault:
            return "how far it could be read"
        places: list[tuple[object, ...]] = [
            (text, at.field, at.event, at.path, at.agent, at.detail) for text, of in record.texts.items() for at in of
        ]
        wanted: dict[str, tuple[str, list[tuple[object, ...]]]] = {
            "calls": (_CALLS, index.call_rows(record)),
            "texts": (_INDEXED_TEXTS, [(text, is_dense(text)) for text in record.texts]),
            "places": (_PLACES, places),
            "filters": (_FACETS, sorted(index.facet_rows(record))),
            "failures": (_FAILURES, index.failure_rows(record)),
        }
        if not self._has_failures:
            del wanted["failures"]
        wrong = {
            name: self._connection.execute(query, (run,)).fetchall() != rows for name, (query, rows) in wanted.items()
        }
        wrong["places"] |= self._connection.execute(_OF_NO_TEXT, (run,)).fetchone() != (0,)
        return ", ".join(name for name, is_wrong in wrong.items() if is_wrong) or None

    def check_answers(self) -> None:
        """Compares what the full-text tables answer with the texts of the index, which ``check_run`` has compared."""
        if self._reached is None:
            return
        with self._reading(), closing(sqlite3.connect(":memory:")) as memory:
            with_texts = _Answers(self._connection, memory, self._progress)
            for table in index.FULL_TEXT:
                with self._reading(f"{table}: "):
                    for run_id, wrong in with_texts.check(table):
                        self._wrong(run_id, wrong)


class _Answers:
    """The full-text tables in memory: as they are in the database, and as its texts make them."""

    def __init__(
        self, connection: sqlite3.Connection, memory: sqlite3.Connection, progress: Callable[[], None]
    ) -> None:
        """Raises: sqlite3.Error."""
        self._connection, self._memory, self._progress = connection, memory, progress
        for statement in index.statements():
            memory.execute(statement)
        for table in index.FULL_TEXT:
            fresh = index.own_objects()[table][2] or ""
            fresh = fresh.replace("content='search_texts', content_rowid='id'", "content=''")
            memory.execute(fresh.replace(f"TABLE {table} ", f"TABLE fresh_{table} "))
        rows = connection.execute("SELECT id, run, dense, text FROM search_texts")
        while part := rows.fetchmany(_AT_ONCE // 10):
            progress()
            memory.executemany("INSERT INTO search_texts (id, run, dense, text) VALUES (?, ?, ?, ?)", part)
            for table, texts in zip(index.FULL_TEXT, (part, [row for row in part if row[2]]), strict=True):
                memory.executemany(
                    f"INSERT INTO fresh_{table} (rowid, text) VALUES (?, ?)",  # noqa: S608  own names
                    [(text_id, text) for text_id, _, _, text in texts],
                )

    def check(self, table: str) -> Iterator[tuple[str | None, str]]:
        """Yields each run, or None, and what one table answers wrongly. Raises: sqlite3.Error, OverflowError."""
        config = self._connection.execute(f"SELECT k, v FROM {table}_config ORDER BY k").fetchall()  # noqa: S608  own names
        if config != index.CONFIG:
            yield None, f"{table}_config was changed: words may be looked for in another way"
        self._copy(table)
        wrong = self._other_texts(table)
        found = Counter(run_id for _, run_id in self._connection.execute(_RUNS_OF_TEXTS, (str(wrong),)))
        for run_id, number in found.items():
            if run_id is None:
                yield None, "a search answers with texts that are not there, or in another order"
            else:
                yield str(run_id), f"a search does not find {number:,} of its texts by their words"
        if not wrong:
            self._memory.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('integrity-check', 0)")  # noqa: S608  own names
            if (unfound := self._unfound(table)) is not None:
                yield None, f"{table}: a search for {unfound!r} does not find all its texts"

    def _copy(self, table: str) -> None:
        for shadow, columns in (("data", "id, block"), ("idx", "segid, term, pgno")):
            self._memory.execute(f"DELETE FROM {table}_{shadow}")  # noqa: S608  own names
            marks = ", ".join("?" * (columns.count(",") + 1))
            self._memory.executemany(
                f"INSERT INTO {table}_{shadow} ({columns}) VALUES ({marks})",  # noqa: S608  own names
                self._connection.execute(f"SELECT {columns} FROM {table}_{shadow}"),  # noqa: S608  own names
            )
        self._memory.commit()  # SQLite reads its own tables again only after a change by somebody else
        for name in (table, f"fresh_{table}"):
            self._memory.execute(
                f"CREATE VIRTUAL TABLE temp.tokens_{name} USING fts5vocab('main', '{name}', 'instance')"
            )

    def _other_texts(self, table: str) -> list[int]:
        """Returns ids of texts whose words are not all found in them, or found where they are not."""
        there, own = (
            self._memory.execute(f"SELECT term, doc, offset FROM tokens_{name}")  # noqa: S608  own names
            for name in (table, f"fresh_{table}")
        )
        for number, (row, wanted) in enumerate(zip_longest(there, own)):
            if row != wanted:
                break
            if not number % _AT_ONCE:
                self._progress()
        else:
            return []
        there.close()
        own.close()
        a, b = (f"SELECT term, doc, offset FROM tokens_{name}" for name in (table, f"fresh_{table}"))  # noqa: S608  own names
        query = (
            f"SELECT DISTINCT doc FROM (SELECT * FROM ({a} EXCEPT {b}) UNION ALL SELECT * FROM ({b} EXCEPT {a})) "  # noqa: S608  own names
            "ORDER BY doc LIMIT ?"
        )
        # In another order, the same words are found, or none: nobody knows in which texts.
        return [int(doc) for (doc,) in self._memory.execute(query, (_MOST_NAMED,))] or [0]

    def _unfound(self, table: str) -> str | None:
        """Returns a word of the table that a search does not find in all its texts: where it is was changed."""
        self._memory.execute(f"CREATE VIRTUAL TABLE temp.words_{table} USING fts5vocab('main', 'fresh_{table}', 'row')")
        query = f"SELECT count(*) FROM (SELECT rowid FROM {table} WHERE {table} MATCH ? ORDER BY rowid DESC)"  # noqa: S608  own names
        for number, (term, texts) in enumerate(self._memory.execute(f"SELECT term, doc FROM words_{table}")):  # noqa: S608  own names
            if number % _AT_ONCE == 0:
                self._progress()
            ((found,),) = self._memory.execute(query, (quoted(term),))
            if found != texts:
                return str(term)
        return None
