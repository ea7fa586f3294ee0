"""Who may call: every kind of path of the real app, by every kind of Host and Origin, on sockets and by post."""

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import streamlit

from conductor_core.serving.guard import OTHER_ORIGIN, UNKNOWN_HOST

ROOT = Path(__file__).parents[3]
START_S = 90.0
SERVED = "Inspector.Example, inspector.lan."

NO_REQUEST = b"Invalid HTTP request received."
PATHS = (
    ("GET", "/"),
    ("GET", "/run?run=none"),
    ("GET", "/history"),
    ("GET", "/_stcore/health"),
    ("GET", "/_stcore/host-config"),
    ("OPTIONS", "/_stcore/health"),
    ("PUT", "/_stcore/upload_file/session/file"),
    ("GET", "/_stcore/bidi-components/conductor-inspector.figure/index.js"),
    ("GET", "/static/{script}"),
    ("GET", "/media/none.png"),
    ("GET", "/api/plotly.js"),
    ("GET", "/api/katex/katex.min.js"),
    ("POST", "/api/runs/none/cancel"),
    ("GET", "/v1/models"),
    ("POST", "/v1/messages"),
    ("SOCKET", "/_stcore/stream"),
    ("SOCKET", "/api/runs/none/live"),
)
OWN = "127.0.0.1:{port}"
# Each: the Host header (None: there is none), the Origin headers, whether they are answered; {port} is the app's own.
TABLE: tuple[tuple[str | None, tuple[str, ...], bool], ...] = (
    # No browser calls a socket or posts without an Origin, and it loads pages and files without one.
    (OWN, (), True),
    ("localhost:{port}", (), True),
    ("LOCALHOST:{port}", (), True),
    ("localhost.:{port}", (), True),
    ("localhost", (), True),
    ("[::1]:{port}", (), True),
    ("192.0.2.7", (), True),
    ("inspector.example", (), True),
    ("evil.example:{port}", (), False),
    ("127.0.0.1.evil.example:{port}", (), False),
    ("localhost.evil.example:{port}", (), False),
    ("evil.localhost:{port}", (), False),
    ("localhost..:{port}", (), False),
    ("sub.inspector.example", (), False),
    ("user@127.0.0.1:{port}", (), False),
    ("evil.example@127.0.0.1:{port}", (), False),
    ("127.0.0.1:{port}:80", (), False),
    ("127.0.0.1:99999", (), False),
    ("127.0.0.1:port", (), False),
    ("127.1:{port}", (), False),
    ("2130706433:{port}", (), False),
    ("[::1", (), False),
    ("[fe80::1%25eth0]:{port}", (), False),
    ("127.0.0.1/", (), False),
    ("", (), False),
    (None, (), False),
    # The page itself, under each of its names.
    (OWN, ("http://127.0.0.1:{port}",), True),
    ("localhost:{port}", ("http://localhost:{port}",), True),
    ("localhost.:{port}", ("http://localhost.:{port}",), True),
    ("[::1]:{port}", ("http://[::1]:{port}",), True),
    ("192.0.2.7", ("http://192.0.2.7",), True),
    ("127.0.0.1:9000", ("http://127.0.0.1:9000",), True),  # a container's port, published as another
    ("inspector.example", ("https://inspector.example",), True),
    ("inspector.example:443", ("https://inspector.example",), True),  # as some reverse proxies write it
    ("inspector.lan:8080", ("http://inspector.lan:8080",), True),
    # Another page.
    (OWN, ("http://evil.example",), False),
    (OWN, ("http://evil.example:{port}",), False),
    (OWN, ("http://127.0.0.1:9999",), False),
    (OWN, ("http://127.0.0.1",), False),
    (OWN, ("http://localhost:{port}",), False),
    (OWN, ("http://0.0.0.0:{port}",), False),
    (OWN, ("https://inspector.example",), False),
    ("localhost:{port}", ("http://127.0.0.1:{port}",), False),
    ("inspector.example", ("http://inspector.example:8080",), False),
    # DNS rebinding: the foreign page's own name resolves to this machine.
    ("evil.example:{port}", ("http://evil.example:{port}",), False),
    ("evil.example", ("http://evil.example",), False),
    # Origins that are none.
    (OWN, ("null",), False),
    (OWN, ("",), False),
    (OWN, ("http://[",), False),
    (OWN, ("http://[::1",), False),
    (OWN, ("http://]",), False),
    (OWN, ("http://127.0.0.1:port",), False),
    (OWN, ("http://127.0.0.1:{port}/",), False),
    (OWN, ("http://127.0.0.1:{port}#",), False),
    (OWN, ("http://evil.example@127.0.0.1:{port}",), False),
    (OWN, ("127.0.0.1:{port}",), False),
    (OWN, ("//127.0.0.1:{port}",), False),
    (OWN, ("file://127.0.0.1:{port}",), False),
    (OWN, ("chrome-extension://abcdefghijklmnop",), False),
    (OWN, ("http://127.0.0.1:{port} http://evil.example",), False),
    (OWN, ("http://127.0.0.1:{port}", "http://evil.example"), False),
    (OWN, ("http://127.0.0.1:{port}\x00",), False),
    (OWN, ("http://ｌocalhost:{port}".encode().decode("latin-1"),), False),
)


@dataclass(frozen=True)
class Door:
    """The real app, which serves two names by the setting. ``told``: what it tried to reach outside."""

    port: int
    log: Path
    told: list[bytes]

    def answers(self, method: str, path: str, host: str | None, origins: tuple[str, ...]) -> bool:
        """Whether anything behind the door answered; a fault of the server is neither, and fails the test."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        socket_ = method == "SOCKET"
        connection.putrequest("GET" if socket_ else method, path, skip_host=True, skip_accept_encoding=True)
        if host is not None:
            connection.putheader("Host", host.format(port=self.port))
        for origin in origins:
            connection.putheader("Origin", origin.replace("{port}", str(self.port)).encode("latin-1"))
        if socket_:
            for name, value in (
                ("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"),
                ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ):  # fmt: skip
                connection.putheader(name, value)
        connection.endheaders()
        try:
            response = connection.getresponse()
            status, body = response.status, b"" if response.status == 101 else response.read()
            assert status < 500, (method, path, host, origins)
            if socket_:
                return status == 101
            # The server itself refuses headers that are none.
            refused = status == 403 and any(why.encode() in body for why in (UNKNOWN_HOST, OTHER_ORIGIN))
            assert not refused or not path.startswith("/v1/") or body.startswith(b"{")
            return not refused and body != NO_REQUEST
        finally:
            connection.close()


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    folder = tmp_path_factory.mktemp("door")
    with _outside() as (proxy, told):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        environment = os.environ | {
            "CONDUCTOR_DATA_FOLDER": str(folder), "CONDUCTOR_WARM_UP": "0", "CONDUCTOR_ALLOWED_HOSTS": SERVED,
            # Whatever the app would ask of the world outside comes here.
            "HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, "http_proxy": proxy, "https_proxy": proxy,
            "NO_PROXY": "", "no_proxy": "",
        }  # fmt: skip
        # As in the container: on all interfaces, where Streamlit would look up the address of this machine.
        command = [sys.executable, "-m", "streamlit", "run", "app.py", f"--server.port={port}"]
        log = folder / "app.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, "--server.address=0.0.0.0"], cwd=ROOT, env=environment, stdout=output, stderr=output
            )
        try:
            _wait_until_healthy(port, process, log)
            yield Door(port, log, told)
        finally:
            process.terminate()
            process.wait(timeout=20)


@contextmanager
def _outside() -> Iterator[tuple[str, list[bytes]]]:
    """A proxy that answers nothing and keeps the first line of whatever is asked of it."""
    told: list[bytes] = []

    def listen() -> None:
        with suppress(OSError):  # closed at the end
            while True:
                caller, _ = listening.accept()
                with caller:
                    told.append(caller.recv(4096).split(b"\r\n")[0])

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=listen, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", told


def _wait_until_healthy(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START_S
    while True:
        with suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=5).close()
            return
        if process.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"the app did not start:\n{log.read_text()}")
        time.sleep(0.05)


def _path(path: str) -> str:
    index = (Path(streamlit.__file__).parent / "static" / "index.html").read_text()
    found = re.search(r'src="\./static/([^"]+)"', index)
    assert found is not None
    return path.replace("{script}", found[1])


@pytest.mark.parametrize(("method", "path"), PATHS, ids=[f"{method} {path}" for method, path in PATHS])
def test_every_path_answers_its_own_page_and_nobody_elses(door: Door, method: str, path: str) -> None:
    wrong = [
        (host, origins)
        for host, origins, answered in TABLE
        if door.answers(method, _path(path), host, origins) is not answered
    ]
    assert wrong == []


def test_it_told_nobody_and_raised_nothing(door: Door) -> None:
    for origin in ("http://evil.example", "http://127.0.0.1:9999", "http://["):
        assert not door.answers("SOCKET", "/_stcore/stream", OWN, (origin,))
    assert door.told == []
    assert "Traceback" not in door.log.read_text()


def _asked(door: Door, path: str, method: str = "GET") -> tuple[int, str, bytes]:
    """Status, Location and body for an address, asked as it is written."""
    connection = http.client.HTTPConnection("127.0.0.1", door.port, timeout=30)
    connection.request(method, path)
    response = connection.getresponse()
    found = response.status, response.getheader("Location", ""), response.read()
    connection.close()
    return found


@pytest.mark.parametrize(
    ("path", "leads_to"),
    [
        ("/Run", "./run"),
        ("/Run?a=1&b=2", "./run?a=1&b=2"),
        ("/run/", "../run"),
        ("/index.html?x=1", "./?x=1"),
        ("/run/ID", "../run?run=ID"),
        ("/run/ID?run=other&at=3", "../run?run=ID&at=3"),
        ("/runs", "./history"),
        ("/History", "./history"),
        ("/run/%2f%2fevil.example", "../run?run=evil.example"),
        ("/run/%0d%0aX-Evil:y", "../run?run=%0D%0AX-Evil%3Ay"),
    ],
)
def test_a_near_address_leads_to_the_page_that_is_meant_and_keeps_its_query(
    door: Door, path: str, leads_to: str
) -> None:
    for method in ("GET", "HEAD"):
        assert _asked(door, path, method)[:2] == (302, leads_to)


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/nope", "/nope"),
        ("/a/b/c", "/a/b/c"),
        ("/%3Cscript%3Ealert(1)%3C/script%3E", "/&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("/nope%E2%80%AE", "/nope⟨U+202E⟩"),
        ("/%ff%00", "⟨U+0000⟩"),
        ("//evil.example/", "evil.example"),
        ("/%5cevil.example", "evil.example"),
        ("/%09/evil.example/", "evil.example"),
        ("/run/%2e%2e/x", "/run/../x"),
        ("/static/none", "/static/none"),
        ("/api/none", "/api/none"),
    ],
)
def test_an_unknown_address_has_a_page_that_shows_what_was_asked_and_leads_nowhere_else(
    door: Door, path: str, shown: str
) -> None:
    status, location, body = _asked(door, path)
    assert (status, location) == (404, "")
    page = body.decode()
    assert shown in page
    assert "<script" not in page
    up = "../" * max(0, path.count("/") - 1) or "./"
    assert f'<a href="{up}history">See earlier runs</a>' in page
    assert _asked(door, path, "HEAD") == (404, "", b"")


def test_what_streamlit_and_our_routes_serve_stays_as_it_is(door: Door) -> None:
    for path in ("/", "/run", "/first", "/favicon.png", "/_stcore/health", "/api/plotly.js", _path("/static/{script}")):
        assert _asked(door, path)[0] == 200, path
    assert _asked(door, "/api/runs/none/recording")[0] == 404
    for path in ("/v1", "/v1/none", "/v1/%2e%2e/x", "/v1/%00"):  # Streamlit would refuse the last ones
        status, _, body = _asked(door, path)
        assert (status, list(json.loads(body))) == (404, ["error"]), path
    assert _asked(door, "/api/story")[2].startswith(b'{"run_ids"')
