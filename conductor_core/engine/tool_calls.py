"""Calls of the pool's tool servers in one run: asks what they offer, carries out what a worker called, records both.

A call is durable before it leaves, and so is what it brought before the worker is told. A tool that has effects is
called at most once for each call of a worker: not again after a fault, and not when the run goes on elsewhere. Runs
that repeat others for a purpose of their own (a replay of a blame, a shadow) carry out none of them.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from conductor_core.chat.messages import ToolCall, ToolResultPart, WorkerSpec
from conductor_core.chat.tools import (
    NOT_SENT,
    OfferedTool,
    ToolAnswer,
    ToolListing,
    ToolServer,
    allowed,
    servers_of,
)
from conductor_core.engine.approvals import Approvals
from conductor_core.engine.recorder import Recorder
from conductor_core.engine.request import UNKNOWN_RESULT
from conductor_core.run import events as ev
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import Path

_MAY_NOT_ACT = (
    "This call was not carried out: the tool has effects, and this run only repeats another one ({purpose}), so it "
    "may change nothing."
)
_MOST_NAME = 256


class ToolCalls:
    """The tool servers of one run. Belongs to its event loop."""

    def __init__(
        self,
        recorder: Recorder,
        approvals: Approvals,
        servers: Mapping[str, ToolServer],
        earlier: Sequence[RunTrace],
    ) -> None:
        """``earlier``: the runs whose answers are reused. Their listings stand in for those of servers that are away,
        and for all of them if the run resumes: else a server's new tool would have finished steps paid again.
        """
        self._recorder, self._approvals, self._servers = recorder, approvals, servers
        self._earlier = {
            name: listed.listing.model_copy(update={"fault": ""})
            for run in reversed(earlier)
            for name, listed in run.listings.items()
            if run.imported is None and (not listed.listing.fault or listed.recorded)
        }
        self._asked: set[str] = set()

    @property
    def _listings(self) -> Mapping[str, ev.ToolsListed]:
        return self._recorder.trace.listings

    async def list_for(self, specs: Iterable[WorkerSpec]) -> None:
        """Asks the servers of these workers what they offer, unless the run knows. Raises: StoreError."""
        names = dict.fromkeys(name for spec in specs for name in servers_of(spec))
        wanted = [name for name in names if name not in self._asked and self._is_to_be_asked(name)]
        self._asked.update(wanted)
        if not wanted:
            return
        resumed = [self._earlier[name] for name in wanted if self._recorder.trace.resumed and name in self._earlier]
        there = {listing.server for listing in resumed}
        asked = await asyncio.gather(*(self._list(name) for name in wanted if name not in there))
        again = [ev.ToolsListed(**self._recorder.at(), listing=listing, recorded=True) for listing in resumed]
        await self._recorder.emit(*again, *(self._listed(listing) for listing in asked))

    def _is_to_be_asked(self, name: str) -> bool:
        known = self._listings.get(name)
        return known is None or bool(known.listing.fault)

    async def _list(self, name: str) -> ToolListing:
        server = self._servers.get(name)
        if server is None:
            return ToolListing(server=name, kind="stdio", fault=f"the pool has no tool server {name}")
        return await server.list()

    def _listed(self, listing: ToolListing) -> ev.ToolsListed:
        known = self._earlier.get(listing.server)
        if not listing.fault or known is None:
            return ev.ToolsListed(**self._recorder.at(), listing=listing)
        as_it_was = known.model_copy(update={"fault": listing.fault})
        return ev.ToolsListed(**self._recorder.at(), listing=as_it_was, recorded=True)

    def fault(self, spec: WorkerSpec) -> str | None:
        """Says why a worker cannot be asked: a server of its tools is away; None: it can."""
        listings = [self._listings[name].listing for name in servers_of(spec) if name in self._listings]
        faults = [f"tool server {each.server}: {each.fault}" for each in listings if each.fault]
        return "; ".join(faults) or None

    def of_worker(self, spec: WorkerSpec) -> dict[str, OfferedTool]:
        """Returns the tools that a worker may call, by the names under which it is offered them."""
        return {tool.spec.name: tool for tool in allowed(spec, (each.listing for each in self._listings.values()))}

    async def carry_out(self, path: Path) -> bool:
        """Carries out the open calls of a step that are the pool's, as far as they are admitted.

        Calls without effects that stand together go at once, all others one after the other. Returns whether all
        results of the turn are there, the client's too. Raises: StoreError.
        """
        step = self._recorder.trace.step_at(path)
        turn = step.turns[-1]
        ours = [call for call in turn.open_calls if call.call_id in turn.ours]
        tools = self.of_worker(self._spec(step.agent))
        if turn.agent is not None:
            own = self.of_worker(self._spec(turn.agent))
            tools = {name: tool for name, tool in tools.items() if name in own}
        for effects, calls in groupby(ours, lambda call: call.name not in tools or tools[call.name].effects):
            if effects:
                for call in calls:
                    if (tool := tools.get(call.name)) is not None:
                        await self._one(path, call, tool)
                    else:
                        await self._ran(path, call, None, self._unknown(tools))
            else:
                ended = await asyncio.gather(
                    *(self._one(path, call, tools[call.name]) for call in calls), return_exceptions=True
                )
                if (error := next((each for each in ended if each is not None), None)) is not None:
                    raise error
        return self._recorder.trace.step_at(path).turns[-1].results is not None

    def _spec(self, agent: str) -> WorkerSpec:
        return next(spec for spec in self._recorder.trace.pool.workers if spec.name == agent)

    async def _one(self, path: Path, call: ToolCall, tool: OfferedTool) -> None:
        """Carries out one call, unless somebody has to approve it first."""
        recorder = self._recorder
        turn = recorder.trace.step_at(path).turns[-1]
        known = turn.ran_of(call.call_id)
        if known is not None and tool.effects:  # sent before the process ended, or before the run was taken up again
            await self._ran(path, call, tool, ToolAnswer(outcome="unknown", text=UNKNOWN_RESULT))
            return
        purpose = recorder.trace.purpose
        if tool.effects and purpose:
            text = _MAY_NOT_ACT.format(purpose=purpose)
            await self._ran(path, call, tool, ToolAnswer(outcome="denied", text=text))
            return
        if tool.effects and not self._approvals.admits_tool(path, call):
            return
        server = self._servers.get(tool.server)
        if server is None or self._listings[tool.server].listing.fault:
            text = "This call was not carried out: the tool's server cannot be reached."
            await self._ran(path, call, tool, ToolAnswer(outcome="unreachable", text=text))
            return
        sent_ms = recorder.now_ms()
        names = {"path": path, "server": tool.server, "tool": tool.tool, "effects": tool.effects}
        await recorder.emit(ev.ToolSent(**recorder.at(sent_ms), call_id=call.call_id, **names))
        answer = await server.call(tool, json.loads(call.arguments or "{}"))
        await self._ran(path, call, tool, answer, sent_ms)

    async def _ran(
        self, path: Path, call: ToolCall, tool: OfferedTool | None, answer: ToolAnswer, sent_ms: float | None = None
    ) -> None:
        """``tool`` None: the worker may call none of that name."""
        recorder = self._recorder
        now_ms = recorder.now_ms()
        result = ToolResultPart(call_id=call.call_id, text=answer.text, is_error=answer.is_error)
        await recorder.emit(
            ev.ToolRan(
                **recorder.at(now_ms),
                path=path,
                server="" if tool is None else tool.server,
                tool=call.name[:_MOST_NAME] if tool is None else tool.tool,
                effects=tool is not None and tool.effects,
                outcome=answer.outcome,
                result=result,
                duration_ms=0.0 if sent_ms is None or answer.outcome in NOT_SENT else now_ms - sent_ms,
                size_bytes=answer.size_bytes,
            )
        )

    def _unknown(self, tools: Iterable[str]) -> ToolAnswer:
        names = ", ".join(sorted({*tools, *(tool.name for tool in self._recorder.trace.tools)})) or "none"
        text = f"There is no tool of this name, so nothing was called. There are: {names}."
        return ToolAnswer(outcome="unoffered", text=text)
