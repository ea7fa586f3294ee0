"""Runs httpx2 over aiohttp's connections: the same client and events for a third of the CPU time per stream.

Decision 0040 measures it, and says why it is not the published ``httpx-aiohttp``.
"""

import asyncio
import codecs
import errno
import functools
import io
import math
import ssl
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import SimpleNamespace

import aiohttp
import httpx2
import yarl
from aiohttp import http_exceptions

_CLOSED = (errno.ECONNRESET, errno.EPIPE)
_LARGE_BYTES = 1 << 20
KEEPALIVE_S = 4.0
"""Time to keep an idle connection. Common servers close theirs after 5 s."""
_FAILURES = (aiohttp.ClientError, http_exceptions.HttpProcessingError, TimeoutError, OSError)


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yields ``error`` and its causes, one after another."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


@functools.cache
def _tls() -> ssl.SSLContext:
    """Returns one context for the process, because reading the machine's certificates takes tens of milliseconds."""
    return httpx2.create_ssl_context()


class AiohttpTransport(httpx2.AsyncBaseTransport):
    """Opens a connection for each simultaneous request. The first request binds it to its event loop.

    It follows no redirect, decodes no body, keeps no cookie and reads no .netrc. Like httpx2 it uses the proxy that the
    environment names for the host. If the server closes a kept connection before a byte of the answer, because it was
    idle, the request is sent once more on a fresh connection.
    """

    def __init__(self, *, socket: str | None = None) -> None:
        """``socket``: the path of the Unix socket over which all requests go, whatever host they name."""
        self._socket = socket
        self._kept: aiohttp.ClientSession | None = None
        self._fresh: aiohttp.ClientSession | None = None
        # Read once, as httpx2 does: reading the environment takes as long as building a request.
        self._proxies = {} if socket is not None else urllib.request.getproxies()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Sends a request. Raises: httpx2.TransportError, from the error that aiohttp raised."""
        connection = SimpleNamespace(reused=False)
        if self._kept is None:
            self._kept = self._session(fresh=False)
        try:
            try:
                response = await self._sent(self._kept, request, connection)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                if not connection.reused or not _before_any_byte(error):
                    raise
                if self._fresh is None:
                    self._fresh = self._session(fresh=True)
                response = await self._sent(self._fresh, request, connection)
        except ValueError as error:
            raise httpx2.UnsupportedProtocol("the URL, the proxy's URL or a header cannot be used") from error
        except _FAILURES as error:
            raise _mapped(error) from error
        body = _Parts(response, request.extensions.get("timeout", {}).get("read"))
        return httpx2.Response(response.status, headers=list(response.raw_headers), stream=body, request=request)

    async def aclose(self) -> None:
        for session in (self._kept, self._fresh):
            if session is not None:
                await session.close()
        self._kept = self._fresh = None

    async def _sent(
        self, session: aiohttp.ClientSession, request: httpx2.Request, connection: SimpleNamespace
    ) -> aiohttp.ClientResponse:
        """Sends a request, and sets ``connection.reused`` if it went over a kept connection."""
        timeouts = request.extensions.get("timeout", {})
        return await session.request(
            request.method,
            yarl.URL(str(request.url), encoded=True),
            headers=request.headers.multi_items(),
            data=_payload(await request.aread()),
            allow_redirects=False,
            proxy=self._proxy_of(request.url),
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=timeouts.get("connect"), sock_read=timeouts.get("read")
            ),
            trace_request_ctx=connection,
        )

    def _session(self, *, fresh: bool) -> aiohttp.ClientSession:
        """Opens a session. ``fresh``: each request gets a new connection."""
        # limit 0 means no limit: the default of 100 connections would hold back further calls.
        connector: aiohttp.BaseConnector
        if self._socket is not None:
            connector = aiohttp.UnixConnector(self._socket, limit=0, force_close=True)
        elif fresh:
            connector = aiohttp.TCPConnector(ssl=_tls(), limit=0, force_close=True)
        else:
            connector = aiohttp.TCPConnector(ssl=_tls(), limit=0, keepalive_timeout=KEEPALIVE_S)
        watch = aiohttp.TraceConfig()
        watch.on_connection_reuseconn.append(_note_reuse)
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("accept", "accept-encoding", "user-agent", "content-type"),
            trace_configs=[watch],
        )

    def _proxy_of(self, url: httpx2.URL) -> str | None:
        """Returns the proxy for ``url``, if any. Raises: httpx2.ProxyError if it is no HTTP proxy."""
        proxy = self._proxies.get(url.scheme) or self._proxies.get("all")
        if proxy is None or urllib.request.proxy_bypass(url.host):  # the latter reads the environment again
            return None
        if not proxy.lower().startswith(("http://", "https://")):
            raise httpx2.ProxyError("only http and https proxies are supported")
        return proxy


def _payload(body: bytes) -> bytes | io.BytesIO | None:
    """Returns a body as aiohttp sends it in pieces, so that a large one does not hold up the loop."""
    return (body if len(body) < _LARGE_BYTES else io.BytesIO(body)) or None


async def _note_reuse(
    _session: aiohttp.ClientSession, context: SimpleNamespace, _parameters: aiohttp.TraceConnectionReuseconnParams
) -> None:
    context.trace_request_ctx.reused = True


def _before_any_byte(error: aiohttp.ClientError) -> bool:
    """Whether the server closed the connection before it sent anything."""
    if isinstance(error, aiohttp.ServerDisconnectedError):
        # If it is not text, the message is the beginning of an answer.
        return isinstance(error.message, str)
    return isinstance(error, ConnectionResetError | BrokenPipeError) or getattr(error, "errno", None) in _CLOSED


class _Parts(httpx2.AsyncByteStream):
    """Yields the parts of a body as they come.

    aiohttp resets its timer of ``silence_s`` for each part, which takes a tenth of a stream's time. Here one timer per
    body checks, when it is due, how long the wait for the next part has lasted.
    """

    def __init__(self, response: aiohttp.ClientResponse, silence_s: float | None) -> None:
        self._response = response
        self._silence_s = math.inf if silence_s is None else silence_s
        self._since_s = math.inf  # since when we wait for a part; infinite: nobody waits
        self._watch: asyncio.TimerHandle | None = None
        connection = response.connection
        if connection is not None and connection.protocol is not None:
            connection.protocol.read_timeout = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        loop, content = asyncio.get_running_loop(), self._response.content
        if self._silence_s < math.inf:
            self._watch = loop.call_later(self._silence_s, self._check_silence, loop)
        try:
            while True:
                self._since_s = loop.time()
                part = await content.readany()
                self._since_s = math.inf
                if not part:
                    break
                yield part
        except _FAILURES as error:
            raise _mapped(error) from error
        finally:
            if self._watch is not None:
                self._watch.cancel()

    def _check_silence(self, loop: asyncio.AbstractEventLoop) -> None:
        left_s = min(self._since_s - loop.time(), 0.0) + self._silence_s
        if left_s > 0:
            self._watch = loop.call_later(left_s, self._check_silence, loop)
        else:
            self._response.content.set_exception(aiohttp.SocketTimeoutError("nothing came for too long"))

    async def aclose(self) -> None:
        """Leaves the connection for the next request if the body was read to its end; else closes it at once."""
        if self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()


def _mapped(error: BaseException) -> httpx2.TransportError:
    """Returns the most specific of httpx2's errors, with aiohttp's text."""
    text = str(error) or type(error).__name__
    match error:
        case aiohttp.ConnectionTimeoutError():
            return httpx2.ConnectTimeout(text)
        case TimeoutError():
            return httpx2.ReadTimeout(text)
        case aiohttp.ClientProxyConnectionError() | aiohttp.ClientHttpProxyError():
            return httpx2.ProxyError(text)
        case aiohttp.ClientConnectorError():
            return httpx2.ConnectError(text)
        case aiohttp.ClientPayloadError() | aiohttp.ServerDisconnectedError():
            return httpx2.ReadError(text)
        case aiohttp.ClientResponseError() | http_exceptions.HttpProcessingError():
            return httpx2.RemoteProtocolError(text)
        case _:
            return httpx2.NetworkError(text)


# The body of an answer as text or as server-sent events, within bounds and only as UTF-8.

DOCUMENT, UNFINISHED = "document", "unfinished"
"""Names of what is no server-sent event: a JSON document in place of events, and data at the end of the body without
the empty line that ends an event. Such data may be cut off."""


@dataclass(frozen=True)
class Body:
    """A body that must be UTF-8 and must end within bounds. Read it once, by ``texts`` or by ``events``.

    httpx2 can read both too, but it passes each piece through eight generators, and it accepts invalid bytes.

    Attributes:
        parts: the bytes, as they come.
        most_bytes: the limit of the whole body in bytes. most_held: the limit of one event in characters.
        too_large, invalid: make the error that is raised.
    """

    parts: AsyncIterable[bytes]
    most_bytes: int
    most_held: int
    too_large: Callable[[], Exception]
    invalid: Callable[[], Exception]

    async def texts(self) -> AsyncGenerator[str]:
        """Yields the text, its lines ended by ``\\n``, and what comes before an invalid byte before the error."""
        utf8 = codecs.getincrementaldecoder("utf-8")()
        lines = io.IncrementalNewlineDecoder(utf8, translate=True)
        allowed, began = self.most_bytes, False
        async for part in self.parts:
            allowed -= len(part)
            if allowed < 0:
                raise self.too_large()
            held = len(utf8.getstate()[0])
            try:
                text = lines.decode(part)
                if not began and text:
                    text, began = text.removeprefix("\ufeff"), True  # a byte-order mark
                yield text
            except UnicodeDecodeError as error:
                yield lines.decode(part[: max(0, error.start - held)])
                raise self.invalid() from None
        with suppress(UnicodeDecodeError):  # half a character: the stream is cut
            yield lines.decode(b"", final=True)

    async def events(self) -> AsyncGenerator[tuple[str, str]]:
        """Yields name and data of each server-sent event that has data. Skips ids and comments.

        Format: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
        Besides, ``error:`` is read as data of an event of this name, as llama.cpp wrote it until 2025, and a body that
        begins as JSON does is one ``DOCUMENT``: some servers do not stream, whatever content type they give.
        """
        data: list[str] = []
        name = ""
        line: list[str] = []
        held = 0
        begun = whole = False
        async for text in self.texts():
            if not begun and (begun := bool(start := text.strip())):
                whole = start.startswith(("{", "["))
            first, *others = text.split("\n")
            if whole:
                first, others = text, []
            line.append(first)
            held += len(first)
            for other in others:
                said = "".join(line)
                field, _, value = said.partition(":")
                if field in ("data", "error"):
                    data.append(value.removeprefix(" "))
                    name = "error" if field == "error" else name
                elif said:
                    name = value.removeprefix(" ")[:40] if field == "event" else name
                    held -= len(said)
                else:
                    if event := "\n".join(data):
                        yield name, event
                    data, name, held = [], "", 0
                line = [other]
                held += len(other)
            if held > self.most_held:
                raise self.too_large()
        if whole:
            yield DOCUMENT, "".join(line)
            return
        field, _, value = "".join(line).partition(":")
        if rest := "\n".join([*data, value.removeprefix(" ")] if field == "data" else data):
            yield UNFINISHED, rest


def async_stream(response: httpx2.Response) -> httpx2.AsyncByteStream:
    """Returns the bytes of a response to an asynchronous client."""
    if not isinstance(response.stream, httpx2.AsyncByteStream):
        raise TypeError("an asynchronous client gave a synchronous body")
    return response.stream
