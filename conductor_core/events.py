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

from conductor_core.chat import ConductorInfo, FinishReason, Message, Usage, WorkerSpec
from conductor_core.workflow.changes import Origins, require_fit
from conductor_core.workflow.model import Fault, Frozen, Workflow

Path = tuple[int, ...]


def now_utc() -> datetime:
    return datetime.now(UTC)


class Limits(Frozen):
    """What a run may spend. None: no limit."""

    max_steps: int = 5
    max_tokens: int | None = None
    max_usd: float | None = None
    max_seconds: float | None = 600
    max_depth: int = 1


class PoolInfo(Frozen):
    """The pool as it was when the run began.

    Attributes:
        excluded: names of workers that the pool has besides and that the run had to do without; empty in records from
            before this was recorded.
    """

    name: str
    workers: tuple[WorkerSpec, ...]
    excluded: tuple[str, ...] = ()


class BatchRow(Frozen):
    """The place of a run in a batch: a file of tasks that were given at once.

    Attributes:
        id: of the batch. row: the task's own id in the file.
        name: of the file. size: how many tasks it held.
    """

    id: str
    row: str
    name: str
    size: NonNegativeInt


class Shared(Frozen):
    """An earlier output that a step was granted or denied, named so that it can be proven later.

    Attributes:
        sha256: of the output in UTF-8; empty for a withheld step that had no output yet.
        tokens: the provider's count of the output's tokens, else our estimate.
    """

    path: Path
    agent: str
    sha256: str
    characters: NonNegativeInt
    tokens: NonNegativeInt

    @property
    def there(self) -> bool:
        """Whether there was an output: what was not there yet could not be withheld."""
        return self.sha256 != ""


class _Event(Frozen):
    """Attributes: at_utc: wall clock; at_ms: monotonic milliseconds since the run was created."""

    run_id: str
    at_utc: datetime = Field(default_factory=now_utc)
    at_ms: NonNegativeFloat = 0.0


class RunCreated(_Event):
    """The request, whole. ``by`` says through which door it came: page, cli, api. ``batch``: None: it came alone."""

    kind: Literal["run.created"] = "run.created"
    task: str
    by: str = "cli"
    conductor: ConductorInfo | None
    pool: PoolInfo
    limits: Limits
    seed: int = 0
    plan_only: bool = False
    simulated: bool
    parent_run_id: str | None = None
    resumed: bool = False
    batch: BatchRow | None = None
    app_version: str


class PlanStarted(_Event):
    """``agents``: the names that the ordinals of ``model_id`` stand for, None for one that nobody has; empty in records
    from before this was recorded: the pool's own order."""

    kind: Literal["plan.started"] = "plan.started"
    round: Path = ()
    attempt: int = 1
    messages: tuple[Message, ...]
    agents: tuple[str | None, ...] = ()


class PlanDelta(_Event):
    kind: Literal["plan.delta"] = "plan.delta"
    round: Path = ()
    text: str


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


class PlanEdited(_Event):
    """A person (or a script) changed the plan before this run executed it. Topology and warnings are of ``after``.

    ``origins``: which step of ``before`` each step of ``after`` is; None: not known, as in records from before this
    was recorded.
    """

    kind: Literal["plan.edited"] = "plan.edited"
    round: Path = ()
    by: str
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
    granted: tuple[Shared, ...] = ()
    withheld: tuple[Shared, ...] = ()


class StepDelta(_Event):
    """Coalesced streamed text. ``output_tokens``: tokens received so far in this attempt, estimated while it runs."""

    kind: Literal["step.delta"] = "step.delta"
    path: Path
    text: str
    reasoning: bool = False
    output_tokens: NonNegativeInt = 0


class StepRetried(_Event):
    """An attempt failed and another follows. ``partial`` is what had arrived: kept here, cleared from the output."""

    kind: Literal["step.retried"] = "step.retried"
    path: Path
    attempt: int
    error_code: str
    error: str
    wait_ms: NonNegativeFloat
    partial: str = ""
    usage: Usage = Usage()
    cost_usd: float | None = 0.0


class StepCompleted(_Event):
    """Durable before any descendant starts.

    Attributes:
        incomplete: the provider ended the answer for another reason than being done (``length``, ...).
        cost_usd: None: the price is unknown.
        cost_estimated: it is the pool's price of the tokens, not the provider's own figure.
        first_token_ms, duration_ms: since this step started.
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
    """Not run: ``because`` names the failed steps above it, or is empty when the run itself stopped."""

    kind: Literal["step.skipped"] = "step.skipped"
    path: Path
    because: tuple[Path, ...] = ()


class StepReused(_Event):
    """The recorded answer of an identical step stands in; nothing was sent and nothing is paid.

    Attributes:
        usage, cost_usd: what it cost where it ran; not added to this run's totals.
        source_run_id, source_path: where it *ran* (not merely where it was reused last).
    """

    kind: Literal["step.reused"] = "step.reused"
    path: Path
    agent: str
    identity: str
    messages: tuple[Message, ...]
    granted: tuple[Shared, ...] = ()
    withheld: tuple[Shared, ...] = ()
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
    """``answer`` is the last step's output; None after *Plan only*. Totals hold what this run itself spent."""

    kind: Literal["run.completed"] = "run.completed"
    answer: str | None
    usage: Usage
    cost_usd: float | None
    duration_ms: NonNegativeFloat


class RunFailed(_Event):
    kind: Literal["run.failed"] = "run.failed"
    error_code: str
    error: str
    usage: Usage = Usage()
    cost_usd: float | None = None
    duration_ms: NonNegativeFloat = 0.0


class RunCancelled(_Event):
    kind: Literal["run.cancelled"] = "run.cancelled"
    by: str
    usage: Usage = Usage()
    cost_usd: float | None = None
    duration_ms: NonNegativeFloat = 0.0


class RunInterrupted(_Event):
    """Written at the next start by the program that finds a run whose process is gone."""

    kind: Literal["run.interrupted"] = "run.interrupted"


Event = (
    RunCreated
    | PlanStarted
    | PlanDelta
    | PlanCompleted
    | PlanRejected
    | PlanEdited
    | StepStarted
    | StepDelta
    | StepRetried
    | StepCompleted
    | StepFailed
    | StepSkipped
    | StepReused
    | RecursionEntered
    | RecursionLeft
    | RunCompleted
    | RunFailed
    | RunCancelled
    | RunInterrupted
)

EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="kind")])
"""Parses an event from JSON; ``event.model_dump_json()`` is its inverse."""

VOCABULARY = 3
"""The version of all of the above; 1 is that of databases of schema 0001.

It grows with each release that adds a kind of event or a field. It is kept with each run, so that an older program can
tell a run that it is too old for from one that is damaged.
"""

KINDS: frozenset[str] = frozenset(str(each.model_fields["kind"].default) for each in get_args(Event))

FINAL_KINDS = frozenset({"run.completed", "run.failed", "run.cancelled", "run.interrupted"})


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
