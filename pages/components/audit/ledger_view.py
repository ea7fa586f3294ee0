"""The egress ledger: which server received what, by calls; and whether a provider ever received a text."""

from datetime import datetime
from html import escape

import streamlit as st

from pages.components.app.access_log import fault_note, searched
from pages.components.app.session import current
from pages.components.audit.query import AuditQuery, go
from pages.components.audit.results import PAGE
from pages.components.audit.tables import items, paging, run_link, table
from pages.components.figure.component import title
from pages.components.style.formats import inert, moment, plural
from storage.search.ledger import LedgerCall, Receiver, Receivers
from storage.search.received import Receipt

RECEIPT = "audit-receipt"
_HOW = {"first": "first call", "again": "repeated", "more_tokens": "with more tokens", "fallback": "as fallback"}


_Question = tuple[str, str, datetime | None, datetime | None, bool]
"""Provider, text, period and whether files are asked, of an answer: it is forgotten when its question changes."""


def ledger(asked: AuditQuery) -> None:
    """Draws the servers, the calls, and the question to the record. Raises: StoreError, BadInput."""
    search = current().store.search
    found = _receivers(asked)
    if asked.typed:
        searched(asked.typed, asked.filters.names, "ledger")
        fault_note()
    with st.container(border=True, key="audit-servers", gap="xsmall"):
        title("Servers that it was sent to" if asked.typed else "Servers that anything was sent to")
        first, *rest = found.in_words if not found.receivers else ("", *found.in_words)
        if first:
            st.info(inert(first), icon=":material/block:")
        for said in rest:
            st.caption(inert(said))
        for receiver in found.receivers:
            _server(receiver, asked)
        if any(receiver.failed for receiver in found.receivers):
            st.caption("A call that failed counts: nothing says how much of it arrived.")
        if found.more:
            st.caption("Only the newest texts with these words were searched: add a word or a filter.")
    left, right = st.columns([3, 2], gap="small")
    with left, st.container(border=True, key="audit-calls", gap="xsmall"):
        of = "" if asked.receiver is None else f"to {escape(_name(*asked.receiver))}"
        title("Calls", of)
        calls = search.calls(asked.typed, asked.filters, asked.receiver, asked.before, PAGE + 1)
        _calls(list(calls[:PAGE]))
        paging(asked, calls[PAGE - 1].call_id if len(calls) > PAGE else None, "ledger")
    with right, st.container(border=True, key="audit-never", gap="xsmall"):
        title("Was a text ever sent to a provider?")
        _ask_record(asked)


def _receivers(asked: AuditQuery) -> Receivers:
    """Asks the index; if it knows no server, the events are read, which may take a while."""
    bar = st.empty()

    def report(done: int, total: int) -> None:
        bar.progress(done / total, text=f"The index knows no server: {done:,} of {total:,} runs are read")

    try:
        return current().store.search.receivers(asked.typed, asked.filters, report)
    finally:
        bar.empty()


def _name(provider: str, host: str) -> str:
    return f"{provider} at {host}" if host else f"{provider}, in this process"


def _server(receiver: Receiver, asked: AuditQuery) -> None:
    key = f"{receiver.provider}@{receiver.host}"
    chosen = asked.receiver == (receiver.provider, receiver.host)
    with st.container(
        key=f"audit-server-{receiver.provider}-{receiver.host}", horizontal=True, vertical_alignment="center"
    ):
        st.button(
            f"{'● ' if chosen else ''}{inert(_name(receiver.provider, receiver.host))}",
            key=f"audit-to-{key}",
            type="tertiary",
            help="Only its calls" if not chosen else "All calls again",
            on_click=go,
            kwargs={"provider_of_calls": None if chosen else key},
        )
        simulated = '<span class="pill simulated">simulated</span> ' if receiver.simulated else ""
        images = f" · {plural(receiver.images, 'image')}" if receiver.images else ""
        count = "all" if receiver.failed == receiver.calls else f"{receiver.failed:,}"
        failed = f" ({count} failed)" if receiver.failed else ""
        counts = f"{plural(receiver.calls, 'call')} in {plural(receiver.runs, 'run')}{failed}{images}"
        agents = f'<span class="muted">{escape(receiver.agents)}</span>'
        last = f" · last {moment(receiver.last_utc)} "
        st.html(f'<span class="audit-server-facts">{simulated}{counts}{last}{agents}</span>')


def _calls(calls: list[LedgerCall]) -> None:
    if not calls:
        st.caption("No calls.")
        return
    st.html(table(("When", "For", "Agent", "Server", "Call"), map(_call, calls)))


def _call(call: LedgerCall) -> list[str]:
    simulated = ' <span class="muted">simulated</span>' if call.simulated else ""
    word = ", says the imported file" if call.imported else ""
    return [
        moment(call.at_utc),
        run_link(call.run_id, _what(call)),
        escape(call.agent),
        f"{escape(_name(call.provider, call.host))}{simulated}",
        escape(f"{_HOW.get(call.how, call.how)}, {call.ended}" if call.purpose != "traces" else call.ended) + word,
    ]


def _what(call: LedgerCall) -> str:
    if call.purpose == "traces":
        return "traces"
    if call.purpose == "plan":
        return f"the plan of step {call.path}" if call.path else "the plan"
    return f"step {call.path}"


def _ask_record(asked: AuditQuery) -> None:
    st.caption("Reads the events of all runs of the period, not the index, and says what the answer rests on.")
    with st.form("audit-receipt-form", border=False):
        provider = st.text_input(
            "Provider or host", placeholder="any; or openai, or api.example.com", key="receipt-provider"
        )
        text = st.text_input("Text", value=asked.typed.strip('"'), key="receipt-text")
        files = st.checkbox("Also ask the files of imported runs", key="receipt-imported")
        pressed = st.form_submit_button("Read the record", icon=":material/fact_check:")
    question: _Question = (provider, text, asked.filters.since_utc, asked.filters.until_utc, files)
    if pressed and not text.strip():
        st.error("Type the text that somebody may have received.", icon=":material/edit:")
    elif pressed:
        bar = st.progress(0.0, text="Reading")

        def report(done: int, total: int) -> None:
            bar.progress(done / total, text=f"{done:,} of {total:,} runs")

        receipt = current().store.search.receipt(*question[:4], report, imported=files)
        st.session_state[RECEIPT] = (question, receipt)
        period = [name for name in asked.filters.names if name in ("since", "until")]
        searched(text, [*(["provider"] if provider.strip() else []), *period], "received")
        bar.empty()
    kept: tuple[_Question, Receipt] | None = st.session_state.get(RECEIPT)
    if kept is not None and kept[0] == question:
        _receipt(kept[1])
    else:
        st.session_state.pop(RECEIPT, None)


def _receipt(receipt: Receipt) -> None:
    sign = "●" if receipt.times else "✕"
    st.markdown(f"**{sign} {inert(receipt.in_words)}** {inert(f'“{receipt.text[:200]}”')}")
    if receipt.received:
        calls = "".join(
            f"<li>{run_link(at.run_id, f'run {at.run_id[:8]}')} {escape(at.in_words)}, {moment(at.at_utc)}</li>"
            for at in receipt.received[:PAGE]
        )
        st.html(f'<ul class="audit-list">{calls}</ul>')
    for name, said in (("It rests on", receipt.rests_on), ("Not seen", receipt.not_seen)):
        st.html(f'<div class="audit-rests"><b>{name}</b>{items(said)}</div>')
