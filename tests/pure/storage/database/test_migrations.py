"""The schema from blank, from the oldest version, and against the tables that the program uses."""

import json
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
from conductor_core.chat.messages import Usage
from conductor_core.errors import StoreError
from conductor_core.run.trace import fold
from conductor_core.run.values import BatchRow
from storage import Store, open_store
from storage.__main__ import main
from storage.database.migrations.versions.v0014_search import FULL_TEXT
from storage.database.schema import HEAD, NEWEST, migrate
from storage.database.tables import EventRow
from storage.encoding import SnapshotRow
from storage.log import queries
from tests.newest_schema import of_migrations
from tests.support.older_schema import as_of_0005, back_to
from tests.support.run_events import (
    PAGE,
    created,
    created_otherwise,
    planned,
    run_completed,
    step_completed,
    step_started,
    whole_run,
)

OLDEST = Path(__file__).with_name("schema_0001.sql")


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
    ((_, covered_from),) = found.pop("evidence_log")
    (position, run_id, _, record), *later = found.pop("leaves")
    began = json.loads(record) | {"at_utc": ""}
    # The newest program says at once that each list has records; an upgrade says so in a record of its own.
    assert began.pop("lists_recorded", False) or [json.loads(each[3])["kind"] for each in later] == ["lists.recorded"]
    found["log"] = [(covered_from, position, run_id, *began.items())]
    return found


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
    migrate(lambda: sqlite3.connect(path), "0002")
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE holds (of TEXT)")  # in the way of a later part of an upgrade
    connection.close()
    before = schema(path)
    with pytest.raises(StoreError, match="table holds already exists") as caught:
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


async def test_what_is_known_of_a_cost_is_found_in_the_record_of_an_older_database(path: Path, url: str) -> None:
    store = open_store(url)
    steps = (step_started("r", 0, 30), step_completed("r", 0, "x", 40, 0.5))
    unpriced = (step_started("r", 1, 50), step_completed("r", 1, "x", 60, None))
    end = run_completed("r").model_copy(update={"cost_usd": None})
    await store.log.append(created("r"), *planned("r"), *steps, *unpriced, end, *whole_run("priced"))
    store.close()
    with sqlite3.connect(path) as connection:
        as_of_0005(connection)
        for newer in ("known_usd", "cost_estimated"):
            connection.execute(f"ALTER TABLE runs DROP COLUMN {newer}")
        connection.execute("UPDATE alembic_version SET version_num = '0003'")
    connection.close()
    open_store(url).close()
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT run_id, cost_usd, known_usd FROM runs ORDER BY sequence").fetchall()
    connection.close()
    assert rows == [("r", None, 0.5), ("priced", 1.0, 1.0)]


async def test_that_a_cost_is_estimated_is_found_in_the_record_of_an_older_database(path: Path, url: str) -> None:
    store = open_store(url)
    for run_id, usd in (("guess", 0.5), ("free", 0.0), ("unpriced", None)):
        call = {"usage": Usage(output_tokens=3, estimated=True), "cost_estimated": True}
        step = step_completed(run_id, 0, "x", 40, usd).model_copy(update=call)
        end = run_completed(run_id).model_copy(update={"cost_usd": usd})
        await store.log.append(created(run_id), *planned(run_id), step_started(run_id, 0, 30), step, end)
    await store.log.append(*whole_run("said"))
    store.close()
    with sqlite3.connect(path) as connection:
        as_of_0005(connection)
        connection.execute("ALTER TABLE runs DROP COLUMN cost_estimated")
        connection.execute("UPDATE alembic_version SET version_num = '0004'")
        connection.execute("UPDATE snapshots SET trace = '{' WHERE run_id = 'said'")
    connection.close()
    open_store(url).close()
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT run_id, cost_estimated FROM runs ORDER BY sequence").fetchall()
    connection.close()
    assert rows == [("guess", 1), ("free", 0), ("unpriced", 0), ("said", 0)]


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
