import os
import shutil
import sqlite3
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from conductor_core.errors import EventOutOfOrder, StoreError
from conductor_core.run.actor import local_caller
from conductor_core.run.commands import Cancel, Edit
from conductor_core.run.trace import RunDamaged, RunKeyAway
from storage import Privacy, Store, open_store
from storage import privacy as vaults
from storage.evidence.keys import load_key
from storage.privacy import MasterKey, Sealed, Vault, keys_beside, read
from tests.support.damaging import doctor
from tests.support.privileges import without_privileges
from tests.support.run_events import TWO_STEPS, created, planned, run_completed, whole_run

TASK = "Which moon is meant by canary-of-the-task?"
ENCRYPTED = Privacy(encrypt=True)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = open_store(url, ENCRYPTED)
    yield store
    store.close()


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.name}{suffix}")


def store_events(path: Path, run_id: str) -> int:
    with closing(sqlite3.connect(path)) as connection, connection:
        return int(connection.execute("SELECT count(*) FROM events WHERE run_id = ?", (run_id,)).fetchone()[0])


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


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        (".keys", "the file of keys {path}.keys is not there: put that file beside the database again"),
        (
            ".master-key",
            "the master key {path}.master-key is not there: put it there, or set CONDUCTOR_MASTER_KEY to where it is",
        ),
    ],
)
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
    assert (listed["plain"].status, listed["sealed"].status) == ("completed", "key_away")
    assert listed["sealed"].created_at_utc is not None, "what stays in plain sight is listed"
    assert [run.run_id for run in store.runs(status="key_away")] == ["sealed"]
    answers = {run.run_id: run.conclusion is not None for run in store.runs(answers=True)}
    assert answers == {"plain": True, "sealed": False}
    with pytest.raises(RunKeyAway) as caught:
        store.read("sealed")
    why = said.format(path=path)
    assert str(caught.value) == listed["sealed"].damage == f"run sealed is encrypted, and its key is away: {why}"
    store.close()


def test_what_of_a_run_is_in_plain_sight_can_be_read_without_its_key(store: Store, path: Path) -> None:
    store.log.append_and_wait(*whole_run("r", TASK))
    first = store.raw_events("r")[0].payload.decode()
    store.close()
    doctor(path, "UPDATE events SET payload = :first WHERE kind = 'run.created'", first=first)
    doctor(path, "DELETE FROM snapshots")
    beside(path, ".keys").unlink()
    reader = open_store(f"sqlite:///{path}")
    with pytest.raises(RunKeyAway) as caught:
        reader.read("r")
    assert caught.value.trace is not None
    assert caught.value.trace.task == TASK
    reader.close()


def test_another_master_key_opens_nothing(url: str, path: Path) -> None:
    for name in ("mine", "other"):
        store = open_store(f"sqlite:///{path.with_name(name)}", ENCRYPTED)
        store.log.append_and_wait(*whole_run("r", TASK))
        store.close()
    shutil.copy(beside(path.with_name("other"), ".master-key"), beside(path.with_name("mine"), ".master-key"))
    store = open_store(f"sqlite:///{path.with_name('mine')}")
    with pytest.raises(RunKeyAway, match=r"master key .* is another one .*: put the right one there"):
        store.read("r")
    store.close()


@pytest.mark.parametrize("changed", ["x'00'", "x''", "1", "'text'", "substr(wrapped, 1, 20)"])
def test_a_damaged_key_of_one_run_leaves_the_list_of_all_others(url: str, path: Path, changed: str) -> None:
    store = open_store(url, ENCRYPTED)
    store.log.append_and_wait(*whole_run("cut", TASK), *whole_run("whole"))
    store.close()
    with closing(sqlite3.connect(beside(path, ".keys"))) as connection, connection:
        connection.execute(f"UPDATE run_keys SET wrapped = {changed} WHERE run_id = 'cut'")
    store = open_store(url)
    listed = {run.run_id: run.status for run in store.runs()}
    assert listed == {"cut": "damaged", "whole": "completed"}
    store.close()


def test_a_key_of_a_wrong_length_opens_nothing(path: Path) -> None:
    path.parent.mkdir()
    vault = ENCRYPTED.vault(path)
    assert vault.make_ready(["r"], []) == {}
    with closing(sqlite3.connect(vault.path)) as connection, connection:
        ((made_at_utc,),) = connection.execute("SELECT made_at_utc FROM run_keys")
        assert datetime.fromisoformat(made_at_utc).tzinfo == UTC
        wrapped = MasterKey(ENCRYPTED.master_key_of(path)).wrap("r", b"short")
        connection.execute("UPDATE run_keys SET wrapped = ?", (wrapped,))
    with pytest.raises(Sealed, match="its length is wrong"):
        vault.open("r", "place", b"\x01 sealed")


def test_an_event_opens_only_at_its_place(url: str, path: Path) -> None:
    store = open_store(url, ENCRYPTED)
    store.log.append_and_wait(*whole_run("a", TASK), *whole_run("b", TASK))
    store.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TRIGGER events_no_update")
        connection.execute("DELETE FROM snapshots")
        swapped = "SELECT payload FROM events WHERE run_id = ? AND kind = 'run.created'"
        (payload,) = connection.execute(swapped, ("a",)).fetchone()
        connection.execute("UPDATE events SET payload = ? WHERE run_id = 'b' AND kind = 'run.created'", (payload,))
    store = open_store(url)
    with pytest.raises(RunDamaged, match="was changed or moved since it was encrypted"):
        store.read("b")
    store.close()


@pytest.mark.parametrize(
    "text", ["something else", "conductor-master-key-1 c2hvcnQ=", f"another-key-1 {'A' * 43}=", f"{'A' * 43}="]
)
def test_a_file_that_is_no_master_key_is_refused(url: str, path: Path, text: str) -> None:
    path.parent.mkdir()
    beside(path, ".master-key").write_text(text)
    beside(path, ".master-key").chmod(0o600)
    store = open_store(url, ENCRYPTED)
    with pytest.raises(StoreError, match="holds no master key"):
        store.log.append_and_wait(created("r", TASK))
    store.close()


def test_a_master_key_of_another_user_says_whose_it_must_be(open_folder: Path) -> None:
    key = open_folder / "key"
    key.write_text("conductor-master-key-1 ")
    key.chmod(0o600)
    with without_privileges(), pytest.raises(StoreError, match=f"may not read the master key {key}: give it to its"):
        read(key)


def test_the_key_of_a_deleted_run_goes_with_it(store: Store, url: str) -> None:
    store.log.append_and_wait(*whole_run("gone", TASK), *whole_run("stays", TASK))
    store.delete(["gone"], local_caller("cli"))
    assert store.unfinished(["gone", "stays"]) == {"stays"}


@pytest.mark.parametrize("same_process", [True, False])
def test_a_run_that_began_encrypted_is_never_stored_in_plain(
    url: str, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same_process: bool
) -> None:
    monkeypatch.setattr(vaults, "_MOST_OPEN", 1)
    store = open_store(url, ENCRYPTED)
    store.log.append_and_wait(created("r", TASK), *planned("r"))
    store.log.append_and_wait(*whole_run("other"))  # the key of the first is not at hand any more
    if not same_process:
        store.close()
    keys = beside(path, ".keys").rename(tmp_path / "moved away")
    if not same_process:
        store = open_store(url, ENCRYPTED)
    with pytest.raises(StoreError, match="nothing of it is kept without its key"):
        store.send(Edit(run_id="r", workflow=TWO_STEPS))
    with pytest.raises(StoreError, match="nothing of it is kept without its key"):
        store.log.append_and_wait(run_completed("r", "canary-of-the-end"))
    if same_process:
        with pytest.raises(StoreError, match="was moved or deleted while this program had it in use"):
            store.log.append_and_wait(created("new", TASK))
        with pytest.raises(StoreError, match="was moved or deleted while this program had it in use"):
            store.delete(["other"], local_caller("cli"))
    keys.rename(beside(path, ".keys"))
    store.log.append_and_wait(run_completed("r", "canary-of-the-end"))
    assert store.read("r").answer == "canary-of-the-end"
    store.close()
    assert holding(path.parent, "canary-of-the-end") == []
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute("SELECT count(*) FROM events WHERE typeof(payload) = 'text'").fetchall() == [(0,)]
        assert connection.execute("SELECT count(*) FROM commands").fetchall() == [(0,)]


def test_a_locked_file_of_keys_stops_only_the_runs_that_need_it(
    url: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vaults, "_TIMEOUT_S", 0.1)
    plain = open_store(url)
    plain.log.append_and_wait(created("plain"))
    plain.close()
    store = open_store(url, ENCRYPTED)
    store.log.append_and_wait(*whole_run("first", TASK))
    held, free = threading.Event(), threading.Event()

    def in_the_way(_: sqlite3.Cursor) -> None:
        held.set()
        free.wait(10)

    failed: dict[str, str] = {}

    def begin(run_id: str) -> None:
        try:
            store.log.append_and_wait(created(run_id) if run_id != "plain" else run_completed("plain", "canary"))
        except StoreError as error:
            failed[run_id] = str(error)

    first = threading.Thread(target=store.log.change_and_wait, args=(in_the_way,))
    first.start()
    held.wait(10)
    with closing(sqlite3.connect(beside(path, ".keys"), isolation_level=None)) as other, other:
        other.execute("BEGIN EXCLUSIVE")
        # All of these come into one transaction, because the one before it is under way.
        writers = [threading.Thread(target=begin, args=(run_id,)) for run_id in ("a", "plain", "b")]
        for writer in writers:
            writer.start()
        while store.log._requests.qsize() < 3:
            time.sleep(0.01)
        free.set()
        for thread in (first, *writers):
            thread.join()
        other.execute("ROLLBACK")
    assert sorted(failed) == ["a", "b"]
    assert "the keys of encrypted runs cannot be used" in failed["a"]
    assert "is locked by another program" in failed["a"]
    assert store.read("plain").status == "completed"
    store.log.append_and_wait(*whole_run("a", TASK))
    store.close()


def test_a_run_of_before_gets_no_key_by_a_second_beginning(url: str) -> None:
    plain = open_store(url)
    plain.log.append_and_wait(*whole_run("r"))
    plain.close()
    store = open_store(url, ENCRYPTED)
    with pytest.raises(EventOutOfOrder, match="exists already"):
        store.log.append_and_wait(created("r"))
    assert store.unfinished(["r"]) == set()
    store.close()


def test_the_keys_of_runs_whose_deletion_was_broken_off_go_at_the_next_opening(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(url, ENCRYPTED)
    for run_id in ("gone", "again", "stays"):
        store.log.append_and_wait(*whole_run(run_id, TASK))
    with monkeypatch.context() as broken:
        broken.setattr(Vault, "destroy", lambda vault, run_ids: None)
        store.delete(["gone", "again"], local_caller("cli"))
    store.log.append_and_wait(*whole_run("again", TASK))  # imported anew under its old id
    store.close()
    store = open_store(url)
    assert store.unfinished(["gone", "again", "stays"]) == {"again", "stays"}
    assert store.read("again").task == TASK
    store.close()


def test_an_erased_run_of_which_a_part_is_plain_loses_its_events(url: str, path: Path) -> None:
    store = open_store(url, ENCRYPTED)
    store.log.append_and_wait(*whole_run("r", TASK))
    store.close()
    doctor(path, "UPDATE events SET payload = 'canary-of-old' WHERE kind = 'plan.started'")
    store = open_store(url)
    store.erase(["r"], local_caller("cli"))
    store.close()
    assert holding(path.parent, "canary-of-old") == []
    assert store_events(path, "r") == 0


def test_new_and_destroyed_keys_outlive_a_power_cut(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.parent.mkdir()
    vault = ENCRYPTED.vault(path)
    assert vault.make_ready(["r"], []) == {}
    with vault._using() as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (3,), "with the folder, after the journal went"
    flushed: list[bool] = []
    fsync = os.fsync

    def watched(handle: int) -> None:
        flushed.append(stat.S_ISDIR(os.fstat(handle).st_mode))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", watched)
    load_key(path.parent / "evidence" / "signing-key", "origin")
    assert flushed == [True, False, True], "the new folder, the key, and its name in the folder"


@pytest.mark.parametrize("encrypts", [False, True])
def test_the_database_is_asked_once_about_a_new_run(path: Path, encrypts: bool) -> None:
    path.parent.mkdir()
    asked: list[str] = []
    vault = Vault(keys_beside(path), MasterKey(beside(path, ".master-key")), encrypts=encrypts, is_stored=asked.append)
    assert vault.make_ready(["r"], []) == {}
    assert isinstance(vault.seal("r", "place", "text"), bytes) is encrypts
    vault.keep_begun()
    assert vault.make_ready([], ["r"]) == {}
    assert isinstance(vault.seal("r", "place", "text"), bytes) is encrypts
    assert asked == ["r"]
