"""Tasks, outcomes and orchestrators of no consequence, for tests of the evaluation."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from conductor_core.grading.tasks import Task
from conductor_core.lab.evaluation.orchestrators import EngineRun, GivenTask, Orchestrator, TaskAttempt, planned, single
from conductor_core.lab.evaluation.runner import Caps, Evaluation, Spending
from conductor_core.lab.records.evaluation import EvaluationPlan, Outcome
from conductor_core.run.values import Limits
from tests.support.fakes import ScriptedWorker, pool_of


def task(number: int, difficulty: str = "easy", family: str = "sums") -> Task:
    """Asks for its own number."""
    return Task(f"task-{number}", f"Say {number}.", family, difficulty, str(number), "exact")


def row(orchestrator: str = "first", task_id: str = "task-0", **fields: Any) -> Outcome:
    known: dict[str, Any] = {
        "orchestrator": orchestrator,
        "task_id": task_id,
        "family": "sums",
        "difficulty": "easy",
        "run_id": f"run-{orchestrator}-{task_id}",
        "score": 1.0,
        "tokens": 10,
        "cost_usd": 0.5,
        "duration_ms": 100.0,
        "steps": 1,
    }
    return Outcome(**(known | fields))


def plan(*orchestrators: str, **fields: Any) -> EvaluationPlan:
    known: dict[str, Any] = {
        "name": "trial",
        "at": "2026-01-01T00:00:00+00:00",
        "suite": "sums",
        "split": "test",
        "tasks": 4,
        "seed": 0,
        "orchestrators": orchestrators or ("first",),
        "pool": "scripted",
        "simulated": False,
    }
    return EvaluationPlan(**(known | fields))


def alone(worker: str) -> Orchestrator:
    return planned(f"single:{worker}", lambda asked: single(worker), whole_pool=True)


def noted(within: Orchestrator) -> tuple[Orchestrator, list[str]]:
    """The orchestrator, and the tasks that it was asked so far."""
    asked: list[str] = []

    async def attempt(given: GivenTask, run: EngineRun) -> TaskAttempt:
        asked.append(given.task.task_id)
        return await within.attempt(given, run)

    return replace(within, attempt=attempt), asked


def spent(caps: Caps, *recorded: Outcome) -> Spending:
    """The spending of an evaluation that has these outcomes already."""
    spending = Spending(caps)
    for each in recorded:
        spending.add(each)
    return spending


def evaluation(
    folder: Path, tasks: Sequence[Task], orchestrators: Sequence[Any], *workers: ScriptedWorker, **fields: Any
) -> Evaluation:
    known: dict[str, Any] = {"limits": Limits(), "seed": 0, "concurrency": 4, "on_outcome": [].append}
    return Evaluation(
        folder=folder, tasks=tasks, orchestrators=orchestrators, pool=pool_of(*workers), **(known | fields)
    )
