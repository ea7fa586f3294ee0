"""What a simulated worker makes of the messages it is given: its role, the question, a plan, earlier answers.

Nothing else reaches it. An output that the access list withholds is not in the messages, so it cannot be used.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from conductor_core.chat import Message
from conductor_core.rehearsal.families import RehearsalTask, recognise
from conductor_core.rehearsal.families.reading import answer_key, marked_answer
from conductor_core.rehearsal.profiles import Role
from conductor_core.rehearsal.roles import read_role

PLAN_HEADING = "**Plan.**"
CHECK_HEADING = "**Check.**"
"""By these a worker's text is told from a plain solution. They are part of the text, hence of what is granted."""

_REPEATED = re.compile(r"\b(\w+)\s+\1\b", re.IGNORECASE)

Wording = Literal["clear", "plain", "vague"]


@dataclass(frozen=True)
class Turn:
    """A granted output and the instruction that it answered."""

    instruction: str
    output: str


@dataclass(frozen=True)
class Given:
    """An answer read from a granted output.

    Attributes:
        key: equal for answers that say the same.
        checked: whether it stands in the report of a check.
    """

    answer: str
    key: str
    checked: bool


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
    plan: Literal["good", "poor"] | None
    given: tuple[Given, ...]


def read_messages(messages: Sequence[Message]) -> View:
    """Reads a step's messages: past turns, then its own instruction as the last user message."""
    asked = [message for message in messages if message.role != "system"]
    instruction = asked[-1].content if asked and asked[-1].role == "user" else ""
    turns = []
    last_user = ""
    for message in asked[:-1] if instruction else asked:
        if message.role == "user":
            last_user = message.content
        else:
            turns.append(Turn(last_user, message.content))
    own = recognise(instruction)
    task = own or next(
        (found for turn in turns for text in (turn.instruction, turn.output) if (found := recognise(text)) is not None),
        None,
    )
    own_words = instruction.replace(own.question, " … ") if own else instruction
    return View(
        instruction=instruction,
        turns=tuple(turns),
        role=read_role(own_words),
        wording=_wording(own_words),
        task=task,
        plan=_plan(turns, task),
        given=_answers(turns, task),
    )


def _wording(own_words: str) -> Wording:
    if _REPEATED.search(own_words[:4000]):
        return "vague"
    return "clear" if len(set(re.findall(r"\w+", own_words[:4000].lower()))) >= 5 else "plain"


def _plan(turns: Sequence[Turn], task: RehearsalTask | None) -> Literal["good", "poor"] | None:
    plans = [turn.output for turn in turns if PLAN_HEADING in turn.output]
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
            given.append(Given(answer, key, checked=CHECK_HEADING in turn.output))
    return tuple(given)
