"""Orchestrators that need no learning: each writes one fixed or drawn workflow for a task.

The baselines of arXiv 2512.04388, section 4, as workflows of this engine. Departures:

1. Self-reflection always takes five calls; the paper's may end sooner.
2. Independent attempts carry their number in the instruction. That changes nothing for a worker that samples. A
   simulated, cached or greedy worker gives the same answer to the same messages; without the number, it would make one
   attempt five times.
3. The aggregator of MoA is the worker that the rules of ``conductors.roles`` give the role of checking and
   comparing; ``moa:WORKER`` names another.
4. Every worker gets the same words, which say what is wanted, so that wording favours no orchestrator.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from types import MappingProxyType

from conductor_core.chat.messages import Provider, WorkerSpec
from conductor_core.conductors.roles import ROLES, numbering
from conductor_core.engine.pools import Pool
from conductor_core.errors import BadInput
from conductor_core.lab.evaluation.orchestrators.protocol import EngineRun, GivenTask, TaskAttempt
from conductor_core.providers import anthropic
from conductor_core.workers.pool_file import LocalParams
from conductor_core.workflow.model import AccessList, Step, Workflow

ROUNDS = 5
"""The factor of the paper's controlled comparison: five calls, five attempts, or five times the output budget."""

SOLVE = "Solve the following task step by step and state the final answer clearly: {question}"
REFLECT = (
    "Review the answer above for mistakes, correct what is wrong, and state the final answer to this task again: "
    "{question}"
)
ATTEMPT = "Attempt {number} of {attempts}, on your own: " + SOLVE
AGGREGATE = (
    "Compare the answers above to the following task, decide which is right, and state the final answer clearly: "
    "{question}"
)
DRAWN = (
    "Make a plan for the following task, without solving it yet: {question}",
    SOLVE,
    "Using what is above, solve the following task and state the final answer: {question}",
    "Check the answer above for mistakes and state the corrected final answer to this task: {question}",
    AGGREGATE,
    "Write the final answer to the following task in the form that it asks for: {question}",
)
"""Instructions from which a random workflow draws one for each step."""

DEFAULT_OUTPUT_TOKENS: Mapping[Provider, int] = MappingProxyType(
    {"anthropic": anthropic.DEFAULT_MAX_TOKENS, "local": LocalParams().max_tokens, "rehearsal": 4096}
)
"""Output budget of a worker whose pool file names none. The default of an OpenAI-compatible server is unknown, and so
is the name of its parameter. A simulated worker has no budget."""


@dataclass(frozen=True, slots=True)
class Planned:
    """An orchestrator that writes its workflow by itself.

    Attributes:
        plan: returns the workflow for a task. pool: the pool that it uses; None means the evaluation's pool.
    """

    name: str
    plan: Callable[[GivenTask], Workflow]
    whole_pool: bool = False
    pool: Pool | None = None

    async def attempt(self, asked: GivenTask, run: EngineRun) -> TaskAttempt:
        return TaskAttempt(await run(asked.request(self.plan(asked)), None, self.pool or asked.pool))


def single(worker: str) -> Workflow:
    """Returns a workflow in which one worker answers the task."""
    return Workflow(steps=(Step(instruction=SOLVE, agent=worker),))


def reflection(worker: str) -> Workflow:
    """Returns a workflow in which one worker answers, and then four times revises all that it has written."""
    again = Step(instruction=REFLECT, agent=worker, access_list="all")
    return Workflow(steps=(*single(worker).steps, *[again] * (ROUNDS - 1)))


def consensus(worker: str) -> Workflow:
    """Returns a workflow of five independent attempts of one worker, among which the same worker decides."""
    attempts = tuple(
        Step(instruction=ATTEMPT.replace("{number}", str(number)).replace("{attempts}", str(ROUNDS)), agent=worker)
        for number in range(1, ROUNDS + 1)
    )
    return Workflow(steps=(*attempts, Step(instruction=AGGREGATE, agent=worker, access_list="all")))


def mixture(specs: Sequence[WorkerSpec], aggregator: str | None = None) -> Workflow:
    """Returns a Mixture-of-Agents with one layer: every worker answers, and one reads all answers."""
    every = tuple(Step(instruction=SOLVE, agent=spec.name) for spec in specs)
    last = aggregator or checker(specs)
    return Workflow(steps=(*every, Step(instruction=AGGREGATE, agent=last, access_list="all")))


def checker(specs: Sequence[WorkerSpec]) -> str:
    """Returns the worker whose description suits it to compare answers, or the pool's first worker."""
    return numbering(specs)[ROLES.index("check")] or specs[0].name


def drawn(asked: GivenTask) -> Workflow:
    """Draws a random valid workflow by seed and task. Length, agents, instructions and access lists are uniform."""
    key = hashlib.sha256(f"{asked.seed}/{asked.task.task_id}".encode()).hexdigest()
    rng = Random(key)  # noqa: S311 - a draw that can be repeated, not a secret
    steps = []
    for index in range(rng.randint(1, asked.limits.max_steps)):
        reads: AccessList = tuple(earlier for earlier in range(index) if rng.random() < 0.5)
        steps.append(Step(instruction=rng.choice(DRAWN), agent=rng.choice(asked.agents), access_list=reads))
    return Workflow(steps=tuple(steps))


_LIMITS = ("max_tokens", "max_completion_tokens")
"""Parameters for a worker's output budget. The second one is for newer models of one provider."""


def with_budget(specs: Sequence[WorkerSpec], times: int) -> dict[str, dict[str, int]]:
    """Returns the parameters that give each worker ``times`` its output budget, by worker.

    Raises: BadInput for a worker whose budget is unknown.
    """
    return {spec.name: {name: times * tokens} for spec in specs for name, tokens in [_budget(spec)]}


def _budget(spec: WorkerSpec) -> tuple[str, int]:
    for name in _LIMITS:
        if isinstance(tokens := spec.params.get(name), int):
            return name, tokens
    if spec.provider not in DEFAULT_OUTPUT_TOKENS:
        raise BadInput(
            f"budget:{spec.name} needs to know how much {spec.name} may write: name it in the pool file, as max_tokens "
            "or (newer models of OpenAI) max_completion_tokens in its params"
        )
    return _LIMITS[0], DEFAULT_OUTPUT_TOKENS[spec.provider]
