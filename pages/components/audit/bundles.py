"""Makes a bundle of runs in a thread, for the browser to save."""

import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from conductor_core.actor import local_caller
from conductor_core.errors import BadInput
from pages.components.audit.asked import Asked
from pages.components.audit.work import Work
from storage import Store
from storage.exporting import Exported, export_runs, safe_name

MOST_RUNS = 1000
"""The most runs of one bundle that the page makes; the command line has no bound."""
MOST_BYTES = 200_000_000
"""The largest bundle that the page holds in memory for a browser."""
_FIND, _WRITE = 0.2, 0.75
_WAIT_S = 0.2
_one = threading.Lock()


@dataclass(frozen=True)
class Bundle:
    """A bundle in memory. ``more``: there are more runs than it may hold."""

    name: str
    data: bytes
    what: Exported
    more: bool


def bundle_of_run(store: Store, run_id: str, browser: str) -> Work[Bundle]:
    """Begins to make the bundle of one run. ``browser``: who asks for it, as on record."""
    return Work(
        "export",
        lambda work: _made(store, f"run-{safe_name(run_id[:12], 'export')}.zip", lambda: [run_id], work, browser),
    )


def bundle_of_found(store: Store, asked: Asked, browser: str) -> Work[Bundle]:
    """Begins to make the bundle of the newest runs that the page finds."""

    def find(work: Work[Bundle]) -> Callable[[], Sequence[str]]:
        def told(found: int) -> None:
            work.told("runs found", found, MOST_RUNS, _FIND * found / MOST_RUNS)

        return lambda: store.search.run_ids(
            asked.typed, asked.filters, asked.field if asked.typed else None, MOST_RUNS + 1, told
        )

    name = f"runs-{datetime.now(UTC):%Y%m%d-%H%M%S}.zip"
    return Work("export", lambda work: _made(store, name, find(work), work, browser))


def _made(store: Store, name: str, find: Callable[[], Sequence[str]], work: Work[Bundle], browser: str) -> Bundle:
    """Makes one bundle at a time, whoever asks: each takes a processor, and its size on the disk and in memory."""
    while not _one.acquire(timeout=_WAIT_S):
        work.told("another export goes on", 0, 0, 0.0)
    try:
        work.told("runs found", 0, 0, 0.0)
        return _alone(store, name, find, work, browser)
    finally:
        _one.release()


def _alone(store: Store, name: str, find: Callable[[], Sequence[str]], work: Work[Bundle], browser: str) -> Bundle:
    run_ids = find()
    more = len(run_ids) > MOST_RUNS
    run_ids = run_ids[:MOST_RUNS]
    if not run_ids:
        raise BadInput("no run was found: there is nothing to export")
    work.told("events and proofs", 0, 0, _FIND)

    def told(done: int, total: int) -> None:
        work.told("records written", done, total, _FIND + _WRITE * (done / max(1, total)))

    with tempfile.TemporaryDirectory(prefix="conductor-inspector-") as folder:
        done = export_runs(store, run_ids, Path(folder) / name, told, local_caller("page"), browser)
        if done.size > MOST_BYTES:
            raise BadInput(
                f"the bundle has {done.size / 1e6:,.0f} MB, and the page saves {MOST_BYTES // 1_000_000:,} MB at most: "
                "narrow the search, or use python -m storage export"
            )
        return Bundle(name, done.path.read_bytes(), done, more)
