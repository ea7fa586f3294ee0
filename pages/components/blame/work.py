"""Blames that this app carries out: one for each run at most, in a thread of its own, whoever looks at it."""

import logging
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field

from conductor_core.blame.experiments import PURPOSE, Experiments
from conductor_core.blame.runs import Blame, CarryingOut, Verdicts, recorded
from conductor_core.errors import BadInput, InspectorError
from conductor_core.run.actor import local_caller
from conductor_core.run.trace import RunTrace
from pages.components.app.session import Session
from storage import Store

log = logging.getLogger(__name__)

MOST_CHILDREN = 100_000
_MOST_KEPT, _MOST_READ = 50, 2000
_MOST_GUESSED = 0.9  # of a replay that has not ended


@dataclass
class Work:
    """A blame that was begun here. ``error``: why it ended before its end; None: it did not."""

    carrying_out: CarryingOut
    thread: threading.Thread
    error: str | None = None
    began_at_s: float = field(default_factory=time.monotonic)

    @property
    def running(self) -> bool:
        return self.thread.is_alive()

    @property
    def share(self) -> float:
        """How much is done, 0 to 1. Before the first replay has ended, by the time that the run itself took."""
        at, expected_ms = self.carrying_out, self.carrying_out.blame.experiments.source.duration_ms
        done: float = at.ended
        if not done and expected_ms:
            done = at.running * min(_MOST_GUESSED, (time.monotonic() - self.began_at_s) * 1000 / expected_ms)
        return min(1.0, done / max(1, at.total))


_works: dict[str, Work] = {}
_read_before: dict[str, RunTrace] = {}
_lock, _reading_lock = threading.Lock(), threading.Lock()


def work_of(run_id: str) -> Work | None:
    """Returns the blame of this run that was begun last in this app; None: none was."""
    return _works.get(run_id)


def read_blame(session: Session, experiments: Experiments, verdicts: Verdicts, count: int) -> Blame:
    """Reads what is recorded of a blame. Raises: InspectorError."""
    children = session.store.runs(limit=MOST_CHILDREN, parent=experiments.source.run_id)
    return Blame(experiments, verdicts, count, recorded(children, lambda run_id: _read(session.store, run_id)))


def _read(store: Store, run_id: str) -> RunTrace:
    """Reads a replay. One that completed stays in mind without long texts, because each drawing of the page asks."""
    if (kept := _read_before.get(run_id)) is not None:
        return kept
    trace = store.read(run_id)
    if trace.status == "completed" and not any(step.attempts for step in trace.steps):
        steps = [step.model_copy(update={"messages": (), "reasoning": ""}) for step in trace.steps]
        trace = trace.model_copy(update={"root": trace.root.model_copy(update={"steps": steps})})
        with _reading_lock:
            if len(_read_before) >= _MOST_READ:
                del _read_before[next(iter(_read_before))]
            _read_before[run_id] = trace
    return trace


def begin(session: Session, experiments: Experiments, verdicts: Verdicts, count: int, max_usd: float | None) -> None:
    """Begins to carry out what is left of a blame. Raises: InspectorError; BadInput if another process is at it."""
    run_id = experiments.source.run_id
    with _lock:
        if (now := _works.get(run_id)) is not None and now.running:
            raise BadInput(f"the blame of run {run_id} is being carried out already")
        held = ExitStack()
        held.enter_context(session.store.carrying_out(f"{PURPOSE} {run_id}", f"the blame of run {run_id}"))
        try:
            blame = read_blame(session, experiments, verdicts, count)
            carrying_out = CarryingOut(blame, session.host, local_caller("page"), max_usd=max_usd)
        except BaseException:
            held.close()
            raise
        thread = threading.Thread(target=_run, args=(run_id, held), name=f"blame {run_id}", daemon=True)
        for old in [each for each, work in _works.items() if not work.running][: len(_works) - _MOST_KEPT + 1]:
            del _works[old]
        _works[run_id] = Work(carrying_out, thread)
        thread.start()


def _run(run_id: str, held: ExitStack) -> None:
    with held:
        work = _works[run_id]
        try:
            work.carrying_out.run()
        except InspectorError as error:
            work.error = str(error)
        except Exception:
            # The engine may have been closed, with the app; else this is a fault of the program.
            log.exception("the blame of run %s stopped", run_id)
            work.error = "it stopped unexpectedly, see the log"
