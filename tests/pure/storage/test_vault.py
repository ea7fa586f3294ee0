import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from conductor_core.actor import local_caller
from conductor_core.commands import Cancel
from conductor_core.errors import RunDamaged, StoreError
from storage import Privacy, Store, open_store
from storage.vault import MasterKey, Sealed
from tests.support.run_events import created, planned, run_completed, whole_run

TASK = "Which moon is meant by canary-of-the-task?"
ENCRYPTED = Privacy(encrypt=True)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = open_store(url, ENCRYPTED)
    yield store
    store.close()


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.name}{suffix}")


def holding(folder: Path, text: str) -> list[str]:
    files = [file for file in folder.rglob("*") if file.is_file()]
    return [file.name for file in files if text.encode() in file.read_bytes()]


def test_every_reader_sees_an_encrypted_run_and_no_file_shows_its_text(store: Store, path: Path) -> None:
    store.log.append_and_wait(*whole_run("r", TASK))
    store.log.append_and_wait(created("open", TASK), *planned("open"))
    store.send(Cancel(run_id="open"))
    assert store.read("r").task == TASK
    assert [run.task for run in store.runs()] == [TASK, TASK]
    assert [run.run_id for run in store.runs(search="CANARY-OF", status="completed")] == ["r"]
    assert store.totals(search="canary-of").runs == 2
    assert [sent.command.run_id for sent in store.commands("open")] == ["open"]
    assert TASK.encode() in store.raw_events("r")[0].payload
    assert len(store.events("r")) == len(whole_run("r"))
    assert holding(path.parent, "canary-of-the-task") == []
    assert holding(path.parent, "42, checked") == []
    assert [beside(path, suffix).stat().st_mode & 0o777 for suffix in (".keys", ".master-key")] == [0o600, 0o600]


async def test_the_live_feed_of_an_encrypted_run_is_plain(store: Store) -> None:
    store.log.append_and_wait(created("r", TASK), *planned("r"))
    followed = store.follow("r")
    assert len(await anext(followed)) == 5
    await store.log.append(run_completed("r"))
    assert [stored.event.kind for stored in await anext(followed)] == ["run.completed"]
    await followed.aclose()


def test_runs_of_before_stay_readable_and_a_run_keeps_what_it_began_with(url: str, path: Path) -> None:
    before = open_store(url)
    before.log.append_and_wait(*whole_run("old", TASK))
    before.close()
    store = open_store(url, ENCRYPTED)
    store.log.append_and_wait(created("new", "newer"), *planned("new"))
    assert [store.read(run_id).task for run_id in ("old", "new")] == [TASK, "newer"]
    store.close()
    # Without the setting, a run that was begun encrypted goes on so.
    later = open_store(url)
    later.log.append_and_wait(run_completed("new", "canary-of-the-end"))
    assert later.read("new").answer == "canary-of-the-end"
    later.close()
    assert holding(path.parent, "canary-of-the-end") == []


@pytest.mark.parametrize(("missing", "said"), [(".keys", "its key is not in"), (".master-key", "is not there")])
def test_without_a_key_the_list_says_so_and_all_other_runs_open(url: str, path: Path, missing: str, said: str) -> None:
    store = open_store(url, ENCRYPTED)
    store.log.append_and_wait(*whole_run("sealed", TASK))
    store.close()
    plain = open_store(url)
    plain.log.append_and_wait(*whole_run("plain"))
    plain.close()
    beside(path, missing).unlink()
    store = open_store(url)
    listed = {run.run_id: run for run in store.runs()}
    assert (listed["plain"].status, listed["sealed"].status) == ("completed", "damaged")
    assert said in (listed["sealed"].damage or "")
    with pytest.raises(RunDamaged, match=said):
        store.read("sealed")
    store.close()


def test_another_master_key_opens_nothing(url: str, path: Path) -> None:
    for name in ("mine", "other"):
        store = open_store(f"sqlite:///{path.with_name(name)}", ENCRYPTED)
        store.log.append_and_wait(*whole_run("r", TASK))
        store.close()
    shutil.copy(beside(path.with_name("other"), ".master-key"), beside(path.with_name("mine"), ".master-key"))
    store = open_store(f"sqlite:///{path.with_name('mine')}")
    with pytest.raises(RunDamaged, match="is another one"):
        store.read("r")
    store.close()


@pytest.mark.parametrize("changed", ["x'00'", "x''", "1", "'text'", "substr(wrapped, 1, 20)"])
def test_a_damaged_key_of_one_run_leaves_the_list_of_all_others(url: str, path: Path, changed: str) -> None:
    store = open_store(url, ENCRYPTED)
    store.log.append_and_wait(*whole_run("cut", TASK), *whole_run("whole"))
    store.close()
    with sqlite3.connect(beside(path, ".keys")) as connection:
        connection.execute(f"UPDATE run_keys SET wrapped = {changed} WHERE run_id = 'cut'")
    store = open_store(url)
    listed = {run.run_id: run.status for run in store.runs()}
    assert listed == {"cut": "damaged", "whole": "completed"}
    store.close()


def test_a_key_of_a_wrong_length_opens_nothing(path: Path) -> None:
    path.parent.mkdir()
    vault = ENCRYPTED.vault(path)
    vault.make_keys(["r"])
    with sqlite3.connect(vault.path) as connection:
        wrapped = MasterKey(ENCRYPTED.master_key_of(path)).wrap("r", b"short")
        connection.execute("UPDATE run_keys SET wrapped = ?", (wrapped,))
    with pytest.raises(Sealed, match="has no length of a key"):
        vault.seal("r", "place", "text")


def test_an_event_opens_only_at_its_place(url: str, path: Path) -> None:
    store = open_store(url, ENCRYPTED)
    store.log.append_and_wait(*whole_run("a", TASK), *whole_run("b", TASK))
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TRIGGER events_no_update")
        connection.execute("DELETE FROM snapshots")
        swapped = "SELECT payload FROM events WHERE run_id = ? AND kind = 'run.created'"
        (payload,) = connection.execute(swapped, ("a",)).fetchone()
        connection.execute("UPDATE events SET payload = ? WHERE run_id = 'b' AND kind = 'run.created'", (payload,))
    store = open_store(url)
    with pytest.raises(RunDamaged, match="was changed since it was encrypted, or stood at another place"):
        store.read("b")
    store.close()


def test_a_file_that_is_no_master_key_is_refused(url: str, path: Path) -> None:
    path.parent.mkdir()
    beside(path, ".master-key").write_text("something else")
    beside(path, ".master-key").chmod(0o600)
    store = open_store(url, ENCRYPTED)
    with pytest.raises(StoreError, match="holds no master key"):
        store.log.append_and_wait(created("r", TASK))
    store.close()


def test_the_key_of_a_deleted_run_goes_with_it(store: Store, url: str) -> None:
    store.log.append_and_wait(*whole_run("gone", TASK), *whole_run("stays", TASK))
    store.delete(["gone"], local_caller("cli"))
    assert store.unfinished(["gone", "stays"]) == {"stays"}
