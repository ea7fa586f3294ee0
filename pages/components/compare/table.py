"""Three and more runs as a table, each against the first. Every text is escaped."""

from collections.abc import Sequence
from html import escape

import streamlit as st

from conductor_core.run.trace import RunTrace
from pages.components.app import places
from pages.components.compare.pickers import compare
from pages.components.compare.rows import HEADS, RunRow, run_rows
from pages.components.style.formats import inert


def table(traces: Sequence[RunTrace]) -> None:
    """Draws a row per run; beside each after the first a button that compares the two in detail."""
    with st.container(key="compared-many"):
        with st.container(key="compared-line-head", horizontal=True):
            st.html('<div class="cells head">Run and answer</div>')
            heads = "".join(f"<span>{name}</span>" for name in HEADS)
            st.html(f'<div class="cells head compared-cells">{heads}</div>', width="content")
            st.html('<div class="compared-link"></div>', width="content")
        for place, row in enumerate(run_rows(traces)):
            with st.container(key=f"compared-line-{place}", horizontal=True, vertical_alignment="center"):
                _answer(place, row)
                st.html(_cells(row), width="content")
                with st.container(key=f"compared-link-{place}", width="content"):
                    if place == 0:
                        st.html('<div class="compared-link muted">the others are compared with it</div>')
                    else:
                        pair = (traces[0].run_id, row.run_id)
                        st.button(f"A with {row.name}", key=f"with-{row.run_id}", on_click=compare, args=pair)


def _answer(place: int, row: RunRow) -> None:
    with st.container(key=f"compared-answer-{place}", gap=None):
        label = f"**{row.name}** · {inert(row.said[:160])}"
        st.page_link(places.RUN, label=label, query_params={"run": row.run_id}, help=inert(f"Run {row.run_id}"))
        st.caption(" · ".join(filter(None, (row.mark, inert(row.task[:160])))))


def _cells(row: RunRow) -> str:
    cost = '<span class="pill simulated">simulated</span>' if row.simulated else escape(row.cost)
    cells = (
        f'<span class="pill {row.status}">{row.status_words}</span>',
        row.steps,
        escape(row.plan),
        escape(row.parts),
        row.tokens,
        cost,
        row.time,
    )
    return f'<div class="cells compared-cells">{"".join(f"<span>{cell}</span>" for cell in cells)}</div>'
