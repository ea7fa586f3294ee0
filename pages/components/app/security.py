"""Rules for every response and call, as pure-ASGI middleware; the browser's id; and the HTML behind the addresses.

Streamlit escapes HTML in model output but would fetch a remote image, which can carry data away. The content security
policy forbids this and any other connection to another host.

Who may call is checked by ``conductor_core.serving.guard``: Streamlit's socket answers any page whose name resolves to
this machine, and pages of other local servers; our own routes would answer any page.

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
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

import streamlit as st
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
_WITH_SHEETS = ("records", "context", "blame", "audit", "models", "keys", "shadow", "tiers", "failures")
SHEETS += [ROOMS / room / f"{room}.css" for room in _WITH_SHEETS]
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
CONTENT_SECURITY_POLICY = (
    f"default-src 'self'; script-src 'self' {_INLINE_SCRIPTS}; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; worker-src 'self' blob:; "
    "media-src 'self' blob:; object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'self'"
)
_HEADERS = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    # With this, a foreign page cannot even load a file of ours, which would tell it that the app runs here.
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)


def with_policy(app: ASGIApp) -> ASGIApp:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *_HEADERS]}
            await send(message)

        await app(scope, receive, send_with_policy if scope["type"] == "http" else send)

    return answer
