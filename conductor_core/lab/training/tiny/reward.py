"""The reward of a plan.

It follows arXiv 2512.04388, section 4: 0 for a completion that does not parse, 0.5 for a workflow with a wrong answer,
1 for one with a right answer. Departures: a plan must also be valid (an absent agent or a step too many gives 0). The
exact chance of a right answer can replace the draw, which is mostly noise at the batch sizes of a laptop. Each step
after the first may cost something.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from conductor_core.lab.training.config import Reward
from conductor_core.lab.training.tiny.situations import Situation
from conductor_core.rehearsal.exact import success_chance
from conductor_core.workflow.model import Workflow
from conductor_core.workflow.parser import parse_completion
from conductor_core.workflow.validation import validate


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


def score(situation: Situation, completion: str, config: Reward, judge: Judge, rng: random.Random) -> Scored:
    """Scores one completion. ``rng`` is used only if the reward is sampled."""
    workflow = read_plan(situation, completion)
    if workflow is None:
        return Scored(0.0)
    chance, paid = judge(situation, workflow)
    right = chance if config.kind == "chance" else float(rng.random() < chance)
    return Scored(0.5 + 0.5 * right - config.step_cost * paid, workflow, chance)
