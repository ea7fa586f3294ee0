"""The learned routers as orchestrators."""

import asyncio
from collections.abc import Mapping
from typing import Protocol

from conductor_core.lab.evaluation.orchestrators.baselines import single
from conductor_core.lab.evaluation.orchestrators.protocol import EngineRun, GivenTask, TaskAttempt
from conductor_core.lab.evaluation.routers.workflows import Router


class Choosing(Router, Protocol):
    """A router that asks several workers and keeps one answer."""

    def choose(self, question: str, outputs: Mapping[str, str]) -> str:
        """Returns the worker whose output is kept, among those that gave one."""
        ...


class Routed:
    """An orchestrator that carries out the workflow of a fitted router."""

    whole_pool = False

    def __init__(self, name: str, router: Router) -> None:
        self.name, self._router = name, router

    async def attempt(self, asked: GivenTask, run: EngineRun) -> TaskAttempt:
        workflow = self._router.route(asked.task.question, asked.agents)
        return TaskAttempt(await run(asked.request(workflow), None, asked.pool))


class Smoothed:
    """An orchestrator with a fitted Smoothie: one run asks all workers, and a second one reuses the chosen answer."""

    whole_pool = False

    def __init__(self, name: str, router: Choosing) -> None:
        self.name, self._router = name, router

    async def attempt(self, asked: GivenTask, run: EngineRun) -> TaskAttempt:
        question = asked.task.question
        every = await run(asked.request(self._router.route(question, asked.agents)), None, asked.pool)
        outputs = {step.agent: step.output for step in every.steps if step.answered and step.output.strip()}
        if not outputs:
            return TaskAttempt(every)
        chosen = await asyncio.to_thread(self._router.choose, question, outputs)
        request = asked.request(single(chosen), reuse_from=every, purpose=f"evaluate: {self.name}")
        return TaskAttempt(await run(request, None, asked.pool), also=(every,))
