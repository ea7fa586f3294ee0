"""Rows of a list of runs: what they are called, which hangs below which, and what their columns say. Pure.

Every text in the columns is escaped.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeVar

from conductor_core.blame.experiments import blamed_run
from conductor_core.engine.repeats import names_plans
from pages.components.style.formats import RUN_STATUSES, ago, plural, run_status, seconds
from storage import BatchSummary, RunSummary

Entry = RunSummary | BatchSummary
E = TypeVar("E", bound=RunSummary | BatchSummary)
_WITHOUT_TASK = {"erased": "erased", "key_away": "encrypted"}
"""What stands for the task of a run of this status."""
_MARKED = {"running", "queued", "failed", "denied", "refused", "filtered", "cut", "empty", "damaged"}
"""Statuses with a glyph and a colour: what goes on, and what has no answer."""
_LONGEST = 200


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
    """Returns the task in one line, or words for why there is none."""
    return " ".join(run.task[:_LONGEST].split()) or _WITHOUT_TASK.get(run.status, "no task")


def parent_of(entry: Entry) -> str | None:
    """Returns the run that a run, or the replays of a blame, came from."""
    return blamed_run(entry.name) if isinstance(entry, BatchSummary) else entry.parent_run_id


def by_time(entries: Sequence[Entry], known: Mapping[str, RunSummary]) -> list[Group]:
    """Returns each entry as a row of its own. ``known``: runs by id, those that others came from among them."""
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


def cells(row: Row, columns: Sequence[str], extra: Mapping[str, str]) -> str:
    """Draws the columns after the name. A narrow screen shows the names of numbers before them, and no head.

    ``extra``: HTML of a further column, by run.
    """
    entry = row.entry
    if isinstance(entry, BatchSummary):
        known = {ANSWER: _batch(entry), "Cost": _cost(entry), "When": ago(entry.created_at_utc)}
    else:
        known = {name: draw(row, entry) for name, draw in _DRAWN.items() if name in columns}
    shown = {name: known.get(name, extra.get(row.id, "")) for name in columns}
    return "".join(f'<span class="{kind(name)}" data-name="{name}">{cell}</span>' for name, cell in shown.items())


def kind(column: str) -> str:
    return "number" if column in NUMBERS else "ellipsis"


def _answer(row: Row, run: RunSummary) -> str:
    """Says what the answer is, and what it was in the run before; how far it is, or why there is none."""
    if run.asked_for is not None:
        asked = escape(f"Waits for an approval of {run.asked_for}")
        return f'<span class="pill waiting" title="{asked}">{run_status("waiting")}</span>'
    if run.status in _MARKED:
        more = _so_far(run) if run.status in ("running", "queued") else f": {run.error}" if run.error else ""
        said = escape(f"{run_status(run.status)}{more}")
        return f'<span class="mark {run.status}" title="{said}">{said}</span>'
    if run.conclusion is None:
        return f'<span class="muted">{RUN_STATUSES[run.status][1]}</span>'
    said = run.conclusion.text or "empty"
    tag = "span" if run.conclusion.kind in ("declined", "empty") else "b"
    shown = f'<{tag} dir="auto">{escape(said)}</{tag}>'
    if row.before is None or row.before.conclusion is None:
        gone = row.before is not None and not row.before.plan_only
        lead, after = ('<span class="muted">no answer →</span> ' if gone else ""), ""
    elif row.same:
        lead, after = "", ' <span class="muted">same</span>'
    elif {run.conclusion.kind, row.before.conclusion.kind} <= {"value"}:
        lead, after = f'<span class="muted">{escape(row.before.conclusion.text)} →</span> ', ""
    else:
        lead, after = '<span class="muted">other words:</span> ', ""
    return f'<span title="{escape(said)}">{lead}{shown}{after}</span>'


def _so_far(run: RunSummary) -> str:
    done = run.steps_completed + run.steps_reused
    return f", {done} of {run.steps}" if run.steps else ", planning" if run.status == "running" else ""


def steps_words(run: RunSummary) -> str:
    """Says how many steps ran and were reused: ``5``, ``2 ran, 3 reused``, ``2 of 5``."""
    ran = run.steps_completed + run.steps_failed
    if run.steps_reused:
        return f"{ran} ran, {run.steps_reused} reused"
    if run.steps_completed < run.steps and run.status != "planned":
        return f"{run.steps_completed} of {run.steps}"
    return str(run.steps) if run.steps else "—"


def _steps(_: Row, run: RunSummary) -> str:
    said = f"{run.steps_completed} called, {run.steps_reused} reused, {run.steps_failed} failed, of {run.steps}"
    return f'<span title="{said}">{steps_words(run)}</span>'


def _cost(entry: Entry) -> str:
    cost = said = escape(str(entry.cost))
    if entry.cost_estimated:
        # The column has room for a sign only.
        cost, said = f"≈ {cost}", f"{cost}, no exact figure: not all tokens were counted, or a cache has no price"
    if entry.simulated:
        return f'<span class="pill simulated" title="{said}: no real model answered">simulated</span>'
    return f'<span title="{said}">{cost}</span>'


def by_whom(run: RunSummary) -> str:
    """Returns the name of who started it; ``somebody`` in older records."""
    return run.caller.actor.short if run.caller.actor is not None else "somebody"


_DRAWN: Mapping[str, Callable[[Row, RunSummary], str]] = {
    ANSWER: _answer,
    "Steps": _steps,
    "Cost": lambda _, run: _cost(run),
    "Time": lambda _, run: seconds(run.duration_ms),
    "By": lambda _, run: f'<span class="muted">{escape(by_whom(run))}</span>',
    "When": lambda _, run: ago(run.created_at_utc),
}


# Batches.


def of_plans(batch: BatchSummary) -> bool:
    """Tells whether these are plans for one task to choose from."""
    return names_plans(batch.name, batch.size)


def batch_name(row: Row, batch: BatchSummary) -> str:
    """Returns ``tasks.jsonl · 200 tasks``, ``Blame · 39 replays``; of replays without their run also its task."""
    if blamed_run(batch.name) is not None:
        task = "" if row.guide else f" · {batch.name.partition(': ')[2][:_LONGEST]}"
        return f"Blame · {plural(batch.size, 'replay')}{task}"
    return batch.name[:_LONGEST] if of_plans(batch) else f"{batch.name[:_LONGEST]} · {plural(batch.size, 'task')}"


def _batch(batch: BatchSummary) -> str:
    status, said = batch_status(batch), escape(counts(batch))
    mark = f"{RUN_STATUSES[status][0]} " if status in _MARKED else ""
    return f'<span class="{"mark " if mark else ""}{status}" title="{said}">{mark}{said}</span>'


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
    parts = [] if of_plans(batch) and not completed else [f"{completed:,} of {batch.size:,} completed"]
    parts += [f"{n:,} {RUN_STATUSES[each][1]}" for each, n in batch.statuses.items() if each != "completed"]
    parts += [f"{batch.not_begun:,} not begun"] if batch.not_begun else []
    return ", ".join(parts)
