"""The run's pen, and the coalescing of streamed text."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from conductor_core.engine.recorder import DeltaBuffer, Piece, Recorder, closing
from conductor_core.errors import StoreError
from conductor_core.run.events import Event, PlanDelta, RunCancelled, RunCreated
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import begin
from conductor_core.run.values import PoolInfo
from tests.support.eventually import eventually_async
from tests.support.fakes import MemorySink


async def recorder_of(sink: MemorySink) -> Recorder:
    created = RunCreated(
        run_id="r",
        request=RunRequest(run_id="r", task="t"),
        conductor=None,
        pool=PoolInfo(name="p", workers=()),
        simulated=False,
        app_version="0",
    )
    await sink.append(created)
    return Recorder(sink, begin(created), time.monotonic())


def buffer_of(recorder: Recorder, interval_ms: float) -> DeltaBuffer:
    def to_events(pieces: Sequence[Piece]) -> list[Event]:
        return [PlanDelta(run_id="r", text=f"{'~' if reasoning else ''}{text}") for reasoning, text in pieces]

    return DeltaBuffer(recorder, interval_ms, to_events)


def texts(sink: MemorySink) -> list[str]:
    return [event.text for event in sink.events if isinstance(event, PlanDelta)]


class GatedSink(MemorySink):
    """Keeps each batch of deltas waiting until the gate opens."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.asked = 0

    def append(self, *events: Event) -> "asyncio.Future[None]":
        return (
            asyncio.ensure_future(self._gated(events)) if isinstance(events[0], PlanDelta) else super().append(*events)
        )

    async def _gated(self, events: Sequence[Event]) -> None:
        self.asked += 1
        await self.gate.wait()
        await super().append(*events)


async def turns(count: int = 10) -> None:
    """Lets the loop go round: enough for all that is due now."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(sink: MemorySink, wanted: list[str]) -> None:
    await eventually_async(lambda: texts(sink) == wanted)


async def test_the_first_piece_goes_out_at_once_and_the_rest_waits() -> None:
    sink = MemorySink()
    buffer = buffer_of(await recorder_of(sink), interval_ms=60_000)
    buffer.add("a")
    await turns()
    assert texts(sink) == ["a"]
    for piece in "bcd":
        buffer.add(piece)
    await turns()
    assert texts(sink) == ["a"]
    assert len(buffer.drain()) == 1


async def test_text_that_stalls_is_written_without_another_piece() -> None:
    sink = MemorySink()
    buffer = buffer_of(await recorder_of(sink), interval_ms=5)
    buffer.add("a")
    await turns()
    for piece in "bcd":
        buffer.add(piece)
    await until(sink, ["a", "bcd"])


async def test_the_text_of_many_streams_is_written_on_one_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    """One timer for all: each stream's own would be a thousand a second with a hundred streams."""
    sink, loop = MemorySink(), asyncio.get_running_loop()
    recorder = await recorder_of(sink)
    buffers = [buffer_of(recorder, interval_ms=100) for _ in range(50)]
    for buffer in buffers:
        buffer.add("first")
    await turns()
    assert texts(sink) == ["first"] * 50
    timers: list[float] = []
    call_at = loop.call_at

    def counted(when: float, *arguments: Any, **named: Any) -> asyncio.TimerHandle:
        timers.append(when)
        return call_at(when, *arguments, **named)

    monkeypatch.setattr(loop, "call_at", counted)
    for buffer in buffers:
        buffer.add("second")
    assert len(timers) <= 2
    await until(sink, ["first"] * 50 + ["second"] * 50)


async def test_text_that_was_taken_while_it_waited_leaves_the_next_its_turn() -> None:
    sink = MemorySink()
    buffer = buffer_of(await recorder_of(sink), interval_ms=5)
    buffer.add("a")
    await turns()
    buffer.add("b")
    assert len(buffer.drain()) == 1
    await eventually_async(lambda: not buffer._waits)
    buffer.add("c")
    await until(sink, ["a", "c"])


async def test_while_one_write_is_on_its_way_no_other_begins() -> None:
    sink = GatedSink()
    buffer = buffer_of(await recorder_of(sink), interval_ms=0)
    for piece in "abcdef":
        buffer.add(piece)
        await turns()
    assert sink.asked == 1
    sink.gate.set()
    await until(sink, ["a", "bcdef"])


async def test_reasoning_and_answer_stay_apart_and_in_order() -> None:
    sink = MemorySink()
    buffer = buffer_of(await recorder_of(sink), interval_ms=0)
    buffer.add("x", reasoning=True)
    buffer.add("y", reasoning=True)
    buffer.add("1")
    buffer.add("")
    buffer.add("z", reasoning=True)
    await turns()
    assert texts(sink) == ["~xy", "1", "~z"]


async def test_what_is_taken_is_not_written_again() -> None:
    sink = MemorySink()
    buffer = buffer_of(await recorder_of(sink), interval_ms=0)
    buffer.add("a")
    assert [event.model_dump()["text"] for event in buffer.drain()] == ["a"]
    assert buffer.drain() == []
    await turns()
    assert texts(sink) == []


async def test_a_failed_write_resolves_broken_and_nothing_more_is_scheduled() -> None:
    sink = MemorySink()
    recorder = await recorder_of(sink)
    buffer = buffer_of(recorder, interval_ms=0)
    sink.error = StoreError("full")
    buffer.add("a")
    assert await asyncio.wait_for(recorder.broken, 1) is sink.error
    await turns()
    assert texts(sink) == []


async def test_after_the_end_nothing_is_written() -> None:
    sink = MemorySink()
    recorder = await recorder_of(sink)
    recorder.defer([PlanDelta(run_id="r", text="late but in time")])
    await recorder.end(RunCancelled(run_id="r", door="page"))
    assert sink.kinds() == ["run.created", "plan.delta", "run.cancelled"]
    with pytest.raises(asyncio.CancelledError):
        await recorder.emit(PlanDelta(run_id="r", text="too late"))
    assert recorder.trace.root.raw == "late but in time"


async def test_a_generator_is_closed_when_it_is_left() -> None:
    closed = []

    async def numbers() -> AsyncGenerator[int]:
        try:
            yield 1
            yield 2
        finally:
            closed.append(True)

    async with closing(numbers()) as stream:
        async for _ in stream:
            break
    assert closed == [True]


async def test_after_a_write_that_failed_no_other_is_tried() -> None:
    """The recorder has the error and stops the run, whose end says what was not written."""
    sink = GatedSink()
    buffer = buffer_of(await recorder_of(sink), interval_ms=0)
    buffer.add("a")
    await turns()
    buffer.add("b")
    sink.error = StoreError("full")
    sink.gate.set()
    await turns(50)
    assert sink.asked == 1
    assert len(buffer.drain()) == 1
