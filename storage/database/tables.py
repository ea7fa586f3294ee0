"""The tables as SQLModel classes, for whoever queries a database in Python: ``select(tables()["runs"])``.

Their columns are those that ``storage.database.schema`` declares. The program itself reads with plain SQL, because to
import SQLModel takes as long as a short command.
"""

import sqlite3
from functools import cache
from types import new_class

from sqlalchemy import MetaData, Table, create_engine
from sqlalchemy.pool import StaticPool
from sqlmodel import SQLModel

from storage.database import schema

_OF_SQLITE = ("sqlite_", "search_words", "search_signs")


@cache
def tables() -> dict[str, type[SQLModel]]:
    """Returns a class for each table of ``schema.HEAD`` but SQLite's own, by name."""
    blank = sqlite3.connect(":memory:")
    schema.make(blank.cursor(), schema.HEAD)
    metadata = MetaData()
    with create_engine("sqlite://", creator=lambda: blank, poolclass=StaticPool).connect() as connection:
        metadata.reflect(connection, only=lambda name, _: not name.startswith(_OF_SQLITE))
    blank.close()
    return {name: _model(name, table) for name, table in metadata.tables.items()}


def _model(name: str, table: Table) -> type[SQLModel]:
    made: type[SQLModel] = new_class(name, (SQLModel,), {"table": True}, lambda of: of.update(__table__=table))
    return made
