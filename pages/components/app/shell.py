"""The frame as plain HTML and one style sheet: what is painted before Streamlit runs, and around pages without it.

Its names stand where Streamlit's navigation will stand, so that nothing seems to move when that comes.
"""

import re
from pathlib import Path
from urllib.parse import quote, urlencode

import streamlit as st
from markupsafe import Markup
from starlette.datastructures import QueryParams
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pages.components.app import places
from pages.components.style.formats import html

TEMPLATE = "app/frame"
NAME = "Conductor Inspector"
STREAMLITS_OWN = Path(st.__file__).parent / "static" / "index.html"
_STYLE = Path(__file__).with_name("shell.css").read_text(encoding="utf-8")
_FONT = re.search(r'static/media/SourceSansVF-Upright[^"]*', STREAMLITS_OWN.read_text(encoding="utf-8"))
_ICONS = next((STREAMLITS_OWN.parent / "static" / "media").glob("MaterialSymbols-Rounded*.woff2"), None)


def style(up: str = "") -> Markup:
    font, icons = None if _FONT is None else _FONT[0], None if _ICONS is None else _ICONS.name
    return html(TEMPLATE, "style", up=up, font=font, icons=icons, sheet=_STYLE)


def frame(up: str, *, links: bool) -> Markup:
    """Returns the rail. ``up`` leads to the app's root. ``links``: whether its names are links, not only painted."""
    icons = {} if _ICONS is None else places.ICONS
    groups = [
        (heading, [(page.stem, icons.get(page), page.stem.capitalize()) for page in group])
        for heading, group in places.RAIL.items()
    ]
    return html(TEMPLATE, "rail", up=up, links=links, groups=groups, name=NAME)


def coming() -> Markup:
    """Returns what lies over the page until Streamlit has painted. It is for the eyes alone."""
    return html(TEMPLATE, "coming", rail=frame("", links=False))


_MOST_SHOWN = 200
NAMES = frozenset(page.stem for page in places.ALL)
_ALSO = {"index": "", "home": "", "runs": "history", "evaluation": "evaluate"}
_NOT_PAGES = ("/_stcore/", "/static/", "/media/", "/api/", "/app/", "/component/")


def meant(path: str, query: str) -> str | None:
    """Returns the address below the app's root that ``path`` means, with its query; None: it means none of ours.

    ``/Run``, ``/run.html`` and ``/runs`` mean pages, ``/run/ID`` a run.
    """
    first, *rest = [part for part in path.split("/") if part] or [""]
    name = first.lower().removesuffix(".html").removesuffix(".htm")
    page = name if name in NAMES or name == places.FIRST else _ALSO.get(name)
    if page is None or (rest and name not in ("run", "runs")) or len(rest) > 1:
        return None
    if not rest:
        return f"{page}{query and '?'}{query}"
    others = [(key, value) for key, value in QueryParams(query).multi_items() if key != "run"]
    return f"run?{urlencode([('run', rest[0]), *others], quote_via=quote, errors='replace')}"


def addresses(app: ASGIApp) -> ASGIApp:
    """Leads near addresses to their pages and answers unknown ones with a page of their own: 404."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        is_page = path[1:] in (*NAMES, "", places.FIRST)
        if is_page or scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            await app(scope, receive, send)
            return
        asked = scope.get("raw_path", b"").split(b"?")[0]
        up = "../" * max(0, asked.count(b"/") - 1) or "./"
        if not path.startswith(_NOT_PAGES) and (to := meant(path, scope["query_string"].decode("latin-1"))) is not None:
            await RedirectResponse(f"{up}{to}", 302, {"cache-control": "no-cache"})(scope, receive, send)
            return
        unknown = False

        async def send_or_say(message: Message) -> None:
            nonlocal unknown
            if message["type"] == "http.response.start" and _is_bare(message):
                unknown = True
                await _unknown(path, up)(scope, receive, send)
            elif not unknown:
                await send(message)

        await app(scope, receive, send_or_say)

    return answer


def _is_bare(start: Message) -> bool:
    """Tells whether this is Streamlit's own page, which it gives for whatever it does not know, or its refusal."""
    kinds = [value for name, value in start.get("headers", ()) if name.lower() == b"content-type"]
    saved = any(name.lower() == b"content-disposition" for name, _ in start.get("headers", ()))
    status = start["status"]
    page = status in (200, 304) and any(kind.startswith(b"text/html") for kind in kinds) and not saved
    return page or status == 301 or (status == 400 and not any(b"json" in kind for kind in kinds))


def _unknown(path: str, up: str) -> Response:
    shown = "".join(each if each.isprintable() else f"⟨U+{ord(each):04X}⟩" for each in path[:_MOST_SHOWN])
    address = shown if len(path) <= _MOST_SHOWN else f"{shown}…"
    rail = frame(up, links=True)
    page = html(TEMPLATE, "unknown", style=style(up), rail=rail, up=up, name=NAME, address=address)
    return HTMLResponse(page.encode(errors="replace"), 404, {"cache-control": "no-store"})
