"""A database, or the files beside it, deleted or replaced under a program that has it open: it says so, at once."""

import asyncio
import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from conductor_core.errors import EventOutOfOrder, OwnerGone, StoreGone
from conductor_core.run import events as ev
from conductor_core.run.trace import fold
from storage import Store, open_store
from storage.log.owner import Owner
from tests.support.run_events import answered, created, planned, run_completed, step_started, whole_run


def delete(path: Path) -> None:
    path.unlink()


def empty(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


def delete_all(path: Path) -> None:
    shutil.rmtree(path.parent)


def delete_wal(path: Path) -> None:
    Path(f"{path}-wal").unlink()


def replace(path: Path) -> None:
    copy = path.with_name("copy")
    shutil.copy(path, copy)
    copy.replace(path)


@pytest.mark.parametrize("happens", [delete, delete_all, delete_wal, replace])
async def test_a_database_that_is_taken_away(path: Path, url: str, happens: Callable[[Path], None]) -> None:
    store = open_store(url)
    await store.log.append(created("r1"), *planned("r1"))
    store.runs()
    happens(path)
    appended = await asyncio.gather(
        store.log.append(*answered("r1", 0)), store.log.append(created("r2")), return_exceptions=True
    )
    assert [type(error) for error in appended] == [StoreGone, StoreGone]
    message = f"the database {path} was deleted, moved or replaced while this program had it open"
    assert str(appended[0]).startswith(message)
    for read in (store.runs, lambda: store.trace("r1"), lambda: store.events("r1"), store.mark_interrupted):
        with pytest.raises(StoreGone):
            read()
    store.close()


def test_whoever_was_not_told_before_is_told_at_the_end(path: Path, url: str) -> None:
    store = open_store(url)
    store.log.append_and_wait(*whole_run("r1"))
    path.unlink()
    with pytest.raises(StoreGone):
        store.close()
    store.close()


def test_a_database_that_is_put_back_is_opened_as_ever(path: Path, url: str, tmp_path: Path) -> None:
    store = open_store(url)
    events = whole_run("r1")
    store.log.append_and_wait(*events)
    store.close()
    copy = shutil.copy(path, tmp_path / "copy")
    store = open_store(url)
    path.unlink()
    with pytest.raises(StoreGone):
        store.log.append_and_wait(created("r2"))
    shutil.copy(copy, path)
    with pytest.raises(StoreGone):
        store.log.append_and_wait(created("r3"))
    store.close()
    store = open_store(url)
    assert store.trace("r1")[0] == fold(events)
    assert [run.run_id for run in store.runs()] == ["r1"], "not with what the other's WAL held"
    store.close()


def test_a_database_that_is_moved_away_has_all_that_was_promised(path: Path, url: str, tmp_path: Path) -> None:
    store = open_store(url)
    events = whole_run("r1")
    store.log.append_and_wait(*events)
    moved = path.rename(tmp_path / "moved.sqlite3")
    with pytest.raises(StoreGone):
        store.runs()
    store.close()
    store = open_store(f"sqlite:///{moved}")
    assert store.trace("r1")[0] == fold(events)
    store.close()


async def test_a_lock_file_that_is_deleted_is_made_again(path: Path, url: str) -> None:
    store = open_store(url)
    await store.log.append(created("r1"))
    lock = Path(f"{path}.lock")
    delete(lock)
    other = open_store(url)
    await asyncio.gather(
        *(store.log.append(ev.PlanStarted(run_id="r1", attempt=index, messages=())) for index in range(50)),
        *(other.log.append(created(f"o{index}")) for index in range(50)),
    )
    assert len(store.events("r1")) == 51
    assert store._database._lock is not None
    assert other._database._lock is not None
    assert store._database._lock.is_of(lock)
    assert other._database._lock.is_of(lock)
    store.close()
    other.close()


@pytest.mark.parametrize("whole_folder", [True, False])
async def test_a_run_whose_owner_s_file_is_deleted_hears_it_and_can_end(
    path: Path, url: str, whole_folder: bool
) -> None:
    store = open_store(url)
    begun = [created("r1"), *planned("r1"), step_started("r1", 0, 30)]
    await store.log.append(*begun)
    owners = Path(f"{path}.owners")
    empty(owners)
    if whole_folder:
        shutil.rmtree(owners)
    results = await asyncio.gather(
        store.log.append(ev.StepDelta(run_id="r1", path=(0,), text="lost")),
        store.log.append(created("r2")),
        return_exceptions=True,
    )
    assert isinstance(results[0], OwnerGone)
    assert str(owners) in str(results[0])
    assert results[1] is None, "what begins now is owned again"
    end = ev.RunFailed(run_id="r1", at_ms=50, error_code="OwnerGone", error=str(results[0]))
    await store.log.append(end)
    assert store.trace("r1")[0] == fold([*begun, end])
    other = open_store(url)
    assert other.mark_interrupted() == [], "r2 is seen to live"
    other.close()
    await store.log.append(run_completed("r2"))
    store.close()


async def test_a_run_that_another_process_took_for_stopped_gets_no_second_end(path: Path, url: str) -> None:
    store = open_store(url)
    await store.log.append(created("r1"), *planned("r1"))
    shutil.rmtree(f"{path}.owners")
    other = open_store(url)
    assert other.mark_interrupted() == ["r1"]
    other.close()
    with pytest.raises(OwnerGone):
        await store.log.append(step_started("r1", 0, 30))
    with pytest.raises(EventOutOfOrder, match="run r1 has ended"):
        await store.log.append(ev.RunFailed(run_id="r1", at_ms=50, error_code="OwnerGone", error="why"))
    assert [stored.event.kind for stored in store.events("r1")][-2:] == ["plan.completed", "run.interrupted"]
    store.close()


async def test_a_follower_of_a_database_that_is_taken_away_is_told(path: Path, url: str) -> None:
    store, other = open_store(url), open_store(url)
    await other.log.append(created("r1"))

    begun = asyncio.Event()

    async def follow(reader: Store) -> None:
        async for _ in reader.follow("r1"):
            begun.set()

    following = asyncio.create_task(follow(store))
    await begun.wait()
    delete(path)
    with pytest.raises(StoreGone):
        await following
    store.close()
    with pytest.raises(StoreGone):
        other.close()


def test_runs_that_cannot_be_marked_as_alive_are_said_in_the_log_and_written(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(_: Owner) -> bool:
        raise PermissionError(errno.EACCES, "no")

    store.log.append_and_wait(created("r1"))
    monkeypatch.setattr(Owner, "in_place", refused)
    store.log.append_and_wait(*planned("r1"))
    assert store.trace("r1")[0].status == "running"
    assert caplog.messages[0].startswith("the runs of this process cannot be marked as alive: ")
    assert "%s" not in caplog.messages[0]
