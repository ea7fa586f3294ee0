"""Task families of the rehearsal world: questions that read like real requests, with answers that can be computed.

``generate`` makes a question, ``recognise`` finds one in any text and computes its answer from that text alone,
``grade`` reads an answer text and compares.
"""

from functools import cache, lru_cache
from random import Random

from conductor_core.errors import BadInput
from conductor_core.rehearsal.families import forms
from conductor_core.rehearsal.families.family import (
    DIFFICULTIES,
    SPLITS,
    Difficulty,
    Finder,
    Form,
    RehearsalTask,
    Split,
    folded,
)
from conductor_core.rehearsal.families.reading import read_answer, same_answer

__all__ = [
    "DIFFICULTIES",
    "FAMILIES",
    "FORMS",
    "SPLITS",
    "Difficulty",
    "Form",
    "RehearsalTask",
    "Split",
    "generate",
    "grade",
    "recognise",
]

FORMS: tuple[Form, ...] = forms.FORMS
FAMILIES: tuple[str, ...] = tuple(dict.fromkeys(form.family for form in FORMS))

_LONGEST_TEXT = 50_000
"""The most characters in which ``recognise`` looks for a question."""


def generate(family: str, difficulty: Difficulty, seed: int, *, split: Split = "train") -> RehearsalTask:
    """Makes a question of ``family`` with its answer; the same arguments make the same question.

    The splits share no wording, and the same seed draws other figures in each.

    Raises: BadInput if there is no such family or difficulty.
    """
    fitting = [form for form in FORMS if form.family == family and form.difficulty == difficulty]
    if not fitting:
        raise BadInput(f"no rehearsal family {family!r} of difficulty {difficulty!r}; families: {', '.join(FAMILIES)}")
    rng = Random(f"{split}/{family}/{difficulty}/{seed}")  # noqa: S311 - questions, not secrets
    return rng.choice(fitting).generate(rng, split)


@cache
def _finders() -> tuple[Finder, ...]:
    """Builds the finders at their first use: their patterns take as long as all else of a short command."""
    return tuple(finder for form in FORMS for finder in form.finders)


@lru_cache(maxsize=4096)
def recognise(text: str) -> RehearsalTask | None:
    """Finds the first rehearsal question in ``text`` and computes its answer from the text; None if there is none."""
    read = text[:_LONGEST_TEXT]
    known = folded(read)
    found = [hit for finder in _finders() if finder.literal in known and (hit := finder.find(read)) is not None]
    return min(found, key=lambda hit: (hit[0], -len(hit[1].question)))[1] if found else None


def grade(task: RehearsalTask | str, answer_text: str) -> bool:
    """Tells whether ``answer_text`` gives the right answer to ``task`` (a task, or a text holding its question).

    Raises: BadInput if the text holds no rehearsal question.
    """
    known = recognise(task) if isinstance(task, str) else task
    if known is None:
        raise BadInput("this is no question of the rehearsal world, so its answer is not known")
    given = read_answer(answer_text, known.solution.kind)
    return given is not None and same_answer(given, known.answer, known.solution.kind)
