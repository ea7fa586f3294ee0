from collections.abc import Iterable

import pytest
from starlette.types import Message, Receive, Scope, Send

from pages.components.security import CONTENT_SECURITY_POLICY, ContentSecurityPolicy, SameOrigin, allowed


@pytest.mark.parametrize(
    ("origin", "host", "served_name", "answer"),
    [
        (None, "127.0.0.1:8501", None, True),
        ("http://127.0.0.1:8501", "127.0.0.1:8501", None, True),
        ("http://localhost:8501", "localhost:8501", None, True),
        ("http://[::1]:8501", "[::1]:8501", None, True),
        ("http://evil.example", "127.0.0.1:8501", None, False),
        ("http://127.0.0.1:9999", "127.0.0.1:8501", None, False),
        ("null", "127.0.0.1:8501", None, False),
        # DNS rebinding: the foreign page's own name resolves to this machine.
        ("http://evil.example:8501", "evil.example:8501", None, False),
        ("https://inspector.example", "inspector.example", "inspector.example", True),
        ("http://127.0.0.1:8501", None, None, False),
    ],
)
def test_only_the_page_itself_may_call(
    origin: str | None, host: str | None, served_name: str | None, answer: bool
) -> None:
    assert allowed(origin, host, served_name) is answer


async def _inner(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-own", b"1")]})
    await send({"type": "http.response.body", "body": b"inner"})


async def _call(
    app: ContentSecurityPolicy | SameOrigin, kind: str, path: str, headers: Iterable[tuple[bytes, bytes]]
) -> list[Message]:
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
    start = (await _call(ContentSecurityPolicy(_inner), "http", "/", []))[0]
    headers = dict(start["headers"])
    assert headers[b"content-security-policy"].decode() == CONTENT_SECURITY_POLICY
    assert headers[b"x-own"] == b"1"


@pytest.mark.parametrize("directive", ["img-src 'self' data: blob:", "connect-src 'self'", "object-src 'none'"])
def test_the_policy_names_no_other_host(directive: str) -> None:
    assert directive in CONTENT_SECURITY_POLICY
    assert "http" not in CONTENT_SECURITY_POLICY
    assert "*" not in CONTENT_SECURITY_POLICY


def test_a_script_that_is_not_streamlits_own_is_not_run() -> None:
    (scripts,) = [part for part in CONTENT_SECURITY_POLICY.split("; ") if part.startswith("script-src")]
    assert scripts.startswith("script-src 'self' 'sha256-")
    assert "unsafe" not in scripts


async def test_a_foreign_page_is_refused_on_our_routes_only() -> None:
    assert (await _call(SameOrigin(_inner), "http", "/api/runs/x/cancel", FOREIGN))[0]["status"] == 403
    assert (await _call(SameOrigin(_inner), "websocket", "/api/runs/x/live", FOREIGN))[0]["code"] == 4403
    assert (await _call(SameOrigin(_inner), "http", "/_stcore/health", FOREIGN))[0]["status"] == 200


async def test_our_own_page_is_answered() -> None:
    assert (await _call(SameOrigin(_inner), "http", "/api/runs/x/cancel", OWN))[0]["status"] == 200
    assert (await _call(SameOrigin(_inner), "websocket", "/api/runs/x/live", OWN))[0]["type"] == "websocket.accept"
