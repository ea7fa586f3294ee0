"""A kept connection that the server closes while a request is on its way costs nothing; any other fault stays one."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx2
import pytest

from conductor_core.transport import AiohttpTransport, tls

WHOLE = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
Spoken = Callable[[int, int], bytes | None]
"""What is said to a request, by the number of its connection and its place on it; None: the connection is reset."""


class Server:
    """Counts connections and requests, and closes a connection after anything but a whole answer."""

    def __init__(self, spoken: Spoken) -> None:
        self.connections, self.requests = 0, 0
        self._spoken = spoken

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection, place = self.connections, 0
        self.connections += 1
        try:
            while True:
                await reader.readuntil(b"a question")
                self.requests += 1
                said = self._spoken(connection, place)
                place += 1
                if said is None:
                    writer.transport.abort()
                    return
                writer.write(said)
                await writer.drain()
                if said != WHOLE:
                    return
        except asyncio.IncompleteReadError:
            return
        finally:
            writer.close()


@asynccontextmanager
async def calling(spoken: Spoken) -> AsyncIterator[tuple[Server, httpx2.AsyncClient]]:
    there = Server(spoken)
    server = await asyncio.start_server(there.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with (
        server,
        httpx2.AsyncClient(transport=AiohttpTransport(tls=tls()), base_url=f"http://127.0.0.1:{port}") as client,
    ):
        yield there, client


async def ask(client: httpx2.AsyncClient) -> str:
    return (await client.post("/", content=b"a question")).text


@pytest.mark.parametrize("closing", [b"", None], ids=["closed", "reset"])
async def test_a_kept_connection_that_closes_before_any_byte_is_retried_at_once_on_a_fresh_one(
    closing: bytes | None,
) -> None:
    async with calling(lambda connection, place: closing if (connection, place) == (0, 1) else WHOLE) as (
        there,
        client,
    ):
        assert [await ask(client), await ask(client)] == ["ok", "ok"]
    assert (there.connections, there.requests) == (2, 3)


async def test_it_is_retried_once_only() -> None:
    async with calling(lambda connection, place: WHOLE if (connection, place) == (0, 0) else b"") as (there, client):
        assert await ask(client) == "ok"
        with pytest.raises(httpx2.ReadError):
            await ask(client)
    assert (there.connections, there.requests) == (2, 3)


@pytest.mark.parametrize("closing", [b"", None], ids=["closed", "reset"])
async def test_a_fresh_connection_that_closes_is_a_fault(closing: bytes | None) -> None:
    async with calling(lambda connection, place: closing) as (there, client):
        with pytest.raises(httpx2.TransportError):
            await ask(client)
    assert (there.connections, there.requests) == (1, 1)


async def test_the_beginning_of_an_answer_is_not_asked_for_again() -> None:
    begun = b"HTTP/1.1 200 OK\r\ncontent-le"
    async with calling(lambda connection, place: begun if place else WHOLE) as (there, client):
        assert await ask(client) == "ok"
        with pytest.raises(httpx2.TransportError):
            await ask(client)
    assert (there.connections, there.requests) == (1, 2)
