"""Carries out runs on an event loop of its own, for callers that have none (pages, command line).

Pools and Conductors are opened once for all runs of a host (``Opened``).
"""

import asyncio
import atexit
import functools
import gc
import logging
import threading
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from conductor_core.chat.messages import Conductor, ConductorInfo, PlanRequest
from conductor_core.engine.approvals import Stop, cancel, refusals
from conductor_core.engine.budgets import CostCap
from conductor_core.engine.pools import BUILT_IN_POOLS, Pool, open_pool, pool_file, reopen_pool, require_typed_keys
from conductor_core.engine.recorder import closing
from conductor_core.engine.request import RunRecords, asks_conductor
from conductor_core.engine.runner import CheckedRequest, Engine, Execution, check
from conductor_core.errors import BadInput, EventOutOfOrder, InspectorError, RunHasEnded, StoreError, UnknownRun
from conductor_core.files import expand_path, is_file
from conductor_core.privacy.masking import TypedKeys
from conductor_core.run.actor import THE_PROGRAM, Caller
from conductor_core.run.commands import Cancel, Edit, SentCommand, ToolResults
from conductor_core.run.events import EventSink
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import PoolInfo
from conductor_core.settings import Settings

log = logging.getLogger(__name__)


class Opened:
    """Opens pools and Conductors when they are first asked for, and closes them together."""

    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        self._settings = settings
        self._loop = loop
        self._opening = threading.Lock()
        self._pools: dict[tuple[object, ...], Pool] = {}
        self._conductors: dict[tuple[object, ...], asyncio.Task[Conductor]] = {}
        self._warming: dict[str, asyncio.Task[None]] = {}

    def pool(self, ref: str | PoolInfo, seed: int, keys: TypedKeys | None = None) -> Pool:
        """Returns an open pool. Opens a changed pool file again; runs on the old pool continue.

        A pool whose keys were typed is opened for each browser session by itself.
        """
        if isinstance(ref, PoolInfo):
            key: tuple[object, ...] = (ref.model_dump_json(), seed)
        else:
            file = None if ref in BUILT_IN_POOLS else pool_file(ref, self._settings)
            key = (ref, file, file.stat().st_mtime_ns if file is not None and is_file(file) else None, seed)
        with self._opening:
            if key not in self._pools:
                if isinstance(ref, PoolInfo):
                    self._pools[key] = reopen_pool(ref, self._settings, seed=seed)
                else:
                    self._pools[key] = open_pool(ref, self._settings, seed=seed)
            pool = self._pools[key]
            if keys is None or not pool.asks_typed_keys:
                return pool
            if (*key, keys) not in self._pools:
                self._pools[*key, keys] = pool.with_keys(keys, self._settings)
            return self._pools[*key, keys]

    def conductor(self, ref: str, keys: TypedKeys | None = None) -> Conductor:
        """Returns an open Conductor. Call it from any thread but the loop's. Raises: UnknownConductor."""
        return asyncio.run_coroutine_threadsafe(self._conductor(ref, keys), self._loop).result()

    async def _conductor(self, ref: str, keys: TypedKeys | None = None) -> Conductor:
        """Returns an open Conductor, opened off the loop: that may import a lot. Raises: UnknownConductor."""
        if not keys or "://" not in ref:
            keys = None
        key = (ref, keys, *await asyncio.to_thread(self._conductors_files, ref))
        if key not in self._conductors:
            self._conductors[key] = asyncio.create_task(asyncio.to_thread(self._open_conductor, ref, keys))
        try:
            return await asyncio.shield(self._conductors[key])
        except InspectorError:
            self._conductors.pop(key, None)
            raise

    def _conductors_files(self, ref: str) -> list[tuple[Path, int]]:
        if ref == "tiny" or "://" in ref:
            return []
        files = [*self._settings.conductors_folder.glob("*.toml"), expand_path(ref.partition("#")[0])]
        with suppress(OSError, ValueError):  # gone meanwhile, or no path at all
            return [(file, file.stat().st_mtime_ns) for file in files if is_file(file)]
        return []

    def _open_conductor(self, ref: str, keys: TypedKeys | None) -> Conductor:
        # Imported when used: a run of a given workflow needs no Conductor.
        from conductor_core.conductors.catalogue import open_conductor

        return open_conductor(ref, self._settings, keys)

    async def _warm_up(self, conductor_ref: str, pool_ref: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        try:
            conductor = await self._conductor(conductor_ref)
            if conductor.info.kind != "local":
                return
            agents = self.pool(pool_ref, self._settings.seed).specs
            # As a first run with default settings would ask, so that its grammar is compiled too.
            request = PlanRequest(
                task="Warm up.",
                agents=agents,
                max_steps=self._settings.max_steps,
                allow_recursion=self._settings.max_depth > 0,
            )
            async with closing(conductor.write(request)) as stream:
                await anext(stream)
        except InspectorError as error:
            log.warning("Conductor %s is not warm: %s", conductor_ref, error)

    def warm_up(self, conductor_ref: str, pool_ref: str, after_s: float) -> None:
        def begin() -> None:
            if conductor_ref not in self._warming:
                self._warming[conductor_ref] = self._loop.create_task(self._warm_up(conductor_ref, pool_ref, after_s))

        self._loop.call_soon_threadsafe(begin)

    async def aclose(self) -> None:
        """Call it on the loop."""
        for warming in self._warming.values():
            warming.cancel()
        await asyncio.gather(*self._warming.values(), return_exceptions=True)
        for pool in self._pools.values():
            await pool.aclose()
        for opened in await asyncio.gather(*self._conductors.values(), return_exceptions=True):
            if not isinstance(opened, BaseException):
                await opened.aclose()


_RESUME_ATTEMPTS = 20
_LEAVE_S = 1.0
"""How long a run is left to the process that sent it something."""
REMEMBERED_RUNS = 64
"""Results that stay in memory for ``wait`` and ``error`` once they have been given; older ones are in the store."""


@functools.cache
def _collect_less() -> None:
    """Tells Python's garbage collector, once a process, to skip what is loaded and to look less often.

    A full collection stops every thread: with a hundred runs at once for 0.1 s at a time (benchmark 1), mostly to look
    at modules that live as long as the process. The process's end sets collection back, or loaded bindings would be
    reported as leaked.
    """
    gc.freeze()
    atexit.register(gc.unfreeze)
    gc.set_threshold(10_000, 20, 50)


class EngineHost:
    """Owns one daemon thread with one event loop, on which all runs, pools and Conductors of the process live.

    Call its methods from any other thread. Any number of runs go on at once. They share pools and Conductors, which are
    opened once.
    """

    def __init__(
        self,
        sink: EventSink,
        settings: Settings,
        records: RunRecords,
        *,
        awaited: bool = True,
        carries_on_all: bool = False,
    ) -> None:
        """Args:
        records: reads runs that wait, and the runs that others build on.
        awaited: keeps the result of each run until ``wait`` has returned it. False where nobody waits, as in the
            app: then only the last results are kept.
        carries_on_all: goes on with any run that waits as soon as somebody decides, not only with those begun here.
        """
        _collect_less()
        self._carries_on_all = carries_on_all
        self._awaited = awaited
        self._settings = settings
        self._sink = sink
        self._engine = Engine(sink, settings, records.read, records.content)
        self._records = records
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        # None: the loop has not come to it yet.
        self._running: dict[str, asyncio.Task[None] | None] = {}
        self._results: dict[str, Future[RunTrace]] = {}
        self._given: dict[str, None] = {}
        self._opened = Opened(settings, self._loop)
        self._executions: dict[str, Execution] = {}
        self._own: set[str] = set()
        self._keys: dict[str, TypedKeys] = {}
        self._taking_up: dict[str, CostCap | None] = {}
        self._kept: set[asyncio.Task[None]] = set()
        self._starting = 0
        self._none_starts = threading.Condition(self._lock)
        self._closed = False
        self._thread = threading.Thread(target=self._run_loop, name="engine", daemon=True)
        self._thread.start()
        self._watch = records.watch(self._pass_on)

    @property
    def sink(self) -> EventSink:
        """Where the events of all its runs go."""
        return self._sink

    def start(self, request: RunRequest, cap: CostCap | None = None, keys: TypedKeys | None = None) -> str:
        """Begins a run and returns its id as soon as ``run.created`` is durable.

        All this happens in the caller's thread. It does not wait for the loop, which may be busy with hundreds of runs.

        Args:
            cap: what this run and others with the same cap may spend together.
            keys: those typed in the browser session that asks. The run has them here alone: its record names none.

        Raises: BadInput (a bad workflow, pool file or Conductor), UnknownRun or RunUnreadable (its parent) and
            StoreError; then there is no run.
        """
        with self._being_started():
            checked = self._checked(request, cap, keys)
            if keys is not None and checked.pool.asks_typed_keys:
                self._keys[request.run_id] = keys
            self._write(checked)
        return request.run_id

    def conductor_info(self, ref: str) -> ConductorInfo:
        """Returns what a Conductor is. Opens it. Raises: UnknownConductor."""
        return self._opened.conductor(ref).info

    def resume(self, run_id: str) -> None:
        """Goes on with a run that waits from its record alone, and answers what was sent to it.

        Raises: as ``start``; EventOutOfOrder if another process was quicker.
        """
        with self._being_started():
            asyncio.run_coroutine_threadsafe(self._resume(run_id), self._loop).result()

    @contextmanager
    def taking_up(self, run_id: str, cap: CostCap | None) -> Iterator[None]:
        """While this holds, this process takes up a run that waits as soon as results of tools are sent to it.

        Others leave it to this one for a moment: here it spends within ``cap``, which they do not know.
        """
        self._taking_up[run_id] = cap
        try:
            yield
        finally:
            self._taking_up.pop(run_id, None)

    async def _resume(self, run_id: str) -> None:
        checked, commands = await asyncio.to_thread(self._at_rest, run_id)
        execution = self._engine.begin(checked)
        await execution.resume(commands)
        with self._lock:
            self._results[run_id] = Future()
            self._own.add(run_id)
        self._carry_out(execution)
        for sent in await asyncio.to_thread(self._records.commands, run_id, execution.trace.last_command):
            self._pass_on(sent)

    def _at_rest(self, run_id: str) -> tuple[CheckedRequest, list[SentCommand]]:
        """Reads a run that waits, as it can be resumed, and the commands that it has not answered."""
        trace, created = self._records.read(run_id), self._records.created(run_id)
        keys = self._keys.get(run_id)
        if trace.status != "waiting":
            raise EventOutOfOrder(f"run {run_id} is {trace.status}: only a run that waits can be resumed")
        self._require_proven(run_id)
        # The pool is recorded without the workers that are left out, and with its own settings.
        as_recorded = {
            "pool": created.pool,
            "excluded": (),
            "on_incomplete": created.on_incomplete,
            "give_question": created.give_question,
        }
        request = created.request.model_copy(update=as_recorded)
        epoch_s = time.monotonic() - trace.last_at_ms / 1000
        commands = self._records.commands(run_id, trace.last_command)
        require_typed_keys(created.pool.workers, keys)
        plans = [trace.root.workflow, *(sent.command.workflow for sent in commands if isinstance(sent.command, Edit))]
        conductor = None
        if request.conductor is not None and any(map(asks_conductor, plans)):
            conductor = self._opened.conductor(request.conductor, keys)
        pool = self._opened.pool(created.pool, request.seed, keys)
        earlier = self._engine.earlier(request)
        cap = self._taking_up.get(run_id)
        return CheckedRequest(request, conductor, pool, None, created, epoch_s, earlier, cap, trace), commands

    def _require_proven(self, *run_ids: str) -> None:
        """Raises: BadInput for a run with a decision that no machine has sent: the database's writer can add one."""
        for run_id in run_ids:
            if unproven := self._records.unproven(run_id):
                raise BadInput(f"run {run_id} is not carried on: {unproven[0]}")

    async def _carry_on(self, run_id: str) -> None:
        """Resumes a run that waits, if something was sent to it. Ends without a word if another process does."""
        for attempt in range(_RESUME_ATTEMPTS):
            await asyncio.sleep(0.02 * attempt)
            try:
                trace = await asyncio.to_thread(self._records.read, run_id)
                sent = await asyncio.to_thread(self._records.commands, run_id, trace.last_command)
                if trace.status != "waiting" or not sent:
                    return
                if attempt == 0 and all(isinstance(each.command, Cancel) for each in sent):
                    # Whoever cancels a run that waits ends it, too, unless they are killed in between.
                    await asyncio.sleep(_LEAVE_S)
                    continue
                if attempt == 0 and run_id not in self._taking_up and isinstance(sent[-1].command, ToolResults):
                    await asyncio.sleep(_LEAVE_S)  # whoever sent them takes it up, too
                    continue
            except InspectorError as error:
                log.warning("run %s cannot be read: %s", run_id, error)
                return
            try:
                await self._resume(run_id)
            except EventOutOfOrder:
                continue  # another process was quicker; it may have left a command unanswered, and the run at rest
            except StoreError as error:
                log.warning("run %s cannot continue: %s", run_id, error)
            except InspectorError as error:
                await self._leave_waiting(trace, error)
            return
        log.warning("run %s cannot be resumed, although it waits and has a decision", run_id)

    async def _leave_waiting(self, trace: RunTrace, error: InspectorError) -> None:
        """Answers what was sent to a run that cannot be carried out here by the reason."""
        log.warning("run %s cannot continue: %s", trace.run_id, error)
        sent = await asyncio.to_thread(self._records.commands, trace.run_id, trace.last_command)
        with suppress(StoreError):
            await self._sink.append(*refusals(trace, sent, f"the run cannot continue here: {error}"))

    def carry_on_all(self) -> None:
        """Goes on with all runs to which something was sent while no process heard it. Returns at once."""
        for run_id in self._records.sent_to_waiting():
            self._loop.call_soon_threadsafe(self._keep, self._carry_on(run_id))

    def _checked(
        self, request: RunRequest, cap: CostCap | None = None, keys: TypedKeys | None = None
    ) -> CheckedRequest:
        pool = self._opened.pool(self._settings.pool if request.pool is None else request.pool, request.seed, keys)
        require_typed_keys((spec for spec in pool.specs if spec.name not in request.excluded), keys)
        conductor = None if request.conductor is None else self._opened.conductor(request.conductor, keys)
        self._engine.require_contents(request)
        earlier = self._engine.earlier(request)
        if request.resumed:
            self._require_proven(*(run.run_id for run in earlier if run.imported is None))
        return check(request, conductor, pool, earlier, cap)

    def _write(self, checked: CheckedRequest) -> None:
        """Writes the event that makes the run this process's own, and starts the run. Raises: StoreError."""
        try:
            self._sink.append_and_wait(checked.created)
        except Exception:
            raise  # Nothing is written.
        except BaseException:
            # The caller was interrupted, the writing was not: the run needs its end.
            self._hand_over(checked)
            raise
        self._hand_over(checked)

    def cancel(self, run_id: str, caller: Caller) -> bool:
        """Ends a run, whichever process carries it out: closes its connections and writes ``run.cancelled``.

        Returns False if the run has ended or is unknown.
        """
        try:
            cancel(self._records, self._sink, run_id, caller)
            return True
        except (UnknownRun, RunHasEnded):
            return False
        except StoreError as error:
            log.warning("run %s: the command to end it could not be kept: %s", run_id, error)
        return self._stop(run_id, Stop(caller))

    def _pass_on(self, sent: SentCommand) -> None:
        """Passes a command on to its run, if that is carried out here; or goes on with it, if it waits."""
        run_id = sent.command.run_id
        if isinstance(sent.command, Cancel):
            self._stop(run_id, Stop(sent.command.caller, sent.id))
        else:
            self._loop.call_soon_threadsafe(self._notify, sent)

    def _notify(self, sent: SentCommand) -> None:
        run_id = sent.command.run_id
        if (execution := self._executions.get(run_id)) is not None:
            execution.apply_command(sent)
        elif self._carries_on_all or run_id in self._own or run_id in self._taking_up:
            self._keep(self._carry_on(run_id))

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        """Begins ``work`` on the loop, and keeps it from being collected."""
        task = self._loop.create_task(work)
        self._kept.add(task)
        task.add_done_callback(self._kept.discard)

    def _stop(self, run_id: str, stop: Stop) -> bool:
        with self._lock:
            if run_id not in self._running:
                return False
        self._loop.call_soon_threadsafe(self._cancel, run_id, stop)
        return True

    def wait(self, run_id: str, timeout_s: float | None = None) -> RunTrace:
        """Blocks until the run has ended, or waits, and returns its trace.

        Raises: UnknownRun for a run that this host did not start, or whose result it returned long ago; TimeoutError;
            StoreError if the log failed and the run stopped for that.
        """
        result = self._result(run_id)
        try:
            return result.result(timeout_s)
        finally:
            if result.done():
                with self._lock:
                    self._forget_in_time(run_id)

    def error(self, run_id: str) -> InspectorError | None:
        """Returns the error that kept a run's end from being written; None: there was none. Raises: UnknownRun."""
        result = self._result(run_id)
        error = result.exception() if result.done() else None
        return error if isinstance(error, InspectorError) else None

    def warm_up(self, conductor_ref: str, pool_ref: str, after_s: float = 0.0) -> None:
        """Loads a local Conductor and begins a plan for ``pool_ref`` in the background, so that no run waits for that.

        Returns at once. Does nothing for a remote Conductor. Only logs a failure: a run will meet it and report it.
        """

        self._opened.warm_up(conductor_ref, pool_ref, after_s)

    def active(self) -> set[str]:
        with self._lock:
            return set(self._running)

    def close(self) -> None:
        """Cancels all runs, waits until their ends are written, closes pools and Conductors, and ends the thread."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            # A start that is under way in another thread first gets its run, so that this run, too, gets its end.
            self._none_starts.wait_for(lambda: self._starting == 0)
        self._watch.close()
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    @contextmanager
    def _being_started(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise RuntimeError("the engine is closed")
            self._starting += 1
        try:
            yield
        finally:
            with self._lock:
                self._starting -= 1
                self._none_starts.notify_all()

    def _result(self, run_id: str) -> Future[RunTrace]:
        with self._lock:
            if run_id not in self._results:
                raise UnknownRun(f"no run {run_id} was started here")
            return self._results[run_id]

    def _forget_in_time(self, run_id: str) -> None:
        """Marks the result of ``run_id`` as returned, and forgets the oldest such. Call it with the lock held."""
        self._given[run_id] = None
        if len(self._given) > REMEMBERED_RUNS:
            oldest = next(iter(self._given))
            del self._given[oldest]
            self._results.pop(oldest, None)

    def _hand_over(self, checked: CheckedRequest) -> None:
        """Starts a run whose first event is written. From now on it can be waited for and cancelled."""
        run_id = checked.request.run_id
        with self._lock:
            self._results[run_id] = Future()
            self._running[run_id] = None
            self._own.add(run_id)
        self._loop.call_soon_threadsafe(lambda: self._carry_out(self._engine.begin(checked)))

    def _carry_out(self, execution: Execution) -> None:
        with self._lock:
            self._executions[execution.run_id] = execution
            self._running[execution.run_id] = self._loop.create_task(self._execute(execution))

    def _cancel(self, run_id: str, stop: Stop) -> None:
        with self._lock:
            task = self._running.get(run_id)
        if task is not None:
            # Not at once: a task that is cancelled before its first turn never gets one, and writes no end.
            self._loop.call_soon(task.cancel, stop)

    async def _execute(self, execution: Execution) -> None:
        run_id = execution.run_id
        outcome: RunTrace | Exception
        try:
            with suppress(asyncio.CancelledError):  # Its end is written: the trace says that it was cancelled.
                await execution.run()
            outcome = execution.trace
        except Exception as error:
            log.exception("run %s stopped", run_id)
            outcome = error
        waits = isinstance(outcome, RunTrace) and outcome.status == "waiting"
        with self._lock:
            del self._running[run_id], self._executions[run_id]
            result = self._results[run_id]
            if not waits:
                self._own.discard(run_id)
                self._keys.pop(run_id, None)
            if not self._awaited:
                self._forget_in_time(run_id)
        if isinstance(outcome, RunTrace):
            result.set_result(outcome)
        else:
            result.set_exception(outcome)
        if waits:
            self._keep(self._carry_on(run_id))  # if something was sent at the last moment

    async def _close(self) -> None:
        with self._lock:
            tasks = [task for task in self._running.values() if task is not None]
        for task in tasks:
            task.cancel(Stop(Caller(actor=THE_PROGRAM)))
        await asyncio.gather(*tasks, return_exceptions=True)
        for kept in self._kept:
            kept.cancel()
        await asyncio.gather(*self._kept, return_exceptions=True)
        await self._opened.aclose()
        await self._loop.shutdown_asyncgens()
