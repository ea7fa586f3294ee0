"""Supervised examples of inner rounds, before reward: real last responses, each with its better completion.

The corpus has only invented last responses. Here the simulated workers carry out a plan that ends in the Conductor
itself, and their text is the last response. The completion is three empty lists or a new plan, whichever has the
higher exact reward. A new plan always has the corpus' words for a response in doubt. No first plan has these words,
so no worker gets an identical call, which it would answer identically. Without these examples a policy met its first
real inner rounds in reinforcement learning, and half of what it wrote was malformed.
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
"""How many plans are compared for an example: more than for the cold start, which leaves some to exploration."""
HARD_SHARE = 0.6
"""Share of hard questions. For other questions a further round is hardly ever worth its steps."""


def draw_inner_round(rng: random.Random, pool: PoolDraw, step_cost: float) -> TrainingExample:
    """Draws an inner round on a rehearsal question, with the completion that is worth more."""
    task, outer = _draw_outer(rng, pool)
    present, most = outer.present, outer.request.max_steps
    # Both plans are as good as the policy's own, so that the examples look like what the policy meets later: agents
    # that are worth naming again, and last responses that are mostly checks.
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
    """Draws two examples of one question and pool: a first round that may recurse, and its twin that may not.

    The first recurses if that, with a well-played inner round, is worth more than the twin's plan.
    """
    task, outer = _draw_outer(rng, pool)
    present, most = outer.present, outer.request.max_steps
    once = draw_plan(task, present, most, rng, best_of=TAUGHT_BEST_OF)
    further = draw_plan(task, present, most, rng, recursion=True, best_of=TAUGHT_BEST_OF)
    again = draw_repair(task, present, most, rng, best_of=TAUGHT_BEST_OF)
    priced = replace(outer, again=again.workflow(), step_cost=step_cost)
    recurses = bool(further.steps) and further.steps[-1].ordinal == len(SEATS)
    best = max((once, further) if recurses else (once,), key=lambda plan: _value(priced, plan, step_cost))
    alone = outer.request.model_copy(update={"allow_recursion": False})
    return TrainingExample(task, outer.request, best), TrainingExample(task, alone, once)


def _draw_outer(rng: random.Random, pool: PoolDraw) -> tuple[CorpusTask, Situation]:
    """Draws a rehearsal question in its original wording, and a first round about it that may recurse."""
    hard = rng.random() < HARD_SHARE
    while True:
        task = draw_task(rng)
        known = task.rehearsal
        if known is not None and task.text == known.question and hard == (known.difficulty == "hard"):
            return task, draw_situation(rng, pool, task=known, allow_recursion=True)


def draw_other_example(seed: str) -> TrainingExample:
    """Draws an example of a task that is no rehearsal question."""
    drawn = (draw_example(random.Random(f"{seed}/{number}")) for number in itertools.count())
    return next(each for each in drawn if each.task.rehearsal is None)
