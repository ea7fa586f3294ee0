"""Files in which a browser keeps plans: written whole, by one page each, and bounded in number and bytes. Pure."""

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

from pydantic import TypeAdapter

from conductor_core.errors import BadInput
from pages.components.run.draft import Draft, Version

MOST_VERSIONS = 100
MOST_BYTES = 8 << 20
"""Of one file. Of more than that, the versions farthest from now are not kept."""
MOST_FILES, MOST_BYTES_OF_ALL = 1000, 256 << 20
"""Of one folder. Beyond that the oldest files go: browsers come and go."""

writing = Lock()
_VERSION = TypeAdapter(Version)


@dataclass(frozen=True)
class Place:
    """Where something is kept. ``inode`` and ``written_ns`` tell the file of that moment from one written since."""

    edit_id: str
    inode: int
    written_ns: int

    @property
    def written_at_utc(self) -> datetime:
        return datetime.fromtimestamp(self.written_ns / 1e9, UTC)


def new_id() -> str:
    return secrets.token_hex(6)


def place_of(file: Path) -> Place:
    """Raises: OSError."""
    found = file.stat()
    return Place(file.stem.rpartition(".")[2], found.st_ino, found.st_mtime_ns)


def is_own(file: Path, before: Place) -> bool:
    """Tells whether nobody wrote there since. A file that is gone was run or thrown away: its name is free."""
    try:
        return place_of(file) == before
    except OSError:
        return True


def bounded(draft: Draft, most_bytes: int = MOST_BYTES) -> Draft:
    """Returns the draft with the versions to undo and redo that can be kept: the nearest, in turn from both sides.

    Raises: BadInput if the plan as it is now is larger by itself.
    """
    left = most_bytes - 2 * _size(draft.now)  # the plan that it began with is of about that size
    if left < 0:
        raise BadInput(f"it is larger than {most_bytes >> 20} MiB")
    past, future = list(reversed(draft.past[-MOST_VERSIONS:])), list(draft.future[:MOST_VERSIONS])
    kept: tuple[list[Version], list[Version]] = ([], [])
    for into, versions in ((kept[0], past), (kept[1], future)):
        for version in versions:
            left -= _size(version)
            if left < 0:
                break
            into.append(version)
    return replace(draft, past=tuple(reversed(kept[0])), future=tuple(kept[1]))


def _size(version: Version) -> int:
    return len(_VERSION.dump_json(version))


def write_whole(file: Path, content: bytes) -> Place:
    """Replaces the file, and removes the oldest of its folder if there are too many. Raises: OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_suffix(".new")
    try:
        new.write_bytes(content)
        os.replace(new, file)
    except OSError:
        with suppress(OSError):  # why it could not be written is what matters
            new.unlink()
        raise
    place = place_of(file)
    for old in _beyond(file.parent):
        with suppress(OSError):  # another page has just removed it
            old.unlink()
    return place


def newest_first(files: Iterable[Path]) -> list[Path]:
    return [file for _, file, _ in sorted(_facts(files), reverse=True)]


def _beyond(folder: Path) -> Iterator[Path]:
    """Yields the files that are too many, or too much together. The newest stays in any case."""
    total = 0
    for number, (_, file, size) in enumerate(sorted(_facts(folder.glob("*.json")), reverse=True)):
        total += size
        if number and (number >= MOST_FILES or total > MOST_BYTES_OF_ALL):
            yield file


def _facts(files: Iterable[Path]) -> Iterator[tuple[int, Path, int]]:
    for file in files:
        with suppress(OSError):  # another page has just removed it
            found = file.stat()
            yield found.st_mtime_ns, file, found.st_size
