"""What the Audit page lists: texts and runs that a search finds, tokens and cost, and the catalogue of failures.

Cost is by day, agent and person. Every text is escaped.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from html import escape
from typing import Any

import streamlit as st

from conductor_core.errors import InspectorError
from conductor_core.run.costs import Cost
from conductor_core.run.request import REPLAY_PURPOSE
from pages.components.app.access_log import searched, viewed
from pages.components.app.session import current
from pages.components.audit.export_menu import export_found
from pages.components.audit.query import FOUND, AuditQuery, go
from pages.components.audit.tables import paging, run_link, table
from pages.components.figure.component import figure, title
from pages.components.run_list.rows import Entry, by_task
from pages.components.run_list.table import WITH_PEOPLE, known
from pages.components.run_list.table import table as run_table
from pages.components.style.figures import Figure, agent_dot, layout, plain
from pages.components.style.formats import RUN_STATUSES, ago, inert, moment, plural, run_status
from storage import RunSummary
from storage.search.hits import Hit
from storage.search.ledger import Failure, Spending
from storage.search.reading import FIELDS, Place

HEIGHT_PX = 230
_POOLS_READ = 20
TOKENS, USD = "Tokens", "Cost"


def spending(asked: AuditQuery) -> None:
    """Draws the sums over the calls of the runs that are asked for. Raises: StoreError."""
    rows = current().store.search.spending(asked.filters)
    if not rows:
        st.info(
            "No model was called in these runs. Imported ones count only with the filter origin.",
            icon=":material/payments:",
        )
        return
    agents = _agents(rows)
    with st.container(border=True, key="audit-days", gap="xsmall"):
        with st.container(horizontal=True, vertical_alignment="center", key="audit-days-head"):
            title("By day and agent")
            what = st.segmented_control(
                "What", [TOKENS, USD], default=TOKENS, key="audit-what", label_visibility="collapsed", width="content"
            )
        figure(days_figure(rows, agents, usd=what == USD), key="audit-days-figure", alt=_days_in_words(rows))
        if any(row.simulated for row in rows):
            simulated = (
                "The tokens of simulated workers are among them." if what != USD else "Without simulated workers."
            )
            st.caption(simulated)
    by_agent, by_person = st.columns(2, gap="small")
    with by_agent, st.container(border=True, key="audit-agents", gap="xsmall"):
        title("By agent")
        st.html(_table("Agent", rows, lambda row: row.agent, agents))
    with by_person, st.container(border=True, key="audit-people", gap="xsmall"):
        title("By person")
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
    """Returns bars by day, one colour an agent, the Conductor's in grey."""
    days = sorted({row.day for row in rows})
    bars: list[dict[str, Any]] = []
    for agent in sorted({row.agent for row in rows}):
        of_day: dict[str, float] = defaultdict(float)
        for row in rows:
            if row.agent == agent:
                of_day[row.day] += (0.0 if row.simulated else row.known_usd) if usd else row.tokens
        colour = f"@agent-{agents.index(agent) % 8}" if agent in agents else "@agent-none"
        form = "$%{y:.4f}" if usd else "%{y:,} tokens"
        bars.append(
            {
                "type": "bar",
                "name": plain(agent),
                "x": days,
                "y": [of_day[day] for day in days],
                "marker": {"color": colour},
                "hovertemplate": f"{plain(agent)}: {form}<extra></extra>",
            }
        )
    axis = {"type": "category", "nticks": 12}
    return {
        "data": bars,
        "layout": layout(HEIGHT_PX, right=12, barmode="stack", bargap=0.35, xaxis=axis, yaxis={"rangemode": "tozero"}),
    }


def _days_in_words(rows: Sequence[Spending]) -> str:
    totals: dict[str, int] = defaultdict(int)
    for row in rows:
        totals[row.day] += row.tokens
    return f"Tokens by day: {'; '.join(f'{day} {tokens:,}' for day, tokens in sorted(totals.items()))}"


def _table(name: str, rows: Sequence[Spending], key: Callable[[Spending], str], agents: Sequence[str]) -> str:
    groups: dict[str, list[Spending]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    ordered = sorted(groups.items(), key=lambda item: -sum(row.tokens for row in item[1]))
    body = [
        (
            f"{agent_dot(group, agents) if agents else ''}{escape(group)}",
            f"{sum(row.calls for row in of):,}",
            f"{sum(row.tokens for row in of):,}",
            _cost(of),
        )
        for group, of in ordered
    ]
    return table((name, "Calls", "Tokens", "Cost"), body, "numbers")


def _cost(rows: Sequence[Spending]) -> str:
    """Returns the cost of real calls, and beside it, never in it, what simulated workers would have cost."""
    real = [row for row in rows if not row.simulated]
    known, unpriced = sum(row.known_usd for row in real), sum(row.unpriced for row in real)
    simulated = Cost(known_usd=(usd := sum(row.known_usd for row in rows if row.simulated)), usd=usd)
    if not real:
        return f"{escape(str(simulated))} simulated"
    said = escape(str(Cost(None if unpriced else known, known)))
    return f"{said} + {escape(str(simulated))} simulated" if usd else said


def failures(asked: AuditQuery) -> None:
    """Draws each kind of failure; its name opens the runs that had it. Raises: StoreError."""
    found = current().store.search.failures(asked.filters)
    if not found:
        st.info("Nothing failed in these runs.", icon=":material/check_circle:")
        return
    with st.container(border=True, key="audit-failures", gap="xsmall"):
        title("What failed, how often, and in which tasks")
        for failure in found:
            _failure(failure)


def _failure(failure: Failure) -> None:
    with st.container(key=f"audit-failure-{failure.code}", gap=None):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.button(
                inert(failure.code),
                key=f"audit-failed-{failure.code}",
                type="tertiary",
                help="Open its runs",
                on_click=go,
                kwargs={"failure": failure.code, "view": FOUND},
            )
            counts = f"{plural(failure.times, 'time')} in {plural(failure.runs, 'run')}"
            st.html(f'<span class="muted audit-places">{counts}</span>')
        tasks = zip(failure.tasks, failure.run_ids, strict=True)
        links = " · ".join(run_link(run_id, " ".join(task.split())[:90]) for task, run_id in tasks)
        said = f'<p class="audit-snippet">{escape(failure.said)}</p>' if failure.said else ""
        st.html(f'{said}<p class="muted audit-places">{links}</p>')


# What a search finds.

PAGE, MOST_FOLDED = 20, 200
_MOST_PLACES = 6


def found(asked: AuditQuery) -> None:
    """Draws the count and a page of texts, or of runs if no words are asked for. Raises: StoreError, BadInput."""
    search = current().store.search
    count = search.count(asked.typed, asked.filters, asked.field if asked.typed else None)
    least = "at least " if count.more else ""
    texts = f"{plural(count.texts, 'text')} in " if asked.typed else ""
    with st.container(horizontal=True, vertical_alignment="center", key="audit-count"):
        st.caption(f"{least}{texts}{plural(count.runs, 'run')}, newest first", width="content")
        if count.runs:
            export_found(asked, count)
    if asked.typed:
        page = search.texts(asked.typed, asked.filters, asked.field, asked.before, PAGE)
        searched(asked.typed, [*asked.filters.names, *([] if asked.field is None else ["in"])], "texts")
        viewed(dict.fromkeys(hit.run_id for hit in page.hits), "hits")
        with st.container(key="audit-hits", gap=None):
            for hit in page.hits:
                _hit(hit)
        if not page.hits:
            _nothing(more=page.before is not None)
        paging(asked, page.before, "audit")
        return
    # The replays of a blame are one row where nothing is asked for, so more runs are read than rows drawn.
    runs = search.runs(asked.filters, asked.before, (MOST_FOLDED if asked.blank else PAGE) + 1)
    read = runs[:-1] if len(runs) > (MOST_FOLDED if asked.blank else PAGE) else runs
    rows = _folded(read) if asked.blank else list[Entry](read)
    shown = rows[:PAGE]
    ids = [run.run_id for run in shown if isinstance(run, RunSummary)]
    told = {run.run_id: run for run in current().store.runs(limit=PAGE, among=ids, answers=True)}
    shown = [told.get(run.run_id, run) if isinstance(run, RunSummary) else run for run in shown]
    if shown:
        run_table(by_task(shown, known(shown)), WITH_PEOPLE, opened=("audit-open-", _open))
    else:
        _nothing(more=False)
    more = len(rows) > PAGE or len(read) < len(runs)
    paging(asked, (shown[-1] if len(rows) > PAGE else read[-1]).sequence if more else None, "audit")


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


def open_button(run_id: str, task: str, key: str) -> None:
    """Draws a task as the way to the record of its run."""
    # A page link to this page would leave the browser's address as it is.
    label = inert(" ".join(task.split())[:160]) or "no task"
    st.button(label, key=key, type="tertiary", on_click=_open, args=(run_id,))


def _open(run_id: str) -> None:
    before = st.query_params.get("before")
    go(run=run_id, before=before)


def _hit(hit: Hit) -> None:
    with st.container(key=f"audit-hit-{hit.text_id}", gap=None):
        with st.container(horizontal=True, vertical_alignment="center", key=f"audit-hit-head-{hit.text_id}"):
            open_button(hit.run_id, hit.task, f"audit-open-{hit.text_id}")
            st.html(_facts(hit, ago(hit.created_at_utc), moment(hit.created_at_utc)), width="content")
        words = "".join(
            f"<mark>{escape(piece)}</mark>" if is_found else escape(piece) for piece, is_found in hit.snippet
        )
        st.html(
            f'<p class="audit-snippet" dir="auto">{words}</p><p class="muted audit-places">{places(hit.places)}</p>'
        )


def places(all_places: Iterable[Place]) -> str:
    """Returns, as HTML, where a text is: ``a message that was sent to step 1 (solver)``."""
    said: dict[str, None] = {}
    for at in all_places:
        of = f" {'to' if at.field == 'sent' else 'of'} step {escape(at.path)}" if at.path else ""
        if not at.path and at.agent == "conductor" and at.field == "sent":
            of = " to the Conductor"
        agent = f" ({escape(at.agent)})" if at.agent and at.path else ""
        said[f"{FIELDS[at.field]}{of}{agent}"] = None
    more = f" and {len(said) - _MOST_PLACES} more places" if len(said) > _MOST_PLACES else ""
    return " · ".join(list(said)[:_MOST_PLACES]) + more


def _facts(hit: Hit, when: str, title: str) -> str:
    status = hit.status
    known = status in RUN_STATUSES
    pill = f'<span class="pill {escape(status)}">{run_status(status) if known else escape(status)}</span>'
    mark = '<span class="muted">⇣ imported</span>' if hit.imported else ""
    mark += '<span class="pill simulated">simulated</span>' if hit.simulated else ""
    return (
        f'<div class="audit-facts">{mark}{pill}<span class="muted" title="{escape(title)}">{escape(when)}</span></div>'
    )
