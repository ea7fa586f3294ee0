"""What every response and every call of our own routes must satisfy, as pure-ASGI middleware.

Streamlit escapes HTML in model output but would fetch a remote image, which can carry data away; the content security
policy forbids it, together with any other connection to another host. Our own routes stand outside Streamlit's own
protection, so a call from a page of another origin is refused.
"""

import base64
import hashlib
import ipaddress
import re
from pathlib import Path
from urllib.parse import urlsplit

import streamlit as st
from starlette.types import ASGIApp, Message, Receive, Scope, Send


def _inline_scripts() -> str:
    """The digests of the scripts that stand in Streamlit's own page: these run, an injected one does not."""
    page = (Path(st.__file__).parent / "static" / "index.html").read_bytes()
    scripts = re.findall(rb"<script>(.*?)</script>", page, re.DOTALL)
    return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode()}'" for script in scripts)


CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'self'",
        f"script-src 'self' {_inline_scripts()}",
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
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)
OWN_ROUTES = "/api/"


class ContentSecurityPolicy:
    """Adds the policy to every HTTP response."""

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


class SameOrigin:
    """Refuses calls of our own routes (HTTP and WebSocket) that a page of another origin makes.

    A browser names the page's origin; it must be the host that was called. That host must itself be one that a foreign
    page cannot claim (DNS rebinding): an IP address, ``localhost``, or the name in Streamlit's option
    ``browser.serverAddress``. A caller that is no browser sends no Origin and is let through.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        ours = scope["type"] in ("http", "websocket") and OWN_ROUTES in scope["path"]
        if not ours or allowed(_header(scope, b"origin"), _header(scope, b"host"), _served_name()):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 4403, "reason": "another origin"})
        else:
            body = b"This address answers only the page it belongs to."
            headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode())]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": body})


def allowed(origin: str | None, host: str | None, served_name: str | None = None) -> bool:
    """Whether a call with these headers may be answered; ``served_name`` is the DNS name the app is served under."""
    if origin is None:
        return True
    if host is None or urlsplit(origin).netloc != host:
        return False
    name = urlsplit(f"//{host}").hostname or ""
    return name in ("localhost", served_name) or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _header(scope: Scope, name: bytes) -> str | None:
    for key, value in scope["headers"]:
        if key == name:
            return str(value.decode("latin-1"))
    return None


def _served_name() -> str | None:
    name = st.get_option("browser.serverAddress")
    return str(name) if name else None
