"""The rows of the History page: runs, and batches that open to their runs; and notes on what cannot be read or written.

Every text is escaped.
"""

from collections.abc import Sequence
from html import escape

import streamlit as st

from conductor_core.blame.experiments import names_blame
from conductor_core.engine.resampling import names_plans
from conductor_core.errors import StoreError
from conductor_core.run.trace import RunUnreadable
from pages.components.app import address, places
from pages.components.app.session import current
from pages.components.style.formats import RUN_STATUSES, ago, inert, moment, plural, right_to_left, run_status, seconds
from storage import BatchSummary, RunSummary
from storage.records import ERASED

Entry = RunSummary | BatchSummary

_HEAD = ("Status", "Shape", "Steps", "Agents", "Tokens", "Cost", "Time", "When")
_WITHOUT_TASK = {"erased": "erased", "key_away": "encrypted"}
"""What stands for the task of a run of this status."""
_NUMBERS = ("Steps", "Tokens", "Cost", "Time", "When")


def entries(limit: int, before: int | None) -> list[Entry]:
    """Lists batches and runs without one, newest first; ``sequence`` is the cursor of each. Raises: StoreError."""
    store = current().store
    found: list[Entry] = [*store.runs(limit=limit, before=before, alone=True)]
    if store.fault is None:  # a damaged file lists only what can be read of its runs
        found += store.batches(limit=limit, before=before)
    return sorted(found, key=lambda each: each.sequence, reverse=True)[:limit]


def pick_key(entry: Entry) -> str:
    """Returns the key of the row's checkbox, which says what the row stands for."""
    return f"pick-batch-{entry.batch_id}" if isinstance(entry, BatchSummary) else f"pick-run-{entry.run_id}"


def table(rows: Sequence[Entry], held: set[str], *, picking: bool) -> None:
    """Draws a row per entry. Its task is the link that opens it; the rest stands in columns.

    Args:
        held: ids of runs that may not be deleted.
        picking: whether each row has a checkbox.
    """
    with st.container(key="runs"):
        with st.container(key="run-row-head", horizontal=True):
            st.html('<div class="cells head">Task</div>')
            heads = "".join(f'<span class="{_kind(name)}" data-name="{name}">{name}</span>' for name in _HEAD)
            st.html(f'<div class="cells head runs">{heads}</div>', width="content")
        for row in rows:
            name = f"batch-{row.batch_id}" if isinstance(row, BatchSummary) else row.run_id
            # A page link has no direction of its own, so the row's name carries that of the task.
            way = "-rtl" if isinstance(row, RunSummary) and right_to_left(row.task) else ""
            with st.container(key=f"run-row-{name}{way}", horizontal=True):
                if isinstance(row, BatchSummary):
                    _open_batch(row)
                else:
                    label, link = _task(row, held=row.run_id in held), {"run": row.run_id}
                    st.page_link(places.RUN, label=label, query_params=link, width="stretch", help=_more(row))
                if picking:
                    named = row.name if isinstance(row, BatchSummary) else row.task or "no task"
                    st.checkbox(f"Select {inert(named[:60])}", key=pick_key(row), label_visibility="collapsed")
                st.html(_cells(row), width="content")


def _open_batch(batch: BatchSummary) -> None:
    rows = "replay" if names_blame(batch.name) else "task"
    size = "" if _of_plans(batch) else f" · {plural(batch.size, rows)}"
    # This is no page link: one to its own page would leave the browser's address as it was.
    st.button(
        f"▤ {inert(batch.name[:200])}{size}",
        key=f"open-batch-{batch.batch_id}",
        type="tertiary",
        width="stretch",
        help=inert(f"Batch {batch.batch_id}, {moment(batch.created_at_utc)}, {plural(batch.runs, 'run')}"),
        on_click=go_to_batch,
        args=(batch.batch_id,),
    )


def _of_plans(batch: BatchSummary) -> bool:
    """Tells whether these are plans for one task to choose from."""
    return names_plans(batch.name, batch.size)


def go_to_batch(batch_id: str | None) -> None:
    """Shows only the runs of this batch; None: all runs again."""
    st.session_state["history-cursors"], st.session_state["history-day"] = [], None
    address.write("batch", batch_id)


def _kind(column: str) -> str:
    return "number" if column in _NUMBERS else "ellipsis"


def _task(run: RunSummary, *, held: bool) -> str:
    task = inert(run.task[:300]) or _WITHOUT_TASK.get(run.status, "no task")
    came = "● recorded" if run.recorded else "⇣ imported" if run.imported else ""
    came = came or ("⇣ imported answers" if run.imported_answers else "")
    return f"{'⚑ ' if held else ''}{'↻ ' if run.parent_run_id else ''}{came and f'{came} · '}{task}"


def _more(run: RunSummary) -> str:
    """Returns what the row has no room for, as its hint."""
    if run.damage:
        return inert(f"Run {run.run_id}") + "  \n" + inert(run.damage)
    word = ", says the file" if run.imported and not run.recorded else ""
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
    lines.append(f"Conductor: {run.conductor or 'none'}; pool: {run.pool}")
    if run.asked_for is not None:
        lines.append(f"Waits for an approval of {run.asked_for}")
    if run.error:
        lines.append(run.error)
    return "  \n".join(inert(line) for line in lines)


def _cells(row: Entry) -> str:
    """Draws the columns after the task. A narrow screen shows their names before each cell and not in the head."""
    cells = _batch_cells(row) if isinstance(row, BatchSummary) else _run_cells(row)
    inner = "".join(f'<span class="{_kind(name)}" data-name="{name}">{cell}</span>' for name, cell in cells.items())
    return f'<div class="cells runs">{inner}</div>'


def _run_cells(run: RunSummary) -> dict[str, str]:
    agents = ", ".join(run.agents)
    return {
        "Status": _status(run),
        "Shape": escape(run.topology or "—"),
        "Steps": _steps(run),
        "Agents": f'<span title="{escape(agents)}">{escape(agents) or "—"}</span>',
        "Tokens": f"{run.usage.total_tokens:,}",
        "Cost": _cost(run),
        "Time": seconds(run.duration_ms),
        "When": ago(run.created_at_utc),
    }


def _status(run: RunSummary) -> str:
    if run.asked_for is None:
        return f'<span class="pill {run.status}">{run_status(run.status)}</span>'
    asked = f"Waits for an approval of {run.asked_for}"
    return f'<span class="pill waiting" title="{escape(asked)}">{run_status("waiting")}</span>'


def _batch_cells(batch: BatchSummary) -> dict[str, str]:
    said = escape(counts(batch))
    return {
        "Status": f'<span class="pill {batch_status(batch)}">{run_status(batch_status(batch))}</span>',
        # This takes the place of shape, steps and agents, which belong to the runs.
        "Tasks": f'<span title="{said}">{said}</span>',
        "Tokens": f"{batch.usage.total_tokens:,}",
        "Cost": _cost(batch),
        "Time": "—",
        "When": ago(batch.created_at_utc),
    }


def batch_status(batch: BatchSummary) -> str:
    """Returns running while a run is, completed if all tasks are, else the status of most of the others."""
    others = {status: count for status, count in batch.statuses.items() if status != "completed"}
    if "running" in others:
        return "running"
    if others:
        return max(others, key=others.__getitem__)
    return "interrupted" if batch.not_begun else "completed"


def counts(batch: BatchSummary) -> str:
    """Returns ``198 of 200 completed, 1 failed, 1 not begun``."""
    completed = batch.statuses.get("completed", 0)
    parts = [] if _of_plans(batch) and not completed else [f"{completed:,} of {batch.size:,} completed"]
    parts += [f"{n:,} {RUN_STATUSES[each][1]}" for each, n in batch.statuses.items() if each != "completed"]
    parts += [f"{batch.not_begun:,} not begun"] if batch.not_begun else []
    return ", ".join(parts)


def _steps(run: RunSummary) -> str:
    """Draws how many steps there are, and how many of them were reused or failed."""
    said = f"{run.steps_completed} called, {run.steps_reused} reused, {run.steps_failed} failed, of {run.steps}"
    reused = f" ↺{run.steps_reused}" if run.steps_reused else ""
    failed = f" ✕{run.steps_failed}" if run.steps_failed else ""
    return f'<span title="{said}">{run.steps}{reused}{failed}</span>'


def _cost(entry: Entry) -> str:
    cost = said = escape(str(entry.cost))
    if entry.cost_estimated:
        # The column has room for a sign only.
        cost, said = f"≈ {cost}", f"{cost}, no exact figure: not all tokens were counted, or a cache has no price"
    if entry.simulated:
        return f'<span class="pill simulated" title="{said}: no real model answered">simulated</span>'
    return f'<span title="{said}">{cost}</span>'


# Runs that cannot be read to their end, and a database that cannot be written.

_MOST_CHARACTERS = 20_000


def notes(runs: Sequence[RunSummary] = ()) -> None:
    """Says what is wrong with the database, or with some of the listed ``runs``. That a run was erased is no fault."""
    store = current().store
    if store.refusal is not None:
        st.info(inert(str(store.refusal)), icon=":material/lock:")
    if store.fault is not None:
        st.error(inert(f"{store.fault}; what could be read is listed"), icon=":material/error:")
    unreadable = [run.damage for run in runs if run.damage is not None and run.status != ERASED]
    if len(unreadable) == 1:
        st.warning(inert(unreadable[0]), icon=":material/warning:")
    elif unreadable:
        said = f"{len(unreadable)} of these runs cannot be read completely. Open one to see where and what to do."
        st.warning(said, icon=":material/warning:")


def damage(fault: RunUnreadable) -> None:
    """Shows, on request, the record at which reading stops. The live component says what is wrong with it."""
    if fault.trace is None:
        st.error(inert(str(fault)), icon=":material/error:")
    if fault.sequence is None:
        return
    with st.expander(f"Event {fault.sequence} as it lies in the database", icon=":material/data_object:"):
        try:
            [record] = current().store.raw_events(fault.run_id, after=fault.sequence - 1, limit=1)
        except (StoreError, ValueError) as error:
            st.caption(inert(f"It cannot be read either: {error}"))
            return
        payload = record.payload.decode("utf-8", "backslashreplace")
        st.caption(inert(f"{record.kind}, {record.at_utc}, {len(record.payload):,} bytes"))
        st.code(payload[:_MOST_CHARACTERS], language=None, wrap_lines=True)
        if len(payload) > _MOST_CHARACTERS:
            st.caption(f"The first {_MOST_CHARACTERS:,} characters of {len(payload):,}.")
