"""Folds the answers of replays into the effect of each change, and ranks the changes. Pure."""

from collections.abc import Mapping
from typing import Literal

from conductor_core.blame.experiments import Arm, Change, Experiment, Experiments, Replay
from conductor_core.proportions import (
    Difference,
    Pairs,
    against_none,
    paired_proportions,
    pairs_needed,
    wilson,
)
from conductor_core.workflow.model import Frozen

MARGIN = 0.1
"""An effect within so much of zero, in flips per replay, counts as none."""
STEPS_FIRST = 0.5
"""A step comes before accesses if its effect is at least this share of theirs."""
Finding = Literal["decides", "steadies", "no effect", "inconclusive", "not measured"]
"""``decides``: the answer flips more often with the change than without. ``steadies``: less often. ``no effect``: the
interval lies within ``MARGIN`` of zero."""


class Flips(Frozen):
    """How often the answer flipped in the replays of an arm that have a partner.

    Attributes:
        certain: the arm asks nothing anew, so its answer is the recorded one and cannot flip.
        low, high: the ends of the 95 % interval after Wilson, from 0 to 1.
    """

    flipped: int
    replays: int
    rate: float
    low: float
    high: float
    certain: bool = False

    @property
    def counted(self) -> str:
        return f"{self.flipped} of {self.replays}"


class Effect(Frozen):
    """What one change does to the answer.

    Attributes:
        rank: from 1; the same for no two.
        pairs: replays that have an answer in both arms. missing: pairs still to be replayed, or without an answer.
        effect: flips with the change less flips without, per replay, with its 95 % interval.
        needed: how many pairs would settle an inconclusive finding if they go on as so far; None: too many, or settled.
    """

    change: Change
    finding: Finding
    pairs: int = 0
    missing: int = 0
    with_it: Flips | None = None
    without: Flips | None = None
    effect: float = 0.0
    low: float = -1.0
    high: float = 1.0
    needed: int | None = None
    rank: int = 0


Answers = Mapping[Replay, bool | None]
"""For each replay that ended whether its answer flipped; None: it has no answer."""


def effects(experiments: Experiments, answers: Answers, count: int) -> tuple[Effect, ...]:
    """Returns the effect of every change, the one that decided most first.

    Steps that decide come first, if they do so at least half as strongly as any access: where a step's own answer is to
    blame, cutting or granting accesses can also go around it. Then come accesses that decide; of those that cannot be
    told from the strongest, the one whose reader comes first in the plan. Then all others by their effect, those that
    decide before the others, and last what is not measured.

    Args:
        count: replays of each arm.
    """
    found = sorted((_effect(experiment, answers, count) for experiment in experiments.experiments), key=_strength)
    deciding = [each for each in found if each.finding == "decides"]
    accesses = [each for each in deciding if each.change.source is not None]
    least = STEPS_FIRST * accesses[0].effect if accesses else 0.0
    steps = [each for each in deciding if each.change.source is None and each.effect >= least]
    alike = [each for each in accesses if each.effect >= accesses[0].low]
    ranking = [*steps, *sorted(alike, key=_place)]
    ranking += [each for each in deciding if each not in ranking]
    ranking += [each for each in found if each not in ranking]
    return tuple(each.model_copy(update={"rank": rank}) for rank, each in enumerate(ranking, start=1))


def _strength(effect: Effect) -> tuple[float, ...]:
    return (not effect.pairs, -round(effect.effect, 9), -round(effect.low, 9), *_place(effect))


def _place(effect: Effect) -> tuple[int, int]:
    """Sorts by the step that answers or reads; of its accesses, the latest source first."""
    source = effect.change.source
    return effect.change.step, -effect.change.step if source is None else -source


def _effect(experiment: Experiment, answers: Answers, count: int) -> Effect:
    pairs = [
        (with_it, without)
        for number in range(count)
        if (with_it := _flipped(experiment.with_it, number, answers)) is not None
        and (without := _flipped(experiment.without, number, answers)) is not None
    ]
    change, missing = experiment.change, count - len(pairs)
    if not pairs:
        return Effect(change=change, finding="not measured", missing=missing)
    table = Pairs(
        both=pairs.count((True, True)),
        first=pairs.count((True, False)),
        second=pairs.count((False, True)),
        neither=pairs.count((False, False)),
    )
    certain = not experiment.without.fresh
    difference = against_none(table.first, table.count) if certain else paired_proportions(table)
    finding = _finding(difference, certain=certain)
    return Effect(
        change=change,
        finding=finding,
        pairs=len(pairs),
        missing=missing,
        with_it=_flips(int(table.both + table.first), len(pairs)),
        without=_flips(int(table.both + table.second), len(pairs), certain=certain),
        effect=difference.mean,
        low=difference.low,
        high=difference.high,
        needed=pairs_needed(table, MARGIN, never_second=certain) if finding == "inconclusive" else None,
    )


def _flipped(arm: Arm, number: int, answers: Answers) -> bool | None:
    return answers.get(Replay(arm=arm, number=number)) if arm.fresh else False


def _flips(flipped: int, replays: int, *, certain: bool = False) -> Flips:
    found = wilson(flipped, replays)
    low, high = (0.0, 0.0) if certain else (found.low, found.high)
    return Flips(flipped=flipped, replays=replays, rate=found.rate, low=low, high=high, certain=certain)


def _finding(difference: Difference, *, certain: bool) -> Finding:
    # Where nothing else can flip the answer, a single flip only shows that it can.
    if difference.low > MARGIN if certain else difference.clear:
        return "decides" if difference.mean > 0 else "steadies"
    return "no effect" if difference.within(MARGIN) else "inconclusive"
