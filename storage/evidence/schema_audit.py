"""Compares the schema of a database, and the types of its values, with what this program makes."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import cache

from storage.database import schema
from storage.evidence.database_audit import reading
from storage.evidence.history import Report, counted

_PARTS = "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
_VERSION = "SELECT version_num FROM alembic_version"
_FULL_TEXT = re.compile(r"search_(words|signs)(_\w+)?")
_SEALED = frozenset({("runs", "task"), ("runs", "error"), ("snapshots", "trace"), ("commands", "payload")})
"""Columns of text that hold bytes in an encrypted run."""
_CHECKED_WITH_EVENTS = ("events", "leaves")
_COUNTED = ("commands", "deletions", "events", "holds")
"""Tables whose ids are never given twice: SQLite keeps the last one."""

Part = tuple[str, str, str]


def read_version(connection: sqlite3.Connection) -> str | None:
    """Returns the version of the schema; None: the database does not say."""
    try:
        rows = connection.execute(_VERSION).fetchmany(2)
    except sqlite3.Error:
        return None
    return rows[0][0] if len(rows) == 1 and isinstance(rows[0][0], str) else None


def parts(connection: sqlite3.Connection) -> set[Part]:
    """Returns kind, name and text of tables, indexes, triggers and views.

    The text is without layout. That of the parts of a full-text table is SQLite's own, and left out.
    """
    return {
        (str(kind), str(name), "" if _FULL_TEXT.fullmatch(str(name)) else re.sub(r'[\s"]+', "", str(sql or "")).lower())
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
        tables = [name for kind, name, _ in found if kind == "table" and not _FULL_TEXT.fullmatch(name)]
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
    if version not in (f"{number:04}" for number in range(schema.BASELINE, int(schema.HEAD) + 1)):
        what = "the database does not say of which version it is"
        if version is not None:
            what = f"the database says it is of version {version[:40]!r}, which this program does not know"
        report.add("schema", None, None, f"{what}: it is compared with version {schema.HEAD}")
        version = schema.HEAD
    with reading(report, "the schema"):
        for what in differences(connection, version):
            report.add("schema", None, None, what)
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
    for table in _COUNTED[:2] + _COUNTED[3:]:
        ((newest,),) = connection.execute(f"SELECT coalesce(max(id), 0) FROM {table}")  # noqa: S608  own names
        last = kept.get(table, 0)
        if last != newest and not (table == "commands" and isinstance(last, int) and last > newest):
            report.add("schema", None, None, f"the last number of the table {table} is {newest}, not {str(last)[:40]}")
