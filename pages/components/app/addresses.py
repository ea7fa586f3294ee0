"""Addresses that are none of ours: near ones lead to the page that is meant, all others to a page that says so.

Streamlit answers every unknown address with its bare page, as if it were there: in another style, and with a fault once
its script runs. ``Addresses`` looks at what is asked for before Streamlit, and at what Streamlit answers.

Where it leads is one of our own names and relative to what was asked, so nothing in an address leads to another host.
"""

from html import escape
from urllib.parse import quote, urlencode

from starlette.datastructures import QueryParams
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pages.components.app import places, shell

_MOST_SHOWN = 200
PAGES = frozenset(page.stem for page in places.ALL)
_ALSO = {"index": "", "home": "", "runs": "history", "evaluation": "evaluate"}
_NOT_PAGES = ("/_stcore/", "/static/", "/media/", "/api/", "/app/", "/component/")


def is_page(path: str) -> bool:
    """Tells whether a page is served at this path."""
    return path[1:] in PAGES or path[1:] in ("", places.FIRST)


def meant(path: str, query: str) -> str | None:
    """Returns the address below the app's root that ``path`` means, with its query; None: it means none of ours.

    ``/Run``, ``/run.html`` and ``/runs`` mean pages, ``/run/ID`` a run.
    """
    first, *rest = [part for part in path.split("/") if part] or [""]
    name = first.lower().removesuffix(".html").removesuffix(".htm")
    page = name if name in PAGES or name == places.FIRST else _ALSO.get(name)
    if page is None or (rest and name not in ("run", "runs")) or len(rest) > 1:
        return None
    if not rest:
        return f"{page}{query and '?'}{query}"
    others = [(key, value) for key, value in QueryParams(query).multi_items() if key != "run"]
    return f"run?{urlencode([('run', rest[0]), *others], quote_via=quote, errors='replace')}"


class Addresses:
    """Leads near addresses to their pages and answers unknown ones with a page of their own: 404."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD") or is_page(path):
            await self._app(scope, receive, send)
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

        await self._app(scope, receive, send_or_say)


def _is_bare(start: Message) -> bool:
    """Tells whether this is Streamlit's own page, which it gives for whatever it does not know, or its refusal."""
    kinds = [value for name, value in start.get("headers", ()) if name.lower() == b"content-type"]
    saved = any(name.lower() == b"content-disposition" for name, _ in start.get("headers", ()))
    status = start["status"]
    page = status in (200, 304) and any(kind.startswith(b"text/html") for kind in kinds) and not saved
    return page or status == 301 or (status == 400 and not any(b"json" in kind for kind in kinds))


def _unknown(path: str, up: str) -> Response:
    shown = "".join(each if each.isprintable() else f"⟨U+{ord(each):04X}⟩" for each in path[:_MOST_SHOWN])
    more = "…" if len(path) > _MOST_SHOWN else ""
    said = (
        f"<h1>No page here</h1><p><bdi>{escape(shown)}{more}</bdi> is not an address of Conductor Inspector.</p>"
        f'<p><a href="{up}run">Run a task</a> · <a href="{up}history">See earlier runs</a></p>'
    )
    return HTMLResponse(
        shell.page("Unknown address", said, up).encode(errors="replace"), 404, {"cache-control": "no-store"}
    )
