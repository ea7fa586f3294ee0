"""A new plan as a browser keeps it: a file in the data folder, so that a reload of the page loses nothing. Pure.

A browser without cookies keeps nothing here; its page's state has the plan until it is loaded again.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from conductor_core.errors import BadInput
from pages.components.run.draft import Draft

FOLDER = "drafts"
MOST_BROWSERS = 500
MOST_VERSIONS = 100


@dataclass(frozen=True)
class NewPlan:
    """``task`` is that of the task box. ``shown``: whether the page shows the plan, or only keeps it."""

    draft: Draft
    task: str
    shown: bool = True


_FORM = TypeAdapter(NewPlan)


def read(folder: Path, browser: str) -> NewPlan | None:
    """Returns the plan of this browser; None if it has none. Raises: BadInput if the file cannot be read."""
    file = _file(folder, browser)
    try:
        return _FORM.validate_json(file.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"your plan in {file} cannot be read: {error.strerror or error}") from error
    except ValidationError as error:
        raise BadInput(f"your plan in {file} cannot be read: {error.errors()[0]['msg']}") from error


def write(folder: Path, browser: str, plan: NewPlan | None) -> None:
    """Replaces the file whole, with the last ``MOST_VERSIONS`` to undo; None removes it. Raises: BadInput."""
    file = _file(folder, browser)
    try:
        if plan is None:
            file.unlink(missing_ok=True)
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = replace(plan.draft, past=plan.draft.past[-MOST_VERSIONS:], future=plan.draft.future[:MOST_VERSIONS])
        with tempfile.NamedTemporaryFile(dir=file.parent, prefix=file.stem, delete=False) as new:
            new.write(_FORM.dump_json(replace(plan, draft=draft)))
        os.replace(new.name, file)
    except OSError as error:
        why = error.strerror or error
        raise BadInput(f"your plan is kept only until the page is loaded again: {file}: {why}") from error
    for old in _oldest(file.parent):
        with suppress(OSError):  # another page has just removed it
            old.unlink()


def _file(folder: Path, browser: str) -> Path:
    return folder / FOLDER / f"{browser}.json"


def _oldest(folder: Path) -> Iterator[Path]:
    """Yields the files of the browsers that planned longest ago, because browsers come and go."""
    changed_s: dict[Path, float] = {}
    for file in folder.glob("*.json"):
        with suppress(OSError):  # another page has just removed it
            changed_s[file] = file.stat().st_mtime
    yield from sorted(changed_s, key=changed_s.__getitem__)[:-MOST_BROWSERS]
