"""Edits of the plans of runs as a browser keeps them: a file in the data folder for each edit. Pure.

An edit belongs to one page (a tab). A page that finds its file written by another page writes into a new one, so that
neither overwrites the other's work.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from conductor_core.errors import BadInput
from conductor_core.run.request import file_part
from pages.components.run.draft import Draft
from pages.components.run.kept_files import Place, bounded, is_own, new_id, newest_first, place_of, write_whole, writing

FOLDER = "edits"

_ID = re.compile(r"[0-9a-f]{12}")
_FORM = TypeAdapter(Draft)


@dataclass(frozen=True)
class KeptEdit:
    place: Place
    draft: Draft


def read(folder: Path, browser: str, run_id: str, edit_id: str) -> KeptEdit | None:
    """Returns an edit of this browser; None if it has none of that name. Raises: BadInput if it cannot be read."""
    return _read(_file(folder, browser, run_id, edit_id)) if _ID.fullmatch(edit_id) else None


def of_run(folder: Path, browser: str, run_id: str, most: int) -> tuple[list[KeptEdit], list[str]]:
    """Returns the edits of this run that this browser keeps, the newest first, and why others cannot be read."""
    edits: list[KeptEdit] = []
    faults: list[str] = []
    for file in newest_first((folder / FOLDER).glob(f"{_prefix(browser, run_id)}*.json")):
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

    Keeps the nearest versions to undo and redo, as ``bounded`` says. Raises: BadInput.
    """
    with writing:
        own = before is not None and is_own(_file(folder, browser, run_id, before.edit_id), before)
        file = _file(folder, browser, run_id, before.edit_id if before is not None and own else new_id())
        try:
            return write_whole(file, _FORM.dump_json(bounded(draft)))
        except (OSError, BadInput) as error:
            why = getattr(error, "strerror", None) or error
            raise BadInput(f"your edit is kept only until the page is loaded again: {file}: {why}") from error


def remove(folder: Path, browser: str, run_id: str, edit_id: str) -> None:
    """Raises: BadInput."""
    file = _file(folder, browser, run_id, edit_id)
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        raise BadInput(f"the edit in {file} cannot be removed: {error.strerror or error}") from error


def _read(file: Path) -> KeptEdit | None:
    try:
        place = place_of(file)
        return KeptEdit(place, _FORM.validate_json(file.read_bytes()))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"your edit in {file} cannot be read: {error.strerror or error}") from error
    except ValidationError as error:
        raise BadInput(f"your edit in {file} cannot be read: {error.errors()[0]['msg']}") from error


def _file(folder: Path, browser: str, run_id: str, edit_id: str) -> Path:
    return folder / FOLDER / f"{_prefix(browser, run_id)}{edit_id}.json"


def _prefix(browser: str, run_id: str) -> str:
    return f"{browser}.{file_part(run_id)}."
