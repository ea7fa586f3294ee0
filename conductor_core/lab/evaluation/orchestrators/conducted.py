"""Orchestrators that use a Conductor: as it is, with recursion, and with one part of its workflows removed.

The ablations follow arXiv 2512.04388, Table 9, and change workflows that the Conductor wrote. One run plans a workflow,
and the run that counts is an edit of it, so that the trace shows the change. Departure: the paper trains a Conductor
for each ablation; here a trained one loses what it was trained to use.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from types import MappingProxyType

from conductor_core.chat.messages import (
    Conductor,
    ConductorInfo,
    Message,
    PlanFinished,
    PlanRequest,
    PlanText,
    PlanThought,
)
from conductor_core.engine.recorder import closing
from conductor_core.lab.evaluation.orchestrators.protocol import EngineRun, GivenTask, TaskAttempt
from conductor_core.run.trace import RunTrace
from conductor_core.workflow.model import Step, Workflow

UNIFORM = "Solve the user question: {question}"
_PLANS_KEPT = 256


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

    async def write(self, request: PlanRequest) -> AsyncIterator[PlanText | PlanThought | PlanFinished]:
        """Yields the first completion for ``request``. One that broke off is written again. Raises: ConductorError."""
        key = request.model_dump_json()
        async with self._writing[key]:
            if key in self._written:
                text, finished = self._written[key]
                yield PlanText(text=text)
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


class Conducted:
    """An orchestrator in which the Conductor plans and the engine carries out the plan.

    Args:
        depth: number of rounds below the first that the Conductor may open by naming itself.
    """

    whole_pool = False

    def __init__(self, name: str, conductor: Conductor, *, depth: int = 0) -> None:
        self.name, self._conductor, self._depth = name, conductor, depth

    async def attempt(self, asked: GivenTask, run: EngineRun) -> TaskAttempt:
        return TaskAttempt(await run(asked.request(depth=self._depth), self._conductor, asked.pool))


class Plans:
    """The plans of one Conductor. Each is written once for all ablations that edit it."""

    def __init__(self, conductor: Conductor) -> None:
        self.conductor = conductor
        self._tasks: dict[tuple[str, tuple[str, ...]], asyncio.Task[RunTrace]] = {}

    async def plan(self, asked: GivenTask, run: EngineRun) -> RunTrace:
        """Returns a run that only plans. Its plan may be missing."""
        key = (asked.task.task_id, asked.excluded)
        if key not in self._tasks:
            while len(self._tasks) >= _PLANS_KEPT:
                del self._tasks[next(iter(self._tasks))]
            self._tasks[key] = asyncio.ensure_future(run(asked.request(plan_only=True), self.conductor, asked.pool))
        # Shielded, so that cancelling one caller does not cancel the plan for the others.
        return await asyncio.shield(self._tasks[key])

    async def aclose(self) -> None:
        """Stops the plans that are still being written."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


class Ablated:
    """An orchestrator that carries out the Conductor's workflow with one part removed."""

    whole_pool = False

    def __init__(self, name: str, plans: Plans, edit: Callable[[Workflow], Workflow]) -> None:
        self.name, self._plans, self._edit = name, plans, edit

    async def attempt(self, asked: GivenTask, run: EngineRun) -> TaskAttempt:
        planned = await self._plans.plan(asked, run)
        if planned.root.workflow is None:
            return TaskAttempt(planned)
        request = asked.request(self._edit(planned.root.workflow), reuse_from=planned, purpose=f"evaluate: {self.name}")
        return TaskAttempt(await run(request, None, asked.pool), also=(planned,))


def _each(workflow: Workflow, edit: Callable[[Step], Step]) -> Workflow:
    return Workflow(steps=tuple(edit(step) for step in workflow.steps))


def uniform_subtasks(workflow: Workflow) -> Workflow:
    """Gives every step the same instruction: to solve the question."""
    return _each(workflow, lambda step: step.model_copy(update={"instruction": UNIFORM}))


def access_all(workflow: Workflow) -> Workflow:
    """Lets every step see every earlier step."""
    return _each(workflow, lambda step: step.model_copy(update={"access_list": "all"}))


def access_none(workflow: Workflow) -> Workflow:
    """Lets no step see another one."""
    return _each(workflow, lambda step: step.model_copy(update={"access_list": ()}))


ABLATIONS: Mapping[str, Callable[[Workflow], Workflow]] = MappingProxyType(
    {"uniform-subtask": uniform_subtasks, "access-all": access_all, "access-none": access_none}
)
