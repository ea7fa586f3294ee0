"""The verification of the log: one at a time in this app, whoever looks at it, and the result of the last."""

import threading
from contextlib import suppress
from pathlib import Path

from conductor_core.errors import StoreError
from pages.components.audit.work import Work
from storage import Store
from storage.evidence.anchoring import evidence_folder
from storage.evidence.checking import CheckedLog, check_own_log, keep_check, last_check

_STAGES = {"events": ("events", 0.0, 0.3), "entries": ("entries of the tree", 0.3, 0.1), "runs": ("runs", 0.4, 0.6)}
"""By what the check counts: how the page names it, where its part of the bar begins, and how long that is."""
_EVERY = 0x3FF

_works: dict[Path, Work[CheckedLog]] = {}
_lock = threading.Lock()


def check_of(store: Store) -> Work[CheckedLog] | None:
    """Returns the check that was begun last in this app; None: none was."""
    return _works.get(store.path)


def begin_check(store: Store) -> Work[CheckedLog]:
    """Begins to check the log, unless a check is going on. Returns it."""
    with _lock:
        now = _works.get(store.path)
        if now is None or not now.running:
            now = _works[store.path] = Work("verification", lambda work: _check(store, work))
        return now


def last_result(store: Store) -> CheckedLog | None:
    """Returns what the last check found, also one before this app started; None: there was none."""
    work = check_of(store)
    here = None if work is None else work.result
    kept = None
    with suppress(StoreError):  # the line of the page says what is wrong with the database
        kept = last_check(evidence_folder(store.path), store.evidence().origin)
    if here is None or kept is None:
        return here or kept
    return kept if kept.at_utc > here.at_utc else here  # another program may have checked since


def _check(store: Store, work: Work[CheckedLog]) -> CheckedLog:
    evidence = store.evidence()
    totals = {
        "events": store.newest(),
        "entries": evidence.entries,
        "runs": sum(store.totals().statuses.values()),
    }

    def progress(what: str, count: int) -> None:
        if what == "runs" or not count & _EVERY:
            name, begin, length = _STAGES[what]
            total = max(1, totals[what], count)
            work.report(name, count, total, begin + length * count / total)

    work.report("the published checkpoints", 0, 0, 0.0)
    checked = check_own_log(store.path, store.places, store.vault, progress)
    keep_check(checked, evidence_folder(store.path))
    return checked
