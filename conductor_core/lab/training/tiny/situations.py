"""What a Conductor learns from: prompts (rehearsal tasks, each with a random pool and step limit), and their reward."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from conductor_core.chat.messages import PlanRequest
from conductor_core.conductors.prompts import short_prompt
from conductor_core.conductors.roles import numbering
from conductor_core.lab.training.config import HeldOutConfig, PoolDraw
from conductor_core.rehearsal import DIFFICULTIES, FAMILIES, RehearsalTask, generate, rehearsal_specs
from conductor_core.rehearsal.exact import success_chance
from conductor_core.rehearsal.skills import Manner
from conductor_core.workflow.model import Workflow
from conductor_core.workflow.parser import parse_completion
from conductor_core.workflow.validation import validate

_TRAINING_SEEDS = 10**9
"""Training questions have smaller seeds; held-out questions have this seed or a larger one."""


@dataclass(frozen=True)
class Inner:
    """An inner round: the workflow that it belongs to, and the manner of the last response."""

    first: Workflow
    manner: Manner


@dataclass(frozen=True)
class Situation:
    """One prompt: a request, and the task that it is about.

    Attributes:
        inner: set for an inner round only.
        again: the plan that the inner round is assumed to write; set for an outer round that may recurse.
        step_cost: the reward's cost of a step, if the choice of the inner round depends on it.
    """

    request: PlanRequest
    task: RehearsalTask
    inner: Inner | None = None
    again: Workflow | None = None
    step_cost: float = 0.0

    @cached_property
    def prompt(self) -> str:
        return short_prompt(self.request)

    @cached_property
    def agents(self) -> tuple[str | None, ...]:
        """Returns names by ordinal; None marks an ordinal that a plan must not name."""
        return numbering(self.request.agents)

    @property
    def present(self) -> tuple[int, ...]:
        """Returns the ordinals of the workers that the prompt offers."""
        return tuple(role for role, name in enumerate(self.agents) if name is not None)


def draw_situation(
    rng: random.Random, pool: PoolDraw, *, task: RehearsalTask | None = None, allow_recursion: bool = False
) -> Situation:
    """Draws a prompt with a pool and a step limit from ``rng``, and a task unless one is given."""
    task = task or draw_task(rng)
    workers = rehearsal_specs()
    if rng.random() >= pool.whole_share:
        workers = pool.part_of(workers, rng)
    most = pool.most_steps
    if most > 1 and rng.random() >= pool.full_steps_share:
        most = rng.randint(1, most - 1)
    request = PlanRequest(task=task.question, agents=workers, max_steps=most, allow_recursion=allow_recursion)
    return Situation(request, task)


def draw_task(rng: random.Random) -> RehearsalTask:
    """Draws a question of the train split. Every family and every difficulty is equally likely."""
    return generate(rng.choice(FAMILIES), rng.choice(DIFFICULTIES), rng.randrange(_TRAINING_SEEDS))


def draw_situations(seed: str, count: int, pool: PoolDraw) -> list[Situation]:
    """Returns the first ``count`` prompts of a training. They depend on the seed, but not on ``count``."""
    return [draw_situation(random.Random(f"{seed}/{number}"), pool) for number in range(count)]


def held_out_situations(config: HeldOutConfig, most_steps: int) -> list[Situation]:
    """Returns prompts for measuring progress: with the whole pool, over families and difficulties in turn. No training
    uses their seeds, but a short question may still equal one of the training."""
    workers = rehearsal_specs()
    kinds = [(family, difficulty) for difficulty in DIFFICULTIES for family in FAMILIES]
    tasks: Sequence[RehearsalTask] = [
        generate(*kinds[number % len(kinds)], _TRAINING_SEEDS + number, split=config.split)
        for number in range(config.tasks)
    ]
    return [Situation(PlanRequest(task=task.question, agents=workers, max_steps=most_steps), task) for task in tasks]


# The reward (arXiv 2512.04388, section 4). Departures: a plan must also be valid (an absent agent or a step too many
# gives 0). The exact chance of a right answer replaces the draw, which is mostly noise at the batch sizes of a laptop.
# Each step after the first may cost something.


class Worth(NamedTuple):
    """The chance that a valid workflow gives a right answer, and the number of its steps that cost something."""

    chance: float
    steps: float


Judge = Callable[[Situation, Workflow], Worth]


def exact_worth(situation: Situation, workflow: Workflow) -> Worth:
    """Computes the worth from all outcomes in the rehearsal world. All steps but the first cost something."""
    return Worth(success_chance(situation.task, workflow), len(workflow.steps) - 1)


@dataclass(frozen=True)
class Scored:
    """One scored plan. ``workflow`` and ``chance`` are None if the plan is not valid."""

    reward: float
    workflow: Workflow | None = None
    chance: float | None = None


def read_plan(situation: Situation, completion: str) -> Workflow | None:
    """Returns the valid workflow in ``completion``, or None. Three empty lists are valid in an inner round only."""
    return validate(
        parse_completion(completion),
        situation.agents,
        max_steps=situation.request.max_steps,
        allow_recursion=situation.request.allow_recursion,
        allow_stop=situation.request.parent is not None,
    ).workflow


def score(situation: Situation, completion: str, step_cost: float, judge: Judge) -> Scored:
    workflow = read_plan(situation, completion)
    if workflow is None:
        return Scored(0.0)
    chance, paid = judge(situation, workflow)
    return Scored(0.5 + 0.5 * chance - step_cost * paid, workflow, chance)
