"""What a hub, a disk or another program refuses: one sentence says what to do, and nothing half-written is used."""

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import file_download

from conductor_core.files import FileLock
from conductor_core.inference import hub
from conductor_core.inference.downloads import Downloads
from conductor_core.inference.generation import ModelUnavailable, Unreachable
from conductor_core.inference.hub import ModelInUse
from conductor_core.inference.shared import hold
from conductor_core.inference.source import cache_folder, cached_folder, model_files
from tests.loopback.inference.conftest import CHUNK, REF, weights_of
from tests.loopback.inference.test_downloads import until
from tests.support.gguf_models import into_hub_cache
from tests.support.hub import LoopbackHub

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
