"""A new plan as a browser keeps it: a file in the data folder, so that a reload of the page loses nothing. Pure.

A plan belongs to one page (a tab). A page that finds its file written by another page writes into a new one, so that
neither overwrites the other's work. A browser without cookies keeps nothing here; its page's state has the plan until
it is loaded again.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from conductor_core.errors import BadInput
from pages.components.run.draft import Draft
from pages.components.run.kept_files import Place, bounded, is_own, new_id, newest_first, place_of, write_whole, writing

FOLDER = "drafts"

_ID = re.compile(r"[0-9a-f]{12}")


@dataclass(frozen=True)
class NewPlan:
    """``task`` is that of the task box. ``shown``: whether the page shows the plan, or only keeps it."""

    draft: Draft
    task: str
    shown: bool = True


_FORM = TypeAdapter(NewPlan)


@dataclass(frozen=True)
class KeptPlan:
    place: Place
    plan: NewPlan


def read(folder: Path, browser: str, named: str | None = None) -> KeptPlan | None:
    """Returns the plan of this name; without one, the newest of this browser. None: it has none.

    Raises: BadInput if the file cannot be read.
    """
    if named is not None:
        return _read(_file(folder, browser, named)) if _ID.fullmatch(named) else None
    files = newest_first((folder / FOLDER).glob(f"{browser}.*.json"))
    return _read(files[0]) if files else None


def write(folder: Path, browser: str, plan: NewPlan, before: Place | None) -> Place:
    """Keeps the plan where it was before, or in a new file: without ``before``, or if another page wrote there since.

    Keeps the nearest versions to undo and redo, as ``bounded`` says. Raises: BadInput.
    """
    with writing:
        own = before is not None and is_own(_file(folder, browser, before.edit_id), before)
        file = _file(folder, browser, before.edit_id if before is not None and own else new_id())
        try:
            return write_whole(file, _FORM.dump_json(replace(plan, draft=bounded(plan.draft))))
        except (OSError, BadInput) as error:
            why = getattr(error, "strerror", None) or error
            raise BadInput(f"your plan is kept only until the page is loaded again: {file}: {why}") from error


def remove(folder: Path, browser: str, before: Place) -> None:
    """Keeps a plan no longer, because it was run. What another page wrote there stays. Raises: BadInput."""
    file = _file(folder, browser, before.edit_id)
    with writing:
        if not is_own(file, before):
            return
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            raise BadInput(f"your plan in {file} cannot be removed: {error.strerror or error}") from error


def _read(file: Path) -> KeptPlan | None:
    try:
        place = place_of(file)
        return KeptPlan(place, _FORM.validate_json(file.read_bytes()))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"your plan in {file} cannot be read: {error.strerror or error}") from error
    except ValidationError as error:
        raise BadInput(f"your plan in {file} cannot be read: {error.errors()[0]['msg']}") from error


def _file(folder: Path, browser: str, name: str) -> Path:
    return folder / FOLDER / f"{browser}.{name}.json"
