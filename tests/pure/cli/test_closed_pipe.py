"""Whoever reads a command's output may leave, as ``head`` does: no command says anything about that."""

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from conductor_core.run.actor import local_caller
from storage import open_store
from storage.bundles import verifier_source
from tests.support.run_events import whole_run


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "runs.sqlite3"
    with closing(open_store(f"sqlite:///{path}")) as store:
        store.log.append_and_wait(*whole_run("done"))
        store.access_log.viewed(["done"], "run page", local_caller("page"))
    return path


def left_alone(*command: str) -> subprocess.CompletedProcess[str]:
    """Runs a command whose output nobody reads any more when it begins to print."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return subprocess.run(
            [sys.executable, *command], stdout=writer, stderr=subprocess.PIPE, text=True, check=False, timeout=120
        )
    finally:
        os.close(writer)


@pytest.mark.parametrize(
    "command",
    [
        ("storage", "access"),
        ("storage", "verify"),
        ("storage", "key"),
        ("storage", "search", "the"),
        ("storage", "--help"),
        ("conductor_core", "runs"),
        ("conductor_core", "show", "done"),
        ("conductor_core", "--help"),
    ],
    ids=" ".join,
)
def test_no_command_complains_about_a_closed_pipe(database: Path, command: tuple[str, ...]) -> None:
    db = () if command[-1] == "--help" else ("--db", str(database))
    done = left_alone("-m", *command, *db)
    complaints = [line for line in done.stderr.splitlines() if not line.endswith(" checked")]  # progress, if it is slow
    assert (done.returncode in (0, 1), complaints) == (True, [])


def test_the_shipped_verifier_does_not_either(tmp_path: Path) -> None:
    (tmp_path / "verify.py").write_text(verifier_source())
    done = left_alone(str(tmp_path / "verify.py"), "--help")
    assert done.stderr == ""


def test_a_full_disk_is_one_line(database: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "storage", "access", "--db", str(database)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("error: ")
