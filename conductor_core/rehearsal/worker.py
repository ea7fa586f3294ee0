"""A simulated worker acts on the messages that it is given and on nothing else. Its seed decides what it draws.

It reads its role, the question, a plan and earlier answers from them. They lack an output that the access list
withholds, so it cannot use that. The role is read from the instruction's own words, without the question.
"""

import asyncio
import hashlib
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import cast

from conductor_core.chat.messages import (
    NO_TERMS,
    CallTerms,
    Chunk,
    Finished,
    Message,
    TextDelta,
    Usage,
    WorkerSpec,
)
from conductor_core.errors import PoolInvalid
from conductor_core.rehearsal import skills
from conductor_core.rehearsal.families import (
    DIFFICULTIES,
    FAMILIES,
    RehearsalTask,
    answer_key,
    marked_answer,
    recognise,
)
from conductor_core.rehearsal.families.family import AnswerKind, words
from conductor_core.rehearsal.skills import (
    RIGHT,
    Branch,
    Manner,
    PlanInView,
    Profile,
    Role,
    Seen,
    Sight,
    Style,
    Wording,
    decide,
)

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


# The texts: each role in its own manner, with the task's own numbers. An answer is marked ``**Answer: ...**`` (code: in
# a fenced block), which is where later workers and the grader read it.

_TEXTS = words(Path(__file__).with_name("texts.toml"))
_RESULT_FORM: dict[AnswerKind, str] = _TEXTS["result_form"]
_OPENINGS: dict[str, list[str]] = _TEXTS["openings"]
REASONS: dict[Manner, str] = _TEXTS["reasons"]
"""Why an aggregator takes an answer."""


def answer_line(answer: str, kind: AnswerKind) -> str:
    return f"**Answer:**\n\n```python\n{answer}\n```" if kind == "code" else f"**Answer: {answer}**"


def _shown(answer: str, kind: AnswerKind | None) -> str:
    """Writes an answer inside a sentence; it shows only the name of code."""
    if kind == "code" or "\n" in answer:
        name = re.search(r"def (\w+)", answer)
        return f"`{name[1]}`" if name else "the code above"
    return f"`{answer}`" if "`" not in answer else answer


def solution_text(
    task: RehearsalTask, answer: str, working: Sequence[str], view: View, style: Style, *, doubted: bool, rng: Random
) -> str:
    """Writes a worked solution. ``working`` belongs to ``answer``, right or wrong. A ``doubted`` one says so."""
    kind = task.solution.kind
    opening = rng.choice(_OPENINGS[task.family])
    if view.plan is not None:
        opening = f"Following the plan in view. {opening}"
    elif kind != "code":
        # Nobody has said how to go about it, so it says so itself.
        opening = f"{rng.choice(_TEXTS['approaches'])} {' '.join(task.solution.plan)}\n\n{opening}"
    closing = rng.choice(_TEXTS["doubts" if doubted else "closings"])
    if kind == "code" or style == "steps":
        lines = "\n".join(f"{place}. {line}" for place, line in enumerate(working, start=1))
    elif style == "prose":
        lines = " ".join(line if line.endswith(".") else f"{line}." for line in working)
    else:
        lines = "\n".join(f"- `{line}`" for line in working)
    return "\n\n".join((opening, lines, closing, answer_line(answer, kind)))


def plan_text(task: RehearsalTask, lines: Sequence[str], complete: bool, rng: Random) -> str:
    steps = "\n".join(f"{place}. {line}" for place, line in enumerate(lines, start=1))
    risk = (
        f"Risk: {task.solution.risk}."
        if complete
        else rng.choice(("No particular risk.", "It should be straightforward."))
    )
    goal = f"The result is wanted {_RESULT_FORM[task.solution.kind]}."
    return f"{PLAN_HEADING} {goal}\n\n{steps}\n\n{risk} The work itself is left to the steps that follow."


def check_text(task: RehearsalTask, given: Sequence[Given], manner: Manner, answer: str, working: Sequence[str]) -> str:
    """Reports a check. ``manner``: ``confirmed``, ``corrected`` or ``read through``, which recomputes nothing."""
    kind = task.solution.kind
    seen = _tally(given, kind)
    if manner == "read through":
        head = f"{READ_HEADING} In view: {seen}. I went through the working as it stands and recomputed nothing."
        body = ["I see nothing to object to."]
    elif manner == "confirmed":
        head = f"{RECOMPUTED_HEADING} In view: {seen}. Recomputed from the question, by another way."
        body = [f"{task.solution.check} The result stands."]
    else:
        head = f"{RECOMPUTED_HEADING} In view: {seen}. Recomputed from the question:"
        body = [
            "\n".join(f"- {line}" for line in working),
            f"This differs from the solution in view; the likely cause is {task.solution.risk}. I correct it.",
        ]
    return "\n\n".join((head, *body, answer_line(answer, kind)))


def combined_text(task: RehearsalTask | None, given: Sequence[Given], chosen: str, manner: Manner) -> str:
    """Writes which of several answers an aggregator takes, in the order granted. ``manner``: one of ``REASONS``."""
    kind = task.solution.kind if task else None
    keys = list(dict.fromkeys(each.key for each in given))
    variants = kind == "code" and len(keys) > 1
    listed = "\n".join(
        f"{place}. {_shown(each.answer, kind)}{f', variant {keys.index(each.key) + 1}' if variants else ''}"
        f"{', checked' if each.checked else ''}"
        for place, each in enumerate(given, start=1)
    )
    count = f"{len(given)} answer{'s' if len(given) != 1 else ''} in view, in the order granted:"
    most = max(Counter(each.key for each in given).values())
    reason = REASONS[manner].format(most=most, count=len(given))
    return "\n\n".join((count, listed, reason, answer_line(chosen, "code" if "\n" in chosen else "exact")))


def final_text(task: RehearsalTask | None, answer: str, checked: bool, rng: Random) -> str:
    kind: AnswerKind = task.solution.kind if task else ("code" if "\n" in answer else "exact")
    source = "the checked solution" if checked else "the solution in view, which nobody has checked"
    opening = rng.choice((f"The result below is taken from {source}.", f"Stating the result of {source}."))
    if kind == "code":
        return f"{opening} The function is complete and can be used as it is.\n\n{answer_line(answer, kind)}"
    if task is None:
        return f"{opening} The question itself is not in view, so I add nothing to it.\n\n{answer_line(answer, kind)}"
    # The question itself is never quoted: whether a later step has it in view is for its own instruction to say.
    plainly = f"It is given {_RESULT_FORM[kind]}: {_shown(answer, kind)}. Nothing was added or rounded."
    return "\n\n".join((opening, plainly, answer_line(answer, kind)))


def unchecked_text(given: Sequence[Given]) -> str:
    """Writes a check without the question: it can only compare what is in view."""
    chosen = given[-1].answer
    agree = "They agree." if len(given) > 1 else "There is nothing to compare it with."
    if len({each.key for each in given}) > 1:
        agree = "They do not agree."
    kind: AnswerKind = "code" if "\n" in chosen else "exact"
    return (
        f"In view: {_tally(given, None)}. {agree} The question itself is not in view, so I could not recompute "
        f"anything: this answer is passed on unchecked.\n\n{answer_line(chosen, kind)}"
    )


def nothing_text(view: View) -> str:
    """Writes a check or a choice where no earlier output holds an answer."""
    verb, what = ("verify", "no solution") if view.role == "verify" else ("combine", "no answers")
    count = len(view.turns)
    granted = (
        "no earlier output was granted to me"
        if not count
        else f"the {count} granted output{'s hold' if count > 1 else ' holds'} none"
    )
    return (
        f"There is nothing to {verb}: {what} in view, because {granted}. I see the question, but judging an answer "
        "that I was not shown would be guessing, so I give none.\n\nWhat is missing: the output of the step whose "
        f"answer I should {verb}, in this step's access list."
    )


CANNOT_ANSWER = "I am simulated and know the example tasks only"
"""The page (``status.js``) knows by these words a step that did not answer."""


def receipt_text(view: View) -> str:
    """Says in one line, outside the rehearsal world, that this worker is simulated; it gives no answer."""
    doing = {
        "plan": "plan this",
        "verify": "check this",
        "aggregate": "weigh these against each other",
        "write": "word an answer",
        "format": "put this into form",
        "code": "write this code",
        "compute": "compute this",
        "solve": "answer this",
    }[view.role]
    return f"{CANNOT_ANSWER}: I cannot {doing}."


def _tally(given: Sequence[Given], kind: AnswerKind | None) -> str:
    counts = Counter(each.key for each in given)
    shown: dict[str, str] = {}
    for each in given:
        shown.setdefault(each.key, _shown(each.answer, kind))
    if kind == "code" and len(counts) > 1:
        return ", ".join(
            f"variant {place} of {shown[key]} ({counts[key]}×)" for place, key in enumerate(counts, start=1)
        )
    return ", ".join(f"{shown[key]}{f' ({count}×)' if count > 1 else ''}" for key, count in counts.items())


_TOKEN = re.compile(r"\s*(?:\w{1,6}|[^\w\s])")


def token_pieces(text: str) -> list[str]:
    """Splits ``text`` into what we count as tokens: up to six letters or digits, or one mark, with the space before.

    Joined they are ``text`` again; trailing space goes with the last piece.
    """
    pieces = _TOKEN.findall(text)
    rest = len(text) - sum(map(len, pieces))
    if rest and pieces:
        pieces[-1] += text[-rest:]
    return pieces or ([text] if text else [])


def token_count(text: str) -> int:
    """Counts the pieces of ``token_pieces`` without making them: an output may have millions of characters."""
    return sum(1 for _ in _TOKEN.finditer(text)) or min(len(text), 1)


_DEAL = 1
"""Another number would change every draw; it has no other meaning."""
_MESSAGE_OVERHEAD_TOKENS = 4
"""Tokens that each message counts besides its text, as in chat formats."""


class RehearsalWorker:
    """One worker of the rehearsal pool.

    Args:
        spec: its ``model`` (``rehearsal/NAME``) says which profile it has; ``params["max_tokens"]`` cuts its answers.
        seed: the same seed, worker and messages give the same text.
        tokens_per_s: pace of the stream; 0: at once, without a single wait.
    Raises: PoolInvalid if there is no such profile.
    """

    def __init__(self, spec: WorkerSpec, *, seed: int, tokens_per_s: float) -> None:
        name = spec.model.removeprefix("rehearsal/")
        found = skills.BY_NAME.get(name)
        if found is None:
            known = ", ".join(each.name for each in skills.PROFILES)
            fault = f"worker {spec.name!r}: no rehearsal profile {spec.model!r}; there are: {known}"
            raise PoolInvalid(fault, [fault])
        self._spec, self._profile, self._seed, self._tokens_per_s = spec, found, seed, tokens_per_s

    @property
    def spec(self) -> WorkerSpec:
        return self._spec

    def respond(self, messages: Sequence[Message]) -> str:
        return _Answerer(self._profile, self._seed, messages).text()

    def drawn(self, messages: Sequence[Message]) -> Branch:
        """Returns what was drawn for ``respond``'s text, among all that may happen."""
        return _Answerer(self._profile, self._seed, messages).drawn

    async def answer(self, messages: Sequence[Message], terms: CallTerms = NO_TERMS) -> AsyncIterator[Chunk]:
        """Streams the answer at the worker's pace. Cancelling it between two words leaves nothing behind.

        It calls no tools, and knows no form of answers.

        That it cannot answer it says at once.
        """
        answerer = _Answerer(self._profile, self._seed, messages)
        pieces = token_pieces(answerer.text())
        limits = [limit for limit in (self._spec.params.get("max_tokens"), terms.rules.max_tokens) if limit]
        cut = bool(limits) and 0 < min(limits) < len(pieces)
        if cut:
            pieces = pieces[: min(limits)]
        if self._tokens_per_s > 0 and answerer.manner != "receipt":
            async for piece in self._paced(pieces):
                yield TextDelta(text=piece)
        else:
            yield TextDelta(text="".join(pieces))
        yield Finished(
            finish_reason="length" if cut else "stop",
            usage=Usage(input_tokens=input_tokens(messages), output_tokens=len(pieces)),
            cost_usd=0.0,
            model=f"rehearsal/{self._profile.name} (simulated)",
        )

    async def _paced(self, pieces: Sequence[str]) -> AsyncIterator[str]:
        """Waits before the first piece and between pieces, on a schedule, so that small delays do not add up."""
        rng = Random(f"{self._seed}/{self._profile.name}/pace/{len(pieces)}")  # noqa: S311 - a rhythm, not a secret
        rate = self._tokens_per_s * self._profile.pace
        loop = asyncio.get_running_loop()
        due = loop.time() + self._profile.thinking_tokens / rate * rng.uniform(0.7, 1.3)
        for piece in pieces:
            wait = due - loop.time()
            if wait > 0:
                await asyncio.sleep(wait)
            yield piece
            due += rng.uniform(0.6, 1.4) / rate

    async def aclose(self) -> None:
        """Releases nothing."""


def input_tokens(messages: Sequence[Message]) -> int:
    """Counts the tokens of a prompt by the rehearsal pool's own rule (see ``token_pieces``)."""
    return sum(token_count(message.text) + _MESSAGE_OVERHEAD_TOKENS for message in messages)


class _Answerer:
    """One answer: drawn by a hash of seed, worker and the exact messages from what may happen, then put into words."""

    def __init__(self, profile: Profile, seed: int, messages: Sequence[Message]) -> None:
        exact = json.dumps([_DEAL, seed, profile.name, [[message.role, message.text] for message in messages]])
        self._digest = hashlib.sha256(exact.encode(errors="surrogatepass"))
        self._profile = profile
        self._view = read_messages(messages)
        self._voice = Random(self._digest.digest())  # noqa: S311 - a choice of words, not a secret

    def text(self) -> str:
        # No two calls sign alike, so that what is drawn for a step that reads one says nothing about another.
        signature = SIGNATURE.format(name=self._profile.name, digest=self._digest.hexdigest()[:6])
        return f"{self._words()}\n\n{signature}"

    @property
    def manner(self) -> Manner:
        return self.drawn.manner

    def _words(self) -> str:
        view = self._view
        task, drawn = view.task, self.drawn
        if drawn.manner == "receipt":
            return receipt_text(view)
        if drawn.manner == "nothing":
            return nothing_text(view)
        if task is not None and drawn.manner in ("complete plan", "poor plan"):
            return self._plan(task, complete=drawn.manner == "complete plan")
        answer = view.answers()[drawn.answer or RIGHT]
        if drawn.manner == "unchecked":
            return unchecked_text(view.given)
        if drawn.manner == "passed on":
            return final_text(task, answer, view.given[-1].checked, self._voice)
        if drawn.manner in REASONS:
            # The wording of an answer in view is kept.
            return combined_text(task, view.given, self._as_given(answer), drawn.manner)
        if task is None:
            raise AssertionError(f"{drawn.manner} without the question in view")
        working = _working(task, drawn.answer)
        if drawn.manner in ("solution", "doubted solution"):
            style = "figures" if view.role == "compute" else self._profile.style
            doubted = drawn.manner == "doubted solution"
            return solution_text(task, answer, working, view, style, doubted=doubted, rng=self._voice)
        return check_text(task, view.given, drawn.manner, answer, working)

    @cached_property
    def drawn(self) -> Branch:
        view = self._view
        task = view.task
        # Without the question neither family nor difficulty is looked at.
        family, difficulty, slips = (
            (task.family, task.difficulty, len(task.solution.slips)) if task else (FAMILIES[0], DIFFICULTIES[0], 1)
        )
        branches = decide(self._profile.name, family, difficulty, slips, view.sight(self._profile.name))
        left = int.from_bytes(self._digest.digest()[:7], "big") / 2**56
        for branch in branches:
            left -= branch.chance
            if left < 0:
                return branch
        return branches[-1]

    def _as_given(self, answer: str) -> str:
        kind = self._view.task.solution.kind if self._view.task else "exact"
        key = answer_key(answer, kind)
        return next((each.answer for each in self._view.given if each.key == key), answer)

    def _plan(self, task: RehearsalTask, *, complete: bool) -> str:
        lines = list(task.solution.plan)
        if not complete:
            lines[self._voice.randrange(min(1, len(lines) - 1), len(lines))] = "Work out what is left."
        return plan_text(task, lines, complete, self._voice)


def _working(task: RehearsalTask, answer: int | None) -> tuple[str, ...]:
    """Returns the working that leads to an answer, by its number (see ``skills``)."""
    if not answer:
        return task.solution.working
    slips = task.solution.slips
    return slips[answer - 1].working if answer <= len(slips) else ("The working in view leads to this.",)
