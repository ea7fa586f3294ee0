"""``run --tasks`` runs each row of a file of tasks, many at once. A batch has one budget and can be resumed."""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

from conductor_core.analysis import documents
from conductor_core.analysis.conclusion import concluded
from conductor_core.cli.inputs import check, given_text, read_file
from conductor_core.cli.live import RunStopped, ready, until_stopped
from conductor_core.cli.options import Options
from conductor_core.cli.output import one_line, print_json
from conductor_core.cli.progress import Line
from conductor_core.engine.batch import BatchSpent, BatchTask, ManyRuns, request_of
from conductor_core.engine.budgets import CostCap
from conductor_core.engine.host import EngineHost
from conductor_core.engine.pools import pool_info
from conductor_core.engine.request import asks_conductor
from conductor_core.errors import BadInput, StoreError
from conductor_core.formats import run_word, seconds
from conductor_core.run.actor import local_caller
from conductor_core.run.costs import Cost, cost_so_far, in_list, is_estimated
from conductor_core.run.request import RunRequest, new_run_id
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import BatchRow, Limits
from conductor_core.workflow.model import Workflow
from conductor_core.workflow.parser import parse_workflow_file
from storage import BatchSummary, RunSummary, Store

# The file of tasks, one on each line (JSONL). It is checked whole before anything runs, and faults name their line.


MOST_LINE_BYTES = 4 << 20
_LONGEST_ID = 200
_TASK_KEYS = ("task", "prompt", "question", "problem", "instruction")
_KEYS = frozenset({"id", "workflow", *_TASK_KEYS})


@dataclass(frozen=True)
class TaskFile:
    """Holds the tasks in the file's order. ``unread``: names of further fields of rows, which nothing here reads."""

    tasks: tuple[BatchTask, ...]
    unread: tuple[str, ...]


def read_tasks(path: Path) -> list[str]:
    """Reads the tasks alone. Each line is a JSON string, or an object with ``task`` (or ``prompt``, ...)."""
    return [_task(value, place) for value, place, _ in _rows(path)]


def read_task_file(path: Path, agents: Sequence[str], limits: Limits) -> TaskFile:
    """Reads rows ``{id, task, workflow?}``. A row without an id is named by its line, and may be a JSON string.

    A row's workflow may name only ``agents``, and must keep ``limits``.
    """
    tasks: dict[str, BatchTask] = {}
    unread: dict[str, None] = {}
    for value, place, number in _rows(path):
        row = value if isinstance(value, dict) else {"task": value}
        unread.update(dict.fromkeys(one_line(key, 40) for key in row if key not in _KEYS))
        id_ = _id(row, place, number)
        if (other := tasks.get(id_)) is not None:
            raise BadInput(f"{place}: the id {one_line(id_, 60)!r} is that of line {other.line}: each needs its own")
        given = row.get("workflow")
        workflow = None if given is None else _workflow(given, place, agents, limits)
        if isinstance(given, dict) and not any(key in row for key in _TASK_KEYS) and "task" in given:
            row = row | {"task": given["task"]}
        tasks[id_] = BatchTask(id=id_, task=_task(row, place), workflow=workflow, line=number)
    return TaskFile(tuple(tasks.values()), tuple(unread))


def _rows(path: Path) -> list[tuple[Any, str, int]]:
    """Returns for each line its value, its place for messages, and its number."""
    name = f"task file {one_line(str(path))}"
    rows = []
    # splitlines would break a JSON string that holds another line separator as it is.
    for number, line in enumerate(read_file(path, "task file").split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{name}: line {number}"
        if len(line.encode()) > MOST_LINE_BYTES:
            raise BadInput(f"{place}: too large: a row has at most {MOST_LINE_BYTES >> 20} MiB")
        try:
            value: Any = json.loads(line)
        except json.JSONDecodeError as error:
            raise BadInput(f"{place}, column {error.colno}: not JSON: {error.msg}") from error
        except (RecursionError, ValueError) as error:
            raise BadInput(f"{place}: not JSON that can be read: too deeply nested, or a number too long") from error
        rows.append((value, place, number))
    if not rows:
        raise BadInput(f"{name}: it holds no task")
    return rows


def _task(value: Any, place: str) -> str:
    if isinstance(value, dict):
        value = next((value[key] for key in _TASK_KEYS if key in value), None)
    if not isinstance(value, str):
        raise BadInput(f'{place}: no task: write {{"task": "..."}} or a JSON string')
    return given_text(value, f"{place}: the task")


def _id(row: dict[str, Any], place: str, number: int) -> str:
    id_ = row.get("id", number)
    if isinstance(id_, int) and not isinstance(id_, bool):
        id_ = str(id_)
    if not isinstance(id_, str):
        raise BadInput(f"{place}: the id is neither a text nor a whole number")
    if len(id_) > _LONGEST_ID:
        raise BadInput(f"{place}: the id has {len(id_)} characters: at most {_LONGEST_ID}")
    return given_text(id_, f"{place}: the id")


def _workflow(given: Any, place: str, agents: Sequence[str], limits: Limits) -> Workflow:
    """Reads a workflow as in a workflow file: an object, the list of its steps, or the file's text."""
    if isinstance(given, list):
        given = {"steps": given}
    if not isinstance(given, dict | str):
        raise BadInput(f"{place}: the workflow is neither an object nor a list of steps")
    parsed = parse_workflow_file(given if isinstance(given, str) else json.dumps(given))
    checked = check(parsed, agents, limits)
    if checked.workflow is None:
        more = checked.fault_count - 1
        rest = f" ({more:,} more fault{'s' if more > 1 else ''})" if more else ""
        raise BadInput(f"{place}: the workflow cannot be run: {one_line(checked.faults[0].message, 400)}{rest}")
    return checked.workflow


_MOST_REASONS = 5
_MOST_RUNS_READ = 100_000
_CONCURRENCY = 8


class _OfFile(NamedTuple):
    """A file as a batch. ``each``: what all runs have in common; its ``max_usd`` is the budget of all together."""

    name: str
    each: RunRequest
    concurrency: int
    resume: bool


@dataclass
class _Earlier:
    """Holds what the store has of a continued batch: for each row its runs so far, oldest first."""

    batch_id: str
    runs: dict[str, list[RunTrace]] = field(default_factory=dict)

    def done(self, row: str) -> RunTrace | None:
        """Returns the run that completed ``row``, None if none did."""
        return next((run for run in self.runs.get(row, ()) if run.status == "completed"), None)

    @property
    def traces(self) -> list[RunTrace]:
        return [run for runs in self.runs.values() for run in runs]


def run_tasks(path: Path, given: Options, concurrency: int | None, *, resume: bool, only_answering: bool) -> int:
    """Runs a file of tasks, or what is left of its last batch: that fills in what the options leave out.

    Returns the exit code: 0 all completed, 1 not all, 130 or 143 after a signal. Raises: BadInput, StoreError.
    """
    before = _last_run(path, given) if resume else None
    row = None if before is None else before.batch
    request = given.request(task="")
    if before is not None:
        # A batch's budget in USD is for all its runs together.
        max_usd = given.settings.max_usd if row is None or row.max_usd is None else row.max_usd
        limits = given.limits(before.limits.model_copy(update={"max_usd": max_usd}))
        request = _as_before(before, request.model_copy(update={"limits": limits}), given)
    request = ready(request, given, only_answering=only_answering)
    pool = pool_info(request.pool or given.settings.pool, given.settings, request.excluded)
    file = read_task_file(path, [spec.name for spec in pool.workers], request.limits)
    if request.limits.max_usd is not None:
        cap = CostCap(BatchSpent(), max_usd=request.limits.max_usd)
        cap.check_workers(pool.workers)
        if any(asks_conductor(task.workflow) for task in file.tasks):
            # Imported when used: most batches have no budget, and a Conductor takes long to import.
            from conductor_core.conductors.catalogue import open_conductor

            cap.check_conductor(open_conductor(request.conductor or given.settings.conductor, given.settings).info)
    if file.unread:
        given.say(f"note: not read: {', '.join(file.unread[:10])}")
    at_once = concurrency or (None if row is None else row.concurrency) or _CONCURRENCY
    with given.store() as store, ExitStack() as held:
        batch = _OfFile(path.name, request, at_once, resume)
        earlier = _resumed_from(store, given, batch, file.tasks, pool.name, held)
        with given.engine(store) as host:
            return _Batch(given, batch, file.tasks, earlier, store, host).carry_out()


def _last_run(path: Path, given: Options) -> RunTrace | None:
    """Returns the newest run of the file's last batch that asked a Conductor, else the newest; None: there is none.

    Raises: StoreError.
    """
    with given.store() as store:
        last = next(iter(store.batches(limit=1, name=path.name)), None)
        runs = [] if last is None else store.runs(limit=max(1, last.runs), batch=last.batch_id)
        chosen = next((run for run in runs if run.conductor is not None), next(iter(runs), None))
        return None if chosen is None else store.trace(chosen.run_id)[0]


def _as_before(before: RunTrace, request: RunRequest, given: Options) -> RunRequest:
    """Returns ``request``. What ``before`` had fills in all that was not given."""
    excluded = request.excluded
    if given.pool is None:
        # The recorded pool lacks what was left out of it.
        excluded = tuple(name for name in excluded if name not in before.pool.excluded)
    elif not excluded and Path(given.pool).stem == before.pool.name:
        excluded = before.pool.excluded
    kept: dict[str, Any] = {"excluded": excluded}
    if given.conductor is None and before.conductor is not None:
        kept["conductor"] = before.conductor.name
    kept |= {"pool": before.pool} if given.pool is None else {}
    kept |= {"seed": before.seed} if given.seed is None else {}
    kept |= {"on_incomplete": before.on_incomplete} if given.on_incomplete is None else {}
    kept |= {"give_question": before.give_question} if given.give_question is None else {}
    return request.model_copy(update=kept)


def _resumed_from(
    store: Store, given: Options, batch: _OfFile, tasks: Sequence[BatchTask], pool: str, held: ExitStack
) -> _Earlier:
    """Returns the batch of this file that is continued, or a new one; ``held`` keeps other processes from running it.

    Raises: BadInput if another process runs it, or if the file does not fit the batch.
    """
    shown = one_line(batch.name, 80)
    if batch.resume:
        # The file is locked even before a batch exists: else two processes could both begin the first one.
        held.enter_context(store.carrying_out(f"file {batch.name}", f"the batch of {shown}"))
    last = next(iter(store.batches(limit=1, name=batch.name)), None)
    if last is None or not batch.resume:
        if said := _of_new(last, shown, resume=batch.resume):
            given.say(f"note: {said}")
        earlier = _Earlier(new_run_id())
        held.enter_context(store.carrying_out(earlier.batch_id, f"batch {earlier.batch_id}"))
        return earlier
    held.enter_context(store.carrying_out(last.batch_id, f"batch {last.batch_id} of {shown}"))
    store.mark_interrupted()  # whoever had it may have been killed only now
    rows = {task.id: task for task in tasks}
    earlier = _Earlier(last.batch_id)
    for run in reversed(store.runs(limit=_MOST_RUNS_READ, batch=last.batch_id)):
        _must_fit(run, rows.get(run.batch_row or ""), last.batch_id, batch.each.conductor, pool)
        trace, _ = store.trace(run.run_id)
        earlier.runs.setdefault(run.batch_row or "", []).append(trace)
    for row, runs in earlier.runs.items():
        plan = rows[row].workflow
        if plan is not None and any(run.root.workflow not in (None, plan) for run in runs):
            raise BadInput(_unfit(last.batch_id, row, "its workflow is another now"))
    # A batch that was killed before its first run began has no date.
    begun = "" if last.created_at_utc is None else f" of {last.created_at_utc:%Y-%m-%d %H:%M} UTC"
    done = f"{last.statuses.get('completed', 0)} of {last.size} tasks completed"
    given.say(f"note: continues batch {last.batch_id}{begun}, {done}; leave --resume out for a new batch")
    return earlier


def _of_new(last: BatchSummary | None, name: str, *, resume: bool) -> str:
    """Returns what a person should know when a new batch begins; empty: nothing."""
    if last is None:
        return f"no batch of {name} to resume: a new one begins" if resume else ""
    left = last.size - last.statuses.get("completed", 0)
    if not left:
        return ""
    has = f"batch {last.batch_id} of {name} has {left} of {last.size} tasks left"
    return f"{has}: --resume continues it; this is a new one"


def _must_fit(run: RunSummary, task: BatchTask | None, batch_id: str, conductor: str | None, pool: str) -> None:
    row = run.batch_row or ""
    if run.status in ("queued", "running"):
        raise BadInput(f"batch {batch_id} is still going on: wait for its end, or stop it")
    if task is None:
        raise BadInput(_unfit(batch_id, row, "it is no longer in the file"))
    if task.task != run.task:
        raise BadInput(_unfit(batch_id, row, "its task is another now"))
    if run.pool != pool:
        raise BadInput(f"batch {batch_id} ran with the pool {run.pool}: give that, or leave --pool out")
    if run.conductor not in (None, conductor):
        raise BadInput(f"batch {batch_id} ran with the Conductor {run.conductor}: give that, or leave --conductor out")


def _unfit(batch_id: str, row: str, what: str) -> str:
    return f"batch {batch_id} cannot be resumed: row {one_line(row, 60)!r}: {what}. Leave --resume out for a new batch"


class BatchProgress(Line):
    """Counts tasks as they begin and end. Safe to use from any thread.

    Args:
        total: tasks of the batch; ``completed`` of them had completed before, at this ``cost``, ``estimated`` or not.
        quiet: show nothing. answers: also print a line on stdout for each task that ends.
    """

    def __init__(self, total: int, completed: int, cost: Cost, *, estimated: bool, quiet: bool, answers: bool) -> None:
        super().__init__(
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TextColumn("{task.fields[said]}", markup=False),
            quiet=quiet,
            # What goes to a file must go to that file, and not above the bar.
            redirect=sys.stdout.isatty(),
        )
        self._total, self._before, self._cost, self._estimated = total, completed, cost, estimated
        self._answers = answers
        self._lock = Lock()
        self._running = 0
        self._ended: Counter[str] = Counter()

    def begun(self) -> None:
        with self._lock:
            self._running += 1
            self._show()

    def ended(self, id_: str, trace: RunTrace) -> None:
        """Counts a task that has ended. ``begun`` was called for it before."""
        with self._lock:
            self._running -= 1
            self._ended[trace.status] += 1
            self._cost += cost_so_far(trace)
            self._estimated |= is_estimated(trace)
            if self._answers:
                print(task_line(id_, trace), flush=True)
            self._show()

    @property
    def line(self) -> str:
        """``12 done · 32 running · 1 failed · 4.1/s · $0.0021 · 38 s left``; without the time once nothing is left."""
        done = self._before + self._ended["completed"]
        failed = self._ended.total() - self._ended["completed"]
        rate = f"{self.per_s:.1f}/s" if self.per_s >= 1 or self.per_s == 0 else f"{60 * self.per_s:.1f}/min"
        cost = in_list(self._cost, estimated=self._estimated)
        parts = [f"{done} done", f"{self._running} running", f"{failed} failed", rate, cost]
        if self._total - self._before - self._ended.total():
            parts.append("unknown time left" if self.left_s is None else f"{seconds(1000 * self.left_s)} left")
        return " · ".join(parts)

    def _show(self) -> None:
        done = self._before + self._ended.total()
        self.show(done, self._total, lambda: f"{done} of {self._total} · {self.line}", said=lambda: self.line)


def task_line(id_: str, trace: RunTrace) -> str:
    """Says on one line how a task ended, with its answer or the reason why there is none."""
    said = concluded(trace) if trace.status == "completed" else None
    what = trace.error if said is None else said.text
    simulated = " · simulated" if trace.simulated else ""
    spent = f"{seconds(trace.duration_ms)} · {in_list(cost_so_far(trace), estimated=is_estimated(trace))}{simulated}"
    return f"{one_line(id_, 60)} · {run_word(trace.status)} · {spent} · {one_line(what or '', 160)}"


class _Batch(ManyRuns[BatchTask]):
    def __init__(
        self,
        given: Options,
        batch: _OfFile,
        tasks: Sequence[BatchTask],
        earlier: _Earlier,
        store: Store,
        host: EngineHost,
    ) -> None:
        self._given, self._batch, self._tasks, self._earlier, self._store = given, batch, tasks, earlier, store
        self._done = {task.id: run for task in tasks if (run := earlier.done(task.id)) is not None}
        self._before = sum(map(cost_so_far, earlier.traces), Cost())
        self._progress = BatchProgress(
            len(tasks),
            len(self._done),
            self._before,
            estimated=any(map(is_estimated, earlier.traces)),
            quiet=given.quiet,
            answers=not given.as_json,
        )
        self._ended: dict[str, RunTrace] = {}
        super().__init__(
            host,
            local_caller("cli"),
            [task for task in tasks if task.id not in self._done],
            batch.concurrency,
            max_usd=batch.each.limits.max_usd,
            earlier=earlier.traces,
            plan_max_tokens=given.settings.plan_max_tokens,
        )

    def carry_out(self) -> int:
        """Returns the exit code. Raises: BadInput, StoreError; what ended until then is printed and kept."""
        if self._given.as_json:
            for id_, trace in self._done.items():
                self._print(id_, trace, from_store=True)
        with self._progress:
            stopped_by = asyncio.run(until_stopped(self))
        self._given.say(*self._summary())
        done = len(self._done) + sum(trace.status == "completed" for trace in self._ended.values())
        return stopped_by or (0 if done == len(self._tasks) else 1)

    def request(self, work: BatchTask) -> RunRequest:
        batch, limits = self._batch, self._batch.each.limits
        place = BatchRow(
            id=self._earlier.batch_id,
            row=work.id,
            name=batch.name,
            size=len(self._tasks),
            max_usd=limits.max_usd,
            concurrency=batch.concurrency,
        )
        self._progress.begun()
        # What is left of the batch's budget bounds the run.
        each = batch.each.model_copy(update={"limits": limits.model_copy(update={"max_usd": None})})
        return request_of(work, place, each, self._earlier.runs.get(work.id, []))

    def wait(self, run_id: str) -> RunTrace:
        try:
            return super().wait(run_id)
        except StoreError as error:
            trace, _ = self._store.trace(run_id)
            if not trace.ended:
                raise RunStopped(error) from error
            return trace

    def on_end(self, work: BatchTask, trace: RunTrace) -> None:
        self._ended[work.id] = trace
        if self._given.as_json:
            self._print(work.id, trace, from_store=False)
        self._progress.ended(work.id, trace)

    def _print(self, id_: str, trace: RunTrace, *, from_store: bool) -> None:
        # Earlier runs of this task that broke off or failed are part of its cost.
        before = [run for run in self._earlier.runs.get(id_, ()) if run.run_id != trace.run_id]
        cost = documents.cost_document(sum(map(cost_so_far, before), Cost()))
        earlier = {"run_ids": [run.run_id for run in before], **cost}
        document = {"id": id_, "from_store": from_store, "earlier": earlier, **documents.run_document(trace)}
        print_json(document, indent=None)

    def _summary(self) -> list[str]:
        statuses = [trace.status for trace in self._ended.values()]
        completed = statuses.count("completed")
        parts = [f"{len(self._done) + completed} completed"]
        parts[0] += f" ({len(self._done)} of them before)" if self._done else ""
        parts += [f"{statuses.count(each)} {run_word(each)}" for each in dict.fromkeys(statuses) if each != "completed"]
        not_begun = len(self._tasks) - len(self._done) - len(self._ended)
        parts += [f"{not_begun} not begun"] if not_begun else []
        now = sum(map(cost_so_far, self._ended.values()), Cost())
        before, ended = (any(map(is_estimated, each)) for each in (self._earlier.traces, self._ended.values()))
        cost = in_list(now, estimated=ended)
        if self._earlier.runs:
            both = in_list(self._before + now, estimated=before or ended)
            cost = f"{both} in all: {in_list(self._before, estimated=before)} before, "
            cost += f"{in_list(now, estimated=ended)} now"
        simulated = " · simulated" if any(trace.simulated for trace in self._ended.values()) else ""
        name = one_line(self._batch.name, 80)
        head = f"batch {self._earlier.batch_id} · {name} · {len(self._tasks)} tasks: {', '.join(parts)}"
        lines = [f"{head} · {seconds(self._progress.elapsed_ms)} · {cost}{simulated}"]
        failed = [(id_, trace) for id_, trace in self._ended.items() if trace.error is not None]
        lines += [f"  {one_line(id_, 60)}: {one_line(trace.error or '', 300)}" for id_, trace in failed[:_MOST_REASONS]]
        if len(failed) > _MOST_REASONS:
            lines.append(f"  and {len(failed) - _MOST_REASONS} more; `runs --status failed` lists them")
        if len(self._done) + completed < len(self._tasks):
            lines.append(f"  {self.refusal or '--resume continues with what is left'}")
        return lines
