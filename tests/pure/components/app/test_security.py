from collections.abc import Iterable

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from conductor_core.serving.guard import OwnPagesOnly
from pages.components.app.security import CONTENT_SECURITY_POLICY, with_policy


async def _inner(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-own", b"1")]})
    await send({"type": "http.response.body", "body": b"inner"})


async def _call(app: ASGIApp, kind: str, path: str, headers: Iterable[tuple[bytes, bytes]]) -> list[Message]:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await app({"type": kind, "path": path, "headers": list(headers)}, receive, send)
    return sent


FOREIGN = [(b"host", b"127.0.0.1:8501"), (b"origin", b"http://evil.example")]
OWN = [(b"host", b"127.0.0.1:8501"), (b"origin", b"http://127.0.0.1:8501")]


async def test_every_response_carries_the_policy_beside_its_own_headers() -> None:
    start = (await _call(with_policy(_inner), "http", "/", []))[0]
    headers = dict(start["headers"])
    assert headers[b"content-security-policy"].decode() == CONTENT_SECURITY_POLICY
    assert headers[b"x-own"] == b"1"


async def test_a_response_without_headers_of_its_own_carries_the_policy() -> None:
    async def bare(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 204})

    (start,) = await _call(with_policy(bare), "http", "/", [])
    assert dict(start["headers"])[b"content-security-policy"].decode() == CONTENT_SECURITY_POLICY


@pytest.mark.parametrize("directive", ["img-src 'self' data: blob:", "connect-src 'self'", "object-src 'none'"])
def test_the_policy_names_no_other_host(directive: str) -> None:
    assert directive in CONTENT_SECURITY_POLICY
    assert "http" not in CONTENT_SECURITY_POLICY
    assert "*" not in CONTENT_SECURITY_POLICY


def test_a_script_that_is_not_streamlits_own_is_not_run() -> None:
    (scripts,) = [part for part in CONTENT_SECURITY_POLICY.split("; ") if part.startswith("script-src")]
    assert scripts.startswith("script-src 'self' 'sha256-")
    assert "unsafe" not in scripts


# The whole table of hosts, origins and paths is tests/loopback/routes/test_door.py.
@pytest.mark.parametrize("path", ["/", "/_stcore/stream", "/api/runs/x/live"])
async def test_a_foreign_page_is_refused_and_our_own_answered(path: str) -> None:
    door = OwnPagesOnly(_inner, names=lambda: ("inspector.example",))
    assert (await _call(door, "http", path, FOREIGN))[0]["status"] == 403
    assert (await _call(door, "websocket", path, FOREIGN))[0]["type"] == "websocket.close"
    assert (await _call(door, "http", path, OWN))[0]["status"] == 200
    assert (await _call(door, "websocket", path, OWN))[0]["type"] == "websocket.accept"


async def test_an_unknown_name_is_told_the_setting() -> None:
    door = OwnPagesOnly(_inner, names=lambda: ())
    start, body = await _call(door, "http", "/", [(b"host", b"inspector.example")])
    assert start["status"] == 403
    assert b"CONDUCTOR_ALLOWED_HOSTS" in body["body"]


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        (b"inspector.example:443", b"https://inspector.example"),
        (b"LOCALHOST:8501", b"http://localhost:8501"),
        (b"localhost:8501", b"http://localhost.:8501"),
    ],
)
async def test_what_is_passed_on_is_the_same_as_text(host: bytes, origin: bytes) -> None:
    seen: list[dict[bytes, bytes]] = []

    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(dict(scope["headers"]))

    door = OwnPagesOnly(inner, names=lambda: ("inspector.example",))
    await _call(door, "websocket", "/_stcore/stream", [(b"host", host), (b"origin", origin)])
    (headers,) = seen
    assert headers[b"host"] == host
    assert headers[b"origin"] == origin.split(b"://")[0] + b"://" + host


@pytest.mark.parametrize(
    "host",
    [
        b"inspector",
        b"inspector.exam",
        b"inspector.example.evil.example",
        b"my-inspector.example",
        b"sub.inspector.example",
        b"localhost.evil.example",
        b"127.0.0.1.evil.example",
    ],
)
async def test_a_name_is_served_whole_or_not_at_all(host: bytes) -> None:
    door = OwnPagesOnly(_inner, names=lambda: ("inspector.example", "other.example"))
    assert (await _call(door, "http", "/", [(b"host", host)]))[0]["status"] == 403
    assert (await _call(door, "http", "/", [(b"host", b"inspector.example")]))[0]["status"] == 200


@pytest.mark.parametrize("origin", [b"http://inspector.example.evil.example", b"http://inspector.exam", b"http://i"])
async def test_an_origin_that_only_begins_as_the_host_does_is_another(origin: bytes) -> None:
    door = OwnPagesOnly(_inner, names=lambda: ("inspector.example",))
    sent = await _call(door, "websocket", "/_stcore/stream", [(b"host", b"inspector.example"), (b"origin", origin)])
    assert sent[0]["type"] == "websocket.close"


async def test_what_is_neither_a_call_nor_a_socket_passes_whole() -> None:
    """The server's own start and end, which have no host."""
    passed: list[object] = []

    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        passed.extend((scope, receive, send))

    async def receive() -> Message:
        return {"type": "lifespan.startup"}

    async def send(message: Message) -> None:
        raise AssertionError(message)

    scope = {"type": "lifespan"}
    for app in (OwnPagesOnly(inner, names=lambda: ()), with_policy(inner)):
        await app(scope, receive, send)
    assert passed == [scope, receive, send] * 2


@pytest.mark.parametrize(
    ("host", "origin", "answered"),
    [
        (b"[::1]:8501", b"http://[::1]:8501", True),
        (b"[::1]:8501", b"http://[0:0:0:0:0:0:0:1]:8501", True),
        (b"[2001:db8::1]", b"http://[2001:db8::1]", True),
        (b"[::1]:8501", b"http://[::2]:8501", False),
        (b"[::1]:8501", b"http://[::1]:8502", False),
        (b"[::1::2]:8501", b"http://[::1::2]:8501", False),
        (b"[1.2.3.4]:8501", b"http://[1.2.3.4]:8501", False),
    ],
)
async def test_an_address_is_the_same_however_it_is_written(host: bytes, origin: bytes, answered: bool) -> None:
    door = OwnPagesOnly(_inner, names=lambda: ())
    sent = await _call(door, "websocket", "/_stcore/stream", [(b"host", host), (b"origin", origin)])
    assert (sent[0]["type"] == "websocket.accept") == answered
