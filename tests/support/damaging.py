"""Changes what lies in a database past the program, and past the triggers that guard its events."""

import sqlite3
from contextlib import closing
from pathlib import Path


def doctor(database: Path, statement: str, **values: object) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        for action in ("update", "delete"):
            connection.execute(f"DROP TRIGGER IF EXISTS events_no_{action}")
        connection.execute(statement, values)
