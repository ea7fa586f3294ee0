"""What forwarding and its shadow could not do, counted for ever: such a loss leaves no run that would say so.

The counts are a JSON file of the data folder, because a database that cannot be written is what is counted.
"""

import json
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, get_args

log = logging.getLogger(__name__)

Count = Literal[
    "unrecorded", "record_cut", "shadow_queue_full", "shadow_over_budget", "shadow_failed", "shadow_left_over"
]
"""``unrecorded``: answers whose request no run records. ``record_cut``: runs whose end could not be written.
``shadow_queue_full``: requests that were to be shadowed while the queue was full. ``shadow_over_budget``: that would
have gone beyond the day's budget. ``shadow_failed``: whose shadow broke, hung or could not begin. ``shadow_left_over``:
that waited when the server stopped."""
COUNTS: tuple[Count, ...] = get_args(Count)
FILE = "pass-through.json"


def read_counts(data_folder: Path) -> Mapping[Count, int]:
    """Returns all counts; those of a file that is damaged or not there are 0."""
    found: object = None
    with suppress(OSError, ValueError, RecursionError):
        found = json.loads((data_folder / FILE).read_text())
    said = found if isinstance(found, dict) else {}
    return {name: value if type(value := said.get(name)) is int and value >= 0 else 0 for name in COUNTS}


class Counts:
    """Counts for one process. Belongs to one thread. One server at a time is expected to forward for a data folder."""

    def __init__(self, data_folder: Path) -> None:
        self._file = data_folder / FILE
        self.all: dict[Count, int] = dict(read_counts(data_folder))
        self._kept = dict(self.all)

    def add(self, name: Count, count: int = 1) -> None:
        """Counts, and logs the first and each doubling: a flood of losses must not be a flood of lines."""
        before, after = self.all[name], self.all[name] + count
        self.all[name] = after
        if before.bit_length() != after.bit_length():
            log.warning("pass-through: %s is now %d", name, after)

    def keep(self) -> None:
        """Writes the file if a count has changed. Blocks. Ignores failures: the next call tries again."""
        now = dict(self.all)
        if now == self._kept:
            return
        beside = self._file.with_name(f"{FILE}.{os.getpid()}")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            beside.write_text(json.dumps(now))
            beside.replace(self._file)
        except OSError as error:
            log.warning("the counts of the pass-through cannot be kept: %s", error)
            with suppress(OSError):
                beside.unlink()
        else:
            self._kept = now


_IN_WORDS: Mapping[Count, str] = {
    "unrecorded": "forwarded without a record",
    "record_cut": "recorded without their end",
    "shadow_queue_full": "without a shadow because the queue was full",
    "shadow_over_budget": "without a shadow because the day's budget was spent",
    "shadow_failed": "without a shadow because it could not begin, or hung",
    "shadow_left_over": "without a shadow because the server stopped",
}


def losses(data_folder: Path) -> tuple[str, ...]:
    """Says what was lost ever, in a few words each; nothing where nothing was."""
    return tuple(f"{number:,} {_IN_WORDS[name]}" for name, number in read_counts(data_folder).items() if number)
