"""Workers, Conductors and a log in memory, scripted, for tests of whatever stands above them.

``ScriptedWorker`` answers by a function of the messages, unless replies are queued with ``then``. A reply is a ``str``
(a whole answer), a ``Reply`` (anything else) or an exception to raise.
"""

import asyncio
import hashlib
import json
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from conductor_core.chat.messages import (
    FREE,
    NO_TERMS,
    CallTerms,
    Chunk,
    ConductorInfo,
    Finished,
    FinishReason,
    LoadedImage,
    Message,
    PlanFinished,
    PlanRequest,
    Price,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    Usage,
    WorkerSpec,
    identity_of,
)
from conductor_core.engine.pools import Pool
from conductor_core.engine.runner import Engine
from conductor_core.errors import ContentMissing, RunHasEnded
from conductor_core.run.commands import Command, SentCommand
from conductor_core.run.events import Event, RunCreated
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import RunTrace, fold
from conductor_core.settings import Settings
from conductor_core.workflow.model import AccessList, Step, Workflow

USAGE = Usage(input_tokens=10, output_tokens=5)


@dataclass(frozen=True)
class Reply:
    """One reply of a scripted worker.

    Attributes:
        finish_reason: None: the stream ends without one, as a cut one does.
        error: raised after the text has been sent.
        wait_s: before the first piece; ``hang``: after the last piece, for ever.
        meets: it waits, before the first piece, until so many calls were on at the same time.
    """

    text: str = ""
    reasoning: str = ""
    finish_reason: FinishReason | None = "stop"
    usage: Usage | None = USAGE
    cost_usd: float | None = None
    error: Exception | None = None
    wait_s: float = 0.0
    hang: bool = False
    meets: int = 0
    tool_calls: tuple[ToolCall, ...] = ()


Script = str | Reply | Exception


def pure_answer(name: str) -> Callable[[Sequence[Message]], str]:
    """An answer that depends on nothing but the worker's name and the messages, and is unlike any other."""

    def answer(messages: Sequence[Message]) -> str:
        told = json.dumps([name, [[message.role, identity_of(message.content)] for message in messages]])
        return f"<{hashlib.sha256(told.encode()).hexdigest()[:20]}>"

    return answer


class ScriptedWorker:
    """A worker in memory.

    Attributes:
        calls: the messages of each call so far.
        closed: how many streams were left before they were whole.
        most_at_once: the largest number of calls that were on at the same time.
    """

    def __init__(self, name: str, answer: Callable[[Sequence[Message]], Script] | None = None, **fields: Any) -> None:
        known: dict[str, Any] = {
            "name": name,
            "provider": "openai",
            "model": f"{name}-model",
            "base_url": "http://127.0.0.1:9/v1",
            "usd_per_mtok": Price(input=1.0, output=10.0),
        }
        self._spec = WorkerSpec(**(known | fields))
        self._answer = answer or pure_answer(name)
        self._queue: deque[Script] = deque()
        self._at_once = 0
        self._met = asyncio.Event()
        self.calls: list[tuple[Message, ...]] = []
        self.terms: list[CallTerms] = []
        self.closed = 0
        self.most_at_once = 0
        self.released = False

    @property
    def spec(self) -> WorkerSpec:
        return self._spec

    def then(self, *scripts: Script) -> Self:
        """Queues replies, one a call, before the function is asked again."""
        self._queue.extend(scripts)
        return self

    async def answer(self, messages: Sequence[Message], terms: CallTerms = NO_TERMS) -> AsyncGenerator[Chunk]:
        self.calls.append(tuple(messages))
        self.terms.append(terms)
        script = self._queue.popleft() if self._queue else self._answer(messages)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        whole = False
        try:
            if isinstance(script, Exception):
                whole = True
                raise script
            reply = Reply(text=script) if isinstance(script, str) else script
            await asyncio.sleep(reply.wait_s)
            if reply.meets:
                if self.most_at_once >= reply.meets:
                    self._met.set()
                await self._met.wait()
            if reply.reasoning:
                yield ReasoningDelta(text=reply.reasoning)
            half = len(reply.text) // 2
            for piece in (reply.text[:half], reply.text[half:]):
                yield TextDelta(text=piece)
                await asyncio.sleep(0)
            if reply.error is not None:
                whole = True
                raise reply.error
            if reply.hang:
                await asyncio.Event().wait()
            whole = True
            if reply.finish_reason is not None:
                yield Finished(
                    finish_reason=reply.finish_reason,
                    usage=reply.usage,
                    cost_usd=reply.cost_usd,
                    model=self._spec.model,
                    tool_calls=reply.tool_calls,
                )
        finally:
            self._at_once -= 1
            self.closed += not whole

    async def aclose(self) -> None:
        self.released = True


class ScriptedConductor:
    """A Conductor that writes the given completions, one a request, the last one for ever.

    Attributes:
        requests: all requests so far.
        cost_usd: what its provider says each completion cost; None: nothing.
        closed: how many completions were left before they were whole.
    """

    def __init__(
        self,
        *completions: str | Exception,
        pause_s: float = 0.0,
        usd_per_mtok: Price | None = FREE,
        cost_usd: float | None = None,
        seated: bool = False,
    ) -> None:
        self._completions = deque(completions)
        self._pause_s = pause_s
        self._price = usd_per_mtok
        self._seated = seated
        self.cost_usd = cost_usd
        self.requests: list[PlanRequest] = []
        self.closed = 0
        self.released = False

    @property
    def info(self) -> ConductorInfo:
        return ConductorInfo(
            name="scripted", kind="remote", model="scripted-model", usd_per_mtok=self._price, seated=self._seated
        )

    def messages(self, request: PlanRequest) -> tuple[Message, ...]:
        parent = request.parent
        told = "" if parent is None else f"\nPlan:\n{parent.plan}\nLast response:\n{parent.last_response}"
        return (Message(role="user", content=f"Plan this: {request.task}{told}"),)

    async def write(self, request: PlanRequest) -> AsyncGenerator[TextDelta | PlanFinished]:
        self.requests.append(request)
        completion = self._completions[0] if len(self._completions) == 1 else self._completions.popleft()
        if isinstance(completion, Exception):
            raise completion
        whole = False
        try:
            for start in range(0, len(completion), 16):
                await asyncio.sleep(self._pause_s)
                yield TextDelta(text=completion[start : start + 16])
            whole = True
            usage = Usage(input_tokens=20, output_tokens=len(completion) // 4)
            yield PlanFinished(finish_reason="stop", usage=usage, cost_usd=self.cost_usd)
        finally:
            self.closed += not whole

    async def aclose(self) -> None:
        self.released = True


class MemorySink:
    """A log in memory.

    Attributes:
        events: all that is kept, in order.
        error: raised by every further append of an event of a kind in ``failing`` (all kinds if empty).
        delay_s: how long an append takes.
    """

    def __init__(self, delay_s: float = 0.0) -> None:
        self.events: list[Event] = []
        self.sent: list[SentCommand] = []
        self.contents: dict[str, tuple[str, bytes]] = {}
        self._listeners: list[Callable[[SentCommand], None]] = []
        self.error: Exception | None = None
        self.failing: frozenset[str] = frozenset()
        self.delay_s = delay_s

    def append(self, *events: Event) -> "asyncio.Future[None]":
        loop = asyncio.get_running_loop()
        kept: asyncio.Future[None] = loop.create_future()
        error = self._keep(events)
        if error is not None:
            kept.set_exception(error)
            return kept
        if self.delay_s:
            return loop.create_task(asyncio.sleep(self.delay_s))
        kept.set_result(None)
        return kept

    def send(self, command: Command) -> int:
        trace = self.read(command.run_id) if any(event.run_id == command.run_id for event in self.events) else None
        if trace is None or trace.ended:
            raise RunHasEnded(command.run_id)
        self.sent.append(SentCommand(len(self.sent) + 1, command))
        for listener in self._listeners:
            listener(self.sent[-1])
        return len(self.sent)

    def commands(self, run_id: str, after: int = 0) -> list[SentCommand]:
        return [sent for sent in self.sent if sent.command.run_id == run_id and sent.id > after]

    def unproven(self, run_id: str) -> list[str]:
        return []

    def keep_images(self, *images: LoadedImage) -> None:
        self.contents |= {image.sha256: (image.media_type, image.data) for image in images}

    def content(self, sha256: str) -> tuple[str, bytes]:
        if sha256 not in self.contents:
            raise ContentMissing(f"no content {sha256}")
        return self.contents[sha256]

    def sent_to_waiting(self) -> list[str]:
        run_ids = dict.fromkeys(sent.command.run_id for sent in self.sent)
        return [run_id for run_id in run_ids if self.read(run_id).status == "waiting"]

    def watch(self, listener: Callable[[SentCommand], None]) -> "MemorySink":
        self._listeners.append(listener)
        return self

    def close(self) -> None:
        self._listeners.clear()

    def created(self, run_id: str) -> RunCreated:
        return next(event for event in self.events if isinstance(event, RunCreated) and event.run_id == run_id)

    def read(self, run_id: str) -> RunTrace:
        return fold(event for event in self.events if event.run_id == run_id)

    def append_and_wait(self, *events: Event) -> None:
        error = self._keep(events)
        if error is not None:
            raise error
        time.sleep(self.delay_s)

    def _keep(self, events: Sequence[Event]) -> Exception | None:
        kinds = {event.kind for event in events}
        if self.error is not None and (not self.failing or kinds & self.failing):
            return self.error
        self.events.extend(events)
        return None

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


def pool_of(*workers: ScriptedWorker, name: str = "scripted", seed: int = 0) -> Pool:
    return Pool(name=name, workers={worker.spec.name: worker for worker in workers}, seed=seed)


def workflow_of(*steps: tuple[str, str, AccessList]) -> Workflow:
    """A workflow from (agent, instruction, access list)."""
    return Workflow(
        steps=tuple(
            Step(agent=agent, instruction=instruction, access_list=access) for agent, instruction, access in steps
        )
    )


def lists_of(workflow: Workflow, agents: Iterable[str]) -> str:
    """A Conductor's completion that says ``workflow``."""
    from conductor_core.workflow.parser import to_lists

    return f"Let me think.\n\n{to_lists(workflow, tuple(agents))}"


def quick_settings(**fields: Any) -> Settings:
    """Settings under which nothing waits: no pause before a retry, deltas at once."""
    known: dict[str, Any] = {"retry_initial_s": 0.0, "retry_max_s": 0.0, "delta_interval_ms": 0.0}
    return Settings(**(known | fields))


async def run(
    *workers: ScriptedWorker,
    workflow: Workflow | None = None,
    conductor: ScriptedConductor | None = None,
    sink: MemorySink | None = None,
    settings: Settings | None = None,
    reuse_from: RunTrace | None = None,
    before: Sequence[RunTrace] = (),
    **request: Any,
) -> tuple[RunTrace, MemorySink]:
    """One run in memory; its trace must be the fold of its events."""
    sink = MemorySink() if sink is None else sink
    earlier = {each.run_id: each for each in (*([reuse_from] if reuse_from else []), *before)}
    if reuse_from is not None:
        request |= {"parent_run_id": reuse_from.run_id, "taken_up": tuple(each.run_id for each in before)}
    asked = RunRequest(**({"task": "the task", "workflow": workflow} | request))
    engine = Engine(sink, settings or quick_settings(), earlier.__getitem__, sink.content)
    trace = await engine.run(asked, conductor, pool_of(*workers))
    assert fold(event for event in sink.events if event.run_id == asked.run_id) == trace
    return trace, sink
