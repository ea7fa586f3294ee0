"""What a team is worth on a training task, for routers that learn by trying teams."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from conductor_core.chat import WorkerSpec
from conductor_core.engine.limits import estimate_tokens
from conductor_core.engine.pool import Pool, open_worker
from conductor_core.engine.request import RunRequest
from conductor_core.engine.runner import Engine
from conductor_core.errors import BadInput
from conductor_core.evaluation.graders import grade
from conductor_core.evaluation.routers.rows import TrainingRow
from conductor_core.evaluation.runner import CapReached, Spending, drop_unfinished_line
from conductor_core.evaluation.tasks import Task
from conductor_core.events import Event, Limits
from conductor_core.records import why
from conductor_core.rehearsal import recognise
from conductor_core.rehearsal.exact import success_chance
from conductor_core.settings import Settings
from conductor_core.workflow.model import Frozen, Workflow

TRIES = "tries.jsonl"
"""In a fit's folder: a line a team that was tried."""

_A_TRY = "try of a team"
"""What tries are counted as, beside the orchestrators of an evaluation."""


class Try(Frozen):
    """A team carried out once on a training task.

    Attributes:
        score: between 0 and 1. tokens: of all its calls. cost_usd: None if a price is unknown.
    """

    task_id: str
    workflow: Workflow
    score: float
    tokens: int
    cost_usd: float | None = None


class Tries:
    """The tries of a fit, kept as they are made: one that is cut off goes on without paying for any of them again.

    Raises: BadInput naming the file and a line that is no try, but the last one, which may be torn; OSError.
    """

    def __init__(self, file: Path) -> None:
        drop_unfinished_line(file)
        self._file = file
        self._known = {(each.task_id, each.workflow): each for each in _read(file)}

    def __iter__(self) -> Iterator[Try]:
        return iter(self._known.values())

    def get(self, task_id: str, workflow: Workflow) -> Try | None:
        return self._known.get((task_id, workflow))

    def add(self, tried: Try) -> None:
        """Raises: OSError."""
        with self._file.open("a", encoding="utf-8") as file:
            file.write(tried.model_dump_json(exclude_none=True) + "\n")
        self._known[tried.task_id, tried.workflow] = tried


def _read(file: Path) -> Iterator[Try]:
    try:
        lines = file.read_text(encoding="utf-8").split("\n")[:-1] if file.is_file() else []
    except UnicodeDecodeError as error:
        raise BadInput(f"{file} cannot be read: {error}") from error
    for number, line in enumerate(lines, start=1):
        try:
            yield Try.model_validate_json(line)
        except ValidationError as error:
            raise BadInput(f"{file}, line {number}, is no try of a team: {why(error)}") from error


class _Forgetting:
    """A log that keeps nothing: the tries of a fit are no runs that anybody will look at."""

    async def append(self, *events: Event) -> None:
        return None


class TeamReward:
    """``Reward`` of ``routers.rows``: of a training task and a workflow, its score and the tokens of all its calls.

    For rehearsal tasks with rehearsal workers the score is the exact chance, and tokens are reckoned from those that
    each worker took alone. Else the workflow is carried out, once each, and counts against the caps.

    Args:
        spending: so far; ``tries`` are counted in it already.

    Called from a thread of its own. Raises: CapReached if a cap allows no further try; OSError.
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
    ) -> None:
        self._tasks, self._rows, self._pool = tasks, rows, pool
        self._limits, self._settings, self._seed = limits, settings, seed
        self._spending, self._tries = spending, tries
        self._exact = all(task.grader == "rehearsal" for task in tasks) and all(map(_is_its_profile, pool.specs))

    def __call__(self, index: int, workflow: Workflow) -> tuple[float, int]:
        if self._exact:
            found = recognise(self._tasks[index].question)
            if found is not None:
                return success_chance(found, workflow), self._reckoned(index, workflow)
        tried = self._tries.get(self._tasks[index].task_id, workflow) or self._try(self._tasks[index], workflow)
        return tried.score, tried.tokens

    def _reckoned(self, index: int, workflow: Workflow) -> int:
        """Each call reads the task and what it is granted, and writes as much as that worker did alone."""
        row = self._rows[index]
        asked = estimate_tokens(row.question)
        written = [max(1, row.tokens[step.agent] - asked) for step in workflow.steps]
        read = [asked + sum(written[earlier] for earlier in workflow.reads(index)) for index in range(len(written))]
        return sum(read) + sum(written)

    def _try(self, task: Task, workflow: Workflow) -> Try:
        why = self._spending.reached(_A_TRY)
        if why is not None:
            raise CapReached(why)
        tried = asyncio.run(self._carried_out(task, workflow))
        self._tries.add(tried)
        count(self._spending, tried)
        return tried

    async def _carried_out(self, task: Task, workflow: Workflow) -> Try:
        # Opened for this loop alone: connections belong to the loop in which they were made.
        workers = {spec.name: open_worker(spec, self._settings, self._seed) for spec in self._pool.specs}
        pool = Pool(self._pool.name, workers, self._seed)
        limits = self._limits.model_copy(
            update={"max_steps": max(self._limits.max_steps, len(workflow.steps)), "max_depth": 0}
        )
        request = RunRequest(task=task.question, workflow=workflow, limits=limits, seed=self._seed, by="evaluate")
        try:
            trace = await Engine(_Forgetting(), self._settings).run(request, None, pool)
        finally:
            await pool.aclose()
        return Try(
            task_id=task.task_id,
            workflow=workflow,
            score=0.0 if trace.answer is None else grade(task, trace.answer).score,
            tokens=trace.usage.total_tokens,
            cost_usd=trace.cost_usd,
        )


def count(spending: Spending, tried: Try) -> None:
    """Counts a try as one run among those of the evaluation."""
    spending.spend(_A_TRY, tried.cost_usd, tried.tokens)


def _is_its_profile(spec: WorkerSpec) -> bool:
    """Whether the exact chance holds for a worker: teams name workers, and the reckoning takes names for profiles.

    A real model may well be called "coder", and a simulated one by another's name.
    """
    return spec.simulated and spec.model.removeprefix("rehearsal/") == spec.name
