"""The schema from blank, through later changes, and in a database that an earlier revision wrote."""

import json
import re
import sqlite3
import tarfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from sqlmodel import Session, create_engine, select

from conductor_core.errors import StoreError
from storage import Store, open_store
from storage.database import schema
from storage.encoding import SnapshotRow
from storage.evidence.derived import made
from storage.log import queries
from tests.support.command_line import log as main
from tests.support.run_events import PAGE, whole_run

WRITTEN = Path(__file__).with_name("database_0017.tar.xz")
"""What ``benchmarks.changed_cells.pristine`` wrote at the revision 65b7dff7, with what was read of it there."""


@pytest.fixture
def written(tmp_path: Path) -> Path:
    with tarfile.open(WRITTEN) as archive:
        archive.extractall(tmp_path / "written", filter="data")
    return tmp_path / "written" / "runs.sqlite3"


def declared(path: Path) -> dict[str, tuple[str, str]]:
    """Kind and SQL of each table, index and trigger, to the sign, but of what SQLite itself writes."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT name, type, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    return {name: (kind, sql) for name, kind, sql in rows if not re.match(r"search_(words|signs)_|sqlite_", name)}


def test_a_database_of_before_gets_what_was_added_since_reads_the_same_and_verifies(
    written: Path, path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = declared(written)
    assert main(["verify", "--db", str(written)]) == 0, capsys.readouterr().out
    with closing(open_store(f"sqlite:///{written}")) as store:
        found = {
            run.run_id: {
                "status": run.status,
                "task": run.task,
                "steps": run.steps,
                "events": len(store.readable_events(run.run_id)[0]),
                "answer": run.conclusion and run.conclusion.text,
            }
            for run in store.runs(limit=100, answers=True)
        }
        assert found == json.loads(written.with_name("expected.json").read_text())
        assert [batch.statuses for batch in store.batches()] == [{"erased": 1, "completed": 1}]
        assert {each.run_id for each in store.deletions()[0] if not each.erased} == {"deleted", "row-0"}
        assert store.held(list(found)) == {"held"}
        assert [sent.command.kind for sent in store.commands("waiting")] == ["approve"]
        store.search.catch_up()
        assert store.search.count('"genau"').texts == 0 < store.search.count("Ada").texts
        store.log.append_and_wait(*whole_run("new"))
        store.delete(["late"], PAGE)
        assert not store.service_keys.any()
        store.service_keys.create("app", PAGE)
        assert [run.run_id for run in store.conversation("new")] == ["new"]
        assert not store.deleted_responses.deleted("resp_1")
    assert main(["verify", "--db", str(written)]) == 0, capsys.readouterr().out
    open_store(url).close()
    assert declared(written) == declared(path)
    runs = before.pop("runs")[1].partition(",\n\tPRIMARY KEY")[0]
    assert declared(path)["runs"][1].startswith(runs), "columns are only added"
    assert before.items() < declared(path).items()


def test_a_blank_database_and_an_older_one_get_the_same_changes(
    written: Path, path: Path, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    newer = f"{int(schema.HEAD) + 2:04}"
    added = ("ALTER TABLE runs ADD COLUMN notes TEXT", "DROP INDEX ix_search_places_run")
    monkeypatch.setattr(schema, "CHANGES", (*schema.CHANGES, *added))
    monkeypatch.setattr(schema, "HEAD", newer)
    for _ in range(2):
        for each in (f"sqlite:///{written}", url):
            open_store(each).close()
    assert declared(written) == declared(path)
    assert "notes TEXT" in declared(path)["runs"][1]
    assert "ix_search_places_run" not in declared(path)
    monkeypatch.undo()
    for database in (written, path):
        with pytest.raises(StoreError, match=rf"newer version of this program \(schema {newer}"):
            open_store(f"sqlite:///{database}")


def test_a_change_that_fails_leaves_the_database_as_it_was(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = "ALTER TABLE runs ADD COLUMN notes TEXT\n\nCREATE TABLE search_state (of TEXT)"
    monkeypatch.setattr(schema, "CHANGES", (broken,))
    monkeypatch.setattr(schema, "HEAD", "0018")
    before = declared(written)
    with pytest.raises(StoreError, match="table search_state already exists"):
        open_store(f"sqlite:///{written}")
    assert declared(written) == before


@pytest.mark.parametrize(
    ("version", "says"),
    [
        ("0012", "says schema 0012, which had no evidence, so it is not opened.*restore"),
        ("0016", "is of schema 0016, which is too old to be opened: the revision 65b7dff7 .*export"),
        ("soon", "damaged"),
    ],
)
def test_a_database_of_an_older_or_unknown_version_is_refused_as_it_is(written: Path, version: str, says: str) -> None:
    with closing(sqlite3.connect(written)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (version,))
    with pytest.raises(StoreError, match=says) as caught:
        open_store(f"sqlite:///{written}")
    assert "\n" not in str(caught.value)
    with closing(sqlite3.connect(written)) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(version,)]


def test_the_tables_are_declared_once_for_sqlmodel_too(written: Path) -> None:
    runs, columns = schema.tables()["runs"], made(schema.HEAD)[1]
    assert {name: each.__table__.columns.keys() for name, each in schema.tables().items()} == {  # type: ignore[attr-defined]
        name: [column for column, *_ in of] for name, of in columns.items()
    }
    open_store(f"sqlite:///{written}").close()  # which upgrades it
    with Session(create_engine(f"sqlite:///{written}")) as session:
        failed = session.exec(select(runs).where(runs.status == "failed")).one()  # type: ignore[attr-defined]
    assert (failed.run_id, failed.steps) == ("failed", 2)  # type: ignore[attr-defined]


def test_two_processes_that_begin_one_database_share_it(path: Path, url: str) -> None:
    with ThreadPoolExecutor(8) as at_once:
        stores = list(at_once.map(open_store, [url] * 8))
    stores[0].log.append_and_wait(*whole_run("r1"))
    assert [len(store.events("r1")) for store in stores] == [len(whole_run("r1"))] * 8
    for store in stores:
        store.close()


async def test_the_statements_name_the_columns_of_the_declared_tables(store: Store) -> None:
    columns = {table: [name for name, *_ in of] for table, of in made(schema.HEAD)[1].items()}
    assert list(SnapshotRow._fields) == columns["snapshots"]
    elsewhere = {"owner_id", "vocabulary", "batch_name", "batch_size"}
    assert sorted(queries._SUMMARY) == sorted(set(columns["runs"]) - elsewhere)
    statements: list[str] = []
    store._database.writer.set_trace_callback(statements.append)
    await store.log.append(*whole_run("r"))
    for table in ("events", "runs", "snapshots"):
        inserted = next(found for each in statements if (found := re.search(rf"INTO {table} \((.*?)\)", each)))
        assert sorted(inserted[1].split(", ")) == sorted(columns[table]), table
