"""The records that trainings and evaluations write to disk: files to which rows are only added.

It does not import torch. ``shipped/`` holds the records of the Conductor in this repository.
"""

import hashlib
import socket
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from os import getpid
from pathlib import Path
from statistics import fmean
from typing import TypeVar

from pydantic import ConfigDict, ValidationError

from conductor_core.errors import BadInput
from conductor_core.files import FileLock
from conductor_core.workflow.model import Frozen

R = TypeVar("R")

DIFFICULTIES = ("easy", "medium", "hard")
SHIPPED = Path(__file__).with_name("shipped")


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def write_whole(path: Path, text: str) -> None:
    """Replaces a file. A reader finds the whole old or the whole new text, even after a kill. Raises: OSError."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


def append_lines(path: Path, *rows: Frozen) -> None:
    """Adds rows to a file, each as a line of JSON, in one write. Raises: OSError."""
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(row.model_dump_json(exclude_none=True) + "\n" for row in rows))


def read_rows(path: Path, parse: Callable[[str], R], what: str, broken: list[str] | None) -> Iterator[R]:
    """Reads the rows of a file. It leaves out a last line that is still being written.

    Args:
        parse: reads one line. Raises: ValidationError.
        what: the name of a row, for messages.
        broken: receives a message for each line that is no row; None: such a line raises.

    Raises: BadInput, which names the file and the line.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from error
    for number, line in enumerate(lines[:-1], start=1):
        try:
            yield parse(line)
        except ValidationError as error:
            fault = f"{path}, line {number}, is not a valid {what}: {why(error)}"
            if broken is None:
                raise BadInput(fault) from error
            broken.append(fault)


def weights_sha256(folder: Path) -> str:
    """Returns the digest of the weights of a model or of an adapter. Raises: OSError."""
    digest = hashlib.sha256()
    for path in sorted([*folder.glob("*.safetensors"), *folder.glob("*.gguf")]):
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


class Finite(Frozen):
    """Base of records of figures. It refuses infinity and NaN, which can be neither drawn nor put into words."""

    model_config = ConfigDict(allow_inf_nan=False)


def in_order(names: Iterable[str]) -> list[str]:
    """Returns each name once: difficulties from easy to hard, then others, without empty names."""
    return sorted({*names} - {""}, key=lambda name: (DIFFICULTIES.index(name) if name in DIFFICULTIES else 3, name))


def by_group(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Returns the mean figure of each name, ``in_order``."""
    groups: defaultdict[str, list[float]] = defaultdict(list)
    for name, figure in pairs:
        groups[name].append(figure)
    return {name: fmean(groups[name]) for name in in_order(groups)}


def why(error: ValidationError) -> str:
    """Says which part of a row is wrong, and why."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else first["msg"]


# Tells which process writes the folder of a training or an evaluation, and whether it still lives.

LOCK = ".in-use.lock"
"""The file with host and process id of its last holder. It is hidden: the model beside it does not include it."""

_ASKED_S = 0.5
"""Time to wait for a lock, because a page that asks ``in_use`` holds it for a moment."""
_HELD: dict[Path, FileLock] = {}
"""The locks that this process holds, by path."""


def hold(folder: Path) -> None:
    """Takes the existing ``folder`` for this process until it ends or releases it. A second call does no harm.

    Raises: BadInput if another process has it; OSError if the lock cannot be written.
    """
    path = folder.resolve() / LOCK
    if path in _HELD and _HELD[path].is_of(path):
        return
    release(folder)  # an old lock, if the folder was deleted and made again
    lock = FileLock(path)
    try:
        if not lock.acquire(_ASKED_S):
            host, _, pid = _owner(path).partition(" ")
            which = f" ({pid} on {host})" if pid else ""
            raise BadInput(f"{folder} is in use by another process{which}: wait for its end, or choose another folder")
        path.write_text(f"{socket.gethostname()} {getpid()}\n", encoding="utf-8")
    except BaseException:
        lock.close()
        raise
    _HELD[path] = lock


def release(folder: Path) -> None:
    """Lets others write ``folder``. Does nothing if this process does not hold it."""
    lock = _HELD.pop(folder.resolve() / LOCK, None)
    if lock is not None:
        lock.close()


def in_use(folder: Path) -> bool | None:
    """Whether a process writes ``folder``. None if unknown: no lock was ever taken, or another host took it."""
    path = folder / LOCK
    try:
        if not path.is_file():
            return None
        with closing(FileLock(path)) as lock:
            # A shared lock, so that two processes that ask do not take each other for a writer.
            if not lock.try_acquire(shared=True):
                return True
        return False if _owner(path).partition(" ")[0] == socket.gethostname() else None
    except OSError:
        return None


def _owner(path: Path) -> str:
    """Returns host and process id, or an empty text if they are not written yet."""
    return path.read_text(encoding="utf-8", errors="replace").strip()
