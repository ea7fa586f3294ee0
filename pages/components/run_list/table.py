"""Draws rows of runs, and reads what they need besides the runs themselves: those that they came from."""

from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import sha256

import streamlit as st

from conductor_core.run.request import REPLAY_PURPOSE
from pages.components.app import address, places
from pages.components.app.access_log import viewed
from pages.components.app.session import current
from pages.components.run_list.rows import (
    Entry,
    Group,
    Row,
    batch_name,
    by_whom,
    cells,
    kind,
    parent_of,
    task_of,
)
from pages.components.style.formats import inert, moment, plural, right_to_left
from storage import BatchSummary, RunSummary

HISTORY = ("Answer", "Steps", "Cost", "Time", "When")
WITH_PEOPLE = ("Answer", "Steps", "Cost", "Time", "By", "When")
OFFERED = ("Answer", "Steps", "When")
FOLDED = "run-groups-folded"
_GENERATIONS = 12
_GUIDES = {"│": "bar", "├": "tee", "└": "elbow", " ": "gap"}

Opened = tuple[str, Callable[[str], None]]
"""How the key of a row's button begins, and what is called with the run's id."""


def known(entries: Sequence[Entry], generations: int = 1) -> dict[str, RunSummary]:
    """Returns the runs of ``entries`` by id, and those that they came from. Raises: StoreError."""
    found = {entry.run_id: entry for entry in entries if isinstance(entry, RunSummary)}
    above = {parent for entry in entries if (parent := parent_of(entry)) is not None}
    for _ in range(generations):
        missing = above - found.keys()
        if not missing:
            break
        older = current().store.runs(limit=len(missing), among=missing, answers=True)
        found |= {run.run_id: run for run in older}
        above = {run.parent_run_id for run in older if run.parent_run_id is not None}
    return found


def with_ancestors(entries: Sequence[Entry]) -> list[Entry]:
    """Returns ``entries`` and the runs that they came from, which may be older than a page. Raises: StoreError."""
    whole = known(entries, _GENERATIONS)
    return [*whole.values(), *(entry for entry in entries if isinstance(entry, BatchSummary))]


def columns_for(entries: Sequence[Entry]) -> tuple[str, ...]:
    """Returns the columns of History: who started a run is told where more than one person did."""
    people = {by_whom(entry) for entry in entries if isinstance(entry, RunSummary)}
    return WITH_PEOPLE if len(people) > 1 else HISTORY


def pick_key(entry: Entry) -> str:
    """Returns the key of the row's checkbox, which says what the row stands for."""
    return f"pick-batch-{entry.batch_id}" if isinstance(entry, BatchSummary) else f"pick-run-{entry.run_id}"


def table(
    groups: Sequence[Group],
    columns: Sequence[str],
    *,
    name: str = "Task, plan, change",
    opened: Opened | None = None,
    extra: Mapping[str, str] | None = None,
    held: Collection[str] = (),
    picking: bool = False,
) -> None:
    """Draws a row per entry. Its name opens it; the rest stands in columns.

    Args:
        opened: what a row does; None: it is a link to the Run page.
        extra: HTML of a column of the page's own, by run.
        held: ids of runs that may not be deleted.
        picking: whether each row has a checkbox.
    """
    entries = [row.entry for group in groups for row in group.rows]
    told = [run for run in entries if isinstance(run, RunSummary) and run.conclusion is not None]
    viewed([run.run_id for run in told if run.purpose != REPLAY_PURPOSE], "list of runs")
    form = f"runs {'-'.join(column.split()[0].lower() for column in columns)}"
    with st.container(key="runs"):
        with st.container(key="run-row-head", horizontal=True):
            st.html(f'<div class="cells head">{name}</div>')
            heads = "".join(f'<span class="{kind(each)}" data-name="{each}">{each}</span>' for each in columns)
            st.html(f'<div class="cells head {form}">{heads}</div>', width="content")
        for group in groups:
            if group.title and _head(group):
                continue
            for row in group.rows:
                with st.container(key=f"run-row-{row.id}{_way(row, group)}", horizontal=True):
                    _name(row, opened, lone=group.lone, held=row.id in held)
                    if picking:
                        named = row.entry.name if isinstance(row.entry, BatchSummary) else task_of(row.entry)
                        label = f"Select {inert(named[:60])}"
                        st.checkbox(label, key=pick_key(row.entry), label_visibility="collapsed")
                    # The line that leads to it is drawn with the columns: an element of its own costs the page more.
                    shown = f"{guide_html(row.guide)}{cells(row, columns, extra or {})}"
                    st.html(f'<div class="cells {form}">{shown}</div>', width="content")


def _head(group: Group) -> bool:
    """Draws what the rows have in common, as a button that folds them. Returns whether they are folded."""
    name = sha256(group.title.encode()).hexdigest()[:16]
    folded = name in st.session_state.get(FOLDED, ())
    note = f" :gray[{inert(group.note)}]" if group.note else ""
    label = f"{'▸' if folded else '▾'} **{inert(group.title)}** :gray[{plural(len(group.rows), group.of)}]{note}"
    way = "-rtl" if right_to_left(group.title) else ""
    st.button(label, key=f"run-group-{name}{way}", type="tertiary", width="stretch", on_click=_fold, args=(name,))
    return folded


def _fold(name: str) -> None:
    """Folds the group, or shows its rows again, on every page and for as long as the session lasts."""
    st.session_state[FOLDED] = frozenset({name}) ^ st.session_state.get(FOLDED, frozenset())


def _way(row: Row, group: Group) -> str:
    """A link has no direction of its own, so the name of a row that tells its task carries that of the task."""
    return "-rtl" if group.lone and isinstance(row.entry, RunSummary) and right_to_left(row.entry.task) else ""


def _name(row: Row, opened: Opened | None, *, lone: bool, held: bool) -> None:
    """Draws what opens the row."""
    run = row.entry
    if isinstance(run, BatchSummary):
        label = f"▤ {inert(batch_name(row, run))}"
        words = inert(f"Batch {run.batch_id}, {moment(run.created_at_utc)}, {plural(run.runs, 'run')}")
        if opened is not None:
            query = {"batch": run.batch_id}
            st.page_link(places.HISTORY, label=label, query_params=query, width="stretch", help=words)
            return
        # This is not a page link: one to its own page would leave the browser's address as it was.
        key, batch = f"open-batch-{run.batch_id}", (run.batch_id,)
        st.button(label, key=key, type="tertiary", width="stretch", help=words, on_click=go_to_batch, args=batch)
        return
    label = f"{'⚑ ' if held else ''}{_label(row, run, lone=lone)}"
    if opened is None:
        st.page_link(places.RUN, label=label, query_params={"run": run.run_id}, width="stretch", help=_more(run))
        return
    start, do = opened
    # A page link to this page would leave the browser's address as it is.
    key, args = f"{start}{run.run_id}", (run.run_id,)
    st.button(label, key=key, type="tertiary", width="stretch", help=_more(run), on_click=do, args=args)


def _label(row: Row, run: RunSummary, *, lone: bool) -> str:
    """Names a run by what tells it from the others of its task; one that stands alone by its task, too."""
    came = "● recorded · " if run.recorded else "⇣ imported · " if run.imported else ""
    came = came or ("⇣ imported answers · " if run.imported_answers else "")
    if not lone:
        return came + inert(run.named or f"run {run.run_id}")
    if run.parent_run_id is not None:
        return f"↻ {came}{inert(run.named)} :gray[· {inert(task_of(run))}]"
    if row.before is not None:  # a pair of runs of one task
        return f"{inert(row.before.named)} → {inert(run.named)} :gray[· {inert(task_of(run))}]"
    return f"{came}**{inert(task_of(run))}** :gray[{inert(run.named)}]" if run.named else came + inert(task_of(run))


def guide_html(guide: str) -> str:
    """Draws the line that leads to a run from the one above it; nothing without a guide."""
    parts = "".join(f'<i class="{_GUIDES[part]}"></i>' for part in guide)
    return parts and f'<span class="tree-guide deep-{len(guide)}">{parts}</span>'


def go_to_batch(batch_id: str | None) -> None:
    """Shows only the runs of this batch; None: all runs again."""
    st.session_state["history-cursors"], st.session_state["history-day"] = [], None
    address.write("batch", batch_id)


def _more(run: RunSummary) -> str:
    """Returns what the row has no room for, as its hint."""
    if run.damage:
        return inert(f"Run {run.run_id}") + "  \n" + inert(run.damage)
    word = ", says its file" if run.imported and not run.recorded else ""
    lines = [f"Run {run.run_id}, {run.created_at_utc:%Y-%m-%d %H:%M} UTC, started by {run.caller.in_words}{word}"]
    if run.recorded:
        lines.append("Recorded: it came with the program, and this database did not carry it out")
    elif run.imported:
        lines.append("Imported from a file: this database did not carry it out")
    if run.imported_answers and not run.imported:
        lines.append("Reuses answers of an imported run, which this database did not see")
    if run.purpose:
        lines.append(f"For: {run.purpose}{word}")
    if run.batch_row is not None:
        lines.append(f"Row {run.batch_row} of batch {run.batch_id}")
    if run.parent_run_id:
        lines.append(f"Re-run of {run.parent_run_id}")
    lines.append(f"Conductor: {run.conductor or 'none'}; pool: {run.pool}; agents: {', '.join(run.agents) or 'none'}")
    lines.append(f"{run.topology or 'no plan'}, {plural(run.steps, 'step')}, {run.usage.total_tokens:,} tokens")
    if run.asked_for is not None:
        lines.append(f"Waits for an approval of {run.asked_for}")
    if run.error:
        lines.append(run.error)
    return inert("\0".join(lines)).replace("\0", "  \n")
