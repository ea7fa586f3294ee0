"""One answer of a server, asked as a worker's step and as a Conductor's plan: both read the wire through one client."""

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from conductor_core.chat.messages import (
    Departure,
    FinishReason,
    Message,
    PlanFinished,
    PlanRequest,
    ReasoningDelta,
    TextDelta,
    TextWasReasoning,
    Usage,
    WorkerSpec,
)
from conductor_core.conductors.conductors_file import ConductorSpec
from conductor_core.conductors.remote import RemoteConductor
from conductor_core.settings import Settings
from conductor_core.workers.pool import open_worker
from tests.support.provider import ScriptedProvider

ASKED = (Message(role="system", content="Be brief."), Message(role="user", content="What is 6 x 7?"))
Who = Literal["worker", "conductor"]


@dataclass
class Got:
    """What arrived at a step or at a plan."""

    text: str
    reasoning: str
    finish_reason: FinishReason
    usage: Usage | None
    departures: tuple[Departure, ...]


async def ask(who: Who, provider: ScriptedProvider, **fields: Any) -> Got:
    return await (_ask_worker(provider, **fields) if who == "worker" else _ask_conductor(provider, **fields))


async def _ask_worker(provider: ScriptedProvider, **fields: Any) -> Got:
    worker = open_worker(provider.spec(**fields), Settings())
    text = reasoning = ""
    try:
        async for chunk in worker.answer(ASKED):
            if isinstance(chunk, TextDelta):
                text += chunk.text
            elif isinstance(chunk, ReasoningDelta):
                reasoning += chunk.text
            elif isinstance(chunk, TextWasReasoning):
                reasoning, text = reasoning + text, ""
            else:
                return Got(text, reasoning, chunk.finish_reason, chunk.usage, chunk.departures)
    finally:
        await worker.aclose()
    raise AssertionError("no end")


async def _ask_conductor(provider: ScriptedProvider, **fields: Any) -> Got:
    spec = ConductorSpec(name="c", model="scripted", base_url=provider.url, **fields)
    conductor = RemoteConductor("c", spec, Settings(constrained=False))
    agents = (WorkerSpec(name="w", provider="rehearsal", model="m"),)
    text = reasoning = ""
    try:
        async for piece in conductor.write(PlanRequest(task="What is 6 x 7?", agents=agents)):
            if isinstance(piece, TextDelta):
                text += piece.text
            elif isinstance(piece, ReasoningDelta):
                reasoning += piece.text
            elif isinstance(piece, PlanFinished):
                return Got(text, reasoning, piece.finish_reason, piece.usage, piece.departures)
    finally:
        await conductor.aclose()
    raise AssertionError("no end")


both = pytest.mark.parametrize("who", ["worker", "conductor"])


def parts(*texts: str, finish: Any = None) -> list[dict[str, Any]]:
    """Events, each with a text and perhaps with a finish reason."""
    return [{"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]} for text in texts]
