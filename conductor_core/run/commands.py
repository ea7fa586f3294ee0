"""What may reach a run from outside, from any process: durable, and answered by an event of the run."""

from typing import Annotated, Literal, NamedTuple

from pydantic import Field, PositiveInt, TypeAdapter

from conductor_core.chat.messages import ToolResultPart
from conductor_core.errors import BadInput
from conductor_core.privacy import masking
from conductor_core.privacy.masking import environment_keys
from conductor_core.run.actor import Caused
from conductor_core.run.request import ClientRequest
from conductor_core.run.values import Path, ToldAnew
from conductor_core.workflow.edits import Origins
from conductor_core.workflow.model import Workflow

MOST_NOTE = 2000
"""Characters of a note."""


def note_for_record(text: str) -> str:
    """Returns a note as it is kept: without the keys that this process's environment holds.

    Raises: BadInput if it is too long.
    """
    if len(text) > MOST_NOTE:
        raise BadInput(f"the note has {len(text):,} characters; at most {MOST_NOTE:,} are kept")
    masking.remember(*environment_keys())
    return masking.known().text(text)


class Cancel(Caused):
    """Ends the run. Answered by ``run.cancelled``."""

    kind: Literal["cancel"] = "cancel"
    run_id: str


class Approve(Caused):
    """Grants the requests ``numbers``; None: all that are open when the command is heard.

    ``rest``: opens all gates of the run. ``after_edit``: id of a command to edit, without which nothing is granted.
    Answered by ``approval.granted``, or by ``command.refused``.
    """

    kind: Literal["approve"] = "approve"
    run_id: str
    numbers: tuple[PositiveInt, ...] | None = None
    rest: bool = False
    after_edit: int | None = None
    note: str = Field(default="", max_length=MOST_NOTE)


class Deny(Caused):
    """Denies the requests ``numbers``; None: all that are open. Answered by ``approval.denied``, or refused."""

    kind: Literal["deny"] = "deny"
    run_id: str
    numbers: tuple[PositiveInt, ...] | None = None
    note: str = Field(default="", max_length=MOST_NOTE)


class Edit(Caused):
    """Replaces the workflow of a round while something of the run waits. No step that has begun may differ.

    Answered by ``plan.edited``, or refused. ``origins``: as there. ``edited``: the workflow that the caller edited; it
    is refused if the round has another by then. None: whatever the round has.
    """

    kind: Literal["edit"] = "edit"
    run_id: str
    round: Path = ()
    workflow: Workflow
    origins: Origins | None = None
    edited: Workflow | None = None


class ToolResults(Caused):
    """What the client's tools brought: of all calls for which the run waits, each once.

    ``said``: what the client added. ``anew``: what it tells the run anew; None: nothing. ``client``: the request that
    brought them. Answered by ``tool.returned``, or refused.
    """

    kind: Literal["tool_results"] = "tool_results"
    run_id: str
    results: tuple[ToolResultPart, ...]
    said: str = ""
    anew: ToldAnew | None = None
    client: ClientRequest | None = None


Command = Cancel | Approve | Deny | Edit | ToolResults
COMMAND_KINDS = frozenset({"cancel", "approve", "deny", "edit", "tool_results"})

COMMAND: TypeAdapter[Command] = TypeAdapter(Annotated[Command, Field(discriminator="kind")])


class Unproven(Caused):
    """What lies among the commands to a run without the proof of a machine that may act. It is refused, whatever it
    asks; who sent it is not known, so ``actor`` and ``door`` are None.

    ``kind``: what it calls itself. ``reason``: what is wrong, in a sentence. Answered by ``command.refused``.
    """

    kind: str
    run_id: str
    reason: str


class SentCommand(NamedTuple):
    """A command on record. ``id`` counts over all runs, in the order in which they were sent."""

    id: int
    command: Command | Unproven
