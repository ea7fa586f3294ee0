"""Reads from a run's events which server was sent what: by each call of a worker or of the Conductor, and as traces.

A call counts from the event that was durable before a byte left. So a call that failed counts as received: its record
cannot say how much of it arrived. After a failed call, an event announces the next one, perhaps after a wait. That call
is ``announced`` until an event shows that it began.

A call of a tool server of the pool counts from ``tool.sent``, with its arguments, unless its ``tool.ran`` says that
nothing was sent. What it brought counts as received by the worker's next call. The Python sandbox is no server: its
program runs on this machine without a network, so its calls have no host, as those of a model in this process.

OpenTelemetry traces of the run count as one call to each server that they went to, from the event that was durable
before the first of them left.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from conductor_core.chat.messages import ConductorInfo, Message, ToolCallPart, ToolResultPart, Usage
from conductor_core.chat.servers import UNKNOWN_HOST, host_of, provider_of, sent_beside, server_of
from conductor_core.chat.tools import NOT_SENT, ToolListing, ToolOutcome, ToolServerSpec
from conductor_core.run import events as ev
from conductor_core.run.events import Event
from conductor_core.run.values import Path, PoolInfo, ToldAnew, ToolTurn
from conductor_core.text import unescaped
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
        agent: who was asked; of a tool its name, after that of its server where the pool has one.
        provider: of the pool; ``unknown`` if the pool does not name the worker. host: empty for this process.
        ended: ``running`` while no event tells its end; ``broken off`` if the run ended without one; ``failed``,
            ``rejected`` (a plan that could not be used), or how the answer ended; ``announced``: no event shows that it
            was made. Of a tool server ``completed``, ``failed`` (the tool said so), ``timed out``, ``broke off`` or
            ``unknown``.
        cost_usd: None if the price is unknown, or if it broke off.
        beside: what was sent beside the messages, in texts: of a call its path, model and parameters; of a tool its
            arguments as their escapes read; of traces all that they held. Empty for this process.
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
MCP = "mcp"
"""The provider of tool servers of the pool; their host is that of their address, or names the program started here."""
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


def tool_server(spec: ToolServerSpec | None, listing: ToolListing | None) -> tuple[str, str]:
    """Returns the provider and the host of a tool server, by what it was listed as, else as its pool names it."""
    kind = listing.kind if listing is not None else None if spec is None else spec.kind
    if kind == "python":
        return "python", ""
    where = "" if listing is None else listing.where
    if not where and spec is not None:
        where = host_of(spec.url) if kind == "http" else "".join(spec.command[:1])
    if kind == "stdio":
        return MCP, f"this machine: {where or 'a program that is not recorded'}"
    return MCP, where or UNKNOWN_HOST


_ENDED: dict[ToolOutcome, str] = {"returned": "completed", "error": "failed"}


@dataclass(slots=True)
class _Turn:
    """A turn of tools that is not over. ``call``: the one that called them. ``brought``: the results so far."""

    call: Call
    called: ev.ToolCalled
    brought: dict[str, ToolResultPart] = field(default_factory=dict)
    said: str = ""
    anew: ToldAnew | None = None

    @property
    def waits_for_client(self) -> bool:
        return any(each.call_id not in (*self.called.ours, *self.brought) for each in self.called.calls)


class _Reading:
    """The calls of one run as far as it has been read."""

    def __init__(self, created: ev.RunCreated) -> None:
        self._servers = servers_by_agent(created.pool, created.conductor)
        self._beside = _beside(created.pool, created.conductor)
        self._open: dict[_Place, Call] = {}
        self._turns: dict[Path, _Turn] = {}
        self._tools: dict[tuple[Path, str], Call] = {}
        self._tool_specs = {spec.name: spec for spec in created.pool.tools}
        self._listings: dict[str, ToolListing] = {}
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
                for call in (*self._open.values(), *self._tools.values()):
                    call.ended = "broken off" if call.ended == "running" else call.ended
                self._open.clear()
                self._tools.clear()
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
            case ev.ToolCalled() | ev.ToolReturned() | ev.ToolsListed() | ev.ToolSent() | ev.ToolRan():
                self._read_tools(number, event)
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

    def _read_tools(
        self, number: int, event: ev.ToolCalled | ev.ToolReturned | ev.ToolsListed | ev.ToolSent | ev.ToolRan
    ) -> None:
        match event:
            case ev.ToolsListed():
                self._listings[event.listing.server] = event.listing
            case ev.ToolCalled():
                self._call_tools(number, event)
            case ev.ToolSent():
                self._send_tool(number, event)
            case ev.ToolRan():
                tool = self._tools.pop((event.path, event.result.call_id), None)
                if tool is not None and event.outcome in NOT_SENT:
                    self.found.remove(tool)
                elif tool is not None:
                    tool.ended = _ENDED.get(event.outcome, event.outcome.replace("_", " "))
                self._bring(number, event.at_utc, event.path, (event.result,))
            case ev.ToolReturned():
                for path, turn in list(self._turns.items()):
                    if turn.waits_for_client:
                        turn.said, turn.anew = event.said, event.anew
                        self._bring(number, event.at_utc, path, event.results)

    def _call_tools(self, number: int, event: ev.ToolCalled) -> None:
        """The call ended, and what it gives the client's tools leaves for the client."""
        if (call := self._end("step", event.path, "called tools", event)) is None:
            return
        self._turns[event.path] = _Turn(call, event)
        for each in event.calls:
            if each.call_id not in event.ours:
                given = ToolCallPart(call_id=each.call_id, name=each.name, arguments=each.arguments)
                self._called(number, event, each.name, (CLIENT, CLIENT), given).ended = "completed"

    def _send_tool(self, number: int, event: ev.ToolSent) -> None:
        turn = self._turns.get(event.path)
        arguments = next((c.arguments for c in turn.called.calls if c.call_id == event.call_id), "") if turn else ""
        given = ToolCallPart(call_id=event.call_id, name=event.tool, arguments=arguments)
        server = tool_server(self._tool_specs.get(event.server), self._listings.get(event.server))
        tool = self._called(number, event, f"{event.server}.{event.tool}", server, given)
        plain, _ = unescaped(arguments)
        tool.beside = (plain,) if plain != arguments and server[1] else ()
        if (lost := self._tools.get((event.path, event.call_id))) is not None:
            lost.ended = "unknown"  # another process sent it, and ended; this one sends it again
        self._tools[event.path, event.call_id] = tool

    def _called(
        self, number: int, event: ev.ToolCalled | ev.ToolSent, tool: str, server: tuple[str, str], given: ToolCallPart
    ) -> Call:
        said = (Message(role="assistant", content=(given,)),)
        call = Call(number, event.at_utc, "tool", event.path, tool, *server, False, said, cost_usd=0.0)
        self.found.append(call)
        return call

    def _bring(self, number: int, at_utc: datetime, path: Path, results: Iterable[ToolResultPart]) -> None:
        """Takes results. With the last one it announces the step's next call. That it was made, another event shows."""
        if (turn := self._turns.get(path)) is None:
            return
        called = turn.called.calls
        wanted = {each.call_id for each in called}
        turn.brought |= {result.call_id: result for result in results if result.call_id in wanted}
        if len(turn.brought) != len(called):
            return
        del self._turns[path]
        brought = tuple(turn.brought[each.call_id] for each in called)
        told = ToolTurn(text=turn.called.text, calls=called, results=brought, said=turn.said).messages
        before = turn.call.messages if turn.anew is None else turn.anew.messages(turn.call.messages)
        again = self._begin(number, at_utc, ("step", path), turn.call.agent, (*before, *told), "again")
        again.ended = "announced"

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
            case ev.ToolSent():
                self._names |= {event.server: None, event.tool: None}
            case ev.RunCompleted():
                self._add(event.answer or "")

    def _think(self, of: Path, text: str) -> None:
        self._thoughts[of] = self._thoughts.get(of, "") + text
