"""The rehearsal pool: an offline world with known answers, and seven simulated workers of different skill.

Everything here is simulated and says so; see ``skills`` for the model of skill behind it.
"""

from conductor_core.rehearsal.examples import EXAMPLES, Example
from conductor_core.rehearsal.families import (
    DIFFICULTIES,
    FAMILIES,
    RehearsalTask,
    generate,
    grade,
    recognise,
)
from conductor_core.rehearsal.skills import PROFILES, rehearsal_specs
from conductor_core.rehearsal.worker import RehearsalWorker, open_rehearsal_worker

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
    "open_rehearsal_worker",
    "recognise",
    "rehearsal_specs",
]
