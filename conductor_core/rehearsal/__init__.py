"""The rehearsal pool: an offline world with known answers, and seven simulated workers of different skill.

Everything here is simulated and says so; see ``skills`` for the model of skill behind it.
"""

from dataclasses import dataclass
from pathlib import Path

from conductor_core.rehearsal.families import (
    DIFFICULTIES,
    FAMILIES,
    RehearsalTask,
    generate,
    grade,
    recognise,
)
from conductor_core.rehearsal.families.family import words
from conductor_core.rehearsal.skills import PROFILES, rehearsal_specs
from conductor_core.rehearsal.worker import RehearsalWorker

__all__ = [
    "DIFFICULTIES",
    "EXAMPLES",
    "FAMILIES",
    "PROFILES",
    "Example",
    "RehearsalTask",
    "RehearsalWorker",
    "generate",
    "grade",
    "recognise",
    "rehearsal_specs",
]


# Tasks for a first try, one for each common shape of workflow.


@dataclass(frozen=True)
class Example:
    """A task to offer on the Run page.

    Attributes:
        title: a few words for a button, by which the task is known.
        shape: the topology that suits it, in the words of ``workflow.topology``; a hint, nothing enforces it.
    """

    title: str
    task: str
    shape: str


EXAMPLES = tuple(Example(**each) for each in words(Path(__file__).with_name("examples.toml"))["examples"])
