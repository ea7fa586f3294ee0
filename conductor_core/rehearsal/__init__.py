"""The rehearsal pool: an offline world with known answers, and seven simulated workers of different skill.

Everything here is simulated and says so; see ``skills`` for the model of skill behind it.
"""

from dataclasses import dataclass

from conductor_core.rehearsal.families import (
    DIFFICULTIES,
    FAMILIES,
    RehearsalTask,
    generate,
    grade,
    recognise,
)
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


EXAMPLES: tuple[Example, ...] = (
    Example("Symbol of tungsten", "What is the chemical symbol of tungsten?", "one shot"),
    Example(
        "Merge bookings in Python",
        "Write a Python function `merge_bookings(spans)` that merges [start, end] spans which overlap or lie at most "
        "2 apart, and "
        "returns them sorted. It must pass `assert merge_bookings([[40, 52], [8, 20], [10, 15], [22, 30]]) == [[8, "
        "30], [40, 52]]`. "
        "Work it out in stages.",
        "chain",
    ),
    Example(
        "Which of three offers is cheapest?",
        "Compare three hosting offers for 18 months at 400 GB a month. Offer A: 180 euros set-up, then 32 euros a "
        "month. Offer B: 12 "
        "euros a month plus 6 cents per GB. Offer C: 44 euros a month with the first 4 months free. What does the "
        "cheapest cost in "
        "total, in euros? Get several independent opinions and combine them.",
        "fan-out",
    ),
    Example(
        "When does the train arrive?",
        "A train leaves at 09:40 and covers 210 km at 84 km/h, waits 18 minutes, then covers 95 km at 76 km/h. When "
        "does it arrive? "
        "Check the result independently.",
        "mixed",
    ),
)
