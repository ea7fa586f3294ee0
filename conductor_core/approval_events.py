"""Events of a run that waits for an approval: evidence of what was asked, decided, by whom and when."""

from typing import Literal

from pydantic import NonNegativeFloat, PositiveInt

from conductor_core.actor import Caused
from conductor_core.chat import Message, Usage
from conductor_core.event_base import RunEvent, Spent
from conductor_core.run_facts import Path

ApprovalOf = Literal["plan", "step", "conductor"]
"""What an approval admits: a plan to be carried out, a step to be called, or the Conductor to be asked."""


class ApprovalRequested(RunEvent):
    """A gate holds something back.

    Attributes:
        number: counts the requests of this run, from 1.
        path: the step; for ``plan`` and ``conductor`` the round, ``()`` for the first.
        rules: the gates that ask for it, as in ``run.created``.
        identity: digest of what would be carried out: of a step as in ``step.started``, else of the plan or the task.
        agent, messages: to whom what would be sent; empty for a plan.
        most: the highest number of tokens that it can use, by estimate. most_usd: its cost; None: unknown.
    """

    kind: Literal["approval.requested"] = "approval.requested"
    number: PositiveInt
    of: ApprovalOf
    path: Path
    rules: tuple[str, ...]
    identity: str
    agent: str = ""
    messages: tuple[Message, ...] = ()
    most: Usage = Usage(estimated=True)
    most_usd: float | None = None


class ApprovalGranted(RunEvent, Caused):
    """Somebody granted the requests ``numbers``.

    Attributes:
        rest: whether this opens all gates of the run from now on.
        command: id of the command that said so; None if the approval is taken over from another run.
        carried_from: the interrupted run in which the same was granted already.
    """

    kind: Literal["approval.granted"] = "approval.granted"
    numbers: tuple[PositiveInt, ...]
    rest: bool = False
    note: str = ""
    command: int | None = None
    carried_from: str | None = None


class ApprovalDenied(RunEvent, Caused):
    """Somebody denied the requests ``numbers``. No step begins any more, and the run ends denied."""

    kind: Literal["approval.denied"] = "approval.denied"
    numbers: tuple[PositiveInt, ...]
    note: str = ""
    command: int | None = None


class CommandRefused(RunEvent, Caused):
    """A command changed nothing. ``asked``: its kind. ``reason``: why, in a sentence."""

    kind: Literal["command.refused"] = "command.refused"
    command: int
    asked: str
    reason: str


class RunWaiting(RunEvent):
    """Nothing of the run can go on until somebody decides. No process holds it, and its clock stands."""

    kind: Literal["run.waiting"] = "run.waiting"
    waits_for: Literal["approval"] = "approval"


class RunDenied(Spent, Caused):
    """Ends a run whose approval was denied. ``error`` says by whom and why."""

    kind: Literal["run.denied"] = "run.denied"
    error: str = ""
    duration_ms: NonNegativeFloat = 0.0


ApprovalEvent = ApprovalRequested | ApprovalGranted | ApprovalDenied | CommandRefused | RunWaiting
