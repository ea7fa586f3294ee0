"""Computes the reward of a team on a training task, for routers that learn by trying teams."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

from conductor_core.chat.messages import WorkerSpec
from conductor_core.chat.usage import estimate_tokens
from conductor_core.engine.pools import Pool, open_worker
from conductor_core.engine.recorder import NoLog
from conductor_core.engine.runner import Engine
from conductor_core.grading.tasks import Task
from conductor_core.lab.evaluation.routers.workflows import TrainingRow
from conductor_core.lab.evaluation.runner import FAILURES_IN_A_ROW, Spending, Stopped, failed_at_a_worker, graded
from conductor_core.lab.records import append_lines
from conductor_core.lab.records.evaluation import drop_unfinished_line, read_lines
from conductor_core.rehearsal import recognise
from conductor_core.rehearsal.exact import success_chance
from conductor_core.run.request import RunRequest
from conductor_core.run.values import Limits
from conductor_core.settings import Settings
from conductor_core.workflow.model import Frozen, Workflow

TRIES = "tries.jsonl"
"""Name of the file in a fit's folder that has one line for each tried team."""

_A_TRY = "try of a team"
"""Name under which ``Spending`` counts tries, besides the orchestrators of an evaluation."""


class Try(Frozen):
    """A team carried out once on a training task.

    Attributes:
        score: between 0 and 1. tokens: tokens of all its calls. cost_usd: None if a price is unknown.
        fault: error of a worker, which makes the try useless as a measure of the team; its cost still counts.
    """

    task_id: str
    workflow: Workflow
    score: float
    tokens: int
    cost_usd: float | None = None
    fault: str | None = None


class Tries:
    """The tries of a fit. Each is kept when it is made, so that an interrupted fit does not pay for it again.

    Raises: BadInput naming the file and a line that is no try, except the last line, which may be torn; OSError.
    """

    def __init__(self, file: Path) -> None:
        drop_unfinished_line(file)
        self._file = file
        self._made = list(read_lines(file, Try, "try of a team"))
        self._known = {(each.task_id, each.workflow): each for each in self._made if each.fault is None}

    def __iter__(self) -> Iterator[Try]:
        """Yields all tries that were paid for."""
        return iter(self._made)

    def get(self, task_id: str, workflow: Workflow) -> Try | None:
        return self._known.get((task_id, workflow))

    def add(self, tried: Try) -> None:
        """Keeps a try. Raises: OSError."""
        append_lines(self._file, tried)
        self._made.append(tried)
        if tried.fault is None:
            self._known[tried.task_id, tried.workflow] = tried


class TeamReward:
    """The ``Reward`` of routers: the score of a workflow on a training task, and the tokens of all its calls.

    For rehearsal tasks with rehearsal workers, the score is the exact chance, and tokens are estimated from those that
    each worker took alone. Otherwise each workflow is carried out once and counts against the caps.

    Args:
        spending: the spending so far, with ``tries``.
        count_failures: whether a failing worker gives its team a score of 0, instead of stopping the fit.

    Attributes:
        asked: how often it was called. exact: whether all its scores are exact chances.

    Called from a thread of its own. Raises: Stopped if a cap allows no further try or a worker is down; OSError.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        rows: Sequence[TrainingRow],
        pool: Pool,
        limits: Limits,
        settings: Settings,
        seed: int,
        spending: Spending,
        tries: Tries,
        *,
        count_failures: bool = False,
    ) -> None:
        self._tasks, self._rows, self._pool = tasks, rows, pool
        self._limits, self._settings, self._seed = limits, settings, seed
        self._spending, self._tries, self._count_failures = spending, tries, count_failures
        self.asked = 0
        self._rehearsal = [recognise(task.question) if task.grader == "rehearsal" else None for task in tasks]
        self.exact = None not in self._rehearsal and all(map(_is_its_profile, pool.specs))

    def __call__(self, index: int, workflow: Workflow) -> tuple[float, int]:
        self.asked += 1
        found = self._rehearsal[index]
        if self.exact and found is not None:
            return success_chance(found, workflow), self._reckoned(index, workflow)
        tried = self._tries.get(self._tasks[index].task_id, workflow) or self._try(self._tasks[index], workflow)
        return tried.score, tried.tokens

    def _reckoned(self, index: int, workflow: Workflow) -> int:
        """Estimates tokens: a call reads the task and its granted outputs, and writes as much as its worker alone."""
        row = self._rows[index]
        asked = estimate_tokens(row.question)
        written = [max(1, row.tokens[step.agent] - asked) for step in workflow.steps]
        read = [asked + sum(written[earlier] for earlier in workflow.reads(index)) for index in range(len(written))]
        return sum(read) + sum(written)

    def _try(self, task: Task, workflow: Workflow) -> Try:
        fault = None
        for _ in range(FAILURES_IN_A_ROW):
            why = self._spending.reached(_A_TRY)
            if why is not None:
                raise Stopped(why)
            tried = asyncio.run(self._run(task, workflow))
            self._tries.add(tried)
            count(self._spending, tried)
            if tried.fault is None:
                return tried
            fault = tried.fault
        raise Stopped(
            f"a team failed {FAILURES_IN_A_ROW} times in a row at a worker ({fault}). Fix the worker, or count such "
            "teams as worth nothing with --count-failures"
        )

    async def _run(self, task: Task, workflow: Workflow) -> Try:
        # Workers are opened for this loop alone, because connections belong to the loop in which they were made.
        workers = {spec.name: open_worker(spec, self._settings, self._seed) for spec in self._pool.specs}
        pool = Pool(self._pool.name, workers, self._seed, self._pool.excluded)
        limits = self._limits.model_copy(
            update={"max_steps": max(self._limits.max_steps, len(workflow.steps)), "max_depth": 0}
        )
        request = RunRequest(task=task.question, workflow=workflow, limits=limits, seed=self._seed, purpose="evaluate")
        try:
            trace = await Engine(NoLog(), self._settings).run(request, None, pool)
        finally:
            await pool.aclose()
        failed = failed_at_a_worker(trace) and not self._count_failures
        return Try(
            task_id=task.task_id,
            workflow=workflow,
            score=0.0 if trace.answer is None else (await graded(task, trace.answer))[0],
            tokens=trace.usage.total_tokens,
            cost_usd=trace.cost_usd,
            fault=trace.error if failed else None,
        )


def count(spending: Spending, tried: Try) -> None:
    """Counts a try as a run of the evaluation."""
    if tried.fault is None:
        spending.spend(_A_TRY, tried.cost_usd, tried.tokens)
    else:
        spending.spend_unfinished(tried.cost_usd, tried.tokens)


def _is_its_profile(spec: WorkerSpec) -> bool:
    """Says whether the exact chance holds for a worker: its computation takes the names in a team for profiles.

    A real model may be called "coder", and a simulated worker may have the name of another profile.
    """
    return spec.simulated and spec.model.removeprefix("rehearsal/") == spec.name
