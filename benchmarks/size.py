"""How large the program is, now and at other revisions.

    python -m benchmarks.size [--at REVISION ...] [--without-run]

Counted are tracked files: those of Python outside of tests and benchmarks, and their lines; the modules of ours that
`conductor run --workflow` imports for one step of a simulated worker; words of docs with README, without and with
decisions and research. A revision is checked out into a temporary folder as a git
worktree; it runs with the packages of this environment. That is why no Conductor is in that run: older ones need other
packages.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_IMPORTED = re.compile(r"^import time:.*\|\s+((?:conductor_core|storage|pages)[\w.]*)$", re.MULTILINE)


@contextmanager
def checkout(revision: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkout"
        _git(ROOT, "worktree", "add", "--detach", str(path), revision)
        try:
            yield path
        finally:
            _git(ROOT, "worktree", "remove", "--force", str(path))


def _git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def _texts(root: Path, *patterns: str) -> dict[str, str]:
    """The tracked files of these patterns, and what is in them."""
    names = _git(root, "ls-files", "-z", "--", *patterns).split("\0")
    return {name: (root / name).read_text(encoding="utf-8") for name in names if name and (root / name).exists()}


def modules_of_a_run(root: Path) -> int:
    """How many modules of ours a run of one step imports. Raises: CalledProcessError if it fails."""
    step = {"agent": "scientist", "instruction": "Answer: {question}", "access_list": []}
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "CONDUCTOR_DATA_FOLDER": folder,
            "CONDUCTOR_SERVER_PORTS": "",
            "CONDUCTOR_CONSTRAINED": "0",
        }
        file = Path(folder) / "workflow.json"
        file.write_text(json.dumps({"task": "What is the chemical symbol of tungsten?", "steps": [step]}))
        command = [sys.executable, "-X", "importtime", "-m", "conductor_core", "run", "--workflow", str(file)]
        done = subprocess.run(command, cwd=root, env=environment, check=True, capture_output=True, text=True)
    return len(set(_IMPORTED.findall(done.stderr)))


def measure(root: Path, *, run: bool) -> dict[str, int]:
    product = _texts(root, "*.py", ":!tests", ":!benchmarks")
    words = {name: len(text.split()) for name, text in _texts(root, "docs/*.md", "README.md").items()}
    deep = sum(count for name, count in words.items() if name.startswith(("docs/research/", "docs/decisions/")))
    found = {
        "product files": len(product),
        "product lines": sum(text.count("\n") for text in product.values()),
    }
    if run:
        found["modules in a run"] = modules_of_a_run(root)
    return found | {"words of docs for users": sum(words.values()) - deep, "words of all docs": sum(words.values())}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--at", nargs="+", default=[], metavar="REVISION")
    parser.add_argument("--without-run", action="store_true", help="do not count the modules of a run")
    given = parser.parse_args()
    columns: dict[str, dict[str, int]] = {}
    for revision in given.at:
        with checkout(revision) as root:
            columns[revision[:8]] = measure(root, run=not given.without_run)
    columns["now"] = measure(ROOT, run=not given.without_run)
    print(f"| | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for name in columns["now"]:
        print(f"| {name} | {' | '.join(f'{found[name]:,}' for found in columns.values())} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
