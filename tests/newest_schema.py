"""Writes ``storage/database/newest.sql``, the schema of a new database, as the migrations make it: ``make schema``.

Run it after a new migration.
"""

import sqlite3
import tempfile
from pathlib import Path

from storage.database.migrations.versions.v0014_search import FULL_TEXT
from storage.database.schema import HEAD, NEWEST, migrate

_HEADER = "-- Written by `make schema` from the migrations.\n\n"


def of_migrations() -> str:
    """Returns the statements, apart by an empty line. SQLite itself makes what full-text tables consist of."""
    made = tuple(f"{name}_{part}" for name in FULL_TEXT for part in ("data", "idx", "config", "content", "docsize"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "migrated.sqlite3"
        migrate(lambda: sqlite3.connect(path), HEAD)
        connection = sqlite3.connect(path)
        rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid").fetchall()
        connection.close()
    statements = [sql for name, sql in rows if name not in made and not name.startswith("sqlite_")]
    text = ";\n\n".join(statements) + ";\n"
    return _HEADER + "".join(line.rstrip() + "\n" for line in text.splitlines())


if __name__ == "__main__":
    NEWEST.write_text(of_migrations(), encoding="utf-8")
