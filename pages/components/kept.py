"""What was chosen for the next run, as it is kept in the data folder: a reload, another tab and the next start find it.

A choice is kept beside the setting that it replaced. Once that setting is another, it was changed on purpose and wins.
"""

import os
import tempfile
from pathlib import Path
from typing import Annotated, Generic, TypeVar

from pydantic import Field, ValidationError

from conductor_core.errors import BadInput
from conductor_core.workflow.model import Frozen

FILE = "choices.json"
MOST_STEPS, MOST_DEPTH = 32, 8
"""As in the settings, which have the same bounds."""
T = TypeVar("T")


class Choice(Frozen, Generic[T]):
    """``instead_of``: what the settings said when it was made."""

    chosen: T
    instead_of: T


class Kept(Frozen):
    """None, or a pool that is not named: as the settings say, and nobody left out.

    Attributes:
        excluded: by pool, the names of the workers that are left out.
        proposed: whether a larger Conductor was proposed, and taken or sent away.
    """

    conductor: Choice[str] | None = None
    pool: Choice[str] | None = None
    excluded: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    max_steps: Choice[Annotated[int, Field(ge=1, le=MOST_STEPS)]] | None = None
    max_depth: Choice[Annotated[int, Field(ge=0, le=MOST_DEPTH)]] | None = None
    max_tokens: Choice[Annotated[int, Field(ge=1)] | None] | None = None
    max_usd: Choice[Annotated[float, Field(ge=0, allow_inf_nan=False)] | None] | None = None
    proposed: bool = False
    max_seconds: Choice[Annotated[float, Field(ge=1, allow_inf_nan=False)] | None] | None = None


def read(folder: Path) -> Kept:
    """What is kept in ``folder``. Raises: BadInput if the file is damaged or cannot be read."""
    file = folder / FILE
    try:
        return Kept.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return Kept()
    except OSError as error:
        raise BadInput(f"the choices kept in {file} cannot be read: {error.strerror or error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        at = f" at {where}" if where else ""
        raise BadInput(
            f"the choices kept in {file} cannot be read{at} ({first['msg']}): those of the settings are used. Mend or "
            "remove the file; the next choice puts it aside"
        ) from error


def write(folder: Path, kept: Kept) -> None:
    """Replaces the file whole; one that cannot be read is put aside. Raises: BadInput if it cannot be written."""
    file = folder / FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _put_aside_if_damaged(folder)
        with tempfile.NamedTemporaryFile("w", dir=folder, prefix=FILE, delete=False, encoding="utf-8") as new:
            new.write(kept.model_dump_json(indent=1))
        os.replace(new.name, file)
    except OSError as error:
        raise BadInput(f"the choice holds until the page is loaded again: {file} cannot be written: {error}") from error


def _put_aside_if_damaged(folder: Path) -> None:
    try:
        read(folder)
    except BadInput:
        (folder / FILE).replace(folder / f"{FILE}.unreadable")
