"""An endpoint over fakes: turns that answer as a test says, and keys in memory."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from conductor_core.chat.messages import Message
from conductor_core.engine.budgets import CostCap
from conductor_core.errors import UnknownRun
from conductor_core.run.actor import Caller
from conductor_core.run.request import ClientRequest, new_run_id
from conductor_core.run.service_key import ServiceKey
from conductor_core.run.trace import RunTrace
from conductor_core.serving.errors import ApiError
from conductor_core.serving.outcome import Began, Ended, Outcome, Part, Text
from conductor_core.serving.reading import Asked

KEY = "ci-0123456789abcdefghijklmnopqrstuvwxyz"
OTHER_KEY = "ci-zyxwvutsrqponmlkjihgfedcba9876543210"


class FakeKeys:
    """Keys by their texts."""

    def __init__(self) -> None:
        self.kept: dict[str, ServiceKey] = {}
        self.ever = False
        self.spent: dict[str, tuple[float, int]] = {}

    def add(self, text: str, name: str = "ada", **fields: Any) -> ServiceKey:
        self.ever = True
        made = ServiceKey(id=f"id-{name}", name=name, created_at_utc=datetime.now(UTC), **fields)
        self.kept[text] = made
        return made

    def revoke(self, text: str) -> None:
        del self.kept[text]

    def any(self) -> bool:
        return self.ever

    def find(self, key: str) -> ServiceKey | None:
        return self.kept.get(key)

    def current(self, key_id: str) -> ServiceKey | None:
        return next((key for key in self.kept.values() if key.id == key_id), None)

    def spent_today(self, key_id: str) -> tuple[float, int]:
        return self.spent.get(key_id, (0.0, 0))


@dataclass
class FakeTurn:
    """Answers at once with ``text``; with ``hangs`` it begins, and waits until it is told to ``go_on``."""

    run_id: str
    number: int
    asked: Asked
    caller: Caller
    hangs: bool = False
    text: str = "fine"
    error: ApiError | None = None
    raises: Exception | None = None
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    is_cancelled: bool = False
    is_revoked: bool = False

    def revoke(self) -> None:
        self.is_revoked = True

    def now(self, **fields: Any) -> Outcome:
        client = ClientRequest(api=self.asked.api, model=self.asked.model, store=self.asked.store)
        began = Outcome(
            self.run_id, self.number, client, datetime.now(UTC), "in_progress", "http://elsewhere/", simulated=True,
            actor=self.caller.actor,
        )  # fmt: skip
        return replace(began, **fields)

    def ended(self) -> Outcome:
        if self.error is not None:
            return self.now(status="failed", error=self.error)
        if self.is_cancelled:
            return self.now(status="cancelled")
        return self.now(status="completed", finish="stop", text=self.text)

    async def _wait(self) -> None:
        if self.hangs:
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:
                self.is_cancelled = True
                raise
        if self.raises is not None:
            raise self.raises

    async def parts(self) -> AsyncGenerator[list[Part]]:
        over = False
        try:
            yield [Began(self.now())]
            await self._wait()
            if self.error is None:
                yield [Text(self.text)]
            over = True
            yield [Ended(self.ended())]
        finally:
            self.is_cancelled = self.is_cancelled or not over

    async def outcome(self) -> Outcome:
        await self._wait()
        return self.ended()


class FakeTurns:
    """Attributes:
    made: the turns that were begun. how: fields of the next turns. fault: what ``begin`` raises.
    """

    def __init__(self) -> None:
        self.made: list[FakeTurn] = []
        self.caps: list[CostCap | None] = []
        self.excluded: list[tuple[str, ...]] = []
        self.how: dict[str, Any] = {}
        self.fault: Exception | None = None

    async def begin(self, asked: Asked, caller: Caller, excluded: tuple[str, ...], cap: CostCap | None) -> FakeTurn:
        if self.fault is not None:
            raise self.fault
        run_id = new_run_id()
        turn = FakeTurn(run_id, 0, asked, caller, **self.how)
        self.made.append(turn)
        self.caps.append(cap)
        self.excluded.append(excluded)
        return turn

    def input_of(self, run_id: str, number: int) -> tuple[Message, ...]:
        return next(turn for turn in self.made if turn.run_id == run_id).asked.turns

    def recorded(self, run_id: str, number: int) -> Outcome:
        for turn in self.made:
            if (turn.run_id, turn.number) == (run_id, number):
                return turn.now() if turn.hangs and not turn.go_on.is_set() else turn.ended()
        raise ApiError(404, "there is no such run")

    def run(self, run_id: str) -> RunTrace:
        raise UnknownRun(run_id)

    def outcomes(self, run_id: str) -> list[Outcome]:
        return [self.recorded(run_id, turn.number) for turn in self.made if turn.run_id == run_id]

    async def cancel(self, run_id: str, caller: Caller) -> None:
        for turn in self.made:
            if turn.run_id == run_id:
                turn.is_cancelled = True
                turn.go_on.set()


# Requests and streams of each API.

REQUESTS: Mapping[str, Mapping[str, Any]] = {
    "/v1/chat/completions": {"model": "fugu", "messages": [{"role": "user", "content": "Hello"}]},
    "/v1/responses": {"model": "fugu", "input": "Hello"},
    "/v1/messages": {"model": "fugu", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello"}]},
}
BEATS = {
    "/v1/chat/completions": ": the run goes on",
    "/v1/responses": "event: response.in_progress",
    "/v1/messages": "event: ping",
}
"""How each says that its run goes on."""


def text_of(document: Mapping[str, Any]) -> str:
    """The text of an answer in the shape of any API."""
    if "choices" in document:
        return str(document["choices"][0]["message"]["content"])
    if "output" in document:
        return str(document["output"][-1]["content"][0]["text"])
    return str(document["content"][0]["text"])
