"""What the Audit page lists: texts and runs that a search finds, tokens and cost, and the catalogue of failures.

Cost is by day, agent and person.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime

import streamlit as st
from markupsafe import Markup

from conductor_core.errors import InspectorError
from conductor_core.run.costs import Cost
from conductor_core.run.request import REPLAY_PURPOSE
from pages.components.app.session import current, fault_note, searched, viewed
from pages.components.app.widgets import across, segments, text_button
from pages.components.audit.export_menu import export_found
from pages.components.audit.query import FOUND, TEMPLATE, AuditQuery, go, open_run, paging
from pages.components.run_list.table import WITH_PEOPLE, Entry, by_task, known
from pages.components.run_list.table import table as run_table
from pages.components.style.figures import Figure, agent_dot, bars, colour_name, figure, panel, title
from pages.components.style.formats import RUN_STATUSES, html, inert, moment, plural, run_status, server_name
from storage import RunSummary
from storage.search.ledger import LedgerCall, Receipt, Receiver, Receivers, Spending
from storage.search.reading import FIELDS, Place

HEIGHT_PX = 230
_POOLS_READ = 20
TOKENS, USD = "Tokens", "Cost"


def spending(asked: AuditQuery) -> None:
    rows = current().store.search.spending(asked.filters)
    if not rows:
        said = "No model was called in these runs. Imported ones count only with the filter origin."
        st.info(said, icon=":material/payments:")
        return
    agents = _agents(rows)
    with st.container(border=True, key="audit-days", gap="xsmall"):
        with across("audit-days-head"):
            title("By day and agent")
            what = segments("What", [TOKENS, USD], "audit-what", default=TOKENS, width="content")
        totals: Counter[str] = Counter()
        for row in rows:
            totals[row.day] += row.tokens
        alt = f"Tokens by day: {'; '.join(f'{day} {tokens:,}' for day, tokens in sorted(totals.items()))}"
        figure(days_figure(rows, agents, usd=what == USD), key="audit-days-figure", alt=alt)
        if any(row.simulated for row in rows):
            among = "The tokens of simulated workers are among them."
            st.caption("Without simulated workers." if what == USD else among)
    by_agent, by_person = st.columns(2, gap="small")
    with by_agent, panel("audit-agents", "By agent"):
        st.html(_table("Agent", rows, lambda row: row.agent, agents))
    with by_person, panel("audit-people", "By person"):
        st.html(_table("Person", rows, lambda row: row.person, ()))
    st.caption(
        "Sums of recorded calls. Calls that broke off have no cost of their own. Imported runs are left out, and so "
        "are erased ones: their calls are gone."
    )


def _agents(rows: Sequence[Spending]) -> list[str]:
    """Returns the agents in the order of the newest runs' pools, by which all pages choose their colours."""
    wanted = {row.agent for row in rows if row.agent != "conductor"}
    known: dict[str, None] = {}
    for run in current().store.runs(limit=_POOLS_READ):
        if wanted <= known.keys():
            break
        with suppress(InspectorError):  # an erased or damaged run tells no pool
            known |= dict.fromkeys(spec.name for spec in current().store.created(run.run_id).pool.workers)
    return [*known, *sorted(wanted - known.keys())]


def days_figure(rows: Sequence[Spending], agents: Sequence[str], *, usd: bool) -> Figure:
    days = sorted({row.day for row in rows})
    sums: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(days, 0.0))
    for row in rows:
        sums[row.agent][row.day] += (0.0 if row.simulated else row.known_usd) if usd else row.tokens
    named = [(agent, f"@{colour_name(agent, agents)}", [*of_day.values()]) for agent, of_day in sorted(sums.items())]
    return bars(named, days, HEIGHT_PX, form="$%{y:.4f}" if usd else "%{y:,} tokens", bargap=0.35)


def _table(name: str, rows: Sequence[Spending], key: Callable[[Spending], str], agents: Sequence[str]) -> str:
    groups: dict[str, list[Spending]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    ordered = sorted(groups.items(), key=lambda item: -sum(row.tokens for row in item[1]))
    body = []
    for group, of in ordered:
        named = Markup("{}{}").format(agent_dot(group, agents) if agents else "", group)
        calls, tokens = sum(row.calls for row in of), sum(row.tokens for row in of)
        body.append((named, f"{calls:,}", f"{tokens:,}", _cost(of)))
    return html(TEMPLATE, "table", heads=(name, "Calls", "Tokens", "Cost"), rows=body, kind="numbers")


def _cost(rows: Sequence[Spending]) -> str:
    """Returns the cost of real calls, and beside it, never in it, what simulated workers would have cost."""
    real = [row for row in rows if not row.simulated]
    known, unpriced = sum(row.known_usd for row in real), sum(row.unpriced for row in real)
    simulated = Cost(known_usd=(usd := sum(row.known_usd for row in rows if row.simulated)), usd=usd)
    if not real:
        return f"{simulated} simulated"
    said = str(Cost(None if unpriced else known, known))
    return f"{said} + {simulated} simulated" if usd else said


def failures(asked: AuditQuery) -> None:
    """Draws each kind of failure; its name opens the runs that had it. Raises: StoreError."""
    found = current().store.search.failures(asked.filters)
    if not found:
        st.info("Nothing failed in these runs.", icon=":material/check_circle:")
        return
    with panel("audit-failures", "What failed, how often, and in which tasks"):
        for failure in found:
            key = f"{failure.kind}-{failure.code}"  # the same code may have ended one run and been mended in another
            its = {"failure": failure.code, "view": FOUND}
            with st.container(key=f"audit-failure-{key}", gap=None):
                with across():
                    text_button(inert(failure.code), f"audit-failed-{key}", go, help="Open its runs", kwargs=its)
                    counts = f"{failure.kind} {plural(failure.times, 'time')} in {plural(failure.runs, 'run')}"
                    st.html(html(TEMPLATE, "counts", words=counts))
                tasks = list(zip(failure.tasks, failure.run_ids, strict=True))
                st.html(html(TEMPLATE, "failure", said=failure.said, tasks=tasks))


PAGE, MOST_FOLDED = 20, 200
_MOST_PLACES = 6


def found(asked: AuditQuery) -> None:
    """Draws the count and a page of texts, or of runs if no words are asked for. Raises: StoreError, BadInput."""
    search = current().store.search
    count = search.count(asked.typed, asked.filters, asked.field if asked.typed else None)
    least = "at least " if count.more else ""
    texts = f"{plural(count.texts, 'text')} in " if asked.typed else ""
    with across("audit-count"):
        st.caption(f"{least}{texts}{plural(count.runs, 'run')}, newest first", width="content")
        if count.runs:
            export_found(asked, count)
    if asked.typed:
        _texts(asked)
        return
    # The replays of a blame are one row where nothing is asked for, so more runs are read than rows drawn.
    most = MOST_FOLDED if asked.blank else PAGE
    runs = search.runs(asked.filters, asked.before, most + 1)
    read = runs[:most]
    rows = _folded(read) if asked.blank else list[Entry](read)
    shown = rows[:PAGE]
    ids = [run.run_id for run in shown if isinstance(run, RunSummary)]
    told = {run.run_id: run for run in current().store.runs(limit=PAGE, among=ids, answers=True)}
    shown = [told.get(run.run_id, run) if isinstance(run, RunSummary) else run for run in shown]
    if shown:
        run_table(by_task(shown, known(shown)), WITH_PEOPLE, opened=("audit-open-", open_run))
    else:
        _nothing(more=False)
    more = len(rows) > PAGE or len(read) < len(runs)
    paging(asked.before, (shown[-1] if len(rows) > PAGE else read[-1]).sequence if more else None, "audit")


def _texts(asked: AuditQuery) -> None:
    page = current().store.search.texts(asked.typed, asked.filters, asked.field, asked.before, PAGE)
    searched(asked.typed, [*asked.filters.names, *([] if asked.field is None else ["in"])], "texts")
    viewed(dict.fromkeys(hit.run_id for hit in page.hits), "hits")
    with st.container(key="audit-hits", gap=None):
        for hit in page.hits:
            with st.container(key=f"audit-hit-{hit.text_id}", gap=None):
                with across(f"audit-hit-head-{hit.text_id}"):
                    # A page link to this page would leave the browser's address as it is.
                    label = inert(" ".join(hit.task.split())[:160]) or "no task"
                    text_button(label, f"audit-open-{hit.text_id}", open_run, hit.run_id)
                    status = run_status(hit.status) if hit.status in RUN_STATUSES else hit.status
                    st.html(html(TEMPLATE, "hit_facts", hit=hit, status=status), width="content")
                st.html(html(TEMPLATE, "hit", snippet=hit.snippet, places=places(hit.places)))
    if not page.hits:
        _nothing(more=page.before is not None)
    paging(asked.before, page.before, "audit")


def _folded(runs: Sequence[RunSummary]) -> list[Entry]:
    """Puts one row in the place of the replays of a blame, where the oldest of them is."""
    found: dict[str, Entry] = {}
    for run in reversed(runs):
        if run.purpose != REPLAY_PURPOSE or run.batch_id is None:
            found[run.run_id] = run
        elif run.batch_id not in found:
            found |= {batch.batch_id: batch for batch in current().store.batches(limit=1, batch=run.batch_id)}
    return sorted(found.values(), key=lambda entry: entry.sequence, reverse=True)


def _nothing(*, more: bool) -> None:
    if more:
        st.info("Nothing among the newest texts with these words; *Older* continues.", icon=":material/manage_search:")
    else:
        st.info("By the search index, nothing matches. Take a word or a filter out.", icon=":material/search_off:")


def places(all_places: Iterable[Place]) -> str:
    """Returns where a text is: ``a message that was sent to step 1 (solver)``."""
    said: dict[str, None] = {}
    for at in all_places:
        of = f" {'to' if at.field == 'sent' else 'of'} step {at.path}" if at.path else ""
        if not at.path and at.agent == "conductor" and at.field == "sent":
            of = " to the Conductor"
        agent = f" ({at.agent})" if at.agent and at.path else ""
        said[f"{FIELDS[at.field]}{of}{agent}"] = None
    more = f" and {len(said) - _MOST_PLACES} more places" if len(said) > _MOST_PLACES else ""
    return " · ".join(list(said)[:_MOST_PLACES]) + more


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
    with panel("audit-servers", "Servers that it was sent to" if asked.typed else "Servers that anything was sent to"):
        for number, said in enumerate(found.in_words):
            if number == 0 and not found.receivers:
                st.info(inert(said), icon=":material/block:")
            else:
                st.caption(inert(said))
        for receiver in found.receivers:
            _server(receiver, asked)
        if any(receiver.failed for receiver in found.receivers):
            st.caption("A call that failed counts: nothing says how much of it arrived.")
        if found.more:
            st.caption("Only the newest texts with these words were searched: add a word or a filter.")
    left, right = st.columns([3, 2], gap="small")
    with left, st.container(border=True, key="audit-calls", gap="xsmall"):
        of = "" if asked.receiver is None else f"to {server_name(*asked.receiver)}"
        title("Calls", of)
        calls = search.calls(asked.typed, asked.filters, asked.receiver, asked.before, PAGE + 1)
        if calls:
            heads = ("When", "For", "Agent", "Server", "Call")
            st.html(html(TEMPLATE, "table", heads=heads, rows=map(_call, calls[:PAGE])))
        else:
            st.caption("No calls.")
        paging(asked.before, calls[PAGE - 1].call_id if len(calls) > PAGE else None, "ledger")
    with right, panel("audit-never", "Was a text ever sent to a provider?"):
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


def _server(receiver: Receiver, asked: AuditQuery) -> None:
    key = f"{receiver.provider}@{receiver.host}"
    chosen = asked.receiver == (receiver.provider, receiver.host)
    with across(f"audit-server-{receiver.provider}-{receiver.host}"):
        label = f"{'● ' if chosen else ''}{inert(server_name(receiver.provider, receiver.host))}"
        says, calls = "All calls again" if chosen else "Only its calls", {"provider_of_calls": None if chosen else key}
        text_button(label, f"audit-to-{key}", go, help=says, kwargs=calls)
        st.html(html(TEMPLATE, "server_facts", receiver=receiver))


def _call(call: LedgerCall) -> list[str]:
    step = f"the plan of step {call.path}" if call.path else "the plan"
    what = {"traces": "traces", "plan": step}.get(call.purpose, f"step {call.path}")
    how = "" if call.purpose == "traces" else f"{_HOW.get(call.how, call.how)}, "
    return [
        moment(call.at_utc),
        html(TEMPLATE, "run_link", run_id=call.run_id, words=what),
        call.agent,
        html(TEMPLATE, "server_name", name=server_name(call.provider, call.host), simulated=call.simulated),
        f"{how}{call.ended}{', says the imported file' if call.imported else ''}",
    ]


def _ask_record(asked: AuditQuery) -> None:
    st.caption("Reads the events of all runs of the period, not the index, and says what the answer rests on.")
    with st.form("audit-receipt-form", border=False):
        says = "any; or openai, or api.example.com"
        provider = st.text_input("Provider or host", placeholder=says, key="receipt-provider")
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
    if kept is None or kept[0] != question:
        st.session_state.pop(RECEIPT, None)
        return
    receipt = kept[1]
    sign = "●" if receipt.times else "✕"
    st.markdown(f"**{sign} {inert(receipt.in_words)}** {inert(f'“{receipt.text[:200]}”')}")
    if receipt.received:
        st.html(html(TEMPLATE, "received", found=receipt.received[:PAGE]))
    for name, said in (("It rests on", receipt.rests_on), ("Not seen", receipt.not_seen)):
        st.html(html(TEMPLATE, "rests", name=name, said=said))
