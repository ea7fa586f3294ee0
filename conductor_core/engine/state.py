"""Holds what all parts of one run share."""

import asyncio
from dataclasses import dataclass

from conductor_core.chat.messages import Conductor, OnIncomplete, WorkerSpec
from conductor_core.engine.approvals import Approvals
from conductor_core.engine.budgets import Budget, CostCap
from conductor_core.engine.pools import Pool
from conductor_core.engine.prompts import ReadContent, StepInputs
from conductor_core.engine.recorder import Recorder
from conductor_core.engine.reuse import EarlierAnswers
from conductor_core.run.request import RunRequest
from conductor_core.settings import Settings


class ConcurrencyLimits:
    """Limits the calls of each worker to ``max_concurrency`` at once, over all runs of an engine."""

    def __init__(self) -> None:
        self._semaphores: dict[tuple[str | int | None, ...], asyncio.Semaphore] = {}

    def of(self, spec: WorkerSpec) -> asyncio.Semaphore:
        """Returns the limit of ``spec``. Name, provider, model and server say which worker it is."""
        key = (spec.name, spec.provider, spec.model, spec.base_url, spec.max_concurrency)
        return self._semaphores.setdefault(key, asyncio.Semaphore(spec.max_concurrency))


@dataclass(frozen=True, slots=True)
class RunState:
    """Attributes:
    pool: without the workers that the request excludes.
    on_incomplete: what happens to a step whose answer is incomplete, as in ``run.created``.
    cap: what this run and others may spend together; None: there is no cap.
    read_content: reads the images of the task; None: there are none.
    """

    request: RunRequest
    settings: Settings
    conductor: Conductor | None
    pool: Pool
    step_inputs: StepInputs
    recorder: Recorder
    budget: Budget
    source: EarlierAnswers
    concurrency: ConcurrencyLimits
    approvals: Approvals
    on_incomplete: OnIncomplete = "allow"
    cap: CostCap | None = None
    read_content: ReadContent | None = None
