"""A run as a decision record: who asked and planned, who changed and approved what, what left, what it cost."""

from datetime import UTC, datetime
from html import escape

import streamlit as st

from conductor_core.analysis.compare import Difference
from conductor_core.analysis.decision_record import (
    ApprovalPart,
    DecisionRecord,
    Egress,
    GivenPart,
    PlanEdit,
    PlanPart,
    StepPart,
    access,
)
from conductor_core.errors import InspectorError
from conductor_core.run.redaction import Redactor
from conductor_core.run.trace import RunUnreadable, unreadable_status
from conductor_core.workflow.model import Step
from pages.components.app import places
from pages.components.app.access_log import viewed
from pages.components.app.session import current
from pages.components.app.widgets import fault_box
from pages.components.audit.access_view import show_access_of_run
from pages.components.audit.checks import last_result
from pages.components.audit.export_menu import export_run
from pages.components.audit.integrity import findings
from pages.components.audit.query import go
from pages.components.audit.state import knows, last_words
from pages.components.audit.tables import items, run_link, table
from pages.components.figure.component import title
from pages.components.history.notes import damage
from pages.components.style.formats import inert, instruction_html, moment, plural, run_status, seconds, step_status
from storage.bundles import record_of

_LONG = 1_500
"""Characters of a text that are shown at once; the Run page has the whole."""


def record_page(run_id: str) -> None:
    """Draws the record of the run, as far as it can be read."""
    head = st.container(horizontal=True, vertical_alignment="center", key="audit-record-head")
    with head:
        st.button("Back to what was found", key="audit-back", icon=":material/arrow_back:", on_click=_back)
        for place, label, icon in (
            (places.RUN, "Open the run", "play_circle"),
            (places.CONTEXT, "Who saw what", "account_tree"),
        ):
            st.page_link(place, label=label, icon=f":material/{icon}:", query_params={"run": run_id}, width="content")
    record, fault = _read(run_id)
    if record is None:
        show_access_of_run(run_id)
        return
    viewed([run_id], "decision record")
    with head:
        export_run(record, encrypted=current().store.vault.has(run_id))
    _top(record, record.status if fault is None else unreadable_status(fault))
    left, right = st.columns([3, 2], gap="small")
    with left:
        _section("changes", "Who changed it, and what", _changes(record))
        _section("plan", "The plan", "".join(map(_plan, record.plans)) or "<p>No plan was made.</p>")
        _section(
            "steps", "What each step received and answered", "".join(map(_step, record.steps)) or "<p>No step.</p>"
        )
    with right:
        _section(
            "egress", "Who received which text", "".join(map(_server, record.egress)) or "<p>No server was asked.</p>"
        )
        _section("approvals", "Approvals", "".join(map(_approval, record.approvals)) or "<p>None was asked for.</p>")
        _section("cost", "Tokens and cost", _cost(record))
        _section("failures", "What went wrong", _failures(record))
        show_access_of_run(run_id)


def _back() -> None:
    go(run=None, before=st.query_params.get("before"))


def _read(run_id: str) -> tuple[DecisionRecord | None, RunUnreadable | None]:
    """Returns the record, and why the run cannot be read to its end; says what is wrong."""
    store = current().store
    fault: RunUnreadable | None = None
    try:
        _, fault = store.readable_events(run_id)
        if fault is not None:
            damage(fault)
        return record_of(store, run_id, Redactor()), fault
    except InspectorError as error:
        if fault is None:
            fault_box(error)
    except ValueError as error:
        st.error(inert(f"run {run_id} cannot be read as a record: {error}"), icon=":material/error:")
    return None, fault


def _top(record: DecisionRecord, status: str) -> None:
    facts = [
        ("Asked by", f"{record.asked_by.words}{f', for {record.purpose}' if record.purpose else ''}"),
        ("Began", moment(record.created_at_utc)),
        ("Ended", "not yet" if record.ended_at_utc is None else moment(record.ended_at_utc)),
        ("Took", seconds(record.duration_ms)),
        ("Cost", f"{record.cost}{f' ({record.basis})' if record.basis else ''}"),
        ("Tokens", f"{record.usage.total_tokens:,}"),
        ("Events", f"{record.events:,}, {record.first} to {record.last}"),
    ]
    pill = f'<span class="pill {status}">{run_status(status)}</span>'
    notes = "".join(f'<li class="audit-note-{each.kind}">{escape(each.text)}</li>' for each in record.notes)
    words = "".join(f'<div><span class="muted">{name}</span><br>{escape(value)}</div>' for name, value in facts)
    answer = "no answer" if record.answer is None else _shortened(record.answer)
    headline = f'<b>Answer</b> <span dir="auto">{escape(record.headline)}</span>' if record.headline else ""
    with st.container(border=True, key="audit-top", gap="xsmall"):
        st.html(
            f'<div class="audit-record-task">{pill}<p dir="auto">{_shortened(record.task)}</p></div>'
            f'<div class="audit-dl">{words}</div><ul class="audit-list">{notes}</ul>'
            f'<div class="audit-answer">{headline}<pre dir="auto">{answer}</pre></div>'
            f"{_integrity(record)}"
        )


def _integrity(record: DecisionRecord) -> str:
    """Returns, as HTML, what the last verification found about this run."""
    last = last_result(current().store)
    if last is None:
        return '<p class="muted audit-places">Whether this record is as it was written: <i>Verify</i> checks it.</p>'
    found = last.of(record.run_id)
    said = last_words(last, record.run_id, datetime.now(UTC), record.first)
    if found:
        return f'<p class="audit-places audit-state damaged">✕ {said}</p>{findings(found)}'
    if (record.last or 0) > last.newest:
        return f'<p class="muted audit-places">{said}. It has newer events: <i>Verify</i> checks them, too.</p>'
    if not knows(last, record.first):
        return f'<p class="muted audit-places">{said}.</p>'
    if last.weak is not None:
        said += f", without {last.weak}"
        return f'<p class="muted audit-places"><span class="audit-state failing">▲</span> {said}.</p>'
    return f'<p class="muted audit-places"><span class="audit-state good">●</span> {said}.</p>'


def _section(key: str, name: str, html: str) -> None:
    with st.container(border=True, key=f"audit-part-{key}", gap="xsmall"):
        title(name)
        st.html(f'<div class="audit-part">{html}</div>')


def _shortened(text: str) -> str:
    return escape(text if len(text) <= _LONG else f"{text[:_LONG]}… ({len(text):,} characters)")


def _told(instruction: str) -> str:
    return instruction_html(instruction) if len(instruction) <= _LONG else _shortened(instruction)


def _changes(record: DecisionRecord) -> str:
    parts = [*map(_edit, record.edits), *map(_given, record.given)]
    if record.against is not None:
        verb = "Resumes" if record.against.resumed else "Re-runs"
        changed = "; ".join(f"step {step}: {why}" for step, why in record.against.changed)
        of = record.against.run_id
        said = f" Changed outputs: {escape(changed)}." if changed else ""
        parts.append(f"<p>{verb} {run_link(of, f'run {of}')}.{said}</p>")
    return "".join(parts) or "<p>Nobody changed the plan or an output.</p>"


def _edit(edit: PlanEdit) -> str:
    of = f" of step {escape(edit.round)}" if edit.round else ""
    changes = items(edit.changes)
    differences = "".join(map(_difference, edit.differences))
    return f"<p><b>✎ The plan{of}</b>, by {escape(edit.by.words)}, {moment(edit.at_utc)}</p>{changes}{differences}"


def _difference(difference: Difference) -> str:
    before, after = difference.before, difference.after
    index = difference.b if difference.b is not None else difference.a
    was, now = _parts(before), _parts(after)
    rows = [
        (name, f"<del>{_cell(was.get(name))}</del>", f"<ins>{_cell(now.get(name))}</ins>")
        for name in ("agent", "access list", "instruction")
        if was.get(name) != now.get(name)
    ]
    return table((f"step {index}", "Before", "After"), rows, "wide") if rows else ""


def _parts(step: Step | None) -> dict[str, str]:
    if step is None:
        return {}
    return {"agent": step.agent, "access list": access(step.access_list), "instruction": step.instruction}


def _cell(value: str | None) -> str:
    return "—" if value is None else _told(value)


def _given(given: GivenPart) -> str:
    source = f" (from {escape(given.source)})" if given.source else ""
    before = "" if given.before is None else f'<pre dir="auto"><del>{_shortened(given.before)}</del></pre>'
    return (
        f"<p><b>✎ The output of step {escape(given.step)}</b> ({escape(given.agent)}) was {given.how}{source} by "
        f'{escape(given.by.words)}</p>{before}<pre dir="auto"><ins>{_shortened(given.after)}</ins></pre>'
    )


def _plan(plan: PlanPart) -> str:
    name = f"<p><b>Round {plan.round.count('.') + 2} · step {escape(plan.round)}</b></p>" if plan.round else ""
    rows = [
        (escape(step.label), escape(step.agent), escape(step.access), _told(step.instruction)) for step in plan.steps
    ]
    shape = f"; shape: {escape(plan.topology)}" if plan.topology else ""
    steps = table(("Step", "Agent", "Reads", "Instruction"), rows, "wide")
    return f"{name}<p>Written by {escape(plan.written_by)}{shape}</p>{steps}{items([*plan.repairs, *plan.warnings])}"


def _step(step: StepPart) -> str:
    saw = ", ".join(f"step {piece.source.removeprefix('step ')}" for piece in step.granted) or "no earlier output"
    kept = ", ".join(f"step {piece.source.removeprefix('step ')}" for piece in step.withheld)
    instead = f"<p>{escape(step.instead)}</p>" if step.instead else ""
    seen = f"saw {escape(saw)}{f'; withheld: {escape(kept)}' if kept else ''}"
    return (
        f"<details><summary><b>{escape(step.label)}</b> {escape(step.agent)} · {step_status(step.status)} · {seen}"
        f"</summary><p class=muted>{escape(step.where)}</p>{instead}"
        f'<p class=muted>Instruction</p><pre dir="auto">{_told(step.instruction)}</pre>'
        f'<p class=muted>Output</p><pre dir="auto">{_shortened(step.output) or "none"}</pre></details>'
    )


def _server(server: Egress) -> str:
    name = f"{server.provider} at {server.host}" if server.host else f"{server.provider}, in this process"
    simulated = ' <span class="pill simulated">simulated</span>' if server.simulated else ""
    got = [
        f"{copy.source}: {plural(copy.times, 'time')}{f', {copy.reused} by an earlier run' if copy.reused else ''}"
        for copy in server.received
    ]
    never = f"<p class=muted>✕ never: {escape(', '.join(server.never))}</p>" if server.never else ""
    agents = f"<span class=muted>{escape(', '.join(server.agents))}</span>"
    word = "<span class=muted>, says the imported file</span>" if server.of_file else ""
    traces = "traces, without what people and models wrote" if server.traces and not got else ""
    beside = f'<p dir="auto"><span class=muted>beside:</span> {_shortened("; ".join(server.beside))}</p>'
    beside = beside if server.beside else ""
    return (
        f"<p><b>{escape(name)}</b>{simulated} {agents}{word}</p>{items([*got, *filter(None, [traces])])}{beside}{never}"
    )


def _approval(approval: ApprovalPart) -> str:
    rules = ", ".join(approval.rules)
    by = "" if approval.by is None else f" by {escape(approval.by.words)}, {moment(approval.decided_at_utc)}"
    note = f'<p dir="auto">“{escape(approval.note)}”</p>' if approval.note else ""
    gates = f"<span class=muted>({escape(', '.join(filter(None, [f'gate {rules}', approval.most])))})</span>"
    return f"<p><b>{escape(approval.decision)}</b>{by}: {escape(approval.what)} {gates}</p>{note}"


def _cost(record: DecisionRecord) -> str:
    rows = [
        (escape(part.what), escape(part.agent), f"{part.usage.total_tokens:,}", escape(part.cost))
        for part in record.cost_parts
    ]
    broken = "<p>Calls that were broken off count by estimate.</p>" if record.broken_off else ""
    return f"{table(('For', 'Agent', 'Tokens', 'Cost'), rows)}{broken}"


def _failures(record: DecisionRecord) -> str:
    said = [
        f"{each.place}: {each.error} ({each.code}){f'; {each.then}' if each.then else ''}" for each in record.failures
    ]
    return items(said) or "<p>Nothing.</p>"
