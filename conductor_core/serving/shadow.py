"""The shadow: a share of the forwarded requests is run by the Conductor, too, after the answer has left.

Nothing of it reaches the client. All of it happens in a process of its own with a lower priority (``nice``), because a
plan that is written and a request that is relayed would share one interpreter. A local Conductor takes at most half of
the processor's cores, and the priority is not the lowest: whoever holds the database's lock must get to let it go. So a
shadow that crashes, hangs, or fills its memory ends with that process, and another one is started for the next request.
This process only hands it the ids of runs: the child reads what was asked from the record (``shadow_runs``).

Which requests are shadowed follows from the digests of their runs' ids, so it can be worked out again. The queue is
bounded; what comes while it is full is dropped and counted (``counts``), and so is what waits when the server stops: a
shadow is never taken up later, because its comparison would be one of yesterday's model with today's. The end of the
server does not wait for it. A run that the child has begun then is recorded as interrupted.
"""

import asyncio
import hashlib
import json
import logging
import os
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

from conductor_core.serving.admission import ended
from conductor_core.serving.counts import Count, Counts
from conductor_core.serving.forwarded import Forwarded
from conductor_core.serving.shadow_runs import How

log = logging.getLogger(__name__)

QUEUED = 256
"""Requests that wait for their shadow. Only their ids are held."""
HANG_S = 900.0
"""A shadow that takes longer is ended with its process; its own limit of time is shorter (``shadow_runs``)."""
_LOOK_S, _END_S = 2.0, 2.0
_MOST_STRANGE = 100
"""Lines that name no request, after which a process is ended: to read what it floods would take this one's time."""
_PAUSES_S = (0.5, 2.0, 8.0, 30.0, 60.0)
"""Before a process that ended by itself is started again."""
_COUNTED: Mapping[How, Count] = {"over budget": "shadow_over_budget", "failed": "shadow_failed"}


def is_sampled(run_id: str, share: float) -> bool:
    """Whether a forwarded request is shadowed. ``share``: 0 none, 1 all."""
    digest = hashlib.sha256(run_id.encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


class Shadow:
    """Hands forwarded requests to the process that shadows them. Belongs to one event loop."""

    def __init__(
        self, command: Sequence[str], asked: Mapping[str, Any], share: float, at_once: int, counts: Counts
    ) -> None:
        """``command``: starts the process. ``asked``: what it reads first, as a line of JSON."""
        self._command, self._asked, self._share, self._counts = command, asked, share, counts
        self._queue: deque[str] = deque()
        self._news = asyncio.Event()
        self._free = asyncio.Semaphore(at_once)
        self._under_way: dict[str, float] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._input: asyncio.StreamWriter | None = None
        self._failures = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._hearing: asyncio.Task[None] | None = None
        self._closed = False

    def offer(self, made: Forwarded) -> None:
        """Takes a request whose answer has left and is on record, if it is one to be shadowed. Returns at once."""
        if self._closed or made.question.asked is None or not is_sampled(made.run_id, self._share):
            return
        if len(self._queue) >= QUEUED:
            self._counts.add("shadow_queue_full")
            return
        self._queue.append(made.run_id)
        self._news.set()
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._hand_on()), asyncio.create_task(self._watch())]

    async def _hand_on(self) -> None:
        while True:
            while not self._queue:
                self._news.clear()
                await self._news.wait()
            await self._free.acquire()
            run_id = self._queue.popleft()
            try:
                given = self._input or await self._started()
                self._under_way[run_id] = monotonic()
                given.write(f"{run_id}\n".encode())
            except Exception as error:  # noqa: BLE001  whatever keeps it from starting, the server goes on
                log.error("the shadow cannot be started: %s", error)
                self._over(run_id, "failed")
                await self._pause()

    async def _started(self) -> asyncio.StreamWriter:
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // 2)), **os.environ},
            start_new_session=True,  # Ctrl-C at a terminal is for the server
        )
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the process has no pipes")
        process.stdin.write(json.dumps(self._asked).encode() + b"\n")
        self._process, self._input = process, process.stdin
        self._hearing = asyncio.create_task(self._hear(process, process.stdout))
        return process.stdin

    async def _hear(self, process: asyncio.subprocess.Process, said: asyncio.StreamReader) -> None:
        """Reads what became of each request, ``RUN HOW``, until the process ends."""
        strange = 0
        with suppress(ValueError):  # a line that never ends
            while strange < _MOST_STRANGE and (line := await said.readline()):
                run_id, _, how = line.decode("utf-8", "replace").strip().partition(" ")
                if run_id in self._under_way:
                    self._failures = 0
                    self._over(run_id, how)
                else:
                    strange += 1
        if self._input is not None:
            self._input.close()
        self._process = self._input = None
        lost = [*self._under_way]  # what comes from now on is the next process's
        with suppress(ProcessLookupError):
            process.kill()
        status = await process.wait()
        if not self._closed:
            log.error("the shadow's process ended by itself (%d), with %d requests", status, len(lost))
            await self._pause()
        for run_id in lost:
            self._over(run_id, "failed")

    async def _pause(self) -> None:
        pause_s = _PAUSES_S[min(self._failures, len(_PAUSES_S) - 1)]
        self._failures += 1
        await asyncio.sleep(pause_s)

    def _over(self, run_id: str, how: str) -> None:
        self._under_way.pop(run_id, None)
        self._free.release()
        count = next((each for words, each in _COUNTED.items() if words == how), None)
        if count is not None:
            self._counts.add(count)

    async def _watch(self) -> None:
        """Ends the process if one of its requests takes too long."""
        while True:
            await asyncio.sleep(_LOOK_S)
            late = [run_id for run_id, since_s in self._under_way.items() if monotonic() - since_s > HANG_S]
            if late and self._process is not None:
                log.error("the shadow of run %s hangs: its process is ended", late[0])
                with suppress(ProcessLookupError):
                    self._process.kill()

    async def aclose(self) -> None:
        """Ends the process at once, and counts what is left over."""
        self._closed = True
        if left := len(self._queue) + len(self._under_way):
            self._counts.add("shadow_left_over", left)
        await ended(*self._tasks)
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
        if self._hearing is not None:
            await asyncio.wait({self._hearing}, timeout=_END_S)
            await ended(self._hearing)
