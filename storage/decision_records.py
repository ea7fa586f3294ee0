"""Decision records of runs of the store: for the command line, for the pages and for bundles."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime

from conductor_core.analysis.decision_record import DecisionRecord, decision_record
from conductor_core.chat.messages import ImagePart
from conductor_core.errors import ContentMissing, UnknownRun
from conductor_core.run.redaction import Redactor
from conductor_core.run.trace import RunTrace, RunUnreadable, fold
from storage.store import Store


def record_of(store: Store, run_id: str, redactor: Redactor) -> DecisionRecord:
    """Returns the decision record of a run, which may go on, wait, or be damaged: then as far as it can be read.

    ``redactor`` hides passages in the copy that it is read from; keys in any case.

    Raises: UnknownRun; RunUnreadable if nothing of the run can be read; StoreError; BadInput for a pattern that hides
        what the record needs.
    """
    damage: str | None = None
    try:
        trace, _ = store.trace(run_id)
    except RunUnreadable as error:
        if error.trace is None:
            raise
        trace, damage = error.trace, str(error)
    stored, _ = store.readable_events(run_id)
    return decision_record(
        redactor.events([each.event for each in stored]),
        parent=_parent(store, trace, redactor),
        first=stored[0].sequence,
        last=stored[-1].sequence,
        damage=damage,
    )


def record_page_of(store: Store, run_id: str, redactor: Redactor, now_utc: datetime | None = None) -> str:
    """Returns the decision record of a run as an HTML page. Raises: as ``record_of``."""
    from conductor_core.analysis.decision_page import record_page  # when used: it brings the templates

    record = record_of(store, run_id, redactor)
    return record_page(record, images_of(store, record.images), hidden=redactor.count, now_utc=now_utc)


def images_of(store: Store, images: Sequence[ImagePart]) -> dict[str, tuple[str, bytes]]:
    """Returns media type and bytes of those images that are kept, by digest."""
    found = {}
    for image in images:
        with suppress(ContentMissing):
            found[image.sha256] = store.content(image.sha256)
    return found


def _parent(store: Store, trace: RunTrace, redactor: Redactor) -> RunTrace | None:
    """Returns the run that ``trace`` re-runs or resumes; None if there is none, or if it cannot be read whole."""
    if trace.parent_run_id is None:
        return None
    with suppress(UnknownRun, RunUnreadable):
        store.trace(trace.parent_run_id)
        return fold(redactor.events([each.event for each in store.events(trace.parent_run_id)]))
    return None
