"""The size budget: `python -m tests.size_budget` lists every file and function over it and fails if there is one.

Small files and functions are what lets a reader find the room from the folder's name. Vendored code does not count.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

MAX_FILE_LINES = 900
MAX_FUNCTION_LINES = 90
ROOT = Path(__file__).resolve().parents[1]
SOURCES = (".py", ".js", ".mjs", ".css")


def _tracked_sources() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\0")
    paths = (ROOT / name for name in listed if name.endswith(SOURCES) and "/vendor/" not in name)
    return sorted(path for path in paths if path.exists())


def _long_functions(source: str) -> Iterator[tuple[str, int, int]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            lines = node.end_lineno - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                yield node.name, node.lineno, lines


def over_budget(paths: list[Path]) -> list[str]:
    """One sentence for each file or function of ``paths`` that is over the budget."""
    findings: list[str] = []
    for path in paths:
        source = path.read_text(encoding="utf-8")
        place = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        lines = source.count("\n")
        if lines > MAX_FILE_LINES:
            findings.append(f"{place}: {lines} lines, at most {MAX_FILE_LINES}")
        if path.suffix == ".py":
            findings += [
                f"{place}:{line}: {name} has {length} lines, at most {MAX_FUNCTION_LINES}"
                for name, line, length in _long_functions(source)
            ]
    return findings


def main() -> int:
    paths = _tracked_sources()
    findings = over_budget(paths)
    print("\n".join(findings) or f"size budget kept: {len(paths)} files")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
