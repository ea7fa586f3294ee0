"""The access log: of one run, and over a period."""

from collections.abc import Sequence
from html import escape

import streamlit as st

from pages.components.app.access_log import fault_note
from pages.components.app.session import current
from pages.components.audit.query import ACCESS, AuditQuery, go
from pages.components.audit.tables import paging, run_link, table
from pages.components.figure.component import title
from pages.components.style.formats import inert, moment
from storage.access_log import KINDS, AccessQuery, AccessRecord, Page

_PAGE = 30
_OF_ONE_RUN = 8
_NEWEST = 1000
"""So many of the newest records are looked at for the names to choose from."""
_READ_ONLY = "This database is read-only: views of it are not logged."


def show_access_log(asked: AuditQuery) -> None:
    """Draws who viewed, exported, searched, erased and deleted; words typed above find searches.

    Raises: StoreError; UnknownRun or BadInput about the run that is asked for.
    """
    kept = current().store.access_log
    _state()
    with st.container(border=True, key="audit-looks", gap="xsmall"):
        title("Access log", "newest first; words typed above find searches for them; viewing this list is not logged")
        _choices(asked)
        of = AccessQuery(
            run_id=None if asked.viewed_run is None else kept.resolve(asked.viewed_run),
            actor=asked.viewed_by,
            kind=asked.access_kind,
            since_utc=asked.filters.since_utc,
            until_utc=asked.filters.until_utc,
            words=kept.digests(asked.typed) if asked.typed else (),
        )
        if asked.filters.values or asked.filters.least_usd is not None:
            st.caption("Of the filters above, only the days narrow this list.")
        if asked.typed:
            st.caption(f"Only searches for {inert(asked.typed)}: words are kept as keyed digests, and compared so.")
        page = kept.read(of, asked.before, _PAGE)
        _list(page, of_one_run=False)
        paging(asked, page.before, "looks")


def show_access_of_run(run_id: str) -> None:
    """Draws the access log of one run. Raises: StoreError."""
    with st.container(border=True, key="audit-part-looks", gap="xsmall"):
        title("Access log")
        page = current().store.access_log.read(AccessQuery(run_id=run_id), limit=_OF_ONE_RUN)
        _list(page, of_one_run=True)
        if current().store.refusal is not None:
            st.caption(_READ_ONLY)
        if page.before is not None:
            st.button(
                "All of them", key="audit-all-looks", type="tertiary", on_click=go,
                kwargs={"view": ACCESS, "looked-at": run_id},
            )  # fmt: skip


def _state() -> None:
    if current().store.refusal is not None:
        st.info(_READ_ONLY, icon=":material/lock:")
    fault_note()


def _choices(asked: AuditQuery) -> None:
    """Draws the filters by person, run and kind. Those by day are in the head."""
    newest = current().store.access_log.read(AccessQuery(), limit=_NEWEST).records
    people = {view.caller.actor.id: view.caller.actor.in_words for view in newest if view.caller.actor is not None}
    who, what, of = st.columns([2, 2, 3], gap="small")
    with who:
        _choose("looked-by", "Person", "anybody", asked.viewed_by, people)
    with what:
        _choose("looked-how", "What", "anything", asked.access_kind, KINDS)
    with of:
        st.session_state["audit-looked-at"] = asked.viewed_run or ""
        st.text_input(
            "Run", key="audit-looked-at", placeholder="any run: type an id, or its beginning",
            label_visibility="collapsed", on_change=_chosen, args=("looked-at",),
        )  # fmt: skip


def _choose(name: str, label: str, none: str, chosen: str | None, names: "dict[str, str]") -> None:
    """Draws one filter. An id that is not offered can be typed."""
    options = [*([chosen] if chosen is not None and chosen not in names else []), *names]
    st.session_state[f"audit-{name}"] = chosen
    st.selectbox(
        label, options, format_func=lambda each: names.get(each, each), key=f"audit-{name}", placeholder=none,
        label_visibility="collapsed", accept_new_options=names is not KINDS, on_change=_chosen, args=(name,),
    )  # fmt: skip


def _chosen(name: str) -> None:
    go(**{name: (st.session_state[f"audit-{name}"] or "").strip() or None})


def _list(page: Page, *, of_one_run: bool) -> None:
    if page.unreadable:
        said = f"{page.unreadable:,} records here are damaged: `conductor log verify` says which."
        st.warning(said, icon=":material/warning:")
    if not page.records:
        st.caption("No views of this run are logged." if of_one_run else "No such entries.")
        return
    heads = ("When", "Who", "What") if of_one_run else ("When", "Who", "What", "Run")
    st.html(table(heads, [_row(view, of_one_run=of_one_run) for view in page.records]))


def _row(view: AccessRecord, *, of_one_run: bool) -> Sequence[str]:
    browser = f' <span class="muted">browser {escape(view.session)}</span>' if view.session else ""
    cells = [moment(view.at_utc), f"{escape(view.caller.in_words)}{browser}", escape(view.in_words)]
    return cells if of_one_run else [*cells, "" if view.run_id is None else run_link(view.run_id, view.run_id)]
