"""The JSON documents that ``--json`` prints. Scripts rely on their keys: add some, never change or remove one."""

from collections.abc import Sequence
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, SerializeAsAny

from conductor_core.analysis.conclusion import concluded
from conductor_core.chat.messages import Departure, ImagePart, Message, ToolCall, Usage
from conductor_core.run.actor import Actor, Caller
from conductor_core.run.costs import Cost, basis, cost_of_part, cost_so_far, spent_on, waits_for_a_slot
from conductor_core.run.events import CommandRefused, PlanRetried, StepRetried
from conductor_core.run.request import Given, Overrides
from conductor_core.run.trace import (
    Approval,
    Paid,
    RoundTrace,
    RunTrace,
    RunUnreadable,
    StepTrace,
    unreadable_status,
)
from conductor_core.run.values import Alternatives, BatchRow, Imported, Path, SharedOutput, label
from conductor_core.workflow.model import AccessList, Fault, Step
from conductor_core.workflow.source import Parsed
from conductor_core.workflow.topology import topology
from conductor_core.workflow.validation import Checked

Document = dict[str, Any]


class Declared(BaseModel):
    """Base of the documents, whose fields are printed in the order in which they are declared."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def of(cls, source: object, **others: Any) -> Self:
        """Takes each field that is not among ``others`` from the attribute of ``source`` with its name."""
        taken = {name: others[name] if name in others else getattr(source, name) for name in cls.model_fields}
        return cls.model_construct(**taken)  # type: ignore[return-value] # pydantic's plugin says this class, not Self

    def document(self) -> Document:
        return self.model_dump(mode="json")


class ConclusionDocument(Declared):
    kind: str
    text: str


class ErrorDocument(Declared):
    code: str
    message: str | None


class DamageDocument(Declared):
    sequence: int | None
    message: str


class CostDocument(Declared):
    """A cost. If a part has no price, ``cost_usd`` is null and ``known_usd`` the least cost."""

    cost_usd: float | None
    known_usd: float
    cost_at_least: bool
    at_most: bool


class RejectedDocument(Declared):
    raw: str
    reasoning: str
    faults: tuple[Fault, ...]


class WritingDocument(Declared):
    """What the Conductor wrote in a round, with its tokens, cost and time."""

    raw: str
    reasoning: str
    usage: Usage
    cost_usd: float | None
    known_usd: float
    cost_at_least: bool
    at_most: bool
    cost_basis: str
    cost_estimated: bool
    duration_ms: float
    first_token_ms: float | None
    retries: list[Document]
    departures: tuple[Departure, ...]
    rejected: list[RejectedDocument]


class WholeWriting(WritingDocument):
    messages: tuple[Message, ...]


class WithRound(Declared):
    """What a step spent together with the round that it opened."""

    usage: Usage
    cost_usd: float | None
    known_usd: float
    cost_at_least: bool
    at_most: bool
    cost_basis: str
    cost_estimated: bool


class StepDocument(Declared):
    index: int
    path: Path
    instruction: str
    agent: str
    access_list: AccessList
    reads: tuple[int, ...]
    status: str
    simulated: bool
    output: str
    reasoning: str
    incomplete: bool
    finish_reason: str | None
    refusal: str
    tool_calls: tuple[ToolCall, ...]
    departures: tuple[Departure, ...]
    answered_by: str | None
    passed_on: bool
    model: str | None
    usage: Usage
    cost_usd: float | None
    known_usd: float
    cost_at_least: bool
    at_most: bool
    cost_basis: str
    cost_estimated: bool
    started_ms: float | None
    first_token_ms: float | None
    duration_ms: float | None
    reused_from: str | None
    given: Given | None
    reused_path: Path | None
    reused_imported: bool
    error: ErrorDocument | None
    skipped_because: tuple[Path, ...]
    retries: list[Document]
    round: "RoundDocument | None"
    with_round: WithRound | None
    waits_for_a_slot: bool


class WholeStep(StepDocument):
    """Also the exact messages of the call, and the outputs that they held or lacked."""

    identity: str | None
    output_sha256: str | None
    messages: tuple[Message, ...]
    granted: tuple[SharedOutput, ...]
    withheld: tuple[SharedOutput, ...]


class RoundDocument(Declared):
    conductor: SerializeAsAny[WritingDocument]
    plan_source: str | None
    topology: str | None
    repairs: tuple[str, ...]
    warnings: tuple[Fault, ...]
    considered: tuple[Alternatives, ...]
    edited_by: Caller | None
    steps: list[SerializeAsAny[StepDocument]]


class _NamedConductor(Declared):
    name: str | None
    prompt_sha256: str | None
    precision: str | None


class ConductorDocument(WritingDocument, _NamedConductor):
    """The Conductor of a run, and what it wrote in the first round."""


class WholeConductor(WholeWriting, _NamedConductor): ...


class RunDocument(Declared):
    run_id: str
    parent_run_id: str | None
    resumed: bool
    batch: BatchRow | None
    status: str
    damage: DamageDocument | None
    simulated: bool
    created_at_utc: str
    actor: Actor | None
    door: str | None
    purpose: str
    imported: Imported | None
    imported_answers: bool
    seed: int
    plan_temperature: float | None
    overrides: Overrides
    task: str
    images: tuple[ImagePart, ...]
    turns_before: tuple[Message, ...]
    pool: str
    excluded: tuple[str, ...]
    redacted: dict[str, int]
    on_incomplete: str
    give_question: bool
    conductor: SerializeAsAny[ConductorDocument | WholeConductor]
    plan_source: str | None
    topology: str | None
    repairs: tuple[str, ...]
    warnings: tuple[Fault, ...]
    considered: tuple[Alternatives, ...]
    edited_by: Caller | None
    steps: list[SerializeAsAny[StepDocument]]
    answer: str | None
    conclusion: ConclusionDocument | None
    error: ErrorDocument | None
    waiting: Document | None
    gates: list[str]
    approvals: list[Document]
    refused_commands: list[Document]
    ended_by: Caller | None
    usage: Usage
    cost_usd: float | None
    known_usd: float
    cost_at_least: bool
    at_most: bool
    cost_basis: str
    cost_estimated: bool
    duration_ms: float | None
    traces_fault: str | None


class PlanDocument(Declared):
    """The plan of a run that only plans. Without a usable plan, the last attempt's text and faults."""

    task: str
    steps: tuple[Step, ...]
    faults: tuple[Fault, ...]
    warnings: tuple[Fault, ...]
    repairs: tuple[str, ...]
    considered: tuple[Alternatives, ...]
    topology: str | None
    raw: str
    duration_ms: float | None
    run_id: str
    status: str
    error: ErrorDocument | None


class CheckDocument(Declared):
    """What a workflow file says. With faults, ``steps`` is what could be read, with null for what could not."""

    steps: list[Document]
    faults: tuple[Fault, ...]
    warnings: tuple[Fault, ...]
    repairs: tuple[str, ...]
    topology: str | None


def run_document(trace: RunTrace, *, whole: bool = False, fault: RunUnreadable | None = None) -> Document:
    """Returns a run. ``whole``: also the exact messages of each call, and the outputs that they held or lacked.

    ``fault``: why a part of the run cannot be read.
    """
    info = trace.conductor
    named = {
        "name": None if info is None else info.name,
        "prompt_sha256": None if info is None else info.prompt_sha256,
        "precision": None if info is None else info.precision,
    }
    return RunDocument.of(
        trace,
        status=trace.status if fault is None else unreadable_status(fault),
        damage=None if fault is None else DamageDocument(sequence=fault.sequence, message=str(fault)),
        created_at_utc=trace.created_at_utc.isoformat(),
        imported_answers=bool(trace.imported_answers),
        pool=trace.pool.name,
        excluded=trace.pool.excluded,
        conductor=_writing(WholeConductor if whole else ConductorDocument, trace, trace.root, **named),
        **_plan(trace.root),
        steps=[_step(trace, step, whole) for step in trace.steps],
        conclusion=_conclusion(trace),
        error=_error(trace.error_code, trace.error),
        waiting=waiting_document(trace) if trace.status == "waiting" else None,
        gates=[str(gate) for gate in trace.gates],
        approvals=[_approval(approval, whole) for approval in trace.approvals],
        refused_commands=[_refused(refused) for refused in trace.refused],
        **_cost(cost_so_far(trace), trace),
        traces_fault=trace.traces_fault or None,
    ).document()


def conclusion_document(trace: RunTrace) -> Document | None:
    """Returns the conclusion of a run's answer, as on its page; None without an answer."""
    found = _conclusion(trace)
    return None if found is None else found.document()


def _conclusion(trace: RunTrace) -> ConclusionDocument | None:
    found = concluded(trace)
    return None if found is None else ConclusionDocument.of(found)


def waiting_document(trace: RunTrace) -> Document:
    """Returns what a run waits for: the first request, and all of them."""
    first = trace.asked_for[0] if trace.asked_for else None
    return {
        "for": "approval",
        "rule": None if first is None else ", ".join(first.rules),
        "step": None if first is None or first.of != "step" else label(first.path),
        "since_utc": None if trace.waiting_since_utc is None else trace.waiting_since_utc.isoformat(),
        "requests": [_approval(approval, whole=False) for approval in trace.asked_for],
    }


def _approval(approval: Approval, whole: bool) -> Document:
    document = approval.model_dump(mode="json", exclude=set() if whole else {"messages"})
    return document | {"what": approval.what}


def plan_document(trace: RunTrace) -> Document:
    root = trace.root
    rejected = root.rejected[-1] if root.workflow is None and root.rejected else None
    return PlanDocument.of(
        root,
        task=trace.task,
        steps=() if root.workflow is None else root.workflow.steps,
        faults=rejected.faults if rejected else (),
        repairs=rejected.repairs if rejected else root.repairs,
        raw=rejected.raw if rejected else root.raw,
        run_id=trace.run_id,
        status=trace.status,
        error=_error(trace.error_code, trace.error),
    ).document()


def check_document(parsed: Parsed, checked: Checked, agents: Sequence[str]) -> Document:
    plan = checked.workflow
    return CheckDocument.of(
        checked,
        steps=_steps_as_read(parsed, agents) if plan is None else [step.model_dump(mode="json") for step in plan.steps],
        repairs=parsed.repairs,
        topology=None if plan is None else topology(plan),
    ).document()


def error_document(code: str, message: str) -> Document:
    """Returns the document that replaces any other when the input cannot be used."""
    return {"error": ErrorDocument(code=code, message=message).document()}


W = TypeVar("W", bound=WritingDocument)


def _writing(kind: type[W], trace: RunTrace, round_: RoundTrace, **named: str | None) -> W:
    return kind.of(
        round_,
        **named,
        raw=round_.raw or (round_.rejected[-1].raw if round_.rejected else ""),
        **_cost(cost_of_part(trace, round_), round_),
        duration_ms=round_.duration_ms or 0.0,
        retries=[_failed_call(call) for call in round_.retries],
        rejected=[RejectedDocument.of(plan) for plan in round_.rejected],
    )


def _plan(round_: RoundTrace) -> Document:
    names = ("topology", "repairs", "warnings", "considered", "edited_by")
    return {"plan_source": round_.source} | {name: getattr(round_, name) for name in names}


def _step(trace: RunTrace, step: StepTrace, whole: bool) -> StepDocument:
    source, inner, spent = step.reused_from, step.round, spent_on(trace, step)
    return (WholeStep if whole else StepDocument).of(
        step,
        **_cost(cost_of_part(trace, step), step, in_round=inner is not None),
        reused_from=None if source is None else source.run_id,
        reused_path=None if source is None else source.path,
        reused_imported=source is not None and source.imported,
        error=_error(step.error_code, step.error),
        skipped_because=step.because,
        retries=[_failed_call(call) for call in step.attempts],
        round=None if inner is None else _round(trace, inner, whole),
        with_round=None if inner is None else WithRound.of(spent, **_cost(spent.cost, spent)),
        waits_for_a_slot=waits_for_a_slot(trace, step),
    )


def _round(trace: RunTrace, round_: RoundTrace, whole: bool) -> RoundDocument:
    return RoundDocument.of(
        round_,
        conductor=_writing(WholeWriting if whole else WritingDocument, trace, round_),
        **_plan(round_),
        steps=[_step(trace, step, whole) for step in round_.steps],
    )


def _steps_as_read(parsed: Parsed, agents: Sequence[str]) -> list[Document]:
    """Returns what could be read of a file with faults, with None for what could not."""
    names: dict[int | str | None, str] = dict(enumerate(agents))
    return [
        {
            "instruction": step.instruction,
            "agent": names.get(step.agent, step.agent),
            "access_list": list(step.access_list) if isinstance(step.access_list, tuple) else step.access_list,
        }
        for step in parsed.steps or ()
    ]


def cost_document(cost: Cost) -> Document:
    """Returns a cost. If a part has no price, ``cost_usd`` is null and ``known_usd`` the least cost."""
    found = CostDocument.of(cost, cost_usd=cost.usd, cost_at_least=cost.at_least)
    return found.document()


def _cost(cost: Cost, spent: Paid, *, in_round: bool = False) -> Document:
    """``in_round``: the step itself calls no model, and what it costs is in ``with_round``."""
    found = "with_round" if in_round and not spent.usage.total_tokens else basis(spent)
    return {**cost_document(cost), "cost_basis": found, "cost_estimated": found == "estimated"}


def _error(code: str | None, message: str | None) -> ErrorDocument | None:
    return None if code is None else ErrorDocument(code=code, message=message)


def _refused(refused: CommandRefused) -> Document:
    return {
        **refused.model_dump(mode="json", include={"command", "asked", "reason", "at_utc"}),
        "by": refused.caller.model_dump(mode="json"),
        "unproven": refused.unproven,
    }


def _failed_call(call: StepRetried | PlanRetried) -> Document:
    of_the_event = {"kind", "run_id", "at_utc", "at_ms", "path", "round", "at_list_price", "duration_ms"}
    return call.model_dump(mode="json", exclude=of_the_event)
