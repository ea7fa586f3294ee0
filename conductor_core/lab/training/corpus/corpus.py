"""The cold-start corpus: an endless stream of prompts for the tiny Conductor, with the plans that it should write.

Each example draws a task, the roles of a pool that are taken (k of n), a step limit, sometimes the offer of recursion
or a parent's plan, and a plan that fits them all. The same seed gives the same examples on every machine.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from conductor_core.chat.messages import ParentPlan, PlanRequest
from conductor_core.conductors.prompts import short_prompt
from conductor_core.lab.training.config import BEST_OF
from conductor_core.lab.training.corpus.plans import Plan, draw_plan, draw_present, draw_repair, draw_stop, specs
from conductor_core.lab.training.corpus.tasks import CorpusTask, draw_task
from conductor_core.lab.training.corpus.wording import choose, table

PARENT_SHARE = 0.05
RECURSION_SHARE = 0.15


@dataclass(frozen=True)
class TrainingExample:
    """One training example: the prompt's request and the plan."""

    task: CorpusTask
    request: PlanRequest
    plan: Plan

    @property
    def prompt(self) -> str:
        return short_prompt(self.request)

    @property
    def completion(self) -> str:
        return self.plan.completion()


def examples(seed: int, best_of: int = BEST_OF) -> Iterator[TrainingExample]:
    """Yields examples without end. ``best_of``: how many plans for a rehearsal question are compared by reward."""
    rng = random.Random(seed)
    while True:
        # Each example has its own generator, so that a change to one kind of task leaves the other examples unchanged.
        yield draw_example(random.Random(rng.getrandbits(64)), best_of)


def draw_example(rng: random.Random, best_of: int = BEST_OF) -> TrainingExample:
    """Draws one example; ``best_of`` as for ``examples``."""
    task, present, max_steps = draw_task(rng), draw_present(rng), _draw_max_steps(rng)
    if rng.random() < PARENT_SHARE:
        return _inner_example(task, present, max_steps, rng, best_of)
    recursion = rng.random() < RECURSION_SHARE
    request = PlanRequest(task=task.text, agents=specs(present), max_steps=max_steps, allow_recursion=recursion)
    return TrainingExample(
        task, request, draw_plan(task, present, max_steps, rng, recursion=recursion, best_of=best_of)
    )


def _draw_max_steps(rng: random.Random) -> int:
    return rng.choices((1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16), (7, 9, 13, 12, 45, 3, 2, 4, 2, 2, 1))[0]


def _inner_example(
    task: CorpusTask, present: tuple[int, ...], max_steps: int, rng: random.Random, best_of: int
) -> TrainingExample:
    """Draws a recursive call. It gives the parent's plan and the last response, and the Conductor stops or repairs."""
    parent = draw_plan(task, present, max(2, max_steps), rng, recursion=True, best_of=best_of)
    settled = rng.random() < 0.5
    response = choose(rng.choice(table("hints")["settled" if settled else "doubtful"]), rng).replace(
        "<n>", str(rng.randint(2, 999))
    )
    request = PlanRequest(
        task=task.text,
        agents=specs(present),
        max_steps=max_steps,
        allow_recursion=rng.random() < 0.6,
        parent=ParentPlan(plan=parent.completion().partition("\n")[2], last_response=response),
    )
    plan = draw_stop(rng) if settled else draw_repair(task, present, max_steps, rng, best_of=best_of)
    return TrainingExample(task, request, plan)
