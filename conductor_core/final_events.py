"""The events that end a run; ``approval_events.RunDenied`` does, too."""

from typing import Literal

from pydantic import NonNegativeFloat

from conductor_core.actor import Caused
from conductor_core.chat import Usage
from conductor_core.endings import Ending
from conductor_core.event_base import RunEvent, Spent


class RunCompleted(RunEvent):
    """``answer`` is the last step's output; None after *Plan only*. Totals hold what this run itself spent.

    ``known_usd``, as at every end, is the cost of what has a price; None in older records. ``ending`` is that of the
    last step's answer; ``completed`` in older records.
    """

    kind: Literal["run.completed"] = "run.completed"
    answer: str | None
    usage: Usage
    cost_usd: float | None
    known_usd: float | None = None
    duration_ms: NonNegativeFloat
    ending: Ending = "completed"


class RunFailed(Spent):
    kind: Literal["run.failed"] = "run.failed"
    error_code: str
    error: str
    duration_ms: NonNegativeFloat = 0.0


class RunCancelled(Spent, Caused):
    kind: Literal["run.cancelled"] = "run.cancelled"
    command: int | None = None
    duration_ms: NonNegativeFloat = 0.0


class RunInterrupted(Spent):
    """Ends a run whose process is gone. Running calls count by estimate, except in older records."""

    kind: Literal["run.interrupted"] = "run.interrupted"
