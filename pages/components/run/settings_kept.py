"""The choices for the next run, kept in the data folder for each browser.

A reload, another tab and the next start find them. A browser that has chosen nothing begins with the last choices of
any browser, except for gates: nobody's run waits because of what somebody chose in another browser. Each choice is kept
with the setting that it replaced: if someone changes that setting, the setting wins.
"""

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Generic, TypeVar

from pydantic import Field, ValidationError

from conductor_core.chat.messages import OnIncomplete
from conductor_core.errors import BadInput
from conductor_core.workflow.model import Frozen

FILE, FOLDER = "choices.json", "choices"
MOST_BROWSERS = 500
MOST_STEPS, MOST_DEPTH = 32, 8  # the bounds of the settings
T = TypeVar("T")


class Choice(Frozen, Generic[T]):
    """``instead_of`` is what the settings said when the choice was made."""

    chosen: T
    instead_of: T


class Kept(Frozen):
    """What this browser chose. Where a choice is None, the settings hold.

    Attributes:
        excluded: by pool, the names of the workers that are left out; nobody of a pool that is not named.
        proposed: whether a larger Conductor was proposed, and accepted or declined.
    """

    conductor: Choice[str] | None = None
    pool: Choice[str] | None = None
    excluded: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    max_steps: Choice[Annotated[int, Field(ge=1, le=MOST_STEPS)]] | None = None
    max_depth: Choice[Annotated[int, Field(ge=0, le=MOST_DEPTH)]] | None = None
    max_tokens: Choice[Annotated[int, Field(ge=1)] | None] | None = None
    max_usd: Choice[Annotated[float, Field(ge=0, allow_inf_nan=False)] | None] | None = None
    on_incomplete: Choice[OnIncomplete | None] | None = None
    give_question: Choice[bool | None] | None = None
    gates: Choice[tuple[str, ...]] | None = None
    gate_above_usd: Choice[Annotated[float, Field(ge=0, allow_inf_nan=False)] | None] | None = None
    proposed: bool = False
    max_seconds: Choice[Annotated[float, Field(ge=1, allow_inf_nan=False)] | None] | None = None


def read(folder: Path, browser: str | None = None) -> Kept:
    """Returns what ``folder`` keeps for ``browser``, or the last choices of any, without gates, if it has made none.

    Raises: BadInput if the file is damaged or cannot be read.
    """
    own = _own(folder, browser)
    if own is None:
        return _read(folder / FILE)
    if own.exists():
        return _read(own)
    return _read(folder / FILE).model_copy(update={"gates": None, "gate_above_usd": None})


def _own(folder: Path, browser: str | None) -> Path | None:
    return None if browser is None else folder / FOLDER / f"{browser}.json"


def _read(file: Path) -> Kept:
    try:
        return Kept.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return Kept()
    except OSError as error:
        raise BadInput(f"the choices kept in {file} cannot be read: {error.strerror or error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        at = f" at {'.'.join(map(str, first['loc']))}" if first["loc"] else ""
        raise BadInput(
            f"the choices kept in {file} cannot be read{at} ({first['msg']}): those of the settings are used. Mend or "
            "remove the file; the next choice puts it aside"
        ) from error


def write(folder: Path, kept: Kept, browser: str | None = None) -> None:
    """Replaces both files whole: the browser's own, and that of the last choices of any.

    It puts a file aside that cannot be read. Raises: BadInput if one cannot be written.
    """
    own = _own(folder, browser)
    for file in filter(None, (folder / FILE, own)):
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            _put_aside_if_damaged(file)
            with tempfile.NamedTemporaryFile("w", dir=file.parent, prefix=FILE, delete=False, encoding="utf-8") as new:
                new.write(kept.model_dump_json(indent=1))
            os.replace(new.name, file)
        except OSError as error:
            raise BadInput(
                f"the choice holds until the page is loaded again: {file} cannot be written: {error}"
            ) from error
    if own is not None:
        _forget_oldest(own.parent)


def _put_aside_if_damaged(file: Path) -> None:
    try:
        _read(file)
    except BadInput:
        file.replace(file.with_name(f"{file.name}.unreadable"))


def _forget_oldest(folder: Path) -> None:
    """Forgets the browsers that chose longest ago, because browsers come and go."""
    changed_s: dict[Path, float] = {}
    for file in folder.glob("*.json"):
        with suppress(OSError):  # another page has just forgotten it
            changed_s[file] = file.stat().st_mtime
    for file in sorted(changed_s, key=changed_s.__getitem__)[:-MOST_BROWSERS]:
        with suppress(OSError):
            file.unlink()
