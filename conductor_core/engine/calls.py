"""What all calls of a run share: its state, how many are made at once, and when a failed one is repeated.

A step calls its worker, the same worker with more tokens, and its fallback (``CallSequence``), and the pool's tool
servers (``ToolCalls``).
"""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from tenacity import AsyncRetrying, RetryCallState, wait_exponential_jitter

from conductor_core.chat.messages import (
    HERE,
    Conductor,
    Ending,
    OnIncomplete,
    ToolCall,
    ToolResultPart,
    Worker,
    WorkerSpec,
)
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
from conductor_core.engine.budgets import Budget, CostCap
from conductor_core.engine.pools import Pool, open_worker
from conductor_core.engine.prompts import ReadContent, StepInputs
from conductor_core.engine.recorder import Recorder
from conductor_core.engine.request import UNKNOWN_RESULT, EarlierAnswers
from conductor_core.errors import CallError, WorkerError
from conductor_core.run import events as ev
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import Path
from conductor_core.settings import Settings

# Calls of the pool's tool servers.
#
# A call is durable before it leaves, and so is what it brought before the worker is told. A tool that has effects is
# called at most once for each call of a worker: not again after a fault, and not when the run goes on elsewhere. Runs
# that repeat others for a purpose of their own (a replay of a blame, a shadow) carry out none of them.


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
        known = {name for name, listed in self._listings.items() if not listed.listing.fault}
        wanted = [name for name in names if name not in self._asked | known]
        self._asked.update(wanted)
        if not wanted:
            return
        resumed = [self._earlier[name] for name in wanted if self._recorder.trace.resumed and name in self._earlier]
        there = {listing.server for listing in resumed}
        asked = await asyncio.gather(*(self._list(name) for name in wanted if name not in there))
        again = [ev.ToolsListed(**self._recorder.at(), listing=listing, recorded=True) for listing in resumed]
        await self._recorder.emit(*again, *(self._listed(listing) for listing in asked))

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


# What all calls of a run share.


class ConcurrencyLimits:
    """Limits the calls of each worker to ``max_concurrency`` at once, over all runs of an engine."""

    def __init__(self) -> None:
        self._semaphores: dict[tuple[str | int | None, ...], asyncio.Semaphore] = {}

    def of(self, spec: WorkerSpec) -> asyncio.Semaphore:
        key = (spec.name, spec.provider, spec.model, spec.base_url, spec.max_concurrency)
        return self._semaphores.setdefault(key, asyncio.Semaphore(spec.max_concurrency))


@dataclass(frozen=True, slots=True)
class RunState:
    """Attributes:
    pool: without the workers that the request excludes.
    on_incomplete: what happens to a step whose answer is incomplete, as in ``run.created``.
    tools: calls of the pool's tool servers.
    cap: what this run and others may spend together; None: there is no cap.
    read_content: reads the images of the task; None: there are none.
    """

    request: RunRequest
    settings: Settings
    conductor: Conductor | None
    pool: Pool
    step_inputs: StepInputs
    recorder: Recorder
    budget: Budget
    source: EarlierAnswers
    concurrency: ConcurrencyLimits
    approvals: Approvals
    tools: ToolCalls
    on_incomplete: OnIncomplete = "allow"
    cap: CostCap | None = None
    read_content: ReadContent | None = None


# Failed calls.

LOADING_WAIT_S = 2.0
"""Between two calls of a server that loads its model, unless it says otherwise: loading takes seconds to minutes."""


def left_s(state: RunState) -> float | None:
    most_s = state.request.limits.max_seconds
    return None if most_s is None else max(0.0, most_s - state.recorder.now_ms() / 1000)


def wait_before_retry_s(error: CallError, attempt: int, settings: Settings, left_s: float | None) -> float | None:
    """Returns the seconds to wait after failed attempt ``attempt`` (from 1); None: waiting is useless.

    It follows the provider (Retry-After), and is useless if that is longer than the run has left (``left_s``). Without
    a wait from the provider, or with one of zero, it is exponential with jitter, up to the settings' longest wait. A
    server that loads its model is asked again after a fixed time.
    """
    if _beyond(error, left_s):
        return None
    if error.retry_after_s is not None and error.retry_after_s > 0:
        return error.retry_after_s
    if error.loading:
        return min(LOADING_WAIT_S, settings.retry_max_s)
    state = RetryCallState(AsyncRetrying(), None, (), {})
    state.attempt_number = attempt
    initial_s = settings.retry_initial_s
    return wait_exponential_jitter(multiplier=initial_s, max=settings.retry_max_s, jitter=initial_s)(state)


def name_the_limit(error: CallError, state: RunState) -> None:
    """Adds to ``error`` that the run's time limit is shorter than the wait that its server asks for."""
    if error.retryable and _beyond(error, left_s(state)):
        limit_s = state.request.limits.max_seconds
        error.args = (
            f"{error}; it asks to wait {error.retry_after_s:.0f} s, and this run may take {limit_s:g} s in all: "
            "try again later, or raise the run's time limit (max_seconds)",
        )


def _beyond(error: CallError, left_s: float | None) -> bool:
    return error.retry_after_s is not None and left_s is not None and error.retry_after_s >= left_s


MORE_TOKENS = 4
"""The factor by which the token limit grows after a cut answer. A factor of 2 seldom helps thinking models."""
_LIMITS = ("max_completion_tokens", "max_tokens")
"""The parameters by which pool files bound an answer, the more specific first."""
_USUAL_LIMITS = {"anthropic": 4096, "local": 1024, "gguf": 1024}
"""The limit sent to providers that require one, if the pool file gives none."""


@dataclass(frozen=True, slots=True)
class NextCall:
    """The call that follows one without a complete answer. ``max_tokens``: its new limit; None: no new limit."""

    how: Literal["again", "more_tokens", "fallback"]
    wait_s: float = 0.0
    max_tokens: int | None = None


class CallSequence:
    """The calls of one step. Each worker has its own attempts.

    Args:
        seed: the step's own, which takes the place of a worker's; None: the run's.
        limited: whether the client limits the answer, so that one which is cut is as long as it may be.

    Attributes:
        worker: the worker to call next.
        agent: the name of that worker. It stays the same when the worker is called with more tokens.
    """

    def __init__(self, state: RunState, agent: str, seed: int | None = None, *, limited: bool = False) -> None:
        self._state, self._seed, self._limited = state, seed, limited
        self._asked: set[str] = set()
        self._opened: list[Worker] = []
        self._set(state.pool.workers[agent])

    def _set(self, worker: Worker) -> None:
        if self._seed is not None and takes_seed(spec := worker.spec):  # others draw afresh at every call
            # A simulated worker is opened with the seed instead.
            with_seed = (
                spec if spec.simulated else spec.model_copy(update={"params": {**spec.params, "seed": self._seed}})
            )
            worker = self._open(with_seed)
        self.worker, self.agent = worker, worker.spec.name
        self._asked.add(self.agent)
        self._failed = self._grown = 0

    def _open(self, spec: WorkerSpec) -> Worker:
        seed = self._state.pool.seed if self._seed is None else self._seed
        worker = open_worker(spec, self._state.settings, seed)
        self._opened.append(worker)
        return worker

    async def aclose(self) -> None:
        for worker in self._opened:
            await worker.aclose()

    def after_error(self, error: WorkerError) -> NextCall | None:
        attempts = self._state.settings.step_attempts
        self._failed += not error.loading
        if error.retryable and self._failed < attempts:
            wait_s = wait_before_retry_s(error, self._failed, self._state.settings, left_s(self._state))
            # If the provider asks for a long wait, the step waits only if it has no fallback left.
            longest_s = self._state.settings.retry_max_s
            if wait_s is not None and (error.loading or wait_s <= longest_s or self._next() is None):
                return NextCall("again", wait_s)
        return self._fallback()

    def after_ending(self, ending: Ending, written_tokens: int) -> NextCall | None:
        """Returns the call that follows an incomplete answer, by the run's setting; None: the answer is kept.

        Args:
            written_tokens: the length of the answer, taken as its limit if the limit is unknown.
        """
        policy = self._state.on_incomplete
        if ending == "cut" and self._limited:
            return None
        if policy == "fallback":
            return self._fallback()
        if policy != "more_tokens" or ending != "cut" or self._grown + 1 >= self._state.settings.step_attempts:
            return None
        spec = self.worker.spec
        name, most = limit_of(spec)
        most = MORE_TOKENS * max(most or written_tokens, 1)
        self.worker = self._open(spec.model_copy(update={"params": {**spec.params, name: most}}))
        self._grown += 1
        self._failed = 0
        return NextCall("more_tokens", max_tokens=most)

    def _next(self) -> Worker | None:
        """Returns the fallback of this worker; None if there is none that the step has not called yet."""
        name = self.worker.spec.fallback
        return None if name is None or name in self._asked else self._state.pool.workers.get(name)

    def _fallback(self) -> NextCall | None:
        worker = self._next()
        if worker is None:
            return None
        self._set(worker)
        return NextCall("fallback")


def takes_seed(spec: WorkerSpec) -> bool:
    """Whether the answers of a worker depend on a seed that we choose: not every server knows the parameter."""
    return spec.provider in ("rehearsal", *HERE) or "seed" in spec.params


def limit_of(spec: WorkerSpec) -> tuple[str, int | None]:
    """Returns the parameter that limits the answers of ``spec``, and its value; None: the value is unknown."""
    for name in _LIMITS:
        if isinstance(most := spec.params.get(name), int):
            return name, most
    return "max_tokens", _USUAL_LIMITS.get(spec.provider)
