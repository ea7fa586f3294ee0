"""Carries out runs: who would not answer, what is shown until they end, and what a signal does meanwhile."""

import asyncio
import signal
import sys
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any

from conductor_core.cli.live import ProgressView
from conductor_core.cli.output import one_line, print_json
from conductor_core.engine.pools import read_specs
from conductor_core.errors import BadInput, InspectorError, StoreError
from conductor_core.privacy.masking import known_and_set
from conductor_core.run.actor import local_caller
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import PoolInfo
from conductor_core.settings import Settings
from conductor_core.text import plain
from conductor_core.workflow.model import CONDUCTOR_AGENT

if TYPE_CHECKING:
    from conductor_core.engine.host import EngineHost
    from storage import Store


def ready(
    request: RunRequest,
    settings: Settings,
    *,
    only_answering: bool = False,
    quiet: bool,
    agents: Collection[str] | None = None,
) -> RunRequest:
    """Returns ``request``; if ``only_answering``, without the workers that would not answer.

    Asks all at once, for a few seconds at most. Says what fails; the run begins all the same, because a server may
    come up later and a plan may not need a worker. ``agents``: the names of those who will be called; None: the agents
    of the request's workflow, or of one still to be written.

    Raises: BadInput for what certainly cannot work, such as a Conductor whose key is not set.
    """
    planned = agents is not None or request.workflow is not None
    if agents is None:
        agents = () if request.workflow is None else {step.agent for step in request.workflow.steps}
    anybody = not planned or CONDUCTOR_AGENT in agents
    pool = settings.pool if request.pool is None else request.pool
    offered = pool.workers if isinstance(pool, PoolInfo) else read_specs(pool, settings)
    specs = [spec for spec in offered if spec.name not in request.excluded and (anybody or spec.name in agents)]
    if request.plan_only:
        specs = []
    needed = request.conductor if anybody else None
    if needed in (None, "tiny") and all(spec.simulated for spec in specs):
        return request
    # Imported here so that a run that asks nobody over a network loads no clients.
    from conductor_core.engine.preflight import preflight

    found = preflight(needed, specs, request.limits, settings, request.task)
    if found.impossible is not None:
        raise BadInput(found.impossible)
    leaving_out = only_answering and found.some_worker
    if not quiet:
        for part in found.failing:
            print(f"warning: {one_line(part.detail, 400)}", file=sys.stderr)
        if found.failing_workers and found.some_worker and not (only_answering or planned):
            # Only `run` lets a Conductor choose among workers, and it has the option.
            print("note: the plan may ask them all the same; --only-what-answers leaves them out", file=sys.stderr)
        # A batch whose budget cannot see a part is refused elsewhere, because nobody watches its many runs.
        asked = found.of_those_that_answer if leaving_out else found
        if asked.budget_warning is not None and request.task:
            print(f"warning: {one_line(asked.budget_warning, 600)}", file=sys.stderr)
    if not only_answering or not found.failing_workers:
        return request
    if not leaving_out:
        raise BadInput("--only-what-answers: no worker answers, see above; start a server or take another pool")
    if not quiet:
        print(f"left out: {one_line(', '.join(found.failing_workers), 400)}", file=sys.stderr, flush=True)
    return request.model_copy(update={"excluded": (*request.excluded, *found.failing_workers)})


@contextmanager
def opened_engine(store: "Store", settings: Settings) -> "Iterator[EngineHost]":
    """Opens the engine, which writes to ``store``. On closing it cancels what still runs. Raises: StoreError."""
    if store.refusal is not None:
        raise store.refusal
    from conductor_core.engine.host import EngineHost

    traces = None
    if settings.otlp_endpoint is not None:
        from conductor_core.export.otel import open_traces, watched

        traces = open_traces(settings, lambda run_id: [stored.event for stored in store.events(run_id)])
        host = EngineHost(watched(store.log, traces), settings, store)
    else:
        host = EngineHost(store.log, settings, store)
    try:
        yield host
    finally:
        host.close()
        if traces is not None and (lost := traces.close()):
            print(f"warning: {one_line(lost, 400)}", file=sys.stderr)


class RunStopped(InspectorError):
    """The log failed and the run stopped. What was logged before is kept."""

    def __init__(self, cause: InspectorError) -> None:
        super().__init__(f"the run stopped: {cause}")
        self._code = cause.code

    @property
    def code(self) -> str:
        return self._code


def watch(
    store: "Store",
    host: "EngineHost",
    run_id: str,
    view: ProgressView,
    *,
    after: int = 0,
    until_it_waits: bool = False,
) -> tuple[RunTrace, int]:
    """Shows a run of ``host`` until it has ended. Ctrl-C or SIGTERM cancels it, a second one ends the program.

    Args:
        after: the sequence of the last event that ``view`` knows.

    Returns the trace and the exit code. Raises: RunStopped if the log failed, and could not even take the run's end.
    """
    try:
        return asyncio.run(_watch(store, host, run_id, _show(store, run_id, view, after, until_it_waits)))
    except StoreError as error:
        raise RunStopped(error) from error


async def _watch(
    store: "Store", host: "EngineHost", run_id: str, shown: Coroutine[Any, Any, None]
) -> tuple[RunTrace, int]:
    with stopping(lambda: host.cancel(run_id, local_caller("cli"))) as stopped_by:
        ended = asyncio.get_running_loop().run_in_executor(None, host.wait, run_id)
        showing = asyncio.create_task(shown)
        try:
            first_to_end: set[asyncio.Future[Any]] = {ended, showing}
            await asyncio.wait(first_to_end, return_when=asyncio.FIRST_COMPLETED)
            if showing.done() and showing.exception() is not None:
                host.cancel(run_id, local_caller("cli"))  # nobody can see it any more
            try:
                trace = await ended
            except StoreError:
                trace, _ = store.trace(run_id)
                if not trace.ended:
                    raise
            await showing
            if trace.status == "waiting":
                trace = store.read(run_id)  # after the wait, any process may have carried it out
        finally:
            showing.cancel()
    if stopped_by and trace.status == "cancelled":
        return trace, stopped_by[0]
    return trace, exit_code(trace)


def exit_code(trace: RunTrace) -> int:
    """Returns 0 for a run that is done, 3 for one that waits, 1 for any other end."""
    return 0 if trace.status in ("completed", "planned") else 3 if trace.status == "waiting" else 1


def follow(store: "Store", run_id: str, view: ProgressView, after: int) -> None:
    """Shows a run that another process carries out, until it has ended or waits. Ctrl-C only stops the showing."""
    asyncio.run(_show(store, run_id, view, after, until_it_waits=True))


async def _show(store: "Store", run_id: str, view: ProgressView, after: int, until_it_waits: bool) -> None:
    async with aclosing(store.follow(run_id, after)) as groups:
        async for group in groups:
            for stored in group:
                view.show(stored.event)
                if until_it_waits and stored.event.kind == "run.waiting":
                    return


def print_outcome(trace: RunTrace, view: ProgressView, *, as_json: bool) -> None:
    """Prints what is left to print of a run that was watched: its document, or its answer if stdout lacks it."""
    if as_json:
        from conductor_core.analysis import documents  # a person's terminal needs none

        print_json(documents.run_document(trace))
    elif trace.answer is not None and view.answer_shown != (answer := known_and_set().text(trace.answer)):
        print(plain(answer))


# Runs that are carried out at once.


async def all_ended(
    host: "EngineHost", run_ids: Sequence[str], what: str, *, quiet: bool
) -> tuple[list[RunTrace], int]:
    """Waits for all runs. Ctrl-C or SIGTERM cancels those that have not ended.

    Returns them, and the exit code of a signal, else 0. ``what``: the word for them, in the plural.
    """

    def cancel() -> None:
        for run_id in run_ids:
            host.cancel(run_id, local_caller("cli"))

    loop, done = asyncio.get_running_loop(), 0

    def on_done(_: object) -> None:
        nonlocal done
        done += 1
        if not quiet:
            print(f"{done} of {len(run_ids)} {what}", file=sys.stderr, flush=True)

    with ThreadPoolExecutor(len(run_ids), what) as threads, stopping(cancel) as stopped_by:
        waiting = [loop.run_in_executor(threads, host.wait, run_id) for run_id in run_ids]
        for each in waiting:
            each.add_done_callback(on_done)
        traces = await asyncio.gather(*waiting)
    return list(traces), stopped_by[0] if stopped_by else 0


# Signals.

_EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


@contextmanager
def stopping(stop: Callable[[], object]) -> Iterator[list[int]]:
    """Calls ``stop`` at the first SIGINT or SIGTERM; a second one ends the program. Needs a running event loop.

    Yields a list: empty at first, it holds the exit code from the first signal on.
    """
    loop = asyncio.get_running_loop()
    codes: list[int] = []

    def on_signal(number: signal.Signals) -> None:
        if codes:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        codes.append(_EXIT_CODES[number])
        stop()

    for number in _EXIT_CODES:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield codes
    finally:
        for number in _EXIT_CODES:
            loop.remove_signal_handler(number)
