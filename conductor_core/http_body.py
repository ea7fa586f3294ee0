"""The body of a stream of events, held to UTF-8 and to a size while it is read."""

import codecs
from collections.abc import AsyncIterator, Callable

import httpx2


class StrictUtf8(httpx2.AsyncByteStream):
    """A body that must be UTF-8 and must end within bounds; the client's own decoding would replace invalid bytes.

    What comes before an invalid byte is passed on, also what comes in the same packet.

    Args:
        too_large, invalid: make the error that is raised.
    """

    def __init__(
        self,
        inner: httpx2.AsyncByteStream,
        most_bytes: int,
        *,
        too_large: Callable[[], Exception],
        invalid: Callable[[], Exception],
    ) -> None:
        self._inner = inner
        self._most_bytes = most_bytes
        self._too_large = too_large
        self._invalid = invalid

    async def __aiter__(self) -> AsyncIterator[bytes]:
        decoder = codecs.getincrementaldecoder("utf-8")("strict")
        allowed = self._most_bytes
        async for part in self._inner:
            allowed -= len(part)
            if allowed < 0:
                raise self._too_large()
            held = len(decoder.getstate()[0])
            try:
                decoder.decode(part)
            except UnicodeDecodeError as error:
                yield part[: max(0, error.start - held)]
                raise self._invalid() from None
            yield part

    async def aclose(self) -> None:
        await self._inner.aclose()


def async_stream(response: httpx2.Response) -> httpx2.AsyncByteStream:
    """The body of a response to an asynchronous client."""
    if not isinstance(response.stream, httpx2.AsyncByteStream):
        raise TypeError("an asynchronous client gave a synchronous body")
    return response.stream
