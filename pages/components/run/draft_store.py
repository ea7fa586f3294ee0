"""Drafts that a browser keeps: of the plans of runs, and of a plan of one's own. In the page's state, and in files.

A draft belongs to one page (a tab), whose address names it from its first change on (``?run=ID&edit=NAME``,
``?plan=NAME``), so a reload loses nothing. A page that finds its file written by another page writes into a new one, so
that neither overwrites the other's work. A browser without cookies keeps nothing in files.
"""

import math
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from threading import Lock

import streamlit as st
from pydantic import TypeAdapter, ValidationError

from conductor_core.errors import BadInput, InspectorError
from conductor_core.files import write_whole
from conductor_core.run.request import file_part
from conductor_core.workflow.edits import compare
from pages.components.app.security import browser_id
from pages.components.app.session import current
from pages.components.app.widgets import kept_fault
from pages.components.run.draft import Draft, Version
from pages.components.style.formats import ago, inert, plural

EDITS, PLANS = "edits", "drafts"
"""The folders: of edits of runs' plans, and of plans of one's own."""
MOST_VERSIONS = 100
MOST_BYTES = 8 << 20
"""Of one file. Of more than that, the versions farthest from now are not kept."""
MOST_FILES, MOST_BYTES_OF_ALL = 1000, 256 << 20
"""Of one folder. Beyond that the oldest files go: browsers come and go."""
MOST_OFFERED = 3
_NAME = re.compile(r"[0-9a-f]{12}")
_writing = Lock()


@dataclass(frozen=True)
class Place:
    """Where a draft is kept. ``inode`` and ``written_ns`` tell the file of that moment from one written since."""

    name: str
    inode: int
    written_ns: int


@dataclass(frozen=True)
class Kept:
    """What a file holds. A new plan has the task of the task box, and whether the page shows it or only keeps it."""

    draft: Draft
    task: str = ""
    shown: bool = True


_FORM, _VERSION = TypeAdapter(Kept), TypeAdapter(Version)


def read(folder: Path, browser: str, run_id: str | None, name: str | None = None) -> tuple[Kept, Place] | None:
    """Returns the draft of this name; without one, the newest. ``run_id`` None: a new plan.

    Returns None if this browser has none. Raises: BadInput if the file cannot be read.
    """
    if name is None:
        return next((_read(file) for file in _files(folder, browser, run_id)), None)
    return _read(_file(folder, browser, run_id, name)) if _NAME.fullmatch(name) else None


def newest(folder: Path, browser: str, run_id: str, most: int) -> tuple[list[tuple[Kept, Place]], list[str]]:
    """Returns the edits of this run that this browser keeps, the newest first, and why others cannot be read."""
    edits: list[tuple[Kept, Place]] = []
    faults: list[str] = []
    for file in _files(folder, browser, run_id):
        try:
            edits += filter(None, [_read(file)])
        except BadInput as error:
            faults.append(str(error))
        if len(edits) == most:
            break
    return edits, faults


def write(folder: Path, browser: str, run_id: str | None, kept: Kept, before: Place | None) -> Place:
    """Keeps a draft where it was before, or in a new file: without ``before``, or if another page wrote there since.

    Keeps the nearest versions to undo and redo, as ``bounded`` says. Raises: BadInput.
    """
    with _writing:
        own = before is not None and _is_own(_file(folder, browser, run_id, before.name), before)
        file = _file(folder, browser, run_id, before.name if before is not None and own else secrets.token_hex(6))
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, _FORM.dump_json(replace(kept, draft=bounded(kept.draft))))
            place = _place_of(file)
        except (OSError, BadInput) as error:
            why, what = getattr(error, "strerror", None) or error, "plan" if run_id is None else "edit"
            raise BadInput(f"your {what} is kept only until the page is loaded again: {file}: {why}") from error
        forget_oldest(file.parent, MOST_FILES, MOST_BYTES_OF_ALL)
        return place


def remove(folder: Path, browser: str, run_id: str | None, name: str, own: Place | None = None) -> None:
    """Keeps a draft no longer. With ``own``, what another page wrote there since stays. Raises: BadInput."""
    file = _file(folder, browser, run_id, name)
    with _writing:
        if own is None or _is_own(file, own):
            try:
                file.unlink(missing_ok=True)
            except OSError as error:
                raise BadInput(f"your draft in {file} cannot be removed: {error.strerror or error}") from error


def bounded(draft: Draft, most_bytes: int = MOST_BYTES) -> Draft:
    """Returns the draft with the versions to undo and redo that can be kept: the nearest, in turn from both sides.

    Raises: BadInput if the plan as it is now is larger by itself.
    """
    left = most_bytes - 2 * _size(draft.now)  # the plan that it began with is of about that size
    if left < 0:
        raise BadInput(f"it is larger than {most_bytes >> 20} MiB")
    past, future = list(reversed(draft.past[-MOST_VERSIONS:])), list(draft.future[:MOST_VERSIONS])
    kept: list[list[Version]] = []
    for versions in (past, future):
        sizes = list(accumulate(map(_size, versions)))
        kept.append([version for version, size in zip(versions, sizes, strict=True) if size <= left])
        left -= max((size for size in sizes if size <= left), default=0)
    return replace(draft, past=tuple(reversed(kept[0])), future=tuple(kept[1]))


def forget_oldest(folder: Path, most_files: int, most_bytes: float = math.inf) -> None:
    """Removes the oldest files if there are too many, or too much together. The newest stays in any case."""
    total = 0
    for number, (_, old, size) in enumerate(sorted(_facts(folder.glob("*.json")), reverse=True)):
        total += size
        if number and (number >= most_files or total > most_bytes):
            with suppress(OSError):  # another page has just removed it
                old.unlink()


def _size(version: Version) -> int:
    return len(_VERSION.dump_json(version))


def _read(file: Path) -> tuple[Kept, Place] | None:
    try:
        place = _place_of(file)
        return _FORM.validate_json(file.read_bytes()), place
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"your draft in {file} cannot be read: {error.strerror or error}") from error
    except ValidationError as error:
        raise BadInput(f"your draft in {file} cannot be read: {error.errors()[0]['msg']}") from error


def _place_of(file: Path) -> Place:
    found = file.stat()
    return Place(file.stem.rpartition(".")[2], found.st_ino, found.st_mtime_ns)


def _is_own(file: Path, before: Place) -> bool:
    """Tells whether nobody wrote there since. A file that is gone was run or thrown away: its name is free."""
    try:
        return _place_of(file) == before
    except OSError:
        return True


def _file(folder: Path, browser: str, run_id: str | None, name: str) -> Path:
    if run_id is None:
        return folder / PLANS / f"{browser}.{name}.json"
    return folder / EDITS / f"{browser}.{file_part(run_id)}.{name}.json"


def _files(folder: Path, browser: str, run_id: str | None) -> list[Path]:
    pattern = _file(folder, browser, run_id, "*")
    return [file for _, file, _ in sorted(_facts(pattern.parent.glob(pattern.name)), reverse=True)]


def _facts(files: Iterable[Path]) -> Iterator[tuple[int, Path, int]]:
    for file in files:
        with suppress(OSError):  # another page has just removed it
            found = file.stat()
            yield found.st_mtime_ns, file, found.st_size


@dataclass(frozen=True)
class PageDraft:
    """This page's draft of a run's plan; with ``run_id`` None, of a plan of one's own."""

    run_id: str | None = None

    @property
    def parameter(self) -> str:
        return "plan" if self.run_id is None else "edit"

    @property
    def _key(self) -> str:
        return f"draft:{self.run_id or 'new'}"

    @property
    def now(self) -> Draft | None:
        found: Draft | None = st.session_state.get(self._key)
        return found

    def put(self, draft: Draft) -> None:
        st.session_state[self._key] = draft

    def drop(self) -> None:
        st.session_state.pop(self._key, None)

    def keep(self, draft: Draft, task: str = "", *, shown: bool = True) -> None:
        """Has the draft in the page's state and keeps it for the browser. ``note`` says why it cannot be kept."""
        self.put(draft)
        state, browser, kept = st.session_state, browser_id(), Kept(draft, task, shown)
        if browser is None or state.get(f"{self._key}:written") == kept:
            return
        state[f"{self._key}:written"], before = kept, state.get(f"{self._key}:place")
        try:
            place = write(current().settings.data_folder, browser, self.run_id, kept, before)
        except InspectorError as error:
            state[f"{self._key}:fault"] = str(error)
            return
        state.pop(f"{self._key}:fault", None)
        if before is not None and place.name != before.name:
            what = "plan" if self.run_id is None else "edit"
            more = "this page's address names it" if self.run_id is None else "the run's page offers both"
            state[f"{self._key}:note"] = (
                f"Another page of this browser writes the same {what}. Yours is kept apart from it from now on: {more}."
            )
        state[f"{self._key}:place"] = place
        self._name(place)

    def take_up(self, name: str | None) -> Kept | None:
        """Takes up what the browser keeps under this name; without one, the newest.

        Returns None if there is none, or if it cannot be read, which ``note`` says.
        """
        state, browser = st.session_state, browser_id()
        try:
            found = None if browser is None else read(current().settings.data_folder, browser, self.run_id, name)
        except InspectorError as error:
            state[f"{self._key}:note"] = str(error)
            return None
        if found is None:
            if name is not None and st.query_params.get(self.parameter) == name:
                st.query_params.pop(self.parameter)  # it was run or thrown away, or another browser has it
            return None
        kept, place = found
        self.put(kept.draft)
        state[f"{self._key}:place"], state[f"{self._key}:written"] = place, kept
        if name is not None:
            self._name(place)
        return kept

    def restore(self) -> bool:
        """Takes up the draft that the address names, if this page has none yet. Returns whether it did."""
        named = st.query_params.get(self.parameter)
        return named is not None and self.now is None and self.take_up(named) is not None

    def forget(self, name: str | None = None) -> None:
        """Keeps a draft no longer, because it was run or, with its ``name``, thrown away."""
        browser, own = browser_id(), st.session_state.get(f"{self._key}:place")
        gone = name or (None if own is None else own.name)
        if browser is None or gone is None:
            return
        with kept_fault(f"{self._key}:note"):
            remove(current().settings.data_folder, browser, self.run_id, gone, None if name else own)
        if own is not None and own.name == gone:
            for part in ("place", "written"):
                st.session_state.pop(f"{self._key}:{part}", None)
            if name is not None:
                self.drop()
        if st.query_params.get(self.parameter) == gone:
            st.query_params.pop(self.parameter)

    def note(self) -> None:
        """Says why the draft will not outlive a reload of the page; once, what else happened to what is kept."""
        state = st.session_state
        if message := state.get(f"{self._key}:fault") or state.pop(f"{self._key}:note", None):
            st.warning(inert(message), icon=":material/warning:")

    def _name(self, place: Place) -> None:
        if st.query_params.get(self.parameter) != place.name:
            st.query_params[self.parameter] = place.name


def offered(run_id: str) -> list[dict[str, str]]:
    """Returns the edits of this run that were not run: {"id", "words", "title": all that is changed}."""
    browser = browser_id()
    if browser is None:
        return []
    kept, faults = newest(current().settings.data_folder, browser, run_id, MOST_OFFERED)
    for fault in faults:
        said = f"{fault}. Mend or remove the file; your other edits are not touched."
        st.warning(inert(said), icon=":material/warning:")
    found = []
    for draft, place in ((each.draft, place) for each, place in kept if each.draft.changed):
        compared = compare(draft.original, draft.workflow, draft.origins)
        sentences = compared.sentences(draft.original, draft.workflow)
        said = sentences[0] if len(sentences) == 1 else plural(compared.count, "change")
        said = said if sentences else "an output given by a person, or the text of the plan"
        words = f"{said}, {ago(datetime.fromtimestamp(place.written_ns / 1e9, UTC))}"
        found.append({"id": place.name, "words": words, "title": "\n".join(sentences)})
    return found
