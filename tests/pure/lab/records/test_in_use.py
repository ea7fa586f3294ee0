"""Who writes a folder: one process at a time, and whoever asks does not stand in its way."""

import shutil
import socket
import threading
from pathlib import Path

import pytest

from conductor_core.errors import BadInput
from conductor_core.lab.records import LOCK, hold, in_use, release
from tests.support.holding import another_process


def test_a_folder_is_held_until_its_process_ends_however_that_happens(tmp_path: Path) -> None:
    with another_process(tmp_path) as pid:
        assert in_use(tmp_path) is True
        with pytest.raises(
            BadInput, match=rf"{tmp_path} is in use by another process \({pid} on {socket.gethostname()}\): wait"
        ):
            hold(tmp_path)
    assert in_use(tmp_path) is False
    hold(tmp_path)
    hold(tmp_path)
    assert in_use(tmp_path) is True
    release(tmp_path)
    release(tmp_path)
    assert in_use(tmp_path) is False


def test_what_cannot_be_told_is_unknown(tmp_path: Path) -> None:
    assert in_use(tmp_path) is None, "nobody ever took it, or an older version that takes no lock"
    assert in_use(tmp_path / "nothing") is None
    (tmp_path / LOCK).write_text("elsewhere 17\n")
    assert in_use(tmp_path) is None, "a lock of another host may not be seen here"


def test_a_page_that_asks_keeps_nobody_out(tmp_path: Path) -> None:
    hold(tmp_path)
    release(tmp_path)
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            in_use(tmp_path)

    asking = [threading.Thread(target=ask) for _ in range(2)]
    for each in asking:
        each.start()
    try:
        for _ in range(200):
            hold(tmp_path)
            release(tmp_path)
    finally:
        done.set()
        for each in asking:
            each.join()


def test_a_folder_that_was_made_anew_is_taken_anew(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    hold(folder)
    shutil.rmtree(folder)
    folder.mkdir()
    hold(folder)
    assert in_use(folder) is True
    release(folder)
    assert in_use(folder) is False
