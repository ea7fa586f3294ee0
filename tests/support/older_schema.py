"""Takes a database back to an older schema, for tests of reading and upgrading it."""

import sqlite3
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

import storage
from storage.database.migrations.versions.v0014_search import FULL_TEXT, TABLES


def as_of_0005(connection: sqlite3.Connection) -> None:
    """Undoes the migrations after 0005."""
    for table in ("commands", "contents", "run_contents", "evidence_log", "leaves", "checkpoints", *FULL_TEXT, *TABLES):
        connection.execute(f"DROP TABLE {table}")
    connection.execute("ALTER TABLE events DROP COLUMN position")
    for table in ("runs", "deletions", "holds"):
        connection.execute(f"ALTER TABLE {table} DROP COLUMN actor")
        connection.execute(f'ALTER TABLE {table} RENAME COLUMN door TO "by"')
    connection.execute("ALTER TABLE deletions DROP COLUMN erased")
    connection.execute("DROP INDEX ix_runs_asked_for")
    newer = ("purpose", "asked_for", "imported", "imported_answers", "recorded", "batch_name", "batch_size")
    for column in newer:
        connection.execute(f"ALTER TABLE runs DROP COLUMN {column}")
    for column in ("owner_host TEXT", "owner_pid INTEGER", "owner_opened_at_utc TEXT"):
        connection.execute(f"ALTER TABLE runs ADD COLUMN {column} NOT NULL DEFAULT ''")
    connection.execute(
        "CREATE TABLE batches "
        "(batch_id TEXT PRIMARY KEY, sequence INTEGER, created_at_utc TEXT, name TEXT, size INTEGER)"
    )
    connection.execute("CREATE UNIQUE INDEX ix_batches_sequence ON batches (sequence)")
    connection.execute("UPDATE alembic_version SET version_num = '0005'")


def back_to(path: Path, revision: str) -> None:
    """Takes the database of the newest schema back to an older one, by the migrations' own downgrades."""
    config = Config()
    config.set_main_option("path_separator", "os")
    config.set_main_option("script_location", str(Path(storage.__file__).with_name("database") / "migrations"))
    engine = create_engine(f"sqlite:///{path}", poolclass=NullPool)
    with engine.connect() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, revision)
        connection.commit()
