"""The events of a run, as a frozen tagged union. They are the only truth about a run.

The engine sends events to one ``EventSink``. Every reader (page, command line, export) folds them with
``conductor_core.run.trace``. A *path* names a step: ``(2,)`` is step 2 of the first round, ``(2, 0)`` step 0 of the
workflow that an inner Conductor wrote as step 2's answer. The path of a *round* is that of the step that opened it,
``()`` for the first round.
"""

import asyncio
import re
from datetime import UTC, datetime
from typing import Annotated, Literal, Protocol, Self, get_args

from pydantic import BaseModel, Field, NonNegativeFloat, NonNegativeInt, PositiveInt, TypeAdapter, model_validator

from conductor_core.chat.messages import (
    ConductorInfo,
    Departure,
    Ending,
    FinishReason,
    Message,
    OnIncomplete,
    Packed,
    ToolCall,
    ToolResultPart,
    Usage,
    Weights,
)
from conductor_core.chat.progress import Progress
from conductor_core.chat.tools import ToolListing, ToolOutcome
from conductor_core.run.actor import Caused
from conductor_core.run.request import ClientRequest, Given, RunRequest
from conductor_core.run.values import Alternatives, Imported, Path, PoolInfo, SharedOutput, ToldAnew, ToolTurn
from conductor_core.workflow.edits import Origins, require_fit
from conductor_core.workflow.model import Fault, Frozen, Workflow

# What all events have.


def now_utc() -> datetime:
    return datetime.now(UTC)


class RunEvent(Frozen):
    """Attributes: at_utc: wall clock. at_ms: milliseconds that the run has run, by a monotonic clock. This clock stands
    while the run is queued or waits."""

    run_id: str
    at_utc: datetime = Field(default_factory=now_utc)
    at_ms: NonNegativeFloat = 0.0


class BrokenOff(Frozen):
    """A call that the end of its run cut, by estimate. ``cost_usd`` None: its price is unknown.

    ``path``: of its step; of a plan, that of the round, whose step makes no other call.
    """

    path: Path
    usage: Usage
    cost_usd: float | None = None


class Spent(RunEvent):
    """The end of a run, with all that it spent. ``known_usd``: of what has a price.

    ``broken_off``: the calls that this end cut, which are in the totals.
    ``traces_fault``: why the receiver of OpenTelemetry traces did not take all spans that had ended; empty: it did.
    """

    usage: Usage = Usage()
    cost_usd: float | None = None
    known_usd: float | None = None
    broken_off: tuple[BrokenOff, ...] = ()
    traces_fault: str = ""


# Approvals: evidence of what was asked and decided, who decided and when.

ApprovalOf = Literal["plan", "step", "conductor", "tool"]
"""What an approval admits: a plan to be carried out, a step to be called, or the Conductor to be asked."""


class HeldBack(BaseModel):
    """What a gate holds back.

    Attributes:
        number: counts the requests of this run, from 1.
        path: the step, also for ``tool``; for ``plan`` and ``conductor`` the round, ``()`` for the first.
        rules: the gates that ask for it, as in ``run.created``.
        identity: digest of what would be carried out: of a step as in ``step.started``, of a call of a tool the id of
            the call, else of the plan or the task.
        agent, messages: who would be sent what; empty for a plan. For ``tool`` the tool's name, and its call.
        most: the highest number of tokens that it can use, by estimate. most_usd: its cost; None: unknown.
    """

    number: PositiveInt
    of: ApprovalOf
    path: Path
    rules: tuple[str, ...]
    identity: str
    agent: str = ""
    messages: tuple[Message, ...] = ()
    most: Usage = Usage(estimated=True)
    most_usd: float | None = None


class ApprovalRequested(RunEvent, HeldBack):
    kind: Literal["approval.requested"] = "approval.requested"


class ApprovalGranted(RunEvent, Caused):
    """Somebody granted the requests ``numbers``.

    Attributes:
        rest: whether this opens all gates of the run from now on.
        command: id of the command that said so; None if the approval is taken over from another run.
        carried_from: the interrupted run in which the same was granted already.
    """

    kind: Literal["approval.granted"] = "approval.granted"
    numbers: tuple[PositiveInt, ...]
    rest: bool = False
    note: str = ""
    command: int | None = None
    carried_from: str | None = None


class ApprovalDenied(RunEvent, Caused):
    """Somebody denied the requests ``numbers``. No step begins any more, and the run ends denied."""

    kind: Literal["approval.denied"] = "approval.denied"
    numbers: tuple[PositiveInt, ...]
    note: str = ""
    command: int | None = None


class CommandRefused(RunEvent, Caused):
    """A command changed nothing. ``asked``: its kind. ``reason``: why, in a sentence.

    ``unproven``: no machine that may act has sent it, so that somebody wrote it into the database by hand.
    """

    kind: Literal["command.refused"] = "command.refused"
    command: int
    asked: str
    reason: str
    unproven: bool = False


class RunWaiting(RunEvent):
    """Nothing of the run can go on until somebody decides, or the client's tools return. No process holds it, and its
    clock is stopped."""

    kind: Literal["run.waiting"] = "run.waiting"
    waits_for: Literal["approval", "tool_results"] = "approval"


class RunDenied(Spent, Caused):
    """Ends a run whose approval was denied. ``error`` says who denied it and why."""

    kind: Literal["run.denied"] = "run.denied"
    error: str = ""
    duration_ms: NonNegativeFloat = 0.0


class ToolReturned(RunEvent, Caused):
    """The client's tools returned: of all calls for which the run waited. Each result goes to the step that called.

    Attributes:
        said: what the client added; every such step is told it.
        anew: what it tells the run anew; None: nothing.
        command: id of the command that brought them. client: the request that did.
    """

    kind: Literal["tool.returned"] = "tool.returned"
    results: tuple[ToolResultPart, ...]
    said: str = ""
    anew: ToldAnew | None = None
    command: int | None = None
    client: ClientRequest | None = None


ApprovalEvent = ApprovalRequested | ApprovalGranted | ApprovalDenied | CommandRefused | RunWaiting


# Ends. ``RunDenied`` ends a run, too.


class RunCompleted(RunEvent):
    """``answer`` is the last step's output; None after *Plan only*. Totals hold what this run itself spent.

    ``known_usd``, ``traces_fault``: see ``Spent``. ``ending`` is that of the last step's answer.
    """

    kind: Literal["run.completed"] = "run.completed"
    answer: str | None
    usage: Usage
    cost_usd: float | None
    known_usd: float | None = None
    duration_ms: NonNegativeFloat
    ending: Ending = "completed"
    traces_fault: str = ""


class RunFailed(Spent):
    kind: Literal["run.failed"] = "run.failed"
    error_code: str
    error: str
    duration_ms: NonNegativeFloat = 0.0


class RunCancelled(Spent, Caused):
    kind: Literal["run.cancelled"] = "run.cancelled"
    command: int | None = None
    duration_ms: NonNegativeFloat = 0.0


class RunInterrupted(Spent):
    """Ends a run whose process is gone. Running calls count by estimate."""

    kind: Literal["run.interrupted"] = "run.interrupted"


# Outputs by hand, and redaction.


class StepGiven(RunEvent):
    """A person gave the step's output: the request's ``overrides`` hold it. Nothing was asked, seen or paid."""

    kind: Literal["step.given"] = "step.given"
    path: Path
    agent: str
    output: str
    output_sha256: str
    given: Given


class TakenOut(Frozen):
    """Passages of one kind.

    Attributes:
        what: ``secrets`` are configured keys; else as in ``conductor_core.privacy.detectors``.
        count: how many there were.
        digests: of each, in order, by a key that is not in the database. Empty if no digests are asked for.
    """

    what: Literal["secrets", "keys", "cards", "mail", "phones", "names"]
    count: PositiveInt
    digests: tuple[str, ...] = ()


class TextRedacted(RunEvent):
    """Passages were hidden in another event, which follows; in ``run.created``, which is before it.

    ``of``: the kind of that event. Streamed text is counted once, in the event that ends it.
    """

    kind: Literal["text.redacted"] = "text.redacted"
    of: str
    taken_out: tuple[TakenOut, ...]


class TracesTo(Frozen):
    """Where the program sent OpenTelemetry traces of a run.

    Attributes:
        host: of the receiver, with the port that its address names.
        contents: whether the traces held what people and models wrote; else only names and figures.
    """

    host: str
    contents: bool


class RunCreated(RunEvent):
    """The whole request, with the Conductor and the pool as they are now.

    Attributes:
        queued: it waits for a process that carries it out.
        on_incomplete: what happens to a step whose answer is incomplete.
        give_question: whether every step receives the task, even if its instruction lacks ``{question}``.
        imported: where the run came from, if this database did not carry it out; None: it did.
        traces: where traces of the run were to be sent as it began; empty: nowhere.
    """

    kind: Literal["run.created"] = "run.created"
    request: RunRequest
    conductor: ConductorInfo | None
    pool: PoolInfo
    simulated: bool
    app_version: str
    queued: bool = False
    on_incomplete: OnIncomplete = "allow"
    give_question: bool = False
    imported: Imported | None = None
    traces: tuple[TracesTo, ...] = ()


class RunTaken(RunEvent):
    """A process begins to carry out a run that was queued, or waited. ``traces``: where it sends traces of the run."""

    kind: Literal["run.taken"] = "run.taken"
    traces: tuple[TracesTo, ...] = ()


class PlanStarted(RunEvent):
    """``agents``: the workers' names by ordinal (``model_id``), None for an ordinal without a worker."""

    kind: Literal["plan.started"] = "plan.started"
    round: Path = ()
    attempt: int = 1
    messages: tuple[Message, ...]
    agents: tuple[str | None, ...] = ()


class PlanDelta(RunEvent):
    """Streamed text, collected. ``reasoning``: whether it is reasoning, which is not part of the completion."""

    kind: Literal["plan.delta"] = "plan.delta"
    round: Path = ()
    text: str
    reasoning: bool = False


class PlanCall(RunEvent):
    """What one call of the Conductor came to.

    Attributes:
        cost_usd: what it adds to the run's cost; None if the Conductor's price is unknown.
        at_list_price: whether the cost is computed from the Conductor's price, and is not the provider's own figure.
            None of a given plan.
    """

    round: Path = ()
    usage: Usage = Usage()
    cost_usd: float | None = 0.0
    at_list_price: bool | None = None
    duration_ms: NonNegativeFloat = 0.0


class PlanRead(PlanCall):
    """A completion that was read.

    Attributes:
        repairs: what the parser repaired, in sentences.
        precision: how the Conductor's weights were packed, if they were.
        departures: as in ``StepCompleted``.
    """

    repairs: tuple[str, ...] = ()
    precision: Packed | None = None
    departures: tuple[Departure, ...] = ()


class PlanCompleted(PlanRead):
    """A usable plan.

    Attributes:
        source: who wrote it. A given plan (``file``, ``parent``) has an empty ``raw`` and no usage.
        considered: what else the Conductor could have chosen; empty if its model does not tell.
    """

    kind: Literal["plan.completed"] = "plan.completed"
    source: Literal["conductor", "file", "parent"]
    raw: str = ""
    workflow: Workflow
    topology: str
    warnings: tuple[Fault, ...] = ()
    considered: tuple[Alternatives, ...] = ()
    first_token_ms: float | None = None


class PlanRetried(PlanCall):
    """A call of the Conductor failed, and the next one writes the plan from its beginning.

    Attributes:
        partial: what had been written. It is kept here and removed from the plan.
        usage: estimated, if anything had been written.
        loading: the server was loading its model. Waiting for it is no new call.
    """

    kind: Literal["plan.retried"] = "plan.retried"
    attempt: int = 1
    error_code: str
    error: str
    wait_ms: NonNegativeFloat
    partial: str = ""
    loading: bool = False


class PlanRejected(PlanRead):
    """A completion that is no usable plan."""

    kind: Literal["plan.rejected"] = "plan.rejected"
    attempt: int = 1
    raw: str
    faults: tuple[Fault, ...]
    will_retry: bool


class PlanEdited(RunEvent, Caused):
    """A person (or a script) changed the plan before it was carried out. Topology and warnings are of ``after``.

    ``origins`` says which step of ``before`` each step of ``after`` is; None if that is unknown.
    ``command``: id of the command that asked for it while the run waited; None: it came with the request.
    """

    kind: Literal["plan.edited"] = "plan.edited"
    round: Path = ()
    before: Workflow
    after: Workflow
    origins: Origins | None = None
    topology: str | None = None
    warnings: tuple[Fault, ...] = ()
    command: int | None = None

    @model_validator(mode="after")
    def _origins_fit(self) -> Self:
        if self.origins is not None:
            require_fit(self.before, self.after, self.origins)
        return self


class Sent(BaseModel):
    """What a step sees.

    Attributes:
        identity: digest of what determines the answer (agent, parameters, exact messages).
        messages: exactly what is sent; empty for a recursive step, whose prompt is in its ``plan.started``.
        granted, withheld: the earlier outputs of this round that are, and are not, in the messages.
    """

    agent: str
    identity: str
    messages: tuple[Message, ...]
    granted: tuple[SharedOutput, ...] = ()
    withheld: tuple[SharedOutput, ...] = ()


class StepStarted(RunEvent, Sent):
    """A step is about to call its worker. The event is durable before a byte leaves for the provider."""

    kind: Literal["step.started"] = "step.started"
    path: Path


class StepDelta(RunEvent):
    """Streamed text, collected. ``output_tokens``: received so far in this attempt, estimated while it runs."""

    kind: Literal["step.delta"] = "step.delta"
    path: Path
    text: str
    reasoning: bool = False
    output_tokens: NonNegativeInt = 0


class PlanProgress(RunEvent):
    """How far a Conductor in this process is, sent a few times a second at most. A record may lack it."""

    kind: Literal["plan.progress"] = "plan.progress"
    round: Path = ()
    progress: Progress


class StepProgress(RunEvent):
    """Like ``PlanProgress``, for a worker in this process."""

    kind: Literal["step.progress"] = "step.progress"
    path: Path
    progress: Progress


class StepRetried(RunEvent):
    """An attempt failed or brought an incomplete answer, and another follows.

    Attributes:
        error_code, error: why; for an incomplete answer its ``ending``, and the same in words.
        partial: what had arrived. It is kept here and removed from the output.
        agent: the worker that was asked; None for the step's own.
        then: what follows: the same worker ``again``, the same with ``more_tokens``, or another one (``fallback``).
            ``kept``: no call follows, and the answer of an earlier one is kept.
        then_agent: the worker that is asked next; None for the step's own.
        then_max_tokens: its token limit, if that is not the pool's.
        refusal, tool_calls: as in ``StepCompleted``.
        loading: the server was loading its model. Waiting for it is no new attempt.
        correction: what the worker is told after ``partial``, so that it writes the answer in the form asked for;
            empty: it is asked the same again.
    """

    kind: Literal["step.retried"] = "step.retried"
    path: Path
    attempt: int
    error_code: str
    error: str
    wait_ms: NonNegativeFloat
    partial: str = ""
    usage: Usage = Usage()
    cost_usd: float | None = 0.0
    agent: str | None = None
    then: Literal["again", "more_tokens", "fallback", "kept"] = "again"
    then_agent: str | None = None
    then_max_tokens: int | None = None
    refusal: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    loading: bool = False
    correction: str = ""


class ToolsListed(RunEvent):
    """What a tool server of the pool offered, before the first step that may call it is asked.

    A server is listed again only if it could not be reached before. ``recorded``: the tools are those of the run whose
    answers this one reuses. Then the listing's fault says that the server cannot be reached, so that none of them can
    be called; without a fault the run resumes that one, and the server was not asked again.
    """

    kind: Literal["tools.listed"] = "tools.listed"
    listing: ToolListing
    recorded: bool = False


class ToolSent(RunEvent):
    """A call is about to leave for a tool server of the pool. The event is durable before a byte leaves.

    ``server``, ``tool``: by the server's own names. ``effects``: whether the tool changes something.
    """

    kind: Literal["tool.sent"] = "tool.sent"
    path: Path
    call_id: str
    server: str
    tool: str
    effects: bool


class ToolRan(RunEvent):
    """What became of a call of a tool server: sent before, or never (``chat.tools.NOT_SENT``).

    ``result``: as the worker is told it. ``duration_ms``: since it was sent. ``size_bytes``: of the whole result.
    """

    kind: Literal["tool.ran"] = "tool.ran"
    path: Path
    server: str
    tool: str
    effects: bool
    outcome: ToolOutcome
    result: ToolResultPart
    duration_ms: NonNegativeFloat = 0.0
    size_bytes: NonNegativeInt = 0


class ToolCalled(RunEvent):
    """A worker called tools instead of answering. It is durable before a call leaves.

    Attributes:
        text: what the worker said beside. reasoning: all of it, if some came as text; None: it came apart.
        calls: with their ids. ours: the ids of those that tool servers of the pool carry out; the client brings the
            results of all others.
        agent: who was asked; None: the step's own worker.
        cost_estimated: as in ``Answered``.
    """

    kind: Literal["tool.called"] = "tool.called"
    path: Path
    text: str = ""
    reasoning: str | None = None
    calls: tuple[ToolCall, ...]
    ours: tuple[str, ...] = ()
    agent: str | None = None
    model: str | None = None
    usage: Usage = Usage()
    cost_usd: float | None = 0.0
    cost_estimated: bool = False
    departures: tuple[Departure, ...] = ()
    weights: Weights | None = None


class AnswerParts(BaseModel):
    """What is known of an answer, in its event and in the trace of its step.

    Attributes:
        incomplete: the provider ended the answer for another reason than being done (``length``, ...).
        ending: how the answer ended.
        refusal: what was said instead of an answer. tool_calls: tools that the model called; none of them is run.
        answered_by: the worker that answered instead of the step's own; None for its own.
        passed_on: whether steps that read this one get its output, if that is incomplete.
        departures: how the call or its answer departed from what was asked for.
        weights: the model that answered, where this program opened its file.
        stop_text: the text of the client before which the answer ended; None: it ended by itself, or nobody says.
    """

    incomplete: bool = False
    model: str | None = None
    ending: Ending = "completed"
    refusal: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    answered_by: str | None = None
    passed_on: bool = True
    departures: tuple[Departure, ...] = ()
    weights: Weights | None = None
    stop_text: str | None = None


class Answered(RunEvent, AnswerParts):
    """The answer of a step.

    Attributes:
        cost_usd: None if the price is unknown.
        cost_estimated: whether the cost is computed from the pool's price, and is not the provider's own figure.
    """

    path: Path
    output: str
    output_sha256: str
    finish_reason: FinishReason
    usage: Usage
    cost_usd: float | None = None
    cost_estimated: bool = False


class StepCompleted(Answered):
    """A step has its answer. The event is durable before any step that reads it starts.

    Attributes:
        first_token_ms, duration_ms: since this step started.
        reasoning: all of it, where text that came as the answer turned out to be reasoning; None: as it came.
    """

    kind: Literal["step.completed"] = "step.completed"
    attempts: int = 1
    first_token_ms: float | None = None
    duration_ms: NonNegativeFloat
    reasoning: str | None = None


class StepFailed(RunEvent):
    kind: Literal["step.failed"] = "step.failed"
    path: Path
    error_code: str
    error: str
    partial: str = ""
    attempts: int = 1
    usage: Usage = Usage()
    cost_usd: float | None = 0.0
    duration_ms: NonNegativeFloat = 0.0


class StepSkipped(RunEvent):
    """The step did not run. ``because`` names the failed steps above it; it is empty if the run itself stopped."""

    kind: Literal["step.skipped"] = "step.skipped"
    path: Path
    because: tuple[Path, ...] = ()


class StepReused(Answered, Sent):
    """The recorded answer of an identical step is used. Nothing was sent, and nothing is paid.

    Attributes:
        usage, cost_usd: what it cost where it ran, which this run's totals do not include.
        source_run_id, source_path: where it *ran* (not merely where it was reused last).
        source_imported: whether that run came as a file.
        ending: always ``completed``, unless an interrupted run is resumed.
        reasoning: what the model thought where it ran.
        turns: those in which it called tools there, with what they brought.
    """

    kind: Literal["step.reused"] = "step.reused"
    source_run_id: str
    source_path: Path
    source_imported: bool = False
    duration_ms: NonNegativeFloat = 0.0
    reasoning: str = ""
    turns: tuple[ToolTurn, ...] = ()


class RecursionEntered(RunEvent):
    kind: Literal["recursion.entered"] = "recursion.entered"
    path: Path
    depth: int


class RecursionLeft(RunEvent):
    """``answered``: the inner workflow gave it; ``stopped``: with three empty lists the previous response is kept."""

    kind: Literal["recursion.left"] = "recursion.left"
    path: Path
    how: Literal["answered", "stopped", "failed"]


PlanEvent = PlanStarted | PlanDelta | PlanProgress | PlanCompleted | PlanRetried | PlanRejected | PlanEdited
"""Events of the planning of one round, ``round``."""

StepEvent = (
    StepStarted
    | StepDelta
    | StepProgress
    | StepRetried
    | ToolCalled
    | ToolSent
    | ToolRan
    | StepCompleted
    | StepFailed
    | StepSkipped
    | StepReused
    | StepGiven
    | RecursionEntered
    | RecursionLeft
)
"""Events of one step, ``path``."""

FinalEvent = RunCompleted | RunFailed | RunCancelled | RunInterrupted | RunDenied
"""The last event of a run."""

Event = (
    RunCreated
    | RunTaken
    | TextRedacted
    | PlanEvent
    | StepEvent
    | ApprovalEvent
    | ToolsListed
    | ToolReturned
    | FinalEvent
)

EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="kind")])
"""Parses an event from JSON; ``event.model_dump_json()`` is its inverse."""

VOCABULARY = 8
"""The version of these events; 1 in databases of schema 0001. It grows with each release that adds a kind of event or a
field. Each run records it, so that an older program can tell a run of a newer version from a damaged one."""


def _kinds(union: object) -> frozenset[str]:
    return frozenset(str(each.model_fields["kind"].default) for each in get_args(union))


KINDS = _kinds(Event)
FINAL_KINDS = _kinds(FinalEvent)


class EventSink(Protocol):
    """Takes events. It keeps the events of one run in the order of the calls of both methods."""

    def append(self, *events: Event) -> "asyncio.Future[None]":
        """Takes the events at once, and returns a future that is done when they are durable.

        Raises, when awaited: StoreError; then none of *these* events was kept.
        """

    def append_and_wait(self, *events: Event) -> None:
        """``append`` for a thread without an event loop: returns when the events are durable. Raises: StoreError."""


# What in an event a program reads, and what people and models wrote.

_STRUCTURE = """
kind run_id source_run_id parent_run_id taken_up carried_from at_utc created_at_utc identity sha256 output_sha256
called_at_utc returned_at_utc sent_at_utc prompt_sha256 media_type role source provider status topology finish_reason
ending then how door of error_code app_version code field device dtype precision usd_per_mtok api_key_env token_env
accepts on_incomplete gates rules outcome
"""
STRUCTURE_FIELDS = frozenset(_STRUCTURE.split())
"""Fields that a program reads and no model writes."""
_CALL_ID = re.compile(r"call_[0-9a-f]{28}_[0-9]{1,9}")
"""What ``tool_call_id`` makes. Events and approvals of a call are found by it, so it is kept."""


def is_call_id(text: str) -> bool:
    return bool(_CALL_ID.fullmatch(text))


def is_structure(name: str, value: object) -> bool:
    """Whether a program reads the value of the field ``name``, and no person or model wrote it."""
    if name == "ours":
        return isinstance(value, list) and all(is_structure("call_id", each) for each in value)
    return name in STRUCTURE_FIELDS or (name == "call_id" and isinstance(value, str) and is_call_id(value))


FREE_FIELDS = frozenset(["params", "parameters", "json_schema", "echoed"])
"""Fields whose inside is a person's own: no name in there is one of ours."""


def place_of(event: Event) -> tuple[object, ...]:
    """Returns which text an event adds to or ends: of a step, or of a plan."""
    if (path := getattr(event, "path", None)) is not None:
        return ("step", path)
    if (round_ := getattr(event, "round", None)) is not None:
        return ("plan", round_)
    return ()
