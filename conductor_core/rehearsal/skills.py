"""The seven simulated workers, their skills and their rules, as a model of why orchestration is worth while.

The model has three effects: models differ in skill by kind of task, a plan in view helps
on hard tasks, and a check helps only with the solution in view. The figures are chosen to show them. They measure
nothing and claim nothing about any vendor's model, which is why the workers have neutral names.

``decide`` says what a worker may do, and with what chance: the worker draws by these rules, ``exact`` adds them up. A
decision depends on the profile, the task's family, difficulty and number of slips, and on what is in sight. Answers are
numbers there: 0 is right, 1 to n are the task's slips, higher ones are answers that belong to no slip.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import exp, log
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

from conductor_core.chat.messages import Price, WorkerSpec
from conductor_core.rehearsal.families import FAMILIES, Difficulty
from conductor_core.rehearsal.families.family import words

Role = Literal["solve", "compute", "code", "plan", "verify", "aggregate", "write", "format"]
"""What a step's instruction asks for."""

Style = Literal["steps", "figures", "prose"]


@dataclass(frozen=True)
class Profile:
    """A simulated worker.

    Attributes:
        skills: chance of a right answer to a medium question of a family, asked plainly with nothing else in view.
        checks: chance that it recomputes a solution of another worker to a medium question of a family.
        plan: chance that its plan leaves nothing out, on a medium question.
        aggregate: chance that it sees which of several answers to a medium question holds, whatever the majority.
        write: chance that it passes an answer on unharmed.
        style: the form of its working: numbered steps, lines of figures, or running prose.
        pace: its speed, as a multiple of the pool's tokens per second. thinking_tokens: its silence before the first
            word, in tokens at that pace.
    """

    name: str
    description: str
    skills: Mapping[str, float]
    checks: Mapping[str, float]
    plan: float
    aggregate: float
    write: float
    style: Style
    pace: float
    thinking_tokens: int


def _by_family(figures: Mapping[str, float]) -> Mapping[str, float]:
    if unknown := set(figures) - {*FAMILIES, "otherwise"}:
        raise ValueError(f"no such families: {', '.join(sorted(unknown))}")
    return MappingProxyType({family: figures.get(family, figures["otherwise"]) for family in FAMILIES})


PROFILES: tuple[Profile, ...] = tuple(
    Profile(name, **figures | {kind: _by_family(figures[kind]) for kind in ("skills", "checks")})
    for name, figures in words(Path(__file__).with_name("profiles.toml")).items()
)
"""The published table. Every figure that decides a simulated answer is there or in the constants below."""

DIFFICULTY_LOGITS: Mapping[Difficulty, float] = MappingProxyType({"easy": 2.0, "medium": 0.0, "hard": -2.3})
GOOD_PLAN_LOGITS: Mapping[Difficulty, float] = MappingProxyType({"easy": 0.2, "medium": 1.1, "hard": 2.1})
POOR_PLAN_LOGITS = -0.4
"""What a plan in view adds to a solver's chance: one that leaves nothing out (the harder the task, the more), and one
that does."""
ANCHOR_RIGHT_LOGITS, ANCHOR_WRONG_LOGITS = 1.2, -0.6
"""What earlier answers in view add to a solver's chance, when most of them are right, and when not."""
CLEAR_LOGITS, VAGUE_LOGITS = 0.4, -0.4
"""An instruction that says what to do in at least five words of its own; one of hardly any."""
PLANNING_LOGITS: Mapping[Difficulty, float] = MappingProxyType({"easy": 1.0, "medium": 0.0, "hard": -0.5})
"""What the difficulty adds to the chance of a plan that leaves nothing out."""
CHECKING_LOGITS: Mapping[Difficulty, float] = MappingProxyType({"easy": -1.4, "medium": 0.0, "hard": -1.0})
"""What the difficulty adds to the chance that a check recomputes: what looks easy is waved through."""
JUDGING_LOGITS: Mapping[Difficulty, float] = MappingProxyType({"easy": 0.0, "medium": 0.0, "hard": -1.4})
"""What the difficulty adds to the chance of seeing which of several answers holds."""
OWN_WORK_LOGITS = -2.0
"""What is missing when a worker checks or weighs what it wrote itself: it takes the same turn again."""
FALSE_ALARM = 0.02
"""How often a check that did not recompute a right solution spoils it."""
DOUBT_IF_WRONG, DOUBT_IF_RIGHT = 0.5, 0.08
"""How often a solver says that it is not sure of a line: often when it is wrong, seldom when it is right."""

BY_NAME: Mapping[str, Profile] = MappingProxyType({each.name: each for each in PROFILES})


def _shifted(chance: float, logits: float) -> float:
    return 1 / (1 + exp(-(log(chance / (1 - chance)) + logits)))


def solve_chance(worker: Profile, family: str, difficulty: Difficulty, *, help_logits: float = 0.0) -> float:
    """Returns the chance that ``worker`` solves a question; ``help_logits`` is the sum of what its context adds."""
    return _shifted(worker.skills[family], DIFFICULTY_LOGITS[difficulty] + help_logits)


def plan_chance(worker: Profile, difficulty: Difficulty) -> float:
    return _shifted(worker.plan, PLANNING_LOGITS[difficulty])


def judge_chance(worker: Profile, difficulty: Difficulty, *, own_work: bool = False) -> float:
    """Returns the chance that ``worker`` sees which of several answers is right, where counting them would mislead."""
    return _shifted(worker.aggregate, JUDGING_LOGITS[difficulty] + (OWN_WORK_LOGITS if own_work else 0.0))


def recompute_chance(
    worker: Profile, family: str, difficulty: Difficulty, *, own_work: bool = False, help_logits: float = 0.0
) -> float:
    """Returns the chance that ``worker`` recomputes a solution in view; then it confirms or mends it."""
    own = OWN_WORK_LOGITS if own_work else 0.0
    return _shifted(worker.checks[family], CHECKING_LOGITS[difficulty] + own + help_logits)


def rehearsal_specs() -> tuple[WorkerSpec, ...]:
    """Returns the simulated pool, in the order of its ordinals. Its workers cost nothing, and say so."""
    return tuple(
        WorkerSpec(
            name=worker.name,
            provider="rehearsal",
            model=f"rehearsal/{worker.name}",
            description=worker.description,
            usd_per_mtok=Price(input=0.0, output=0.0),
            timeout_s=120,
            max_concurrency=64,
        )
        for worker in PROFILES
    )


# Rules.

Wording = Literal["clear", "plain", "vague"]
PlanInView = Literal["good", "poor"] | None

RIGHT = 0

Manner = Literal[
    "receipt", "nothing", "complete plan", "poor plan", "solution", "doubted solution", "confirmed", "corrected",
    "read through", "unchecked", "only one", "all agree", "majority", "checked one", "convincing one",
    "first of equals", "passed on",
]  # fmt: skip
"""The kind of text that a worker writes. Each is worded differently, so that a reader can tell it from the others."""


class Seen(NamedTuple):
    """An answer in view.

    Attributes:
        checked: whether it stands in the report of a check that recomputed it.
        own: whether the worker that reads it wrote that text itself.
    """

    answer: int
    checked: bool
    own: bool = False


class Sight(NamedTuple):
    """All that a decision depends on besides the worker and the task.

    Attributes:
        question: whether the task's question is in view.
        given: the answers in view, in the order granted.
    """

    role: Role
    wording: Wording
    question: bool
    plan: PlanInView
    given: tuple[Seen, ...]


class Branch(NamedTuple):
    """One thing that may happen. ``answer`` is None where the text gives none."""

    chance: float
    manner: Manner
    answer: int | None = None
    checked: bool = False


@lru_cache(maxsize=200_000)
def decide(worker: str, family: str, difficulty: Difficulty, slips: int, sight: Sight) -> tuple[Branch, ...]:
    """Returns everything that ``worker`` may do; the chances add up to 1.

    Args:
        slips: how many wrong answers the task invites, at least 1; each is equally likely.
    Raises: KeyError if there is no such worker.
    """
    profile = BY_NAME[worker]
    if not sight.question and not sight.given:
        return (Branch(1.0, "receipt"),)
    match sight.role:
        case "plan" if sight.question:
            complete = plan_chance(profile, difficulty)
            return (Branch(complete, "complete plan"), Branch(1 - complete, "poor plan"))
        case "verify":
            return _verify(profile, family, difficulty, slips, sight)
        case "aggregate":
            return _aggregate(profile, difficulty, sight)
        case "write" | "format" if sight.given:
            return _pass_on(profile, slips, sight)
        case _ if sight.question:
            return _solve(profile, family, difficulty, slips, sight)
        case _:
            return (Branch(1.0, "receipt"),)


def _wrong(chance: float, manner: Manner, slips: int, *, checked: bool = False) -> tuple[Branch, ...]:
    return tuple(Branch(chance / slips, manner, slip, checked) for slip in range(1, slips + 1))


def _solve(profile: Profile, family: str, difficulty: Difficulty, slips: int, sight: Sight) -> tuple[Branch, ...]:
    right = solve_chance(profile, family, difficulty, help_logits=help_logits(sight, difficulty))
    noticed, needless = DOUBT_IF_WRONG, DOUBT_IF_RIGHT
    return (
        Branch(right * (1 - needless), "solution", RIGHT),
        Branch(right * needless, "doubted solution", RIGHT),
        *_wrong((1 - right) * (1 - noticed), "solution", slips),
        *_wrong((1 - right) * noticed, "doubted solution", slips),
    )


def help_logits(sight: Sight, difficulty: Difficulty) -> float:
    """Returns what the context adds to a solver's chance: a plan, earlier answers, the wording of the instruction."""
    added = {"good": GOOD_PLAN_LOGITS[difficulty], "poor": POOR_PLAN_LOGITS, None: 0.0}[sight.plan]
    added += {"clear": CLEAR_LOGITS, "plain": 0.0, "vague": VAGUE_LOGITS}[sight.wording]
    if sight.given:
        share = sum(each.answer == RIGHT for each in sight.given) / len(sight.given)
        added += ANCHOR_RIGHT_LOGITS if share > 0.5 else ANCHOR_WRONG_LOGITS
    return added


def prevailing(given: tuple[Seen, ...]) -> Seen:
    """Returns the answer that a check is about: the most frequent one; of several such answers the last."""
    counts = Counter(each.answer for each in given)
    return max(reversed(given), key=lambda each: counts[each.answer])


def _verify(profile: Profile, family: str, difficulty: Difficulty, slips: int, sight: Sight) -> tuple[Branch, ...]:
    """Checks: it recomputes and finds the right answer, or reads through the working and lets it pass."""
    if not sight.given:
        return (Branch(1.0, "nothing"),)
    if not sight.question:
        return (Branch(1.0, "unchecked", sight.given[-1].answer),)
    subject = prevailing(sight.given)
    # Another answer that is right makes a mistake easier to see.
    doubtful = subject.answer != RIGHT and any(each.answer == RIGHT for each in sight.given)
    recomputed = recompute_chance(
        profile, family, difficulty, own_work=subject.own, help_logits=ANCHOR_RIGHT_LOGITS if doubtful else 0.0
    )
    if subject.answer == RIGHT:
        false_alarm = (1 - recomputed) * FALSE_ALARM
        return (
            Branch(recomputed, "confirmed", RIGHT, True),
            Branch(1 - recomputed - false_alarm, "read through", RIGHT),
            *_wrong(false_alarm, "corrected", slips, checked=True),
        )
    return (Branch(recomputed, "corrected", RIGHT, True), Branch(1 - recomputed, "read through", subject.answer))


def _aggregate(profile: Profile, difficulty: Difficulty, sight: Sight) -> tuple[Branch, ...]:
    """Takes the majority; among equals an answer that was recomputed, else the first.

    With the question in view it may also see which of the answers is right, if one is.
    """
    given = sight.given
    if not given:
        return (Branch(1.0, "nothing"),)
    counts = Counter(each.answer for each in given)
    most = max(counts.values())
    tied = [answer for answer in counts if counts[answer] == most]
    checked = [each.answer for each in given if each.checked and each.answer in tied]
    if len(counts) == 1:
        return (Branch(1.0, "all agree" if len(given) > 1 else "only one", tied[0]),)
    if len(tied) == 1:
        counted = Branch(1.0, "majority", tied[0])
    else:
        counted = Branch(1.0, "checked one", checked[-1]) if checked else Branch(1.0, "first of equals", tied[0])
    if not sight.question or RIGHT not in counts or counted.answer == RIGHT:
        return (counted,)
    seen = judge_chance(profile, difficulty, own_work=all(each.own for each in given))
    return (Branch(seen, "convincing one", RIGHT), counted._replace(chance=1 - seen))


def _pass_on(profile: Profile, slips: int, sight: Sight) -> tuple[Branch, ...]:
    last = sight.given[-1].answer
    if not sight.question:
        return (Branch(1.0, "passed on", last),)
    return (Branch(profile.write, "passed on", last), *_wrong(1 - profile.write, "passed on", slips))
