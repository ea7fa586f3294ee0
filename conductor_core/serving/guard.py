"""Who may call: the pages of the server itself, and callers that are no browser.

A call is refused if its Host is a name that a foreign page can have (DNS rebinding), or if its Origin, which a browser
adds and no page can change, is not the host that it calls.
"""

import ipaddress
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from conductor_core.serving.errors import ApiError
from conductor_core.serving.replies import is_of_the_endpoint, new_request_id, refusal

UNKNOWN_HOST = (
    "This app is not served under the host name of this call. To serve it under a name of your own, set "
    "CONDUCTOR_ALLOWED_HOSTS=NAME where it is started. A reverse proxy must pass the Host header on."
)
OTHER_ORIGIN = "This address answers only the pages that it serves itself."
_HOST = re.compile(r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?P<name>[0-9A-Za-z._-]+))(?::(?P<port>[0-9]{1,5}))?")


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
    answer: Response | WebSocketClose
    if scope["type"] == "websocket":
        answer = WebSocketClose(4403)
    elif is_of_the_endpoint(scope["path"]):
        answer = refusal(ApiError(403, why, code="forbidden"), scope, new_request_id())
    else:
        answer = PlainTextResponse(why, 403)
    await answer(scope, receive, send)
