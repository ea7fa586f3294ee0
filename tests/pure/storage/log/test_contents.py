"""Images are kept once by digest, for as long as a run names them."""

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from conductor_core.chat.messages import LoadedImage
from conductor_core.errors import ContentMissing
from conductor_core.run.request import RunRequest
from storage import Store
from storage.log import event_log as live_runs
from tests.support.command_line import log as main
from tests.support.damaging import doctor
from tests.support.gated_runs import ADA
from tests.support.pictures import part, picture
from tests.support.run_events import created, created_otherwise, whole_run

RED, BLUE = picture(), picture((0, 0, 255))


def kept(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection, connection:
        rows = connection.execute("SELECT sha256 FROM contents ORDER BY sha256").fetchall()
    connection.close()
    return [sha256 for (sha256,) in rows]


async def run_with(store: Store, run_id: str, *images: LoadedImage) -> None:
    store.keep_images(images)
    first, *rest = whole_run(run_id)
    await store.log.append(created_otherwise(first, images=tuple(map(part, images))), *rest)


async def test_an_image_is_kept_once_and_read_by_its_digest(store: Store, path: Path) -> None:
    await run_with(store, "a", RED)
    await run_with(store, "b", RED, BLUE)
    assert kept(path) == sorted([RED.sha256, BLUE.sha256])
    assert store.content(RED.sha256) == ("image/png", RED.data)
    assert store.trace("a")[0].images == (part(RED),)


async def test_an_image_goes_with_the_last_run_that_names_it(store: Store, path: Path) -> None:
    await run_with(store, "a", RED)
    await run_with(store, "b", RED, BLUE)
    store.delete(["b"], ADA)
    assert kept(path) == [RED.sha256]
    store.delete(["a"], ADA)
    assert kept(path) == []
    with pytest.raises(ContentMissing, match="it was deleted, or never kept here"):
        store.content(RED.sha256)


async def test_a_held_run_keeps_its_image(store: Store, path: Path) -> None:
    await run_with(store, "a", RED)
    store.hold(["a"], ADA)
    assert store.delete(["a"], ADA).refused == {"a": "it is held: release it first"}
    assert kept(path) == [RED.sha256]


async def test_what_no_run_names_goes_after_a_day(store: Store, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.keep_images([BLUE])
    await run_with(store, "a", RED)
    store.keep_images([])
    assert len(kept(path)) == 2
    monkeypatch.setattr(live_runs, "UNUSED_KEPT", timedelta(0))
    store.keep_images([RED])
    assert kept(path) == [RED.sha256]


async def test_the_database_refuses_to_change_or_lose_what_a_run_names(store: Store, path: Path) -> None:
    await run_with(store, "a", RED)
    for statement, why in (
        ("UPDATE contents SET data = x'00'", "contents are never changed"),
        ("DELETE FROM contents", "a run names this content"),
        ("DELETE FROM run_contents", "a run keeps its contents"),
        ("UPDATE run_contents SET sha256 = 'x'", "contents are never changed"),
    ):
        with closing(sqlite3.connect(path)) as connection, connection, pytest.raises(sqlite3.IntegrityError, match=why):
            connection.execute(statement)
        connection.close()


async def test_changed_bytes_are_not_given_out(store: Store, path: Path) -> None:
    await run_with(store, "a", RED)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TRIGGER contents_no_update")
        connection.execute("UPDATE contents SET data = ?", (BLUE.data,))
    connection.close()
    with pytest.raises(ContentMissing, match="its bytes have another digest"):
        store.content(RED.sha256)


async def test_a_run_without_images_names_none(store: Store, path: Path) -> None:
    await store.log.append(created("a"))
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute("SELECT count(*) FROM run_contents").fetchone() == (0,)
    connection.close()
    assert RunRequest(task="t").all_images == ()


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("DELETE FROM contents", "an image of the run is missing: the database has no content"),
        ("UPDATE contents SET data = x'00'", "an image of the run is missing: the content"),
        ("DELETE FROM run_contents", "no list says that the run needs the image"),
    ],
)
async def test_verify_misses_an_image_that_was_changed_or_is_gone(
    store: Store, path: Path, statement: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await run_with(store, "a", RED)
    store.close()
    capsys.readouterr()
    assert main(["verify", "--db", str(path)]) == 0
    doctor(path, statement)
    assert main(["verify", "--db", str(path)]) != 0
    assert says in capsys.readouterr().out
