"""The JSON documents that ``--json`` prints. Scripts rely on their keys: add some, never change or remove one."""

from collections.abc import Sequence
from typing import Any

from pydantic_core import to_jsonable_python

from conductor_core.analysis.conclusion import concluded
from conductor_core.chat.messages import ToolCall
from conductor_core.run.costs import Cost, basis, cost_of_part, cost_so_far, spent_on, waits_for_a_slot
from conductor_core.run.events import CommandRefused, PlanRetried, StepRetried
from conductor_core.run.trace import (
    Approval,
    Paid,
    RoundTrace,
    RunTrace,
    RunUnreadable,
    StepTrace,
    unreadable_status,
)
from conductor_core.run.values import ToolTurn, label
from conductor_core.workflow.source import Parsed
from conductor_core.workflow.topology import topology
from conductor_core.workflow.validation import Checked

Document = dict[str, Any]


_COST = ("cost_usd", "known_usd", "cost_at_least", "at_most")
_SPENT = (*_COST, "cost_basis", "cost_estimated")
_PLAN = ("plan_source", "topology", "repairs", "warnings", "considered", "edited_by")
_NAMED = ("name", "prompt_sha256", "precision")
_WRITING = (
    "raw", "reasoning", "usage", *_SPENT, "duration_ms", "first_token_ms", "retries", "departures", "rejected",
)  # fmt: skip
_STEP = (
    "index", "path", "instruction", "agent", "access_list", "reads", "status", "simulated", "output", "reasoning",
    "incomplete", "finish_reason", "refusal", "tool_calls", "turns", "departures", "answered_by", "passed_on", "model",
    "weights", "usage", *_SPENT, "started_ms", "first_token_ms", "duration_ms", "reused_from", "given", "reused_path",
    "reused_imported",
    "error", "skipped_because", "retries", "round", "with_round", "waits_for_a_slot",
)  # fmt: skip
_OF_THE_CALL = ("identity", "output_sha256", "messages", "granted", "withheld")
_RUN = (
    "run_id", "parent_run_id", "resumed", "batch", "status", "damage", "simulated", "created_at_utc", "actor",
    "door", "purpose", "imported", "imported_answers", "seed", "plan_temperature", "overrides", "task", "images",
    "turns_before", "system", "tools", "tool_choice", "rules", "client", "conversation_id",
    "about_run_id", "tier", "pool", "excluded",
    "redacted", "on_incomplete", "give_question", "conductor", *_PLAN, "steps", "answer", "conclusion", "error",
    "waiting", "gates", "approvals", "refused_commands", "ended_by", "usage", *_SPENT, "duration_ms", "traces_fault",
)  # fmt: skip
_ONLY_PLANNED = (
    "task", "steps", "faults", "warnings", "repairs", "considered", "topology", "raw", "duration_ms", "run_id",
    "status", "error",
)  # fmt: skip


def _document(names: Sequence[str], source: object, **others: Any) -> Document:
    """Returns what is called ``names``, in this order: each from ``others``, else the attribute of ``source``."""
    found = {name: others[name] if name in others else getattr(source, name) for name in names}
    document: Document = to_jsonable_python(found)
    return document


def run_document(trace: RunTrace, *, whole: bool = False, fault: RunUnreadable | None = None) -> Document:
    """Returns a run. ``whole``: also the exact messages of each call, and the outputs that they held or lacked.

    ``fault``: why a part of the run cannot be read.
    """
    info = trace.conductor
    named = {name: None if info is None else getattr(info, name) for name in _NAMED}
    return _document(
        _RUN,
        trace,
        status=trace.status if fault is None else unreadable_status(fault),
        damage=None if fault is None else {"sequence": fault.sequence, "message": str(fault)},
        created_at_utc=trace.created_at_utc.isoformat(),
        imported_answers=bool(trace.imported_answers),
        pool=trace.pool.name,
        excluded=trace.pool.excluded,
        conductor=_writing(trace, trace.root, whole, **named),
        **_plan(trace.root),
        steps=[_step(trace, step, whole) for step in trace.steps],
        conclusion=conclusion_document(trace),
        error=_error(trace.error_code, trace.error),
        waiting=waiting_document(trace) if trace.status == "waiting" else None,
        gates=[str(gate) for gate in trace.gates],
        approvals=[_approval(approval, whole) for approval in trace.approvals],
        refused_commands=[_refused(refused) for refused in trace.refused],
        **_cost(cost_so_far(trace), trace),
        traces_fault=trace.traces_fault or None,
    )


def conclusion_document(trace: RunTrace) -> Document | None:
    """Returns the conclusion of a run's answer, as on its page; None without an answer."""
    found = concluded(trace)
    return None if found is None else {"kind": found.kind, "text": found.text}


def waiting_document(trace: RunTrace) -> Document:
    """Returns what a run waits for: the first request, and all of them."""
    first = trace.asked_for[0] if trace.asked_for else None
    return {
        "for": trace.waits_for,
        "rule": None if first is None else ", ".join(first.rules),
        "step": None if first is None or first.of not in ("step", "tool") else label(first.path),
        "since_utc": None if trace.waiting_since_utc is None else trace.waiting_since_utc.isoformat(),
        "requests": [_approval(approval, whole=False) for approval in trace.asked_for],
        "calls": [call.model_dump(mode="json") for call in trace.open_calls],
    }


def _approval(approval: Approval, whole: bool) -> Document:
    document = approval.model_dump(mode="json", exclude=set() if whole else {"messages"})
    return document | {"what": approval.what} | ({"arguments": approval.arguments} if approval.of == "tool" else {})


def plan_document(trace: RunTrace) -> Document:
    root = trace.root
    rejected = root.rejected[-1] if root.workflow is None and root.rejected else None
    return _document(
        _ONLY_PLANNED,
        root,
        task=trace.task,
        steps=() if root.workflow is None else root.workflow.steps,
        faults=rejected.faults if rejected else (),
        repairs=rejected.repairs if rejected else root.repairs,
        raw=rejected.raw if rejected else root.raw,
        run_id=trace.run_id,
        status=trace.status,
        error=_error(trace.error_code, trace.error),
    )


def check_document(parsed: Parsed, checked: Checked, agents: Sequence[str]) -> Document:
    """Returns what a workflow file says. With faults, ``steps`` is what could be read, with null for what could not."""
    plan = checked.workflow
    return _document(
        ("steps", "faults", "warnings", "repairs", "topology"),
        checked,
        steps=_steps_as_read(parsed, agents) if plan is None else plan.steps,
        repairs=parsed.repairs,
        topology=None if plan is None else topology(plan),
    )


def error_document(code: str, message: str) -> Document:
    """Returns the document that replaces any other when the input cannot be used."""
    return {"error": _error(code, message)}


def _writing(trace: RunTrace, round_: RoundTrace, whole: bool, **named: str | None) -> Document:
    """Returns what the Conductor wrote in a round, with its tokens, cost and time, after who it is."""
    return _document(
        (*named, *_WRITING, *(("messages",) if whole else ())),
        round_,
        **named,
        raw=round_.raw or (round_.rejected[-1].raw if round_.rejected else ""),
        **_cost(cost_of_part(trace, round_), round_),
        duration_ms=round_.duration_ms or 0.0,
        retries=[_failed_call(call) for call in round_.retries],
        rejected=[_document(("raw", "reasoning", "faults"), plan) for plan in round_.rejected],
    )


def _plan(round_: RoundTrace) -> Document:
    return _document(_PLAN, round_, plan_source=round_.source)


def _step(trace: RunTrace, step: StepTrace, whole: bool) -> Document:
    source, inner, spent = step.reused_from, step.round, spent_on(trace, step)
    return _document(
        (*_STEP, *(_OF_THE_CALL if whole else ())),
        step,
        **_cost(cost_of_part(trace, step), step, in_round=inner is not None),
        reused_from=None if source is None else source.run_id,
        reused_path=None if source is None else source.path,
        reused_imported=source is not None and source.imported,
        error=_error(step.error_code, step.error),
        turns=[_turn(trace, turn) for turn in step.turns],
        skipped_because=step.because,
        retries=[_failed_call(call) for call in step.attempts],
        round=None if inner is None else _round(trace, inner, whole),
        with_round=None if inner is None else {"usage": spent.usage} | _cost(spent.cost, spent),
        waits_for_a_slot=waits_for_a_slot(trace, step),
    )


def _turn(trace: RunTrace, turn: ToolTurn) -> Document:
    """Returns a turn. Each call has what its tool brought; one of a tool server of the pool also which it was."""
    results = {result.call_id: result for result in (turn.partial if turn.results is None else turn.results)}

    def called(call: ToolCall) -> Document:
        result = results.get(call.call_id)
        document = call.model_dump(mode="json") | {"result": None if result is None else result.text}
        if call.call_id not in turn.ours:
            return document
        ran = turn.ran_of(call.call_id)
        tool = ran or trace.offered(call.name)
        names = ("server", "tool", "effects")
        ended = ("outcome", "duration_ms", "size_bytes")
        document |= {name: None if tool is None else getattr(tool, name) for name in names}
        return document | {name: None if ran is None else getattr(ran, name) for name in ended}

    return turn.model_dump(mode="json") | {"calls": [called(call) for call in turn.calls]}


def _round(trace: RunTrace, round_: RoundTrace, whole: bool) -> Document:
    return _document(
        ("conductor", *_PLAN, "steps"),
        round_,
        conductor=_writing(trace, round_, whole),
        **_plan(round_),
        steps=[_step(trace, step, whole) for step in round_.steps],
    )


def _steps_as_read(parsed: Parsed, agents: Sequence[str]) -> list[Document]:
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
    return _document(_COST, cost, cost_usd=cost.usd, cost_at_least=cost.at_least)


def _cost(cost: Cost, spent: Paid, *, in_round: bool = False) -> Document:
    """``in_round``: the step itself calls no model, and what it costs is in ``with_round``."""
    found = "with_round" if in_round and not spent.usage.total_tokens else basis(spent)
    return {**cost_document(cost), "cost_basis": found, "cost_estimated": found == "estimated"}


def _error(code: str | None, message: str | None) -> Document | None:
    return None if code is None else {"code": code, "message": message}


def _refused(refused: CommandRefused) -> Document:
    return {
        **refused.model_dump(mode="json", include={"command", "asked", "reason", "at_utc"}),
        "by": refused.caller.model_dump(mode="json"),
        "unproven": refused.unproven,
    }


def _failed_call(call: StepRetried | PlanRetried) -> Document:
    of_the_event = {"kind", "run_id", "at_utc", "at_ms", "path", "round", "at_list_price", "duration_ms"}
    return call.model_dump(mode="json", exclude=of_the_event)
