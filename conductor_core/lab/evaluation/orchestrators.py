"""Which orchestrators there are, and opening them by their names.

    conductor, conductor:REF        the Conductor; REF: tiny, a name, a folder, a hub id or URL#MODEL
    recursion, recursion:REF        the same, which may also name itself
    untrained                       a Conductor that was not trained for this (--untrained REF)
    single:WORKER                   that worker alone
    reflection:WORKER               five rounds over its own answers
    budget:WORKER                   five times its output budget
    consensus:WORKER                five attempts of its own, and its choice among them
    moa, moa:WORKER                 every worker answers, one (by default the checker) reads all answers
    random                          a random valid workflow for each task
    uniform-subtask, access-all, access-none    the Conductor's workflows with a part taken away
    router-dc, mas-router, smoothie, smoothie-dependent     learned routers, fitted on the training split first
    kind-table                      the best plan for each kind of task, the kind told by words: no language model

Groups: single, reflection, budget, consensus (one for each worker), ablations, routers, paper (the rows of the paper's
tables) and all.
"""

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from random import Random
from types import MappingProxyType

from conductor_core.chat.messages import (
    Conductor,
    ConductorInfo,
    Message,
    PlanFinished,
    PlanRequest,
    Provider,
    ReasoningDelta,
    TextDelta,
    WorkerSpec,
)
from conductor_core.conductors.catalogue import open_conductor
from conductor_core.conductors.roles import ROLES, numbering
from conductor_core.engine.pools import Pool
from conductor_core.engine.recorder import closing
from conductor_core.errors import BadInput
from conductor_core.grading.tasks import Task
from conductor_core.providers import anthropic
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import Limits
from conductor_core.settings import Settings
from conductor_core.workers.pool_file import LocalParams
from conductor_core.workflow.model import AccessList, Step, Workflow

# The interface: the task that an orchestrator is given, and the attempt that it returns.

EngineRun = Callable[[RunRequest, Conductor | None, Pool], Awaitable[RunTrace]]
"""``engine.Engine.run``: carries out one run, durably."""


@dataclass(frozen=True, slots=True)
class GivenTask:
    """One task as an orchestrator gets it.

    Attributes:
        excluded: workers of the pool that must not be used.
        limits: limits of each run. An orchestrator sets its own ``max_steps`` and ``max_depth`` if its form needs it.
        seed: seeds the workers' answers and the orchestrator's draws.
    """

    task: Task
    pool: Pool
    limits: Limits
    seed: int
    excluded: tuple[str, ...] = ()

    @property
    def specs(self) -> tuple[WorkerSpec, ...]:
        return tuple(spec for spec in self.pool.specs if spec.name not in self.excluded)

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.specs)

    def request(
        self,
        workflow: Workflow | None = None,
        *,
        depth: int = 0,
        plan_only: bool = False,
        reuse_from: RunTrace | None = None,
        purpose: str = "evaluate",
    ) -> RunRequest:
        """Returns a request for a run of this task. A given workflow may exceed ``max_steps``."""
        steps = self.limits.max_steps if workflow is None else max(self.limits.max_steps, len(workflow.steps))
        return RunRequest(
            task=self.task.question,
            workflow=workflow,
            limits=self.limits.model_copy(update={"max_steps": steps, "max_depth": depth}),
            seed=self.seed,
            purpose=purpose,
            plan_only=plan_only,
            parent_run_id=None if reuse_from is None else reuse_from.run_id,
            excluded=self.excluded,
        )


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """An orchestrator's attempt at a task.

    Attributes:
        trace: the run whose answer counts.
        also: further runs that the attempt needed; their cost counts too.
    """

    trace: RunTrace
    also: tuple[RunTrace, ...] = ()


@dataclass(frozen=True, slots=True)
class Orchestrator:
    """One way to answer tasks.

    Attributes:
        name: as given to ``--orchestrators``, unique in an evaluation.
        attempt: answers one task. A failed run is an attempt too. Raises: StoreError, BadInput if it cannot be run.
        whole_pool: whether all workers are present for it even if other orchestrators get a subset. It is true for an
            orchestrator that names one worker.
    """

    name: str
    attempt: Callable[[GivenTask, EngineRun], Awaitable[TaskAttempt]]
    whole_pool: bool = False


# Orchestrators that need no learning: each writes one fixed or drawn workflow for a task. They are the baselines of
# arXiv 2512.04388, section 4. Departures:
#
# 1. Self-reflection always takes five calls; the paper's may end sooner.
# 2. Independent attempts carry their number in the instruction. That changes nothing for a worker that samples. A
#    simulated, cached or greedy worker gives the same answer to the same messages; without the number, it would make
#    one attempt five times.

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
    {
        "anthropic": anthropic.DEFAULT_MAX_TOKENS,
        "local": LocalParams().max_tokens,
        "gguf": LocalParams().max_tokens,
        "rehearsal": 4096,
    }
)
"""Output budget of a worker whose pool file names none. The default of an OpenAI-compatible server is unknown, and so
is the name of its parameter. A simulated worker has no budget."""


def planned(
    name: str, plan: Callable[[GivenTask], Workflow], *, whole_pool: bool = False, pool: Pool | None = None
) -> Orchestrator:
    """Returns an orchestrator that writes its workflow by itself. ``pool``: used instead of the evaluation's pool."""

    async def attempt(asked: GivenTask, run: EngineRun) -> TaskAttempt:
        return TaskAttempt(await run(asked.request(plan(asked)), None, pool or asked.pool))

    return Orchestrator(name, attempt, whole_pool)


def single(worker: str) -> Workflow:
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
    """Returns a Mixture-of-Agents with one layer: every worker answers, and one reads all answers.

    ``aggregator``: the one, if it is among ``specs``.
    """
    every = tuple(Step(instruction=SOLVE, agent=spec.name) for spec in specs)
    last = next((spec.name for spec in specs if spec.name == aggregator), None) or checker(specs)
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


# Orchestrators that use a Conductor.

UNIFORM = "Solve the user question: {question}"


class Remembered:
    """A Conductor that writes each plan once, so that orchestrators are compared on the same plan."""

    def __init__(self, conductor: Conductor) -> None:
        self._conductor = conductor
        self._written: dict[str, tuple[str, PlanFinished]] = {}
        self._writing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    @property
    def info(self) -> ConductorInfo:
        return self._conductor.info

    def messages(self, request: PlanRequest) -> tuple[Message, ...]:
        return self._conductor.messages(request)

    async def write(self, request: PlanRequest) -> AsyncIterator[TextDelta | ReasoningDelta | PlanFinished]:
        """Yields the first completion for ``request``. One that broke off is written again. Raises: ConductorError."""
        key = request.model_dump_json()
        async with self._writing[key]:
            if key in self._written:
                text, finished = self._written[key]
                yield TextDelta(text=text)
                yield finished
                return
            pieces: list[str] = []
            async with closing(self._conductor.write(request)) as stream:
                async for item in stream:
                    if isinstance(item, PlanFinished):
                        self._written[key] = "".join(pieces), item
                    else:
                        pieces.append(item.text)
                    yield item

    async def aclose(self) -> None:
        await self._conductor.aclose()


def conducted(name: str, conductor: Conductor, *, depth: int = 0) -> Orchestrator:
    """Returns an orchestrator in which the Conductor plans and the engine carries out the plan.

    ``depth``: number of rounds below the first that the Conductor may open by naming itself.
    """

    async def attempt(asked: GivenTask, run: EngineRun) -> TaskAttempt:
        return TaskAttempt(await run(asked.request(depth=depth), conductor, asked.pool))

    return Orchestrator(name, attempt)


def ablated(name: str, conductor: Conductor, edit: Callable[[Workflow], Workflow]) -> Orchestrator:
    """Returns an orchestrator that carries out the Conductor's workflow with one part removed (arXiv 2512.04388,
    Table 9).

    One run plans a workflow, and the run that counts is an edit of it, so that the trace shows the change. Departure:
    the paper trains a Conductor for each ablation; here a trained one loses what it was trained to use.
    """

    async def attempt(asked: GivenTask, run: EngineRun) -> TaskAttempt:
        plan = await run(asked.request(plan_only=True), conductor, asked.pool)
        if plan.root.workflow is None:
            return TaskAttempt(plan)
        request = asked.request(edit(plan.root.workflow), reuse_from=plan, purpose=f"evaluate: {name}")
        return TaskAttempt(await run(request, None, asked.pool), also=(plan,))

    return Orchestrator(name, attempt)


def _with_each_step(workflow: Workflow, **update: object) -> Workflow:
    return Workflow(steps=tuple(step.model_copy(update=update) for step in workflow.steps))


ABLATIONS: Mapping[str, Callable[[Workflow], Workflow]] = MappingProxyType(
    {
        "uniform-subtask": partial(_with_each_step, instruction=UNIFORM),
        "access-all": partial(_with_each_step, access_list="all"),
        "access-none": partial(_with_each_step, access_list=()),
    }
)
"""What is removed from a workflow: its instructions, which only say to solve the question, or what its access lists
choose, when every step sees all earlier steps or none."""
PER_WORKER: Mapping[str, Callable[[str], Workflow]] = MappingProxyType(
    {"single": single, "reflection": reflection, "budget": single, "consensus": consensus}
)
PAPER_ROUTERS = ("router-dc", "mas-router", "smoothie", "smoothie-dependent")
ROUTERS = (*PAPER_ROUTERS, "kind-table")
BY_CONDUCTOR = ("conductor", "recursion")
GROUPS = ("single", "reflection", "budget", "consensus", "ablations", "routers", "paper", "all")


def expand(given: str, agents: Sequence[str], *, untrained: bool = False) -> tuple[str, ...]:
    """Returns each name in ``given`` (``A,B``) once, with groups resolved.

    Args:
        agents: names of the pool's workers. untrained: whether there is an untrained Conductor to compare with.

    Raises: BadInput for an unknown name or worker.
    """
    names = [name for part in given.split(",") if part.strip() for name in group(part.strip(), agents, untrained)]
    if not names:
        raise BadInput("--orchestrators: name at least one; see evaluate --list")
    for name in names:
        _check(name, agents)
    return tuple(dict.fromkeys(names))


def described() -> str:
    """Returns the names and groups with their meanings, as this module's docstring lists them."""
    return (__doc__ or "").split("\n\n", 1)[1].strip("\n")


def group(name: str, agents: Sequence[str], untrained: bool = False) -> list[str]:
    """Returns the orchestrators of a group, or ``name`` itself if it is no group."""
    match name:
        case "single" | "reflection" | "budget" | "consensus":
            return [f"{name}:{agent}" for agent in agents]
        case "ablations":
            return list(ABLATIONS)
        case "routers":
            return list(ROUTERS)
        case "paper":
            per_worker = [each for kind in PER_WORKER for each in group(kind, agents, untrained)]
            return ["conductor", *per_worker, "moa", *PAPER_ROUTERS]
        case "all":
            rest = ["kind-table", "random", *(["untrained"] if untrained else []), *ABLATIONS]
            return ["conductor", "recursion", *group("paper", agents, untrained)[1:], *rest]
    return [name]


def _check(name: str, agents: Sequence[str]) -> None:
    kind, colon, rest = name.partition(":")
    if kind in PER_WORKER or (kind == "moa" and colon):
        if rest not in agents:
            raise BadInput(f"orchestrator {name}: the pool has no worker {rest!r}; it has {', '.join(agents)}")
    elif kind in BY_CONDUCTOR and colon:
        if not rest:
            raise BadInput(f"orchestrator {name}: name a Conductor after the colon: a folder, a hub id or URL#MODEL")
    elif colon or kind not in (*BY_CONDUCTOR, "untrained", "moa", "random", *ABLATIONS, *ROUTERS):
        raise BadInput(f"unknown orchestrator {name!r}; see evaluate --list")


def conductor_refs(names: Sequence[str], conductor: str, untrained: str | None) -> dict[str, str]:
    """Returns the Conductor's ref for each name that needs one. Raises: BadInput for ``untrained`` without a ref."""
    refs = {}
    for name in names:
        kind, _, rest = name.partition(":")
        if kind in BY_CONDUCTOR or kind in ABLATIONS:
            refs[name] = rest or conductor
        elif kind == "untrained":
            if untrained is None:
                raise BadInput("orchestrator untrained: say which Conductor with --untrained REF")
            refs[name] = untrained
    return refs


def budgets(names: Sequence[str], specs: Sequence[WorkerSpec]) -> dict[str, dict[str, int]]:
    """Returns the larger output budgets that ``names`` ask for, by worker. Raises: BadInput for an unknown budget."""
    asked = {name.partition(":")[2] for name in names if name.startswith("budget:")}
    return with_budget([spec for spec in specs if spec.name in asked], ROUNDS)


def open_orchestrators(
    names: Sequence[str], refs: Mapping[str, str], pool: Pool, settings: Settings, stack: AsyncExitStack
) -> list[Orchestrator]:
    """Opens all orchestrators except the learned routers, which ``fitting`` makes. Loads and connects nothing yet.

    Args:
        names: the result of ``expand``. refs: the result of ``conductor_refs``.
        stack: closes the Conductors and pools that the orchestrators share.

    Raises: UnknownConductor, BadInput as ``budgets``.
    """
    opened: list[Orchestrator] = []
    conductors: dict[str, Conductor] = {}
    larger: Pool | None = None
    for name in names:
        kind, _, rest = name.partition(":")
        if name in refs:
            ref = refs[name]
            if ref not in conductors:
                conductors[ref] = Remembered(open_conductor(ref, settings))
                stack.push_async_callback(conductors[ref].aclose)
            if kind in ABLATIONS:
                opened.append(ablated(name, conductors[ref], ABLATIONS[kind]))
            else:
                depth = max(1, settings.max_depth) if kind == "recursion" else 0
                opened.append(conducted(name, conductors[ref], depth=depth))
        elif kind in PER_WORKER:
            if kind == "budget" and larger is None:
                larger = pool.with_params(budgets(names, pool.specs), settings)
                stack.push_async_callback(larger.aclose)
            opened.append(
                planned(name, same(PER_WORKER[kind](rest)), whole_pool=True, pool=larger if kind == "budget" else None)
            )
        elif kind == "moa":
            opened.append(planned(name, partial(_mixture, aggregator=rest)))
        elif kind == "random":
            opened.append(planned(name, drawn))
    return opened


def same(workflow: Workflow) -> Callable[[GivenTask], Workflow]:
    return lambda _asked: workflow


def _mixture(asked: GivenTask, aggregator: str) -> Workflow:
    return mixture(asked.specs, aggregator)
