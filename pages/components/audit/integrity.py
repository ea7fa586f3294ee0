"""Integrity: a line on every view of the Audit page, and a view that says what is protected and what was found."""

import re
import shlex
import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

import streamlit as st

from conductor_core.errors import BadInput, StoreError, UnknownRun
from pages.components.app.session import current
from pages.components.app.widgets import across, button
from pages.components.app.work import Work
from pages.components.audit.query import INTEGRITY, TEMPLATE, AuditQuery, go
from pages.components.style.figures import panel
from pages.components.style.formats import ago, html, inert, moment, plural, seconds
from storage import Store
from storage.evidence.anchoring import Evidence, GitAnchor, evidence_folder
from storage.evidence.checking import CheckedLog, check_own_log, keep_check, last_check, public_key
from storage.evidence.history import Finding, counted

_STAGES = {"events": ("events", 0.0, 0.3), "entries": ("entries of the tree", 0.3, 0.1), "runs": ("runs", 0.4, 0.6)}
"""By what the check counts: how the page names it, where its part of the bar begins, and how long that is."""
_EVERY = 0x3FF

_works: dict[Path, Work[CheckedLog]] = {}
_lock = threading.Lock()


def check_of(store: Store) -> Work[CheckedLog] | None:
    return _works.get(store.path)


def begin_check(store: Store) -> Work[CheckedLog]:
    with _lock:
        now = _works.get(store.path)
        if now is None or not now.running:
            now = _works[store.path] = Work("verification", lambda work: _check(store, work))
        return now


def last_result(store: Store) -> CheckedLog | None:
    """Returns what the last check found, also that of another program or of before this start; None: there was none."""
    found = [work.result] if (work := check_of(store)) is not None else []
    with suppress(StoreError):  # the line of the page says what is wrong with the database
        found.append(last_check(evidence_folder(store.path), store.evidence().origin))
    return max((each for each in found if each is not None), key=lambda each: each.at_utc, default=None)


def _check(store: Store, work: Work[CheckedLog]) -> CheckedLog:
    runs = sum(store.totals().statuses.values())
    totals = {"events": store.newest(), "entries": store.evidence().entries, "runs": runs}

    def progress(what: str, count: int) -> None:
        if what == "runs" or not count & _EVERY:
            name, begin, length = _STAGES[what]
            total = max(1, totals[what], count)
            work.report(name, count, total, begin + length * count / total)

    work.report("the published checkpoints", 0, 0, 0.0)
    checked = check_own_log(store.path, store.places, store.vault, progress)
    keep_check(checked, evidence_folder(store.path))
    return checked


Kind = Literal["good", "signed", "waiting", "failing", "damaged", "none"]
LATE_S = 10.0
"""Events that wait longer than this, and longer than the anchor's own pace, are late, whatever the reason."""
_WITNESS_S = 60.0
"""After so long without the newest checkpoint, a witness is late."""
SIGNS: dict[Kind, str] = {"good": "●", "signed": "◐", "waiting": "◔", "failing": "▲", "damaged": "✕", "none": "–"}
_OF_ONE_KIND = {
    "anchor": "The anchor is not as it was published",
    "derived": "Lists or the search index do not say what the events say",
}
"""What is wrong if all findings are of one class, and none is about the events themselves."""


class State(NamedTuple):
    kind: Kind
    words: str

    @property
    def signed(self) -> str:
        return f"{SIGNS[self.kind]} {self.words}"


def state_of(evidence: Evidence, last: CheckedLog | None, now_utc: datetime, every_s: float = 0.0) -> State:
    """Returns the state, the worst first.

    ``last``: the last check; None: there was none. ``every_s``: the shortest time between two publications.
    """
    if last is not None and (last.findings or last.more):
        many = len(last.findings) + last.more
        kinds = {each.kind for each in last.findings} if not last.more else set()
        what = _OF_ONE_KIND.get(kinds.pop() if len(kinds) == 1 else "", "The record is not as it was written")
        return State("damaged", f"{what}: {plural(many, 'finding')}")
    if evidence.begun_again is not None:
        return State("damaged", "A log began again: the key has signed another log than this one")
    if not evidence.origin:
        return State("none", "No evidence: the database does not name its log")
    if evidence.doubt is not None and evidence.fault is None:
        return State("failing", "It cannot be confirmed how far the log is published")
    if evidence.unanchored_events:
        waiting = f"{plural(evidence.unanchored_events, 'event')} not anchored yet, for {waited(evidence, now_utc)}"
        if evidence.fault is not None:
            return State("failing", f"{waiting}: publishing has stopped")
        since = evidence.unanchored_since_utc
        late = since is not None and _passed_s(since, now_utc) > LATE_S + every_s
        return State("failing" if late else "waiting", waiting)
    if evidence.fault is not None:
        return State("failing", "Publishing has stopped")
    if evidence.entries <= 1:
        return State("none", "No event yet")
    if last is not None and last.weak is not None:
        return State("failing", f"The last verification lacked {last.weak}: it says little")
    if not evidence.witness.witnessed:
        return State("signed", "Signed here, not witnessed")
    size = evidence.witness_size
    if size is not None and size < evidence.anchored:
        at_utc = evidence.anchored_at_utc
        late = at_utc is not None and _passed_s(at_utc, now_utc) > _WITNESS_S
        entries = counted(evidence.anchored - size, "entry", "entries")
        return State("failing" if late else "waiting", f"{entries} not kept by the witness yet")
    return State("good", "All events are anchored")


def waited(evidence: Evidence, now_utc: datetime) -> str:
    """Returns how long the oldest event has not been anchored: ``4.2 s``, or ``an unknown time``."""
    since = evidence.unanchored_since_utc
    return "an unknown time" if since is None else seconds(1000 * max(0.0, _passed_s(since, now_utc)))


def _passed_s(since_utc: datetime, now_utc: datetime) -> float:
    return (now_utc - since_utc).total_seconds()


def why(evidence: Evidence, state: State) -> str:
    if evidence.begun_again is not None:
        return f"{_begun(evidence.begun_again)}. Nothing is published until then."
    if evidence.fault is not None:
        known = evidence.doubt is None or evidence.doubt in evidence.fault
        return (
            f"{_begun(evidence.fault)}. {'' if known else f'Also: {evidence.doubt}. '}Runs continue, and nothing is "
            "lost: everything is published once that is mended. Until then nothing protects these events."
        )
    if evidence.doubt is not None:
        return f"{_begun(evidence.doubt)}. Press Verify: it says whether anything was changed."
    if state.kind == "signed":
        return (
            f"{_begun(evidence.witness.why)}: whoever can write the database can sign and publish another history. "
            "Choose a witness, as Integrity says."
        )
    if "witness" in state.words:
        return "The process of the witness pulls every second or so while it runs: conductor log witness."
    if state.kind == "waiting":
        return "They are published a second after the event, with a git repository after 30."
    if evidence.unanchored_events:
        return (
            "The program that wrote them could not reach the anchor, or ended before it published them. The next event "
            "or the next start of this program publishes them."
        )
    return ""


def _begun(said: str) -> str:
    return said[:1].upper() + said[1:]


def last_words(last: CheckedLog | None, run_id: str | None, now_utc: datetime, first: int | None = None) -> str:
    """Returns the last check in a few words, of the log or of one run.

    ``first``: the sequence of the run's first event; None: there is no such run.
    """
    if last is None:
        return "Never verified here"
    when = f"Verified {ago(last.at_utc, now_utc)}"
    if run_id is None:
        many = len(last.findings) + last.more
        return f"{when}: {plural(many, 'finding') if many else 'nothing found'}"
    if many := len(last.of(run_id)):
        return f"{when}: {plural(many, 'finding')} about this run or the log"
    return f"{when}: nothing {'found' if knows(last, first) else 'known'} about this run"


def knows(last: CheckedLog, first: int | None) -> bool:
    """Whether a check without a finding about the run that begins at ``first`` says anything about it."""
    return not last.more and first is not None and first <= last.newest


def rests_on(last: CheckedLog) -> list[str]:
    key = "The signing key is missing, so no checkpoint could be compared."
    if last.fingerprint is not None:
        key = (
            f"The public key with the fingerprint {last.fingerprint[:16]}…, which is this machine's own: whoever "
            "controls the machine could have changed it."
        )
    anchor = "No anchor: whoever can write the database could have rewritten it all."
    if last.anchor is not None:
        rewritten = (
            "which the user of this program cannot rewrite"
            if last.witnessed
            else "not witnessed: whoever can write the database can rewrite both"
        )
        anchor = f"The anchor {last.anchor}, {rewritten}."
    said = [
        f"{plural(last.verified_events, 'event')} compared with a signed checkpoint, and the lists with the events.",
        key,
        anchor,
    ]
    if last.unanchored_events:
        said.append(f"{plural(last.unanchored_events, 'event')} not anchored at that moment: nothing protected them.")
    if last.deleted_runs:
        said.append(f"{plural(last.deleted_runs, 'run')} deleted or erased by the program, on record.")
    return [*said, *last.notes]


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
    with across("audit-integrity", gap="small"):
        st.fragment(_line, run_every=_WORKING_S if running else _IDLE_S)(asked.run_id, running=running)
        if work is not None and running:
            button("Stop", "audit-verify-stop", work.stop, icon="stop")
            return
        if work is not None and work.error is not None:
            st.html(html(TEMPLATE, "state_words", kind="failing", words=f"▲ {work.error}"), width="content")
        button("Verify", "audit-verify", lambda: begin_check(store).wait(_AT_ONCE_S), icon="verified_user")


def _line(run_id: str | None, *, running: bool) -> None:
    """Is redrawn every few seconds. Redraws the whole page when a verification has ended."""
    work = check_of(current().store)
    if running and work is not None:
        if not work.running:
            st.rerun()
        work.keep_alive()
        counted = f"{work.done:,} of {work.total:,} " if work.total else ""
        speed = f", {work.per_s:,.0f} a second" if work.total and work.done else ""
        st.progress(work.share, text=f"Verifying: {counted}{work.stage}{speed}")
        return
    store, first = current().store, None
    try:
        evidence = store.evidence()
    except StoreError as error:
        st.html(html(TEMPLATE, "fault_line", error=error))
        return
    if run_id is not None:
        with suppress(UnknownRun, StoreError):
            first = next((event.sequence for event in store.raw_events(run_id, limit=1)), None)
    last = last_result(store)
    said = inert(last_words(last, run_id, datetime.now(UTC), first))
    with across(gap="small"):
        state, at = _state_now(evidence, last), ""
        if evidence.anchored:
            at = f"last checkpoint {moment(evidence.anchored_at_utc)}, {evidence.anchored:,} entries"
        st.html(html(TEMPLATE, "line", kind=state.kind, words=state.signed, beside=at, title=why(evidence, state)))
        pressed = button(said, "audit-last", type="tertiary", help="What was checked, and what it rests on")
    if pressed:
        go(view=INTEGRITY)
        st.rerun()  # the whole page, not this line alone


def _state_now(evidence: Evidence, last: CheckedLog | None) -> State:
    return state_of(evidence, last, datetime.now(UTC), current().store.places.anchor.every_s)


def integrity(_asked: AuditQuery) -> None:
    last = last_result(current().store)
    left, right = st.columns(2, gap="small")
    with left, panel("audit-protected", "What is protected"):
        st.fragment(_protected, run_every=_IDLE_S)()
    with right, panel("audit-checked", "The last verification"):
        if last is None:
            st.caption(
                "None yet. *Verify* compares every event with the signed checkpoints and with the anchor, and every "
                "list with its events. It changes nothing, and takes seconds for 100,000 events."
            )
        else:
            _checked(last)
    with panel("audit-elsewhere", "Check it without this page"):
        _elsewhere()


def _protected() -> None:
    store = current().store
    evidence = store.evidence()
    state = _state_now(evidence, last_result(store))
    anchor = store.places.anchor
    what = "a git repository" if isinstance(anchor, GitAnchor) else "a file"
    unanchored = "none"
    if evidence.unanchored_events:
        since, waits = moment(evidence.unanchored_since_utc), waited(evidence, datetime.now(UTC))
        unanchored = f"{plural(evidence.unanchored_events, 'event')}, since {since} ({waits})"
    checkpoint = "none yet"
    if evidence.anchored:
        checkpoint = f"{moment(evidence.anchored_at_utc)}, {evidence.anchored:,} of {evidence.entries:,} entries"
    reason = "" if state.kind == "signed" else why(evidence, state)
    # What a check found has its reasons beside it.
    asks = "Publishing" if state.kind == "damaged" and evidence.begun_again is None else "Why"
    witness = f"{'' if evidence.witness.witnessed else 'none: '}{evidence.witness.why}"
    if evidence.witness_size is not None:
        witness += f"; it has {evidence.witness_size:,} of {evidence.anchored:,} published entries"
    facts = {
        "State": html(TEMPLATE, "state_words", kind=state.kind, words=state.signed),
        **({asks: reason} if reason else {}),
        "Covered": f"all events, 1 to {newest:,}" if (newest := store.newest()) else "no event yet",
        "Last checkpoint": checkpoint,
        "Not anchored": unanchored,
        "Published to": f"{what}, {anchor.file}",
        "Witness": witness,
        "Log": evidence.origin or "—",
    }
    st.html(html(TEMPLATE, "facts", found=facts))
    if state.kind in ("signed", "waiting", "none") and not evidence.witness.witnessed:
        st.caption(
            "A witness makes it proof: another user keeps what is published in a FOLDER of their own, or git:FOLDER is "
            "a repository whose remote refuses forced pushes. The command says what to do there, and what an auditor "
            "notes down."
        )
        st.code(f"conductor log anchor --db {shlex.quote(str(store.path))} --to FOLDER", language=None)


def _checked(last: CheckedLog) -> None:
    many = len(last.findings) + last.more
    kind, sign, words = "good", "●", "Nothing was found"
    if many:
        kind, sign, words = "damaged", "✕", plural(many, "finding")
    elif last.weak is not None:
        kind, sign, words = "failing", "▲", f"Nothing was found, without {last.weak}"
    took = f"{moment(last.at_utc)}, took {seconds(last.duration_ms)}"
    st.html(html(TEMPLATE, "line", kind=kind, words=f"{sign} {words}", beside=took))
    if last.findings:
        st.html(html(TEMPLATE, "findings", found=findings(last.findings)))
    if many > min(len(last.findings), _MOST_SHOWN):
        st.caption(f"The first {_MOST_SHOWN} of them. `conductor log verify` prints all.")
    st.html(html(TEMPLATE, "rests", name="It rests on", said=rests_on(last)))


def findings(found: Sequence[Finding]) -> list[tuple[Finding, list[str]]]:
    return [(each, _COMMAND.split(each.what)) for each in found[:_MOST_SHOWN]]


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
        anchor = store.places.witness or store.places.anchor.file
        options = ["python", "verify.py", str(store.path), "--public-key", key.line, "--anchor", str(anchor)]
        st.code(f"conductor log verifier verify.py\n{shlex.join(options)}", language=None, wrap_lines=True)
