"""A run as a decision record: who asked and planned, who changed and approved what, what left, what it cost."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import streamlit as st
from markupsafe import Markup

from conductor_core.analysis.compare import Difference
from conductor_core.analysis.decision_record import DecisionRecord, access
from conductor_core.errors import InspectorError
from conductor_core.run.redaction import Redactor
from conductor_core.run.trace import RunUnreadable, unreadable_status
from pages.components.app import places
from pages.components.app.session import current, fault_note, viewed
from pages.components.app.widgets import across, button, damage, fault_box, search_field, select, text_button
from pages.components.audit.export_menu import export_run
from pages.components.audit.integrity import findings, knows, last_result, last_words
from pages.components.audit.query import ACCESS, TEMPLATE, AuditQuery, go, open_run, paging, take
from pages.components.style.figures import panel
from pages.components.style.formats import html, inert, moment
from storage.access_log import KINDS, AccessQuery, Page
from storage.bundles import record_of

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
    if current().store.refusal is not None:
        st.info(_READ_ONLY, icon=":material/lock:")
    fault_note()
    says = "newest first; words typed above find searches for them; viewing this list is not logged"
    with panel("audit-looks", "Access log", says):
        _access_choices(asked)
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
        _access_list(page, of_one_run=False)
        paging(asked.before, page.before, "looks")


def show_access_of_run(run_id: str) -> None:
    with panel("audit-part-looks", "Access log"):
        page = current().store.access_log.read(AccessQuery(run_id=run_id), limit=_OF_ONE_RUN)
        _access_list(page, of_one_run=True)
        if current().store.refusal is not None:
            st.caption(_READ_ONLY)
        if page.before is not None:
            text_button("All of them", "audit-all-looks", go, kwargs={"view": ACCESS, "looked-at": run_id})


def _access_choices(asked: AuditQuery) -> None:
    newest = current().store.access_log.read(AccessQuery(), limit=_NEWEST).records
    people = {view.caller.actor.id: view.caller.actor.in_words for view in newest if view.caller.actor is not None}
    *two, of = st.columns([2, 2, 3], gap="small")
    filters = (
        ("looked-by", "Person", "anybody", asked.viewed_by, people),
        ("looked-how", "What", "anything", asked.access_kind, KINDS),
    )
    for column, (name, label, none, chosen, names) in zip(two, filters, strict=True):
        words = ({} if chosen is None else {chosen: chosen}) | names
        st.session_state[f"audit-{name}"] = chosen
        how: dict[str, Any] = {"placeholder": none, "on_change": take, "args": (name,)}
        with column:  # an id that is not offered can be typed
            open_ = names is not KINDS
            select(label, words, f"audit-{name}", format_func=partial(_named, words), accept_new_options=open_, **how)
    st.session_state["audit-looked-at"] = asked.viewed_run or ""
    with of:
        says = "any run: type an id, or its beginning"
        search_field("audit-looked-at", "Run", placeholder=says, icon=None, on_change=take, args=("looked-at",))


def _named(words: Mapping[str, str], value: str) -> str:
    return words.get(value, value)


def _access_list(page: Page, *, of_one_run: bool) -> None:
    if page.unreadable:
        said = f"{page.unreadable:,} records here are damaged: `conductor log verify` says which."
        st.warning(said, icon=":material/warning:")
    if not page.records:
        st.caption("No views of this run are logged." if of_one_run else "No such entries.")
        return
    heads = ("When", "Who", "What") if of_one_run else ("When", "Who", "What", "Run")
    rows = [
        [
            moment(view.at_utc),
            html(TEMPLATE, "who", view=view),
            view.in_words,
            "" if view.run_id is None else html(TEMPLATE, "run_link", run_id=view.run_id, words=view.run_id),
        ]
        for view in page.records
    ]
    st.html(html(TEMPLATE, "table", heads=heads, rows=[row[: len(heads)] for row in rows]))


def record_page(run_id: str) -> None:
    head = across("audit-record-head")
    with head:
        button("Back to what was found", "audit-back", open_run, None, icon="arrow_back")
        for place, label, icon in (
            (places.RUN, "Open the run", "play_circle"),
            (places.CONTEXT, "Who saw what", "account_tree"),
        ):
            st.page_link(place, label=label, icon=f":material/{icon}:", query_params={"run": run_id}, width="content")
    record, fault = _read(run_id)
    if record is None:
        show_access_of_run(run_id)
        return
    viewed([run_id], "decision record")
    with head:
        export_run(record, encrypted=bool(current().store.vault.all_of([run_id])))
    status, cost = record.status if fault is None else unreadable_status(fault), f"{record.cost}"
    cost += f" ({record.basis})" if record.basis else ""
    with st.container(border=True, key="audit-top", gap="xsmall"):
        st.html(html(TEMPLATE, "top", record=record, status=status, cost=cost, integrity=_integrity(record)))
    left, right = st.columns([3, 2], gap="small")
    with left:
        differences = [list(map(_changed_parts, edit.differences)) for edit in record.edits]
        _section("changes", "Who changed it, and what", "changes", record=record, differences=differences)
        _section("plan", "The plan", "plans", found=record.plans)
        _section("steps", "What each step received and answered", "steps", found=record.steps)
    with right:
        _section("egress", "Who received which text", "servers", found=record.egress)
        _section("approvals", "Approvals", "approvals", found=record.approvals)
        _section("cost", "Tokens and cost", "cost", record=record)
        _section("failures", "What went wrong", "went_wrong", found=record.failures)
        show_access_of_run(run_id)


def _read(run_id: str) -> tuple[DecisionRecord | None, RunUnreadable | None]:
    store = current().store
    fault: RunUnreadable | None = None
    try:
        _, fault = store.readable_events(run_id)
        if fault is not None:
            damage(fault)
        return record_of(store, run_id, Redactor()), fault
    except InspectorError as error:
        if fault is None:
            fault_box(error)
    except ValueError as error:
        st.error(inert(f"run {run_id} cannot be read as a record: {error}"), icon=":material/error:")
    return None, fault


def _integrity(record: DecisionRecord) -> Markup:
    last, kind, said, found = last_result(current().store), "never", "", None
    if last is not None:
        said = last_words(last, record.run_id, datetime.now(UTC), record.first)
        if found := last.of(record.run_id):
            kind = "damaged"
        elif (record.last or 0) > last.newest:
            kind = "newer"
        elif not knows(last, record.first):
            kind = "unknown"
        elif last.weak is not None:
            kind, said = "failing", f"{said}, without {last.weak}"
        else:
            kind = "good"
    return html(TEMPLATE, "verified", kind=kind, said=said, found=findings(found or ()))


def _section(key: str, name: str, part: str, **values: Any) -> None:
    with panel(f"audit-part-{key}", name):
        st.html(html(TEMPLATE, "part", content=html(TEMPLATE, part, **values)))


def _changed_parts(difference: Difference) -> tuple[int | None, list[tuple[str, str | None, str | None]]]:
    both: list[tuple[str | None, ...]] = [
        (None, None, None) if step is None else (step.agent, access(step.access_list), step.instruction)
        for step in (difference.before, difference.after)
    ]
    parts = zip(("agent", "access list", "instruction"), *both, strict=True)
    index = difference.b if difference.b is not None else difference.a
    return index, [(name, was, now) for name, was, now in parts if was != now]
