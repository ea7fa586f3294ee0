"""The rehearsal world as a suite of any length, with families and difficulties in equal parts."""

from collections.abc import Iterator
from random import Random

from conductor_core.errors import BadInput
from conductor_core.grading.tasks import Suite, Task
from conductor_core.rehearsal import DIFFICULTIES, FAMILIES, generate
from conductor_core.rehearsal.families import Difficulty, Split

DEFAULT_LIMIT = 300
"""Default number of tasks: ten of each family and difficulty, as long as there are ten families."""

_SPLITS: tuple[Split, ...] = ("train", "test")
_SEEDS = 1_000_000
"""Number of question seeds that belong to one seed of a suite."""
_TRIES = 200
"""Number of seeds tried for one new question before a cell counts as used up: easy questions are limited in number."""


def load(split: str, *, limit: int | None, seed: int) -> Suite:
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
