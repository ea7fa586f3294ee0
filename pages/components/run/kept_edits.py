"""Edits of the plans of runs as a browser keeps them: a file in the data folder for each edit. Pure.

An edit belongs to one page (a tab). A page that finds its file written by another page writes into a new one, so that
neither overwrites the other's work.
"""

import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

from pydantic import TypeAdapter, ValidationError

from conductor_core.errors import BadInput
from pages.components.run.draft import Draft

FOLDER = "edits"
MOST_FILES = 1000
MOST_VERSIONS = 100

_ID = re.compile(r"[0-9a-f]{12}")
_FORM = TypeAdapter(Draft)
_writing = Lock()


@dataclass(frozen=True)
class Place:
    """Where an edit is kept. ``inode`` and ``written_ns`` tell the file of that moment from one written since."""

    edit_id: str
    inode: int
    written_ns: int

    @property
    def written_at_utc(self) -> datetime:
        return datetime.fromtimestamp(self.written_ns / 1e9, UTC)


@dataclass(frozen=True)
class KeptEdit:
    place: Place
    draft: Draft


def read(folder: Path, browser: str, run_id: str, edit_id: str) -> KeptEdit | None:
    """Returns an edit of this browser; None if it has none of that name. Raises: BadInput if it cannot be read."""
    return _read(_file(folder, browser, run_id, edit_id)) if _ID.fullmatch(edit_id) else None


def of_run(folder: Path, browser: str, run_id: str, most: int) -> tuple[list[KeptEdit], list[str]]:
    """Returns the edits of this run that this browser keeps, the newest first, and why others cannot be read."""
    files = (folder / FOLDER).glob(f"{_prefix(browser, run_id)}*.json")
    edits: list[KeptEdit] = []
    faults: list[str] = []
    for _, file in sorted(_with_times(files), reverse=True):
        try:
            edit = _read(file)
        except BadInput as error:
            faults.append(str(error))
            continue
        if edit is not None:
            edits.append(edit)
        if len(edits) == most:
            break
    return edits, faults


def write(folder: Path, browser: str, run_id: str, draft: Draft, before: Place | None) -> Place:
    """Keeps the edit where it was before, or in a new file: without ``before``, or if another page wrote there since.

    Keeps the last ``MOST_VERSIONS`` to undo. Raises: BadInput.
    """
    kept = replace(draft, past=draft.past[-MOST_VERSIONS:], future=draft.future[:MOST_VERSIONS])
    with _writing:
        edit_id = before.edit_id if before is not None and _is_own(folder, browser, run_id, before) else _new_id()
        file = _file(folder, browser, run_id, edit_id)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            new = file.with_suffix(".new")  # of this edit alone, so a failed write leaves one file, not many
            new.write_bytes(_FORM.dump_json(kept))
            os.replace(new, file)
            place = _place(file)
        except OSError as error:
            why = error.strerror or error
            raise BadInput(f"your edit is kept only until the page is loaded again: {file}: {why}") from error
    for _, old in sorted(_with_times(file.parent.glob("*.json")))[:-MOST_FILES]:
        with suppress(OSError):  # another page has just removed it
            old.unlink()
    return place


def remove(folder: Path, browser: str, run_id: str, edit_id: str) -> None:
    """Raises: BadInput."""
    file = _file(folder, browser, run_id, edit_id)
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        raise BadInput(f"the edit in {file} cannot be removed: {error.strerror or error}") from error


def _is_own(folder: Path, browser: str, run_id: str, before: Place) -> bool:
    """Tells whether nobody wrote there since. A file that is gone was run or thrown away: its name is free."""
    try:
        return _place(_file(folder, browser, run_id, before.edit_id)) == before
    except OSError:
        return True


def _read(file: Path) -> KeptEdit | None:
    try:
        place = _place(file)
        return KeptEdit(place, _FORM.validate_json(file.read_bytes()))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"your edit in {file} cannot be read: {error.strerror or error}") from error
    except ValidationError as error:
        raise BadInput(f"your edit in {file} cannot be read: {error.errors()[0]['msg']}") from error


def _place(file: Path) -> Place:
    found = file.stat()
    return Place(file.stem.rpartition(".")[2], found.st_ino, found.st_mtime_ns)


def _file(folder: Path, browser: str, run_id: str, edit_id: str) -> Path:
    return folder / FOLDER / f"{_prefix(browser, run_id)}{edit_id}.json"


def _prefix(browser: str, run_id: str) -> str:
    # A run's id comes from a database, and may be any text there.
    return f"{browser}.{hashlib.sha256(run_id.encode()).hexdigest()[:24]}."


def _new_id() -> str:
    return secrets.token_hex(6)


def _with_times(files: Iterator[Path]) -> Iterator[tuple[int, Path]]:
    for file in files:
        with suppress(OSError):  # another page has just removed it
            yield file.stat().st_mtime_ns, file
