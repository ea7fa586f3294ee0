"""Writes the page that hands over one run: a file that opens without a server, with the live view and replay inside.

The file's own policy forbids every connection, and only its own scripts run, by their digest. What models and people
wrote is JSON in an element that no browser runs. Imports no Streamlit: the command line writes such files, too.
"""

import base64
import hashlib
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
from conductor_core.shared_run import SharedRun, image_parts, inert_json, packed, packed_events
from conductor_core.trace import RunTrace, fold
from pages.components.live_workflow.bundle import ASSETS, bundle
from pages.components.live_workflow.messages import LiveView, conclusion_of
from pages.components.live_workflow.recording import recording
from storage import Store, StoredEvent

KATEX = Path(__file__).parent / "vendor" / "katex"
_STYLES = ("style.css", "timeline.css", "prose.css", "reader.css")
_FORMULA = re.compile(r"\$[^$]+\$|\\[(\[]|\\begin\{")
_SOURCES = re.compile(r"src:url\((fonts/[\w-]+\.woff2)\)[^}]*")
_COMMENT = re.compile(r"/\*.*?\*/\n?", re.DOTALL)
_CHEMISTRY = re.compile(r"\\(?:ce|pu)\{")


def page_of_run(store: Store, run_id: str, redactor: Redactor) -> str:
    """Returns the page of a run of the store.

    Raises: UnknownRun, RunUnreadable, StoreError; BadInput as ``shared_page`` does.
    """
    store.trace(run_id)  # raises what is wrong with the run
    events = [stored.event for stored in store.events(run_id)]
    images = {}
    for image in store.created(run_id).request.all_images:
        with suppress(ContentMissing):  # the page then says that it is not kept
            images[image.sha256] = store.content(image.sha256)
    return shared_page(events, images, redactor)


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
    events = redactor.events(events)
    trace = fold(events)
    if not trace.ended:
        raise BadInput(f"run {trace.run_id} goes on: only a run that has ended can be handed over")
    stored = [StoredEvent(number, event) for number, event in enumerate(events, 1)]
    view = packed({"finished": LiveView(trace, len(stored)).snapshot(), "recording": recording(stored)})
    run = SharedRun(
        written_by=f"conductor-inspector {__version__}",
        written_at_utc=now_utc or datetime.now(UTC),
        run_id=trace.run_id,
        task=trace.task,
        simulated=trace.simulated,
        imported=trace.imported is not None,
        redactions=redactor.count,
        images=image_parts(images),
        record=packed_events(events),
        view=view,
    )
    return _page(trace, run, images)


def _page(trace: RunTrace, run: SharedRun, images: Mapping[str, tuple[str, bytes]]) -> str:
    texts = [run.task, *_texts(trace)]
    drawn = bool((conclusion_of(trace) or {}).get("formula")) or any(map(_FORMULA.search, texts))
    parts = {
        "style": _live_styles(),
        "formulas": _katex_styles() if drawn else None,
        "images": {sha256: data_url_of(media_type, data) for sha256, (media_type, data) in images.items()},
    }
    scripts = [_katex("katex.min.js")] if drawn else []
    if drawn and any(map(_CHEMISTRY.search, texts)):
        scripts.append(_katex("mhchem.min.js"))
    module = bundle_of_page()
    digests = " ".join(f"'sha256-{_digest(script)}'" for script in (*scripts, module))
    policy = (
        f"default-src 'none'; script-src {digests}; style-src 'unsafe-inline'; img-src data:; font-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="referrer" content="no-referrer">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            "<title>A run · Conductor Inspector</title>",
            '<link rel="icon" href="data:,">',
            f"<style>{_text(Path(__file__).with_name('shared.css'))}</style>",
            "</head>",
            "<body>",
            '<main><div id="live"></div></main>',
            "<noscript><p>This page draws a recorded run with JavaScript, which is off.</p></noscript>",
            f'<script type="application/json" id="shared-run">{inert_json(run)}</script>',
            f'<script type="application/json" id="shared-parts">{inert_json(parts)}</script>',
            *(f"<script>{script}</script>" for script in scripts),
            f'<script type="module">{module}</script>',
            "</body>",
            "</html>",
            "",
        )
    )


def _texts(trace: RunTrace) -> Iterator[str]:
    """Yields all that a page draws as Markdown."""
    for step in trace.walk():
        yield from (step.output, *(attempt.partial for attempt in step.attempts))
        yield from (message.text for message in step.messages)


@cache
def bundle_of_page() -> str:
    """Returns the script of such a page: the live view's own modules, as one."""
    return bundle("shared.js", {"base.js": "packed.js"})


@cache
def _live_styles() -> str:
    return _COMMENT.sub("", "\n".join(_text(ASSETS / name) for name in _STYLES))


@cache
def _katex(name: str) -> str:
    return _text(KATEX / name).replace("</script", "<\\/script").replace("<!--", "<\\!--")


@cache
def _katex_styles() -> str:
    """Returns KaTeX's stylesheet with its fonts inside."""

    def inside(found: re.Match[str]) -> str:
        font = base64.b64encode((KATEX / found[1]).read_bytes()).decode()
        return f"src:url(data:font/woff2;base64,{font})"

    return _SOURCES.sub(inside, _text(KATEX / "katex.min.css"))


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8")
