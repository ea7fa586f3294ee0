"""Downloads of models from a hub on loopback: watched, paused, killed, taken up again, and all that can go wrong."""

import hashlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from conductor_core.files import FileLock
from conductor_core.inference import hub
from conductor_core.inference.downloads import Download, Downloads
from conductor_core.inference.generation import ModelUnavailable
from conductor_core.inference.source import cache_folder, cached_folder, model_files
from tests.loopback.inference.conftest import CHUNK, REF, weights_of
from tests.support.eventually import eventually
from tests.support.hub import LoopbackHub

PATIENCE_S = 60.0


def until(downloads: Downloads, met: Callable[[Download], bool]) -> Download:
    def reached() -> Download | None:
        now = downloads.state(REF)
        return now if met(now) else None

    found = eventually(reached)
    assert found is not None
    return found


def test_a_model_is_downloaded_whole_and_can_be_opened(
    model: Path, cache: Path, asked: Callable[[LoopbackHub], None]
) -> None:
    told: list[tuple[int, int]] = []
    with LoopbackHub({REF: model}) as server:
        asked(server)
        folder = hub.download(REF, lambda here, whole: told.append((here, whole)))
    whole = weights_of(model)
    assert told[0] == (0, whole)
    assert told[-1] == (whole, whole)
    assert [here for here, _ in told] == sorted(here for here, _ in told)
    assert len(told) > 2
    assert folder == cached_folder(REF)
    assert model_files(REF).size_bytes == whole
    for file in model.iterdir():
        assert (folder / file.name).read_bytes() == file.read_bytes()
    assert server.ranges() == [""], "the weights were asked for once"


def test_a_paused_download_goes_on_where_it_stopped(
    model: Path, cache: Path, asked: Callable[[LoopbackHub], None]
) -> None:
    downloads, whole = Downloads(), weights_of(model)
    with LoopbackHub({REF: model}, bytes_per_s=100_000) as server:
        asked(server)
        assert downloads.state(REF).state == "absent"
        downloads.begin([REF])
        running = until(downloads, lambda now: now.state == "running" and now.here_bytes > 8 * CHUNK)
        assert running.all_bytes == whole
        downloads.pause([REF])
        paused = until(downloads, lambda now: now.state == "paused")
        assert 0 < paused.here_bytes < whole
        assert paused.bytes_per_s == 0
        until(downloads, lambda _: all(thread.name != "downloads" for thread in threading.enumerate()))
        assert cached_folder(REF) is None, "half a model is no model"
        server.bytes_per_s = 0
        downloads.begin([REF])
        until(downloads, lambda now: now.state == "here")
    first, second = server.ranges()
    assert first == ""
    begun = int(second.removeprefix("bytes=").removesuffix("-"))
    assert 8 * CHUNK <= begun < whole, "what was here is not asked for again"
    assert model_files(REF).size_bytes == whole
    assert not list(cache.rglob("*.part"))


@pytest.mark.parametrize("bytes_per_s", [1.0, 0.001])
def test_a_pause_is_told_at_once_however_slowly_the_bytes_come(
    bytes_per_s: float, model: Path, cache: Path, asked: Callable[[LoopbackHub], None]
) -> None:
    downloads = Downloads()
    with LoopbackHub({REF: model}, bytes_per_s=bytes_per_s) as server:
        asked(server)
        downloads.begin([REF])
        until(downloads, lambda now: now.state == "running" and bool(server.ranges()))
        downloads.pause([REF])
        assert downloads.state(REF).state == "paused"
        downloads.begin([REF])
        assert downloads.state(REF).state == "running", "a pause that was not heard yet is taken back"
        downloads.pause([REF])
        # The next byte may come in a quarter of an hour.
        until(downloads, lambda now: now.state == "paused")


@pytest.mark.usefixtures("cache")
def test_what_was_cancelled_does_not_count_for_a_download_that_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(_: str, told: Callable[[int, int], None]) -> None:
        while True:
            told(3 * CHUNK, 4 * CHUNK)
            time.sleep(0.005)

    downloads = Downloads(download)

    shown: list[int] = []

    def begun_and_paused_meanwhile(ref: str) -> None:
        downloads.begin([ref])
        shown.append(downloads.state(REF).here_bytes)
        downloads.pause([ref])

    monkeypatch.setattr("conductor_core.inference.downloads._discard", begun_and_paused_meanwhile)
    downloads.begin([REF])
    until(downloads, lambda now: now.here_bytes > 0)
    downloads.cancel(REF)
    until(downloads, lambda _: all(thread.name != "downloads" for thread in threading.enumerate()))
    after = downloads.state(REF)
    assert (after.state, after.here_bytes) == ("paused", 0)
    assert shown == [0]


def test_at_one_byte_a_second_each_byte_is_told_and_a_pause_ends_the_download(
    model: Path, cache: Path, asked: Callable[[LoopbackHub], None]
) -> None:
    with LoopbackHub({REF: model}, bytes_per_s=1) as server:
        asked(server)
        told: list[int] = []

        def stop_at_the_second_byte(here: int, _: int) -> None:
            told.append(here)
            if here >= 2:
                raise InterruptedError

        with pytest.raises(InterruptedError):
            hub._download(REF, "", stop_at_the_second_byte)
    assert told == [0, 1, 2]


_KILLED = """
import sys
from conductor_core.inference import hub
hub.download(sys.argv[1], lambda here, whole: print(here, flush=True))
"""


def test_what_a_killed_program_had_downloaded_is_not_downloaded_again(
    model: Path, cache: Path, asked: Callable[[LoopbackHub], None]
) -> None:
    with LoopbackHub({REF: model}, bytes_per_s=100_000) as server:
        environment = {**os.environ, "HF_ENDPOINT": server.url, "HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "0"}
        command = [sys.executable, "-c", _KILLED, REF]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as killed:
            assert killed.stdout is not None
            while int(killed.stdout.readline()) < 10 * CHUNK:
                pass
            killed.kill()
        downloads = Downloads()
        left = downloads.state(REF)
        assert left.state == "paused", "a new program sees what the other left"
        assert left.here_bytes >= 5 * CHUNK
        asked(server)
        server.bytes_per_s = 0
        downloads.begin([REF])
        until(downloads, lambda now: now.state == "here")
        assert server.ranges()[-1] == f"bytes={left.here_bytes}-"
    folder = cached_folder(REF)
    assert folder is not None
    assert (folder / "model.safetensors").read_bytes() == (model / "model.safetensors").read_bytes()


def test_a_stream_that_breaks_off_is_taken_up_by_itself(
    model: Path, cache: Path, asked: Callable[[LoopbackHub], None]
) -> None:
    with LoopbackHub({REF: model}, cut_after=weights_of(model) // 2 + 1) as server:
        asked(server)
        hub.download(REF)
    first, *rest = server.ranges()
    assert first == ""
    assert rest
    assert all(rest)
    assert model_files(REF).size_bytes == weights_of(model)


def test_other_bytes_than_the_hub_names_are_refused_and_not_kept(
    model: Path, cache: Path, asked: Callable[[LoopbackHub], None]
) -> None:
    with LoopbackHub({REF: model}, wrong=frozenset({"model.safetensors"})) as server:
        asked(server)
        with pytest.raises(ModelUnavailable, match=r"^model\.safetensors of someone/small came with other bytes"):
            hub.download(REF)
        assert not list(cache.rglob("*.part"))
        server.wrong = frozenset()
        hub.download(REF)
    assert model_files(REF).size_bytes == weights_of(model)


def test_a_part_that_is_longer_than_the_file_is_begun_anew(
    model: Path, cache: Path, asked: Callable[[LoopbackHub], None]
) -> None:
    with LoopbackHub({REF: model}, wrong=frozenset({"model.safetensors"})) as server:
        asked(server)
        with pytest.raises(ModelUnavailable):
            hub.download(REF)
        server.wrong = frozenset()
        blobs = cache_folder(REF) / "blobs"
        (blobs / f"{_digest(model)}.part").write_bytes(bytes(weights_of(model) + 1))
        hub.download(REF)
    assert model_files(REF).size_bytes == weights_of(model)


def _digest(model: Path) -> str:
    return hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest()


def test_a_disk_without_room_is_told_before_anything_is_downloaded(
    model: Path, cache: Path, asked: Callable[[LoopbackHub], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    all_files = sum(file.stat().st_size for file in model.iterdir())
    room = SimpleNamespace(free=hub.SPARE_BYTES + all_files - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: room)
    downloads = Downloads()
    with LoopbackHub({REF: model}) as server:
        asked(server)
        downloads.begin([REF])
        failed = until(downloads, lambda now: now.state == "failed")
        assert failed.reason.startswith("someone/small needs 0.0 GB more in ")
        assert failed.reason.endswith("0.2 GB are free: make room, or set HF_HOME to a folder on another disk")
        assert server.asked == []
        room.free += 1
        downloads.begin([REF])
        until(downloads, lambda now: now.state == "here")


def test_two_programs_do_not_write_one_part(model: Path, cache: Path, asked: Callable[[LoopbackHub], None]) -> None:
    blobs = cache_folder(REF) / "blobs"
    blobs.mkdir(parents=True)
    other = FileLock(blobs / f"{_digest(model)}.part")
    assert other.try_acquire()
    with LoopbackHub({REF: model}) as server:
        asked(server)
        with pytest.raises(ModelUnavailable, match="is being downloaded by another program on this machine"):
            hub.download(REF)
        other.close()
        hub.download(REF)
    assert model_files(REF).size_bytes == weights_of(model)


def test_models_are_downloaded_in_turn_and_one_that_fails_holds_up_no_other(
    model: Path, cache: Path, asked: Callable[[LoopbackHub], None]
) -> None:
    downloads = Downloads()
    with LoopbackHub({REF: model}, bytes_per_s=200_000) as server:
        asked(server)
        downloads.begin(["nobody/nothing", REF, "nobody/else"])
        assert downloads.state(REF).state in ("waiting", "running")
        downloads.pause(["nobody/else"])
        until(downloads, lambda now: now.state == "here")
    failed = downloads.state("nobody/nothing")
    assert (failed.state, "no public model 'nobody/nothing'" in failed.reason) == ("failed", True)
    assert downloads.state("nobody/else").state == "paused"
    downloads.begin([REF])
    assert downloads.state(REF).state == "here", "what is here is not downloaded again"


def test_a_dead_hub_is_named_and_can_be_tried_again(
    model: Path, cache: Path, asked: Callable[[LoopbackHub], None]
) -> None:
    downloads = Downloads()
    with LoopbackHub({REF: model}) as gone:
        asked(gone)
    downloads.begin([REF])
    failed = until(downloads, lambda now: now.state == "failed")
    assert f"the hub {gone.url} cannot be reached: connect this machine" in failed.reason
    with LoopbackHub({REF: model}) as server:
        asked(server)
        downloads.begin([REF])
        until(downloads, lambda now: now.state == "here")


def test_odd_entries_of_the_cache_hide_no_other_model(
    model: Path, cache: Path, asked: Callable[[LoopbackHub], None]
) -> None:
    with LoopbackHub({REF: model}) as server:
        asked(server)
        folder = hub.download(REF)
    repository = cache_folder(REF)
    (repository / "snapshots" / ("b" * 40)).symlink_to("/nowhere")
    (repository / "blobs" / f"{'c' * 64}.part").symlink_to("/nowhere/at/all")
    (repository / "blobs" / ("d" * 64)).symlink_to("/nowhere")
    for newest in (b"\xff\xfe", b"x" * 400, b"../../../..", b"\0", b""):
        (repository / "refs" / "main").write_bytes(newest)
        assert cached_folder(REF) == folder
        assert not hub.is_downloaded_elsewhere(REF)
        assert hub.partly_here_bytes(REF) == 0
        assert Downloads().state(REF).state == "here"
