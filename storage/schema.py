"""The versions of the schema, oldest first, and how a database gets from one to the next."""

import re
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import Connection, text

from conductor_core.errors import StoreError, StoreTooNew
from storage import failures

REVISIONS = ("0001", "0002", "0003", "0004")
HEAD = REVISIONS[-1]
"""The newest migration, which this program reads and writes. A test holds it equal to the migrations' own head."""


def upgrade(connection: Connection, path: Path) -> None:
    """Brings the schema to ``HEAD``. Raises: StoreTooNew, StoreDamaged, StoreError for another program's database."""
    tables = set(connection.scalars(text("SELECT name FROM sqlite_master WHERE type = 'table'")))
    if "alembic_version" in tables:
        row = connection.execute(text("SELECT version_num FROM alembic_version")).first()
        if checked_version(row, path) == HEAD:
            return
    elif tables:
        raise StoreError(f"the database {path} belongs to another program: name another one with --db or DATABASE_URL")
    migrate(connection, HEAD)


def checked_version(row: Sequence[str] | None, path: Path) -> str:
    """The version that ``row`` of the migrations' own table names. Raises: StoreTooNew, StoreDamaged."""
    version = row[0] if row else None
    if version in REVISIONS:
        return version
    if isinstance(version, str) and re.fullmatch(r"\d{4}", version) and version > HEAD:
        raise StoreTooNew(
            f"the database {path} was written by a newer version of this program (schema {version}, this program "
            f"knows {HEAD}): upgrade this program, or name another database with --db or DATABASE_URL"
        )
    raise failures.damaged(path, f"its schema version reads {version!r}")


def migrate(connection: Connection, revision: str) -> None:
    """Runs the migrations up to ``revision`` inside the connection's open transaction."""
    # Imported here: only a blank or an old database needs it, and it costs a third of the start of the command line.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("path_separator", "os")
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
