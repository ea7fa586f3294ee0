"""A database that cannot be used gives one clear line, loses nothing that was kept, and works again once it can."""

import asyncio
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from conductor_core.errors import (
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    StoreTooNew,
)
from conductor_core.run.trace import fold
from storage import Store, open_store
from tests.support.privileges import without_privileges
from tests.support.run_events import answered, created, planned, run_completed, whole_run


def limit_pages(store: Store, more: int) -> None:
    """Leaves room for that many more pages, as a full disk would."""
    writer = store._database.writer.cursor()
    pages: int = writer.execute("PRAGMA page_count").fetchone()[0]
    writer.execute(f"PRAGMA max_page_count={pages + more}")


async def test_a_full_disk_is_told_to_each_who_waits_and_the_log_goes_on_when_there_is_room(store: Store) -> None:
    kept = [created("r1"), *planned("r1")]
    await store.log.append(*kept)
    limit_pages(store, 8)
    long = "x" * 100_000
    results = await asyncio.gather(
        store.log.append(*answered("r1", 0, long)),
        store.log.append(created("r2", long)),
        store.log.append(created("r3")),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [StoreFull, StoreFull, type(None)]
    assert str(results[0]) == (
        f"no space left for the database {store._database.path}: free some space on its disk, then continue"
    )
    assert store.trace("r1")[0] == fold(kept)
    assert [run.run_id for run in store.runs()] == ["r3", "r1"]

    limit_pages(store, 10_000)
    await store.log.append(*answered("r1", 0, long), run_completed("r1"))
    assert store.trace("r1")[0] == fold([*kept, *answered("r1", 0, long), run_completed("r1")])


async def test_a_full_disk_while_following_loses_nothing(store: Store) -> None:
    await store.log.append(created("r1"), *planned("r1"))

    begun, kinds = asyncio.Event(), list[str]()

    async def follow() -> list[str]:
        async for group in store.follow("r1"):
            kinds.extend(stored.event.kind for stored in group)
            begun.set()
        return kinds

    following = asyncio.create_task(follow())
    await begun.wait()
    limit_pages(store, 8)
    with pytest.raises(StoreFull):
        await store.log.append(*answered("r1", 0, "x" * 100_000))
    limit_pages(store, 10_000)
    await store.log.append(run_completed("r1"))
    assert await following == [stored.event.kind for stored in store.events("r1")]


async def test_a_database_that_becomes_read_only(store: Store) -> None:
    await store.log.append(created("r1"))
    writer = store._database.writer.cursor()
    writer.execute("PRAGMA query_only=ON")
    with pytest.raises(StoreReadOnly, match="cannot be written: allow this user"):
        await store.log.append(*planned("r1"))
    writer.execute("PRAGMA query_only=OFF")
    await store.log.append(*planned("r1"))


def test_a_folder_that_cannot_be_made(open_folder: Path) -> None:
    open_folder.chmod(0o555)
    with without_privileges(), pytest.raises(StoreReadOnly):
        open_store(f"sqlite:///{open_folder}/new/runs.sqlite3")


def test_a_missing_folder_is_made(tmp_path: Path) -> None:
    open_store(f"sqlite:///{tmp_path}/a/b c/#100%?/runs.sqlite3".replace("?", "%3F")).close()
    assert list((tmp_path / "a" / "b c").rglob("runs.sqlite3"))


@pytest.mark.parametrize("name", ["a file/runs.sqlite3", "a folder"])
def test_something_else_in_the_way(tmp_path: Path, name: str) -> None:
    (tmp_path / "a file").touch()
    (tmp_path / "a folder").mkdir()
    with pytest.raises(StoreError, match=f"{tmp_path}/{name.split('/')[0]} is in the way"):
        open_store(f"sqlite:///{tmp_path}/{name}")


@pytest.mark.parametrize("write", [False, True])
def test_nothing_is_written_beside_a_file_that_is_no_database(tmp_path: Path, write: bool) -> None:
    other = tmp_path / "passwd"
    if write:
        other.write_text("root:x:0:0:root:/root:/bin/sh\n")
    else:
        os.mkfifo(other)
    with pytest.raises(StoreError, match="not a SQLite database" if write else "is in the way"):
        open_store(f"sqlite:///{other}")
    assert list(tmp_path.iterdir()) == [other]


@pytest.mark.parametrize(("name", "told"), [("loop", "leads to no place"), ("b\udcfcro", "not valid UTF-8")])
def test_a_name_that_leads_nowhere_is_one_line(tmp_path: Path, name: str, told: str) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(StoreError, match=told):
        open_store(f"sqlite:///{tmp_path}/{name}")
    assert [path.name for path in tmp_path.iterdir()] == ["loop"]


def test_a_file_that_is_no_database(path: Path, url: str) -> None:
    path.parent.mkdir()
    path.write_bytes(b"not a database, but longer than the header of one. " * 100)
    before = path.read_bytes()
    with pytest.raises(StoreDamaged, match="restore a copy, or move the file away to start afresh"):
        open_store(url)
    assert path.read_bytes() == before


def test_a_file_with_broken_pages(path: Path, url: str) -> None:
    open_store(url).close()
    tables = path.stat().st_size
    store = open_store(url)
    store.log.append_and_wait(*(event for index in range(40) for event in whole_run(f"r{index}")))
    store.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:tables] + b"\xff" * (len(whole) - tables))
    store = open_store(url)
    with pytest.raises(StoreDamaged):
        store.trace("r20")
    store.close()


async def test_another_program_that_holds_the_database(path: Path, url: str) -> None:
    store = open_store(url, busy_timeout_s=0.05)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreLocked, match="locked by another program"):
        await store.log.append(created("r1"))
    other.execute("ROLLBACK")
    await store.log.append(created("r1"))
    other.close()
    store.close()


async def test_another_process_of_ours_that_hangs_while_writing(url: str) -> None:
    hanging, store = open_store(url), open_store(url, busy_timeout_s=0.05)
    with hanging._database.writing():
        with pytest.raises(StoreLocked, match=r"for 0\.05 s: close that program"):
            await store.log.append(created("r1"))
        with pytest.raises(StoreLocked):
            open_store(url, busy_timeout_s=0.05)
        assert store.runs() == [], "reading needs no lock"
    await store.log.append(created("r1"))
    store.close()
    hanging.close()


def test_a_database_of_a_newer_version_is_left_alone(path: Path, url: str) -> None:
    open_store(url).close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreTooNew, match=r"newer version of this program .* upgrade this program, or name another"):
        open_store(url)
    assert path.read_bytes() == before


def test_a_database_of_another_program_is_left_alone(path: Path, url: str) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE songs (title TEXT)")
    connection.close()
    with pytest.raises(StoreError, match="belongs to another program"):
        open_store(url)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("runs.sqlite3", "is not a database URL: write sqlite:///FOLDER/FILE"),
        ("sqlite://", "names no database file"),
        ("sqlite:///:memory:", "names no database file"),
        ("postgresql://host/runs", "a postgresql database is not supported"),
        ("nonsense://x", "a nonsense database is not supported"),
    ],
)
def test_a_url_that_names_no_file(url: str, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        open_store(url)


async def test_events_can_only_be_added(store: Store) -> None:
    await store.log.append(created("r1"))
    for statement in ("DELETE FROM events", "UPDATE events SET payload = ''"):
        with pytest.raises(sqlite3.IntegrityError, match="events are only ever added"):
            store._database.writer.cursor().execute(statement)
    with pytest.raises(StoreReadOnly), store._database.reading() as connection:
        connection.execute("DELETE FROM runs")


FULL = """
import resource, sys
from storage import open_store
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))  # no file may grow, as on a full disk
store = open_store(sys.argv[1])
print([run.run_id for run in store.runs()], store.trace("r1")[0].status)
print(store.refusal.code, store.refusal)
try:
    store.log.append_and_wait(store.events("r1")[0].event.model_copy(update={"run_id": "r2"}))
except Exception as error:
    print(type(error).__name__)
store.close()
"""


def test_a_database_on_a_disk_that_is_full_is_read_and_names_the_disk(path: Path, url: str) -> None:
    store = open_store(url)
    store.log.append_and_wait(*whole_run("r1"))
    store.close()
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", FULL, url], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "['r1'] completed",
        f"StoreFull no space left for the database {path}: free some space on its disk, then continue; until then its "
        "runs can be read, which nothing records, but nothing can be run",
        "StoreFull",
    ]
    store = open_store(url)
    store.log.append_and_wait(*whole_run("r2"))
    assert [run.status for run in store.runs()] == ["completed", "completed"]
    store.close()


def test_a_blank_place_on_a_disk_that_is_full(path: Path, url: str) -> None:
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", FULL, url], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        f"conductor_core.errors.StoreFull: no space left for the database {path}"
    )
