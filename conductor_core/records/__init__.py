"""What a training run and an evaluation leave on disk: rows that only grow, read by the pages and by people.

A leaf vocabulary, free of torch. ``shipped/`` holds the records of the Conductor in this repository.
"""

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean

from pydantic import ConfigDict, ValidationError

from conductor_core.workflow.model import Frozen

DIFFICULTIES = ("easy", "medium", "hard")
SHIPPED = Path(__file__).with_name("shipped")


def now() -> str:
    """The time as a record keeps it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def write_whole(path: Path, text: str) -> None:
    """Writes a file anew: whoever reads it, even after a kill, finds all of the old text or of the new.

    Raises: OSError.
    """
    new = path.with_name(f"{path.name}.new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


class Finite(Frozen):
    """Base of what holds figures: an infinite one, or none at all (NaN), can neither be drawn nor put into words."""

    model_config = ConfigDict(allow_inf_nan=False)


def in_order(names: Iterable[str]) -> list[str]:
    """Each name once, difficulties from easy to hard, then others; what has no name is left out."""
    return sorted({*names} - {""}, key=lambda name: (DIFFICULTIES.index(name) if name in DIFFICULTIES else 3, name))


def by_group(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    """The mean of the figures of each name, ``in_order``."""
    groups: defaultdict[str, list[float]] = defaultdict(list)
    for name, figure in pairs:
        groups[name].append(figure)
    return {name: fmean(groups[name]) for name in in_order(groups)}


def why(error: ValidationError) -> str:
    """What is wrong with a row, and with which part of it."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else first["msg"]
