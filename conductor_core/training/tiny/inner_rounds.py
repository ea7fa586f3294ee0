"""Inner rounds to learn from by example, before reward takes over: real last responses, and the better of two ways on.

The corpus knows inner rounds only in its own words. Here the simulated workers carry out a plan that ends in the
Conductor itself, and what they wrote is the last response; the completion is whichever is worth more by exact reward:
three empty lists, or a new plan. That is always in the corpus' words for a response in doubt, which no first plan has:
a call in the same words would be answered in the same way. Without these examples a policy met its first real inner
rounds in reinforcement learning, and half of what it wrote was malformed.
"""

import itertools
import random
from dataclasses import replace

from conductor_core.conductors.seating import SEATS
from conductor_core.training.config import PoolDraw
from conductor_core.training.corpus.corpus import TrainingExample, draw_example
from conductor_core.training.corpus.plans import Plan, draw_plan, draw_repair, draw_stop
from conductor_core.training.corpus.tasks import CorpusTask, draw_task
from conductor_core.training.tiny.recursion import balanced_inner_situation, recursive, worth
from conductor_core.training.tiny.situations import Situation, draw_situation

TAUGHT_BEST_OF = 240
"""Plans that are weighed for an example: more than for the cold start, which leaves something to explore."""
HARD_SHARE = 0.6
"""Of the questions: elsewhere a further round is hardly ever worth its steps."""


def draw_inner_round(rng: random.Random, pool: PoolDraw, step_cost: float) -> TrainingExample:
    """One example: an inner round on a rehearsal question, answered in the way that is worth most."""
    task = _rehearsal_task(rng, hard=rng.random() < HARD_SHARE)
    if task.rehearsal is None:
        raise ValueError("the task is no rehearsal question")
    outer = draw_situation(rng, pool, task=task.rehearsal, allow_recursion=True)
    present = tuple(seat for seat in range(len(SEATS)) if outer.agents[seat] is not None)
    most = outer.request.max_steps
    # As good as those of the policy, so that what it meets is what it has learned from: agents that are worth naming
    # again, and last responses that are mostly checks.
    first = draw_plan(task, present, most, rng, best_of=TAUGHT_BEST_OF)
    again = draw_repair(task, present, most, rng, best_of=TAUGHT_BEST_OF)
    priced = replace(outer, again=again.workflow(), step_cost=step_cost)
    situation = balanced_inner_situation(priced, recursive(first.workflow(), outer, rng), rng)
    best = max((draw_stop(rng), again), key=lambda plan: _value(situation, plan, step_cost))
    return TrainingExample(task, situation.request, best)


def _value(situation: Situation, plan: Plan, step_cost: float) -> float:
    chance, paid = worth(situation, plan.workflow())
    return 0.5 * chance - step_cost * paid


def draw_outer_rounds(rng: random.Random, pool: PoolDraw, step_cost: float) -> tuple[TrainingExample, TrainingExample]:
    """Two examples on one question, put to the same pool: a first round that may recurse, and its twin, where the
    Conductor may not be asked again. The first does recurse where that is worth more, an inner round played well, than
    the twin's plan.
    """
    task = _rehearsal_task(rng, hard=rng.random() < HARD_SHARE)
    if task.rehearsal is None:
        raise ValueError("the task is no rehearsal question")
    outer = draw_situation(rng, pool, task=task.rehearsal, allow_recursion=True)
    present = tuple(seat for seat in range(len(SEATS)) if outer.agents[seat] is not None)
    most = outer.request.max_steps
    once = draw_plan(task, present, most, rng, best_of=TAUGHT_BEST_OF)
    further = draw_plan(task, present, most, rng, recursion=True, best_of=TAUGHT_BEST_OF)
    again = draw_repair(task, present, most, rng, best_of=TAUGHT_BEST_OF)
    priced = replace(outer, again=again.workflow(), step_cost=step_cost)
    recurses = bool(further.steps) and further.steps[-1].ordinal == len(SEATS)
    best = max((once, further) if recurses else (once,), key=lambda plan: _value(priced, plan, step_cost))
    alone = outer.request.model_copy(update={"allow_recursion": False})
    return TrainingExample(task, outer.request, best), TrainingExample(task, alone, once)


def _rehearsal_task(rng: random.Random, *, hard: bool | None = None) -> CorpusTask:
    """A rehearsal question as it stands; a hard one or not, or any."""
    while True:
        task = draw_task(rng)
        known = task.rehearsal
        if known is not None and task.text == known.question and hard in (None, known.difficulty == "hard"):
            return task


def draw_other_example(seed: str) -> TrainingExample:
    """Draws an example of a task that is no rehearsal question."""
    drawn = (draw_example(random.Random(f"{seed}/{number}")) for number in itertools.count())
    return next(each for each in drawn if each.task.rehearsal is None)
