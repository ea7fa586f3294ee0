"""Reads the body of an answer as text or as server-sent events, within bounds and only as UTF-8."""

import codecs
import io
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import suppress
from dataclasses import dataclass

import httpx2

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
