"""Answers what clients ask by runs: begins one or takes one up, and tells how it goes on, until the response ends."""

from collections.abc import AsyncIterator
from typing import Protocol

from conductor_core.chat.messages import Message
from conductor_core.engine.budgets import CostCap
from conductor_core.run.actor import Caller
from conductor_core.serving.asked import Asked
from conductor_core.serving.outcome import Outcome, Part


class Turn(Protocol):
    """One response that is being made."""

    run_id: str
    number: int
    trace_url: str

    def parts(self) -> AsyncIterator[Part]:
        """Yields how the response goes on; the last part is ``Ended``. It never raises for a run that fails.

        Closing it before its end cancels the run: the client has left.
        """
        ...

    async def outcome(self) -> Outcome:
        """Waits for the end. Cancelling it cancels the run."""
        ...


class Turns(Protocol):
    async def begin(self, asked: Asked, caller: Caller, excluded: tuple[str, ...], cap: CostCap | None) -> Turn:
        """Returns when the run's beginning, or the results of its tools, are durable. Raises: ApiError.

        ``excluded``: providers that the caller's key keeps out.
        """
        ...

    async def recorded(self, run_id: str, number: int) -> Outcome:
        """Returns a response from the record. Raises: ApiError 404."""
        ...

    async def input(self, run_id: str, number: int) -> tuple[str, tuple[Message, ...]]:
        """Returns what a response was asked with: what the client told as system, and its turns."""
        ...

    async def conversation(self, run_id: str, number: int) -> tuple[Message, ...]:
        """Returns all turns up to a response, and with it, for a request that goes on from there."""
        ...

    async def cancel(self, run_id: str, caller: Caller) -> None: ...
