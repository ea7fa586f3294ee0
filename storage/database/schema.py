"""Knows the versions of the schema, makes the newest in a blank database, and upgrades an old one."""

import re
import secrets
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

from conductor_core.errors import StoreError, StoreTooNew
from storage import errors
from storage.merkle.chain import add_record

# Oldest first.
REVISIONS = tuple(f"{number:04}" for number in range(1, 18))
HEAD = REVISIONS[-1]
"""The version that this program reads and writes. A test checks that it is the newest migration."""
EVIDENCE_SINCE = "0013"
"""The first version with evidence. An older database is refused: evidence that begins after its events proves nothing,
and whoever took the evidence out of a database could have it begin again by an upgrade."""

NEWEST = Path(__file__).with_name("newest.sql")
"""The schema of ``HEAD``, as ``make schema`` wrote it from the migrations. A test compares both."""
_LOG = "INSERT INTO evidence_log (origin, covered_from) VALUES (?, 1)"


def create(cursor: sqlite3.Cursor) -> None:
    """Makes the newest schema in a blank database, and begins its log. Call it in a transaction of the writer.

    The migrations would make the same, but to import what runs them takes longer than all else of a first start.
    """
    for statement in NEWEST.read_text(encoding="utf-8").split("\n\n"):
        cursor.execute(statement)
    cursor.execute("INSERT INTO alembic_version (version_num) VALUES (?)", (HEAD,))
    cursor.execute("INSERT INTO search_state (id, reached, residue) VALUES (1, 0, 0)")
    cursor.execute(_LOG, (f"conductor-inspector/{secrets.token_hex(8)}",))
    add_record(cursor, "log.began", covered_from=1, events_before=0, lists_recorded=True)


def read_version(cursor: sqlite3.Cursor, path: Path) -> str | None:
    """Returns the version, None if blank. Raises: as ``checked_version``; StoreError for another program's file."""
    tables = {name for (name,) in cursor.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")}
    if "alembic_version" in tables:
        return checked_version(cursor.execute("SELECT version_num FROM alembic_version").fetchone(), path)
    if tables:
        raise StoreError(f"the database {path} belongs to another program: name another one with --db or DATABASE_URL")
    return None


def checked_version(row: Sequence[str] | None, path: Path) -> str:
    """Returns the version in ``row`` of the migrations' table.

    Raises: StoreTooNew, StoreDamaged; StoreError for a version without evidence.
    """
    version = row[0] if row else None
    if version in REVISIONS and version < EVIDENCE_SINCE:
        raise StoreError(
            f"the database {path} says schema {version}, which had no evidence, so it is not opened: no released "
            "program wrote such a database, and one with evidence has lost it. Restore a backup with `python -m "
            "storage restore`, and verify that with the public key and the anchor that you kept"
        )
    if version in REVISIONS:
        return version
    if isinstance(version, str) and re.fullmatch(r"\d{4}", version) and version > HEAD:
        raise StoreTooNew(
            f"the database {path} was written by a newer version of this program (schema {version}, this program "
            f"knows {HEAD}): upgrade this program, or name another database with --db or DATABASE_URL"
        )
    raise errors.damaged(path, f"its schema version reads {version!r}")


def migrate(connect: Callable[[], sqlite3.Connection], revision: str) -> None:
    """Runs the migrations up to ``revision`` in one transaction of a connection of their own. Raises: sqlite3.Error."""
    # Only an old database needs these imports, and they take longer than all else of a short command.
    from alembic import command
    from alembic.config import Config
    from sqlalchemy import create_engine
    from sqlalchemy.exc import DBAPIError
    from sqlalchemy.pool import NullPool

    config = Config()
    config.set_main_option("path_separator", "os")
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")).replace("%", "%%"))
    try:
        with create_engine("sqlite://", creator=connect, poolclass=NullPool).connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            config.attributes["connection"] = connection
            command.upgrade(config, revision)
            connection.commit()
    except DBAPIError as error:
        raise (error.orig or error) from error
