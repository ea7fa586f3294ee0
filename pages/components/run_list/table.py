"""Lists of runs: what rows are called, which hangs below which, pairs to compare, columns, the table."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from types import MappingProxyType
from typing import Any, TypeVar

import streamlit as st
from markupsafe import Markup

from conductor_core.blame.experiments import blamed_run
from conductor_core.engine.repeats import names_plans
from conductor_core.run.judgement import Judgement
from conductor_core.run.request import REPLAY_PURPOSE
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import label
from pages.components.app import places
from pages.components.app.session import current, viewed
from pages.components.app.widgets import text_button
from pages.components.style.formats import (
    RUN_STATUSES,
    ago,
    html,
    inert,
    moment,
    plural,
    right_to_left,
    run_status,
    seconds,
)
from storage import BatchSummary, RunSummary

TEMPLATE = "run_list/run_list"
Entry = RunSummary | BatchSummary
E = TypeVar("E", bound=RunSummary | BatchSummary)
_WITHOUT_TASK = {"erased": "erased", "key_away": "encrypted"}
"""What stands for the task of a run of this status."""
_MARKED = {"running", "queued", "failed", "denied", "refused", "filtered", "cut", "empty", "damaged"}
"""Statuses with a glyph and a colour: what goes on, and what has no answer."""
_LONGEST, _LONGEST_CHOICE = 200, 48


@dataclass(frozen=True)
class Row:
    """A row. ``guide`` is the drawing that leads to it from the run above, a sign for each generation: ``│ └``.

    Attributes:
        before: the run that it came from, where that is known.
    """

    entry: Entry
    guide: str = ""
    before: RunSummary | None = None

    @property
    def id(self) -> str:
        return f"batch-{self.entry.batch_id}" if isinstance(self.entry, BatchSummary) else self.entry.run_id

    @property
    def same(self) -> bool | None:
        """Whether the answer is that of the run that it came from; None where one of them has none."""
        run, before = self.entry, self.before
        if isinstance(run, BatchSummary) or before is None or run.conclusion is None or before.conclusion is None:
            return None
        return run.answer_key == before.answer_key


@dataclass(frozen=True)
class Group:
    """Rows below a line that says what they have in common. ``lone``: each row also tells its task."""

    title: str
    rows: tuple[Row, ...]
    note: str = ""
    lone: bool = False
    of: str = "run"


def task_of(run: RunSummary) -> str:
    return " ".join(run.task[:_LONGEST].split()) or _WITHOUT_TASK.get(run.status, "no task")


def run_label(run: RunSummary | RunTrace, *facts: str) -> str:
    """Names a run in a choice: first what tells two runs of one task apart, because the field cuts the rest."""
    task, again = " ".join(run.task.split()) or "no task", "" if run.parent_run_id is None else "↻ "
    shown = task if len(task) <= _LONGEST_CHOICE else f"{task[: _LONGEST_CHOICE - 1]}…"
    return " · ".join((f"{again}{ago(run.created_at_utc)}", *facts, run.run_id[-6:], shown))


def parent_of(entry: Entry) -> str | None:
    return blamed_run(entry.name) if isinstance(entry, BatchSummary) else entry.parent_run_id


def by_time(entries: Sequence[Entry], known: Mapping[str, RunSummary]) -> list[Group]:
    return [Group("", (Row(entry, before=known.get(parent_of(entry) or "")),), lone=True) for entry in entries]


def by_task(entries: Sequence[Entry], known: Mapping[str, RunSummary]) -> list[Group]:
    """Returns a group for each task, the one with the newest row first; in it older runs come first."""
    runs = {entry.run_id: entry for entry in entries if isinstance(entry, RunSummary)}
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        top = entry
        while (above := runs.get(parent_of(top) or "")) is not None:
            top = above
        task = "" if isinstance(top, BatchSummary) else " ".join(top.task.split())
        groups.setdefault(task or f"\n{Row(top).id}", []).append(entry)
    found = []
    for title, members in groups.items():
        rows = tuple(Row(entry, guide, known.get(parent_of(entry) or "")) for entry, guide in branches(members))
        lone = len(rows) == 1
        found.append(Group("" if lone else title, rows, "" if lone else _answers(rows), lone))
    return sorted(found, key=lambda group: max(row.entry.sequence for row in group.rows), reverse=True)


def branches(entries: Sequence[E]) -> list[tuple[E, str]]:
    """Returns the runs as a tree, each below the run that it came from, older ones first, with their guides."""
    below: dict[str | None, list[E]] = {}
    known = {entry.run_id for entry in entries if isinstance(entry, RunSummary)}
    for entry in sorted(entries, key=lambda entry: entry.sequence):
        parent = parent_of(entry)
        below.setdefault(parent if parent in known else None, []).append(entry)

    def under(parent: str | None, before: str) -> Iterator[tuple[E, str]]:
        children = below.get(parent, [])
        for entry in children:
            last = entry is children[-1]
            yield entry, "" if parent is None else f"{before}{'└' if last else '├'}"
            deeper = "" if parent is None else f"{before}{' ' if last else '│'}"
            if isinstance(entry, RunSummary):
                yield from under(entry.run_id, deeper)

    return list(under(None, ""))


def _answers(rows: Sequence[Row]) -> str:
    """Says how often each value came out, such as ``13:43 4 times · 14:13 once``; nothing where there is one."""
    runs = [row.entry for row in rows if isinstance(row.entry, RunSummary)]
    values = {run.answer_key: run.conclusion.text for run in runs if run.conclusion and run.conclusion.kind == "value"}
    times = Counter(run.answer_key for run in runs if run.answer_key in values)
    if len(times) < 2:
        return ""
    return " · ".join(f"{values[key][:30]} {'once' if n == 1 else f'{n} times'}" for key, n in times.most_common(4))


# Columns.

NUMBERS = ("Cost", "Time", "When")
ANSWER = "Answer"


def cells(
    row: Row, columns: Sequence[str], extra: Mapping[str, str], judged: Mapping[str, Sequence[Judgement]]
) -> list[tuple[str, str, str]]:
    """Returns the columns after the name: their name, their kind and what they say.

    A narrow screen shows the names of numbers before them, and no head.
    """
    entry = row.entry
    if isinstance(entry, BatchSummary):
        status = batch_status(entry)
        mark = f"{RUN_STATUSES[status][0]} " if status in _MARKED else ""
        answer = html(TEMPLATE, "batch", status=status, marked=mark, said=counts(entry))
        known = {ANSWER: answer, "Cost": _cost(entry), "When": ago(entry.created_at_utc)}
    else:
        known = {name: draw(row, entry) for name, draw in _DRAWN.items() if name in columns}
        if ANSWER in known and (of_run := judged.get(entry.run_id)):
            known[ANSWER] = judgement_mark(of_run) + known[ANSWER]
    return [(name, kind(name), known.get(name, extra.get(row.id, ""))) for name in columns]


def kind(column: str) -> str:
    return "number" if column in NUMBERS else "ellipsis"


def _answer(row: Row, run: RunSummary) -> Markup:
    if run.asked_for is not None:
        return html(TEMPLATE, "waiting", said=run.waits, short=run.waits_short)
    if run.status in _MARKED:
        more = f": {run.error}" if run.error else ""
        if run.status in ("running", "queued"):
            done = run.steps_completed + run.steps_reused
            more = f", {done} of {run.steps}" if run.steps else ", planning" if run.status == "running" else ""
        return html(TEMPLATE, "mark", kind=f"mark {run.status}", said=f"{run_status(run.status)}{more}")
    if run.conclusion is None:
        return html(TEMPLATE, "muted", said=RUN_STATUSES[run.status][1])
    before, said = "", run.conclusion.text or "empty"
    if row.before is None or row.before.conclusion is None:
        before = "no answer →" if row.before is not None and not row.before.plan_only else ""
    elif not row.same:
        values = {run.conclusion.kind, row.before.conclusion.kind} <= {"value"}
        before = f"{row.before.conclusion.text} →" if values else "other words:"
    quiet = run.conclusion.kind in ("declined", "empty")
    return html(TEMPLATE, "answer", said=said, before=before, quiet=quiet, same=row.same is True)


def mark_words(judgements: Sequence[Judgement]) -> list[str]:
    """Returns which marks count of an answer, in words; none where nobody judged it right or wrong."""
    return [f"{'✓' if mark == 'right' else '✗'} {mark}" for mark in _marks(judgements)]


def _marks(judgements: Sequence[Judgement]) -> list[str]:
    marks = {each.mark for each in judgements if each.path is None}
    return [mark for mark in ("right", "wrong") if mark in marks]


def judgement_mark(judgements: Sequence[Judgement]) -> Markup:
    """Draws in a sign what counts of a run: ✓ right, ✗ wrong, both where judges disagree, ✎ a note or a score alone."""
    kinds = _marks(judgements) or ["noted"]
    said = []
    for each in judgements:
        about, note = "" if each.path is None else f"step {label(each.path)}: ", f": {each.note}" if each.note else ""
        said.append(f"{about}{each.in_words}, {each.judge_in_words}{note}")
    return html(TEMPLATE, "judged", kinds=kinds, said="\n".join(said))


def _steps(_: Row, run: RunSummary) -> Markup:
    said = str(run.steps) if run.steps else "—"
    if run.steps_reused:
        said = f"{run.steps_completed + run.steps_failed} ran, {run.steps_reused} reused"
    elif run.steps_completed < run.steps and run.status != "planned":
        said = f"{run.steps_completed} of {run.steps}"
    title = f"{run.steps_completed} called, {run.steps_reused} reused, {run.steps_failed} failed, of {run.steps}"
    return html(TEMPLATE, "titled", title=title, said=said)


def _cost(entry: Entry) -> Markup:
    cost = said = str(entry.cost)
    if entry.cost_estimated:
        # The column has room for a sign only.
        cost, said = f"≈ {cost}", f"{cost}, no exact figure: not all tokens were counted, or a cache has no price"
    if entry.simulated:
        return html(TEMPLATE, "simulated", said=said)
    return html(TEMPLATE, "titled", title=said, said=cost)


def by_whom(run: RunSummary) -> str:
    return run.caller.actor.short if run.caller.actor is not None else "somebody"


_DRAWN: Mapping[str, Callable[[Row, RunSummary], str]] = {
    ANSWER: _answer,
    "Steps": _steps,
    "Cost": lambda _, run: _cost(run),
    "Time": lambda _, run: seconds(run.duration_ms),
    "By": lambda _, run: html(TEMPLATE, "muted", said=by_whom(run)),
    "When": lambda _, run: ago(run.created_at_utc),
}


def batch_name(row: Row, batch: BatchSummary) -> str:
    if blamed_run(batch.name) is not None:
        task = "" if row.guide else f" · {batch.name.partition(': ')[2][:_LONGEST]}"
        return f"Blame · {plural(batch.size, 'replay')}{task}"
    plans = names_plans(batch.name, batch.size)
    return batch.name[:_LONGEST] if plans else f"{batch.name[:_LONGEST]} · {plural(batch.size, 'task')}"


def batch_status(batch: BatchSummary) -> str:
    """Returns running while a run is, completed if all tasks are, else the status of most of the others."""
    others = {status: count for status, count in batch.statuses.items() if status != "completed"}
    if "running" in others:
        return "running"
    if others:
        return max(others, key=others.__getitem__)
    return "interrupted" if batch.not_begun else "completed"


def counts(batch: BatchSummary) -> str:
    completed = batch.statuses.get("completed", 0)
    plans = names_plans(batch.name, batch.size)
    parts = [] if plans and not completed else [f"{completed:,} of {batch.size:,} completed"]
    parts += [f"{n:,} {RUN_STATUSES[each][1]}" for each, n in batch.statuses.items() if each != "completed"]
    parts += [f"{batch.not_begun:,} not begun"] if batch.not_begun else []
    return ", ".join(parts)


MOST = 12
"""Pairs of a kind."""


def pairs(runs: Sequence[RunSummary], known: Mapping[str, RunSummary]) -> list[Group]:
    """Returns the pairs by what came of them, the newest first. ``known``: runs by id, parents among them."""
    changed, kept, others, latest = list[Row](), list[Row](), list[Row](), dict[str, RunSummary]()
    for run in sorted(runs, key=lambda run: run.sequence):
        before, task = known.get(run.parent_run_id or ""), " ".join(run.task.split())
        if before is not None and run.steps and not before.plan_only:
            row = Row(run, before=before)
            if row.same is None and (run.conclusion is not None or before.conclusion is not None):
                changed.append(row)
            elif row.same is not None:
                (kept if row.same else changed).append(row)
        elif run.parent_run_id is None and run.conclusion is not None:
            if task in latest:
                others.append(Row(run, before=latest[task]))
            latest[task] = run
    named = {
        "Re-runs that changed the answer": changed,
        "Re-runs that kept it": kept,
        "The same task by another plan": others,
    }
    return [Group(title, tuple(reversed(rows))[:MOST], lone=True, of="pair") for title, rows in named.items() if rows]


# The table.

HISTORY = ("Answer", "Steps", "Cost", "Time", "When")
WITH_PEOPLE = ("Answer", "Steps", "Cost", "Time", "By", "When")
OFFERED = ("Answer", "Steps", "When")
FOLDED = "run-groups-folded"
_GENERATIONS = 12

_NONE: Mapping[str, Any] = MappingProxyType({})
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
    people = {by_whom(entry) for entry in entries if isinstance(entry, RunSummary)}
    return WITH_PEOPLE if len(people) > 1 else HISTORY


def pick_key(entry: Entry) -> str:
    return f"pick-batch-{entry.batch_id}" if isinstance(entry, BatchSummary) else f"pick-run-{entry.run_id}"


def table(
    groups: Sequence[Group],
    columns: Sequence[str],
    *,
    name: str = "Task, plan, change",
    opened: Opened | None = None,
    extra: Mapping[str, str] = _NONE,
    held: Collection[str] = (),
    picking: bool = False,
    turns: Mapping[str, tuple[int, int]] = _NONE,
    judged: Mapping[str, Sequence[Judgement]] = _NONE,
) -> None:
    """Draws a row per entry. Its name opens it; the rest stands in columns.

    Args:
        opened: what a row does; None: it is a link to the Run page.
        extra: HTML of a column of the page's own, by run.
        held: ids of runs that may not be deleted.
        picking: whether each row has a checkbox.
        turns: by run, its place in its conversation and how many turns that has (``Store.turn_numbers``).
        judged: by run, what counts of its judgements.
    """
    entries = [row.entry for group in groups for row in group.rows]
    told = [run for run in entries if isinstance(run, RunSummary) and run.conclusion is not None]
    viewed([run.run_id for run in told if run.purpose != REPLAY_PURPOSE], "list of runs")
    form = f"runs {'-'.join(column.split()[0].lower() for column in columns)}"
    with st.container(key="runs"):
        with st.container(key="run-row-head", horizontal=True):
            st.html(html(TEMPLATE, "name_head", name=name))
            names = [(each, kind(each), each) for each in columns]
            st.html(html(TEMPLATE, "head", form=form, names=names), width="content")
        for group in groups:
            if group.title and _head(group):
                continue
            for row in group.rows:
                run = row.entry if isinstance(row.entry, RunSummary) else None
                # A link has no direction of its own, so the name of a row that tells its task carries that of the task.
                way = _way(run.task) if group.lone and run is not None else ""
                with st.container(key=f"run-row-{row.id}{way}", horizontal=True):
                    _name(row, opened, lone=group.lone, held=row.id in held)
                    if run is not None and row.id in turns:
                        number, count = turns[row.id]
                        label, begun = f":gray[turn {number:,} of {count:,}]", run.conversation_id or run.run_id
                        says = "Show the runs of this conversation"
                        text_button(label, f"conversation-of-{row.id}", go_to, "conversation", begun, help=says)
                    if picking:
                        named = row.entry.name if isinstance(row.entry, BatchSummary) else task_of(row.entry)
                        label = f"Select {inert(named[:60])}"
                        st.checkbox(label, key=pick_key(row.entry), label_visibility="collapsed")
                    # The line that leads to it is drawn with the columns: an element of its own costs the page more.
                    drawn = cells(row, columns, extra, judged)
                    guide = html(TEMPLATE, "guide", parts=row.guide)
                    st.html(html(TEMPLATE, "row", form=form, guide=guide, cells=drawn), width="content")


def _head(group: Group) -> bool:
    name = sha256(group.title.encode()).hexdigest()[:16]
    folded = name in st.session_state.get(FOLDED, ())
    note = f" :gray[{inert(group.note)}]" if group.note else ""
    label = f"{'▸' if folded else '▾'} **{inert(group.title)}** :gray[{plural(len(group.rows), group.of)}]{note}"
    text_button(label, f"run-group-{name}{_way(group.title)}", _fold, name, width="stretch")
    return folded


def _fold(name: str) -> None:
    """Folds the group, or shows its rows again, on every page and for as long as the session lasts."""
    st.session_state[FOLDED] = frozenset({name}) ^ st.session_state.get(FOLDED, frozenset())


def _way(text: str) -> str:
    return "-rtl" if right_to_left(text) else ""


def _name(row: Row, opened: Opened | None, *, lone: bool, held: bool) -> None:
    run = row.entry
    if isinstance(run, BatchSummary):
        label = f"▤ {inert(batch_name(row, run))}"
        words = inert(f"Batch {run.batch_id}, {moment(run.created_at_utc)}, {plural(run.runs, 'run')}")
        how: dict[str, Any] = {"width": "stretch", "help": words}
        if opened is not None:
            st.page_link(places.HISTORY, label=label, query_params={"batch": run.batch_id}, **how)
        else:  # no page link: one to its own page would leave the browser's address as it was
            text_button(label, f"open-batch-{run.batch_id}", go_to, "batch", run.batch_id, **how)
        return
    label, how = f"{'⚑ ' if held else ''}{_label(row, run, lone=lone)}", {"width": "stretch", "help": _more(run)}
    if opened is None:
        st.page_link(places.RUN, label=label, query_params={"run": run.run_id}, **how)
    else:  # as above
        text_button(label, f"{opened[0]}{run.run_id}", opened[1], run.run_id, **how)


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


def go_to(parameter: str, chosen: str | None) -> None:
    """Shows only the runs of a ``batch`` or a ``conversation`` in History; None: all again."""
    st.session_state["history-cursors"], st.session_state["history-day"] = [], None
    places.write(parameter, chosen)


def _more(run: RunSummary) -> str:
    if run.damage:
        return inert(f"Run {run.run_id}") + "  \n" + inert(run.damage)
    word = ", says its file" if run.imported and not run.recorded else ""
    came = "Imported from a file: this database did not carry it out" if run.imported else ""
    reused = "Reuses answers of an imported run, which this database did not see" if run.imported_answers else ""
    lines = [
        f"Run {run.run_id}, {run.created_at_utc:%Y-%m-%d %H:%M} UTC, started by {run.caller.in_words}{word}",
        "Recorded: it came with the program, and this database did not carry it out" if run.recorded else came,
        "" if run.imported else reused,
        f"For: {run.purpose}{word}" if run.purpose else "",
        "" if run.batch_row is None else f"Row {run.batch_row} of batch {run.batch_id}",
        f"Re-run of {run.parent_run_id}" if run.parent_run_id else "",
        f"Conductor: {run.conductor or 'none'}; pool: {run.pool}; agents: {', '.join(run.agents) or 'none'}",
        f"{run.topology or 'no plan'}, {plural(run.steps, 'step')}, {run.usage.total_tokens:,} tokens",
        (run.waits or "") if run.asked_for is not None else "",
        run.error or "",
    ]
    return inert("\0".join(filter(None, lines))).replace("\0", "  \n")
