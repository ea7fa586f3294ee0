"""What a plan is worth.

Reward after arXiv 2512.04388, section 4: 0 for a completion that does not parse, 0.5 for a workflow with a wrong
answer, 1 with a right one. Departures: a plan must also be valid (an agent that is not there, or a step too many, is
worth 0); the exact chance of a right answer can stand for the draw, which at the batch sizes of a laptop is mostly
noise; each step after the first may cost something.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from conductor_core.rehearsal.exact import success_chance
from conductor_core.training.config import Reward
from conductor_core.training.tiny.situations import Situation
from conductor_core.workflow.model import Workflow
from conductor_core.workflow.parser import parse_completion
from conductor_core.workflow.validation import validate


class Worth(NamedTuple):
    """The chance that carrying out a valid workflow answers the task rightly, and how many steps must be paid for."""

    chance: float
    steps: float


Judge = Callable[[Situation, Workflow], Worth]


def exact_worth(situation: Situation, workflow: Workflow) -> Worth:
    """By enumerating all outcomes in the rehearsal world; all steps but the first are paid for."""
    return Worth(success_chance(situation.task, workflow), len(workflow.steps) - 1)


@dataclass(frozen=True)
class Scored:
    """One plan, judged. ``workflow`` and ``chance`` are None if it cannot be used."""

    reward: float
    workflow: Workflow | None = None
    chance: float | None = None


def read_plan(situation: Situation, completion: str) -> Workflow | None:
    """The workflow in ``completion`` if there is a valid one; three empty lists are one in an inner round only."""
    return validate(
        parse_completion(completion),
        situation.agents,
        max_steps=situation.request.max_steps,
        allow_recursion=situation.request.allow_recursion,
        allow_stop=situation.request.parent is not None,
    ).workflow


def score(situation: Situation, completion: str, config: Reward, judge: Judge, rng: random.Random) -> Scored:
    """Judges one completion; ``rng`` is drawn from where the reward is sampled."""
    workflow = read_plan(situation, completion)
    if workflow is None:
        return Scored(0.0)
    chance, paid = judge(situation, workflow)
    right = chance if config.kind == "chance" else float(rng.random() < chance)
    return Scored(0.5 + 0.5 * right - config.step_cost * paid, workflow, chance)
