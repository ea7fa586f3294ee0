"""A hub on loopback: downloads that are watched, paused, killed, taken up again; lies and refusals; and removals."""

import errno
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
from huggingface_hub import file_download

from conductor_core.files import FileLock
from conductor_core.inference import hub
from conductor_core.inference.downloads import Download, Downloads
from conductor_core.inference.generation import ModelUnavailable, Unreachable
from conductor_core.inference.hub import ModelInUse
from conductor_core.inference.shared import hold
from conductor_core.inference.source import cache_folder, cached_folder, model_files
from tests.loopback.inference.conftest import CHUNK, REF, weights_of
from tests.support.eventually import eventually
from tests.support.gguf_models import into_hub_cache
from tests.support.hub import COMMIT, LoopbackHub

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


# A hub that says what cannot be so: nothing is written outside its cache, and no disk is filled.

Lie = Callable[[dict[str, object]], None]
DIGEST = "../../../../outside"


def of_weights(**said: object) -> Lie:
    return lambda info: next(each for each in info["siblings"] if "lfs" in each)["lfs"].update(said)  # type: ignore[attr-defined]


LIES: dict[str, tuple[Lie, str]] = {
    "a digest that leads out of the cache": (
        of_weights(sha256=DIGEST, oid=DIGEST),
        "the digest of 'model.safetensors'",
    ),
    "no digest": (of_weights(sha256=None), "the digest"),
    "no size": (of_weights(size=None), "the size"),
    "a size below zero": (of_weights(size=-1), "the size"),
    "a commit that leads out of the cache": (lambda info: info.update(sha="../../../outside"), "its commit"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_hub_that_lists_what_cannot_be_is_not_believed(
    lie: str, model: Path, cache: Path, asked: Callable[[LoopbackHub], None], tmp_path: Path
) -> None:
    change, says = LIES[lie]
    (tmp_path / "outside.part").write_text("somebody's")
    with LoopbackHub({REF: model}, lie=change) as server:
        asked(server)
        with pytest.raises(ModelUnavailable, match=says):
            hub.download(REF)
    assert {each.name for each in tmp_path.iterdir()} == {"model", "cache", "outside.part"}
    assert (tmp_path / "outside.part").read_text() == "somebody's"
    assert not server.asked


def test_a_tag_that_leads_out_of_the_cache_is_no_path(
    model: Path, cache: Path, asked: Callable[[LoopbackHub], None], tmp_path: Path
) -> None:
    with LoopbackHub({REF: model}, tag="../../../outside") as server:
        asked(server)
        with pytest.raises(ModelUnavailable, match="the tag or commit of '"):
            hub.download(REF)
    assert {each.name for each in tmp_path.iterdir()} == {"model", "cache"}


@pytest.mark.parametrize(
    "name",
    [
        "../../../../evil.json",
        "/evil.json",
        "onnx/model.safetensors",
        "consolidated.safetensors",
        "a\nb.json",
        "x" * 300,
    ],
)
def test_a_file_that_is_not_of_the_models_folder_is_left_out(
    name: str, model: Path, cache: Path, asked: Callable[[LoopbackHub], None], tmp_path: Path
) -> None:
    with LoopbackHub({REF: model}, also=(name,)) as server:
        asked(server)
        folder = hub.download(REF)
    assert {each.name for each in folder.iterdir()} == {each.name for each in model.iterdir()}
    assert {each.name for each in tmp_path.iterdir()} == {"model", "cache"}


def test_xet_is_not_used_by_which_a_hub_could_send_the_key_to_another_host(
    model: Path, cache: Path, asked: Callable[[LoopbackHub], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with LoopbackHub({}) as other, LoopbackHub({REF: model}, xet=other.url) as server:
        asked(server)
        hub.download(REF)
        assert not other.requests
        assert server.requests
    assert cached_folder(REF) is not None


@pytest.mark.parametrize("answer", [b"<html>Log in to this network</html>", b"[]", b"7", b"{}"])
def test_what_answers_unlike_a_hub_is_told_in_one_line(
    answer: bytes, model: Path, cache: Path, asked: Callable[[LoopbackHub], None]
) -> None:
    with LoopbackHub({REF: model}, says=answer) as server:
        asked(server)
        with pytest.raises(
            ModelUnavailable, match=r"^someone/small.*(does not answer as a hub does|offers no safetensors)"
        ):
            hub.download(REF)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_file_without_end_ends_where_the_hub_said(
    name: str, model: Path, cache: Path, asked: Callable[[LoopbackHub], None]
) -> None:
    with LoopbackHub({REF: model}, endless=name) as server:
        asked(server)
        with pytest.raises(ModelUnavailable, match=r"other bytes than the hub says|more bytes than it listed"):
            hub.download(REF)
    here = sum(file.stat().st_size for file in cache.rglob("*") if file.is_file() and not file.is_symlink())
    assert here < 2 * weights_of(model) + 3_000_000
    with LoopbackHub({REF: model}) as server:
        asked(server)
        assert hub.download(REF) == cached_folder(REF)


def test_the_weights_and_the_other_files_are_of_one_commit(
    model: Path, cache: Path, asked: Callable[[LoopbackHub], None]
) -> None:
    later: list[str] = []

    def newer(info: dict[str, object]) -> None:
        later.append("asked")
        if len(later) > 1:
            info["sha"] = "b" * 40

    with LoopbackHub({REF: model}, lie=newer) as server:
        asked(server)
        folder = hub.download(REF)
    assert folder.name == COMMIT
    assert (cache_folder(REF) / "refs" / "main").read_text() == COMMIT


# What a hub, a disk or another program refuses: one sentence says what to do, and nothing half-written is used.

Ask = Callable[[LoopbackHub], None]


@pytest.mark.parametrize(
    ("status", "headers", "says"),
    [
        (401, {"X-Error-Code": "RepoNotFound"}, "no public model 'someone/small': check its name, or set HF_TOKEN"),
        (403, {"X-Error-Code": "GatedRepo"}, "is gated: accept its licence on the hub, and set HF_TOKEN"),
        (404, {"X-Error-Code": "RepoNotFound"}, "no public model 'someone/small'"),
        (429, {"Retry-After": "7"}, "the hub takes no more requests now: try again in 7 s$"),
        (429, {"Retry-After": "9" * 30}, "try again in some minutes$"),
        (429, {}, "try again in some minutes$"),
        (500, {}, "could not be downloaded: Server error '500"),
    ],
)
def test_a_hub_that_refuses_is_told_in_one_line(
    status: int, headers: dict[str, str], says: str, model: Path, cache: Path, asked: Ask
) -> None:
    with LoopbackHub({REF: model}, refusal=(status, headers)) as server:
        asked(server)
        with pytest.raises(ModelUnavailable, match=says) as caught:
            hub.download(REF)
        assert "\n" not in str(caught.value)
        assert not isinstance(caught.value, Unreachable)
        server.refusal = None
        hub.download(REF)
    assert model_files(REF).size_bytes == weights_of(model)


def test_a_hub_that_is_there_is_reached_and_one_that_is_not_is_not(model: Path, cache: Path, asked: Ask) -> None:
    with LoopbackHub({REF: model}) as server:
        asked(server)
        assert hub.is_reachable()
    assert not hub.is_reachable()
    with pytest.raises(Unreachable):
        hub.download(REF)


def test_a_disk_that_fills_up_meanwhile_loses_nothing_that_came(
    model: Path, cache: Path, asked: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole_get = file_download.http_get

    def full(url: str, file: object, **how: object) -> None:
        class Full:
            def __init__(self) -> None:
                self.left = 4 * CHUNK

            def write(self, data: bytes) -> int:
                written: int = file.write(data[: self.left])  # type: ignore[attr-defined]
                self.left -= written
                if written < len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return written

            def __getattr__(self, name: str) -> object:
                return getattr(file, name)

        whole_get(url, Full(), **how)  # type: ignore[arg-type]

    with LoopbackHub({REF: model}) as server:
        asked(server)
        with monkeypatch.context() as patched:
            patched.setattr(file_download, "http_get", full)
            with pytest.raises(ModelUnavailable, match=r"the disk of .* is full: free some space and continue$"):
                hub.download(REF)
        assert cached_folder(REF) is None
        kept = hub.partly_here_bytes(REF)
        assert kept == 4 * CHUNK
        hub.download(REF)
    assert server.ranges()[-1] == f"bytes={kept}-"


def test_a_cancelled_download_leaves_nothing_and_can_begin_anew(model: Path, cache: Path, asked: Ask) -> None:
    downloads = Downloads()
    with LoopbackHub({REF: model}, bytes_per_s=100_000) as server:
        asked(server)
        downloads.begin([REF])
        until(downloads, lambda now: now.state == "running" and now.here_bytes > 2 * CHUNK)
        downloads.cancel(REF)
        assert downloads.state(REF).state == "absent", "it is gone at once for whoever looks"
        until(downloads, lambda now: not cache_folder(REF).exists())
        downloads.begin([REF])
        downloads.pause([REF])
        until(downloads, lambda now: now.state == "paused")
        downloads.begin([REF])
        until(downloads, lambda now: now.state == "running" and now.here_bytes > 2 * CHUNK)
        downloads.pause([REF])
        until(downloads, lambda _: all(thread.name != "downloads" for thread in threading.enumerate()))
        server.refusal = (503, {})
        downloads.begin([REF])
        failed = until(downloads, lambda now: now.state == "failed")
        assert failed.here_bytes > 2 * CHUNK, "what came before the failure is still here"
        server.refusal = None
        downloads.cancel(REF)
        until(downloads, lambda now: now.state == "absent" and not cache_folder(REF).exists())
        server.bytes_per_s = 0
        downloads.begin([REF])
        until(downloads, lambda now: now.state == "here")
        downloads.cancel(REF)
        assert downloads.state(REF).state == "here", "what is whole is no part"
    assert not list(cache.glob(".deleted-*"))


def test_a_model_in_use_is_not_deleted_and_one_that_is_not_is_gone_whole(model: Path, cache: Path, asked: Ask) -> None:
    with LoopbackHub({REF: model}) as server:
        asked(server)
        folder = hub.download(REF)
    before = sum(each.stat().st_size for each in cache_folder(REF).rglob("*") if not each.is_symlink())
    mark = hold(folder)
    assert mark is not None
    with pytest.raises(ModelInUse, match="another program on this machine has someone/small in memory"):
        hub.remove(REF)
    mark.close()
    assert weights_of(model) < hub.remove(REF) <= before
    assert cached_folder(REF) is None
    assert not list(cache.glob("*small*"))
    for gone in (REF, "../../outside", "no id"):
        with pytest.raises(ModelUnavailable, match="the hub's cache has nothing of"):
            hub.remove(gone)


def test_a_part_that_another_program_writes_is_shown_as_moving_and_stays(model: Path, cache: Path) -> None:
    blobs = cache_folder(REF) / "blobs"
    blobs.mkdir(parents=True)
    (blobs / "b.part").write_bytes(bytes(100))
    other = FileLock(blobs / "b.part")
    assert other.try_acquire()
    downloads = Downloads()
    now = downloads.state(REF)
    assert (now.state, now.here_bytes, now.elsewhere) == ("running", 100, True)
    with pytest.raises(ModelInUse, match="is being downloaded by another program"):
        downloads.cancel(REF)
    other.close()
    assert downloads.state(REF).state == "paused"
    downloads.cancel(REF)
    assert downloads.state(REF).state == "absent"


def test_a_link_in_the_cache_is_not_followed_by_a_removal(cache: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    cache_folder(REF).symlink_to(elsewhere)
    with pytest.raises(ModelUnavailable, match="is a link to"):
        hub.remove(REF)
    assert elsewhere.is_dir()


def test_a_gguf_file_is_deleted_with_its_bytes_and_nothing_else(tmp_path: Path) -> None:
    link = into_hub_cache(tmp_path, "a/b-GGUF", "Q4_K_M/b-Q4_K_M.gguf", b"x" * 100)
    blob = link.resolve()
    again = link.parents[1].with_name("d" * 40) / link.name
    again.parent.mkdir()
    again.symlink_to(blob)
    assert hub.remove_file(link) == 0, "another revision has it, too"
    assert blob.exists()
    assert hub.remove_file(again) == 100
    assert not blob.exists()
    own = tmp_path / "own.gguf"
    own.write_bytes(b"mine")
    link.symlink_to(own)
    assert hub.remove_file(link) == 0
    assert own.exists(), "a link that a person made leads to a file of theirs"
