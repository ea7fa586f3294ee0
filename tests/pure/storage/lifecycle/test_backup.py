"""A copy of the main file alone loses what is in the log beside it; a backup does not, and overwrites nothing."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest

from conductor_core.cli import log_lifecycle as backup
from storage import open_store
from tests.support.command_line import log as main
from tests.support.eventually import eventually
from tests.support.run_events import whole_run

ROOT = Path(__file__).parents[4]


def runs_in(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM runs").fetchone()
    return int(count)


def test_a_backup_has_all_while_the_database_is_in_use(
    path: Path, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_store(url)
    store.log.append_and_wait(*whole_run("a"), *whole_run("b"))
    copy = tmp_path / "copy.sqlite3"
    assert main(["backup", str(copy), "--db", url]) == 0
    assert "2 runs" in capsys.readouterr().out
    store.log.append_and_wait(*whole_run("c"))
    store.close()
    assert sorted(each.name for each in tmp_path.iterdir() if each.is_file()) == ["copy.sqlite3"]
    copied = open_store(f"sqlite:///{copy}")
    assert [run.run_id for run in copied.runs()] == ["b", "a"]
    assert copied.trace("a")[0].status == "completed"
    copied.close()


def test_a_backup_overwrites_nothing(path: Path, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    open_store(url).close()
    there = tmp_path / "there"
    there.write_text("mine")
    assert main(["backup", str(there), "--db", str(path)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert there.read_text() == "mine"


@pytest.mark.parametrize(
    ("database", "message"),
    [("none.sqlite3", "no database at"), ("text.sqlite3", "not a SQLite database"), ("damaged.sqlite3", "damaged")],
)
def test_what_is_no_whole_database_gets_no_backup(
    path: Path, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], database: str, message: str
) -> None:
    (tmp_path / "text.sqlite3").write_text("no database at all, and long enough to be read as one" * 20)
    store = open_store(url)
    store.log.append_and_wait(*(event for index in range(40) for event in whole_run(f"r{index}")))
    store.close()
    whole = path.read_bytes()
    (tmp_path / "damaged.sqlite3").write_bytes(whole[: len(whole) // 2] + b"\xff" * (len(whole) // 2))
    assert main(["backup", str(tmp_path / "copy"), "--db", str(tmp_path / database)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "copy").exists()
    assert not list(tmp_path.glob(".copy-*"))


def _wait_until_moved(path: Path, runs: int, copy: Path) -> None:
    """Until a copy of the main file alone holds ``runs`` runs."""

    def moved() -> bool:
        shutil.copyfile(path, copy)
        with suppress(sqlite3.DatabaseError):  # copied while it was written
            return runs_in(copy) == runs
        return False

    eventually(moved)


def test_the_log_is_moved_into_the_main_file_while_nothing_happens(path: Path, url: str, tmp_path: Path) -> None:
    store = open_store(url)
    store.log.append_and_wait(*whole_run("a"), *whole_run("b"))
    _wait_until_moved(path, 2, tmp_path / "copy.sqlite3")
    store.close()


def test_the_log_of_a_killed_process_is_moved_by_the_next_that_only_reads(path: Path, url: str, tmp_path: Path) -> None:
    code = (
        "import sys; from storage import open_store; from tests.support.run_events import whole_run; "
        "store = open_store(sys.argv[1]); store.log.append_and_wait(*whole_run('a')); print('there', flush=True); "
        "sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, url], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdin is not None
    process.stdout.readline()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    process.stdin.close()
    store = open_store(url)
    _wait_until_moved(path, 1, tmp_path / "copy.sqlite3")
    store.close()


def test_a_log_that_was_rolled_back_is_a_finding_of_its_backup(
    path: Path, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup, "_record_backup", lambda *_: "it cannot be written")
    for run_id in "ab":
        store = open_store(url)
        store.log.append_and_wait(*whole_run(run_id))
        store.close()
        if run_id == "a":
            assert main(["backup", str(tmp_path / "older"), "--db", url]) == 0
    shutil.copyfile(tmp_path / "older", path)
    capsys.readouterr()
    assert main(["backup", str(tmp_path / "copy"), "--db", url]) == 17
    assert "nothing was found" not in capsys.readouterr().out
