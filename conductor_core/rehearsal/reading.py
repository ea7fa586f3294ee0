"""Reads the messages of a simulated worker: its role, the question, a plan, earlier answers.

Nothing else reaches the worker. The messages lack an output that the access list withholds, so it cannot use it. The
role is read from the instruction's own words, without the question.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import cast

from conductor_core.chat.messages import Message
from conductor_core.rehearsal.families import RehearsalTask, recognise
from conductor_core.rehearsal.families.family import words
from conductor_core.rehearsal.families.reading import answer_key, marked_answer
from conductor_core.rehearsal.skills import RIGHT, PlanInView, Role, Seen, Sight, Wording

# Roles.

_OUTPUT = (
    r"(?:answer|solution|attempt|result|opinion|output|candidate|response|proposal|draft|finding|case|side|derivation)"
)
_OUTPUTS = rf"{_OUTPUT}s?"
_MADE = rf"(?:{_OUTPUTS}|calculation|working|proof|code|function|text|item|choice|translation|figure|step)s?"
"""What an earlier step may have made."""


def _phrases(role: str, phrases: Sequence[str]) -> tuple[Role, re.Pattern[str]]:
    pattern = "|".join(phrases).replace("<outputs>", _OUTPUTS).replace("<output>", _OUTPUT).replace("<made>", _MADE)
    return cast(Role, role), re.compile(rf"\b(?:{pattern})", re.IGNORECASE)


_ROLES = tuple(_phrases(*each) for each in words(Path(__file__).with_name("roles.toml")).items())
# "Using the plan above, compute ..." asks for a computation, not for a plan.
_MENTIONS = re.compile(
    r"\b(?:follow(?:ing)?|us(?:e|ing)|per|by|from|with|given|carry(?:ing)? out|execut(?:e|ing)|apply(?:ing)?|along"
    r"|against|in|on|of|to)\s+(?:(?:the|this|that|your|a|its|earlier)\s+)?(?:\w+\s+)?"
    r"(?:plan|outline|approach|strategy)\b",
    re.IGNORECASE,
)
_NOT_YET = re.compile(
    r"\b(?:(?:do not|don't) (?:solve|compute|calculate|answer|write|code)\b[^.;:]{0,20}\byet"
    r"|without (?:solving|computing|calculating|answering))\b",
    re.IGNORECASE,
)
_LONGEST_READ = 4000


def read_role(own_words: str) -> Role:
    """Returns the role that an instruction, without the question, asks for first; ``solve`` if it names none.

    An instruction not to do something yet asks for a plan.
    """
    text = _MENTIONS.sub(" ", own_words[:_LONGEST_READ])
    if _NOT_YET.search(text):
        return "plan"
    found = [(match.start(), role) for role, pattern in _ROLES if (match := pattern.search(text)) is not None]
    # Of equal starts ``min`` takes the first, as in ``roles.toml``.
    return min(found, key=itemgetter(0))[1] if found else "solve"


PLAN_HEADING = "**Plan.**"
RECOMPUTED_HEADING = "**Check, recomputed.**"
READ_HEADING = "**Check, read only.**"
"""The headings that tell a worker's text from a plain solution. They are part of what is granted."""

SIGNATURE = "— {name}, simulated ({digest})"
"""The last line of a worker's text: who wrote it, that it is simulated, and a sign by which calls are told apart."""
_SIGNED = re.compile(r"^— (?P<name>[a-z]{1,20}), simulated \([0-9a-f]{1,64}\)\s*\Z", re.MULTILINE)
_REPEATED = re.compile(r"\b(\w+)\s+\1\b", re.IGNORECASE)


@dataclass(frozen=True)
class Turn:
    instruction: str
    output: str


@dataclass(frozen=True)
class Given:
    """An answer read from a granted output.

    Attributes:
        key: equal for answers that say the same.
        checked: whether it stands in the report of a check that recomputed it.
        author: the worker that signed the output, None if it bears no signature.
    """

    answer: str
    key: str
    checked: bool
    author: str | None


@dataclass(frozen=True)
class View:
    """Everything a worker can know.

    Attributes:
        task: the question in view, in its own instruction or quoted in a granted turn; None if there is none it knows.
        wording: whether the instruction's own words say what to do.
        plan: a plan in view that leaves nothing out, one that does, or none.
        given: the answers in view, in the order granted.
    """

    instruction: str
    turns: tuple[Turn, ...]
    role: Role
    wording: Wording
    task: RehearsalTask | None
    plan: PlanInView
    given: tuple[Given, ...]

    def answers(self) -> tuple[str, ...]:
        """Returns the texts behind the numbers of ``sight``: the right answer, the slips, then others in view."""
        solution = self.task.solution if self.task else None
        known = (solution.answer, *(slip.answer for slip in solution.slips)) if solution else ()
        keys = self._keys()
        others = {each.key: each.answer for each in self.given if each.key not in keys}
        return (*known, *others.values())

    def sight(self, reader: str) -> Sight:
        """Returns what a decision of ``reader`` depends on.

        Without the question no answer is known to be right, so the numbers only tell answers apart.
        """
        numbers = {key: number for number, key in reversed(list(enumerate(self._keys())))}
        first_other = max(numbers.values(), default=RIGHT) + 1 if self.task else RIGHT
        for each in self.given:
            numbers.setdefault(each.key, first_other + sum(number >= first_other for number in numbers.values()))
        given = tuple(Seen(numbers[each.key], each.checked, each.author == reader) for each in self.given)
        return Sight(self.role, self.wording, self.task is not None, self.plan, given)

    def _keys(self) -> tuple[str | None, ...]:
        if self.task is None:
            return ()
        solution = self.task.solution
        return tuple(answer_key(each, solution.kind) for each in (solution.answer, *(s.answer for s in solution.slips)))


def read_messages(messages: Sequence[Message]) -> View:
    """Reads a step's messages: past turns, then its own instruction as the last user message."""
    asked = [message for message in messages if message.role != "system"]
    instruction = asked[-1].text if asked and asked[-1].role == "user" else ""
    turns, last_user = [], ""
    for message in asked[:-1] if instruction else asked:
        if message.role == "user":
            last_user = message.text
        else:
            turns.append(Turn(last_user, message.text))
    own = recognise(instruction)
    task = own or next(
        (found for turn in turns for text in (turn.instruction, turn.output) if (found := recognise(text)) is not None),
        None,
    )
    role, wording = read_own_words(own_words(instruction, own))
    return View(
        instruction=instruction,
        turns=tuple(turns),
        role=role,
        wording=wording,
        task=task,
        plan=_plan(turns, task),
        given=_answers(turns, task),
    )


ELSEWHERE = " … "
"""Stands for the question in an instruction's own words."""


def own_words(instruction: str, task: RehearsalTask | None) -> str:
    return instruction.replace(task.question, ELSEWHERE) if task else instruction


@lru_cache(maxsize=20_000)
def read_own_words(words: str) -> tuple[Role, Wording]:
    """Reads what an instruction asks for, and how clearly; ``words``: see ``own_words``."""
    return read_role(words), _wording(words)


def _wording(words: str) -> Wording:
    if _REPEATED.search(words[:4000]):
        return "vague"
    return "clear" if len(set(re.findall(r"\w+", words[:4000].lower()))) >= 5 else "plain"


def _plan(turns: Sequence[Turn], task: RehearsalTask | None) -> PlanInView:
    plans = [turn.output for turn in turns if turn.output.startswith(PLAN_HEADING)]
    if not plans or task is None:
        return None
    return "good" if any(all(line in plan for line in task.solution.plan) for plan in plans) else "poor"


def _answers(turns: Sequence[Turn], task: RehearsalTask | None) -> tuple[Given, ...]:
    kind = task.solution.kind if task else None
    given = []
    for turn in turns:
        answer = marked_answer(turn.output, kind)
        key = None if answer is None else answer_key(answer, kind or "exact")
        if answer is not None and key is not None:
            signed = _SIGNED.search(turn.output)
            checked = turn.output.startswith(RECOMPUTED_HEADING)
            given.append(Given(answer, key, checked, author=signed["name"] if signed else None))
    return tuple(given)
