"""``.ci/run`` forgives a test that fails among the others and passes alone; it says so, and forgives nothing else."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ["test", "test-training", "test-servers", "test-exports", "test-names", "check"]
FLAKY = """
def test_now_and_then():
    import pathlib
    ran = pathlib.Path("ran").exists()
    pathlib.Path("ran").touch()
    assert ran
"""
BROKEN = "def test_broken():\n    assert False\n"
FINE = "def test_fine():\n    pass\n"
KILLED = "def test_killed():\n    import os, signal\n    os.kill(os.getpid(), signal.SIGKILL)\n"
STOPPED = f"{FLAKY}\ndef test_stopped():\n    raise KeyboardInterrupt\n"
OTHER_NAMES = """
import pytest, uuid

@pytest.mark.parametrize("drawn", [uuid.uuid4().hex])
def test_named(drawn):
    assert False
"""


def run_ci(folder: Path, text: str, failing: str = "") -> tuple[int, str, list[str]]:
    """Runs it in a project whose ``make test`` runs the tests ``text``; the target ``failing`` fails without a test.

    Returns the exit code, what it printed, and the targets that were made.
    """
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", folder / ".ci" / "run")
    (folder / "test_it.py").write_text(text)
    (folder / "conftest.py").write_text("from tests.conftest import pytest_sessionfinish as pytest_sessionfinish\n")
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "python").symlink_to(sys.executable)
    make = folder / "bin" / "make"
    make.parent.mkdir()
    make.write_text(
        f'#!/bin/sh\necho "$1" >> made\nif [ "$1" = test ]; then {sys.executable} -m pytest -q || exit 2; fi\n'
        f'[ "$1" != "{failing}" ]\n'
    )
    make.chmod(0o755)
    environment = {
        "PATH": f"{make.parent}:{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT}:{':'.join(sys.path)}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(["bash", ".ci/run"], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr + done.stdout, (folder / "made").read_text().split()


def test_it_runs_every_command(tmp_path: Path) -> None:
    code, printed, made = run_ci(tmp_path, FINE)
    assert (code, made) == (0, TARGETS), printed
    assert "flaky" not in printed


def test_what_passes_alone_is_named_as_flaky(tmp_path: Path) -> None:
    code, printed, made = run_ci(tmp_path, f"{FINE}\n{FLAKY}")
    assert (code, made) == (0, TARGETS), printed
    assert printed.split("flaky: ")[1].splitlines()[1:] == ["  test_it.py::test_now_and_then"]
    assert "1 passed" in printed, "only what failed runs again"


@pytest.mark.parametrize("text", [f"{FLAKY}\n{BROKEN}", KILLED, STOPPED, OTHER_NAMES, "def broken(:\n"])
def test_whatever_else_fails_fails(tmp_path: Path, text: str) -> None:
    code, printed, made = run_ci(tmp_path, text)
    assert (code != 0, made) == (True, ["test"]), printed
    if BROKEN in text:
        assert "  test_it.py::test_now_and_then\n  test_it.py::test_broken" in printed, "they are named all the same"


@pytest.mark.parametrize("failing", ["test", "test-exports", "check"])
def test_a_command_that_fails_without_a_test_fails(tmp_path: Path, failing: str) -> None:
    code, printed, made = run_ci(tmp_path, FINE, failing)
    assert (code != 0, made) == (True, TARGETS[: TARGETS.index(failing) + 1]), printed
