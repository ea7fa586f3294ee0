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

PLAN_HEADING = "**Plan.**"
CHECK_HEADING = "**Check.**"
"""By these a worker's text is told from a plain solution. They are part of the text, hence of what is granted."""

_OUTPUTS = r"(?:answer|solution|attempt|result|opinion|output|candidate|response|proposal|draft|finding)s?"
_ROLE_WORDS: tuple[tuple[Role, str], ...] = (
    (
        "plan",
        r"(?:make|write|draft|devise|give|set|propose|produce|create|sketch) (?:\w+ "
        r"){0,3}(?:plan|subtasks|outline|approach)\b|\bplan\b|"
        r"\boutline\b|\bbreak\b|\bdecompose|\bstrategy\b|\blist the "
        r"(?:steps|stages|parts|facts)|\bdivide\b|\bsplit\b|\blay out\b",
    ),
    (
        "code",
        r"\bimplement\b|\bwrite (?:\w+ ){0,4}(?:function|code|program|script)\b|\bcode (?:it|the|a)\b|\bprogram "
        r"(?:it|the)\b",
    ),
    (
        "aggregate",
        rf"\b(?:compare|weigh|read|take|collect|consider)\b[^.]{{0,40}}\b{_OUTPUTS}\b|\bcombine\b|\bmerge\b|\baggregate|\bmajority\b|"
        r"\breconcile|\bvote\b|\bsynthesi[sz]e|\bconsolidate|\b(?:choose|pick|select|decide)\b[^.]{0,30}\b(?:best|which|right|between|among)\b|"
        r"\bdebate\b|\bsettle\b",
    ),
    (
        "verify",
        r"\bverif|\bcheck|\bdouble-check|\bvalidat|\breview\b|\bconfirm|\brecompute|\baudit\b|\bcritique|\btest "
        r"(?:the|it|this|each)\b|"
        r"\bfind (?:\w+ ){0,2}(?:mistakes?|errors?|faults?)\b|\binspect\b|\bprove\b",
    ),
    ("compute", r"\bcomput|\bcalculat|\bevaluate\b|\bdo the (?:arithmetic|sums|numbers)"),
    ("format", r"\bformat|\brewrite\b|\bas json\b|\bput\b[^.]{0,30}\binto the (?:form|format)"),
    (
        "write",
        r"\bwrite\b|\bstate\b|\bpresent\b|\bsummari[sz]e|\breport\b|\bphrase\b|\bfinal answer|\bexplain\b|\bword\b",
    ),
    (
        "solve",
        r"\bsolve|\banswer\b|\bfind\b|\bdetermine|\bwork (?:it |this )?out\b|\bderive|\battempt\b|\blook "
        r"up\b|\bidentify|\bread off\b",
    ),
)
_ROLES = tuple((role, re.compile(pattern, re.IGNORECASE)) for role, pattern in _ROLE_WORDS)
# "Using the plan above, compute ..." asks for a computation, not for a plan.
_MENTIONS = re.compile(
    r"\b(?:follow(?:ing)?|us(?:e|ing)|per|by|from|with|given|carry(?:ing)? "
    r"out|execut(?:e|ing)|apply(?:ing)?|against|in|on|of|to)\s+"
    r"(?:(?:the|this|that|your|a|its|earlier)\s+)?(?:\w+\s+)?(?:plan|outline|approach|strategy)\b",
    re.IGNORECASE,
)
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


def read_role(own_words: str) -> Role:
    """The role that an instruction asks for first, the question itself left out; ``solve`` if it names none."""
    text = _MENTIONS.sub(" ", own_words[:4000])
    first: list[tuple[int, int, Role]] = []
    for rank, (role, pattern) in enumerate(_ROLES):
        match = pattern.search(text)
        if match is not None:
            first.append((match.start(), rank, role))
    return min(first)[2] if first else "solve"


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
