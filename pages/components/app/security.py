"""Rules for every response and call, as pure-ASGI middleware; the browser's id; and the HTML behind the addresses.

Streamlit escapes HTML in model output but would fetch a remote image, which can carry data away. The content security
policy forbids this and any other connection to another host.

Streamlit's socket answers any page whose name resolves to this machine, and pages of other local servers; our own
routes would answer any page. So a call is refused if its Host is a name that a foreign page can have (DNS rebinding),
or if its Origin, which a browser adds and no page can change, is not the host that it calls.

The browser's id is a random number in a cookie that comes with the page and that no script can read. It names a file
of choices and nothing else. A browser without cookies has none and uses the last choice of any browser.

The HTML is Streamlit's own, with the address of its server, our style sheets and scripts. Streamlit's script does not
know how much of an address is the page's name. By itself it would ask for its server below the page
(``/history/_stcore/health``), get two errors, and only then ask at the right place. Through ``st.html`` the sheets
would come after the first elements, which would then jump. Here they end the body, after what Streamlit adds to the
head: of equal rules the later one counts. Before them the ``shell`` paints the frame, at the first byte.
"""

import base64
import hashlib
import ipaddress
import re
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import streamlit as st
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from pages.components.app import places, shell

COOKIE = "conductor_inspector_browser"
_ID = re.compile(r"[0-9a-f]{32}")
_YEAR_S = 365 * 24 * 3600


def browser_id() -> str | None:
    return valid_id(st.context.cookies)


def valid_id(cookies: Mapping[str, str]) -> str | None:
    # Anybody can send a cookie, and this one becomes part of a file's name.
    found = cookies.get(COOKIE)
    return found if isinstance(found, str) and _ID.fullmatch(found) else None


ROOMS = Path(__file__).parents[1]
SHEETS = [ROOMS / "app" / "frame.css", ROOMS / "style" / "look.css"]
SHEETS += [ROOMS / room / f"{room}.css" for room in ("records", "context", "blame", "audit", "models", "keys")]
_BACKEND = b'<script>window.__streamlit = { BACKEND_BASE_URL: new URL(".", location.href).href }</script>\n    '
SCRIPTS = (ROOMS / "app" / "waiting.js", ROOMS / "app" / "image_drop.js", ROOMS / "app" / "typing.js")
_FIRST_MODULE = b'<script type="module"'
_STYLESHEET = re.compile(rb"<link rel=.stylesheet.[^>]*>")
_ROOT = b'<div id="root">'
_BODY_END = b"</body>"


def _html() -> bytes:
    own = shell.STREAMLITS_OWN.read_bytes()
    styles = b"".join(b"<style>\n%s</style>\n" % sheet.read_bytes() for sheet in SHEETS)
    # Each in a block, so that its names are its own.
    scripts = b"".join(b"<script>{\n%s}</script>\n" % script.read_bytes() for script in SCRIPTS)
    # A style sheet in the head would keep the browser from painting anything until it is there.
    later = b"".join(_STYLESHEET.findall(own))
    own = _STYLESHEET.sub(b"", own)
    for place, before in (
        (_FIRST_MODULE, _BACKEND + shell.style().encode()),
        (_ROOT, shell.coming().encode()),
        (_BODY_END, later + styles + scripts),
    ):
        own = own.replace(place, before + place, 1)
    return own


HTML = _html()


async def _page(request: Request) -> HTMLResponse:
    response = HTMLResponse(HTML, headers={"cache-control": "no-cache"})
    if valid_id(request.cookies) is None:
        response.set_cookie(COOKIE, secrets.token_hex(16), max_age=_YEAR_S, httponly=True, samesite="lax")
    return response


ROUTES = [Route(f"/{name}", _page) for name in ("", places.FIRST, *(page.stem for page in places.ALL))]


# The digests of the scripts in the page itself. These run; an injected one does not.
_INLINE_SCRIPTS = " ".join(
    f"'sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode()}'"
    for script in re.findall(rb"<script>(.*?)</script>", HTML, re.DOTALL)
)
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'self'",
        f"script-src 'self' {_INLINE_SCRIPTS}",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "worker-src 'self' blob:",
        "media-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        "frame-ancestors 'self'",
    )
)
_HEADERS = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    # With this, a foreign page cannot even load a file of ours, which would tell it that the app runs here.
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)
UNKNOWN_HOST = (
    "This app is not served under the host name of this call. To serve it under a name of your own, set "
    "CONDUCTOR_ALLOWED_HOSTS=NAME where it is started. A reverse proxy must pass the Host header on."
)
OTHER_ORIGIN = "This address answers only the pages that it serves itself."
_HOST = re.compile(r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?P<name>[0-9A-Za-z._-]+))(?::(?P<port>[0-9]{1,5}))?")


class ContentSecurityPolicy:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *_HEADERS]}
            await send(message)

        await self._app(scope, receive, send_with_policy)


class OwnPagesOnly:
    """Answers, on every path and socket, only the pages of this app and callers that are no browser.

    It asks ``names`` at each call for the host names that serve the app, in small letters.
    """

    def __init__(self, app: ASGIApp, names: Callable[[], Collection[str]]) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        hosts, origins = _values(scope, b"host"), _values(scope, b"origin")
        called = _read_host(hosts[0]) if len(hosts) == 1 else None
        if called is None or not _is_ours(called.name, self._names()):
            await _refuse(UNKNOWN_HOST, scope, receive, send)
        elif not origins:
            await self._app(scope, receive, send)
        elif len(origins) == 1 and _same(origins[0], called):
            # Streamlit compares the two as text; where they differ, it asks the internet for this machine's address.
            scheme = origins[0].partition(":")[0]
            own = (b"origin", f"{scheme}://{hosts[0]}".encode("latin-1"))
            headers = [own if name == b"origin" else (name, value) for name, value in scope["headers"]]
            await self._app({**scope, "headers": headers}, receive, send)
        else:
            await _refuse(OTHER_ORIGIN, scope, receive, send)


@dataclass(frozen=True)
class _Host:
    """``name`` is in small letters, without a dot at its end; ``port`` is None where none was written."""

    name: str
    port: int | None


def _read_host(text: str) -> _Host | None:
    """Reads a Host header; None for anything but ``NAME``, ``NAME:PORT``, ``[IPV6]`` and ``[IPV6]:PORT``."""
    found = _HOST.fullmatch(text)
    if found is None:
        return None
    port = None if found["port"] is None else int(found["port"])
    if port is not None and not 0 < port < 65536:
        return None
    if found["ipv6"] is None:
        return _Host(found["name"].lower().removesuffix("."), port)
    try:
        return _Host(ipaddress.IPv6Address(found["ipv6"]).compressed, port)
    except ValueError:
        return None


def _is_ours(name: str, names: Collection[str]) -> bool:
    """Tells whether no foreign page can have this name: it is an address, ``localhost``, or one of ``names``."""
    if name == "localhost" or name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _same(origin: str, called: _Host) -> bool:
    """Tells whether the calling page comes from the host that it calls. An unreadable origin is another host."""
    scheme, _, rest = origin.partition("://")
    usual = {"http": 80, "https": 443}.get(scheme)
    page = _read_host(rest)
    if usual is None or page is None:
        return False
    return (page.name, page.port or usual) == (called.name, called.port or usual)


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


async def _refuse(why: str, scope: Scope, receive: Receive, send: Send) -> None:
    refusal = WebSocketClose(4403) if scope["type"] == "websocket" else PlainTextResponse(why, 403)
    await refusal(scope, receive, send)
