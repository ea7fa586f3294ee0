"""The schema from blank, from the oldest version, and against the tables that the program uses."""

import re
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

import storage
from conductor_core.errors import StoreError
from conductor_core.run.values import BatchRow
from storage import Store, open_store
from storage.database.migrations.versions.v0014_search import FULL_TEXT
from storage.database.schema import HEAD, NEWEST, migrate
from storage.database.tables import EventRow
from storage.encoding import SnapshotRow
from storage.log import queries
from tests.newest_schema import of_migrations
from tests.support.command_line import log as main
from tests.support.older_schema import back_to
from tests.support.run_events import PAGE, created_otherwise, whole_run


def schema(path: Path) -> dict[str, str]:
    """The SQL of each table, index and trigger, without differences of layout."""
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    connection.close()
    return {name: " ".join(sql.split()) for name, sql in rows}


def not_of_full_text(_object: object, name: str | None, *_: object) -> bool:
    """Leaves out the full-text tables, which SQLite makes of what a migration declares."""
    return not str(name).startswith(tuple(FULL_TEXT))


def test_the_head_is_the_last_migration() -> None:
    config = Config()
    config.set_main_option("path_separator", "os")
    config.set_main_option("script_location", str(Path(storage.__file__).with_name("database") / "migrations"))
    scripts = ScriptDirectory.from_config(config)
    assert scripts.get_heads() == [HEAD]
    revisions = [script.revision for script in scripts.walk_revisions()]
    assert revisions == sorted(revisions, reverse=True), "versions are compared as text"


def test_a_blank_database_gets_the_tables_of_the_program(path: Path, url: str) -> None:
    from alembic.autogenerate import compare_metadata

    open_store(url).close()
    engine = create_engine(url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"include_object": not_of_full_text})
        assert compare_metadata(context, EventRow.metadata) == []
    engine.dispose()
    assert {"events_no_update", "events_no_delete"} < schema(path).keys()


def rows(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """All rows of all tables. What differs from database to database by design is left out."""
    connection = sqlite3.connect(path)
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found = {name: connection.execute(f'SELECT * FROM "{name}"').fetchall() for name in names}
    connection.close()
    return {name: each for name, each in found.items() if name not in ("evidence_log", "leaves")}


def test_a_new_database_is_what_the_migrations_make(path: Path, url: str, tmp_path: Path) -> None:
    assert NEWEST.read_text(encoding="utf-8") == of_migrations(), "run `make schema`"
    migrated = tmp_path / "migrated.sqlite3"
    migrate(lambda: sqlite3.connect(migrated), HEAD)
    open_store(url).close()
    assert schema(path) == schema(migrated)
    assert rows(path) == rows(migrated)


def test_two_processes_that_begin_one_database_share_it(path: Path, url: str) -> None:
    with ThreadPoolExecutor(8) as at_once:
        stores = list(at_once.map(open_store, [url] * 8))
    stores[0].log.append_and_wait(*whole_run("r1"))
    assert [len(store.events("r1")) for store in stores] == [len(whole_run("r1"))] * 8
    for store in stores:
        store.close()


def test_starting_a_database_needs_no_migrations(url: str) -> None:
    program = (
        f"import sys; from storage import open_store; open_store({url!r}).close(); print('alembic' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"


def test_an_upgrade_that_fails_leaves_the_database_as_it_was(path: Path, url: str) -> None:
    path.parent.mkdir()
    migrate(lambda: sqlite3.connect(path), "0013")
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE search_state (of TEXT)")  # in the way of an upgrade
    connection.close()
    before = schema(path)
    with pytest.raises(StoreError, match="table search_state already exists") as caught:
        open_store(url)
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    assert schema(path) == before


async def test_the_statements_name_the_columns_of_the_declared_tables(store: Store) -> None:
    declared = {str(name): table.columns.keys() for name, table in EventRow.metadata.tables.items()}
    assert list(SnapshotRow._fields) == declared["snapshots"]
    elsewhere = {"owner_id", "vocabulary", "batch_name", "batch_size"}
    assert sorted(queries._SUMMARY) == sorted(set(declared["runs"]) - elsewhere)
    statements: list[str] = []
    store._database.writer.set_trace_callback(statements.append)
    await store.log.append(*whole_run("r"))
    for table in ("events", "runs", "snapshots"):
        written = next(found for each in statements if (found := re.search(rf"INTO {table} \((.*?)\)", each)))
        assert sorted(written[1].split(", ")) == sorted(declared[table]), table


def test_batches_and_owners_are_taken_over_from_a_database_that_kept_them_apart(path: Path, url: str) -> None:
    store = open_store(url)
    for number, size in enumerate((2, 3)):  # the file grew before the batch was resumed
        first, *rest = whole_run(f"r{number}")
        place = BatchRow(id="b", row=str(number), name="tasks.jsonl", size=size)
        store.log.append_and_wait(created_otherwise(first, batch=place), *rest)
    before = store.batches()
    store.close()
    back_to(path, "0016")
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT name, size FROM batches").fetchall() == [("tasks.jsonl", 2)]
        connection.execute("UPDATE runs SET owner_id = hex(zeroblob(16))")
    connection.close()
    store = open_store(url)
    assert store.batches() == before
    store.delete(["r0"], PAGE)
    assert [batch.size for batch in store.batches()] == [3], "as the first run says that is left"
    store.close()
    assert main(["verify", "--db", str(path)]) == 0
