"""Grades answers that are programs: extracts them, runs them in the sandbox, and judges them by tests.

``extra["kind"]`` says what the tests are:

- ``check``: ``test`` defines ``check(candidate)``; ``prompt`` is the signature that was given (HumanEval).
- ``unittest``: ``test`` defines unittest classes that use ``entry_point`` (BigCodeBench).
- ``stdio``: ``tests`` are inputs and their expected outputs (LiveCodeBench, contests).
- ``calls``: ``tests`` are argument lists and expected values of the function ``entry_point`` (LiveCodeBench, LeetCode).
"""

import ast
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from conductor_core.analysis.answers import fenced_blocks, tail
from conductor_core.errors import BadInput
from conductor_core.grading.sandbox.run import ProcessLimits, Ran, run
from conductor_core.grading.tasks import Graded, Task

# Code in a model's answer.

_PYTHON = frozenset(("python", "python3", "py", "py3", "pycon"))
_UNMARKED = frozenset(("", "plaintext", "text", "code"))


def extract_code(text: str, entry_point: str | None) -> str | None:
    """Returns the program in the answer, None if there is none.

    With an entry point, this is the last block that defines it, else the whole text if that does. Without one, it is
    the last block that is a program, first among those marked as Python, else the whole text if it is a program.
    Blocks marked as another language do not count.
    """
    text = tail(text)
    fenced = [(block.language.split(" ")[0], block.code) for block in fenced_blocks(text)]
    python = [code for language, code in fenced if language in _PYTHON]
    blocks = [code for language, code in fenced if language in _PYTHON | _UNMARKED]
    candidates = [*reversed(blocks), text]
    if entry_point is not None:
        found = next((code for code in candidates if defines(code, entry_point)), None)
        return found if found is not None else (blocks[-1] if blocks else None)
    # A sample of the output may be valid Python too, so blocks that are not marked as Python come last.
    found = next((code for code in [*reversed(python), *candidates] if _is_program(code)), None)
    return found if found is not None else next(reversed(python or blocks), None)


def _parsed(code: str) -> ast.Module | None:
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def defines(code: str, name: str) -> bool:
    """Says whether ``code`` defines or assigns ``name`` at its top level, or as a method of a class there."""
    tree = _parsed(code)
    return tree is not None and any(
        name in _defined(body)
        for body in (tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef)))
    )


def _defined(body: list[ast.stmt]) -> set[str]:
    names: set[str] = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def _is_program(text: str) -> bool:
    """Says whether a text is Python that does something. A lone word, number or name is valid Python too."""
    tree = _parsed(text)
    return tree is not None and not all(
        isinstance(node, ast.Expr) and not isinstance(node.value, ast.Call) for node in tree.body
    )


LIMITS = ProcessLimits()
LIBRARY_LIMITS = replace(
    LIMITS, cpu_s=30, wall_s=60.0, memory_bytes=8 * 1024**3, open_files=256, processes=True, site_packages=True
)
"""Limits for tests that need libraries such as numpy: imports take seconds and gigabytes of address space."""

CONTEST_PRELUDE = """\
import bisect, collections, copy, datetime, functools, heapq, io, itertools, json, math, operator, random, re
import statistics, string, sys
from bisect import *
from collections import *
from functools import *
from heapq import *
from itertools import *
from math import *
from operator import *
from typing import *
from builtins import *
"""
"""Imports that contest sites give to a program, as in LiveCodeBench's runner. Builtins come last, because ``operator``
and ``math`` have a ``pow`` that takes no modulus."""

_FLOAT_TOLERANCE = 1e-6


def grade_code(task: Task, text: str) -> Graded:
    """Grades an answer as right if every test passes. The reason names the first test that does not.

    Raises: BadInput if the task's ``extra`` is not of one of the four kinds.
    """
    require_tests(task)
    code = extract_code(text, None if task.extra["kind"] == "stdio" else _text(task, "entry_point"))
    if code is None:
        return Graded(0.0, "The answer has no code.")
    return _KINDS[task.extra["kind"]](task, code)


def require_tests(task: Task) -> None:
    """Raises: BadInput if the task's ``extra`` is not of one of the four kinds."""
    kind = task.extra.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise BadInput(f"task {task.task_id}: extra['kind'] must be one of {', '.join(_KINDS)}")
    if kind != "stdio":
        _text(task, "entry_point")
    if kind in ("check", "unittest"):
        _text(task, "test")
    elif not all(isinstance(test["input"], list) or kind == "stdio" for test in _tests(task)):
        raise BadInput(f"task {task.task_id}: the input of a call must be the list of its arguments")


def _grade_check(task: Task, code: str) -> Graded:
    prompt, entry_point = str(task.extra.get("prompt", "")), _text(task, "entry_point")
    prelude = ""
    if not defines(code, entry_point):
        # The answer has only the body, or starts where the prompt ends.
        code = prompt + (code if code.lstrip("\n").startswith((" ", "\t")) else _indented(code))
        if not prompt or _parsed(code) is None:
            return Graded(0.0, f"The code does not define {entry_point}.")
    elif _parsed(f"{prompt}    pass\n") is not None:
        # The prompt's imports and helpers are there even if the answer does not repeat them.
        prelude = f"{prompt}    pass\n"
    test = _text(task, "test")
    return _of_run(run("check", code, prelude=prelude, limits=LIMITS, test=test, entry_point=entry_point))


def _grade_unittest(task: Task, code: str) -> Graded:
    entry_point = _text(task, "entry_point")
    if not defines(code, entry_point):
        return Graded(0.0, f"The code does not define {entry_point}.")
    return _of_run(run("unittest", code, limits=LIBRARY_LIMITS, test=_text(task, "test"), entry_point=entry_point))


def _grade_stdio(task: Task, code: str) -> Graded:
    tests = _tests(task)
    for number, test in enumerate(tests, start=1):
        output = str(test["output"])
        ran = run("script", code, prelude=CONTEST_PRELUDE, limits=_room_for(output), stdin=str(test["input"]))
        if ran.ending != "completed":
            return Graded(0.0, f"Test {number} of {len(tests)} fails: {ran.error}.")
        if not same_output(ran.stdout, output):
            return Graded(0.0, f"Test {number} of {len(tests)} fails: the output is {_short(ran.stdout)}.")
    return Graded(1.0, f"All {len(tests)} tests pass.")


def _grade_calls(task: Task, code: str) -> Graded:
    tests, entry_point = _tests(task), _text(task, "entry_point")
    calls = [test["input"] for test in tests]
    limits = _room_for(json.dumps([test["output"] for test in tests]))
    ran = run("calls", code, prelude=CONTEST_PRELUDE, limits=limits, entry_point=entry_point, calls=calls)
    # The program can reach the reporting code, so a report may hold anything.
    values = {
        record["call"]: record["value"]
        for record in ran.records
        if isinstance(record.get("call"), int) and "value" in record
    }
    for number, test in enumerate(tests):
        if number not in values:
            return Graded(0.0, f"Test {number + 1} of {len(tests)} fails: {ran.error or 'it returns nothing'}.")
        if not same_value(values[number], test["output"]):
            return Graded(0.0, f"Test {number + 1} of {len(tests)} fails: the value is {_short(repr(values[number]))}.")
    return Graded(1.0, f"All {len(tests)} tests pass.")


def _room_for(output: str) -> ProcessLimits:
    """Returns limits that leave room for ``output`` in any script, with more digits in its numbers."""
    return replace(LIMITS, output_bytes=LIMITS.output_bytes + 4 * len(output))


def same_output(given: str, right: str) -> bool:
    """Says whether two outputs agree line by line. White space at the ends is ignored; numbers may differ by 1e-6."""
    lines, right_lines = given.strip().split("\n"), right.strip().split("\n")
    if len(lines) != len(right_lines):
        return False
    return all(_same_line(line.split(), other.split()) for line, other in zip(lines, right_lines, strict=True))


def _same_line(words: list[str], right: list[str]) -> bool:
    if words == right:
        return True
    if len(words) != len(right):
        return False
    return all(word == other or _same_number(word, other) for word, other in zip(words, right, strict=True))


def _same_number(given: str, right: str) -> bool:
    # Whole numbers are compared as written: 9007199254740993 is not 9007199254740992.
    if "." not in right and "e" not in right.lower():
        return False
    try:
        return math.isclose(float(given), float(right), rel_tol=_FLOAT_TOLERANCE, abs_tol=_FLOAT_TOLERANCE)
    except ValueError:
        return False


def same_value(given: Any, right: Any) -> bool:
    """Says whether two JSON values agree. Numbers with decimals may differ by 1e-6, and True is not 1."""
    if isinstance(given, bool) or isinstance(right, bool):
        return given is right
    if isinstance(given, float) or isinstance(right, float):
        if not (isinstance(given, int | float) and isinstance(right, int | float)):
            return False
        try:
            return math.isclose(given, right, rel_tol=_FLOAT_TOLERANCE, abs_tol=_FLOAT_TOLERANCE)
        except OverflowError:
            return False
    if isinstance(given, list) and isinstance(right, list):
        return len(given) == len(right) and all(map(same_value, given, right))
    if isinstance(given, dict) and isinstance(right, dict):
        return given.keys() == right.keys() and all(same_value(given[key], right[key]) for key in given)
    return bool(given == right)


def _of_run(ran: Ran) -> Graded:
    if ran.ending == "completed":
        return Graded(1.0, "The tests pass.")
    return Graded(0.0, f"The tests do not pass: {ran.error}.")


def _tests(task: Task) -> list[Mapping[str, Any]]:
    tests = task.extra.get("tests")
    if not isinstance(tests, list) or not tests:
        raise BadInput(f"task {task.task_id}: extra['tests'] must be a list with at least one test")
    if not all(isinstance(test, Mapping) and "input" in test and "output" in test for test in tests):
        raise BadInput(f"task {task.task_id}: each test needs an input and an output")
    return tests


def _text(task: Task, name: str) -> str:
    value = task.extra.get(name)
    if not isinstance(value, str) or not value:
        raise BadInput(f"task {task.task_id}: extra[{name!r}] must be a text")
    return value


def _indented(code: str) -> str:
    return "\n".join(f"    {line}" if line.strip() else line for line in code.split("\n"))


def _short(text: str) -> str:
    text = " ".join(text.split())
    return repr(text if len(text) <= 80 else text[:77] + "...")


_KINDS: dict[str, Callable[[Task, str], Graded]] = {
    "check": _grade_check,
    "unittest": _grade_unittest,
    "stdio": _grade_stdio,
    "calls": _grade_calls,
}
