"""Changes what lies in a database past the program, and past the triggers that guard it: they come back."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from storage.merkle.chain import Entries, RunChain, add_record

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


def without_evidence(path: Path) -> None:
    """Takes the evidence and the index out, and sets the version back, so that an upgrade would bring both again."""
    with closing(sqlite3.connect(path)) as connection, connection:
        names = connection.execute("SELECT type, name FROM sqlite_master WHERE type IN ('trigger', 'table')").fetchall()
        for kind, name in sorted(names, reverse=True):
            if kind == "trigger":
                connection.execute(f"DROP TRIGGER {name}")
            elif name in ("evidence_log", "leaves", "checkpoints", "search_state"):
                connection.execute(f"DROP TABLE {name}")
        connection.execute("ALTER TABLE events DROP COLUMN position")
        connection.execute("UPDATE alembic_version SET version_num = '0012'")


def begun_again(path: Path) -> None:
    """Edits an event, and makes a new log of all events, as if they had just been written."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("UPDATE events SET payload = replace(payload, 'x', 'y') WHERE sequence = 9")
        for table in ("leaves", "checkpoints", "evidence_log"):
            connection.execute(f"DELETE FROM {table}")
        cursor = connection.cursor()
        cursor.execute("INSERT INTO evidence_log VALUES ('conductor-inspector/00000000deadbeef', 1)")
        add_record(cursor, "log.began", covered_from=1)
        entries, chains = Entries(cursor), dict[str, RunChain]()
        query = "SELECT run_id, sequence, kind, at_utc, CAST(payload AS BLOB) FROM events ORDER BY sequence"
        for run_id, sequence, kind, at_utc, payload in cursor.execute(query).fetchall():
            stored = (kind.encode(), at_utc.encode(), payload)
            chain = chains.setdefault(run_id, RunChain())
            position = entries.add_event(chain, run_id, sequence, *stored)
            cursor.execute("UPDATE events SET position = ? WHERE sequence = ?", (position, sequence))
        for run_id, chain in chains.items():
            entries.seal(run_id, chain)
        entries.save()
