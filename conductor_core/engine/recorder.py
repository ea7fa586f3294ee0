"""Writes the events of a run to the log and folds them into its trace, in one order."""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TypedDict, TypeVar
from weakref import WeakKeyDictionary

from conductor_core.chat.progress import Notify, Progress
from conductor_core.run import trace as tr
from conductor_core.run.events import Event, EventSink
from conductor_core.run.trace import RunTrace

T = TypeVar("T")

Piece = tuple[bool, str]
"""Streamed text that arrived together: whether it is reasoning, and the text."""


class At(TypedDict):
    """What every event begins with."""

    run_id: str
    at_ms: float


class NoLog:
    """An ``EventSink`` that keeps nothing, for runs that nobody will look at."""

    def append(self, *_: Event) -> "asyncio.Future[None]":
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        kept.set_result(None)
        return kept

    def append_and_wait(self, *_: Event) -> None:
        pass


@asynccontextmanager
async def closing(stream: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """Closes a generator on leaving the block, not when it is collected: that closes the provider's connection."""
    try:
        yield stream
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()


class Recorder:
    """Writes the events of one run that has begun, and keeps its trace: the fold of all its events so far.

    The first failure of the log ends the run and resolves ``broken`` with the error. Only the event that says so may
    follow.
    """

    def __init__(self, sink: EventSink, trace: RunTrace, epoch_s: float) -> None:
        """
        Args:
            trace: the run as it is recorded.
            epoch_s: when its clock showed zero, or would have, had it not stood, by ``time.monotonic``.
        """
        self._sink = sink
        self._epoch_s = epoch_s
        self._collected: list[Event] | None = None
        self._closed = False
        self._deferred: list[Event] = []
        self._last_writing: asyncio.Future[None] | None = None
        self.trace = trace
        self.broken: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    @property
    def run_id(self) -> str:
        return self.trace.run_id

    @property
    def closed(self) -> bool:
        """Whether the run has its end, or waits: then nothing may follow from here."""
        return self._closed

    def now_ms(self) -> float:
        """Returns the monotonic milliseconds that the run has run. The clock stops while it waits."""
        return round((time.monotonic() - self._epoch_s) * 1000, 3)

    def at(self, at_ms: float | None = None) -> At:
        """Returns the beginning of an event that happens at ``at_ms``, by default now."""
        return {"run_id": self.run_id, "at_ms": self.now_ms() if at_ms is None else at_ms}

    def send(self, *events: Event) -> "asyncio.Future[None]":
        """Folds ``events`` and hands them to the log. Resolved when they are durable. Raises, awaited: StoreError.

        It awaits nothing before it calls the log, so the trace has the order of the log. Nobody has to await it: the
        next ``emit`` and ``end`` return only when these events are durable, too.
        """
        if self._closed:
            # A straggler of a run whose end is written: the record of a run stops there.
            raise asyncio.CancelledError
        return self._send(events)

    async def together(self, send: Callable[[], None]) -> None:
        """Writes all events that ``send`` sends in one transaction: all are kept, or none. Raises: StoreError."""
        self._collected = []
        try:
            send()
        finally:
            events, self._collected = self._collected, None
        writing = self._sink.append(*events)
        writing.add_done_callback(self._written)
        await writing

    async def emit(self, *events: Event) -> None:
        """Returns when ``events``, and all that was sent before them, are durable. Raises: StoreError."""
        await self.send(*events)
        self._require_whole()

    def progress(self, to_event: Callable[[Progress], Event]) -> Notify:
        """Returns a function through which a model reports its progress. It ignores reports after the run's end."""

        def notify(progress: Progress) -> None:
            with suppress(asyncio.CancelledError):
                self.send(to_event(progress))

        return notify

    def defer(self, events: Sequence[Event]) -> None:
        """Keeps ``events`` for the batch of the final event: the last text of a cancelled step."""
        self._deferred.extend(events)

    async def end(self, event: Event) -> None:
        """Writes the final event and refuses any later one. Raises: StoreError.

        A run is only said to have ended well once all that it sent is durable.
        """
        self._closed = True
        if self._last_writing is not None and not self.broken.done():
            await asyncio.wait({self._last_writing})
            self._require_whole()
        events = [*self._deferred, event]
        self._deferred.clear()
        await self._send(events)

    def _require_whole(self) -> None:
        """Raises what the log raised for an earlier event. The log answers in the order in which it was called."""
        if self.broken.done():
            raise self.broken.result()

    def _send(self, events: Sequence[Event]) -> "asyncio.Future[None]":
        for event in events:
            tr.apply(self.trace, event)
        if self._collected is not None:
            self._collected += events
            return asyncio.get_running_loop().create_future()  # ``together`` awaits the writing
        writing = self._last_writing = self._sink.append(*events)
        if writing.done():
            self._written(writing)
        else:
            writing.add_done_callback(self._written)
        return writing

    def _written(self, writing: "asyncio.Future[None]") -> None:
        error = None if writing.cancelled() else writing.exception()
        if isinstance(error, Exception) and not self.broken.done():
            self.broken.set_result(error)


BEAT_S = 0.01
"""Streamed text that is due is written on beats, all streams' of a loop together, so at most so much later."""

_beats: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, list[Callable[[], None]]]] = WeakKeyDictionary()
"""What each loop wakes on which beat. Hundreds of streams thus cost it one timer a beat, and the log one commit."""


def _on_beat(loop: asyncio.AbstractEventLoop, due_s: float, wake: Callable[[], None]) -> None:
    """Calls ``wake`` on the first beat after ``due_s``, or at once if that has passed."""
    if due_s <= loop.time():
        loop.call_soon(wake)
        return
    beat, waiting = math.ceil(due_s / BEAT_S), _beats.setdefault(loop, {})
    if beat in waiting:
        waiting[beat].append(wake)
    else:
        waiting[beat] = [wake]
        loop.call_at(beat * BEAT_S, _wake_all, loop, beat)


def _wake_all(loop: asyncio.AbstractEventLoop, beat: int) -> None:
    for wake in _beats[loop].pop(beat):
        loop.call_soon(wake)


class DeltaBuffer:
    """Coalesces streamed text: at most one batch of events per interval, written while the stream is read on.

    The first piece after a pause is written at once. At most one write is under way; text that arrives meanwhile waits
    for the next.
    """

    def __init__(
        self, recorder: Recorder, interval_ms: float, to_events: Callable[[Sequence[Piece]], list[Event]]
    ) -> None:
        self._recorder = recorder
        self._interval_s = interval_ms / 1000
        self._to_events = to_events
        self._loop = asyncio.get_running_loop()
        self._pieces: list[tuple[bool, list[str]]] = []
        self._waits = False
        self._writing: asyncio.Future[None] | None = None
        self._last_s = float("-inf")

    def add(self, text: str, *, reasoning: bool = False) -> None:
        if not text:
            return
        if self._pieces and self._pieces[-1][0] is reasoning:
            self._pieces[-1][1].append(text)
        else:
            self._pieces.append((reasoning, [text]))
        self._schedule()

    def drain(self) -> list[Event]:
        """Returns the events of all text not yet written. The caller writes them."""
        if not self._pieces:
            return []
        pieces = [(reasoning, "".join(parts)) for reasoning, parts in self._pieces]
        self._pieces.clear()
        return self._to_events(pieces)

    def _schedule(self) -> None:
        if self._waits:
            return
        self._waits = True
        if self._writing is None or self._writing.done():
            _on_beat(self._loop, self._last_s + self._interval_s, self._write)
        else:
            self._writing.add_done_callback(self._written)

    def _write(self) -> None:
        self._waits = False
        if not self._pieces:
            return  # They were taken meanwhile.
        self._last_s = self._loop.time()
        if events := self.drain():
            with suppress(asyncio.CancelledError):  # the end of the run is written
                self._writing = self._recorder.send(*events)

    def _written(self, writing: "asyncio.Future[None]") -> None:
        self._waits = False
        if writing.cancelled() or writing.exception() is not None:
            return  # The recorder has the error and stops the run.
        if self._pieces:
            self._schedule()
