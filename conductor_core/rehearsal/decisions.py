"""Says what a simulated worker may do, and with what chance. The worker draws by these rules; ``exact`` adds them up.

A decision depends on the profile, the task's family, difficulty and number of slips, and on what is in sight. Answers
are numbers here: 0 is right, 1 to n are the task's slips, higher ones are answers that belong to no slip.
"""

from collections import Counter
from functools import lru_cache
from typing import Literal, NamedTuple

from conductor_core.rehearsal import profiles
from conductor_core.rehearsal.families import Difficulty
from conductor_core.rehearsal.profiles import Profile, Role

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
    profile = profiles.BY_NAME[worker]
    if not sight.question and not sight.given:
        return (Branch(1.0, "receipt"),)
    match sight.role:
        case "plan" if sight.question:
            complete = profiles.plan_chance(profile, difficulty)
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
    right = profiles.solve_chance(profile, family, difficulty, help_logits=help_logits(sight, difficulty))
    noticed, needless = profiles.DOUBT_IF_WRONG, profiles.DOUBT_IF_RIGHT
    return (
        Branch(right * (1 - needless), "solution", RIGHT),
        Branch(right * needless, "doubted solution", RIGHT),
        *_wrong((1 - right) * (1 - noticed), "solution", slips),
        *_wrong((1 - right) * noticed, "doubted solution", slips),
    )


def help_logits(sight: Sight, difficulty: Difficulty) -> float:
    """Returns what the context adds to a solver's chance: a plan, earlier answers, the wording of the instruction."""
    added = {"good": profiles.GOOD_PLAN_LOGITS[difficulty], "poor": profiles.POOR_PLAN_LOGITS, None: 0.0}[sight.plan]
    added += {"clear": profiles.CLEAR_LOGITS, "plain": 0.0, "vague": profiles.VAGUE_LOGITS}[sight.wording]
    if sight.given:
        share = sum(each.answer == RIGHT for each in sight.given) / len(sight.given)
        added += profiles.ANCHOR_RIGHT_LOGITS if share > 0.5 else profiles.ANCHOR_WRONG_LOGITS
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
    recomputed = profiles.recompute_chance(
        profile, family, difficulty, own_work=subject.own, help_logits=profiles.ANCHOR_RIGHT_LOGITS if doubtful else 0.0
    )
    if subject.answer == RIGHT:
        false_alarm = (1 - recomputed) * profiles.FALSE_ALARM
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
    seen = profiles.judge_chance(profile, difficulty, own_work=all(each.own for each in given))
    return (Branch(seen, "convincing one", RIGHT), counted._replace(chance=1 - seen))


def _pass_on(profile: Profile, slips: int, sight: Sight) -> tuple[Branch, ...]:
    last = sight.given[-1].answer
    if not sight.question:
        return (Branch(1.0, "passed on", last),)
    return (Branch(profile.write, "passed on", last), *_wrong(1 - profile.write, "passed on", slips))
