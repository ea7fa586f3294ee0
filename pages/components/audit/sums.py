"""Tokens and cost by day, agent and person; and the catalogue of failures."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import streamlit as st

from conductor_core.spending import Cost
from pages.components.audit.asked import FOUND, Asked, go
from pages.components.audit.tables import run_link, table
from pages.components.figure.component import figure, title
from pages.components.look.drawing import Figure, layout, plain
from pages.components.look.palette import agent_dot
from pages.components.look.words import inert, plural
from pages.components.shell.runtime import current
from storage.search.audit import Failure, Spending

HEIGHT_PX = 230
TOKENS, USD = "Tokens", "Cost"


def spending(asked: Asked) -> None:
    """Draws the sums over the calls of the runs that are asked for. Raises: StoreError."""
    rows = current().store.search.spending(asked.filters)
    if not rows:
        st.info("No model was called in these runs.", icon=":material/payments:")
        return
    agents = sorted({row.agent for row in rows if row.agent != "conductor"})
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


def failures(asked: Asked) -> None:
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
