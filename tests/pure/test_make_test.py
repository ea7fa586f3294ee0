"""Every test belongs to one command of the Makefile."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
APART = ("test-training", "test-servers", "test-exports", "test-names")


def folders(target: str, option: str = "") -> set[str]:
    """The folders of tests that the command of ``target`` names, plain or behind ``option``. Nothing is run."""
    told = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    pytest_line = next(line for line in reversed(told.splitlines()) if "-m pytest" in line)
    return set(re.findall(rf"(?<= {option})tests/\S+", pytest_line))


def test_what_make_test_leaves_out_is_what_the_other_commands_run() -> None:
    apart = [folders(target) for target in APART]
    assert folders("test") == set(), "it runs all folders but those that it leaves out"
    assert folders("test", "--ignore=") == set().union(*apart)
    assert sum(map(len, apart)) == len(set().union(*apart))
    for folder in set().union(*apart):
        assert list((ROOT / folder).rglob("test_*.py")), folder
