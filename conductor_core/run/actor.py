"""Names who caused something, and through which door.

What the system itself says of a process (its account, its host) is told apart from *claims*: what the environment says,
which whoever starts a process sets as they like.
"""

import functools
import os
import pwd
import socket
import sys
from pathlib import PurePath
from typing import Any, Literal

from pydantic import SerializerFunctionWrapHandler, model_serializer

from conductor_core.workflow.model import Frozen

Door = Literal["page", "cli", "api"]
"""The way in which a person or a program reached the inspector."""
_NAMES = ("LOGNAME", "USER", "LNAME", "USERNAME", "SUDO_USER")
"""Variables of the environment that name a user."""
_MOST_CLAIMED = 100
"""Characters of a claim."""


class Claim(Frozen):
    """What the variable ``source`` of the environment says of who it is, which nothing proves."""

    source: str
    says: str


class Process(Frozen):
    """The process that acted, as it was on ``host``. ``program``: the name of what was started, without its folder."""

    host: str
    pid: int
    program: str


class Actor(Frozen):
    """Who caused something.

    Attributes:
        kind: ``local`` is an account of this machine, and nobody has signed in; ``person`` and ``service`` have signed
            in, and ``program`` is the inspector itself.
        id: stable, for comparison. name: for people. Both are the account's in the list of users.
        uid: the process's own, as the system says. None: nobody proved the name, which is a claim.
        claims: what contradicts the name.
    """

    kind: Literal["local", "person", "service", "program"]
    id: str
    name: str
    uid: int | None = None
    process: Process | None = None
    claims: tuple[Claim, ...] = ()

    @property
    def in_words(self) -> str:
        if self.kind != "local":
            return self.name
        if self.uid is None:
            return f"{self.name} (claimed, not verified)"
        claimed = "".join(f"; claimed: {claim.source}={claim.says}" for claim in self.claims)
        return f"{self.name} (uid {self.uid}, not signed in{claimed})"

    @property
    def short(self) -> str:
        """The name alone, for a column; marked where it is a claim."""
        return f"{self.name} (claimed)" if self.kind == "local" and self.uid is None else self.name

    @property
    def account(self) -> "Actor":
        """The same, whatever process it was: for sums by person."""
        return self.model_copy(update={"process": None, "claims": ()})

    @model_serializer(mode="wrap")
    def _as_written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leaves out what is not known."""
        fields: dict[str, Any] = write(self)
        optional = {"uid": self.uid, "process": self.process, "claims": self.claims or None}
        return {name: value for name, value in fields.items() if name not in optional or optional[name] is not None}


THE_PROGRAM = Actor(kind="program", id="conductor-inspector", name="the inspector")
"""The actor of what nobody asked for, for instance of a run's end because the program ends."""


def local_actor() -> Actor:
    """Returns the account that runs this process, as the system's list of users names it. Nobody has signed in."""
    return _actor_of(os.getuid(), os.getpid())


@functools.cache
def _actor_of(uid: int, pid: int) -> Actor:
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:  # usual in a container
        name = f"uid {uid}"
    said = ((source, os.environ.get(source, "")) for source in _NAMES)
    claims = tuple(
        Claim(source=source, says=_plain(value)[:_MOST_CLAIMED]) for source, value in said if value not in ("", name)
    )
    process = Process(host=_plain(socket.gethostname()), pid=pid, program=_program())
    return Actor(kind="local", id=name, name=name, uid=uid, process=process, claims=claims)


def _program() -> str:
    """Returns the name of the program that was started; of a package its own name."""
    started = PurePath(sys.argv[0] if sys.argv else "")
    return _plain(started.parent.name if started.name == "__main__.py" else started.name) or "python"


def _plain(text: str) -> str:
    """Returns a text without bytes that were not UTF-8, which no record could hold."""
    return text.encode(errors="replace").decode()


class Caller(Frozen):
    """An actor and their door. Each is None where it is not known."""

    actor: Actor | None = None
    door: Door | None = None

    @property
    def in_words(self) -> str:
        """Words for people, such as ``ada (uid 1000, not signed in), page``, or ``somebody`` if neither is known."""
        return ", ".join(part for part in (self.actor and self.actor.in_words, self.door) if part) or "somebody"


def local_caller(door: Door) -> Caller:
    """Returns the user of this process, at ``door``."""
    return Caller(actor=local_actor(), door=door)


class Caused(Frozen):
    """Something that somebody caused."""

    actor: Actor | None = None
    door: Door | None = None

    @property
    def caller(self) -> Caller:
        return Caller(actor=self.actor, door=self.door)
