"""The plans of a run in a decision record: who wrote each, and what people changed in it."""

from collections.abc import Sequence

from conductor_core import events as ev
from conductor_core.compare.plans import compare_plans
from conductor_core.decision import words
from conductor_core.decision.record import PlanEdit, PlannedStep, PlanPart, RejectedText
from conductor_core.events import Event
from conductor_core.run_facts import label
from conductor_core.trace import RoundTrace, RunTrace


def plan_parts(trace: RunTrace, events: Sequence[Event]) -> tuple[PlanPart, ...]:
    """Returns the plan of each round that has one, or that the Conductor was asked for."""
    written = {event.round: event.at_utc for event in events if isinstance(event, ev.PlanCompleted)}
    return tuple(
        PlanPart(
            round=label(round_.path),
            written_by=_written_by(trace, round_),
            at_utc=written.get(round_.path),
            topology=round_.topology or "",
            raw=round_.raw,
            repairs=round_.repairs,
            warnings=tuple(warning.message for warning in round_.warnings),
            considered=round_.considered,
            rejected=tuple(
                RejectedText(attempt=plan.attempt, raw=plan.raw, faults=tuple(fault.message for fault in plan.faults))
                for plan in round_.rejected
            ),
            steps=tuple(
                PlannedStep(
                    label=label(step.path),
                    agent=step.agent,
                    instruction=step.instruction,
                    access=words.access(step.access_list),
                )
                for step in round_.steps
            ),
        )
        for round_ in trace.root.rounds()
        if round_.workflow is not None or round_.messages or round_.rejected
    )


def _written_by(trace: RunTrace, round_: RoundTrace) -> str:
    match round_.source:
        case "conductor":
            return words.conductor(trace.conductor)
        case "file":
            return f"{words.who(trace, trace.caller).words}, who gave it as a workflow"
        case "parent":
            return f"taken over from run {trace.parent_run_id}"
    return f"nobody yet; {words.conductor(trace.conductor)} was asked"


def plan_edits(trace: RunTrace, events: Sequence[Event]) -> tuple[PlanEdit, ...]:
    """Returns the edits in the order in which they were made, each with the plan before and after it."""
    edits = []
    for event in events:
        if not isinstance(event, ev.PlanEdited):
            continue
        compared = compare_plans(event.before, event.after, event.origins)
        edits.append(
            PlanEdit(
                round=label(event.round),
                at_utc=event.at_utc,
                by=words.who(trace, event.caller),
                changes=compared.changes.sentences(event.before, event.after),
                differences=compared.differences,
                command=event.command,
            )
        )
    return tuple(edits)
