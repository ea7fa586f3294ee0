"""The JSON documents that ``--json`` prints. Scripts rely on their keys: add some, never change or remove one."""

from collections.abc import Iterable, Sequence
from typing import Any

from conductor_core.analysis.concluded import concluded
from conductor_core.run.costs import Cost, basis, cost_of_part, cost_so_far, spent_on, waits_for_a_slot
from conductor_core.run.events import CommandRefused, PlanRetried, StepRetried
from conductor_core.run.trace import (
    Approval,
    Mutable,
    Paid,
    RoundTrace,
    RunTrace,
    RunUnreadable,
    StepTrace,
    unreadable_status,
)
from conductor_core.run.values import label
from conductor_core.workflow.model import Frozen, Workflow
from conductor_core.workflow.source import Parsed
from conductor_core.workflow.topology import topology
from conductor_core.workflow.validation import Checked

Document = dict[str, Any]


def run_document(trace: RunTrace, *, whole: bool = False, fault: RunUnreadable | None = None) -> Document:
    """Returns a run. ``whole``: also the exact messages of each call, and the outputs that they held or lacked.

    ``fault``: why a part of the run cannot be read.
    """
    return {
        "run_id": trace.run_id,
        "parent_run_id": trace.parent_run_id,
        "resumed": trace.resumed,
        "batch": None if trace.batch is None else _dump(trace.batch),
        "status": trace.status if fault is None else unreadable_status(fault),
        "damage": None if fault is None else {"sequence": fault.sequence, "message": str(fault)},
        "simulated": trace.simulated,
        "created_at_utc": trace.created_at_utc.isoformat(),
        **_dump(trace.caller),
        "purpose": trace.purpose,
        "imported": None if trace.imported is None else _dump(trace.imported),
        "imported_answers": bool(trace.imported_answers),
        "seed": trace.seed,
        "plan_temperature": trace.plan_temperature,
        "overrides": _dump(trace.overrides),
        "task": trace.task,
        "images": _dump_all(trace.images),
        "turns_before": _dump_all(trace.turns_before),
        "pool": trace.pool.name,
        "excluded": list(trace.pool.excluded),
        "redacted": dict(trace.redacted),
        "on_incomplete": trace.on_incomplete,
        "give_question": trace.give_question,
        "conductor": {
            "name": None if trace.conductor is None else trace.conductor.name,
            "prompt_sha256": None if trace.conductor is None else trace.conductor.prompt_sha256,
            "precision": None if trace.conductor is None else trace.conductor.precision,
            **_writing(trace, trace.root, whole),
        },
        **_plan(trace.root),
        "steps": [_step(trace, step, whole) for step in trace.steps],
        "answer": trace.answer,
        "conclusion": conclusion_document(trace),
        "error": _error(trace.error_code, trace.error),
        "waiting": waiting_document(trace) if trace.status == "waiting" else None,
        "gates": [str(gate) for gate in trace.gates],
        "approvals": [_approval(approval, whole) for approval in trace.approvals],
        "refused_commands": [_refused(refused) for refused in trace.refused],
        "ended_by": None if trace.ended_by is None else _dump(trace.ended_by),
        "usage": _dump(trace.usage),
        **_cost(cost_so_far(trace), trace),
        "duration_ms": trace.duration_ms,
        "traces_fault": trace.traces_fault or None,
    }


def conclusion_document(trace: RunTrace) -> Document | None:
    """Returns the conclusion of a run's answer, as on its page; None without an answer."""
    found = concluded(trace)
    return None if found is None else {"kind": found.kind, "text": found.text}


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
    """Returns the plan of a run that only plans. Without a usable plan, it holds the last attempt's text and faults."""
    root = trace.root
    rejected = root.rejected[-1] if root.workflow is None and root.rejected else None
    return {
        "task": trace.task,
        "steps": _workflow_steps(root.workflow),
        "faults": _dump_all(rejected.faults if rejected else ()),
        "warnings": _dump_all(root.warnings),
        "repairs": list(rejected.repairs if rejected else root.repairs),
        "considered": _dump_all(root.considered),
        "topology": root.topology,
        "raw": rejected.raw if rejected else root.raw,
        "duration_ms": root.duration_ms,
        "run_id": trace.run_id,
        "status": trace.status,
        "error": _error(trace.error_code, trace.error),
    }


def check_document(parsed: Parsed, checked: Checked, agents: Sequence[str]) -> Document:
    return {
        "steps": _steps_as_read(parsed, agents) if checked.workflow is None else _workflow_steps(checked.workflow),
        "faults": _dump_all(checked.faults),
        "warnings": _dump_all(checked.warnings),
        "repairs": list(parsed.repairs),
        "topology": None if checked.workflow is None else topology(checked.workflow),
    }


def error_document(code: str, message: str) -> Document:
    """Returns the document that replaces any other when the input cannot be used."""
    return {"error": _error(code, message)}


def _writing(trace: RunTrace, round_: RoundTrace, whole: bool) -> Document:
    """Returns what the Conductor wrote in a round, with its tokens, cost and time."""
    document: Document = {
        "raw": round_.raw or (round_.rejected[-1].raw if round_.rejected else ""),
        "reasoning": round_.reasoning,
        "usage": _dump(round_.usage),
        **_cost(cost_of_part(trace, round_), round_),
        "duration_ms": round_.duration_ms or 0.0,
        "first_token_ms": round_.first_token_ms,
        "retries": [_failed_call(call) for call in round_.retries],
        "departures": _dump_all(round_.departures),
        "rejected": [
            {"raw": plan.raw, "reasoning": plan.reasoning, "faults": _dump_all(plan.faults)} for plan in round_.rejected
        ],
    }
    return document | {"messages": _dump_all(round_.messages)} if whole else document


def _plan(round_: RoundTrace) -> Document:
    return {
        "plan_source": round_.source,
        "topology": round_.topology,
        "repairs": list(round_.repairs),
        "warnings": _dump_all(round_.warnings),
        "considered": _dump_all(round_.considered),
        "edited_by": None if round_.edited_by is None else _dump(round_.edited_by),
    }


def _step(trace: RunTrace, step: StepTrace, whole: bool) -> Document:
    document: Document = {
        "index": step.index,
        "path": list(step.path),
        "instruction": step.instruction,
        "agent": step.agent,
        "access_list": step.access_list if step.access_list == "all" else list(step.access_list),
        "reads": list(step.reads),
        "status": step.status,
        "simulated": step.simulated,
        "output": step.output,
        "reasoning": step.reasoning,
        "incomplete": step.incomplete,
        "finish_reason": step.finish_reason,
        "refusal": step.refusal,
        "tool_calls": _dump_all(step.tool_calls),
        "departures": _dump_all(step.departures),
        "answered_by": step.answered_by,
        "passed_on": step.passed_on,
        "model": step.model,
        "usage": _dump(step.usage),
        **_cost(cost_of_part(trace, step), step, in_round=step.round is not None),
        "started_ms": step.started_ms,
        "first_token_ms": step.first_token_ms,
        "duration_ms": step.duration_ms,
        "reused_from": None if step.reused_from is None else step.reused_from.run_id,
        "given": None if step.given is None else _dump(step.given),
        "reused_path": None if step.reused_from is None else list(step.reused_from.path),
        "reused_imported": step.reused_from is not None and step.reused_from.imported,
        "error": _error(step.error_code, step.error),
        "skipped_because": [list(path) for path in step.because],
        "retries": [_failed_call(call) for call in step.attempts],
        "round": None if step.round is None else _round(trace, step.round, whole),
        "with_round": None if step.round is None else _with_round(trace, step),
        "waits_for_a_slot": waits_for_a_slot(trace, step),
    }
    if not whole:
        return document
    of_call = {name: _dump_all(getattr(step, name)) for name in ("messages", "granted", "withheld")}
    return document | {"identity": step.identity, "output_sha256": step.output_sha256} | of_call


def _with_round(trace: RunTrace, step: StepTrace) -> Document:
    spent = spent_on(trace, step)
    return {"usage": _dump(spent.usage), **_cost(spent.cost, spent)}


def _round(trace: RunTrace, round_: RoundTrace, whole: bool) -> Document:
    steps = [_step(trace, step, whole) for step in round_.steps]
    return {"conductor": _writing(trace, round_, whole), **_plan(round_), "steps": steps}


def _workflow_steps(workflow: Workflow | None) -> list[Document]:
    """Returns the steps as a workflow file has them, so that printed steps can be given back."""
    return [] if workflow is None else _dump_all(workflow.steps)


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
    return {
        "cost_usd": cost.usd,
        "known_usd": cost.known_usd,
        "cost_at_least": cost.at_least,
        "at_most": cost.at_most,
    }


def _cost(cost: Cost, spent: Paid, *, in_round: bool = False) -> Document:
    """``in_round``: the step itself calls no model, and what it costs is in ``with_round``."""
    found = "with_round" if in_round and not spent.usage.total_tokens else basis(spent)
    return {**cost_document(cost), "cost_basis": found, "cost_estimated": found == "estimated"}


def _error(code: str | None, message: str | None) -> Document | None:
    return None if code is None else {"code": code, "message": message}


def _dump(model: Frozen | Mutable) -> Document:
    return model.model_dump(mode="json")


def _refused(refused: CommandRefused) -> Document:
    return {
        **refused.model_dump(mode="json", include={"command", "asked", "reason", "at_utc"}),
        "by": _dump(refused.caller),
        "unproven": refused.unproven,
    }


def _failed_call(call: StepRetried | PlanRetried) -> Document:
    of_the_event = {"kind", "run_id", "at_utc", "at_ms", "path", "round", "at_list_price", "duration_ms"}
    return call.model_dump(mode="json", exclude=of_the_event)


def _dump_all(models: Iterable[Frozen | Mutable]) -> list[Document]:
    return [_dump(model) for model in models]
