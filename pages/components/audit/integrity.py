"""Integrity: a line on every view of the Audit page, and a view that says what is protected and what was found."""

import re
import shlex
from datetime import UTC, datetime
from html import escape

import streamlit as st

from conductor_core.errors import BadInput, StoreError, UnknownRun
from pages.components.app.session import current
from pages.components.audit.checks import begin_check, check_of, last_result
from pages.components.audit.query import INTEGRITY, AuditQuery, go
from pages.components.audit.state import State, last_words, rests_on, state_of, waited, why
from pages.components.audit.tables import items, run_link
from pages.components.audit.work import Work
from pages.components.figure.component import title
from pages.components.style.formats import inert, moment, plural, seconds
from storage.evidence.anchoring import Evidence
from storage.evidence.anchors import GitAnchor
from storage.evidence.checking import CheckedLog, public_key
from storage.evidence.history import Finding

_WORKING_S, _IDLE_S = 1.0, 5.0
"""The time between two drawings of the line."""
_MOST_SHOWN = 50
_COMMAND = re.compile("`([^`]+)`")
_AT_ONCE_S = 0.4


def integrity_line(asked: AuditQuery) -> None:
    """Draws the state of the log in one line, and the button that verifies it. It is at the same place in all views."""
    store = current().store
    work = check_of(store)
    running = work is not None and work.running
    with st.container(horizontal=True, vertical_alignment="center", key="audit-integrity", gap="small"):
        st.fragment(_line, run_every=_WORKING_S if running else _IDLE_S)(asked.run_id, running=running)
        if work is not None and running:
            st.button("Stop", key="audit-verify-stop", icon=":material/stop:", on_click=work.stop)
            return
        if work is not None and work.error is not None:
            st.html(f'<span class="audit-state failing">▲ {escape(work.error)}</span>', width="content")
        st.button("Verify", key="audit-verify", icon=":material/verified_user:", on_click=_verify)


def _first(run_id: str | None) -> int | None:
    """Returns the sequence of the run's first event; None: there is none that can be read."""
    if run_id is None:
        return None
    try:
        found = current().store.raw_events(run_id, limit=1)
    except (UnknownRun, StoreError):
        return None
    return found[0].sequence if found else None


def _line(run_id: str | None, *, running: bool) -> None:
    """Is redrawn every few seconds. Redraws the whole page when a verification has ended."""
    work = check_of(current().store)
    if running and work is not None:
        if not work.running:
            st.rerun()
        _bar(work)
        return
    try:
        evidence = current().store.evidence()
    except StoreError as error:
        st.html(f'<p class="audit-line"><span class="audit-state failing">▲ {escape(str(error))}</span></p>')
        return
    last, now_utc = last_result(current().store), datetime.now(UTC)
    said = inert(last_words(last, run_id, now_utc, _first(run_id)))
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.html(_in_line(_state(evidence, last), evidence))
        pressed = st.button(said, key="audit-last", type="tertiary", help="What was checked, and what it rests on")
    if pressed:
        go(view=INTEGRITY)
        st.rerun()  # the whole page, not this line alone


def _state(evidence: Evidence, last: CheckedLog | None) -> State:
    return state_of(evidence, last, datetime.now(UTC), current().store.places.anchor.every_s)


def _verify() -> None:
    begin_check(current().store).wait(_AT_ONCE_S)


def _bar(work: Work[CheckedLog]) -> None:
    work.keep_alive()
    counted = f"{work.done:,} of {work.total:,} " if work.total else ""
    speed = f", {work.per_s:,.0f} a second" if work.total and work.done else ""
    st.progress(work.share, text=f"Verifying: {counted}{work.stage}{speed}")


def _in_line(state: State, evidence: Evidence) -> str:
    facts = []
    if evidence.anchored:
        facts.append(f"last checkpoint {moment(evidence.anchored_at_utc)}, {evidence.anchored:,} entries")
    return (
        f'<p class="audit-line"><span class="audit-state {state.kind}">{state.sign} {escape(state.words)}</span>'
        f'<span class="muted" title="{escape(why(evidence, state), quote=True)}">{" · ".join(facts)}</span></p>'
    )


def integrity(_asked: AuditQuery) -> None:
    """Draws all that is known of the log's integrity. Raises: StoreError."""
    last = last_result(current().store)
    left, right = st.columns(2, gap="small")
    with left, st.container(border=True, key="audit-protected", gap="xsmall"):
        title("What is protected")
        st.fragment(_protected, run_every=_IDLE_S)()
    with right, st.container(border=True, key="audit-checked", gap="xsmall"):
        title("The last verification")
        if last is None:
            st.caption(
                "None yet. *Verify* compares every event with the signed checkpoints and with the anchor, and every "
                "list with its events. It changes nothing, and takes seconds for 100,000 events."
            )
        else:
            _checked(last)
    with st.container(border=True, key="audit-elsewhere", gap="xsmall"):
        title("Check it without this page")
        _elsewhere()


def _protected() -> None:
    store = current().store
    evidence = store.evidence()
    state = _state(evidence, last_result(store))
    anchor = store.places.anchor
    what = "a git repository" if isinstance(anchor, GitAnchor) else "a file"
    unanchored = "none"
    if evidence.unanchored_events:
        since = moment(evidence.unanchored_since_utc)
        unanchored = (
            f"{plural(evidence.unanchored_events, 'event')}, since {since} ({waited(evidence, datetime.now(UTC))})"
        )
    checkpoint = "none yet"
    if evidence.anchored:
        checkpoint = f"{moment(evidence.anchored_at_utc)}, {evidence.anchored:,} of {evidence.entries:,} entries"
    facts = {
        "State": f'<span class="audit-state {state.kind}">{state.sign} {escape(state.words)}</span>',
        **_reason(evidence, state),
        "Covered": f"all events, 1 to {newest:,}" if (newest := store.newest()) else "no event yet",
        "Last checkpoint": escape(checkpoint),
        "Not anchored": escape(unanchored),
        "Published to": f"{what}, {escape(str(anchor.file))}",
        "Witness": escape(_witness(evidence)),
        "Log": escape(evidence.origin or "—"),
    }
    rows = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts.items())
    st.html(f'<dl class="audit-facts-list">{rows}</dl>')
    if state.kind in ("signed", "waiting", "none") and not evidence.witness.witnessed:
        st.caption(
            "A witness makes it proof: another user keeps what is published in a FOLDER of their own, or git:FOLDER is "
            "a repository whose remote refuses forced pushes. The command says what to do there, and what an auditor "
            "notes down."
        )
        st.code(f"conductor log anchor --db {shlex.quote(str(store.path))} --to FOLDER", language=None)


def _reason(evidence: Evidence, state: State) -> dict[str, str]:
    """Returns why the state is so, as HTML by its name. What a check found has its reasons beside it."""
    reason = why(evidence, state)
    if state.kind == "signed" or not reason:
        return {}
    found = state.kind == "damaged" and evidence.begun_again is None
    return {"Publishing" if found else "Why": escape(reason)}


def _witness(evidence: Evidence) -> str:
    said = f"{'' if evidence.witness.witnessed else 'none: '}{evidence.witness.why}"
    if evidence.witness_size is None:
        return said
    return f"{said}; it has {evidence.witness_size:,} of {evidence.anchored:,} published entries"


def _checked(last: CheckedLog) -> None:
    many = len(last.findings) + last.more
    kind, sign, words = "good", "●", "Nothing was found"
    if many:
        kind, sign, words = "damaged", "✕", plural(many, "finding")
    elif last.weak is not None:
        kind, sign, words = "failing", "▲", f"Nothing was found, without {last.weak}"
    st.html(
        f'<p class="audit-line"><span class="audit-state {kind}">{sign} {words}</span>'
        f'<span class="muted">{moment(last.at_utc)}, took {seconds(last.duration_ms)}</span></p>'
        f"{findings(last.findings)}"
    )
    if many > min(len(last.findings), _MOST_SHOWN):
        st.caption(f"The first {_MOST_SHOWN} of them. `conductor log verify` prints all.")
    st.html(f'<div class="audit-rests"><b>It rests on</b>{items(rests_on(last))}</div>')


def findings(found: tuple[Finding, ...]) -> str:
    """Returns findings as a list in HTML: class, run with the way to it, event, and what was done."""
    rows = []
    for each in found[:_MOST_SHOWN]:
        event = "" if each.sequence is None else f" event {each.sequence:,}"
        run = ""
        if each.run_id is not None:
            run = f" {run_link(each.run_id, f'run {each.run_id}')}"
        name, of = escape(each.kind.replace("_", " ")), f"{run}{event}"
        what = _COMMAND.sub(r"<code>\1</code>", escape(each.what))
        rows.append(f'<li><span class="pill failed">{name}</span>{of}{":" if of else ""} {what}</li>')
    return f'<ul class="audit-findings">{"".join(rows)}</ul>' if rows else ""


def _elsewhere() -> None:
    store = current().store
    try:
        key = public_key(store.path, store.places)
    except BadInput as error:
        st.warning(inert(str(error)), icon=":material/key_off:")
        return
    if key is None:
        evidence = store.evidence()
        if evidence.anchored:
            st.warning(f"The signing key is not at {inert(str(store.places.key))}: put its copy there.")
            return
        st.caption(
            "The log has no key yet: it is made at the first event. Print it then with `conductor log key`, and "
            "keep it where the owner of this machine cannot change it."
        )
        return
    st.caption(
        "Whoever checks takes the public key from somebody else than the owner of this machine, and the anchor from "
        "its place. Compare the fingerprint with the one that was handed out when the log began."
    )
    left, right = st.columns(2, gap="small")
    with left, st.container(gap="xxsmall"):
        st.caption("Fingerprint of the key")
        st.code(key.fingerprint, language=None, wrap_lines=True)
        st.caption("Public key")
        st.code(key.line, language=None, wrap_lines=True)
    with right, st.container(gap="xxsmall"):
        st.caption(
            "The verifier is one file, and needs Python and the package cryptography. The first command prints its "
            "version and SHA-256: compare them with the project's release"
        )
        database, anchor = (
            shlex.quote(str(store.path)),
            shlex.quote(str(store.places.witness or store.places.anchor.file)),
        )
        commands = (
            "conductor log verifier verify.py\n"
            f"python verify.py {database} --public-key {shlex.quote(key.line)} --anchor {anchor}"
        )
        st.code(commands, language=None, wrap_lines=True)
