"""What may reach a run from outside, from any process: durable, and answered by an event of the run."""

from typing import Literal, NamedTuple

from conductor_core.actor import Caused


class Cancel(Caused):
    """Ends the run. Answered by ``run.cancelled``."""

    kind: Literal["cancel"] = "cancel"
    run_id: str


Command = Cancel


class SentCommand(NamedTuple):
    """A command on record. ``id`` counts over all runs, in the order in which they were sent."""

    id: int
    command: Command
