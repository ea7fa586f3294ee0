"""A database that cannot be written can be read all the same, and says that nothing can be run."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conductor_core.errors import StoreDamaged, StoreReadOnly, StoreTooNew
from conductor_core.run.actor import Caller
from conductor_core.run.events import Event
from conductor_core.run.trace import RunDamaged, fold
from storage import Store, open_store
from storage.database import schema
from tests.support.damaging import doctor
from tests.support.privileges import without_privileges
from tests.support.run_events import created, whole_run

PAGE, CLI = Caller(door="page"), Caller(door="cli")


@pytest.fixture
def database(open_folder: Path) -> Path:
    return open_folder / "media" / "runs.sqlite3"


@pytest.fixture
def events(database: Path) -> list[Event]:
    """Of the finished run of a database that also has one that was broken off."""
    events = whole_run("ended")
    store = open_store(f"sqlite:///{database}")
    store.log.append_and_wait(*events, created("broken-off"))
    store.close()
    return events


@contextmanager
def on_read_only_media(database: Path) -> Iterator[str]:
    """As a user who may read the file and nothing else there. Nothing may be left there afterwards."""
    for file in database.parent.iterdir():
        file.chmod(0o444 if file.is_file() else 0o555)
    database.parent.chmod(0o555)
    before = {file.name: file.stat().st_size for file in database.parent.iterdir()}
    with without_privileges():
        yield f"sqlite:///{database}"
    assert {file.name: file.stat().st_size for file in database.parent.iterdir()} == before


def check_that_it_reads(store: Store, events: list[Event]) -> None:
    assert isinstance(store.refusal, StoreReadOnly)
    assert store.trace("ended")[0] == fold(events)
    assert [stored.event for stored in store.events("ended")] == events
    assert store.resolve("end") == "ended"
    store.mark_interrupted()
    assert [(run.run_id, run.status) for run in store.runs()] == [("broken-off", "interrupted"), ("ended", "completed")]
    assert store.trace("broken-off")[0].status == "interrupted"
    with pytest.raises(StoreReadOnly, match=r"cannot be written: allow this user .* but nothing can be run$"):
        store.log.append_and_wait(created("new"))


@pytest.mark.parametrize("lock_file", [True, False])
def test_a_database_that_was_closed(database: Path, events: list[Event], lock_file: bool) -> None:
    if not lock_file:
        database.with_name("runs.sqlite3.lock").unlink()
    with on_read_only_media(database) as url:
        store = open_store(url)
        check_that_it_reads(store, events)
        store.close()


@pytest.mark.parametrize("shared_memory", [True, False])
def test_a_database_whose_newest_events_are_in_its_wal(database: Path, open_folder: Path, shared_memory: bool) -> None:
    """As a killed program leaves it. Passing over the WAL would lose these events without a word."""
    store = open_store(f"sqlite:///{open_folder}/live/runs.sqlite3")
    events = whole_run("ended")
    store.log.append_and_wait(*events, created("broken-off"))
    database.parent.mkdir()
    for suffix in ("", "-wal", "-shm") if shared_memory else ("", "-wal"):
        shutil.copy(f"{open_folder}/live/runs.sqlite3{suffix}", f"{database}{suffix}")
    store.close()
    copies = set(Path(tempfile.gettempdir()).glob("conductor-inspector-*"))
    with on_read_only_media(database) as url:
        store = open_store(url)
        check_that_it_reads(store, events)
        store.close()
    assert set(Path(tempfile.gettempdir()).glob("conductor-inspector-*")) == copies


def test_a_wal_that_can_be_read_nowhere_says_so(
    database: Path, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(f"sqlite:///{open_folder}/live/runs.sqlite3")
    store.log.append_and_wait(created("r1"))
    database.parent.mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(f"{open_folder}/live/runs.sqlite3{suffix}", f"{database}{suffix}")
    store.close()
    monkeypatch.setattr(tempfile, "tempdir", str(database.parent))
    with on_read_only_media(database) as url, pytest.raises(StoreReadOnly, match="copy both files to"):
        open_store(url)


def test_a_damaged_run_there(database: Path, events: list[Event]) -> None:
    doctor(database, "UPDATE events SET payload = '{' WHERE sequence = 7")
    with on_read_only_media(database) as url:
        store = open_store(url)
        with pytest.raises(RunDamaged):
            store.trace("ended")
        assert store.runs(status="damaged")[0].run_id == "ended"
        store.close()


def test_an_older_schema_there_is_refused_as_it_cannot_be_upgraded(
    database: Path, events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = f"{int(schema.HEAD) + 1:04}"
    says = f"is of schema {schema.HEAD} and cannot be brought to {newer} where it is: copy it to"
    monkeypatch.setattr(schema, "HEAD", newer)
    with (
        on_read_only_media(database) as url,
        pytest.raises(StoreReadOnly, match=says),
    ):
        open_store(url)


def test_a_newer_schema_there(database: Path, events: list[Event]) -> None:
    doctor(database, "UPDATE alembic_version SET version_num = '9999'")
    with on_read_only_media(database) as url, pytest.raises(StoreTooNew):
        open_store(url)


def test_a_file_there_that_is_no_database(database: Path) -> None:
    database.parent.mkdir()
    database.write_text("no database, and long enough to see that it is none" * 100)
    with on_read_only_media(database) as url, pytest.raises(StoreDamaged):
        open_store(url)


@pytest.mark.parametrize("there", ["nothing", "an empty file"])
def test_where_there_is_nothing_to_read(database: Path, there: str) -> None:
    database.parent.mkdir()
    if there == "an empty file":
        database.touch()
    with on_read_only_media(database) as url, pytest.raises(StoreReadOnly, match=r"name another place.*URL$"):
        open_store(url)


def test_a_database_that_another_program_writes_meanwhile(database: Path, events: list[Event]) -> None:
    """Who may not write follows all the same what others write."""
    writer = open_store(f"sqlite:///{database}")
    for file in (database.parent, *database.parent.iterdir()):
        file.chmod(0o644 if file.is_file() else 0o755)  # its owner lets others read it
    with without_privileges():
        store = open_store(f"sqlite:///{database}")
        assert store.refusal is not None
        before = len(store.runs())
    writer.log.append_and_wait(*whole_run("new"))
    with without_privileges():
        assert len(store.runs()) == before + 1
        assert store.trace("new")[0].status == "completed"
        store.close()
    writer.close()
