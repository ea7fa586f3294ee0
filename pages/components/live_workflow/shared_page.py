"""Writes the page that hands over one run: a file that opens without a server, with the live view and replay inside.

Imports no Streamlit: the command line writes such files, too.
"""

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from conductor_core import __version__
from conductor_core.errors import BadInput, ContentMissing
from conductor_core.events import Event
from conductor_core.message_parts import data_url_of
from conductor_core.redaction import Redactor
from conductor_core.shared_run import SharedRun, image_parts, packed, packed_events
from conductor_core.trace import RunTrace, fold
from pages.components.live_workflow.messages import LiveView, conclusion_of
from pages.components.live_workflow.recording import recording
from pages.components.live_workflow.sealed_page import bundle_of, read_text, sealed_page, styles_of
from storage import Store, StoredEvent

WRITTEN_BY = f"conductor-inspector {__version__}"
KATEX = Path(__file__).parent / "vendor" / "katex"
_FORMULA = re.compile(r"\$[^$]+\$|\\[(\[]|\\begin\{")
_SOURCES = re.compile(r"src:url\((fonts/[\w-]+\.woff2)\)[^}]*")
_CHEMISTRY = re.compile(r"\\(?:ce|pu)\{")


def page_of_run(store: Store, run_id: str, redactor: Redactor) -> str:
    """Returns the page of a run of the store.

    Raises: UnknownRun, RunUnreadable, StoreError; BadInput as ``shared_page`` does.
    """
    return shared_page(*run_of(store, run_id), redactor)


def run_of(store: Store, run_id: str) -> tuple[list[Event], dict[str, tuple[str, bytes]]]:
    """Returns a run's events, and media type and bytes of the images that it names, by digest.

    Raises: UnknownRun, RunUnreadable, StoreError.
    """
    store.trace(run_id)  # raises what is wrong with the run
    events = [stored.event for stored in store.events(run_id)]
    images = {}
    for image in store.created(run_id).request.all_images:
        with suppress(ContentMissing):  # the page then says that it is not kept
            images[image.sha256] = store.content(image.sha256)
    return events, images


def shared_page(
    events: Sequence[Event],
    images: Mapping[str, tuple[str, bytes]],
    redactor: Redactor,
    now_utc: datetime | None = None,
) -> str:
    """Returns the page of a run that has ended.

    Args:
        events: of the run, from its ``run.created`` to its end.
        images: media type and bytes of the images that it names, by digest.
        redactor: what is hidden first, keys in any case.
        now_utc: when the page is written; default: now.

    Raises: BadInput for a run that goes on, and for a pattern that hides what the record needs.
    """
    hidden = redactor.events(events)
    trace = ended_run(hidden)
    stored = [StoredEvent(number, event) for number, event in enumerate(hidden, 1)]
    view = packed({"finished": LiveView(trace, len(stored)).snapshot(), "recording": recording(stored)})
    run = shared_run(trace, hidden, images, redactor.count, now_utc or datetime.now(UTC), view)
    return _page(trace, run, images)


def ended_run(events: Sequence[Event]) -> RunTrace:
    """Returns the run of these events. Raises: BadInput for a run that goes on."""
    trace = fold(events)
    if not trace.ended:
        raise BadInput(f"run {trace.run_id} goes on: only a run that has ended can be handed over")
    return trace


def shared_run(
    trace: RunTrace,
    events: Sequence[Event],
    images: Mapping[str, tuple[str, bytes]],
    redactions: int,
    now_utc: datetime,
    view: str = "",
) -> SharedRun:
    """Returns a run as a file holds it. ``events``: those of ``trace``. ``view``: what the page shows; packed."""
    return SharedRun(
        written_by=WRITTEN_BY,
        written_at_utc=now_utc,
        run_id=trace.run_id,
        task=trace.task,
        simulated=trace.simulated,
        imported=trace.imported is not None,
        redactions=redactions,
        images=image_parts(images),
        record=packed_events(events),
        view=view,
    )


def _page(trace: RunTrace, run: SharedRun, images: Mapping[str, tuple[str, bytes]]) -> str:
    texts = [run.task, *_texts(trace)]
    drawn = bool((conclusion_of(trace) or {}).get("formula")) or any(map(_FORMULA.search, texts))
    parts = {
        "style": styles_of("style.css", "timeline.css", "prose.css", "reader.css"),
        "formulas": _katex_styles() if drawn else None,
        "images": {sha256: data_url_of(media_type, data) for sha256, (media_type, data) in images.items()},
    }
    scripts = [_katex("katex.min.js")] if drawn else []
    if drawn and any(map(_CHEMISTRY.search, texts)):
        scripts.append(_katex("mhchem.min.js"))
    return sealed_page("A run", {"shared-run": run, "shared-parts": parts}, bundle_of("shared.js"), scripts)


def _texts(trace: RunTrace) -> Iterator[str]:
    """Yields all that a page draws as Markdown."""
    for step in trace.walk():
        yield from (step.output, *(attempt.partial for attempt in step.attempts))
        yield from (message.text for message in step.messages)


@cache
def _katex(name: str) -> str:
    return read_text(KATEX / name).replace("</script", "<\\/script").replace("<!--", "<\\!--")


@cache
def _katex_styles() -> str:
    """Returns KaTeX's stylesheet with its fonts inside."""

    def inside(found: re.Match[str]) -> str:
        font = base64.b64encode((KATEX / found[1]).read_bytes()).decode()
        return f"src:url(data:font/woff2;base64,{font})"

    return _SOURCES.sub(inside, read_text(KATEX / "katex.min.css"))
