"""Tool servers over streamable HTTP: a real one, and replies that no tool server should give."""

import asyncio
import json
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from conductor_core.chat.tools import ToolAnswer, ToolServer, ToolServerSpec
from conductor_core.tools import connection
from conductor_core.tools.servers import open_server
from tests.support.eventually import eventually, eventually_async
from tests.support.served import free_port, stop

REAL = Path(__file__).parents[2] / "support" / "tool_server.py"
TOOL = {"name": "echo", "inputSchema": {"type": "object"}}
Open = Callable[..., ToolServer]


class Odd:
    """A server that replies to each method as a test says: with a status, headers and a body."""

    def __init__(self) -> None:
        self.replies: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.held: set[str] = set()
        self.released = threading.Event()
        odd = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                message = json.loads(self.rfile.read(int(self.headers["content-length"])))
                method = message.get("method", "")
                odd.seen.append((method, dict(self.headers)))
                if method in odd.held:
                    odd.released.wait()
                status, headers, body = odd.replies.get(method) or odd.usual(message)
                self.send_response(status)
                for name, value in ({"content-type": "application/json"} | headers).items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self) -> None:
                odd.seen.append(("GET", dict(self.headers)))
                self.send_error(405)

            def do_DELETE(self) -> None:
                odd.seen.append(("DELETE", dict(self.headers)))
                if "DELETE" in odd.held:
                    odd.released.wait()
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:
                """Says nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/mcp"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def usual(self, message: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        if "id" not in message:
            return 202, {}, b""
        method, said = message["method"], {"jsonrpc": "2.0", "id": message["id"]}
        if method == "initialize":
            info = {"name": "odd", "version": "1"}
            result: dict[str, Any] = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": info,
            }
            return 200, {"mcp-session-id": "s1"}, json.dumps({**said, "result": result}).encode()
        if method == "tools/list":
            result = {"tools": [TOOL]}
        elif method == "tools/call":
            result = {"content": [{"type": "text", "text": "done"}]}
        else:
            error = {"code": -32601, "message": "Method not found"}
            return 200, {}, json.dumps({**said, "error": error}).encode()
        return 200, {}, json.dumps({**said, "result": result}).encode()

    def sent(self, method: str) -> int:
        return sum(each == method for each, _ in self.seen)


@pytest.fixture
def odd() -> Iterator[Odd]:
    server = Odd()
    yield server
    server.released.set()
    server.server.shutdown()
    server.server.server_close()


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port, log = free_port(), tmp_path_factory.mktemp("desk") / "log"
    with log.open("wb") as told:
        process = subprocess.Popen([sys.executable, str(REAL), str(port)], stdout=told, stderr=told)

    def accepts() -> bool:
        assert process.poll() is None, log.read_text()
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return True
        return False

    try:
        eventually(accepts)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        stop(process)


@pytest.fixture
async def opened() -> AsyncGenerator[Open]:
    servers: list[ToolServer] = []

    def open_one(url: str, **fields: Any) -> ToolServer:
        servers.append(open_server(ToolServerSpec(**({"name": "web", "url": url, "timeout_s": 10} | fields))))
        return servers[-1]

    yield open_one
    for server in servers:
        await server.aclose()


async def called(server: ToolServer, name: str = "echo", **arguments: Any) -> ToolAnswer:
    listing = await server.list()
    assert not listing.fault
    return await server.call(next(tool for tool in listing.tools if tool.tool == name), arguments)


async def test_a_server_of_the_library_lists_its_tools_and_answers(desk: str, opened: Open) -> None:
    server = opened(desk)
    listing = await server.list()
    assert (listing.title, listing.kind, listing.fault) == ("Desk 3.1", "http", "")
    assert listing.where == desk.split("/")[2]
    assert (await called(server, "add", a=2, b=3)).text == "5"
    assert (await called(server, "fail")).outcome == "error"
    answers = await asyncio.gather(*(called(server, "add", a=number, b=1) for number in range(8)))
    assert [answer.text for answer in answers] == [str(number + 1) for number in range(8)]


async def test_nobody_at_the_address_is_a_fault(opened: Open) -> None:
    listing = await opened(f"http://127.0.0.1:{free_port()}/mcp").list()
    assert "cannot be reached" in listing.fault


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, "HTTP 401: it wants a key (token_env names WEB_TOKEN)"),
        (403, "HTTP 403: it refused the key"),
        (404, "HTTP 404: there is nothing at this address"),
        (500, "HTTP 500"),
        (503, "HTTP 503"),
    ],
)
async def test_a_refusal_is_told_by_its_status(
    odd: Odd, opened: Open, monkeypatch: pytest.MonkeyPatch, status: int, said: str
) -> None:
    monkeypatch.setenv("WEB_TOKEN", "a-token-of-the-web-0123")
    odd.replies = {method: (status, {}, b"{}") for method in ("server/discover", "initialize")}
    listing = await opened(odd.url, token_env="WEB_TOKEN").list()
    assert said in listing.fault
    assert odd.seen[0][1]["Authorization"] == "Bearer a-token-of-the-web-0123"


@pytest.mark.parametrize(
    ("reply", "outcome", "said"),
    [
        ((401, {}, b"{}"), "unreachable", "HTTP 401"),
        ((404, {}, b"{}"), "unreachable", "HTTP 404"),
        ((500, {}, b"oops"), "broke_off", "HTTP 500"),
        ((200, {}, b'{"jsonrpc": '), "broke_off", "gave no result"),
        ((200, {"content-type": "text/html"}, b"<p>Hello"), "broke_off", "Unexpected content type"),
        ((200, {"content-type": "text/event-stream"}, b"data: none\n\n"), "broke_off", "gave no result"),
        (
            (200, {"content-type": "text/event-stream"}, b"id: 7\nretry: 10\ndata: \n\n"),
            "broke_off",
            "gave no result: HTTP 405",
        ),
        ((200, {"content-encoding": "gzip"}, b"\x1f\x8b"), "broke_off", "gave no result"),
        ((200, {}, b'{"jsonrpc": "2.0", "id": 1, "x": "' + b"x" * 17_000_000 + b'"}'), "broke_off", "gave no result"),
        (
            (200, {}, b'{"jsonrpc": "2.0", "id": 1, "result": {"content": [0' + b", 0" * 150_000 + b"]}}"),
            "broke_off",
            "gave no result",
        ),
    ],
)
async def test_each_odd_reply_to_a_call_has_one_outcome(
    odd: Odd, opened: Open, reply: Any, outcome: str, said: str
) -> None:
    server = opened(odd.url)
    listing = await server.list()
    odd.replies = {"tools/call": reply}
    told = await server.call(listing.tools[0], {})
    assert told.outcome == outcome
    assert said in told.text
    assert odd.sent("tools/call") == 1, "a call that may have had effects is not repeated"
    odd.replies = {}
    assert (await server.call(listing.tools[0], {})).text == "done"


@pytest.mark.parametrize("method", ["initialize", "tools/call"])
async def test_no_redirect_to_another_host_is_followed(odd: Odd, opened: Open, method: str) -> None:
    other = Odd()
    server = opened(odd.url)
    reply = (307, {"location": other.url}, b"")
    if method == "initialize":
        odd.replies = {"initialize": reply, "server/discover": reply}
        said = (await server.list()).fault
    else:
        [tool] = (await server.list()).tools
        odd.replies = {method: reply}
        told = await server.call(tool, {})
        assert told.outcome == "unreachable"
        said = told.text
    assert "another address, which is not followed" in said
    assert other.seen == []
    other.server.shutdown()
    other.server.server_close()


async def test_a_server_that_forgot_us_is_asked_again_before_anything_is_sent(odd: Odd, opened: Open) -> None:
    server = opened(odd.url)
    [tool] = (await server.list()).tools
    usual, forgot = odd.usual, [True]

    def forgetful(message: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        if message.get("method") == "tools/list" and forgot:
            forgot.clear()
            return 500, {}, b"{}"
        return usual(message)

    odd.usual = forgetful  # type: ignore[method-assign]
    assert (await server.call(tool, {})).text == "done"


async def test_a_tool_that_changed_is_not_called(odd: Odd, opened: Open) -> None:
    server = opened(odd.url)
    [tool] = (await server.list()).tools
    body = {"jsonrpc": "2.0", "id": 1, "result": {"tools": [TOOL | {"description": "Deletes all."}]}}
    usual = odd.usual

    def changed(message: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        if message.get("method") == "tools/list":
            return 200, {}, json.dumps(body | {"id": message["id"]}).encode()
        return usual(message)

    odd.usual = changed  # type: ignore[method-assign]
    assert (await server.call(tool, {})).outcome == "changed"
    assert odd.sent("tools/call") == 0


async def test_a_call_that_hangs_is_given_up(odd: Odd, opened: Open) -> None:
    server = opened(odd.url, timeout_s=2)
    [tool] = (await server.list()).tools
    odd.held = {"tools/call"}
    told = await server.call(tool, {})
    assert (told.outcome, told.text) == ("timed_out", "The tool server web gave no result in 2 s.")
    odd.held = set()
    assert (await server.call(tool, {})).text == "done"


async def test_a_server_that_does_not_let_go_is_left(odd: Odd, opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_CLOSES_IN_S", 2)
    odd.held = {"DELETE"}
    server = opened(odd.url)
    await server.list()
    closing = asyncio.create_task(server.aclose())
    await eventually_async(lambda: odd.sent("DELETE"))
    await closing
