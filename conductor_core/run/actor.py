"""Names who caused something, and through which door."""

import functools
import getpass
from typing import Literal, get_args

from pydantic import model_validator

from conductor_core.workflow.model import Frozen

Door = Literal["page", "cli", "api"]
"""The way in which a person or a program reached the inspector."""


class Actor(Frozen):
    """Who caused something.

    Attributes:
        kind: ``local`` is an unverified user of this machine, ``person`` and ``service`` have signed in, and
            ``program`` is the inspector itself.
        id: stable, for comparison. name: for people.
    """

    kind: Literal["local", "person", "service", "program"]
    id: str
    name: str

    @property
    def in_words(self) -> str:
        return f"{self.name} (local, not verified)" if self.kind == "local" else self.name


THE_PROGRAM = Actor(kind="program", id="conductor-inspector", name="the inspector")
"""The actor of what nobody asked for, for instance of a run's end because the program ends."""


@functools.cache
def local_actor() -> Actor:
    """Returns the user of this process, as the system named them when it was first asked. Nobody has signed in."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # no variable names the user, and the system's list of users lacks an entry
        name = "unknown user"
    return Actor(kind="local", id=name, name=name)


class Caller(Frozen):
    """An actor and their door. Each is None in older records."""

    actor: Actor | None = None
    door: Door | None = None

    @property
    def in_words(self) -> str:
        """Words for people, such as ``ada (local, not verified), page``, or ``somebody`` if neither is known."""
        return ", ".join(part for part in (self.actor and self.actor.in_words, self.door) if part) or "somebody"


def local_caller(door: Door) -> Caller:
    """Returns the user of this process, at ``door``."""
    return Caller(actor=local_actor(), door=door)


class Caused(Frozen):
    """Something that somebody caused. ``actor`` and ``door`` are None in older records."""

    actor: Actor | None = None
    door: Door | None = None

    @property
    def caller(self) -> Caller:
        return Caller(actor=self.actor, door=self.door)

    @model_validator(mode="before")
    @classmethod
    def _read_by(cls, fields: object) -> object:
        """Reads records up to vocabulary 3, which have one text ``by``: a door, a purpose, or a person."""
        if not isinstance(fields, dict) or "by" not in fields:
            return fields
        rest = {name: value for name, value in fields.items() if name != "by"}
        by = fields["by"]
        if by in get_args(Door):
            return rest | {"door": by}
        if "purpose" in cls.model_fields:
            return rest | {"door": "cli", "purpose": by}
        if by == "the program's end":
            return rest | {"actor": THE_PROGRAM}
        return rest | {"actor": {"kind": "local", "id": by, "name": by}}
