"""Runs httpx2 over aiohttp's connections: the same client and events for a third of the CPU time per stream.

Decision 0040 measures it, and says why it is not the published ``httpx-aiohttp``.
"""

import asyncio
import errno
import functools
import math
import ssl
import urllib.request
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace

import aiohttp
import httpx2
import yarl
from aiohttp import http_exceptions

_CLOSED = (errno.ECONNRESET, errno.EPIPE)
KEEPALIVE_S = 4.0
"""Time to keep an idle connection. Common servers close theirs after 5 s."""
_FAILURES = (aiohttp.ClientError, http_exceptions.HttpProcessingError, TimeoutError, OSError)


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yields ``error`` and its causes, one after another."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def no_certificate(error: BaseException) -> bool:
    """Whether a connection failed because the server has no trusted certificate."""
    return any(isinstance(cause, ssl.SSLError) for cause in causes(error))


@functools.cache
def tls() -> ssl.SSLContext:
    """Returns one context for the process, because reading the machine's certificates takes tens of milliseconds."""
    return httpx2.create_ssl_context()


class AiohttpTransport(httpx2.AsyncBaseTransport):
    """Opens a connection for each simultaneous request. The first request binds it to its event loop.

    It follows no redirect, decodes no body, keeps no cookie and reads no .netrc. Like httpx2 it uses the proxy that the
    environment names for the host. If the server closes a kept connection before a byte of the answer, because it was
    idle, the request is sent once more on a fresh connection.
    """

    def __init__(self, *, tls: ssl.SSLContext) -> None:
        self._tls = tls
        self._kept: aiohttp.ClientSession | None = None
        self._fresh: aiohttp.ClientSession | None = None
        # Read once, as httpx2 does: reading the environment takes as long as building a request.
        self._proxies = urllib.request.getproxies()

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
        body = _Body(response, request.extensions.get("timeout", {}).get("read"))
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
            data=await request.aread() or None,
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
        if fresh:
            connector = aiohttp.TCPConnector(ssl=self._tls, limit=0, force_close=True)
        else:
            connector = aiohttp.TCPConnector(ssl=self._tls, limit=0, keepalive_timeout=KEEPALIVE_S)
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
        if not self._proxies or urllib.request.proxy_bypass(url.host):
            return None
        proxy = self._proxies.get(url.scheme) or self._proxies.get("all")
        if proxy is not None and not proxy.lower().startswith(("http://", "https://")):
            raise httpx2.ProxyError("only http and https proxies are supported")
        return proxy


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


class _Body(httpx2.AsyncByteStream):
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
