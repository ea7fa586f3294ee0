"""The requests with a shadow as rows: which of them, both answers beside each other, and a person's verdict."""

from collections.abc import Sequence
from contextlib import suppress

import streamlit as st
from markupsafe import Markup

from conductor_core.analysis.shadow import CALLED, FILTERS, Answer, Request
from conductor_core.errors import InspectorError
from conductor_core.formats import RUN_STATUSES, UNKNOWN, dollars, seconds
from conductor_core.run.actor import local_caller
from conductor_core.run.judgement import Judgement, Mark
from conductor_core.run.trace import RunTrace, RunUnreadable
from conductor_core.serving.shadow_runs import called_in
from pages.components.app import places
from pages.components.app.session import current, viewed
from pages.components.app.widgets import (
    across,
    button,
    fault_shown,
    kept_fault,
    remember,
    segments,
    show_fault,
    text_button,
)
from pages.components.run_list.table import task_of
from pages.components.shadow.figures import TEMPLATE
from pages.components.style.formats import ago, html, inert
from storage import RunSummary

PAGE_ROWS = 20
FILTER, OPENED, PAGE = "shadow-filter", "shadow-opened", "shadow-page"
_FAULT = "shadow-fault"
_MOST_CHARACTERS = 20_000
_WORDS = {
    "all": "All", "worse": "▼ Worse", "better": "▲ Better", "disputed": "Judges disagree", "not judged": "Not judged",
    "failed": "Not whole",
}  # fmt: skip
_MARKS: tuple[tuple[Mark, str], ...] = (("right", "check"), ("wrong", "close"))
_COMPARING: tuple[tuple[Mark, str], ...] = (("better", "arrow_upward"), ("same", "equal"), ("worse", "arrow_downward"))
_VERDICTS = {"better": "▲ better", "same": "= the same", "worse": "▼ worse"}
_HEADS = (("Verdict", ""), ("Today", ""), ("Conductor", ""), ("When", "number"))


def rows(requests: Sequence[Request]) -> None:
    """Draws the filters, a page of rows, and below the opened one both answers. Raises: StoreError."""
    show_fault(_FAULT)
    found = {name: [each for each in requests if keeps(each)] for name, keeps in FILTERS.items()}
    with across("shadow-filters"):
        st.html(html("style/parts", "title", name="Requests with a shadow", note=""), width="content")
        words = {name: f"{_WORDS[name]} · {len(those):,}" for name, those in found.items()}
        chosen = segments(
            "Which requests",
            words,
            FILTER,
            default="all",
            required=True,
            format_func=words.__getitem__,
            on_change=_go,
            args=(0,),
        )
    shown = found[chosen or "all"]
    begin = min(int(st.session_state.get(PAGE, 0)), max(0, len(shown) - 1) // PAGE_ROWS * PAGE_ROWS)
    page = shown[begin : begin + PAGE_ROWS]
    if not page:
        st.html(html(TEMPLATE, "note", said="No request is so."))
        return
    ids = [each.forwarded.run_id for each in page]
    summaries = {run.run_id: run for run in current().store.runs(limit=len(ids), among=ids)}
    opened = st.session_state.get(OPENED)
    with st.container(key="runs"):
        with st.container(key="run-row-head", horizontal=True):
            st.html(html("run_list/run_list", "name_head", name="Request"))
            st.html(html(TEMPLATE, "head", names=_HEADS), width="content")
        for number, each in enumerate(page):
            _row(each, each.shadow or each.forwarded, summaries.get(each.forwarded.run_id), opened)
            if each.forwarded.run_id == opened:
                following = page[number + 1].forwarded.run_id if number + 1 < len(page) else None
                with st.container(key="shadow-opened"), fault_shown():
                    _opened(each, each.shadow or each.forwarded, following)
    if len(shown) > PAGE_ROWS:
        _paging(begin, len(shown))


def _go(begin: int) -> None:
    st.session_state[PAGE], st.session_state[OPENED] = begin, None


def _paging(begin: int, count: int) -> None:
    with across("shadow-paging"):
        button("Newer", "shadow-newer", _go, begin - PAGE_ROWS, icon="chevron_left", disabled=begin == 0)
        end = min(begin + PAGE_ROWS, count)
        st.caption(f"{begin + 1:,} to {end:,} of {count:,}", width="content")
        button("Older", "shadow-older", _go, begin + PAGE_ROWS, icon="chevron_right", disabled=end == count)


def _row(request: Request, shadow: Answer, run: RunSummary | None, opened: str | None) -> None:
    run_id = request.forwarded.run_id
    is_open = run_id == opened
    name = "no task" if run is None else task_of(run)
    with st.container(key=f"run-row-{run_id}", horizontal=True):
        label = f"{'▾' if is_open else '▸'} {inert(name)}"
        text_button(label, f"shadow-open-{run_id}", remember, OPENED, None if is_open else run_id, width="stretch")
        cells = [
            ("Verdict", "", _verdict(request)),
            ("Today", "ellipsis", _side(request.forwarded)),
            ("Conductor", "ellipsis", _side(shadow)),
            ("When", "number", ago(request.forwarded.at_utc)),
        ]
        st.html(html(TEMPLATE, "row", cells=cells), width="content")


def _verdict(request: Request) -> Markup:
    verdict = request.verdict
    if verdict is None:
        said = "not judged" if request.whole else "no verdict"
        return html("run_list/run_list", "muted", said=said)
    disputed = "Judges disagree: a person counts before a grader, a grader before a judge." if request.disputed else ""
    said = f"{_VERDICTS[verdict]}{' ≠' if disputed else ''}"
    return html(TEMPLATE, "verdict_pill", kind=verdict, said=said, title=disputed)


def _side(answer: Answer) -> Markup:
    status = "failed" if answer.status == "limited" else answer.status
    right = {True: "✓ right", False: "✕ wrong", None: ""}[answer.right]
    if status in ("completed", CALLED):
        parts = [right, "⚒ calls a tool" if status == CALLED else "", seconds(answer.duration_ms), *_cost(answer)]
        return html(TEMPLATE, "side", status="", marked=False, said=" · ".join(filter(None, parts)))
    word = "rate-limited" if answer.status == "limited" else RUN_STATUSES.get(status, ("", status))[1]
    said = f"{RUN_STATUSES.get(status, ('⚠',))[0]} {word}"
    return html(TEMPLATE, "side", status=status, marked=True, said=said)


def _cost(answer: Answer) -> list[str]:
    if answer.simulated and not answer.cost_usd:
        return []
    return [UNKNOWN if answer.cost_usd is None else dollars(answer.cost_usd)]


# One request, opened.


def _opened(request: Request, shadow: Answer, following: str | None) -> None:
    answers = (request.forwarded, shadow)
    traces = [_trace(answer.run_id) for answer in answers]
    read = [trace for trace in traces if trace is not None]
    viewed([trace.run_id for trace in read], "pair of answers")
    if read:
        st.html(html(TEMPLATE, "task", text=read[0].task[:_MOST_CHARACTERS]))
    drawn = []
    for whose, answer, trace in zip(("Today", "Conductor"), answers, traces, strict=True):
        facts = " · ".join([seconds(answer.duration_ms), f"{answer.tokens:,} tokens", *_cost(answer)])
        drawn.append((f"{whose}: {answer.by}", facts, *_texts(trace)))
    st.html(html(TEMPLATE, "answers", answers=drawn))
    for column, answer, side in zip(st.columns(2, gap="small"), answers, "ab", strict=True):
        with column, across(f"shadow-marks-{side}"):
            for mark, icon in _MARKS:
                _marking(mark, answer.run_id, None, None, icon, chosen=answer.right is (mark == "right"))
    with across("shadow-marks-both"):
        st.markdown("The Conductor's answer is")
        for mark, icon in _COMPARING:
            ids = (shadow.run_id, request.forwarded.run_id)
            _marking(mark, *ids, following, icon, chosen=request.compared == mark, off=not request.whole)
        pair = {"a": request.forwarded.run_id, "b": shadow.run_id}
        st.page_link(places.COMPARE, label="Compare both runs", icon=":material/compare_arrows:", query_params=pair)
        if following is not None:
            act = (remember, OPENED, following)
            button("Next", "shadow-next", *act, icon="arrow_downward_alt", shortcut="n", type="tertiary")
    if said := _said(request, shadow):
        st.html(html(TEMPLATE, "note", said=said))


def _texts(trace: RunTrace | None) -> tuple[str, str]:
    """Returns a run's answer, and why it has none."""
    if trace is None:
        return "", "This run cannot be read."
    calls = [f"⚒ {call.name} {call.arguments}" for call in called_in(trace)]
    said = "\n\n".join(filter(None, [trace.answer or "", *calls]))
    return said[:_MOST_CHARACTERS], " ".join((trace.error or "").split())[:600]


def _said(request: Request, shadow: Answer) -> str:
    """Says who holds what of the two answers, the last of each alone."""
    found = current().store.judgements.latest([request.forwarded.run_id, shadow.run_id])
    parts = [
        f"{_judge_name(each)}: {'' if each.compared_with else f'{side} '}{each.mark}{f' ({note})' if note else ''}"
        for run_id, side in ((request.forwarded.run_id, "today"), (shadow.run_id, "Conductor"))
        for each in found.get(run_id, ())
        if each.path is None and each.mark is not None
        for note in [" ".join(each.note.split())[:200]]
    ]
    return " · ".join(parts)


def _judge_name(judgement: Judgement) -> str:
    if judgement.by != "person":
        return judgement.by
    return "somebody" if judgement.actor is None else judgement.actor.short


def _marking(
    mark: Mark,
    run_id: str,
    compared_with: str | None,
    following: str | None,
    icon: str,
    *,
    chosen: bool,
    off: bool = False,
) -> None:
    """Draws a button that judges so. The letters b, s and w press those that compare."""
    how = {"shortcut": mark[0]} if compared_with is not None else {}
    how |= {"type": "primary" if chosen else "secondary"}
    label = "The same" if mark == "same" else mark.capitalize()
    off = off or current().store.refusal is not None
    args = (mark, run_id, compared_with, following)
    button(label, f"shadow-{mark}-{run_id}", _judge, *args, icon=icon, disabled=off, **how)


def _judge(mark: Mark, run_id: str, compared_with: str | None, following: str | None) -> None:
    with kept_fault(_FAULT):
        current().store.judgements.add(run_id, local_caller("page"), mark=mark, compared_with=compared_with)
        if following is not None:
            remember(OPENED, following)


def _trace(run_id: str) -> RunTrace | None:
    with suppress(RunUnreadable, InspectorError):
        return current().store.trace(run_id)[0]
    return None
