"""What a search finds: texts in their places, or runs. Every text is escaped."""

from collections.abc import Iterable
from html import escape

import streamlit as st

from pages.components.audit.asked import Asked, go
from pages.components.audit.export_menu import export_found
from pages.components.audit.tables import paging
from pages.components.look.statuses import RUN_STATUSES, run_status
from pages.components.look.words import ago, inert, moment, plural
from pages.components.shell.looking import looked, searched
from pages.components.shell.runtime import current
from storage import RunSummary
from storage.search.hits import Hit
from storage.search.reading import FIELDS, Place

PAGE = 20
_MOST_PLACES = 6


def found(asked: Asked) -> None:
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
        looked(dict.fromkeys(hit.run_id for hit in page.hits), "hits")
        with st.container(key="audit-hits", gap=None):
            for hit in page.hits:
                _hit(hit)
        if not page.hits:
            _nothing(more=page.before is not None)
        paging(asked, page.before, "audit")
        return
    runs = search.runs(asked.filters, asked.before, PAGE + 1)
    with st.container(key="audit-runs", gap=None):
        for run in runs[:PAGE]:
            _run(run)
    if not runs:
        _nothing(more=False)
    paging(asked, runs[PAGE - 1].sequence if len(runs) > PAGE else None, "audit")


def _nothing(*, more: bool) -> None:
    if more:
        st.info("Nothing among the newest texts with these words; *Older* looks on.", icon=":material/manage_search:")
    else:
        st.info("Nothing matches. Take a word or a filter out.", icon=":material/search_off:")


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
            st.html(
                _facts(hit.status, hit.simulated, ago(hit.created_at_utc), moment(hit.created_at_utc)), width="content"
            )
        words = "".join(
            f"<mark>{escape(piece)}</mark>" if is_found else escape(piece) for piece, is_found in hit.snippet
        )
        st.html(
            f'<p class="audit-snippet" dir="auto">{words}</p><p class="muted audit-places">{places(hit.places)}</p>'
        )


def places(all_places: Iterable[Place]) -> str:
    """Returns, as HTML, where a text stands: ``a message that was sent to step 1 (solver)``."""
    said: dict[str, None] = {}
    for at in all_places:
        of = f" {'to' if at.field == 'sent' else 'of'} step {escape(at.path)}" if at.path else ""
        if not at.path and at.agent == "conductor" and at.field == "sent":
            of = " to the Conductor"
        agent = f" ({escape(at.agent)})" if at.agent and at.path else ""
        said[f"{FIELDS[at.field]}{of}{agent}"] = None
    more = f" and {len(said) - _MOST_PLACES} more places" if len(said) > _MOST_PLACES else ""
    return " · ".join(list(said)[:_MOST_PLACES]) + more


def _facts(status: str, simulated: bool, when: str, title: str) -> str:
    known = status in RUN_STATUSES
    pill = f'<span class="pill {escape(status)}">{run_status(status) if known else escape(status)}</span>'
    mark = '<span class="pill simulated">simulated</span>' if simulated else ""
    return (
        f'<div class="audit-facts">{mark}{pill}<span class="muted" title="{escape(title)}">{escape(when)}</span></div>'
    )


def _run(run: RunSummary) -> None:
    with st.container(key=f"audit-run-{run.run_id}", horizontal=True, vertical_alignment="center"):
        open_button(run.run_id, run.task, f"audit-open-{run.run_id}")
        who = run.caller.in_words + (", says its file" if run.imported and not run.recorded else "")
        who += f", for {run.purpose}" if run.purpose else ""
        agents = ", ".join(run.agents) or "no step"
        cost = "" if run.simulated else f" · {escape(str(run.cost))}"
        words = f'<span class="muted ellipsis audit-who">{escape(who)} · {escape(agents)}{cost}</span>'
        st.html(words)
        st.html(_facts(run.status, run.simulated, ago(run.created_at_utc), moment(run.created_at_utc)), width="content")
