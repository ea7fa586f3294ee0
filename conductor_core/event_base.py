"""What all events have."""

from datetime import UTC, datetime

from pydantic import Field, NonNegativeFloat

from conductor_core.chat import Usage
from conductor_core.workflow.model import Frozen


def now_utc() -> datetime:
    return datetime.now(UTC)


class RunEvent(Frozen):
    """Attributes: at_utc: wall clock. at_ms: milliseconds that the run has run, by a monotonic clock. This clock stands
    while the run is queued or waits."""

    run_id: str
    at_utc: datetime = Field(default_factory=now_utc)
    at_ms: NonNegativeFloat = 0.0


class Spent(RunEvent):
    """The end of a run, with all that it spent. ``known_usd``: of what has a price; None in older records."""

    usage: Usage = Usage()
    cost_usd: float | None = None
    known_usd: float | None = None
