"""Writes the page that hands over one run: a file that opens without a server, with the live view and replay inside.

It may connect to nothing, and only its own scripts run, by their digest. What models and people wrote is JSON in
elements that no browser runs. ``recording`` is the run as the page saw it, to be played again.

``bundle`` joins the component's modules into one script. They use a few plain forms of import and export, and it
refuses all others. A bundler would bring its own toolchain for two dozen files.

Imports no Streamlit: the command line writes such files, too.
"""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from conductor_core import __version__
from conductor_core.chat.messages import data_url_of
from conductor_core.errors import BadInput, ContentMissing
from conductor_core.run.events import Event
from conductor_core.run.redaction import Redactor
from conductor_core.run.share import SharedRun, image_parts, inert_json, packed, packed_events
from conductor_core.run.trace import RunTrace, begin, fold
from pages.components.live_workflow.messages import LiveView, conclusion_of
from pages.components.style.formats import html
from storage import Store, StoredEvent


def recording(stored: Sequence[StoredEvent]) -> dict[str, Any]:
    """Returns what a page plays of a run's events, the first of which is its ``run.created``.

    Returns ``{"messages": [...], "moments": [[run_ms, wall_ms], ...]}``, one moment for each message: the milliseconds
    that the run had run, by a clock that stands while the run waits, and those of the wall clock since the run was
    created. The first message is a snapshot of the run as it began; the others say what changed, as the live route
    does.

    Raises: ValueError if the first event is another one, or if there is none.
    """
    if not stored:
        raise ValueError("no events: a recording begins with run.created")
    first = stored[0].event
    trace = begin(first)
    view = LiveView(trace, stored[0].sequence)
    messages, moments = [view.snapshot(trace.created_at_utc)], [[first.at_ms, 0.0]]
    for each in stored[1:]:
        event = each.event
        wall_ms = (event.at_utc - first.at_utc).total_seconds() * 1000
        for message in view.messages([each]):
            messages.append(message)
            moments.append([round(event.at_ms, 3), round(wall_ms, 3)])
    return {"messages": messages, "moments": moments}


# One script.

_BESIDE = Path(__file__).parent / "assets"
_BY_STREAMLIT = "components/live_workflow/assets"  # below the package through which Streamlit finds components
ASSETS = _BESIDE if _BESIDE.is_dir() else Path(str(files("conductor_inspector"))) / _BY_STREAMLIT

_IMPORT = re.compile(r'^import\s+(?:\{(?P<names>[^}]*)\}|(?P<default>\w+))\s+from\s+"\./(?P<file>[\w./-]+)"\n', re.M)
_EXPORTED = re.compile(r"^export (?=(?:async )?function (\w+)|class (\w+)|const (\w+))", re.M)
_LIST = re.compile(r"export\s*\{([^{}]*)\};?\s*$")
_LEFT = re.compile(r"^(?:import|export)\b|\bimport\.meta\b|\bimport\(", re.M)
_COMMENT = re.compile(r"^\s*//.*\n", re.M)

_INDENT = re.compile(r"^[ ]+|^\n", re.M)


def bundle(entry: str, replaced: Mapping[str, str]) -> str:
    """Returns one script that runs the module ``entry`` of the assets.

    Args:
        replaced: the names of modules, each with the one that stands in its place.

    Raises: ValueError for a form of import or export that it does not know, and for modules that import each other.
    """
    done: dict[str, str] = {}
    parts: list[str] = []

    def add(name: str, above: tuple[str, ...]) -> str:
        name = replaced.get(name, name)
        if name in above:
            raise ValueError(f"modules import each other: {' -> '.join((*above, name))}")
        if name not in done:
            source, names = _source(name)
            imports = "".join(
                f"const {_bound(found)} = {add(found['file'], (*above, name))};\n" for found in _IMPORT.finditer(source)
            )
            done[name], inside = f"$module{len(done)}", _IMPORT.sub("", source)
            parts.append(f"const {done[name]} = (() => {{\n{imports}{inside}\nreturn {{ {names} }};\n}})();")
        return done[name]

    add(entry, ())
    return _for_element("\n".join(parts))


def _for_element(script: str) -> str:
    """Returns the script so that no text of it ends its element."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _source(name: str) -> tuple[str, str]:
    """Returns a module's source without its exports, and their names as the inside of an object."""
    source = (ASSETS / name).read_text(encoding="utf-8")
    names = [next(filter(None, found.groups())) for found in _EXPORTED.finditer(source)]
    if not name.startswith("vendor/"):
        # No module has a text over several lines, which would lose its indentation.
        source = _INDENT.sub("", _COMMENT.sub("", source))
    source = _EXPORTED.sub("", source)
    if listed := _LIST.search(source):
        source = source[: listed.start()]
        for each in filter(None, (part.strip() for part in listed[1].split(","))):
            inner, _, outer = each.partition(" as ")
            names.append(f"{outer or inner}: {inner}")
    if left := _LEFT.search(_IMPORT.sub("", source)) if not name.startswith("vendor/") else None:
        line = source[left.start() :].splitlines()[0]
        raise ValueError(f"{name}: this form cannot be joined: {line}")
    return source, ", ".join(names)


def _bound(found: re.Match[str]) -> str:
    if found["default"]:
        return f"{{ default: {found['default']} }}"
    names = (part.strip() for part in found["names"].split(","))
    return "{ " + ", ".join(name.replace(" as ", ": ") for name in names if name) + " }"


# Pages without a server.

_STYLE_COMMENT = re.compile(r"/\*.*?\*/\n?", re.DOTALL)


def sealed_page(title: str, data: Mapping[str, Any], module: str, scripts: Sequence[str] = ()) -> str:
    """Returns the page, in which ``scripts`` run before ``module`` draws it.

    ``title``: of our own words alone. ``data``: what becomes JSON, by the id of its element.
    """
    sums = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in (*scripts, module))
    digests = " ".join(f"'sha256-{each}'" for each in sums)
    policy = (
        f"default-src 'none'; script-src {digests}; style-src 'unsafe-inline'; img-src data:; font-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    page = html(
        "live_workflow/shared_page",
        "page",
        policy=policy,
        title=title,
        style=read_text(Path(__file__).with_name("shared.css")),
        data=[(name, inert_json(value)) for name, value in data.items()],
        scripts=scripts,
        module=module,
    )
    return str(page)  # a plain text: what is added to ``Markup`` is escaped


@cache
def bundle_of(entry: str) -> str:
    """Returns the script of such a page: the module ``entry`` and all that it imports, as one."""
    return bundle(entry, {"base.js": "packed.js"})


@cache
def styles_of(*names: str) -> str:
    return _STYLE_COMMENT.sub("", "\n".join(read_text(ASSETS / name) for name in names))


def read_text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


WRITTEN_BY = f"conductor-inspector {__version__}"
KATEX = Path(__file__).parent / "vendor" / "katex"
_FORMULA = re.compile(r"\$[^$]+\$|\\[(\[]|\\begin\{")
_SOURCES = re.compile(r"src:url\((fonts/[\w-]+\.woff2)\)[^}]*")
_CHEMISTRY = re.compile(r"\\(?:ce|pu)\{")


def page_of_run(store: Store, run_id: str, redactor: Redactor) -> str:
    """Raises: UnknownRun, RunUnreadable, StoreError; BadInput as ``shared_page`` does."""
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
    texts = [run.task]
    for step in trace.walk():
        texts += [step.output, *(each.partial for each in step.attempts), *(each.text for each in step.messages)]
    drawn = bool((conclusion_of(trace) or {}).get("formula")) or any(map(_FORMULA.search, texts))
    parts = {
        "style": styles_of("style.css", "graph.css", "timeline.css", "prose.css", "reader.css"),
        "formulas": _katex_styles() if drawn else None,
        "images": {sha256: data_url_of(media_type, data) for sha256, (media_type, data) in images.items()},
    }
    scripts = [_katex("katex.min.js")] if drawn else []
    if drawn and any(map(_CHEMISTRY.search, texts)):
        scripts.append(_katex("mhchem.min.js"))
    return sealed_page("A run", {"shared-run": run, "shared-parts": parts}, bundle_of("shared.js"), scripts)


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


@cache
def _katex(name: str) -> str:
    return _for_element(read_text(KATEX / name))


@cache
def _katex_styles() -> str:
    def inside(found: re.Match[str]) -> str:
        font = base64.b64encode((KATEX / found[1]).read_bytes()).decode()
        return f"src:url(data:font/woff2;base64,{font})"

    return _SOURCES.sub(inside, read_text(KATEX / "katex.min.css"))
