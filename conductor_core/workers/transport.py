"""httpx2 over aiohttp's connections: the same client and events, a third of the CPU time a stream.

Measured in ``benchmarks/provider_streams.py``; why it is not the published ``httpx-aiohttp``: decision 0040.
"""

import ssl
import urllib.request
from collections.abc import AsyncIterator

import aiohttp
import httpx2
import yarl
from aiohttp import http_exceptions

_FAILURES = (aiohttp.ClientError, http_exceptions.HttpProcessingError, TimeoutError, OSError)


class AiohttpTransport(httpx2.AsyncBaseTransport):
    """Connections are made on the first request, in its event loop, as many as there are requests at once.

    Follows no redirect, decodes no body, keeps no cookie, reads no .netrc; goes through the proxy that the environment
    names for the host, as httpx2 does.
    """

    def __init__(self, *, tls: ssl.SSLContext, keepalive_s: float) -> None:
        self._tls = tls
        self._keepalive_s = keepalive_s
        self._session: aiohttp.ClientSession | None = None
        # Read once, as httpx2 does: looking through the environment costs as much as building the request.
        self._proxies = urllib.request.getproxies()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises: httpx2.TransportError, from the error that aiohttp raised."""
        timeouts = request.extensions.get("timeout", {})
        try:
            response = await self._opened().request(
                request.method,
                yarl.URL(str(request.url), encoded=True),
                headers=request.headers.multi_items(),
                data=await request.aread() or None,
                allow_redirects=False,
                proxy=self._proxy_of(request.url),
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=timeouts.get("connect"), sock_read=timeouts.get("read")
                ),
            )
        except ValueError as error:
            raise httpx2.UnsupportedProtocol("the URL, the proxy's URL or a header cannot be used") from error
        except _FAILURES as error:
            raise _mapped(error) from error
        return httpx2.Response(
            response.status, headers=list(response.raw_headers), stream=_Body(response), request=request
        )

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            # limit 0: none; the default of 100 connections would hold back the calls above it.
            connector = aiohttp.TCPConnector(ssl=self._tls, limit=0, keepalive_timeout=self._keepalive_s)
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=("accept", "accept-encoding", "user-agent", "content-type"),
            )
        return self._session

    def _proxy_of(self, url: httpx2.URL) -> str | None:
        """Raises: httpx2.ProxyError for a proxy of another kind than HTTP."""
        if not self._proxies or urllib.request.proxy_bypass(url.host):
            return None
        proxy = self._proxies.get(url.scheme) or self._proxies.get("all")
        if proxy is not None and not proxy.lower().startswith(("http://", "https://")):
            raise httpx2.ProxyError("only http and https proxies are supported")
        return proxy


class _Body(httpx2.AsyncByteStream):
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while part := await self._response.content.readany():
                yield part
        except _FAILURES as error:
            raise _mapped(error) from error

    async def aclose(self) -> None:
        """A body read to its end leaves its connection for the next request; any other is closed at once."""
        if self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()


def _mapped(error: BaseException) -> httpx2.TransportError:
    """The most specific of httpx2's errors; the text is aiohttp's."""
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
