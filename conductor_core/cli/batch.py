"""``run --tasks`` runs each row of a file of tasks, many at once. A batch has one budget and can be resumed."""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

from conductor_core.analysis import documents
from conductor_core.analysis.conclusion import concluded
from conductor_core.cli.inputs import check, given_text, opened_store, read_file
from conductor_core.cli.live import RunStopped, opened_engine, stopping
from conductor_core.cli.output import one_line, print_json
from conductor_core.cli.progress import Line
from conductor_core.engine.batch import BatchSpent, BatchTask, Room, request_of, spent_at_most
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
from conductor_core.run.values import BatchRow, Limits, PoolInfo
from conductor_core.settings import Settings
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


@dataclass(frozen=True)
class BatchOptions:
    """Holds what the arguments say.

    ``each`` is what all runs have in common; its ``max_usd`` is the budget of all runs together. With ``as_json``,
    stdout gets a document for each task. With ``quiet``, stderr stays empty.
    """

    file: Path
    each: RunRequest
    db: str | None
    concurrency: int
    as_json: bool
    quiet: bool
    resume: bool

    @property
    def max_usd(self) -> float | None:
        return self.each.limits.max_usd

    @property
    def of_one(self) -> RunRequest:
        """Returns what each run is asked. What is left of the batch's budget bounds the run."""
        return self.each.model_copy(update={"limits": self.each.limits.model_copy(update={"max_usd": None})})


def batch_file(tasks: Path | None, *, alone: bool) -> Path:
    """Returns ``tasks``. Raises: BadInput if there is none, or if other work was given beside it."""
    if tasks is None:
        raise BadInput("--resume needs --tasks: `rerun RUN_ID` resumes a single run")
    if not alone:
        raise BadInput("give --tasks, or a TASK or --workflow, not both: a row may bring its own workflow")
    return tasks


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


def run_batch(given: BatchOptions, settings: Settings) -> int:
    """Returns the exit code: 0 all completed, 1 not all, 130 or 143 after a signal. Raises: BadInput, StoreError."""
    pool = pool_info(given.each.pool or settings.pool, settings, given.each.excluded)
    file = read_task_file(given.file, [spec.name for spec in pool.workers], given.each.limits)
    if given.max_usd is not None:
        _check_budget(given, settings, file.tasks, pool)
    if file.unread and not given.quiet:
        print(f"note: not read: {', '.join(file.unread[:10])}", file=sys.stderr)
    with opened_store(given.db, settings) as store, ExitStack() as held:
        earlier = _resumed_from(store, given, file.tasks, pool.name, held)
        with opened_engine(store, settings) as host:
            return _Batch(given, settings, file.tasks, earlier, store, host).run()


def _check_budget(given: BatchOptions, settings: Settings, tasks: Sequence[BatchTask], pool: PoolInfo) -> None:
    """Raises: BadInput if the budget could not be kept."""
    cap = CostCap(BatchSpent(), max_usd=given.max_usd)
    cap.check_workers(pool.workers)
    if not any(asks_conductor(task.workflow) for task in tasks):
        return
    # Imported when used: most batches have no budget, and a Conductor takes long to import.
    from conductor_core.conductors.catalogue import open_conductor

    cap.check_conductor(open_conductor(given.each.conductor or settings.conductor, settings).info)


def _resumed_from(
    store: Store, given: BatchOptions, tasks: Sequence[BatchTask], pool: str, held: ExitStack
) -> _Earlier:
    """Returns the batch of this file that is continued, or a new one; ``held`` keeps other processes from running it.

    Raises: BadInput if another process runs it, or if the file does not fit the batch.
    """
    name = given.file.name
    shown = one_line(name, 80)
    if given.resume:
        # The file is locked even before a batch exists: else two processes could both begin the first one.
        held.enter_context(store.carrying_out(f"file {name}", f"the batch of {shown}"))
    last = next(iter(store.batches(limit=1, name=name)), None)
    if last is None or not given.resume:
        if not given.quiet and (said := _of_new(last, shown, resume=given.resume)):
            print(f"note: {said}", file=sys.stderr)
        earlier = _Earlier(new_run_id())
        held.enter_context(store.carrying_out(earlier.batch_id, f"batch {earlier.batch_id}"))
        return earlier
    held.enter_context(store.carrying_out(last.batch_id, f"batch {last.batch_id} of {shown}"))
    store.mark_interrupted()  # whoever had it may have been killed only now
    rows = {task.id: task for task in tasks}
    earlier = _Earlier(last.batch_id)
    for run in reversed(store.runs(limit=_MOST_RUNS_READ, batch=last.batch_id)):
        _must_fit(run, rows.get(run.batch_row or ""), last.batch_id, given, pool)
        trace, _ = store.trace(run.run_id)
        earlier.runs.setdefault(run.batch_row or "", []).append(trace)
    for row, runs in earlier.runs.items():
        plan = rows[row].workflow
        if plan is not None and any(run.root.workflow not in (None, plan) for run in runs):
            raise BadInput(_unfit(last.batch_id, row, "its workflow is another now"))
    if not given.quiet:
        print(f"note: {_of_resumed(last)}", file=sys.stderr)
    return earlier


def _of_resumed(last: BatchSummary) -> str:
    """Names the batch that is continued. A batch that was killed before its first run began has no date."""
    begun = "" if last.created_at_utc is None else f" of {last.created_at_utc:%Y-%m-%d %H:%M} UTC"
    done = f"{last.statuses.get('completed', 0)} of {last.size} tasks completed"
    return f"continues batch {last.batch_id}{begun}, {done}; leave --resume out for a new batch"


def _of_new(last: BatchSummary | None, name: str, *, resume: bool) -> str:
    """Returns what a person should know when a new batch begins; empty: nothing."""
    if last is None:
        return f"no batch of {name} to resume: a new one begins" if resume else ""
    left = last.size - last.statuses.get("completed", 0)
    if not left:
        return ""
    has = f"batch {last.batch_id} of {name} has {left} of {last.size} tasks left"
    return f"{has}: --resume continues it; this is a new one"


def _must_fit(run: RunSummary, task: BatchTask | None, batch_id: str, given: BatchOptions, pool: str) -> None:
    row = run.batch_row or ""
    if run.status in ("queued", "running"):
        raise BadInput(f"batch {batch_id} is still going on: wait for its end, or stop it")
    if task is None:
        raise BadInput(_unfit(batch_id, row, "it is no longer in the file"))
    if task.task != run.task:
        raise BadInput(_unfit(batch_id, row, "its task is another now"))
    if run.pool != pool:
        raise BadInput(f"batch {batch_id} ran with the pool {run.pool}: give that, or leave --pool out")
    if run.conductor not in (None, given.each.conductor):
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


class _Batch:
    def __init__(
        self,
        given: BatchOptions,
        settings: Settings,
        tasks: Sequence[BatchTask],
        earlier: _Earlier,
        store: Store,
        host: EngineHost,
    ) -> None:
        self._given, self._tasks, self._earlier, self._store, self._host = given, tasks, earlier, store, host
        self._done = {task.id: run for task in tasks if (run := earlier.done(task.id)) is not None}
        self._plan_tokens = settings.plan_max_tokens
        spent = spent_at_most(earlier.traces, self._plan_tokens)
        self._cap = None if given.max_usd is None else CostCap(spent, max_usd=given.max_usd)
        costs = [run.cost_usd or 0.0 for run in self._done.values()]
        self._room = None if given.max_usd is None else Room(given.max_usd, spent.usd, costs)
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
        self._running: dict[str, str] = {}
        self._stopped_by: list[int] = []
        self._broken: Exception | None = None
        self._lock = Lock()

    def run(self) -> int:
        """Returns the exit code. Raises: BadInput, StoreError; what ended until then is printed and kept."""
        if self._given.as_json:
            for id_, trace in self._done.items():
                self._print(id_, trace, from_store=True)
        with self._progress:
            asyncio.run(self._all())
        if self._broken is not None:
            raise self._broken
        if not self._given.quiet:
            print("\n".join(self._summary()), file=sys.stderr)
        if self._stopped_by:
            return self._stopped_by[0]
        done = len(self._done) + sum(trace.status == "completed" for trace in self._ended.values())
        return 0 if done == len(self._tasks) else 1

    async def _all(self) -> None:
        loop = asyncio.get_running_loop()
        left = iter([task for task in self._tasks if task.id not in self._done])
        # Each run has a thread, which only waits and uses no processor.
        with ThreadPoolExecutor(self._given.concurrency, "batch") as threads, stopping(self._stop) as self._stopped_by:
            works = [loop.run_in_executor(threads, self._work, left) for _ in range(self._given.concurrency)]
            await asyncio.gather(*works)

    def _stop(self) -> None:
        """Cancels what runs. ``_over`` must be true before, so that no further task begins."""
        with self._lock:
            running = list(self._running)
        self._close_room()
        for run_id in running:
            self._host.cancel(run_id, local_caller("cli"))

    def _close_room(self) -> None:
        if self._room is not None:
            self._room.close()

    def _work(self, left: Iterator[BatchTask]) -> None:
        """Takes one task after another until none is left or the batch stops."""
        while self._room is None or self._room.begin():
            with self._lock:
                task = None if self._over else next(left, None)
            if task is None:
                self._close_room()
                return
            try:
                trace = self._one(task)
                if self._room is not None:
                    self._room.end(spent_at_most([trace], self._plan_tokens).usd, completed=trace.status == "completed")
            except Exception as error:  # noqa: BLE001  kept and raised in the end, whatever it is: the others must stop
                with self._lock:
                    self._broken = self._broken or error
                self._stop()
                return

    @property
    def _over(self) -> bool:
        """Whether no further task begins."""
        spent = self._cap is not None and self._cap.reached is not None
        return spent or bool(self._stopped_by) or self._broken is not None

    def _one(self, task: BatchTask) -> RunTrace:
        given = self._given
        place = BatchRow(
            id=self._earlier.batch_id,
            row=task.id,
            name=given.file.name,
            size=len(self._tasks),
            max_usd=given.max_usd,
            concurrency=given.concurrency,
        )
        earlier = self._earlier.runs.get(task.id, [])
        request = request_of(task, place, given.of_one, earlier)
        self._progress.begun()
        run_id = self._host.start(request, self._cap)
        with self._lock:
            self._running[run_id] = task.id
            over = bool(self._stopped_by) or self._broken is not None
        if over:
            self._host.cancel(run_id, local_caller("cli"))
        try:
            trace = self._host.wait(run_id)
        except StoreError as error:
            trace, _ = self._store.trace(run_id)
            if not trace.ended:
                raise RunStopped(error) from error
        finally:
            with self._lock:
                del self._running[run_id]
        with self._lock:
            self._ended[task.id] = trace
            if given.as_json:
                self._print(task.id, trace, from_store=False)
        self._progress.ended(task.id, trace)
        return trace

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
        name = one_line(self._given.file.name, 80)
        head = f"batch {self._earlier.batch_id} · {name} · {len(self._tasks)} tasks: {', '.join(parts)}"
        lines = [f"{head} · {seconds(self._progress.elapsed_ms)} · {cost}{simulated}"]
        failed = [(id_, trace) for id_, trace in self._ended.items() if trace.error is not None]
        lines += [f"  {one_line(id_, 60)}: {one_line(trace.error or '', 300)}" for id_, trace in failed[:_MOST_REASONS]]
        if len(failed) > _MOST_REASONS:
            lines.append(f"  and {len(failed) - _MOST_REASONS} more; `runs --status failed` lists them")
        if len(self._done) + completed < len(self._tasks):
            reached = None if self._cap is None else self._cap.reached
            why = reached or (None if self._room is None else self._room.refused)
            lines.append(f"  {why}" if why is not None else "  --resume continues with what is left")
        return lines
