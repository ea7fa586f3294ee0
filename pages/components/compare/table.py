"""Three and more runs as a table, each against the first. Every text is escaped."""

from collections.abc import Sequence
from html import escape

import streamlit as st

from conductor_core.answers.conclusion import conclude
from conductor_core.compare.runs import RunsCompared, compare_runs
from conductor_core.compare.words import letter, plan_sentences
from conductor_core.spending import cost_so_far
from conductor_core.trace import RunTrace
from pages.components.compare.pickers import compare
from pages.components.look.statuses import run_status
from pages.components.look.words import inert, plural, seconds
from pages.components.shell import places

_HEAD = ("Status", "Steps", "Plan", "Parts at", "Tokens", "Cost", "Time")


def table(traces: Sequence[RunTrace]) -> None:
    """Draws a row per run; beside each after the first a button that compares the two in detail."""
    with st.container(key="compared-many"):
        with st.container(key="compared-line-head", horizontal=True):
            st.html('<div class="cells head">Run and answer</div>')
            heads = "".join(f"<span>{name}</span>" for name in _HEAD)
            st.html(f'<div class="cells head compared-cells">{heads}</div>', width="content")
            st.html('<div class="compared-link"></div>', width="content")
        for place, trace in enumerate(traces):
            compared = None if place == 0 else compare_runs(traces[0], trace)
            with st.container(key=f"compared-line-{place}", horizontal=True, vertical_alignment="center"):
                _answer(place, trace, compared)
                st.html(_cells(trace, compared), width="content")
                with st.container(key=f"compared-link-{place}", width="content"):
                    if compared is None:
                        st.html('<div class="compared-link muted">the others are compared with it</div>')
                    else:
                        pair = (traces[0].run_id, trace.run_id)
                        st.button(f"A with {letter(place)}", key=f"with-{trace.run_id}", on_click=compare, args=pair)


def _answer(place: int, trace: RunTrace, compared: RunsCompared | None) -> None:
    said = "no answer" if trace.answer is None else conclude(trace.answer, trace.task).text or "empty"
    mark = "" if compared is None else " · ≠ other answer" if compared.answer_changed else " · = same answer"
    with st.container(key=f"compared-answer-{place}", gap=None):
        label = f"**{letter(place)}** · {inert(said[:160])}"
        st.page_link(places.RUN, label=label, query_params={"run": trace.run_id}, help=inert(f"Run {trace.run_id}"))
        st.caption(f"{inert(trace.task[:160])}{mark}")


def _cells(trace: RunTrace, compared: RunsCompared | None) -> str:
    first = None if compared is None else compared.first_difference
    plan = "" if compared is None else plural(len(plan_sentences(compared)), "change")
    parts = "" if compared is None else "nowhere" if first is None else f"step {first.label}"
    cost = escape(str(cost_so_far(trace)))
    if trace.simulated:
        cost = '<span class="pill simulated">simulated</span>'
    cells = (
        f'<span class="pill {trace.status}">{run_status(trace.status)}</span>',
        str(len(trace.steps)),
        escape(plan),
        escape(parts),
        f"{trace.usage.total_tokens:,}",
        cost,
        seconds(trace.duration_ms),
    )
    return f'<div class="cells compared-cells">{"".join(f"<span>{cell}</span>" for cell in cells)}</div>'
