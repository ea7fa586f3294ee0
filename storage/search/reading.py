"""Reads what of a run is searched: its texts with their places, its calls, and what a filter can ask for."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter

from conductor_core.chat.messages import Message, ToolCallPart, ToolResultPart, parts_of
from conductor_core.chat.tools import dotted
from conductor_core.privacy.masking import MARK as KEY_MARK
from conductor_core.run import events as ev
from conductor_core.run.actor import Caused
from conductor_core.run.egress import CLIENT, Call, calls
from conductor_core.run.events import Event
from conductor_core.run.values import Path, label
from conductor_core.workflow.model import CONDUCTOR_AGENT, Workflow
from storage.encoding import StoredRow, stored_rows
from storage.log import reading
from storage.privacy import SEALED, Vault
from storage.search.failures import Kind, Noted, kind_of, loops

_STREAMED = "kind IN ('plan.delta', 'plan.progress', 'step.delta', 'step.progress')"

FIELDS = {
    "task": "the task",
    "turn": "a turn of the conversation before the task",
    "instruction": "an instruction",
    "before": "an instruction before an edit",
    "completion": "the Conductor's completion",
    "sent": "a message that was sent",
    "parameter": "what was sent beside a message",
    "traced": "OpenTelemetry traces",
    "output": "an output",
    "refusal": "a refusal",
    "tool call": "a tool call",
    "tool result": "what a tool brought",
    "rest": "text that was cut off an answer",
    "partial": "a partial text",
    "error": "an error",
    "note": "a note of an approval",
}
"""The places of a text, in words. Reasoning is among them only if it left as traces: only the stream holds it."""
LEFT = ("sent", "parameter", "traced")
"""The places of texts that were sent to a server."""


UNKNOWN = "not recorded"
"""The actor of older records."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a text stands.

    Attributes:
        event: sequence of the event. path: of the step, as ``label`` writes it; empty for what belongs to the run.
        detail: of a message its role, of an error its code, of an edit or a note who caused it.
    """

    field: str
    event: int
    path: str = ""
    agent: str = ""
    detail: str = ""


@dataclass(slots=True)
class Record:
    """What of a run is searched.

    Attributes:
        run: sequence of its first event. newest: of its last. 0: it has none.
        texts: each text of the run once, with its places.
        calls: with the sequence of the event that holds the messages.
        facets: how often each value of each kind stands in the run.
        failures: what failed in it, in the order of its events. agents: who was asked last, by step.
        hidden: the events of ``calls`` of which passages were hidden before they were stored.
        fault: why the run cannot be read to its end; empty: it was.
        encrypted: whether it was not read because it is encrypted.
    """

    run_id: str
    run: int = 0
    newest: int = 0
    created: ev.RunCreated | None = None
    texts: dict[str, list[Place]] = field(default_factory=dict)
    calls: list[tuple[int, Call]] = field(default_factory=list)
    facets: Counter[tuple[str, str]] = field(default_factory=Counter)
    failures: list[Noted] = field(default_factory=list)
    agents: dict[Path, str] = field(default_factory=dict)
    hidden: set[int] = field(default_factory=set)
    fault: str = ""
    encrypted: bool = False

    def add(self, text: str, place: Place) -> None:
        if text.strip():
            places = self.texts.setdefault(text, [])
            if place not in places:
                places.append(place)


def read_record(connection: sqlite3.Connection, run_id: str, vault: Vault | None = None, to: int = 2**63 - 1) -> Record:
    """Reads a run as far as it can be read. Raises: sqlite3.Error.

    ``vault``: None: not if it is encrypted. ``to``: the sequence of the last event that is read.
    """
    rows = stored_rows(connection, run_id, only=f"sequence <= {to} AND NOT {_STREAMED}")
    vocabulary, _ = reading.filed(connection, run_id)
    record = Record(run_id, rows[0][0] if rows else 0, rows[-1][0] if rows else 0)
    if vault is None and any(row[3].startswith(SEALED) for row in rows):
        record.encrypted = True
        return record
    stored = _decoded(record, rows, vocabulary, vault)
    if not stored or not isinstance(first := stored[0][1], ev.RunCreated):
        record.fault = record.fault or "its first event is missing"
        return record
    record.created = first
    for sequence, event in stored:
        _read_event(record, sequence, event)
    for noted in loops(((at, event) for at, event in stored if isinstance(event, ev.ToolCalled)), record.agents):
        _note(record, noted)
    record.calls = _calls(stored)
    # What streamed may show that a call began, and is in traces.
    if any(call.ended == "announced" or call.of == "traces" for _, call in record.calls):
        streamed = stored_rows(connection, run_id, only=f"sequence <= {to} AND {_STREAMED}")
        record.calls = _calls(sorted([*stored, *_decoded(record, streamed, vocabulary, vault)], key=itemgetter(0)))
    for at, call in record.calls:
        for text in call.beside:
            place = Place("traced" if call.of == "traces" else "parameter", at, label(call.path), call.agent)
            record.add(text, place)
    _tool_servers(record, stored)
    record.hidden = _hidden(stored) | {
        at
        for at, call in record.calls
        # Traces are read from the record, so they lack the same.
        if call.of != "traces" and any(KEY_MARK in text or "[redacted" in text for text in _not_in_a_prompt(call))
    }
    for call in (call for _, call in record.calls if call.ended != "announced"):
        record.facets["provider", call.provider] += 1
        if call.host:
            record.facets["host", call.host] += 1
    return record


def _decoded(
    record: Record, rows: Iterable[StoredRow], vocabulary: int, vault: Vault | None
) -> list[tuple[int, Event]]:
    """Returns the events with their sequences up to one that cannot be read, which is the record's fault."""
    stored: list[tuple[int, Event]] = []
    for row in rows:
        try:
            raw = reading.raw_event(row) if vault is None else reading.opened(row, record.run_id, vault)
            stored.append((row[0], reading.decode(raw, record.run_id, vocabulary)))
        except reading.BadRecord as bad:
            record.fault = record.fault or str(bad)
            break
    return stored


def _calls(stored: Sequence[tuple[int, Event]]) -> list[tuple[int, Call]]:
    return [(stored[call.event][0], call) for call in calls(event for _, event in stored)]


def _not_in_a_prompt(call: Call) -> tuple[str, ...]:
    """Returns what was sent beside the messages, and what of these tools were given and brought."""
    of_tools = (
        part.arguments if isinstance(part, ToolCallPart) else part.text
        for message in call.messages
        for part in parts_of(message.content)
        if isinstance(part, ToolCallPart | ToolResultPart)
    )
    return (*call.beside, *of_tools)


def _tool_servers(record: Record, stored: Iterable[tuple[int, Event]]) -> None:
    """Adds what tool servers of the pool were sent, and what they brought to the next call of a worker."""
    by_call = {at: call for at, call in record.calls if call.of == "tool" and call.provider != CLIENT}
    with_ours = {event.path for _, event in stored if isinstance(event, ev.ToolRan)}
    for at, call in record.calls:
        again = call.of == "step" and call.how == "again" and call.path in with_ours
        if at not in by_call and not again:
            continue
        for message in call.messages:
            for part in parts_of(message.content):
                text = part.arguments if isinstance(part, ToolCallPart) else getattr(part, "text", "")
                if at in by_call or isinstance(part, ToolCallPart | ToolResultPart):
                    record.add(text, Place("sent", at, label(call.path), call.agent, message.role))


def _hidden(stored: Iterable[tuple[int, Event]]) -> set[int]:
    """Returns the events of calls that follow a note of what was hidden in them."""
    return {
        sequence
        for (_, note), (sequence, event) in pairwise(stored)
        if isinstance(event, ev.StepStarted | ev.PlanStarted)
        and isinstance(note, ev.TextRedacted)
        and note.of == event.kind
    }


def _read_event(record: Record, at: int, event: Event) -> None:
    match event:
        case ev.RunCreated():
            _created(record, at, event)
        case ev.PlanStarted():
            _messages(record, at, event.messages, label(event.round), CONDUCTOR_AGENT)
        case ev.StepStarted():
            record.agents[event.path] = event.agent
            _messages(record, at, event.messages, label(event.path), event.agent)
        case ev.PlanCompleted():
            record.add(event.raw, Place("completion", at, label(event.round), CONDUCTOR_AGENT))
            _plan(record, at, event.round, event.workflow)
            _count_plan(record, event.workflow, event.topology, first=not event.round)
            if event.repairs:
                said = "; ".join(event.repairs)
                _note(record, Noted("corrected", "PlanRepaired", at, event.round, CONDUCTOR_AGENT, said))
        case ev.PlanEdited():
            _edited(record, at, event)
        case ev.PlanRejected():
            record.add(event.raw, Place("completion", at, label(event.round), CONDUCTOR_AGENT))
            for fault in event.faults:
                kind: Kind = "corrected" if event.will_retry else "failed"
                _failure(record, at, kind, fault.code, fault.message, event.round, CONDUCTOR_AGENT)
        case ev.PlanRetried():
            record.add(event.partial, Place("partial", at, label(event.round), CONDUCTOR_AGENT))
            kind = kind_of(event.error_code, "looping")
            _failure(record, at, kind, event.error_code, event.error, event.round, CONDUCTOR_AGENT)
        case ev.StepCompleted() | ev.StepReused():
            _answer(record, at, event)
        case ev.StepRetried() | ev.StepFailed() | ev.ToolCalled() | ev.ToolRan():
            _call(record, at, event)
        case ev.StepGiven():
            record.add(event.output, Place("output", at, label(event.path), event.agent, event.given.in_words))
            record.facets["edited", _who(event.given)] += 1
        case ev.ApprovalGranted() | ev.ApprovalDenied():
            record.facets["approval", event.kind.removeprefix("approval.")] += 1
            record.add(event.note, Place("note", at, detail=event.caller.in_words))
        case _:
            _read_status(record, at, event)


def _read_status(record: Record, at: int, event: Event) -> None:
    match event:
        case ev.ToolReturned():
            for result in event.results:
                record.add(result.text, Place("tool result", at, detail=result.call_id))
            record.add(event.said, Place("turn", at, detail="user"))
            record.add("" if event.anew is None else event.anew.system, Place("turn", at, detail="system"))
        case ev.RunWaiting():
            _set_status(record, "waiting")
        case ev.RunTaken():
            _set_status(record, "running")
        case ev.RunCompleted():
            planned = record.created is not None and record.created.request.plan_only
            _set_status(record, "planned" if planned else event.ending)
        case ev.RunFailed():
            _set_status(record, "failed")
            record.add(event.error, Place("error", at, detail=event.error_code))
            if not any(noted.code == event.error_code for noted in record.failures):
                code = event.error_code
                _note(record, Noted(kind_of(code), code, at, said=event.error))
        case ev.RunCancelled() | ev.RunInterrupted() | ev.RunDenied():
            _set_status(record, event.kind.removeprefix("run."))
            if isinstance(event, ev.RunInterrupted):
                _note(record, Noted("failed", "Interrupted", at, said="its process ended before it did"))


def _messages(record: Record, at: int, messages: Iterable[Message], path: str, agent: str) -> None:
    for message in messages:
        record.add(message.text, Place("sent", at, path, agent, message.role))


def _failure(record: Record, at: int, kind: Kind, code: str, text: str, path: Path, agent: str) -> None:
    _note(record, Noted(kind, code, at, path, agent, text))
    record.add(text, Place("error", at, label(path), agent, code))


def _note(record: Record, noted: Noted) -> None:
    record.failures.append(noted)
    record.facets["failure", noted.code] += 1


def _created(record: Record, at: int, event: ev.RunCreated) -> None:
    request = event.request
    record.add(request.task, Place("task", at))
    record.add(request.system, Place("turn", at, detail="system"))
    for turn in request.turns_before:
        record.add(turn.text, Place("turn", at, detail=turn.role))
    facets = record.facets
    _set_status(record, "queued" if event.queued else "running")
    facets["actor", _who(request)] = 1
    facets["workers", "simulated" if event.simulated else "real"] = 1
    if event.imported is not None:
        facets["origin", "recorded" if event.imported.recorded else "imported"] = 1
    elif request.parent_run_id:
        facets["origin", "re-run"] = 1


def _who(caused: Caused) -> str:
    return UNKNOWN if caused.actor is None else caused.actor.id


def _plan(record: Record, at: int, path: Path, workflow: Workflow, name: str = "instruction", by: str = "") -> None:
    for index, step in enumerate(workflow.steps):
        record.add(step.instruction, Place(name, at, label((*path, index)), step.agent, by))


def _count_plan(record: Record, workflow: Workflow, topology: str | None, *, first: bool) -> None:
    for step in workflow.steps:
        record.facets["agent", step.agent] += 1
    if first and topology:
        for key in [key for key in record.facets if key[0] == "topology"]:
            del record.facets[key]
        record.facets["topology", topology] = 1


def _edited(record: Record, at: int, event: ev.PlanEdited) -> None:
    kept = {step.instruction for step in event.after.steps}
    by = event.caller.in_words
    for index, step in enumerate(event.before.steps):
        if step.instruction not in kept:
            record.add(step.instruction, Place("before", at, label((*event.round, index)), step.agent, by))
    _plan(record, at, event.round, event.after, by=by)
    _count_plan(record, event.after, event.topology, first=not event.round)
    record.facets["edited", _who(event)] += 1


def _answer(record: Record, at: int, event: ev.StepCompleted | ev.StepReused) -> None:
    path = label(event.path)
    agent = event.answered_by or (event.agent if isinstance(event, ev.StepReused) else "")
    from_run = f"reused from run {event.source_run_id}" if isinstance(event, ev.StepReused) else ""
    record.add(event.output, Place("output", at, path, agent, from_run))
    record.add(event.refusal, Place("refusal", at, path, agent))
    for call in event.tool_calls:
        record.add(f"{call.name} {call.arguments}", Place("tool call", at, path, agent))
    for departure in event.departures:
        record.add(departure.text, Place("rest", at, path, agent))
    if event.ending != "completed":
        code = f"Answer{event.ending.capitalize()}"
        said = event.refusal or event.output or "the answer has no text"
        asked = agent or record.agents.get(event.path, "")
        _note(record, Noted(kind_of(code), code, at, event.path, asked, said))


def _failed_call(record: Record, at: int, event: ev.StepRetried | ev.StepFailed) -> None:
    kind, path = kind_of(event.error_code), label(event.path)
    agent = record.agents.get(event.path, "")
    if isinstance(event, ev.StepRetried):
        kind = "corrected" if event.correction else kind_of(event.error_code, "looping")
        agent = event.agent or agent
        record.add(event.refusal, Place("refusal", at, path, agent))
        if event.then == "fallback" and event.then_agent:
            record.agents[event.path] = event.then_agent
    record.add(event.partial, Place("partial", at, path, agent))
    _failure(record, at, kind, event.error_code, event.error, event.path, agent)


def _call(record: Record, at: int, event: ev.StepRetried | ev.StepFailed | ev.ToolCalled | ev.ToolRan) -> None:
    path = label(event.path)
    if isinstance(event, ev.ToolRan):
        tool = dotted(event.server, event.tool)
        record.add(event.result.text, Place("tool result", at, path, tool, event.outcome))
    elif isinstance(event, ev.ToolCalled):
        agent = event.agent or ""
        record.add(event.text, Place("output", at, path, agent))
        for call in event.calls:
            record.add(f"{call.name} {call.arguments}", Place("tool call", at, path, agent))
    else:
        _failed_call(record, at, event)


def _set_status(record: Record, status: str) -> None:
    for key in [key for key in record.facets if key[0] == "status"]:
        del record.facets[key]
    record.facets["status", status] = 1
