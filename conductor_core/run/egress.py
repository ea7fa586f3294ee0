"""Reads from a run's events which server was sent what: by each call of a worker or of the Conductor, and as traces.

A call counts from the event that was durable before a byte left. So a call that failed counts as received: its record
cannot say how much of it arrived. After a failed call, an event announces the next one, perhaps after a wait. That call
is ``announced`` until an event shows that it began.

OpenTelemetry traces of the run count as one call to each server that they went to, from the event that was durable
before the first of them left.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from conductor_core.chat.messages import ConductorInfo, Message, ToolCallPart, Usage
from conductor_core.providers.servers import provider_of, sent_beside, server_of
from conductor_core.run import events as ev
from conductor_core.run.events import Event
from conductor_core.run.values import Path, PoolInfo, ToolTurn
from conductor_core.workflow.model import CONDUCTOR_AGENT

How = Literal["first", "again", "more_tokens", "fallback"]
"""Why a call was made: as the first of its step or plan, or after the one before it (``StepRetried.then``)."""


_Of = Literal["step", "plan", "tool", "traces"]
_Place = tuple[_Of, Path]
_Ended = ev.PlanCall | ev.StepRetried | ev.ToolCalled | ev.StepCompleted | ev.StepFailed


@dataclass(slots=True)
class Call:
    """One call.

    Attributes:
        event: number, among the events given, of the event that holds the messages; of traces, of the one that names
            their server.
        at_utc: when the call began, or when the one before it ended.
        of: what it was for. path: of the step; of a plan, that of its round; of traces empty.
        provider: of the pool; ``unknown`` if the pool does not name the worker. host: empty for this process.
        ended: ``running`` while no event tells its end; ``broken off`` if the run ended without one; ``failed``,
            ``rejected`` (a plan that could not be used), or how the answer ended; ``announced``: no event shows that it
            was made.
        cost_usd: None if the price is unknown, or if it broke off.
        beside: what was sent beside the messages, in texts: of a call its path, model and parameters; of traces all
            that they held. Empty for this process.
    """

    event: int
    at_utc: datetime
    of: _Of
    path: Path
    agent: str
    provider: str
    host: str
    simulated: bool
    messages: tuple[Message, ...]
    how: How = "first"
    ended: str = "running"
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = None
    beside: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        return (*(message.text for message in self.messages), *self.beside)


CLIENT = "client"
"""The provider, and the host, of tools that the client of the endpoint carries out; their agent is the tool."""
TRACES = "OpenTelemetry"
"""The agent of traces; their provider is the same in small letters."""


def calls(events: Iterable[Event]) -> list[Call]:
    """Returns the calls of a run in the order in which they began.

    Without the events of streamed text, a call that was broken off may count as announced only, and traces lack what
    models thought.
    """
    reading: _Reading | None = None
    for number, event in enumerate(events):
        if isinstance(event, ev.RunCreated):
            reading = _Reading(event)
        elif reading is not None:
            reading.read(number, event)
    return [] if reading is None else reading.whole()


class _Reading:
    """The calls of one run as far as it has been read."""

    def __init__(self, created: ev.RunCreated) -> None:
        self._servers = servers_by_agent(created.pool, created.conductor)
        self._beside = _beside(created.pool, created.conductor)
        self._open: dict[_Place, Call] = {}
        self._wait: dict[Path, tuple[Call, ev.ToolCalled]] = {}
        self._own: dict[Path, str] = {}
        self._traces: dict[ev.TracesTo, Call] = {}
        self._told = _Told(created)
        self.found: list[Call] = []
        self._trace(0, created)

    def whole(self) -> list[Call]:
        """Returns the calls. Traces hold the whole run, whichever process sent them."""
        for to, call in self._traces.items():
            call.beside = self._told.texts(contents=to.contents)
        return self.found

    def _trace(self, number: int, event: ev.RunCreated | ev.RunTaken) -> None:
        for to in event.traces:
            if to in self._traces:
                continue
            call = Call(number, event.at_utc, "traces", (), TRACES, TRACES.lower(), to.host, False, ())
            self._traces[to] = call
            self.found.append(call)

    def read(self, number: int, event: Event) -> None:
        self._told.read(event)
        match event:
            case ev.RunTaken():
                self._trace(number, event)
            case ev.RunCompleted() | ev.RunFailed() | ev.RunCancelled() | ev.RunInterrupted() | ev.RunDenied():
                for call in self._open.values():
                    call.ended = "broken off" if call.ended == "running" else call.ended
                self._open.clear()
                for call in self._traces.values():
                    call.ended = "failed" if event.traces_fault else "completed"
            case ev.PlanStarted() | ev.StepStarted() if event.messages:
                self._start(number, event)
            # Waiting for a server that loads its model is no new call.
            case ev.PlanDelta() | ev.PlanProgress() | ev.PlanRetried(loading=True):
                self._began("plan", event.round)
            case ev.StepDelta() | ev.StepProgress() | ev.StepRetried(loading=True, then="again"):
                self._began("step", event.path)
            case ev.PlanRetried() | ev.StepRetried():
                self._retry(event)
            case ev.PlanCompleted() | ev.PlanRejected():
                ended = "completed" if isinstance(event, ev.PlanCompleted) else "rejected"
                self._end("plan", event.round, ended, event)
            case ev.ToolCalled():
                self._call_tools(number, event)
            case ev.ToolReturned():
                self._return(number, event)
            case ev.StepCompleted() | ev.StepFailed():
                ended = event.ending if isinstance(event, ev.StepCompleted) else "failed"
                self._end("step", event.path, ended, event)

    def _start(self, number: int, event: ev.PlanStarted | ev.StepStarted) -> None:
        if isinstance(event, ev.StepStarted):
            self._own[event.path] = event.agent
            self._begin(number, event.at_utc, ("step", event.path), event.agent, event.messages, "first")
            return
        call = self._open.get(("plan", event.round))
        if call is not None and call.ended == "announced":
            self.found.remove(call)  # this very call
        again: How = "first" if call is None else call.how
        self._begin(number, event.at_utc, ("plan", event.round), CONDUCTOR_AGENT, event.messages, again)

    def _retry(self, event: ev.PlanRetried | ev.StepRetried) -> None:
        if isinstance(event, ev.PlanRetried):
            if (call := self._end("plan", event.round, "failed", event)) is not None:
                self._announce(call, event, call.agent, "again")
            return
        answered = event.error_code.startswith("Answer")  # an incomplete answer, which is no failed call
        ended = event.error_code.removeprefix("Answer").lower() if answered else "failed"
        call = self._end("step", event.path, ended, event)
        if call is not None and event.then != "kept":
            agent = event.then_agent or self._own.get(event.path, call.agent)
            self._announce(call, event, agent, event.then)

    def _call_tools(self, number: int, event: ev.ToolCalled) -> None:
        """The call ended, and what it gives the client's tools leaves for the client."""
        if (call := self._end("step", event.path, "called tools", event)) is None:
            return
        self._wait[event.path] = call, event
        for each in event.calls:
            given = ToolCallPart(call_id=each.call_id, name=each.name, arguments=each.arguments)
            said = (Message(role="assistant", content=(given,)),)
            tool = Call(number, event.at_utc, "tool", event.path, each.name, CLIENT, CLIENT, False, said)
            tool.ended, tool.cost_usd = "completed", 0.0
            self.found.append(tool)

    def _return(self, number: int, event: ev.ToolReturned) -> None:
        """Announces the next call of each step that waited. That it was made, another event shows."""
        results = {result.call_id: result for result in event.results}
        for path, (call, called) in self._wait.items():
            brought = tuple(results[each.call_id] for each in called.calls if each.call_id in results)
            turn = ToolTurn(text=called.text, calls=called.calls, results=brought, said=event.said)
            before = call.messages if event.anew is None else event.anew.messages(call.messages)
            if len(brought) != len(called.calls):
                continue
            again = self._begin(number, event.at_utc, ("step", path), call.agent, turn.messages, "again")
            again.messages = (*before, *turn.messages)
            again.ended = "announced"
        self._wait.clear()

    def _begin(
        self, number: int, at_utc: datetime, place: _Place, agent: str, messages: tuple[Message, ...], how: How
    ) -> Call:
        provider, host, simulated = self._servers.get(agent, ("unknown", "", False))
        call = Call(number, at_utc, *place, agent, provider, host, simulated, messages, how)
        call.beside = self._beside.get(agent, ())
        self._open[place] = call
        self.found.append(call)
        return call

    def _announce(self, last: Call, event: ev.StepRetried | ev.PlanRetried, agent: str, how: How) -> None:
        messages = last.messages
        if isinstance(event, ev.StepRetried) and event.correction:
            said = Message(role="assistant", content=event.partial), Message(role="user", content=event.correction)
            messages = (*messages, *said)
        call = self._begin(last.event, event.at_utc, (last.of, last.path), agent, messages, how)
        call.ended = "announced"

    def _began(self, of: _Of, path: Path) -> None:
        if (call := self._open.get((of, path))) is not None:
            call.ended = "running"

    def _end(self, of: _Of, path: Path, ended: str, event: _Ended) -> Call | None:
        call = self._open.pop((of, path), None)
        if call is not None:
            call.ended, call.usage, call.cost_usd = ended, event.usage, event.cost_usd
        return call


def servers_by_agent(pool: PoolInfo, conductor: ConductorInfo | None) -> dict[str, tuple[str, str, bool]]:
    """Returns provider, host and whether it is simulated, by the name of the agent."""
    known = {spec.name: (provider_of(spec), server_of(spec), spec.simulated) for spec in pool.workers}
    if conductor is not None:
        known[CONDUCTOR_AGENT] = provider_of(conductor), server_of(conductor), False
    return known


def _beside(pool: PoolInfo, conductor: ConductorInfo | None) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {spec.name: (sent_beside(spec),) for spec in pool.workers if server_of(spec)}
    if conductor is not None and server_of(conductor):
        found[CONDUCTOR_AGENT] = (sent_beside(conductor),)
    return found


class _Told:
    """What traces of a run hold, as ``conductor_core.export.otel`` makes them: names, and the contents apart."""

    def __init__(self, created: ev.RunCreated) -> None:
        request, conductor = created.request, created.conductor
        self._names = dict.fromkeys(filter(None, (request.purpose, CONDUCTOR_AGENT)))
        for spec in created.pool.workers:
            self._names |= {spec.name: None, spec.model: None}
        if conductor is not None:
            self._names |= {conductor.name: None, conductor.model: None}
        self._contents: dict[str, None] = {}
        self._thoughts: dict[Path, str] = {}
        self._add(request.task, request.system, *(turn.text for turn in request.turns_before))

    def texts(self, *, contents: bool) -> tuple[str, ...]:
        thoughts = filter(None, self._thoughts.values())
        return ("\n".join(self._names), *(dict.fromkeys((*self._contents, *thoughts)) if contents else ()))

    def _add(self, *texts: str) -> None:
        self._contents |= dict.fromkeys(filter(None, texts))

    def read(self, event: Event) -> None:
        match event:
            case ev.PlanStarted() | ev.StepStarted():
                self._add(*(message.text for message in event.messages))
            case ev.StepReused():
                self._add(*(message.text for message in event.messages), event.output)
            case ev.PlanCompleted() | ev.PlanRejected():
                self._add(event.raw)
            case ev.StepGiven():
                self._add(event.output)
            case ev.PlanDelta() if event.reasoning:
                self._think((*event.round, -1), event.text)
            case ev.StepDelta() if event.reasoning:
                self._think(event.path, event.text)
            case ev.StepCompleted():
                self._add(event.output, event.reasoning or "")
                self._names |= {event.model or "": None} | {tool.name: None for tool in event.tool_calls}
            case ev.RunCompleted():
                self._add(event.answer or "")

    def _think(self, of: Path, text: str) -> None:
        self._thoughts[of] = self._thoughts.get(of, "") + text
