"""No layer of the sandbox lets a program reach a server on this machine."""

import socket
from collections.abc import Iterator

import pytest

from conductor_core.grading.sandbox.run import Layer, active_layers, run

LAYERS: tuple[Layer, ...] = ("namespaces", "Landlock", "seccomp", "audit hook")
CONNECT = "import socket\nsocket.create_connection(('127.0.0.1', {port}), 2).sendall(b'hello')\nprint('sent')"


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.3)
        yield listening


def visited(server: socket.socket) -> bool:
    try:
        connection, _ = server.accept()
    except TimeoutError:
        return False
    connection.close()
    return True


def test_without_any_layer_the_server_is_reached(server: socket.socket) -> None:
    ran = run("script", CONNECT.format(port=server.getsockname()[1]), without=LAYERS)
    assert ran.stdout == "sent\n"
    assert visited(server)


@pytest.mark.parametrize("layer", LAYERS)
def test_each_layer_alone_keeps_the_server_unvisited(layer: Layer, server: socket.socket) -> None:
    without = [other for other in LAYERS if other != layer]
    ran = run("script", CONNECT.format(port=server.getsockname()[1]), without=without)
    active = active_layers()
    is_here = layer in active or (layer == "namespaces" and "network namespace" in active)
    assert visited(server) is not is_here
    assert (ran.ending == "failed") is is_here


def test_all_together(server: socket.socket) -> None:
    port = server.getsockname()[1]
    for source in (
        CONNECT.format(port=port),
        f"import urllib.request; urllib.request.urlopen('http://127.0.0.1:{port}')",
        f"import _socket; _socket.socket(2, 1).connect(('127.0.0.1', {port}))",
        f"import socket; socket.socket(2, 2).sendto(b'x', ('127.0.0.1', {port}))",
        "import socket; socket.getaddrinfo('localhost', 80)",
    ):
        assert run("script", source).ending == "failed"
    assert not visited(server)
