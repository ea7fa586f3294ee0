"""The state of a run, its rounds and its steps. ``trace`` folds it from the run's events."""

from collections.abc import Iterator
from datetime import datetime
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from conductor_core.actor import Actor, Caller, Door
from conductor_core.approval_events import ApprovalOf
from conductor_core.chat import ConductorInfo, FinishReason, Message, ToolCall, Usage, conversation_of
from conductor_core.endings import Ending, OnIncomplete
from conductor_core.events import BatchRow, Imported, Limits, Path, PoolInfo, SharedOutput
from conductor_core.gates import Gate
from conductor_core.message_parts import ImagePart
from conductor_core.overrides import Given, Overrides
from conductor_core.precisions import Packed
from conductor_core.progress import Progress
from conductor_core.run_facts import Considered, label
from conductor_core.workflow.changes import Origins, compare
from conductor_core.workflow.model import AccessList, Fault, Workflow

StepStatus = Literal[
    "waiting",
    "running",
    "completed",
    "refused",
    "filtered",
    "cut",
    "empty",
    "reused",
    "written",
    "failed",
    "denied",
    "skipped",
    "cancelled",
]
RunStatus = Literal[
    "queued",
    "running",
    "waiting",
    "planned",
    "completed",
    "refused",
    "filtered",
    "cut",
    "empty",
    "failed",
    "denied",
    "cancelled",
    "interrupted",
]
RoundStatus = Literal["planning", "planned", "stopped", "rejected"]

ENDED_STATUSES: frozenset[str] = frozenset(get_args(RunStatus)) - {"queued", "running", "waiting"}
AT_REST: frozenset[str] = frozenset({"queued", "waiting"})
"""Statuses of runs that no process carries out, and that any process may take up."""


class Mutable(BaseModel):
    model_config = ConfigDict(extra="forbid")

    # A fold only assigns, in code that mypy checks. A plain assignment takes a fifth of the time of pydantic's.
    __setattr__ = object.__setattr__


class PlanAttempt(Mutable):
    """A failed call of a Conductor that was followed by another. Its cost counts."""

    attempt: int
    error_code: str
    error: str
    wait_ms: float
    partial: str
    usage: Usage = Usage()
    cost_usd: float | None = 0.0
    loading: bool = False


class Attempt(PlanAttempt):
    """A failed call of a step, and what followed; see ``StepRetried``."""

    agent: str | None = None
    then: Literal["again", "more_tokens", "fallback", "kept"] = "again"
    then_agent: str | None = None
    then_max_tokens: int | None = None
    refusal: str = ""
    tool_calls: tuple[ToolCall, ...] = ()


class ReusedFrom(Mutable):
    """Where a reused answer was given. ``imported``: that run came as a file, and this database did not see it."""

    run_id: str
    path: Path
    imported: bool = False


class StepTrace(Mutable):
    """The state of a step. ``round`` is set if the step is a recursion: the inner plan and its steps.

    Attributes:
        output: the whole answer, what has streamed so far, or the partial text of a failed step.
        ending, refusal, tool_calls, answered_by, passed_on: see ``StepCompleted``.
        cost_usd: None if the price of a call is unknown. known_usd: of the calls with a price.
        at_list_price: whether some of the cost is computed from the pool's price.
        started_ms: since the run began. first_token_ms, duration_ms: since the step started.
        given: who wrote or pinned the output; None: the step's worker answered.
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
    incomplete: bool = False
    finish_reason: FinishReason | None = None
    ending: Ending = "completed"
    refusal: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    answered_by: str | None = None
    passed_on: bool = True
    usage: Usage = Usage()
    cost_usd: float | None = 0.0
    known_usd: float = 0.0
    at_list_price: bool = False
    model: str | None = None
    started_ms: float | None = None
    first_token_ms: float | None = None
    duration_ms: float | None = None
    attempts: list[Attempt] = Field(default_factory=list)
    error_code: str | None = None
    error: str | None = None
    because: tuple[Path, ...] = ()
    reused_from: ReusedFrom | None = None
    given: Given | None = None
    round: "RoundTrace | None" = None

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


class RoundTrace(Mutable):
    """One plan and the steps that carry it out.

    Attributes:
        reasoning: of the Conductor; it is no part of ``raw``.
        considered: what else the Conductor could have chosen, in the plan as it wrote it, before any edit.
        usage, cost_usd, known_usd, at_list_price: of the Conductor in this round, including rejected attempts.
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
    considered: tuple[Considered, ...] = ()
    rejected: list[RejectedPlan] = Field(default_factory=list)
    retries: list[PlanAttempt] = Field(default_factory=list)
    edited_by: Caller | None = None
    before_edit: Workflow | None = None
    edit_origins: Origins | None = None
    usage: Usage = Usage()
    cost_usd: float | None = 0.0
    known_usd: float = 0.0
    at_list_price: bool = False
    started_ms: float | None = None
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
        """Yields this round, then the rounds that its steps opened."""
        yield self
        yield from (step.round for step in self.walk() if step.round is not None)


class Approval(Mutable):
    """A request for an approval, and its decision; see ``ApprovalRequested`` and ``ApprovalGranted``.

    Attributes:
        status: ``replaced`` if the plan was edited before anybody decided.
    """

    number: int
    of: ApprovalOf
    path: Path
    rules: tuple[str, ...]
    identity: str
    agent: str = ""
    messages: tuple[Message, ...] = ()
    most: Usage
    most_usd: float | None = None
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
        what = "the plan" if self.of == "plan" else "the question to the Conductor"
        return f"{what} of step {label(self.path)}" if self.path else what


class RefusedCommand(Mutable):
    command: int
    asked: str
    reason: str
    at_utc: datetime
    by: Caller


class RunTrace(Mutable):
    """The state of a run after ``last_at_ms``.

    Attributes:
        images, turns_before: what came with the task, and the turns of the conversation before it.
        workflow: as the request brought it, until a plan is recorded in ``root``; then, and without one, None.
        cost_usd: of all calls that ended; None if the price of one is unknown. known_usd: of the calls with a price.
        at_list_price: whether some of the cost is computed from a price.
        approvals: all requests, by ``number`` less one. refused: commands that changed nothing.
        heard: id of the last command that was answered.
        overrides: what is done otherwise with single steps, by their numbers in the plan as it stands.
        waiting_since_utc: None unless the run waits.
        clock_zero_utc: when the run's clock showed zero, or would have, had it not stood while the run waited.
        redacted: how many passages were hidden before the record was stored, by what they were.
        broken_off, broken_off_usd: the estimated share of ``usage`` and ``known_usd`` of calls that the run's end cut.
    """

    run_id: str
    status: RunStatus = "running"
    task: str
    actor: Actor | None = None
    door: Door | None = None
    purpose: str = ""
    parent_run_id: str | None = None
    resumed: bool = False
    images: tuple[ImagePart, ...] = ()
    turns_before: tuple[Message, ...] = ()
    batch: BatchRow | None = None
    plan_only: bool = False
    workflow: Workflow | None = None
    simulated: bool
    seed: int = 0
    plan_temperature: float | None = None
    overrides: Overrides = Overrides()
    conductor: ConductorInfo | None = None
    pool: PoolInfo
    limits: Limits
    on_incomplete: OnIncomplete = "allow"
    give_question: bool = False
    imported: Imported | None = None
    app_version: str
    created_at_utc: datetime
    root: RoundTrace = Field(default_factory=RoundTrace)
    answer: str | None = None
    usage: Usage = Usage()
    cost_usd: float | None = 0.0
    known_usd: float = 0.0
    at_list_price: bool = False
    broken_off: Usage = Usage()
    broken_off_usd: float = 0.0
    duration_ms: float | None = None
    error_code: str | None = None
    error: str | None = None
    ended_by: Caller | None = None
    gates: tuple[Gate, ...] = ()
    approvals: list[Approval] = Field(default_factory=list)
    refused: list[RefusedCommand] = Field(default_factory=list)
    heard: int = 0
    waiting_since_utc: datetime | None = None
    clock_zero_utc: datetime
    last_at_ms: float = 0.0
    redacted: dict[str, int] = Field(default_factory=dict)

    @property
    def caller(self) -> Caller:
        return Caller(actor=self.actor, door=self.door)

    @property
    def conversation(self) -> tuple[Message, ...]:
        """All turns up to the task, which is the last."""
        return conversation_of(self.task, self.images, self.turns_before)

    @property
    def ended(self) -> bool:
        return self.status in ENDED_STATUSES

    @property
    def imported_answers(self) -> list[StepTrace]:
        """The steps whose reused answer is that of an imported run, of all rounds."""
        return [step for step in self.walk() if step.reused_from is not None and step.reused_from.imported]

    @property
    def asked_for(self) -> list[Approval]:
        """The requests that nobody has decided yet."""
        return [approval for approval in self.approvals if approval.status == "open"]

    @property
    def denial(self) -> Approval | None:
        """The request that was denied, if one was."""
        return next((approval for approval in self.approvals if approval.status == "denied"), None)

    @property
    def steps(self) -> list[StepTrace]:
        """The steps of the first round."""
        return self.root.steps

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
        """All steps, each before the steps of its inner round."""
        return self.root.walk()


def step_of(round_: RoundTrace, path: Path) -> StepTrace:
    if not path or not 0 <= path[-1] < len(round_.steps):
        raise KeyError(path)
    return round_.steps[path[-1]]
