"""Task families of the rehearsal world: questions that read like real requests, with answers that can be computed.

``generate`` makes a question, ``recognise`` finds one in any text and computes its answer from that text alone,
``grade`` reads an answer text and compares.
"""

import ast
import re
from fractions import Fraction
from functools import cache, lru_cache
from random import Random

from conductor_core.errors import BadInput
from conductor_core.rehearsal.families import forms
from conductor_core.rehearsal.families.family import (
    DIFFICULTIES,
    SPLITS,
    AnswerKind,
    Difficulty,
    Finder,
    Form,
    RehearsalTask,
    Split,
    folded,
)

_MARKED = re.compile(r"\*\*Answer:\s{0,20}(?P<answer>[^\n]{1,400}?)\s{0,20}\*\*(?!\*)")
_PLAIN = re.compile(
    r"^\W{0,4}(?:the )?(?:final )?answer(?: is)?\s*[:=]\s*(?P<answer>[^\n]{1,400})$", re.IGNORECASE | re.MULTILINE
)
_BOLD = re.compile(r"\*\*(?P<answer>[^*\n]{1,200})\*\*")
_FENCE = re.compile(r"^ {0,3}(?P<ticks>`{3,})(?P<language>[^`\n]*)$")
_NUMBER = re.compile(r"[-−]?\d+(?:[ ,]\d{3})*(?:\.\d+)?")
_TIME = re.compile(r"\b(\d{1,2}):(\d{2})\b")

_LONGEST_CODE = 4000


def read_answer(text: str, kind: AnswerKind) -> str | None:
    """Returns the last answer of ``text``, None if there is none. As it is for grading, other wordings count too.

    For code it takes the last fenced block with a function. Else it takes what is marked as the answer, or the last
    bold words.
    """
    if kind == "code":
        return marked_answer(text, kind)
    for pattern in (_MARKED, _PLAIN, _BOLD):
        found = [match["answer"].strip().strip("`") for match in pattern.finditer(text)]
        usable = [answer for answer in found if answer_key(answer, kind) is not None]
        if usable:
            return usable[-1]
    return None


def marked_answer(text: str, kind: AnswerKind | None) -> str | None:
    """Returns the last answer that a worker marked (``**Answer: ...**``, or a code block); ``kind`` None: either."""
    if kind in ("code", None):
        blocks = [block for block in code_blocks(text) if answer_key(block, "code") is not None]
        if blocks:
            return blocks[-1]
        if kind == "code":
            return None
    found = [match["answer"].strip() for match in _MARKED.finditer(text)]
    usable = [answer for answer in found if answer_key(answer, kind or "exact") is not None]
    return usable[-1] if usable else None


def code_blocks(text: str) -> list[str]:
    """Returns the contents of the fenced blocks that are marked as Python or not marked at all."""
    blocks: list[str] = []
    open_fence: str | None = None
    language = ""
    lines: list[str] = []
    for line in text.splitlines():
        fence = _FENCE.match(line)
        if open_fence is None:
            if fence is not None:
                open_fence, language, lines = fence["ticks"], fence["language"].strip().lower(), []
        elif fence is not None and len(fence["ticks"]) >= len(open_fence) and not fence["language"].strip():
            if language in ("", "python", "py"):
                blocks.append("\n".join(lines))
            open_fence = None
        else:
            lines.append(line)
    return blocks


def same_answer(first: str, second: str, kind: AnswerKind) -> bool:
    key = answer_key(first, kind)
    return key is not None and key == answer_key(second, kind)


def answer_key(answer: str, kind: AnswerKind) -> str | None:
    match kind:
        case "number":
            found = _NUMBER.search(answer)
            return None if found is None else str(Fraction(re.sub(r"[ ,]", "", found[0]).replace("−", "-")))
        case "time":
            time = _TIME.search(answer)
            return None if time is None else f"{int(time[1]):02d}:{time[2]}"
        case "text":
            words = re.findall(r"\w+", answer.lower())
            return " ".join(word for word in words if word not in ("the", "a", "an")) or None
        case "exact":
            return answer.strip() or None
        case "code":
            return _syntax(answer)


@lru_cache(maxsize=1000)
def _syntax(code: str) -> str | None:
    """Returns the syntax tree as text, without spacing and comments; None if it is not Python or defines nothing."""
    if len(code) > _LONGEST_CODE or "def " not in code:
        return None
    try:
        return ast.dump(ast.parse(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


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
