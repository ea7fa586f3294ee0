"""Digests of what an evaluation was made with, so that it is not continued with anything else."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from conductor_core.chat.messages import Message, WorkerSpec
from conductor_core.conductors.catalogue import TINY, TINY_FOLDER
from conductor_core.engine.pools import Pool
from conductor_core.grading.tasks import Task
from conductor_core.inference.source import own_folder
from conductor_core.rehearsal import RehearsalWorker

_BLOCK_BYTES = 1 << 20
_TASKS_PROBED = 20


def tasks_digest(tasks: Iterable[Task]) -> str:
    """Returns the digest of the questions and their answers, in order."""
    digest = hashlib.sha256()
    for task in tasks:
        digest.update(json.dumps([task.task_id, task.question, task.reference]).encode())
    return digest.hexdigest()


def grading_digest(tasks: Iterable[Task]) -> str:
    """Returns the digest of the graders and of what they grade by (choices, tests, tolerances), in order."""
    digest = hashlib.sha256()
    for task in tasks:
        digest.update(json.dumps([task.grader, dict(task.extra)], sort_keys=True).encode())
    return digest.hexdigest()


def pool_digest(specs: Sequence[WorkerSpec]) -> str:
    """Returns the digest of the pool file's content."""
    return hashlib.sha256(json.dumps([spec.model_dump(mode="json") for spec in specs]).encode()).hexdigest()


def simulated_digest(pool: Pool, tasks: Sequence[Task]) -> str | None:
    """Returns the digest of simulated workers' answers to the first tasks: they change with the program.

    None for a pool without any.
    """
    workers = [worker for worker in pool.workers.values() if isinstance(worker, RehearsalWorker)]
    digest = hashlib.sha256()
    for worker in workers:
        for task in tasks[:_TASKS_PROBED]:
            asked = Message(role="user", content=task.question)
            answer = Message(role="assistant", content=worker.respond([asked]))
            check = Message(role="user", content="Check the answer above for mistakes.")
            digest.update(json.dumps([answer.content, worker.respond([asked, answer, check])]).encode())
    return digest.hexdigest() if workers else None


def model_digest(ref: str, models: Path) -> str | None:
    """Returns the digest of a Conductor's weights; None if it is not in a folder (a server's, or the hub's).

    Args:
        models: the folder of models that their names find.

    Raises: OSError.
    """
    folder = TINY_FOLDER if ref == TINY else own_folder(ref, models)
    if "://" in ref or folder is None:
        return None
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
    return digest.hexdigest()
