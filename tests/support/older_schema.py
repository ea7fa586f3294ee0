"""Takes a database back to an older schema, for tests of reading and upgrading it."""

import sqlite3


def as_of_0005(connection: sqlite3.Connection) -> None:
    """Undoes the migrations after 0005."""
    for table in ("commands", "contents", "run_contents"):
        connection.execute(f"DROP TABLE {table}")
    for table in ("runs", "deletions", "holds"):
        connection.execute(f"ALTER TABLE {table} DROP COLUMN actor")
        connection.execute(f'ALTER TABLE {table} RENAME COLUMN door TO "by"')
    connection.execute("DROP INDEX ix_runs_asked_for")
    for column in ("purpose", "asked_for", "imported"):
        connection.execute(f"ALTER TABLE runs DROP COLUMN {column}")
    connection.execute("UPDATE alembic_version SET version_num = '0005'")
