"""Takes a database back to an older schema, for tests of reading and upgrading it."""

import sqlite3


def as_of_0005(connection: sqlite3.Connection) -> None:
    """Undoes the migrations after 0005."""
    for table in ("commands", "contents", "run_contents"):
        connection.execute(f"DROP TABLE {table}")
    for table in ("runs", "deletions", "holds"):
        connection.execute(f"ALTER TABLE {table} DROP COLUMN actor")
        connection.execute(f'ALTER TABLE {table} RENAME COLUMN door TO "by"')
    connection.execute("ALTER TABLE runs DROP COLUMN purpose")
    connection.execute("UPDATE alembic_version SET version_num = '0005'")
