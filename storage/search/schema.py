"""The tables of the search index: how this program makes them, and makes them again if they were changed or dropped."""

import sqlite3
from contextlib import closing
from functools import cache

from storage.database import schema

FULL_TEXT = ("search_words", "search_signs")
"""All texts by words, and those of ``dense_scripts`` by three signs each."""
TABLES = ("search_places", "search_texts", "search_calls", "search_facets", "search_runs", "search_state")
CONFIG = [("version", 4)]
"""What ``_config`` of a full-text table holds: another row changes what is found, or in which order."""
SHADOWS = {
    "data": "(id INTEGER PRIMARY KEY, block BLOB)",
    "idx": "(segid, term, pgno, PRIMARY KEY(segid, term)) WITHOUT ROWID",
    "config": "(k PRIMARY KEY, v) WITHOUT ROWID",
}
"""The tables in which SQLite keeps a full-text table."""
_OBJECTS = (
    "SELECT name, type, tbl_name, sql FROM sqlite_master WHERE lower(tbl_name) IN ({0}) OR lower(name) IN ({0}) "
    "OR (type = 'trigger' AND lower(sql) LIKE '%search\\_%' ESCAPE '\\')"
)

Objects = dict[str, tuple[str, str, str | None]]
"""By name: the kind, the table that it is of, and the SQL that made it."""


def read_objects(connection: sqlite3.Connection | sqlite3.Cursor) -> Objects:
    """Returns the tables of the index in a database, with what belongs to them. Raises: sqlite3.Error."""
    names = [*TABLES, *FULL_TEXT, *(f"{table}_{shadow}" for table in FULL_TEXT for shadow in SHADOWS)]
    query = _OBJECTS.format(", ".join(repr(name) for name in names))
    return {str(name): (kind, of, sql) for name, kind, of, sql in connection.execute(query).fetchall()}


@cache
def own_objects() -> Objects:
    """Returns what ``read_objects`` finds where nothing was changed."""
    with closing(sqlite3.connect(":memory:")) as connection:
        schema.make(connection.cursor(), schema.HEAD)
        return read_objects(connection)


def statements() -> list[str]:
    """Returns the SQL that makes the tables, their indexes and the full-text tables."""
    return [sql for name, (_, _, sql) in own_objects().items() if sql and not is_shadow(name)]


def is_shadow(name: str) -> bool:
    """Whether SQLite itself makes the table of this name."""
    return any(name == f"{table}_{shadow}" for table in FULL_TEXT for shadow in SHADOWS)


@cache
def _empty_data() -> list[tuple[int, bytes]]:
    """Returns the rows of ``_data`` of a full-text table without a text."""
    with closing(sqlite3.connect(":memory:")) as connection:
        schema.make(connection.cursor(), schema.HEAD)
        return connection.execute(f"SELECT id, block FROM {FULL_TEXT[0]}_data").fetchall()  # noqa: S608  own names


def make_again(cursor: sqlite3.Cursor) -> None:
    """Drops all that is there of the index, whatever became of it, and makes it anew and empty.

    Call it in a transaction of the writer. Raises: sqlite3.Error.
    """
    cursor.execute("PRAGMA secure_delete=ON")
    there, own = read_objects(cursor), own_objects()
    for name, (kind, _, _) in there.items():
        if kind == "trigger" or (kind == "view" and name in own):
            cursor.execute(f"DROP {kind} {_quoted(name)}")
    for table in FULL_TEXT:
        if "VIRTUAL" in (there.get(table, ("", "", ""))[2] or "").upper():
            # SQLite drops a full-text table only if it can open it.
            for shadow, columns in SHADOWS.items():
                cursor.execute(f"DROP TABLE IF EXISTS {table}_{shadow}")
                cursor.execute(f"CREATE TABLE {table}_{shadow} {columns}")
            cursor.executemany(f"INSERT INTO {table}_data (id, block) VALUES (?, ?)", _empty_data())  # noqa: S608  own names
            cursor.execute(f"INSERT INTO {table}_config (k, v) VALUES (?, ?)", CONFIG[0])  # noqa: S608  own names
        cursor.execute(f"DROP TABLE IF EXISTS {table}")
        for shadow in SHADOWS:
            cursor.execute(f"DROP TABLE IF EXISTS {table}_{shadow}")
    for table in TABLES:
        cursor.execute(f"DROP TABLE IF EXISTS {table}")
    for statement in statements():
        cursor.execute(statement)
    cursor.execute("INSERT INTO search_state (id, reached, residue) VALUES (1, 0, 0)")
    cursor.execute("PRAGMA secure_delete=OFF")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
