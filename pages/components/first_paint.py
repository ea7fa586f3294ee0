"""The style sheets of the pages, put into the page that Streamlit serves, so that nothing moves when they arrive.

Through ``st.html`` they come after the first elements: these are laid out by Streamlit's own sheet first and jump.
"""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from starlette.types import ASGIApp, Message, Receive, Scope, Send

HERE = Path(__file__).parent
SHEETS = (HERE / "frame.css", HERE / "look.css", HERE / "records.css")
_BODY_END = b"</body>"
"""Behind what Streamlit adds to the head: of equal rules the later one counts."""
_OUTDATED = (b"content-length", b"etag", b"last-modified")
"""Headers about the page as it lies on the disk: a browser's copy must not outlive a change of the sheets."""
_NOT_ASKED = (b"if-none-match", b"if-modified-since", b"accept-encoding")
"""Of the request: the page is wanted whole, as it is now (a copy in the browser may have other sheets), and as text."""


@cache
def _styles() -> bytes:
    return b"".join(b"<style>\n%s</style>\n" % sheet.read_bytes() for sheet in SHEETS)


class StylesInPage:
    """Adds the sheets to every HTML page. Every other response passes as it comes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET" or b"text/html" not in _values(scope, b"accept"):
            await self._app(scope, receive, send)
            return
        headers = [(name, value) for name, value in scope["headers"] if name not in _NOT_ASKED]
        await self._app({**scope, "headers": headers}, receive, _Page(send))


class _Page:
    """Holds back the beginning of a response until it is known whether it is a page, and a page until it is whole."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None
        self._body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _is_page(message["headers"]):
            self._start = message
        elif self._start is None or message["type"] != "http.response.body":
            await self._send(message)
        else:
            self._body += message.get("body", b"")
            if not message.get("more_body"):
                await self._finish(self._start)

    async def _finish(self, start: Message) -> None:
        body = self._body.replace(_BODY_END, _styles() + _BODY_END, 1)
        headers = [(name, value) for name, value in start["headers"] if name.lower() not in _OUTDATED]
        await self._send({**start, "headers": [*headers, (b"content-length", str(len(body)).encode())]})
        await self._send({"type": "http.response.body", "body": body})


def _is_page(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    found = {name.lower(): value for name, value in headers}
    return found.get(b"content-type", b"").startswith(b"text/html") and b"content-encoding" not in found


def _values(scope: Scope, name: bytes) -> bytes:
    return b",".join(value for key, value in scope["headers"] if key == name)
