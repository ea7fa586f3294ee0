"""Runs on an event loop of their own, for callers that have none (pages, command line)."""

import asyncio
import atexit
import functools
import gc
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from conductor_core.actor import THE_PROGRAM, Caller
from conductor_core.chat import Conductor, PlanRequest
from conductor_core.commands import SentCommand
from conductor_core.engine.commands import Stop, cancel
from conductor_core.engine.cost_cap import CostCap
from conductor_core.engine.pool import BUILT_IN_POOLS, Pool, open_pool, pool_file, reopen_pool
from conductor_core.engine.recorder import closing
from conductor_core.engine.request import RunRecords
from conductor_core.engine.runner import CheckedRequest, Engine, check
from conductor_core.errors import InspectorError, RunHasEnded, StoreError, UnknownRun
from conductor_core.events import EventSink, PoolInfo, RunRequest, RunTaken
from conductor_core.given_path import given_path, is_file
from conductor_core.settings import Settings
from conductor_core.trace import RunTrace

log = logging.getLogger(__name__)

REMEMBERED_RUNS = 64
"""Results that stay in memory for ``wait`` and ``error`` once they have been given; older ones are in the store."""


@functools.cache
def _collect_less() -> None:
    """Once a process: lets Python's garbage collector leave alone what is loaded, and look less often.

    A full collection stops every thread. With a hundred runs at once it did so for 0.1 s at a time (benchmark 1),
    mostly to look at modules that live as long as the process anyway. At its end they are collected as ever: bindings
    that were loaded before would else be reported as leaked.
    """
    gc.freeze()
    atexit.register(gc.unfreeze)
    gc.set_threshold(10_000, 20, 50)


class EngineHost:
    """Owns one daemon thread with one event loop; every run, pool and Conductor of the process lives on it.

    Its methods may be called from any thread but its own. Any number of runs go on at once. Pools and Conductors are
    opened once and shared.
    """

    def __init__(
        self, sink: EventSink, settings: Settings, records: RunRecords | None = None, *, awaited: bool = True
    ) -> None:
        """
        Args:
            records: reads queued runs, and those that others build on; None: there are none.
            awaited: each run's result is kept until ``wait`` has given it. False where nobody waits, as in the app:
                then only the last results are kept.
        """
        _collect_less()
        self._awaited = awaited
        self._settings = settings
        self._sink = sink
        self._engine = Engine(sink, settings, None if records is None else records.read)
        self._records = records
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        # None: the loop has not come to it yet.
        self._running: dict[str, asyncio.Task[None] | None] = {}
        self._results: dict[str, Future[RunTrace]] = {}
        self._given: dict[str, None] = {}
        self._pools: dict[tuple[object, ...], Pool] = {}
        self._conductors: dict[tuple[object, ...], asyncio.Task[Conductor]] = {}
        self._warming: dict[str, asyncio.Task[None]] = {}
        self._early: dict[str, Stop] = {}
        self._starting = 0
        self._none_starts = threading.Condition(self._lock)
        self._closed = False
        self._thread = threading.Thread(target=self._run_loop, name="engine", daemon=True)
        self._thread.start()
        self._watch = None if records is None else records.watch(self._hear)

    def start(self, request: RunRequest, cap: CostCap | None = None) -> str:
        """Begins a run and returns its id as soon as ``run.created`` is durable.

        All up to there happens in the caller's thread: the loop, which may be busy with hundreds of runs, is not
        waited for.

        Args:
            cap: what this run and others with the same cap may spend together.

        Raises: BadInput (a bad workflow, pool file or Conductor), UnknownRun or RunUnreadable (its parent) and
            StoreError; then there is no run.
        """
        with self._being_started():
            self._write(self._checked(request, cap))
        return request.run_id

    def queue(self, request: RunRequest) -> str:
        """Writes a run that some process will take up, and returns its id. Raises: as ``start``."""
        with self._being_started():
            created = self._checked(request).created.model_copy(update={"queued": True})
            self._sink.append_and_wait(created)
        return request.run_id

    def take_up(self, run_id: str) -> None:
        """Begins to carry out a queued run, by what its record says alone.

        Raises: as ``start``; EventOutOfOrder if another process was quicker.
        """
        if self._records is None:
            raise UnknownRun(f"run {run_id} cannot be read here")
        created = self._records.created(run_id)
        # The pool is recorded without the workers that are left out, and with its own settings.
        as_recorded = {
            "pool": created.pool,
            "excluded": (),
            "on_incomplete": created.on_incomplete,
            "give_question": created.give_question,
        }
        with self._being_started():
            checked = self._checked(created.request.model_copy(update=as_recorded))
            self._write(replace(checked, created=created), RunTaken(run_id=run_id))

    def _checked(self, request: RunRequest, cap: CostCap | None = None) -> CheckedRequest:
        pool = self._pool(self._settings.pool if request.pool is None else request.pool, request.seed)
        conductor = None
        if request.conductor is not None:
            conductor = asyncio.run_coroutine_threadsafe(self._conductor(request.conductor), self._loop).result()
        return check(request, conductor, pool, self._engine.earlier(request), cap)

    def _write(self, checked: CheckedRequest, taken: RunTaken | None = None) -> None:
        """Writes the event by which this process has the run, and has the loop carry it out. Raises: StoreError."""
        checked = replace(checked, taken=taken)
        try:
            self._sink.append_and_wait(checked.created if taken is None else taken)
        except Exception:
            raise  # Nothing is written.
        except BaseException:
            # The caller was interrupted, the writing was not: the run needs its end.
            self._hand_over(checked)
            raise
        self._hand_over(checked)

    def cancel(self, run_id: str, caller: Caller) -> bool:
        """Has a run end, whichever process carries it out: its connections are closed, ``run.cancelled`` is written.

        False if it has ended, or is unknown.
        """
        if self._records is not None:
            try:
                cancel(self._records, self._sink, run_id, caller)
                return True
            except (UnknownRun, RunHasEnded):
                return False
            except StoreError as error:
                log.warning("run %s: the command to end it could not be kept: %s", run_id, error)
        return self._stop(run_id, Stop(caller))

    def _hear(self, sent: SentCommand) -> None:
        """Does what a command asks of a run. Of a run that is not here it is remembered for a while: it may be soon."""
        run_id = sent.command.run_id
        stop = Stop(sent.command.caller, sent.id)
        with self._lock:
            if run_id not in self._running:
                self._early[run_id] = stop
                if len(self._early) > REMEMBERED_RUNS:
                    del self._early[next(iter(self._early))]
                return
        self._stop(run_id, stop)

    def _stop(self, run_id: str, stop: Stop) -> bool:
        with self._lock:
            if run_id not in self._running:
                return False
        self._loop.call_soon_threadsafe(self._cancel, run_id, stop)
        return True

    def wait(self, run_id: str, timeout_s: float | None = None) -> RunTrace:
        """Blocks until the run has ended and gives its trace.

        Raises: UnknownRun for a run that this host did not start, or whose result it gave long ago; TimeoutError;
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
        """What stopped a run without its end being written, if that happened. Raises: UnknownRun."""
        result = self._result(run_id)
        error = result.exception() if result.done() else None
        return error if isinstance(error, InspectorError) else None

    def warm_up(self, conductor_ref: str, pool_ref: str, after_s: float = 0.0) -> None:
        """Has a local Conductor load and begin a plan for ``pool_ref``, in the background, so that no run waits for it.

        Returns at once. Does nothing for a remote Conductor. A failure is only logged: a run will meet it and say it.
        """

        def begin() -> None:
            if conductor_ref not in self._warming:
                self._warming[conductor_ref] = self._loop.create_task(self._warm_up(conductor_ref, pool_ref, after_s))

        self._loop.call_soon_threadsafe(begin)

    def active(self) -> set[str]:
        """Ids of the runs that are going on."""
        with self._lock:
            return set(self._running)

    def close(self) -> None:
        """Cancels all runs, waits until their ends are written, closes pools and Conductors and ends the thread."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            # A start that is under way in another thread first gets its run, so that this run, too, gets its end.
            self._none_starts.wait_for(lambda: self._starting == 0)
        if self._watch is not None:
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
        """The result of ``run_id`` need not be kept for much longer. Call it with the lock held."""
        self._given[run_id] = None
        if len(self._given) > REMEMBERED_RUNS:
            oldest = next(iter(self._given))
            del self._given[oldest]
            self._results.pop(oldest, None)

    def _hand_over(self, checked: CheckedRequest) -> None:
        """Has the loop carry out a run that is written. From now on it can be waited for and cancelled."""
        run_id = checked.request.run_id
        with self._lock:
            self._results[run_id] = Future()
            self._running[run_id] = None
            early = self._early.pop(run_id, None)
        self._loop.call_soon_threadsafe(self._begin, checked)
        if early is not None:
            self._stop(run_id, early)

    def _begin(self, checked: CheckedRequest) -> None:
        with self._lock:
            self._running[checked.request.run_id] = self._loop.create_task(self._execute(checked))

    def _cancel(self, run_id: str, stop: Stop) -> None:
        with self._lock:
            task = self._running.get(run_id)
        if task is not None:
            # Not at once: a task that is cancelled before its first turn never gets one, and writes no end.
            self._loop.call_soon(task.cancel, stop)

    async def _execute(self, checked: CheckedRequest) -> None:
        run_id = checked.request.run_id
        outcome: RunTrace | Exception
        try:
            execution = self._engine.begin(checked)
            with suppress(asyncio.CancelledError):  # Its end is written: the trace says that it was cancelled.
                await execution.run()
            outcome = execution.trace
        except Exception as error:
            log.exception("run %s stopped", run_id)
            outcome = error
        with self._lock:
            del self._running[run_id]
            result = self._results[run_id]
            if not self._awaited:
                self._forget_in_time(run_id)
        if isinstance(outcome, RunTrace):
            result.set_result(outcome)
        else:
            result.set_exception(outcome)

    def _pool(self, ref: str | PoolInfo, seed: int) -> Pool:
        """Opened once; a pool file that has changed since is opened anew, and runs on the old one go on."""
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
            return self._pools[key]

    async def _conductor(self, ref: str) -> Conductor:
        """Opened once, off the loop: opening may import a great deal. Raises: UnknownConductor."""
        key = (ref, *await asyncio.to_thread(self._conductors_files, ref))
        if key not in self._conductors:
            self._conductors[key] = asyncio.create_task(asyncio.to_thread(self._open_conductor, ref))
        try:
            return await asyncio.shield(self._conductors[key])
        except InspectorError:
            self._conductors.pop(key, None)
            raise

    def _conductors_files(self, ref: str) -> list[tuple[Path, int]]:
        """The files that may say what ``ref`` is, each with when it was changed: then it is opened anew."""
        if ref == "tiny" or "://" in ref:
            return []
        files = [*self._settings.conductors_folder.glob("*.toml"), given_path(ref.partition("#")[0])]
        with suppress(OSError, ValueError):  # gone meanwhile, or no path at all
            return [(file, file.stat().st_mtime_ns) for file in files if is_file(file)]
        return []

    def _open_conductor(self, ref: str) -> Conductor:
        # Imported when used: a run of a given workflow needs no Conductor.
        from conductor_core.conductors.catalogue import open_conductor

        return open_conductor(ref, self._settings)

    async def _warm_up(self, conductor_ref: str, pool_ref: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        try:
            conductor = await self._conductor(conductor_ref)
            if conductor.info.kind != "local":
                return
            agents = self._pool(pool_ref, self._settings.seed).specs
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

    async def _close(self) -> None:
        with self._lock:
            tasks = [task for task in self._running.values() if task is not None]
        for task in tasks:
            task.cancel(Stop(Caller(actor=THE_PROGRAM)))
        await asyncio.gather(*tasks, return_exceptions=True)
        for warming in self._warming.values():
            warming.cancel()
        await asyncio.gather(*self._warming.values(), return_exceptions=True)
        for pool in self._pools.values():
            await pool.aclose()
        for opened in await asyncio.gather(*self._conductors.values(), return_exceptions=True):
            if not isinstance(opened, BaseException):
                await opened.aclose()
        await self._loop.shutdown_asyncgens()
