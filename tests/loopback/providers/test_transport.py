"""A kept connection that the server closes while a request is on its way costs nothing; any other fault stays one."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import httpx2
import pytest

from conductor_core.providers.transport import AiohttpTransport

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
        httpx2.AsyncClient(transport=AiohttpTransport(), base_url=f"http://127.0.0.1:{port}") as client,
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


SILENCE_S = 0.3


class Dripping:
    """Sends the head of an answer, then a byte after each of ``pauses_s``."""

    def __init__(self, *pauses_s: float) -> None:
        self._pauses_s = pauses_s

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"a question")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(self._pauses_s))
        try:
            for pause_s in self._pauses_s:
                with suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(), pause_s)
                    return  # The client has left.
                writer.write(b".")
        finally:
            writer.close()


async def _drops(*pauses_s: float, reader_pause_s: float = 0.0) -> int:
    """How many bytes arrive of a dripping server; ``reader_pause_s``: before each is asked for."""
    received = 0
    server = await asyncio.start_server(Dripping(*pauses_s).serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    timeout = httpx2.Timeout(5.0, read=SILENCE_S)
    async with (
        server,
        httpx2.AsyncClient(transport=AiohttpTransport(), timeout=timeout) as client,
        client.stream("POST", url, content=b"a question") as answer,
    ):
        async for part in answer.aiter_raw():
            received += len(part)
            await asyncio.sleep(reader_pause_s)
    return received


async def test_an_answer_may_last_longer_than_its_longest_silence() -> None:
    assert await _drops(*[SILENCE_S / 6] * 12) == 12


async def test_silence_in_the_middle_of_an_answer_is_a_read_timeout() -> None:
    began_s = asyncio.get_running_loop().time()
    with pytest.raises(httpx2.ReadTimeout):
        await _drops(SILENCE_S / 6, SILENCE_S / 6, 60)
    assert asyncio.get_running_loop().time() - began_s < 30


async def test_a_reader_that_takes_its_time_is_no_silence() -> None:
    assert await _drops(0, SILENCE_S / 6, SILENCE_S / 6, reader_pause_s=2 * SILENCE_S) == 3
