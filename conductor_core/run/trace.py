"""Folds a run's events into its trace, which the live page, a reload, the command line and a re-run all read.

``RunTrace`` is the state of a run, its rounds and its steps. ``fold`` makes it from the events, approvals included.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Literal, assert_never, get_args

from pydantic import BaseModel, ConfigDict, Field

from conductor_core.chat.messages import (
    ConductorInfo,
    Departure,
    Ending,
    FinishReason,
    Message,
    OnIncomplete,
    Packed,
    Price,
    ToolCall,
    ToolCallPart,
    ToolResultPart,
    Usage,
    parts_of,
    sum_of_costs,
)
from conductor_core.chat.progress import Progress
from conductor_core.chat.tools import OfferedTool, called_name
from conductor_core.errors import StoreError
from conductor_core.formats import effects_word
from conductor_core.run import events as ev
from conductor_core.run.actor import Caller
from conductor_core.run.events import Event
from conductor_core.run.request import Given, RunRequest, WhatIsAsked
from conductor_core.run.values import Alternatives, Imported, Path, PoolInfo, SharedOutput, ToolRun, ToolTurn, label
from conductor_core.workflow.edits import Origins, compare
from conductor_core.workflow.model import AccessList, Fault, Step, Workflow

# State.

StepStatus = Literal["waiting", "running", Ending, "reused", "written", "failed", "denied", "skipped", "cancelled"]
RunStatus = Literal["queued", "running", "waiting", "planned", Ending, "failed", "denied", "cancelled", "interrupted"]
RoundStatus = Literal["planning", "planned", "stopped", "rejected", "unfinished"]

ENDED_STATUSES: frozenset[str] = frozenset(get_args(RunStatus)) - {"queued", "running", "waiting"}
AT_REST: frozenset[str] = frozenset({"queued", "waiting"})
"""Statuses of runs that no process carries out, and that any process may resume."""


class Mutable(BaseModel):
    model_config = ConfigDict(extra="forbid")

    # A fold only assigns, in code that mypy checks. A plain assignment takes a fifth of the time of pydantic's.
    __setattr__ = object.__setattr__


class ReusedFrom(Mutable):
    """Where a reused answer was given. ``imported``: that run came as a file, and this database did not see it."""

    run_id: str
    path: Path
    imported: bool = False


class Paid(Mutable):
    """What was spent on a part of a run, or on all of it.

    Attributes:
        cost_usd: of all calls that ended; None if the price of one is unknown. known_usd: of the calls with a price.
        at_list_price: whether some of the cost is computed from a price, and is not the provider's own figure.
        cost_at_most: whether the cost is only a bound: nobody said what a provider's cache costs.
    """

    usage: Usage = Usage()
    cost_usd: float | None = 0.0
    known_usd: float = 0.0
    at_list_price: bool = False
    cost_at_most: bool = False


class StepTrace(Paid, ev.AnswerParts):
    """The state of a step. ``round`` is set if the step is a recursion: the inner plan and its steps.

    Attributes:
        output: the whole answer, what has streamed so far, or the partial text of a failed step.
        started_ms: since the run began. first_token_ms, duration_ms: since the step started.
        attempts: the failed calls that another followed. answer_usage: of the call that brought the answer, alone.
        given: who wrote or pinned the output; None: the step's worker answered.
        turns: those in which the worker called tools, of the client or of the pool, before ``output``.
    """

    path: Path
    instruction: str
    agent: str
    access_list: AccessList
    reads: tuple[int, ...]
    status: StepStatus = "waiting"
    simulated: bool = False
    identity: str | None = None
    messages: tuple[Message, ...] = ()
    granted: tuple[SharedOutput, ...] = ()
    withheld: tuple[SharedOutput, ...] = ()
    output: str = ""
    output_sha256: str | None = None
    reasoning: str = ""
    progress: Progress | None = None
    finish_reason: FinishReason | None = None
    started_ms: float | None = None
    first_token_ms: float | None = None
    duration_ms: float | None = None
    attempts: list[ev.StepRetried] = Field(default_factory=list)
    answer_usage: Usage = Usage()
    error_code: str | None = None
    error: str | None = None
    because: tuple[Path, ...] = ()
    reused_from: ReusedFrom | None = None
    given: Given | None = None
    turns: tuple[ToolTurn, ...] = ()
    round: "RoundTrace | None" = None

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """The calls of tools whose results the step waits for, of the client alone."""
        if not self.turn_is_open:
            return ()
        turn = self.turns[-1]
        return tuple(call for call in turn.open_calls if call.call_id not in turn.ours)

    @property
    def turn_is_open(self) -> bool:
        """Whether results of tools are still missing, the client's or those of the pool's tool servers."""
        return self.status == "running" and bool(self.turns) and self.turns[-1].results is None

    @property
    def shown_status(self) -> str:
        """Its status in words for people (``formats.STEP_STATUSES``): one that calls tools of its pool is
        ``calls_tools``, one that waits only for those of its client ``tool_results``."""
        if not self.turn_is_open:
            return self.status
        turn = self.turns[-1]
        return "calls_tools" if any(call.call_id in turn.ours for call in turn.open_calls) else "tool_results"

    @property
    def index(self) -> int:
        return self.path[-1]

    @property
    def asked(self) -> str:
        """The worker that was asked last: the step's own or a fallback."""
        others = (attempt.then_agent for attempt in reversed(self.attempts) if attempt.then == "fallback")
        return next((name for name in others if name is not None), self.agent)

    @property
    def answered(self) -> bool:
        """Whether the step has a complete answer, as far as its record says."""
        return self.status in ("completed", "reused", "written")


class RejectedPlan(Mutable):
    attempt: int
    raw: str
    faults: tuple[Fault, ...]
    repairs: tuple[str, ...] = ()
    reasoning: str = ""


class RoundTrace(Paid):
    """One plan and the steps that carry it out. What was paid is the Conductor's part, with rejected attempts.

    Attributes:
        status: ``unfinished`` if the run ended before the Conductor had written the plan.
        reasoning: of the Conductor; it is not part of ``raw``.
        considered: what else the Conductor could have chosen, in the plan as it wrote it, before any edit.
        call_started_ms: of the Conductor's last call, since the run began. first_token_ms: since then.
        duration_ms: of all its calls, without the waits between them.
        precision: how the Conductor's weights were packed when it wrote the plan; None: not at all.
    """

    path: Path = ()
    status: RoundStatus = "planning"
    source: Literal["conductor", "file", "parent"] | None = None
    messages: tuple[Message, ...] = ()
    agents: tuple[str | None, ...] = ()
    raw: str = ""
    reasoning: str = ""
    progress: Progress | None = None
    workflow: Workflow | None = None
    topology: str | None = None
    repairs: tuple[str, ...] = ()
    warnings: tuple[Fault, ...] = ()
    considered: tuple[Alternatives, ...] = ()
    departures: tuple[Departure, ...] = ()
    rejected: list[RejectedPlan] = Field(default_factory=list)
    retries: list[ev.PlanRetried] = Field(default_factory=list)
    edited_by: Caller | None = None
    before_edit: Workflow | None = None
    edit_origins: Origins | None = None
    started_ms: float | None = None
    call_started_ms: float | None = None
    first_token_ms: float | None = None
    duration_ms: float | None = None
    precision: Packed | None = None
    steps: list[StepTrace] = Field(default_factory=list)

    @property
    def edits(self) -> tuple[str, ...]:
        """Says, in a sentence per step, how the plan was changed before this run; empty if it was not."""
        if self.before_edit is None or self.workflow is None:
            return ()
        changes = compare(self.before_edit, self.workflow, self.edit_origins)
        return changes.sentences(self.before_edit, self.workflow)

    def walk(self) -> Iterator[StepTrace]:
        """All steps, each before the steps of its inner round."""
        for step in self.steps:
            yield step
            if step.round is not None:
                yield from step.round.walk()

    def rounds(self) -> Iterator["RoundTrace"]:
        yield self
        yield from (step.round for step in self.walk() if step.round is not None)


class Approval(Mutable, ev.HeldBack):
    """A request for an approval, and its decision, see ``ApprovalGranted``; ``replaced``: the plan was edited before
    anybody decided."""

    requested_at_utc: datetime
    status: Literal["open", "granted", "denied", "replaced"] = "open"
    decided_by: Caller | None = None
    decided_at_utc: datetime | None = None
    rest: bool = False
    note: str = ""
    command: int | None = None
    carried_from: str | None = None

    @property
    def what(self) -> str:
        """Words for what waits: ``step 2``, ``the plan``, ``the Conductor's answer for step 2``."""
        if self.of == "step":
            return f"step {label(self.path)}"
        if self.of == "tool":
            return f"the call of {called_name(self.agent)} by step {label(self.path)}"
        what = "the plan" if self.of == "plan" else "the question to the Conductor"
        return f"{what} of step {label(self.path)}" if self.path else what

    @property
    def wish(self) -> str:
        """What is asked for, in words: ``step 2 to solver``, or what a step wants to call."""
        if self.of == "tool":
            return f"step {label(self.path)} wants to call {called_name(self.agent)} ({effects_word(True)})"
        return f"{self.what} to {self.agent}" if self.agent else self.what

    @property
    def arguments(self) -> str:
        """Of a call of a tool, as the worker wrote them."""
        parts = (part for message in self.messages if self.of == "tool" for part in parts_of(message.content))
        return next((part.arguments for part in parts if isinstance(part, ToolCallPart)), "")


class RunTrace(Paid, WhatIsAsked):
    """The state of a run after ``last_at_ms``.

    Attributes:
        workflow: as the request brought it, until a plan is recorded in ``root``; then, and without one, None.
        approvals: all requests, by ``number`` less one. refused: commands that changed nothing.
        last_command: id of the last command that was answered.
        overrides: what is done otherwise with single steps, by their numbers in the plan as it stands.
        waiting_since_utc: None unless the run waits.
        clock_zero_utc: when the run's clock showed zero, or would have, had it not stood while the run waited.
        redacted: how many passages were hidden before the record was stored, by what they were.
        listings: of the pool's tool servers that were asked so far, by their names.
        traces, traces_fault: where OpenTelemetry traces went; why not all spans did, as known when the run ended.
        broken_off, broken_off_usd: the estimated share of ``usage`` and ``known_usd`` of calls that the run's end cut.
            They are in the figures of their steps and plans, too.
    """

    run_id: str
    status: RunStatus = "running"
    simulated: bool
    conductor: ConductorInfo | None = None
    pool: PoolInfo
    on_incomplete: OnIncomplete = "allow"
    give_question: bool = False
    imported: Imported | None = None
    app_version: str
    created_at_utc: datetime
    root: RoundTrace = Field(default_factory=RoundTrace)
    answer: str | None = None
    broken_off: Usage = Usage()
    broken_off_usd: float = 0.0
    duration_ms: float | None = None
    error_code: str | None = None
    error: str | None = None
    ended_by: Caller | None = None
    traces: tuple[ev.TracesTo, ...] = ()
    traces_fault: str = ""
    approvals: list[Approval] = Field(default_factory=list)
    refused: list[ev.CommandRefused] = Field(default_factory=list)
    last_command: int = 0
    waiting_since_utc: datetime | None = None
    clock_zero_utc: datetime
    last_at_ms: float = 0.0
    redacted: dict[str, int] = Field(default_factory=dict)
    listings: dict[str, ev.ToolsListed] = Field(default_factory=dict)

    @property
    def ended(self) -> bool:
        return self.status in ENDED_STATUSES

    @property
    def imported_answers(self) -> list[StepTrace]:
        return [step for step in self.walk() if step.reused_from is not None and step.reused_from.imported]

    @property
    def asked_for(self) -> list[Approval]:
        return [approval for approval in self.approvals if approval.status == "open"]

    @property
    def tools_called(self) -> int:
        """How many tools were called so far, in all steps."""
        return sum(len(turn.calls) for step in self.walk() for turn in step.turns if step.reused_from is None)

    def offered(self, name: str) -> OfferedTool | None:
        """Returns the tool of a tool server that workers call by this name; None: no listing has it."""
        tools = (tool for listed in self.listings.values() for tool in listed.listing.tools)
        return next((tool for tool in tools if tool.spec.name == name), None)

    @property
    def waits_for(self) -> Literal["approval", "tool_results"]:
        return "approval" if self.asked_for else "tool_results"

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """The calls of tools whose results the run waits for."""
        return tuple(call for step in self.walk() for call in step.open_calls)

    @property
    def denial(self) -> Approval | None:
        return next((approval for approval in self.approvals if approval.status == "denied"), None)

    @property
    def steps(self) -> list[StepTrace]:
        return self.root.steps

    def gives_answer(self, path: Path) -> bool:
        """Whether the answer of the step at ``path`` is the run's: it is the last of its round, as is each above it."""
        for depth, index in enumerate(path):
            round_ = self.round_at(path[:depth])
            chosen = self.overrides.last_step if depth == 0 else None
            if index != (len(round_.steps) - 1 if chosen is None else chosen):
                return False
        return True

    @property
    def last(self) -> StepTrace | None:
        """The step whose answer is the run's; None: there is no plan yet, or one of no steps."""
        chosen = self.overrides.last_step
        return None if not self.steps else self.steps[-1 if chosen is None else chosen]

    def round_at(self, path: Path) -> RoundTrace:
        """Returns the round that the step at ``path`` opened; ``()``: the first round. Raises: KeyError."""
        round_ = self.root
        for depth in range(len(path)):
            inner = step_of(round_, path[: depth + 1]).round
            if inner is None:
                raise KeyError(path)
            round_ = inner
        return round_

    def step_at(self, path: Path) -> StepTrace:
        """Returns the step at ``path``. Raises: KeyError."""
        return step_of(self.root if len(path) == 1 else self.round_at(path[:-1]), path)

    def walk(self) -> Iterator[StepTrace]:
        return self.root.walk()


def step_of(round_: RoundTrace, path: Path) -> StepTrace:
    if not path or not 0 <= path[-1] < len(round_.steps):
        raise KeyError(path)
    return round_.steps[path[-1]]


class RunUnreadable(StoreError):
    """A run that cannot be read to its end.

    Attributes:
        sequence: of the first event that cannot be read; None if it is unknown which event is wrong.
        trace: the run as far as it can be read; None if not even its first event can.
    """

    def __init__(self, message: str, *, run_id: str, sequence: int | None, trace: RunTrace | None) -> None:
        super().__init__(message)
        self.run_id = run_id
        self.sequence = sequence
        self.trace = trace


class RunDamaged(RunUnreadable): ...


class RunKeyAway(RunUnreadable): ...


class RunTooNew(RunUnreadable): ...


UnreadableStatus = Literal["damaged", "too_new", "key_away"]
UNREADABLE_STATUSES: tuple[UnreadableStatus, ...] = get_args(UnreadableStatus)


def unreadable_status(error: StoreError) -> UnreadableStatus:
    if isinstance(error, RunKeyAway):
        return "key_away"
    return "too_new" if isinstance(error, RunTooNew) else "damaged"


# Folding.


def apply_command(trace: RunTrace, command: int | None) -> None:
    """Notes that a command is answered. Raises: ValueError if it was answered before."""
    if command is None:
        return
    if command <= trace.last_command:
        raise ValueError(f"command {command} is answered already")
    trace.last_command = command


def apply_approval(trace: RunTrace, event: ev.ApprovalEvent) -> None:
    """Raises: ValueError, and leaves ``trace`` as it was, if the event cannot follow the events before it."""
    match event:
        case ev.ApprovalRequested():
            if event.number != len(trace.approvals) + 1:
                raise ValueError(f"request {event.number} cannot follow request {len(trace.approvals)}")
            trace.approvals.append(Approval(requested_at_utc=event.at_utc, **_fields_of(event, Approval)))
        case ev.ApprovalGranted() | ev.ApprovalDenied():
            _decide(trace, event)
        case ev.CommandRefused():
            apply_command(trace, event.command)
            trace.refused.append(event)
        case ev.RunWaiting():
            if trace.status != "running" or not (trace.asked_for or trace.open_calls):
                raise ValueError("only a running run waits, and only if something is asked for")
            trace.status, trace.waiting_since_utc = "waiting", event.at_utc
        case _:
            assert_never(event)


def _decide(trace: RunTrace, event: ev.ApprovalGranted | ev.ApprovalDenied) -> None:
    decided = [approval for approval in trace.asked_for if approval.number in event.numbers]
    if len(decided) != len(event.numbers) or not decided:
        raise ValueError(f"of the requests {event.numbers}, one is not there or is decided already")
    apply_command(trace, event.command)
    for approval in decided:
        approval.decided_by, approval.decided_at_utc = event.caller, event.at_utc
        approval.note, approval.command = event.note, event.command
        if isinstance(event, ev.ApprovalGranted):
            approval.status, approval.rest, approval.carried_from = "granted", event.rest, event.carried_from
            continue
        approval.status = "denied"
        if approval.of == "step" and trace.step_at(approval.path).status == "waiting":
            trace.step_at(approval.path).status = "denied"


def replace_requests(trace: RunTrace, round_: RoundTrace, after: Workflow) -> None:
    """Withdraws the open requests that are about a part of the round's plan which an edit to ``after`` changes."""
    before = round_.workflow
    for approval in trace.asked_for:
        if approval.of == "plan" and approval.path == round_.path:
            approval.status = "replaced"
        elif approval.path and approval.path[:-1] == round_.path and before is not None:
            index = approval.path[-1]
            if index >= len(after.steps) or after.steps[index] != before.steps[index]:
                approval.status = "replaced"


def deny(trace: RunTrace, event: ev.RunDenied) -> None:
    """Ends the run as denied. Steps that read a denied one, directly or not, are not run because of it."""
    trace.status, trace.ended_by = "denied", event.caller
    trace.error_code, trace.error = "Denied", event.error
    for round_ in trace.root.rounds():
        denied: dict[int, tuple[Path, ...]] = {
            step.index: (step.path,) for step in round_.steps if step.status == "denied"
        }
        for step in round_.steps:
            above = dict.fromkeys(path for read in step.reads for path in denied.get(read, ()))
            if step.status == "waiting" and above:
                step.because = denied[step.index] = tuple(above)


def fold(events: Iterable[Event]) -> RunTrace:
    """Returns the trace after ``events``, the first of which must be ``run.created``. Raises: ValueError."""
    trace: RunTrace | None = None
    for event in events:
        if trace is None:
            trace = begin(event)
        else:
            apply(trace, event)
    if trace is None:
        raise ValueError("no events: a trace begins with run.created")
    return trace


def begin(event: Event) -> RunTrace:
    """Returns the trace after its first event. Raises: ValueError if that is not ``run.created``."""
    if not isinstance(event, ev.RunCreated):
        raise ValueError(f"a trace begins with run.created, not {event.kind}")
    fields = _fields_of(event.request, RunTrace) | _fields_of(event, RunTrace)
    status = "queued" if event.queued else "running"
    return RunTrace(created_at_utc=event.at_utc, clock_zero_utc=event.at_utc, status=status, **fields)


def apply(trace: RunTrace, event: Event) -> None:
    """Changes ``trace`` by one event, in place.

    Raises, and leaves ``trace`` as it was: KeyError for a step or round that no earlier event opened; ValueError for a
        second ``run.created``.
    """
    if isinstance(event, ev.StepEvent):  # first: most events are
        _apply_step(trace, event)
    elif isinstance(event, ev.PlanEvent):
        _apply_plan(trace, event)
    elif isinstance(event, ev.FinalEvent):
        _apply_end(trace, event)
    elif isinstance(event, ev.ApprovalEvent):
        apply_approval(trace, event)
    elif isinstance(event, ev.ToolReturned):
        _apply_results(trace, event)
    elif isinstance(event, ev.ToolsListed):
        trace.listings = trace.listings | {event.listing.server: event}
    elif isinstance(event, ev.RunTaken):
        if trace.status not in AT_REST:
            raise ValueError("only a run that is queued or waits can be resumed")
        trace.status, trace.waiting_since_utc, trace.traces = "running", None, (*trace.traces, *event.traces)
        trace.clock_zero_utc = event.at_utc - timedelta(milliseconds=event.at_ms)
    elif isinstance(event, ev.TextRedacted):
        for each in event.taken_out:
            trace.redacted[each.what] = trace.redacted.get(each.what, 0) + each.count
    elif isinstance(event, ev.RunCreated):
        raise ValueError("run.created is only valid at the beginning")
    else:
        assert_never(event)
    trace.last_at_ms = max(trace.last_at_ms, event.at_ms)


def _apply_plan(trace: RunTrace, event: ev.PlanEvent) -> None:
    if isinstance(event, ev.PlanStarted) and event.round:
        opener = trace.step_at(event.round)
        if opener.round is None:
            opener.round = RoundTrace(path=event.round)
    round_ = trace.round_at(event.round)
    round_.progress = _still(round_.progress, event)
    match event:
        case ev.PlanProgress():
            round_.progress = event.progress
        case ev.PlanStarted():
            round_.status, round_.messages = "planning", event.messages
            round_.raw, round_.reasoning = "", ""
            round_.agents = event.agents
            round_.call_started_ms = event.at_ms
            if round_.started_ms is None:
                round_.started_ms = event.at_ms
        case ev.PlanDelta():
            if event.reasoning:
                round_.reasoning += event.text
                return
            if not round_.raw and round_.call_started_ms is not None:
                round_.first_token_ms = event.at_ms - round_.call_started_ms
            round_.raw += event.text
        case ev.PlanRetried():
            round_.retries.append(event)
            round_.raw, round_.reasoning, round_.first_token_ms = "", "", None
            round_.call_started_ms = event.at_ms + event.wait_ms
            _spend_on_plan(trace, round_, event)
        case ev.PlanRejected():
            round_.status = "rejected"
            round_.rejected.append(RejectedPlan(reasoning=round_.reasoning, **_fields_of(event, RejectedPlan)))
            _spend_on_plan(trace, round_, event)
        case ev.PlanCompleted():
            round_.source, round_.raw, round_.topology = event.source, event.raw, event.topology
            round_.repairs, round_.warnings, round_.considered = event.repairs, event.warnings, event.considered
            round_.departures = event.departures
            round_.precision = event.precision
            if event.first_token_ms is not None:
                round_.first_token_ms = event.first_token_ms
            _spend_on_plan(trace, round_, event)
            _set_workflow(trace, round_, event.workflow)
        case ev.PlanEdited():
            _apply_edit(trace, round_, event)
        case _:
            assert_never(event)


def _spend_on_plan(
    trace: RunTrace, round_: RoundTrace, event: ev.PlanCompleted | ev.PlanRetried | ev.PlanRejected
) -> None:
    if not isinstance(event, ev.PlanRetried) and event.precision is not None and trace.conductor is not None:
        # Which precision is quicker may have been found out only when the model was loaded.
        trace.conductor = trace.conductor.model_copy(update={"precision": event.precision})
    round_.duration_ms = (round_.duration_ms or 0.0) + event.duration_ms
    price = None if trace.conductor is None else trace.conductor.price
    for by in (round_, trace):
        _spend(by, event.usage, event.cost_usd, price, at_list_price=bool(event.at_list_price))


def _apply_edit(trace: RunTrace, round_: RoundTrace, event: ev.PlanEdited) -> None:
    """Raises: ValueError if the command was answered before, or if a step that has begun would differ."""
    begun = [step for step in round_.steps if step.status != "waiting"]
    for step in begun:
        after = event.after.steps[step.index] if step.index < len(event.after.steps) else None
        if after is None or dict(after) != {name: getattr(step, name) for name in Step.model_fields}:
            raise ValueError(f"step {label(step.path)} has begun, and the edit changes it")
    apply_command(trace, event.command)
    # Of several edits, the plan before the first is kept, to which no list of origins leads from the last.
    again = round_.before_edit is not None
    round_.edited_by, round_.edit_origins = event.caller, None if again else event.origins
    round_.before_edit = round_.before_edit or event.before
    round_.topology, round_.warnings = event.topology or round_.topology, event.warnings
    replace_requests(trace, round_, event.after)
    if event.command is not None and not round_.path:  # the request's own edit is in its numbers already
        trace.overrides = trace.overrides.moved(event.before, event.after, event.origins)
    _set_workflow(trace, round_, event.after)
    for step in begun:
        round_.steps[step.index] = step


def _set_workflow(trace: RunTrace, round_: RoundTrace, workflow: Workflow) -> None:
    simulated = {spec.name for spec in trace.pool.workers if spec.simulated}
    trace.workflow = None
    round_.workflow = workflow
    round_.status = "planned" if workflow.steps else "stopped"
    round_.steps = [
        StepTrace(
            path=(*round_.path, index),
            instruction=step.instruction,
            agent=step.agent,
            access_list=step.access_list,
            reads=workflow.reads(index),
            simulated=step.agent in simulated,
        )
        for index, step in enumerate(workflow.steps)
    ]


def _spend_on_step(
    trace: RunTrace, step: StepTrace, agent: str | None, usage: Usage, cost_usd: float | None, *, at_list_price: bool
) -> None:
    """``agent``: who was called; None: the step's own worker."""
    price = next((spec.price for spec in trace.pool.workers if spec.name == (agent or step.agent)), None)
    for by in (step, trace):
        _spend(by, usage, cost_usd, price, at_list_price=at_list_price)


def _spend(by: Paid, usage: Usage, cost_usd: float | None, price: Price | None, *, at_list_price: bool) -> None:
    by.usage += usage
    by.cost_at_most |= at_list_price and price is not None and price.is_bound(usage)
    by.cost_usd = sum_of_costs((by.cost_usd, cost_usd))
    by.known_usd += cost_usd or 0.0
    by.at_list_price |= at_list_price


def _still(known: Progress | None, event: Event) -> Progress | None:
    """Returns the progress that is still known after ``event``: text keeps that of a text, all else clears it."""
    if known is None:  # as nearly always
        return None
    return known if isinstance(event, ev.StepDelta | ev.PlanDelta) and known.writes else None


def _apply_step(trace: RunTrace, event: ev.StepEvent) -> None:
    step = trace.step_at(event.path)
    step.progress = _still(step.progress, event)
    match event:
        case ev.StepDelta():
            if step.first_token_ms is None and step.started_ms is not None:
                step.first_token_ms = event.at_ms - step.started_ms
            if event.reasoning:
                step.reasoning += event.text
            else:
                step.output += event.text
        case ev.StepProgress():
            step.progress = event.progress
        case ev.StepStarted():
            step.status, step.started_ms, step.identity = "running", event.at_ms, event.identity
            step.messages, step.granted, step.withheld = event.messages, event.granted, event.withheld
        case ev.StepRetried():
            step.attempts.append(event)
            step.output, step.reasoning, step.first_token_ms = "", "", None
            _spend_on_step(trace, step, event.agent, event.usage, event.cost_usd, at_list_price=bool(event.cost_usd))
        case ev.ToolCalled():
            turn = {name: getattr(event, name) for name in ("text", "calls", "ours", "agent", "usage", "cost_usd")}
            step.turns = (*step.turns, ToolTurn(called_ms=event.at_ms, called_at_utc=event.at_utc, **turn))
            step.output = ""
            _spend_on_step(trace, step, event.agent, event.usage, event.cost_usd, at_list_price=event.cost_estimated)
        case ev.ToolSent() | ev.ToolRan():
            _apply_tool(step, event)
        case ev.StepCompleted():
            step.status = event.ending
            _apply_answer(step, event)
            step.first_token_ms, step.duration_ms = event.first_token_ms, event.duration_ms
            by = event.answered_by
            _spend_on_step(trace, step, by, event.usage, event.cost_usd, at_list_price=event.cost_estimated)
        case ev.StepFailed():
            step.status, step.output, step.incomplete = "failed", event.partial, True
            step.error_code, step.error, step.duration_ms = event.error_code, event.error, event.duration_ms
            _spend_on_step(trace, step, step.asked, event.usage, event.cost_usd, at_list_price=bool(event.cost_usd))
        case _:
            _apply_unasked(step, event)


def _apply_unasked(
    step: StepTrace, event: ev.StepSkipped | ev.StepGiven | ev.StepReused | ev.RecursionEntered | ev.RecursionLeft
) -> None:
    """Applies an event of a step of which no worker is asked."""
    match event:
        case ev.StepSkipped():
            step.status, step.because = "skipped", event.because
        case ev.StepGiven():
            _apply_given(step, event)
        case ev.StepReused():
            _apply_reused(step, event)
        case ev.RecursionEntered() | ev.RecursionLeft():
            if step.round is None:
                step.round = RoundTrace(path=event.path)
        case _:
            assert_never(event)


def _apply_reused(step: StepTrace, event: ev.StepReused) -> None:
    step.status = "reused" if event.ending == "completed" else event.ending
    _apply_answer(step, event)
    step.identity, step.messages = event.identity, event.messages
    step.granted, step.withheld = event.granted, event.withheld
    step.usage, step.cost_usd, step.at_list_price = event.usage, event.cost_usd, event.cost_estimated
    step.known_usd = event.cost_usd or 0.0
    step.started_ms, step.duration_ms, step.turns = event.at_ms, event.duration_ms, event.turns
    step.reused_from = ReusedFrom(run_id=event.source_run_id, path=event.source_path, imported=event.source_imported)


def _apply_tool(step: StepTrace, event: ev.ToolSent | ev.ToolRan) -> None:
    """Raises: ValueError if the step's last turn has no such call that waits."""
    call_id = event.call_id if isinstance(event, ev.ToolSent) else event.result.call_id
    turn = step.turns[-1] if step.turns else None
    if turn is None or call_id not in turn.ours or all(call.call_id != call_id for call in turn.open_calls):
        raise ValueError(f"step {label(step.path)} has no open call {call_id} of a tool server")
    known = turn.ran_of(call_id)
    what = {"call_id": call_id, "server": event.server, "tool": event.tool, "effects": event.effects}
    if isinstance(event, ev.ToolSent):
        ran = ToolRun(**what, sent_at_utc=event.at_utc, sent_ms=event.at_ms)
    else:
        ended = {"outcome": event.outcome, "duration_ms": event.duration_ms, "size_bytes": event.size_bytes}
        ran = ToolRun(**what, **ended) if known is None else known.model_copy(update=ended)
    others = tuple(each for each in turn.ran if each.call_id != call_id)
    turn = turn.model_copy(update={"ran": (*others, ran)})
    if isinstance(event, ev.ToolRan):
        turn = _with_results(turn, (event.result,), event)
    step.turns = (*step.turns[:-1], turn)


def _with_results(turn: ToolTurn, results: Sequence[ToolResultPart], event: Event) -> ToolTurn:
    done = turn.with_results(results)
    if done.results is None:
        return done
    return done.model_copy(update={"returned_ms": event.at_ms, "returned_at_utc": event.at_utc})


def _apply_results(trace: RunTrace, event: ev.ToolReturned) -> None:
    """Raises: ValueError if the results are not those of the calls that the run waits for."""
    waiting = [step for step in trace.walk() if step.open_calls]
    called = sorted(call.call_id for step in waiting for call in step.open_calls)
    if not called or called != sorted(result.call_id for result in event.results):
        raise ValueError("these are not the results of the calls that the run waits for")
    apply_command(trace, event.command)
    results = {result.call_id: result for result in event.results}
    for step in waiting:
        brought = tuple(results[call.call_id] for call in step.open_calls)
        turn = _with_results(step.turns[-1], brought, event)
        step.turns = (*step.turns[:-1], turn.model_copy(update={"said": event.said, "anew": event.anew}))
    if event.client is not None:
        trace.client = event.client
    if (anew := event.anew) is not None:
        trace.system, trace.tools = anew.system, anew.tools
        trace.tool_choice, trace.rules = anew.tool_choice, anew.rules


def _apply_given(step: StepTrace, event: ev.StepGiven) -> None:
    given = step.given = event.given
    step.output, step.output_sha256, step.finish_reason = event.output, event.output_sha256, "stop"
    step.started_ms, step.duration_ms = event.at_ms, 0.0
    step.simulated = step.simulated and given.how == "pinned"
    if given.source_run_id is not None and given.source_path is not None:
        step.status = "reused"
        step.reused_from = ReusedFrom(
            run_id=given.source_run_id, path=given.source_path, imported=given.source_imported
        )
    else:
        step.status = "written"


def _apply_answer(step: StepTrace, event: ev.StepCompleted | ev.StepReused) -> None:
    step.output, step.output_sha256, step.answer_usage = event.output, event.output_sha256, event.usage
    step.finish_reason = event.finish_reason
    for name, value in _fields_of(event, ev.AnswerParts).items():
        setattr(step, name, value)
    if event.reasoning is not None:
        step.reasoning = event.reasoning


def _fields_of(event: Event | RunRequest, kind: type[BaseModel]) -> dict[str, Any]:
    """Returns the fields of ``event`` that ``kind`` keeps under the same names."""
    return {name: getattr(event, name) for name in _names_shared(type(event), kind)}


@cache
def _names_shared(source: type[BaseModel], kind: type[BaseModel]) -> tuple[str, ...]:
    """Looked up once for each two classes: what a model lacks it says slowly."""
    return tuple(name for name in kind.model_fields if name in source.model_fields or hasattr(source, name))


def _count_broken_off(trace: RunTrace, event: ev.FinalEvent) -> None:
    """Adds the calls that the end cut, by estimate, to the run's figures and to those of their steps and plans."""
    if event.usage.total_tokens <= trace.usage.total_tokens:
        return
    read = event.usage.input_tokens - trace.usage.input_tokens
    written = event.usage.output_tokens - trace.usage.output_tokens
    trace.broken_off = Usage(input_tokens=read, output_tokens=written, estimated=True)
    trace.usage, trace.cost_usd = event.usage, event.cost_usd
    known_usd = event.cost_usd if event.known_usd is None else event.known_usd
    if known_usd is not None:
        trace.at_list_price |= known_usd > trace.known_usd
        trace.broken_off_usd = known_usd - trace.known_usd
        trace.known_usd = known_usd
    parts: dict[Path, RoundTrace | StepTrace] = {
        step.path: step for step in trace.walk() if step.status == "running" and step.round is None and step.messages
    }
    parts |= {each.path: each for each in trace.root.rounds() if each.status == "planning" and each.messages}
    for call in event.broken_off if isinstance(event, ev.Spent) else ():
        if (part := parts.get(call.path)) is not None:
            _spend(part, call.usage, call.cost_usd, None, at_list_price=bool(call.cost_usd))


def _apply_end(trace: RunTrace, event: ev.FinalEvent) -> None:
    trace.last_at_ms = max(trace.last_at_ms, event.at_ms)
    _count_broken_off(trace, event)
    trace.waiting_since_utc, trace.traces_fault = None, event.traces_fault
    trace.duration_ms = trace.last_at_ms if isinstance(event, ev.RunInterrupted) else event.duration_ms
    match event:
        case ev.RunCompleted():
            trace.status = "planned" if trace.plan_only else event.ending
            trace.answer = event.answer
        case ev.RunFailed():
            trace.status, trace.error_code, trace.error = "failed", event.error_code, event.error
        case ev.RunCancelled():
            trace.last_command = max(trace.last_command, event.command or 0)
            trace.status, trace.ended_by = "cancelled", event.caller
        case ev.RunInterrupted():
            trace.status = "interrupted"
        case ev.RunDenied():
            deny(trace, event)
        case _:
            assert_never(event)
    for round_ in trace.root.rounds():
        round_.progress = None
        if round_.status == "planning":
            round_.status = "unfinished"
            if round_.call_started_ms is not None:
                last_ms = max(0.0, trace.last_at_ms - round_.call_started_ms)
                round_.duration_ms = (round_.duration_ms or 0.0) + last_ms
    for step in trace.walk():
        step.progress = None
        if step.status == "running":
            step.status, step.incomplete = "cancelled", True
            if step.started_ms is not None:
                step.duration_ms = max(0.0, trace.last_at_ms - step.started_ms)
        elif step.status == "waiting" and not trace.plan_only:
            step.status = "skipped"
