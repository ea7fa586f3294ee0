"""What the program keeps is for its owner alone, also what an older version left open to others."""

import os
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from conductor_core.files import FileLock, keep_private
from conductor_core.run.commands import Cancel
from conductor_core.settings import Settings
from storage import Privacy, open_store
from storage.backup import backup, restore
from storage.store import store_of
from tests.support.run_events import created, whole_run


@pytest.fixture(autouse=True)
def _open_to_all() -> Iterator[None]:
    """The process makes files that others may read, as most do."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    """Returns what in a folder others may do anything with."""
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if stat.S_IMODE(path.lstat().st_mode) & 0o077
    )


def test_all_that_lies_beside_a_new_database_is_for_its_owner(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/new/runs.sqlite3", Privacy(encrypt=True))
    store.log.append_and_wait(*whole_run("done"), created("open"))
    store.send(Cancel(run_id="open"))
    store.publish()
    there = {path.name for path in (tmp_path / "new").iterdir()}
    assert {f"runs.sqlite3{end}" for end in ("", "-wal", "-shm", ".lock", ".owners", ".evidence", ".keys")} <= there
    assert open_to_others(tmp_path) == []
    store.close()
    assert open_to_others(tmp_path) == []


def test_what_an_older_version_left_open_is_closed_when_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "data" / "runs.sqlite3"
    settings = Settings(data_folder=path.parent)
    with closing(store_of(path, settings)) as store:
        store.log.append_and_wait(*whole_run("done"))
    for made in ("edits/one.json", "prefixes/of.bin"):
        (path.parent / made).parent.mkdir()
        (path.parent / made).write_text("")
    key = {path.parent / "runs.sqlite3.evidence" / "signing-key"}
    for each in {path.parent, *path.parent.rglob("*")} - key:
        each.chmod(0o777 if each.is_dir() else 0o666)
    store_of(path, settings).close()
    assert open_to_others(tmp_path) == []


def test_a_copy_and_what_is_restored_are_for_their_owner(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite3"
    with closing(open_store(f"sqlite:///{path}")) as store:
        store.log.append_and_wait(*whole_run("done"))
    copy = backup(path, tmp_path / "copy.sqlite3").path
    assert open_to_others(tmp_path) == []
    copy.chmod(0o644)
    path.chmod(0o644)
    restore(copy, path, Settings(), lambda what, count: None, replace=True)
    restore(copy, tmp_path / "elsewhere.sqlite3", Settings(), lambda what, count: None)
    assert open_to_others(tmp_path) == ["copy.sqlite3"], "which the restore only reads"


def test_what_is_not_ours_to_close_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared, linked, link = tmp_path / "shared", tmp_path / "linked", tmp_path / "link"
    shared.mkdir()
    shared.chmod(0o1777)
    linked.touch(0o644)
    link.symlink_to(linked)
    keep_private(shared, link, tmp_path / "missing")
    assert stat.S_IMODE(shared.stat().st_mode) == 0o1777
    assert stat.S_IMODE(linked.stat().st_mode) == 0o644
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    keep_private(linked)
    assert stat.S_IMODE(linked.stat().st_mode) == 0o644


def test_a_lock_that_others_could_open_is_closed(tmp_path: Path) -> None:
    (tmp_path / "lock").touch(0o666)
    FileLock(tmp_path / "lock").close()
    assert open_to_others(tmp_path) == []
