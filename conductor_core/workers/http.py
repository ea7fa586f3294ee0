"""Workers behind an HTTP interface: each call is one POST, and its answer is read as server-sent events.

HttpWorker.answer      takes messages, yields chunks; the finish reason decides the end
  Dialect              what is sent and how an event is read: openai.py, anthropic.py
  Exchange             one POST over httpx2: status, content type, bounds, events as JSON objects
  MaskedChunks         what the worker says, with the keys in it hidden
  faults               turns everything that goes wrong into one of our errors
"""

import asyncio
import functools
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, Protocol

import httpx2
import pydantic_core

from conductor_core import __version__
from conductor_core.chat.messages import Chunk, Finished, Message, ReasoningDelta, TextDelta, WorkerSpec
from conductor_core.chat.responses import hidden
from conductor_core.errors import (
    WorkerError,
    WorkerFailed,
    WorkerKeyRefused,
    WorkerOutputTooLarge,
    WorkerRefused,
    WorkerStreamCut,
)
from conductor_core.privacy import masking
from conductor_core.privacy.masking import Mask, MaskedText, one_line
from conductor_core.providers import errors
from conductor_core.providers.errors import ErrorReply, read_error_reply
from conductor_core.providers.sse import Body, async_stream
from conductor_core.providers.transport import AiohttpTransport, tls
from conductor_core.workers import faults
from conductor_core.workers.thoughts import Thoughts

MOST_AT_ONCE = 32_768
"""Characters that are looked through before others may run: some milliseconds, however full of keys they are."""


class MaskedChunks:
    """The chunks of one answer. Text and thinking are a stream each: no key begins in one and ends in the other."""

    def __init__(self, mask: Mask) -> None:
        self._text = MaskedText(mask)
        self._reasoning = MaskedText(mask)

    def feed(self, chunk: TextDelta | ReasoningDelta) -> Iterable[TextDelta | ReasoningDelta | None]:
        """What of the answer can be shown now; None between the parts of a long one: others may run there."""
        kind, text = type(chunk), chunk.text
        stream = self._text if kind is TextDelta else self._reasoning
        if len(text) > MOST_AT_ONCE:
            return self._in_parts(kind, stream, text)
        shown = stream.feed(text)
        if shown == text:
            return (chunk,)
        return (kind(text=shown),) if shown else ()

    def _in_parts(
        self, kind: type[TextDelta | ReasoningDelta], stream: MaskedText, text: str
    ) -> Iterator[TextDelta | ReasoningDelta | None]:
        for at in range(0, len(text), MOST_AT_ONCE):
            if shown := stream.feed(text[at : at + MOST_AT_ONCE]):
                yield kind(text=shown)
            yield None

    def end(self) -> Iterator[TextDelta | ReasoningDelta]:
        """What was held back: nothing follows any more."""
        if rest := self._reasoning.end():
            yield ReasoningDelta(text=rest)
        if rest := self._text.end():
            yield TextDelta(text=rest)


CONNECT_TIMEOUT_S = 10.0
TAIL_S = 2.0
"""How long after the finish reason the rest (usage figures) is waited for, however much of it comes."""
MARGIN_S = 0.05
"""So long before the time limit of an attempt an answer that is whole is taken as it is."""
DRAIN_S = 0.2
"""How long the end of the bytes is waited for after ``[DONE]``, so that the connection can be used again."""
_ERROR_BODY_BYTES = 64 * 1024
_ERROR_BODY_S = 5.0
_WIRE_BYTES_PER_OUTPUT_BYTE = 128
"""An event carries a few characters in some hundred bytes of JSON; a stream beyond this ratio is not an answer."""


_HEADERS = {"user-agent": f"conductor-inspector/{__version__}", "accept-encoding": "identity"}
_ASKED_FOR = {
    **_HEADERS,
    "accept": "text/event-stream",
    "cache-control": "no-store",
    "content-type": "application/json",
}
_TO_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
"""httpx2's own form of JSON. It makes an encoder for each request, which takes as long as the rest of the request."""


class Reader(Protocol):
    """Reads one answer, event by event. Implemented for OpenAI's and Anthropic's events."""

    @property
    def complete(self) -> bool:
        """Whether the provider has given the reason why the answer ended."""
        ...

    @property
    def extras_size(self) -> int:
        """The number of characters kept beside the text: of a refusal and of tool calls."""
        ...

    def feed(self, event: Mapping[str, Any]) -> Sequence[TextDelta | ReasoningDelta]:
        """Returns the text of one event. Raises: ValueError that names what does not belong in an answer."""
        ...

    def finished(self) -> Finished:
        """Returns what is known at the end of a complete answer."""
        ...


class Dialect(Protocol):
    """Speaks a provider's protocol. Implemented for OpenAI and Anthropic."""

    def url(self, spec: WorkerSpec) -> str: ...

    def models_url(self, spec: WorkerSpec) -> str:
        """Returns a URL where a GET shows cheaply that the provider is there and accepts the key."""
        ...

    def headers(self, key: str | None) -> dict[str, str]: ...

    def body(self, spec: WorkerSpec, messages: Sequence[Message]) -> dict[str, Any]: ...

    def simpler(self, body: Mapping[str, Any], complaint: str) -> dict[str, Any] | None:
        """Returns ``body`` without the optional part that a 400 or 422 complains about; None: there is none."""
        ...

    def reader(self) -> Reader: ...


def read_key(spec: WorkerSpec) -> str | None:
    """Reads the worker's key from the environment; None if it needs none. Masks it everywhere from now on.

    Raises: WorkerRefused, with the variable's name, if the key is missing or cannot be sent. No message holds the key.
    """
    if spec.api_key_env is None:
        return None
    key = os.environ.get(spec.api_key_env, "").strip()
    if not key:
        raise WorkerKeyRefused(
            f"worker {spec.name}: the environment variable {spec.api_key_env} is not set; put the key in it"
        )
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise WorkerKeyRefused(
            f"worker {spec.name}: the value of {spec.api_key_env} has characters that no key has; set it again"
        )
    masking.remember(key)
    return key


def open_client(spec: WorkerSpec) -> httpx2.AsyncClient:
    """Opens a client that follows no redirect, asks for plain bytes, and keeps its connections for the next call."""
    return httpx2.AsyncClient(
        transport=AiohttpTransport(tls=tls()), headers=_HEADERS, timeout=_timeout(spec), follow_redirects=False
    )


def _timeout(spec: WorkerSpec) -> httpx2.Timeout:
    return httpx2.Timeout(spec.timeout_s, connect=min(CONNECT_TIMEOUT_S, spec.timeout_s))


def _too_large(spec: WorkerSpec) -> WorkerOutputTooLarge:
    return WorkerOutputTooLarge(
        f"worker {spec.name}: sent more than the {spec.max_output_bytes:,} bytes it may; "
        "raise max_output_bytes or lower max_tokens"
    )


class Exchange:
    """One POST and the JSON objects of its answer. Made by ``exchange``; iterate it once."""

    def __init__(self, spec: WorkerSpec, response: httpx2.Response, limit_s: float) -> None:
        """``limit_s``: when the attempt must end, by the event loop's clock."""
        self.response = response
        self._spec = spec
        self._limit_s = limit_s
        self._until_s: float | None = None

    def is_whole(self) -> None:
        """Notes that the finish reason has come: all that follows is waited for only briefly."""
        if self._until_s is None:
            self._until_s = min(asyncio.get_running_loop().time() + TAIL_S, self._limit_s - MARGIN_S)

    async def complaint(self) -> ErrorReply:
        """Returns what the body of an error reply says, bounded in bytes and time; empty: nothing for people."""
        response = self.response
        if _encoding_of(response):
            return ErrorReply()
        body = bytearray()
        try:
            async with asyncio.timeout(_ERROR_BODY_S):
                async with aclosing(response.aiter_raw()) as parts:
                    async for part in parts:
                        body += part
                        if len(body) >= _ERROR_BODY_BYTES:
                            break
        except (TimeoutError, httpx2.TransportError):
            return ErrorReply()
        return read_error_reply(bytes(body[:_ERROR_BODY_BYTES]), response.headers.get("content-type", ""))

    async def events(self) -> AsyncGenerator[dict[str, Any]]:
        """Yields the answer's events, or the one JSON document of a server without streaming. Raises: WorkerError."""
        headers, name = self.response.headers, self._spec.name
        if encoding := _encoding_of(self.response):
            raise WorkerRefused(
                f"worker {name}: sent a compressed answer ({encoding}) though asked not to; turn compression off there"
            )
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "text/event-stream":
            async with aclosing(self._body().data()) as source:
                while (data := await self._next(source)) is not None:
                    yield self._parse(data)
        elif kind == "application/json" or kind.endswith("+json"):
            yield self._parse(await self._whole_body())
        else:
            shown = one_line(kind, limit=60) or "no content type"
            raise WorkerRefused(
                f"worker {name}: answered with {shown} instead of an event stream; check that base_url is an API's"
            )

    async def _next(self, source: AsyncGenerator[str]) -> str | None:
        """Returns the next event's data; None at the end."""
        try:
            if self._until_s is None:
                data = await anext(source)
            else:
                async with asyncio.timeout_at(self._until_s):
                    data = await anext(source)
        except (StopAsyncIteration, TimeoutError):
            return None
        if data == "[DONE]":
            await _drain(source)
            return None
        return data

    def _body(self) -> Body:
        spec = self._spec
        return Body(
            async_stream(self.response),
            most_bytes=spec.max_output_bytes * _WIRE_BYTES_PER_OUTPUT_BYTE,
            most_held=event_bytes(spec),
            too_large=lambda: _too_large(spec),
            invalid=lambda: WorkerFailed(f"worker {spec.name}: sent bytes that are not UTF-8; try again"),
        )

    async def _whole_body(self) -> str:
        parts: list[str] = []
        size = 0
        async with aclosing(self._body().texts()) as texts:
            async for text in texts:
                size += len(text)
                if size > event_bytes(self._spec):
                    raise _too_large(self._spec)
                parts.append(text)
        return "".join(parts)

    def _parse(self, text: str) -> dict[str, Any]:
        """Parses one JSON object. Raises: WorkerError, also for an error object."""
        parsed = _parsed(text)
        if not isinstance(parsed, dict):
            raise WorkerFailed(f"worker {self._spec.name}: sent something that is not a JSON object; try again")
        error = parsed if parsed.get("object") == "error" else parsed.get("error")
        if error:
            raise faults.from_error_object(self._spec, self.response.url, error)
        return parsed


def _parsed(text: str) -> Any:
    """Returns what a JSON text says; None if it is no JSON."""
    try:
        return pydantic_core.from_json(text)  # in half the time
    except ValueError:
        # Only Python's own takes half a character, which some servers send.
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return None


def _rest(masked: MaskedChunks, thoughts: Thoughts) -> Iterator[TextDelta | ReasoningDelta]:
    """What was held back: nothing follows any more."""
    for rest in masked.end():
        yield from thoughts.feed(rest)
    yield from thoughts.rest()


def event_bytes(spec: WorkerSpec) -> int:
    """Returns the largest event to hold in memory: a whole answer in one event, with its characters escaped."""
    return 2 * spec.max_output_bytes + 64 * 1024


def _encoding_of(response: httpx2.Response) -> str:
    encoding = response.headers.get("content-encoding", "").strip().lower()
    return "" if encoding == "identity" else one_line(encoding, limit=40)


async def _drain(source: AsyncIterator[str]) -> None:
    try:
        async with asyncio.timeout(DRAIN_S):
            async for _ in source:
                pass
    except (TimeoutError, httpx2.TransportError, WorkerError):
        # The answer is whole; a connection that does not end cleanly is simply not used again.
        return


class HttpWorker:
    """Answers steps through one provider. Its connections belong to the event loop that first used it."""

    def __init__(self, spec: WorkerSpec, dialect: Dialect) -> None:
        self._spec = spec
        self._dialect = dialect
        # Without httpx2's client around it, whose redirects, cookies and sign-ins no worker uses.
        self._transport: httpx2.AsyncBaseTransport | None = None
        self._extensions = {"timeout": _timeout(spec).as_dict()}
        self._headers: tuple[str | None, httpx2.Headers] | None = None  # of the key that was sent last
        self._refused_option: str | None = None

    @property
    def spec(self) -> WorkerSpec:
        return self._spec

    @property
    def dialect(self) -> Dialect:
        return self._dialect

    async def answer(self, messages: Sequence[Message]) -> AsyncGenerator[Chunk]:
        """Streams an answer, see ``Worker.answer``. Refuses a missing key before it connects.

        It masks the keys that this process knows in all that it yields or raises.
        """
        try:
            key = read_key(self._spec)
            body = self._dialect.body(self._spec, messages)
            if self._refused_option is not None:
                body = self._dialect.simpler(body, self._refused_option) or body
            while True:
                async with self._post(body, key) as sent:
                    if sent.response.status_code == 200:
                        async with aclosing(self._read(sent)) as chunks:
                            async for chunk in chunks:
                                yield chunk
                        return
                    body = await self._simpler_or_raise(sent, body)
        except WorkerError as error:
            error.args = (masking.known().text(str(error)),)
            raise

    async def aclose(self) -> None:
        if self._transport is not None:
            await self._transport.aclose()
            self._transport = None

    @functools.cached_property
    def _url(self) -> httpx2.URL:
        try:
            return httpx2.URL(self._dialect.url(self._spec))
        except httpx2.InvalidURL:
            raise WorkerRefused(f"worker {self._spec.name}: its base_url is not a URL; correct it") from None

    def _headers_with(self, key: str | None) -> httpx2.Headers:
        """Returns what is sent beside the body. Made once a key: that takes as long as the rest of the request."""
        if self._headers is None or self._headers[0] != key:
            headers = {**_ASKED_FOR, **self._dialect.headers(key)}
            self._headers = key, httpx2.Headers(headers, encoding="ascii")
        return self._headers[1]

    @asynccontextmanager
    async def _post(self, body: Mapping[str, Any], key: str | None) -> AsyncGenerator[Exchange]:
        """Sends ``body`` and yields the reply. Raises: WorkerError for a fault of the connection, reading included."""
        url = self._url
        if self._transport is None:
            self._transport = AiohttpTransport(tls=tls())
        answering, limit_s = False, asyncio.get_running_loop().time() + self._spec.timeout_s
        try:
            content = httpx2.ByteStream(_TO_JSON.encode(dict(body)).encode())
            headers = self._headers_with(key)
            request = httpx2.Request("POST", url, headers=headers, stream=content, extensions=self._extensions)
            response = await self._transport.handle_async_request(request)
            try:
                answering, response.request = True, request
                yield Exchange(self._spec, response, limit_s)
            finally:
                await response.aclose()
        except httpx2.TransportError as error:
            raise faults.from_transport(self._spec, url, error, answering=answering) from error

    async def _simpler_or_raise(self, sent: Exchange, body: Mapping[str, Any]) -> dict[str, Any]:
        response = sent.response
        said = await sent.complaint()
        simpler = self._dialect.simpler(body, said.text) if response.status_code in (400, 422) else None
        if simpler is None:
            wait_s = errors.retry_after_s(response.headers)
            raise faults.from_status(self._spec, response.url, response.status_code, said, wait_s)
        # Remembered, so that a server without the option is asked in vain once and not at each call.
        self._refused_option = said.text
        return simpler

    async def _read(self, sent: Exchange) -> AsyncGenerator[Chunk]:
        reader, mask = self._dialect.reader(), masking.known()
        masked, allowed = MaskedChunks(mask), self._spec.max_output_bytes
        thoughts = Thoughts(passed=self._spec.pass_reasoning)
        try:
            async with aclosing(sent.events()) as events:
                async for event in events:
                    for chunk in self._feed(reader, event):
                        allowed -= len(chunk.text.encode())
                        if allowed < 0:
                            raise _too_large(self._spec)
                        for shown in masked.feed(chunk):
                            if shown is None:
                                await asyncio.sleep(0)
                            else:
                                for part in thoughts.feed(shown):
                                    yield part
                    if reader.extras_size > allowed:
                        raise _too_large(self._spec)
                    if reader.complete:
                        sent.is_whole()
        except (httpx2.TransportError, WorkerError):
            for part in _rest(masked, thoughts):
                yield part
            # After the finish reason the answer is whole: only usage figures can be missing.
            if not reader.complete:
                raise
        for part in _rest(masked, thoughts):
            yield part
        if not reader.complete:
            raise WorkerStreamCut(
                f"worker {self._spec.name}: the stream ended without a finish reason, so the answer is not whole; "
                "try again"
            )
        yield hidden(reader.finished(), mask)

    def _feed(self, reader: Reader, event: Mapping[str, Any]) -> Sequence[TextDelta | ReasoningDelta]:
        try:
            return reader.feed(event)
        except ValueError as error:
            raise WorkerFailed(
                f"worker {self._spec.name}: sent {error}; check that base_url is such an API's"
            ) from error
