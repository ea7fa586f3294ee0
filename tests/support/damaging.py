"""Changes what lies in a database past the program, and past the triggers that guard it: they come back."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

_TRIGGERS = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"


@contextmanager
def past_triggers(database: Path) -> Iterator[sqlite3.Connection]:
    """Gives a connection without triggers. What the block does is committed, and its triggers come back."""
    with closing(sqlite3.connect(database)) as connection, connection:
        triggers = connection.execute(_TRIGGERS).fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        yield connection
        for _, sql in triggers:
            connection.execute(sql)


def doctor(database: Path, statement: str, **values: object) -> None:
    with past_triggers(database) as connection:
        connection.execute(statement, values)
