"""Loads the suite that ``--suite`` names, and chooses which tasks are asked, in which order.

It is the rehearsal world, a benchmark by its hub id, or a file: JSON Lines in our own format, or in that of a public
benchmark, recognised by its keys.
"""

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

from conductor_core.errors import BadInput
from conductor_core.files import open_regular
from conductor_core.grading.grade import require_gradable
from conductor_core.grading.tasks import Suite, Task
from conductor_core.lab.evaluation import benchmarks
from conductor_core.lab.evaluation.benchmarks import FORMATS, Format, RowFault, recognise
from conductor_core.rehearsal import DIFFICULTIES, FAMILIES, generate
from conductor_core.rehearsal.families import Difficulty, Split

# The rehearsal world: of any length, with families and difficulties in equal parts.

DEFAULT_LIMIT = 300
"""Default number of tasks: ten of each family and difficulty, as long as there are ten families."""

_SPLITS: tuple[Split, ...] = ("train", "test")
_SEEDS = 1_000_000
"""Number of question seeds that belong to one seed of a suite."""
_TRIES = 200
"""Number of seeds tried for one new question before a cell counts as used up: easy questions are limited in number."""


def _load_rehearsal(split: str, *, limit: int | None, seed: int) -> Suite:
    """Loads ``limit`` different questions (default 300), one of each family and difficulty in turn.

    A shorter suite of the same seed is the beginning of a longer one. Raises: BadInput.
    """
    part = next((known for known in _SPLITS if known == split), None)
    if part is None:
        raise BadInput(f"the rehearsal suite has the splits {' and '.join(_SPLITS)}, not {split!r}")
    wanted = DEFAULT_LIMIT if limit is None else limit
    order = Random(f"{split}/{seed}")  # noqa: S311 - a sample, not a secret
    cells: list[tuple[str, Difficulty]] = [(family, level) for level in DIFFICULTIES for family in FAMILIES]
    order.shuffle(cells)
    sources = [_questions(family, level, part, seed) for family, level in cells]
    tasks: list[Task] = []
    while len(tasks) < wanted:
        before = len(tasks)
        for source in sources:
            task = next(source, None)
            if task is not None:
                tasks.append(task)
        if len(tasks) == before:
            raise BadInput(f"the rehearsal world has {before} different questions for seed {seed}, not {wanted}")
    return Suite("rehearsal", part, tuple(tasks[:wanted]), simulated=True)


def _questions(family: str, level: Difficulty, split: Split, seed: int) -> Iterator[Task]:
    seen: set[str] = set()
    base = seed * _SEEDS
    number = 0
    while number < _SEEDS:
        for _ in range(_TRIES):
            made = generate(family, level, base + number, split=split)
            number += 1
            if made.question not in seen:
                break
        else:
            return
        seen.add(made.question)
        yield Task(
            task_id=f"rehearsal/{split}/{family}/{level}/{base + number - 1}",
            question=made.question,
            family=family,
            difficulty=level,
            reference=made.answer,
            grader="rehearsal",
            extra={"kind": made.solution.kind, "wording": made.wording},
        )


# Files.


SPLITS = ("test", "fit", "held-out")
_FIT_SHARE = 0.2


def _load_file(path: Path, split: str, *, limit: int | None, seed: int) -> Suite:
    """Loads the tasks of a file. The split ``test`` is the whole file.

    To fit a router and measure it on the same file, the split ``fit`` is a fixed fifth of the rows, and ``held-out`` is
    the rest. Raises: BadInput naming file, line and field.
    """
    if split not in SPLITS:
        raise BadInput(f"{path.name} has no split {split!r}: test is all of it, fit a fixed fifth, held-out the rest")
    tasks = [task for task in _tasks(path) if split == "test" or (split == "fit") == _is_for_fitting(task)]
    if not tasks:
        raise BadInput(f"{path} has no tasks in its split {split!r}")
    Random(seed).shuffle(tasks)  # noqa: S311 - a sample, not a secret
    return Suite(path.stem, split, tuple(tasks[:limit]), simulated=False)


def _tasks(path: Path) -> list[Task]:
    tasks: dict[str, Task] = {}
    known: Format | None = None
    for number, (line, row) in enumerate(_rows(path)):
        place = f"{path}, line {line}"
        if known is None:
            known = recognise(row)
            if known is None:
                formats = "; ".join(f"{one.name} has {', '.join(sorted(one.keys))}" for one in FORMATS)
                raise BadInput(f"{place}: no known format has the fields {', '.join(sorted(row))} ({formats})")
        missing = sorted(known.keys - set(row))
        if missing:
            raise BadInput(f"{place}: field {missing[0]!r} is missing, which the format {known.name} needs")
        try:
            task = known.task(row, number)
            require_gradable(task)
        except (RowFault, BadInput) as fault:
            raise BadInput(f"{place}: {fault}") from fault
        if task.task_id in tasks:
            raise BadInput(f"{place}: the task id {task.task_id!r} is used twice")
        tasks[task.task_id] = task
    if not tasks:
        raise BadInput(f"{path} is empty")
    return list(tasks.values())


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        with open_regular(path) as file:
            content = file.read().decode()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise BadInput(f"{path} cannot be read: {why}") from error
    # splitlines would also split at other line ends in a text, such as U+2028, which JSON does not escape.
    for number, line in enumerate(content.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{path}, line {number}, is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise BadInput(f"{path}, line {number}, is not a JSON object")
        yield number, row


def _is_for_fitting(task: Task) -> bool:
    digest = sha256(task.task_id.encode()).digest()
    return int.from_bytes(digest[:4], "big") < _FIT_SHARE * 2**32


def load_suite(ref: str, split: str = "test", *, limit: int | None = None, seed: int = 0) -> Suite:
    """Loads at most ``limit`` tasks of ``ref``. The same arguments give the same tasks in the same order.

    Args:
        ref: ``rehearsal``, the path of a JSON Lines file, or a benchmark of ``benchmarks.BENCHMARKS``.
        split: ``test`` or ``train``; for a file ``test``, ``fit`` or ``held-out``.
    Raises: BadInput.
    """
    if limit is not None and limit < 1:
        raise BadInput(f"a suite needs at least one task, not {limit}")
    if ref == "rehearsal":
        return _load_rehearsal(split, limit=limit, seed=seed)
    if ref in benchmarks.BENCHMARKS:
        return benchmarks.load(ref, split, limit=limit, seed=seed)
    path = Path(ref)
    if path.suffix in (".jsonl", ".json") or path.is_file():
        return _load_file(path, split, limit=limit, seed=seed)
    raise BadInput(
        f"unknown suite {ref!r}; choose rehearsal, {', '.join(benchmarks.BENCHMARKS)}, or the path of a .jsonl file"
    )
