"""What a training run and an evaluation leave on disk: rows that only grow, read by the pages and by people.

A leaf vocabulary, free of torch. ``shipped/`` holds the records of the Conductor in this repository.
"""

from datetime import UTC, datetime
from pathlib import Path

SHIPPED = Path(__file__).with_name("shipped")


def now() -> str:
    """The time as a record keeps it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
