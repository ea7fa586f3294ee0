"""History: every run in the database by task or by time, a batch as one row; open one, export or delete several."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import date
from typing import NamedTuple, get_args

import streamlit as st

from conductor_core.errors import StoreError
from conductor_core.run.judgement import Judged
from conductor_core.run.request import (
    BESIDE_PURPOSES,
    JUDGE_PURPOSE,
    PASS_PURPOSE,
    REPLAY_PURPOSE,
    SHADOW_PURPOSE,
    UNLISTED_PURPOSES,
)
from pages.components.app import places
from pages.components.app.session import current
from pages.components.app.widgets import (
    across,
    button,
    chosen,
    fault_shown,
    notes,
    rerun_when,
    search_field,
    segments,
    select,
    start_link,
    worded,
)  # fmt: skip
from pages.components.compare.page import tree
from pages.components.run_list import selection as history_selection
from pages.components.run_list import table
from pages.components.style.formats import RUN_STATUSES, inert, plural, run_status
from storage import RunSummary, Totals
from storage.search.filters import end_of

PAGE_ROWS = 30
CURSORS = "history-cursors"
DAY = "history-day"
STATUS = "history-status"
JUDGED = "history-judged"
ORDER = "history-order"
BY_TASK, BY_TIME = "By task", "By time"
FOLLOWED_S = 2.0  # between two looks whether runs have gone on: people read this list, which is no live view
_UNREADABLE = ("damaged", "too_new", "key_away")  # only reading each run finds these: not counted beforehand
PURPOSE = "history-purpose"
_BESIDE = "history-beside"
_PURPOSES = {
    "": "asked here",
    PASS_PURPOSE: "forwarded",
    SHADOW_PURPOSE: "shadows",
    JUDGE_PURPOSE: "judges of shadows",
}
_ANY = ""  # no status of a run; None would look as if nothing were chosen
_JUDGED: dict[str, str] = {
    _ANY: "any judgement",
    "right": "✓ right",
    "wrong": "✗ wrong",
    "unjudged": "not judged",
    "noted": "✎ with a note",
}


class _Filters(NamedTuple):
    """What the rows are chosen by. None: any."""

    search: str | None
    status: str | None
    batch: str | None
    conversation: str | None
    purpose: str | None
    judged: Judged | None


def _filters(totals: Totals | None) -> None:
    options = [_ANY, *RUN_STATUSES]
    for key in (STATUS, JUDGED):
        st.session_state[key] = st.session_state.get(key) or _ANY
    with across("history-filters"):
        st.title("History", anchor=False, width="content")
        search_field("history-search", on_change=_first_page)
        words = worded(STATUS, {each: _status_label(each, totals) for each in options})
        if _has_beside():
            select("Runs", [*_PURPOSES], PURPOSE, format_func=_PURPOSES.__getitem__, width=150, on_change=_first_page)
        select("Status", options, STATUS, format_func=words, width=190, on_change=_first_page)
        words = worded(JUDGED, _judged_words())
        select("Judgement", list(_JUDGED), JUDGED, format_func=words, width=165, on_change=_first_page)
        st.date_input(
            "Runs up to", None, key=DAY, format="YYYY-MM-DD", width=140, label_visibility="collapsed", on_change=_jump,
            help="Jump to a day (UTC): its runs and those before it.",
        )  # fmt: skip
        segments("Order", [BY_TASK, BY_TIME], ORDER, default=BY_TASK, required=True)
        st.toggle("Select", key="history-select")


def _has_beside() -> bool:
    """Whether there are runs of clients' traffic, which are looked for again only when runs have gone on."""
    newest, found = st.session_state.get(_BESIDE, (None, False))
    if not found and newest != (now := _newest()):
        with suppress(StoreError):
            found = any(current().store.runs(limit=1, purpose=each) for each in BESIDE_PURPOSES)
        st.session_state[_BESIDE] = now, found
    return bool(found)


def _status_label(status: str, totals: Totals | None) -> str:
    name = run_status(status) if status else "any status"
    if totals is None or status in _UNREADABLE:
        return name
    count = totals.statuses.get(status, 0) if status else totals.runs
    return f"{name} · {count:,}{'+' if totals.more else ''}"


def _judged_words() -> dict[str, str]:
    counts: Mapping[Judged, int] = {}
    with suppress(StoreError):  # the list itself says what is wrong
        purpose = chosen(PURPOSE) or None
        counts = current().store.judgements.counts(purpose, () if purpose else UNLISTED_PURPOSES)
    return _JUDGED | {each: f"{_JUDGED[each]} · {count:,}" for each, count in counts.items()}


def _judged() -> Judged | None:
    chosen_one = chosen(JUDGED)
    return next((each for each in get_args(Judged) if each == chosen_one), None)


def _first_page(status: str | None = None) -> None:
    st.session_state[CURSORS], st.session_state[DAY] = [], None
    if status is not None:
        st.session_state[STATUS] = status


def _jump() -> None:
    day: date | None = st.session_state[DAY]
    with fault_shown():
        st.session_state[CURSORS] = [] if day is None else [current().store.cursor_at(end_of(day))]


def _summary(totals: Totals, status: str | None) -> str:
    count = totals.runs if status is None else totals.statuses.get(status, 0)
    parts = [f"{plural(count, 'run')}{' or more' if totals.more else ''}"]
    parts += [plural(totals.replays, "replay")] if totals.replays else []
    if status not in _UNREADABLE:
        parts.append(f"{totals.tokens:,} tokens")
        without = f" ({plural(totals.unpriced, 'run')} with a part of no known price)" if totals.unpriced else ""
        parts.append(inert(f"{totals.cost.in_line}{without}"))
        if totals.imported:
            parts.append(f"without {plural(totals.imported, 'imported run')}")
    return " · ".join(parts)


def _paging(last: int, *, more: bool) -> None:
    cursors: list[int] = st.session_state[CURSORS]
    if not cursors and not more:
        return
    with across():
        button("Newer", "newer", _newer, icon="chevron_left", disabled=not cursors)
        day: date | None = st.session_state.get(DAY)
        st.caption(f"page {len(cursors) + 1}" if day is None else f"up to {day:%Y-%m-%d}", width="content")
        button("Older", "older", cursors.append, last, icon="chevron_right", disabled=not more)


def _newer() -> None:
    st.session_state[CURSORS].pop()
    if not st.session_state[CURSORS]:
        st.session_state[DAY] = None


def _rows(by: _Filters) -> list[table.Entry]:
    """Returns the rows of the page and the first of the next. Runs of batches stand alone if anything is chosen.

    Replays never do, unless their blame was opened, and runs of clients' traffic only if they are asked for: a hundred
    of them would hide all else.
    """
    cursors: list[int] = st.session_state[CURSORS]
    before, limit, store = cursors[-1] if cursors else None, PAGE_ROWS + 1, current().store
    replays = (REPLAY_PURPOSE,) if by.batch is None else ()
    beside = () if by.batch or by.conversation or by.purpose else BESIDE_PURPOSES
    if any(by):
        return [*store.runs(limit, before, without=(*replays, *beside), answers=True, **by._asdict())]
    found: list[table.Entry] = [*store.runs(limit=limit, before=before, alone=True, without=beside, answers=True)]
    if store.fault is None:  # a damaged file lists only what can be read of its runs
        found += store.batches(limit=limit, before=before)
    return sorted(found, key=lambda each: each.sequence, reverse=True)[:limit]


def _list(shown: list[table.Entry], *, filtered: bool) -> None:
    """Draws the rows of the page. By task, a re-run hangs below the run that it came from, however old that is."""
    picking, tasks = bool(st.session_state.get("history-select")), st.session_state.get(ORDER) != BY_TIME
    rows = table.with_ancestors(shown) if tasks and not filtered else shown
    if picking:
        history_selection.bar(rows)
    store, ids = current().store, [row.run_id for row in rows if isinstance(row, RunSummary)]
    groups = (table.by_task if tasks else table.by_time)(rows, table.known(rows))
    whole = store.fault is None
    held, turns = (store.held(ids), store.turn_numbers(ids)) if whole else ((), {})
    judged = store.judgements.latest(ids) if whole else {}
    table.table(groups, table.columns_for(rows), held=held, picking=picking, turns=turns, judged=judged)


def _batch_head(batch_id: str) -> None:
    found = current().store.batches(limit=1, batch=batch_id)
    with across("batch-head"):
        button("All runs", "all-runs", table.go_to, "batch", None, icon="arrow_back")
        said = f"Unknown batch {inert(batch_id)}."
        for each in found:
            said = f"**▤ {inert(table.batch_name(table.Row(each), each))}** · {inert(table.counts(each))}"
        st.markdown(said)


def _conversation_head(begun: str) -> None:
    with across("conversation-head"):
        button("All runs", "all-runs", table.go_to, "conversation", None, icon="arrow_back")
        newest = current().store.runs(limit=1, conversation=begun)
        count = sum(current().store.turn_numbers([run.run_id]).get(run.run_id, (1, 1))[1] for run in newest)
        st.markdown(f"**Conversation** of {plural(count, 'turn')} that began with run {inert(begun[:60])}")


def show() -> None:
    st.session_state.setdefault(CURSORS, [])
    if (of_run := places.read("tree")) is not None:
        st.title("History", anchor=False)
        with across("tree-head"):
            button("All runs", "all-runs", places.write, "tree", None, icon="arrow_back")
        with fault_shown():
            tree(of_run)
        return
    batch, conversation = places.read("batch"), places.read("conversation")
    newest = _newest()
    totals: Totals | None = None
    # The filters show counts for the search, which the session knows before they are drawn.
    typed = str(st.session_state.get("history-search") or "").strip() or None
    with suppress(StoreError):  # the list itself says what is wrong
        totals = current().store.totals(typed, batch, chosen(STATUS) or None, _judged(), chosen(PURPOSE) or None)
    _filters(totals)
    purpose = chosen(PURPOSE) if batch is None and conversation is None else None
    by = _Filters(typed, chosen(STATUS) or None, batch, conversation, purpose or None, _judged())
    # Leads to the runs that wait for an approval, if there are any and the list shows others, too.
    waiting = 0
    with suppress(StoreError):
        waiting = 0 if totals is None or by.status is not None else current().store.waiting_approvals()
    if waiting:
        label = f"‖ {plural(waiting, 'run')} wait{'s' if waiting == 1 else ''} for an approval"
        button(label, "show-waiting", _first_page, "waiting")
    with fault_shown():
        if batch is not None:
            _batch_head(batch)
        elif conversation is not None:
            _conversation_head(conversation)
        rows = _rows(by)
        shown = rows[:PAGE_ROWS]
        notes([row for row in shown if isinstance(row, RunSummary)])
        history_selection.show_outcome()
        if not rows:
            _empty(filtered=any(by) or bool(st.session_state[CURSORS]))
        else:
            if totals is not None and conversation is None:
                st.caption(_summary(totals, by.status))
            _list(shown, filtered=any(by))
            _paging(shown[-1].sequence, more=len(rows) > PAGE_ROWS)
        if current().store.fault is None:
            history_selection.record()
        # Rows stay under the mouse while the person picks some.
        if newest is not None and not st.session_state.get("history-select"):
            rerun_when(lambda: _newest() not in (None, newest), FOLLOWED_S)


def _newest() -> int | None:
    try:
        return current().store.newest()
    except StoreError:
        return None  # the list itself says what is wrong


def _empty(filtered: bool) -> None:
    store = current().store
    deleted = 0 if store.fault is not None else store.deletions(limit=1)[1]  # a damaged file cannot tell
    with st.container(border=True, horizontal_alignment="center"):
        if filtered:
            st.markdown("**No run matches.** Take a word out of the search, or choose another status or day.")
        elif deleted:
            name = history_selection.name_of_record(deleted)
            st.markdown(f"**All runs were deleted.** Open “{name}” below to see which, when and from where.")
            start_link("Start a new one")
        else:
            st.markdown("**No runs yet.** Every run is kept here, with all that its steps received and answered.")
            start_link()


show()
