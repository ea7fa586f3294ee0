"""Everything that can happen in a run, as a frozen tagged union: the only truth about a run.

The engine emits events to one ``EventSink``; every reader (page, command line, export) folds them with
``conductor_core.trace``. A step is addressed by its *path*: ``(2,)`` is step 2 of the first round, ``(2, 0)`` step 0 of
the workflow that an inner Conductor wrote as step 2's answer. A *round* is addressed by the path of the step that
opened it, the first round by ``()``.
"""

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Literal, Protocol, Self, get_args

from pydantic import Field, NonNegativeFloat, NonNegativeInt, TypeAdapter, model_validator

from conductor_core.actor import Caused
from conductor_core.chat import ConductorInfo, FinishReason, Message, ToolCall, Usage
from conductor_core.endings import Ending, OnIncomplete
from conductor_core.progress import Progress
from conductor_core.run_facts import BatchRow as BatchRow
from conductor_core.run_facts import Limits as Limits
from conductor_core.run_facts import Path as Path
from conductor_core.run_facts import PoolInfo as PoolInfo
from conductor_core.run_facts import SharedOutput as SharedOutput
from conductor_core.run_request import RunRequest as RunRequest
from conductor_core.run_request import read_flat
from conductor_core.workflow.changes import Origins, require_fit
from conductor_core.workflow.model import Fault, Frozen, Workflow


def now_utc() -> datetime:
    return datetime.now(UTC)


class _Event(Frozen):
    """Attributes: at_utc: wall clock; at_ms: monotonic milliseconds since the run was created."""

    run_id: str
    at_utc: datetime = Field(default_factory=now_utc)
    at_ms: NonNegativeFloat = 0.0


class RunCreated(_Event):
    """The request, whole, and what it came to: the Conductor and the pool as they are now.

    Attributes:
        on_incomplete: what happens to a step whose answer is no whole one.
        give_question: whether every step was told the task, also one whose instruction does not say ``{question}``.
    """

    kind: Literal["run.created"] = "run.created"
    request: RunRequest
    conductor: ConductorInfo | None
    pool: PoolInfo
    simulated: bool
    app_version: str
    on_incomplete: OnIncomplete = "allow"
    give_question: bool = False

    _flat = model_validator(mode="before")(read_flat)


class PlanStarted(_Event):
    """``agents``: the names that the ordinals of ``model_id`` stand for, None for one that nobody has; empty in records
    from before this was recorded: the pool's own order."""

    kind: Literal["plan.started"] = "plan.started"
    round: Path = ()
    attempt: int = 1
    messages: tuple[Message, ...]
    agents: tuple[str | None, ...] = ()


class PlanDelta(_Event):
    """Coalesced streamed text. ``reasoning``: the Conductor's, which is no part of its completion."""

    kind: Literal["plan.delta"] = "plan.delta"
    round: Path = ()
    text: str
    reasoning: bool = False


class PlanCompleted(_Event):
    """A usable plan. ``repairs`` says what the parser had to mend, in sentences; empty: nothing.

    ``source``: who wrote it. A given plan (``file``, ``parent``) has ``raw`` empty and no usage.

    Attributes:
        cost_usd: what it adds to the run's cost, None: the Conductor's price is unknown. Records from before this was
            recorded add nothing, as the totals at their end say.
        at_list_price: it is the Conductor's price of the tokens, not the provider's own figure. None: from before this
            was recorded.
    """

    kind: Literal["plan.completed"] = "plan.completed"
    round: Path = ()
    source: Literal["conductor", "file", "parent"]
    raw: str = ""
    workflow: Workflow
    topology: str
    repairs: tuple[str, ...] = ()
    warnings: tuple[Fault, ...] = ()
    usage: Usage = Usage()
    cost_usd: float | None = 0.0
    at_list_price: bool | None = None
    first_token_ms: float | None = None
    duration_ms: NonNegativeFloat = 0.0


class PlanRetried(_Event):
    """A call of the Conductor failed and another follows, which writes the plan from its beginning.

    Attributes:
        partial: what had been written: kept here, cleared from the plan.
        usage: by estimate, if anything had been written; ``cost_usd`` and ``at_list_price`` as in
            ``plan.completed``.
        loading: the server was loading its model: what follows is waited for, and is no new call.
    """

    kind: Literal["plan.retried"] = "plan.retried"
    round: Path = ()
    attempt: int = 1
    error_code: str
    error: str
    wait_ms: NonNegativeFloat
    partial: str = ""
    usage: Usage = Usage()
    cost_usd: float | None = 0.0
    at_list_price: bool | None = None
    duration_ms: NonNegativeFloat = 0.0
    loading: bool = False


class PlanRejected(_Event):
    """A completion that is no usable plan; ``cost_usd`` and ``at_list_price`` as in ``plan.completed``."""

    kind: Literal["plan.rejected"] = "plan.rejected"
    round: Path = ()
    attempt: int = 1
    raw: str
    faults: tuple[Fault, ...]
    repairs: tuple[str, ...] = ()
    usage: Usage = Usage()
    cost_usd: float | None = 0.0
    at_list_price: bool | None = None
    duration_ms: NonNegativeFloat = 0.0
    will_retry: bool


class PlanEdited(_Event, Caused):
    """A person (or a script) changed the plan before this run executed it. Topology and warnings are of ``after``.

    ``origins``: which step of ``before`` each step of ``after`` is; None: not known, as in records from before this
    was recorded.
    """

    kind: Literal["plan.edited"] = "plan.edited"
    round: Path = ()
    before: Workflow
    after: Workflow
    origins: Origins | None = None
    topology: str | None = None
    warnings: tuple[Fault, ...] = ()

    @model_validator(mode="after")
    def _origins_fit(self) -> Self:
        if self.origins is not None:
            require_fit(self.before, self.after, self.origins)
        return self


class StepStarted(_Event):
    """Durable before a byte leaves for the provider.

    Attributes:
        identity: digest of what determines the answer (agent, parameters, exact messages).
        messages: exactly what is sent; empty for a recursive step, whose prompt is in its ``plan.started``.
        granted, withheld: the earlier outputs of this round that are, and are not, in the messages.
    """

    kind: Literal["step.started"] = "step.started"
    path: Path
    agent: str
    identity: str
    messages: tuple[Message, ...]
    granted: tuple[SharedOutput, ...] = ()
    withheld: tuple[SharedOutput, ...] = ()


class StepDelta(_Event):
    """Coalesced streamed text. ``output_tokens``: tokens received so far in this attempt, estimated while it runs."""

    kind: Literal["step.delta"] = "step.delta"
    path: Path
    text: str
    reasoning: bool = False
    output_tokens: NonNegativeInt = 0


class PlanProgress(_Event):
    """How far a Conductor in this process is. Told a few times a second at most; a record does without it."""

    kind: Literal["plan.progress"] = "plan.progress"
    round: Path = ()
    progress: Progress


class StepProgress(_Event):
    """Like ``PlanProgress``, for a worker in this process."""

    kind: Literal["step.progress"] = "step.progress"
    path: Path
    progress: Progress


class StepRetried(_Event):
    """An attempt failed, or brought no whole answer, and another follows.

    Attributes:
        error_code, error: why; of an answer that is no whole one its ``ending``, and that in words.
        partial: what had arrived: kept here, cleared from the output.
        agent: the worker that was asked; None: the step's own.
        then: what follows: the same worker ``again``, the same with ``more_tokens``, another one, a ``fallback``; or
            nothing: what an earlier call brought is ``kept`` as it is.
        then_agent: the worker that is asked next; None: the step's own.
        then_max_tokens: with which limit, where it is another than the pool's.
        refusal, tool_calls: as in ``StepCompleted``.
        loading: the server was loading its model: what follows is waited for, and is no new attempt.
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


class StepCompleted(_Event):
    """Durable before any descendant starts.

    Attributes:
        incomplete: the provider ended the answer for another reason than being done (``length``, ...).
        cost_usd: None: the price is unknown.
        cost_estimated: it is the pool's price of the tokens, not the provider's own figure.
        first_token_ms, duration_ms: since this step started.
        ending: what the answer came to; in records from before this was recorded ``completed``, whatever it was.
        refusal: what was said in the place of an answer. tool_calls: what was called; nothing calls them here.
        answered_by: the worker that answered in the place of the step's own; None: its own.
        passed_on: whether steps that read this one get its output, if it is no whole answer.
    """

    kind: Literal["step.completed"] = "step.completed"
    path: Path
    output: str
    output_sha256: str
    finish_reason: FinishReason
    incomplete: bool = False
    usage: Usage
    cost_usd: float | None = None
    cost_estimated: bool = False
    model: str | None = None
    attempts: int = 1
    first_token_ms: float | None = None
    duration_ms: NonNegativeFloat
    ending: Ending = "completed"
    refusal: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    answered_by: str | None = None
    passed_on: bool = True


class StepFailed(_Event):
    kind: Literal["step.failed"] = "step.failed"
    path: Path
    error_code: str
    error: str
    partial: str = ""
    attempts: int = 1
    usage: Usage = Usage()
    cost_usd: float | None = 0.0
    duration_ms: NonNegativeFloat = 0.0


class StepSkipped(_Event):
    """The step did not run: ``because`` names the failed steps above it, or is empty when the run itself stopped."""

    kind: Literal["step.skipped"] = "step.skipped"
    path: Path
    because: tuple[Path, ...] = ()


class StepReused(_Event):
    """The recorded answer of an identical step stands in; nothing was sent and nothing is paid.

    Attributes:
        usage, cost_usd: what it cost where it ran; not added to this run's totals.
        source_run_id, source_path: where it *ran* (not merely where it was reused last).
        ending, refusal, tool_calls, answered_by, passed_on: as in ``StepCompleted``; another ending than ``completed``
            only where an interrupted run is taken up.
        reasoning: what the model thought where it ran; empty in records from before this was recorded.
    """

    kind: Literal["step.reused"] = "step.reused"
    path: Path
    agent: str
    identity: str
    messages: tuple[Message, ...]
    granted: tuple[SharedOutput, ...] = ()
    withheld: tuple[SharedOutput, ...] = ()
    source_run_id: str
    source_path: Path
    output: str
    output_sha256: str
    finish_reason: FinishReason
    incomplete: bool = False
    usage: Usage
    cost_usd: float | None = None
    cost_estimated: bool = False
    model: str | None = None
    duration_ms: NonNegativeFloat = 0.0
    ending: Ending = "completed"
    refusal: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    answered_by: str | None = None
    passed_on: bool = True
    reasoning: str = ""


class RecursionEntered(_Event):
    kind: Literal["recursion.entered"] = "recursion.entered"
    path: Path
    depth: int


class RecursionLeft(_Event):
    """``answered``: the inner workflow's answer; ``stopped``: three empty lists, the previous response stands."""

    kind: Literal["recursion.left"] = "recursion.left"
    path: Path
    how: Literal["answered", "stopped", "failed"]


class RunCompleted(_Event):
    """``answer`` is the last step's output; None after *Plan only*. Totals hold what this run itself spent.

    ``known_usd``, at every end: of what has a price; None in records from before this was recorded.
    ``ending``: what the last step's answer came to; in records from before this was recorded ``completed``.
    """

    kind: Literal["run.completed"] = "run.completed"
    answer: str | None
    usage: Usage
    cost_usd: float | None
    known_usd: float | None = None
    duration_ms: NonNegativeFloat
    ending: Ending = "completed"


class _Spent(_Event):
    usage: Usage = Usage()
    cost_usd: float | None = None
    known_usd: float | None = None


class RunFailed(_Spent):
    kind: Literal["run.failed"] = "run.failed"
    error_code: str
    error: str
    duration_ms: NonNegativeFloat = 0.0


class RunCancelled(_Spent, Caused):
    kind: Literal["run.cancelled"] = "run.cancelled"
    duration_ms: NonNegativeFloat = 0.0


class RunInterrupted(_Spent):
    """Written by whoever finds a run whose process is gone. Calls that were on count by estimate, in old ones not."""

    kind: Literal["run.interrupted"] = "run.interrupted"


PlanEvent = PlanStarted | PlanDelta | PlanProgress | PlanCompleted | PlanRetried | PlanRejected | PlanEdited
"""Of the planning of one round, ``round``."""

StepEvent = (
    StepStarted
    | StepDelta
    | StepProgress
    | StepRetried
    | StepCompleted
    | StepFailed
    | StepSkipped
    | StepReused
    | RecursionEntered
    | RecursionLeft
)
"""Of one step, ``path``."""

FinalEvent = RunCompleted | RunFailed | RunCancelled | RunInterrupted
"""The last of a run."""

Event = RunCreated | PlanEvent | StepEvent | FinalEvent

EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="kind")])
"""Parses an event from JSON; ``event.model_dump_json()`` is its inverse."""

VOCABULARY = 4
"""The version of all of the above; 1 is that of databases of schema 0001.

It grows with each release that adds a kind of event or a field. It is kept with each run, so that an older program can
tell a run that it is too old for from one that is damaged.
"""


def _kinds(union: object) -> frozenset[str]:
    return frozenset(str(each.model_fields["kind"].default) for each in get_args(union))


KINDS = _kinds(Event)
FINAL_KINDS = _kinds(FinalEvent)


class EventSink(Protocol):
    """Where events go. Events of one run are kept in the order of the calls, whichever of the two it is."""

    def append(self, *events: Event) -> "asyncio.Future[None]":
        """Takes the events at once; resolved when they are durable.

        Raises, when awaited: StoreError; then none of *these* events was kept.
        """
        ...

    def append_and_wait(self, *events: Event) -> None:
        """``append`` for a thread without an event loop: returns when the events are durable. Raises: StoreError."""
        ...
