"""Servers that cannot be reached, fall silent or do not speak HTTP, proxies, and missing keys."""

import asyncio
import socket
import struct
from contextlib import aclosing
from typing import Any

import pytest

from conductor_core.chat.messages import TextDelta
from conductor_core.errors import (
    WorkerError,
    WorkerRefused,
    WorkerStreamCut,
    WorkerTimedOut,
    WorkerUnreachable,
)
from tests.support.asking import QUESTION, ask, fails, opened, text_of
from tests.support.provider import ScriptedProvider, delta, hang_after, sse


async def test_a_dead_server(provider: ScriptedProvider) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    caught, _ = await fails(provider.spec(base_url=f"http://127.0.0.1:{port}/v1"), WorkerUnreachable)
    assert f"127.0.0.1:{port} refuses connections" in str(caught)
    assert caught.retryable


async def test_a_host_that_does_not_exist(provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_such_name(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", no_such_name)
    caught, _ = await fails(provider.spec(base_url="http://models.invalid/v1"), WorkerUnreachable)
    assert "models.invalid cannot be found" in str(caught)


async def test_a_server_that_accepts_no_connection_in_time(
    provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conductor_core.providers.client.CONNECT_TIMEOUT_S", 0.05)
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(3)]
        for client in waiting:
            client.setblocking(False)
            client.connect_ex(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}/v1"
        caught, _ = await fails(provider.spec(base_url=url, timeout_s=5), WorkerUnreachable)
        for client in waiting:
            client.close()
    assert "did not accept a connection in time" in str(caught)


async def test_no_tls_where_tls_is_expected(provider: ScriptedProvider) -> None:
    async def speak_plainly(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(speak_plainly, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        caught, _ = await fails(provider.spec(base_url=f"https://127.0.0.1:{port}/v1"), WorkerUnreachable)
    assert "TLS" in str(caught)


@pytest.mark.parametrize(
    ("spoken", "kind", "told"),
    [
        (b"", WorkerUnreachable, "closed the connection without an answer"),
        (b"SSH-2.0-OpenSSH_9\r\n", WorkerUnreachable, "not HTTP; check base_url"),
        (b"HTTP/1.1 200 OK\r\ncontent-le", WorkerUnreachable, "closed the connection without an answer"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000 + b"\r\n\r\n", WorkerUnreachable, "not HTTP"),
        (
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            WorkerUnreachable,
            "not HTTP",
        ),
        (
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 99\r\n\r\ndata",
            WorkerStreamCut,
            "in the middle of its answer",
        ),
    ],
)
async def test_what_is_no_whole_http(
    provider: ScriptedProvider, spoken: bytes, kind: type[WorkerError], told: str
) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}]")
        writer.write(spoken)
        writer.close()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        caught, _ = await fails(provider.spec(base_url=f"http://127.0.0.1:{port}/v1"), kind)
    assert told in str(caught)


async def test_a_connection_that_is_reset_in_the_middle(provider: ScriptedProvider) -> None:
    go = asyncio.Event()

    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}]")
        event = sse(delta("half an ans"))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9999\r\n\r\n" + event)
        await go.wait()
        linger_not = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_not)
        writer.transport.abort()

    server = await asyncio.start_server(reset, "127.0.0.1", 0)
    spec = provider.spec(base_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
    worker = opened(spec)
    async with server, aclosing(worker.answer(QUESTION)) as chunks:
        assert await anext(chunks) == TextDelta(text="half an ans")
        go.set()
        with pytest.raises(WorkerStreamCut, match="in the middle of its answer"):
            await anext(chunks)
    await worker.aclose()


async def test_the_environments_proxy_is_used_and_its_exceptions_too(
    provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", provider.url.removesuffix("/v1"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert text_of(await ask(provider.spec(base_url="http://models.invalid/v1")))
    assert text_of(await ask(provider.spec()))
    paths = [call.path for call in provider.calls]
    assert paths == ["http://models.invalid/v1/chat/completions", "/v1/chat/completions"]


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:1", "socks5://127.0.0.1:1"])
async def test_a_proxy_that_is_no_use(provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv("http_proxy", proxy)
    monkeypatch.setenv("no_proxy", "")
    caught, _ = await fails(provider.spec(), WorkerUnreachable)
    assert "is not reachable through the proxy" in str(caught)


async def test_silence_times_out_before_and_in_the_middle_of_an_answer(provider: ScriptedProvider) -> None:
    provider.then(hang_after("half an ans"), hang_after())
    caught, partial = await fails(provider.spec(timeout_s=0.2), WorkerTimedOut)
    assert partial == "half an ans"
    assert "sent nothing for 0.2 s" in str(caught)
    await fails(provider.spec(timeout_s=0.2), WorkerTimedOut)


async def test_a_missing_key_is_refused_before_any_connection(
    provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = provider.connections
    for value in (None, "", "  "):
        if value is None:
            monkeypatch.delenv("TEST_KEY", raising=False)
        else:
            monkeypatch.setenv("TEST_KEY", value)
        caught, _ = await fails(provider.spec(api_key_env="TEST_KEY"), WorkerRefused)
        assert "TEST_KEY is not set" in str(caught)
    for unsent in ("clé secrète 7", "clé-secrète-7", "sk-0123456789\x07abcdef"):
        monkeypatch.setenv("TEST_KEY", unsent)
        caught, _ = await fails(provider.spec(api_key_env="TEST_KEY"), WorkerRefused)
        assert "TEST_KEY has characters that no key has" in str(caught)
        assert unsent[-6:] not in str(caught)
    assert provider.connections == before
