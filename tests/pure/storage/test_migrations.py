"""The schema from blank, from the oldest version, and against the tables that the program uses."""

import sqlite3
from pathlib import Path

from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine
from sqlmodel import SQLModel

import storage
from conductor_core.trace import fold
from storage import open_store
from storage.schema import HEAD, migrate
from tests.support.run_events import whole_run

OLDEST = Path(__file__).with_name("schema_0001.sql")


def schema(path: Path) -> dict[str, str]:
    """The SQL of each table, index and trigger, without differences of layout."""
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    connection.close()
    return {name: " ".join(sql.split()) for name, sql in rows}


def test_the_head_is_the_last_migration() -> None:
    config = Config()
    config.set_main_option("path_separator", "os")
    config.set_main_option("script_location", str(Path(storage.__file__).with_name("migrations")))
    scripts = ScriptDirectory.from_config(config)
    assert scripts.get_heads() == [HEAD]
    revisions = [script.revision for script in scripts.walk_revisions()]
    assert revisions == sorted(revisions, reverse=True), "versions are compared as text"


def test_a_blank_database_gets_the_tables_of_the_program(path: Path, url: str) -> None:
    from alembic.autogenerate import compare_metadata

    open_store(url).close()
    engine = create_engine(url)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), SQLModel.metadata) == []
    engine.dispose()
    assert {"events_no_update", "events_no_delete"} < schema(path).keys()


async def test_the_oldest_database_is_upgraded_with_its_runs(path: Path, url: str, tmp_path: Path) -> None:
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.executescript(OLDEST.read_text())
    connection.close()
    store = open_store(url)
    events = whole_run("old")
    assert store.trace("old")[0] == fold(item.event for item in store.events("old"))
    assert store.runs()[0].run_id == "old"
    await store.log.append(*whole_run("new"))
    assert store.trace("new")[1] == 2 * len(events)
    store.close()
    blank = tmp_path / "blank.sqlite3"
    open_store(f"sqlite:///{blank}").close()
    assert schema(path) == schema(blank)


def test_an_upgrade_that_fails_leaves_the_database_as_it_was(path: Path, url: str) -> None:
    path.parent.mkdir()
    engine = create_engine(url)
    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        migrate(connection, HEAD)
        connection.rollback()
    engine.dispose()
    assert schema(path) == {}
