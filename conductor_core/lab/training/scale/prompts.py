"""The prompts of a Conductor of real size during training: public tasks, the full prompt, pools drawn by seed."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from conductor_core.chat.messages import Message, ParentPlan, PlanRequest, WorkerSpec
from conductor_core.conductors.prompts import full_prompt
from conductor_core.errors import BadInput
from conductor_core.grading.tasks import Task
from conductor_core.lab.evaluation.suites import load_suite
from conductor_core.lab.training.config import GrpoConfig, PoolDraw, RecursionConfig, TaskSource, TrainingConfig
from conductor_core.lab.training.scale.worker_reward import WorkerRollout
from conductor_core.lab.training.scale.workers import AnswerCache


@dataclass(frozen=True)
class PromptedTask:
    """One prompt: the request, and the task that it is about."""

    request: PlanRequest
    task: Task

    @property
    def messages(self) -> tuple[Message, ...]:
        return full_prompt(self.request)

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.request.agents)

    def rollout(self, completion: str) -> WorkerRollout:
        request = self.request
        return WorkerRollout(
            self.task, completion, self.agents, request.max_steps, request.parent, request.allow_recursion
        )


def load_tasks(sources: Sequence[TaskSource], seed: int) -> tuple[Task, ...]:
    """Loads all tasks, shuffled by ``seed``. Raises: BadInput if a suite cannot be loaded, or two tasks share an id."""
    suites = [load_suite(source.suite, source.split, limit=source.count, seed=seed) for source in sources]
    tasks = [task for suite in suites for task in suite.tasks]
    if len({task.task_id for task in tasks}) != len(tasks):
        raise BadInput("two of the suites to train on are the same: their tasks have the same ids")
    random.Random(f"tasks/{seed}").shuffle(tasks)
    return tuple(tasks)


Parents = Mapping[str, tuple[ParentPlan, ...]]
"""Plans that were carried out, with their last responses, by task id."""


def find_parents(cache: AnswerCache, tasks: Sequence[Task]) -> Parents:
    """Returns the plans that inner rounds can be about. A task that has both right and wrong answers gives as many of
    each, so that neither stopping nor planning again is always best. Ordinals in the plans count the whole pool."""
    parents = {}
    for task in tasks:
        outcomes = [each for each in cache.outcomes(task.task_id) if each.answer]
        right = [each for each in outcomes if each.score == 1.0]
        wrong = [each for each in outcomes if each.score != 1.0]
        most = min(len(right), len(wrong)) or len(outcomes)
        kept = [*right[:most], *wrong[:most]]
        if kept:
            parents[task.task_id] = tuple(ParentPlan(plan=each.plan, last_response=each.answer or "") for each in kept)
    return parents


def draw_prompts(
    config: GrpoConfig,
    tasks: Sequence[Task],
    workers: Sequence[WorkerSpec],
    seed: int,
    *,
    parents: Parents | None = None,
    may_recurse: bool = False,
) -> list[PromptedTask]:
    """Draws the prompts of a whole stage in the order in which they are asked. The same seed gives the same prompts.

    Args:
        parents: the plans for the inner rounds of a recursion stage. may_recurse: whether its outer rounds may name
            the Conductor itself; if not, there are inner rounds only.

    Raises: BadInput if a recursion stage has neither.
    """
    inner_share, known = 0.0, parents or {}
    if isinstance(config, RecursionConfig):
        inner_share = config.inner_share if may_recurse else 1.0
        tasks = tasks if may_recurse else [task for task in tasks if task.task_id in known]
    if not tasks:
        raise BadInput(
            "the recursion stage has nothing to ask: no finished rollout to continue from and no "
            "inner_conductor; run a grpo stage in the same folder first"
        )
    rng = random.Random(f"prompts/{seed}")
    drawn = []
    for number in range(config.iterations * config.prompts):
        task = tasks[number % len(tasks)]
        choices = known.get(task.task_id, ())
        inner = bool(choices) and rng.random() < inner_share
        request = PlanRequest(
            task=task.question,
            agents=tuple(workers) if inner else _pool(config.pool, workers, rng),
            max_steps=config.pool.most_steps,
            allow_recursion=may_recurse and not inner,
            parent=rng.choice(choices) if inner else None,
        )
        drawn.append(PromptedTask(request, task))
    return drawn


def left_out(config: TrainingConfig) -> str | None:
    """Says why the recursion stage has only inner rounds although ``inner_share`` asks for both; None otherwise."""
    stage, scale = config.recursion, config.scale
    if stage is None or stage.inner_share == 1.0 or scale is None or scale.workers.inner_conductor is not None:
        return None
    return (
        f"outer rounds of the recursion stage. It has inner rounds only, despite inner_share = {stage.inner_share:g}: "
        "without inner_conductor in scale.workers, no model could plan when a plan names the Conductor itself"
    )


def _pool(draw: PoolDraw, workers: Sequence[WorkerSpec], rng: random.Random) -> tuple[WorkerSpec, ...]:
    """Returns all workers, or a random k of them in their own order."""
    if rng.random() < draw.whole_share or len(workers) <= 1:
        return tuple(workers)
    count = rng.randint(min(draw.least, len(workers) - 1), len(workers) - 1)
    return tuple(workers[index] for index in sorted(rng.sample(range(len(workers)), count)))
