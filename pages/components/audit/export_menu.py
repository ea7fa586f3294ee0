"""Export from the Audit page: a bundle that proves itself, of one run or of all that was found; and one run to read.

A bundle is made in a thread, for the browser to save.
"""

import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import streamlit as st

from conductor_core.analysis.decision_record import DecisionRecord
from conductor_core.errors import BadInput
from conductor_core.export.otel import spans_of
from conductor_core.run.actor import local_caller
from conductor_core.run.redaction import Redactor
from conductor_core.run.trace import ENDED_STATUSES
from pages.components.app.session import current, exported, this_browser
from pages.components.app.widgets import button, download, fault_box
from pages.components.app.work import Work
from pages.components.audit.query import AuditQuery
from pages.components.style.formats import inert, plural
from storage import Store, bundles
from storage.search.hits import Count

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
    what: bundles.Exported
    more: bool


def bundle_of_run(store: Store, run_id: str, browser: str) -> Work[Bundle]:
    """Begins to make the bundle of one run. ``browser``: who asks for it, as on record."""
    name = f"run-{bundles.safe_name(run_id[:12], 'export')}.zip"
    return Work("export", lambda work: _one_at_a_time(store, name, lambda _: [run_id], work, browser))


def bundle_of_found(store: Store, asked: AuditQuery, browser: str) -> Work[Bundle]:
    name, field = f"runs-{datetime.now(UTC):%Y%m%d-%H%M%S}.zip", asked.field if asked.typed else None

    def find(report: Callable[[int], None]) -> Sequence[str]:
        return store.search.run_ids(asked.typed, asked.filters, field, MOST_RUNS + 1, report)

    return Work("export", lambda work: _one_at_a_time(store, name, find, work, browser))


def _one_at_a_time(
    store: Store, name: str, find: Callable[[Callable[[int], None]], Sequence[str]], work: Work[Bundle], browser: str
) -> Bundle:
    """Makes a bundle, whoever asks: each takes a processor, and its size on the disk and in memory."""
    while not _one.acquire(timeout=_WAIT_S):
        work.report("another export is running", 0, 0, 0.0)
    try:
        work.report("runs found", 0, 0, 0.0)
        found = find(lambda count: work.report("runs found", count, MOST_RUNS, _FIND * count / MOST_RUNS))
        return _alone(store, name, found, work, browser)
    finally:
        _one.release()


def _alone(store: Store, name: str, found: Sequence[str], work: Work[Bundle], browser: str) -> Bundle:
    run_ids, more = found[:MOST_RUNS], len(found) > MOST_RUNS
    if not run_ids:
        raise BadInput("no run was found: there is nothing to export")

    def report(done: int, total: int) -> None:
        if done == total:
            work.report("events and proofs", 0, 0, _FIND + _WRITE)
        else:
            work.report("records written", done, total, _FIND + _WRITE * (done / total))

    with tempfile.TemporaryDirectory(prefix="conductor-inspector-") as folder:
        done = bundles.export_runs(store, run_ids, Path(folder) / name, report, local_caller("page"), browser)
        if done.size > MOST_BYTES:
            raise BadInput(
                f"the bundle has {done.size / 1e6:,.0f} MB, and the page saves {MOST_BYTES // 1_000_000:,} MB at most: "
                "narrow the search, or use conductor log export"
            )
        return Bundle(name, done.path.read_bytes(), done, more)


_WORK = "audit-export-work"
_REFRESH_S, _AT_ONCE_S = 0.5, 1.0
_HOLDS = (
    "Exact events with proofs and the signed checkpoint, images, and a decision record of each run. The log records "
    "the digest of every file, so a later change of any of them is found. Nothing is hidden in the events."
)
_HAND_OVER = (
    "Hand over by another way: the verifier, the full fingerprint of the key and the anchor. *Integrity* has all three."
)


@contextmanager
def _menu(help_text: str) -> Iterator[None]:
    with (
        st.popover("Export", icon=":material/download:", key="audit-export", help=help_text),
        st.container(key="audit-export-menu", width=440, gap="xsmall"),
    ):
        yield


def export_run(record: DecisionRecord, *, encrypted: bool) -> None:
    store, run_id, browser = current().store, record.run_id, this_browser()

    def kept(what: str, write: Callable[[], str]) -> str:
        text = write()
        exported([run_id], what, browser)
        return text

    with _menu("Save this run as a file"):
        notes = [_HOLDS]
        if encrypted:
            notes.append(f"This run is encrypted: {bundles.SEALED_WORDS}. It comes without record and images.")
        if record.status not in ENDED_STATUSES:
            notes.append(f"This run has not ended: {bundles.UNFINISHED_WORDS}.")
        _bundle(f"{run_id} {record.last}", notes, partial(bundle_of_run, store, run_id, browser))
        says = "One page without a script, to read and to print. Keys are hidden in it."
        record_page = partial(kept, "record", partial(bundles.record_page_of, store, run_id, Redactor()))
        file = (record_page, f"record-{run_id[:12]}.html", "text/html", "audit-export-record")
        download("Decision record (HTML)", *file, icon="description", type="tertiary", help=says)
        ready = False
        with suppress(ModuleNotFoundError):  # a package above it is missing
            ready = find_spec("opentelemetry.exporter.otlp.json.common") is not None
        says = "For collectors and viewers of OpenTelemetry. Without texts, unless CONDUCTOR_OTLP_CONTENTS asks."
        says = says if ready else "Needs the extra otlp: pip install 'conductor-inspector[otlp]'"
        trace = partial(kept, "otlp", partial(_trace, store, run_id))
        file = (trace, f"trace-{run_id[:12]}.json", "application/json", "audit-export-otlp")
        download("Trace (OTLP JSON)", *file, icon="timeline", type="tertiary", help=says, disabled=not ready)


def _trace(store: Store, run_id: str) -> str:
    from conductor_core.export.otel import otlp_json  # when used: the extra brings what it imports

    events = Redactor().events([stored.event for stored in store.events(run_id)])
    return otlp_json(spans_of(events, contents=current().settings.otlp_contents), at_utc=events[-1].at_utc)


def export_found(asked: AuditQuery, count: Count) -> None:
    store = current().store
    with _menu("Save these runs as one file"):
        bounded = count.more or count.runs > MOST_RUNS
        which = f"All runs of this search, at most the newest {MOST_RUNS:,}" if bounded else plural(count.runs, "run")
        notes = [
            f"{which}. {_HOLDS}",
            "Encrypted runs come as their stored bytes, without record and images; runs that have not ended as far "
            "as they are. The page says how many of each there are.",
        ]
        question = f"{asked.typed}\n{asked.field}\n{asked.filters!r}\n{0 if count.more else count.runs}"
        _bundle(question, notes, partial(bundle_of_found, store, asked, this_browser()))


def _bundle(of: str, notes: list[str], begin: Callable[[], Work[Bundle]]) -> None:
    """Draws the bundle ``of`` a run or a question as it stands: the button that makes it, how far it is, the file."""
    for note in notes:
        st.caption(inert(note))
    of = f"{current().store.deletions(1)[1]} {of}"  # a bundle of before an erasure holds what was erased
    work = _work(of)
    st.fragment(_progress, run_every=_REFRESH_S if work is not None and work.running else None)(of, begin)


def _work(of: str) -> Work[Bundle] | None:
    """Returns the work on the bundle ``of`` this; stops and drops that on another."""
    kept: tuple[str, Work[Bundle]] | None = st.session_state.get(_WORK)
    if kept is None or kept[0] == of:
        return None if kept is None else kept[1]
    kept[1].stop()
    del st.session_state[_WORK]
    return None


def _data(bundle: Bundle, removed: int) -> bytes:
    """Returns the bytes to save, when asked for: Streamlit would keep a copy of its own otherwise. Raises: BadInput."""
    if current().store.deletions(1)[1] != removed:
        raise BadInput("a run was deleted or erased since the bundle was made: make it again")
    return bundle.data


def _progress(of: str, begin: Callable[[], Work[Bundle]]) -> None:
    work = _work(of)
    if work is not None and work.running:
        work.keep_alive()
        counted = f"{work.done:,} of {work.total:,} " if work.total else ""
        st.progress(work.share, text=f"{counted}{work.stage}" if counted else work.stage.capitalize())
        button("Stop", "audit-bundle-stop", work.stop, icon="stop")
        return
    if work is not None and work.result is not None:
        _made(work.result, int(of.partition(" ")[0]))
        return
    if work is not None and work.error is not None:
        fault_box(work.error)
    if button("Make the bundle", "audit-bundle", icon="inventory_2"):
        work = begin()
        work.wait(_AT_ONCE_S)
        st.session_state[_WORK] = (of, work)
        st.rerun()


def _made(bundle: Bundle, removed: int) -> None:
    what, size = bundle.what, bundle.what.size
    sized = f"{size / 1e6:,.1f} MB" if size >= 100_000 else f"{max(1, size // 1000):,} kB"
    file = (partial(_data, bundle, removed), bundle.name, "application/zip", "audit-bundle-save")
    download(f"Save {bundle.name} ({sized})", *file, type="primary")
    said = [plural(what.runs, "run")]
    if what.encrypted:
        said.append(f"{what.encrypted:,} encrypted")
    if what.unfinished:
        said.append(f"{what.unfinished:,} not ended")
    if bundle.more:
        said.append("there are more: narrow the search, or use the command line")
    st.caption(f"{inert('; '.join(said))}. Key fingerprint {what.key.fingerprint[:16]}…  \n{_HAND_OVER}")
    if not what.bound:
        st.warning(inert(f"{bundles.UNBOUND_WORDS[:1].upper()}{bundles.UNBOUND_WORDS[1:]}."), icon=":material/warning:")
