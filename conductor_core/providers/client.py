"""Asks a model at a server: each call is one POST, and its answer is read as server-sent events.

ModelClient.ask        takes a request, yields chunks; decides whether the answer is whole
  Dialect, Reader      what is sent and how an event is read: openai.py, anthropic.py
  Exchange             one POST over httpx2: status, content type, bounds, events as JSON objects
  answer_text          takes reasoning and template tokens off the text
  errors               turns everything that goes wrong into a ``ServerFault``

Workers and Conductors of every provider ask through it, so that one reader knows what models write.
"""

import asyncio
import functools
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import httpx2
import pydantic_core

from conductor_core import __version__
from conductor_core.chat.messages import (
    NO_TERMS,
    CallTerms,
    Chunk,
    Departure,
    Finished,
    FinishReason,
    Message,
    ReasoningDelta,
    TextDelta,
    WorkerSpec,
)
from conductor_core.chat.usage import ReportedUsage, estimate_input_tokens
from conductor_core.privacy import masking
from conductor_core.privacy.masking import GONE, TYPED_KEY, Mask, MaskedText, TypedKeys, is_quoted, one_line
from conductor_core.providers.answer_text import AnswerText, Delta, ResponseExtras, hidden
from conductor_core.providers.errors import (
    ErrorReply,
    ServerFault,
    error_reply_of,
    fault_of_connection,
    fault_of_reply,
    kind_of,
    read_error_reply,
    retry_after_s,
)
from conductor_core.providers.transport import DOCUMENT, UNFINISHED, AiohttpTransport, Body, async_stream
from conductor_core.text import Pieces, whole_characters

CONNECT_TIMEOUT_S = 10.0
TAIL_S = 2.0
"""How long after the finish reason the rest (usage figures) is waited for. Text that still comes renews the wait."""
DOUBTED_TAIL_S = 15.0
"""The same where the finish reason came with text: some servers write one into every event."""
MARGIN_S = 0.05
"""So long before the time limit of an attempt an answer that is whole is taken as it is."""
DRAIN_S = 0.2
"""How long the end of the bytes is waited for after the end marker, so that the connection can be used again."""
_ERROR_BODY_BYTES = 64 * 1024
_ERROR_BODY_S = 5.0
_WIRE_BYTES_PER_OUTPUT_BYTE = 128
"""An event carries a few characters in some hundred bytes of JSON; a stream beyond this ratio is not an answer."""
_WORDS: dict[FinishReason, str] = {
    "stop": "stop end_turn eos eos_token stop_sequence stop_token complete completed",
    "length": "length max_tokens model_context_window_exceeded model_length",
    "content_filter": "content_filter content-filter safety sensitive recitation prohibited_content",
    "refusal": "refusal",
    "tool_calls": "tool_calls tool_use function_call",
}
_REASONS = {word: reason for reason, words in _WORDS.items() for word in words.split()}
_NO_REASON = frozenset({"", "null", "none", "undefined"})
"""Finish reasons that are none: some servers write them into every event."""
_FAILURES = frozenset({"error", "network_error", "insufficient_system_resource"})
"""Finish reasons of OpenRouter, Z.ai and DeepSeek that say that the server failed in the middle of an answer."""
_END_MARK = re.compile(r"\s*(?:data:\s*)?\[DONE\]\s*\Z")
"""Also behind the one document of a server that does not stream."""
_RENAMED = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_TOGETHER = {"logprobs": ("top_logprobs",), "top_logprobs": ("logprobs",)}
_FIXED = frozenset({"model", "messages", "stream", "system"})
"""What a request cannot do without."""
_NO_SYSTEM = re.compile(
    r"system (?:role|message|prompt)s?.{0,40}(?:not|un)[ -]?(?:supported|allowed|enabled)|unexpected role|invalid role"
    r"|(?:does not|doesn't) support (?:a )?(?:system|developer)|roles must alternate"
    r"|developer instruction is not enabled"
    r"|only (?:the )?user\b.{0,40}\broles? (?:is|are) (?:supported|allowed)",
    re.IGNORECASE | re.DOTALL,
)
"""Words of chat templates without a system role (Gemma, Mistral 7B) behind llama.cpp, vLLM and Google."""
_REFUSAL = re.compile(
    r"support|unknown|unrecogni[sz]ed|unexpected|invalid|not (?:allowed|permitted|valid)|\bextra\b|deprecated|\bmust\b",
    re.IGNORECASE,
)
_REFUSES = frozenset({200, 400, 403, 404, 416, 422, 500, 501})
"""Statuses under which servers refuse a part of a request; 200: in the first event of a stream."""

_HEADERS = {"user-agent": f"conductor-inspector/{__version__}", "accept-encoding": "identity"}
_ASKED_FOR = {
    **_HEADERS,
    "accept": "text/event-stream",
    "cache-control": "no-store",
    "content-type": "application/json",
}


class NoPart(ValueError):
    """An event that is not part of an answer. It is passed over, unless nothing else comes."""


Pieced = list[TextDelta | ReasoningDelta]


class Reader(ABC):
    """Reads one answer, event by event; ``feed`` is the dialect's own.

    Attributes:
        stopped: whether an event said that nothing follows.
        logprobs: what the events told of the probabilities of tokens, as it came.
    """

    def __init__(self) -> None:
        self.stopped = False
        self.logprobs: list[Any] = []
        self._reason: FinishReason | None = None
        self._cost_usd: float | None = None
        self._model: str | None = None
        self._text, self._reasoning = Pieces(), Pieces()
        self._said: list[str] = []
        self._thoughts: list[str] = []
        self._extras = ResponseExtras()
        self._usage = ReportedUsage()

    @abstractmethod
    def feed(self, event: Mapping[str, Any]) -> Pieced:
        """Returns the text of one event. Raises: NoPart; ValueError that names what does not belong in an answer."""

    @property
    def complete(self) -> bool:
        """Whether the server has given a reason why the answer ended."""
        return self._reason is not None

    @property
    def extras_size(self) -> int:
        """The number of characters kept beside the text: of a refusal, of tool calls and of unknown fields."""
        return self._extras.size

    def ended(self) -> None:
        """Notes that the end marker came: without a reason the model was done."""
        self._reason = self._reason or "stop"

    def finished(self, prompt_tokens: int = 0) -> Finished:
        """Returns what is known at the end of a whole answer. ``prompt_tokens``: an estimate, if no server says it."""
        return Finished(
            finish_reason=self._reason or "other",
            usage=self._usage.of("".join((*self._thoughts, *self._said)), prompt_tokens),
            cost_usd=self._cost_usd,
            model=self._model,
            refusal=self._extras.refusal,
            tool_calls=self._extras.tool_calls,
        )

    def _say(self, text: str) -> Pieced:
        if joined := self._text.feed(text):
            self._said.append(joined)
        return [TextDelta(text=joined)] if joined else []

    def _think(self, text: str) -> Pieced:
        if joined := self._reasoning.feed(text):
            self._thoughts.append(joined)
        return [ReasoningDelta(text=joined)] if joined else []

    def _name(self, model: Any) -> None:
        if isinstance(model, str) and model and model != self._model:
            self._model = whole_characters(model)

    def _end(self, reason: Any) -> None:
        """Takes the reason of an end, if it is one. Raises: ValueError if it says that the server failed."""
        if isinstance(reason, str) and (word := reason.strip().lower()) not in _NO_REASON:
            if word in _FAILURES:
                raise ValueError(f"the finish reason '{word}' without saying which")
            self._reason = _REASONS.get(word, "other")


class Dialect(Protocol):
    """Speaks a provider's protocol. Implemented for OpenAI and Anthropic."""

    def url(self, spec: WorkerSpec) -> str: ...

    def models_url(self, spec: WorkerSpec) -> str:
        """Returns a URL where a GET shows cheaply that the provider is there and accepts the key."""
        ...

    def headers(self, key: str | None) -> dict[str, str]: ...

    def body(self, spec: WorkerSpec, messages: Sequence[Message], terms: CallTerms = NO_TERMS) -> dict[str, Any]:
        """Returns the request. Raises: ServerFault for messages that the protocol cannot say."""
        ...

    def reader(self) -> Reader: ...


def read_key(spec: WorkerSpec, who: str, keys: TypedKeys | None = None) -> str | None:
    """Reads the key from the environment, or a typed one from ``keys``; None if none is needed. Masks it from now on.

    Raises: ServerFault, with the variable's name, if the key is missing or cannot be sent. No message holds the key.
    """
    if spec.api_key_env is None:
        return None
    if spec.api_key_env == TYPED_KEY:
        typed = None if keys is None else keys.of(spec.base_url)
        if typed is None:
            raise ServerFault("key", f"{who}: {GONE}")
        return typed
    key = os.environ.get(spec.api_key_env, "").strip()
    if not key:
        raise ServerFault("key", f"{who}: the environment variable {spec.api_key_env} is not set; put the key in it")
    masking.remember(key)
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ServerFault("key", f"{who}: the value of {spec.api_key_env} has characters that no key has; set it again")
    return key


def open_client(spec: WorkerSpec) -> httpx2.AsyncClient:
    """Opens a client that follows no redirect, asks for plain bytes, and keeps its connections for the next call."""
    return httpx2.AsyncClient(
        transport=AiohttpTransport(),
        headers=_HEADERS,
        timeout=_timeout(spec.timeout_s),
        follow_redirects=False,
    )


def _timeout(silence_s: float) -> httpx2.Timeout:
    return httpx2.Timeout(silence_s, connect=min(CONNECT_TIMEOUT_S, silence_s))


# What a server says, with the keys in it hidden.

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


@dataclass
class Refusals:
    """What one server refuses for one model, so that it is asked in vain once and not at each call.

    Attributes:
        left_out: parameters that it refuses. renamed: those that it wants under another name.
        system_in_user: whether the model has no system role.
        ours: whether it is our own server, which knows all that we send: nothing is left out then.
    """

    left_out: list[str] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)
    system_in_user: bool = False
    ours: bool = False

    def applied(self, body: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Departure, ...]]:
        """Returns the request as this server takes it, and how it departs from ``body``."""
        sent, departures = dict(body), []
        for name, other in self.renamed.items():
            if name in sent:
                sent.setdefault(other, sent.pop(name))
                departures.append(Departure(kind="renamed", what=name, text=other))
        for name in self.left_out:
            if name in sent:
                del sent[name]
                departures.append(Departure(kind="left_out", what=name))
        if self.system_in_user and isinstance(turns := sent.get("messages"), list):
            merged = _without_system(turns)
            if merged != turns:
                sent["messages"] = merged
                departures.append(Departure(kind="system_in_user", what="system"))
        return sent, tuple(departures)

    def learn(
        self, body: Mapping[str, Any], status: int, said: ErrorReply, unnamed: Sequence[Sequence[str]], tried: list[str]
    ) -> bool:
        """Learns from a refusal of ``body``. Returns whether another request may be accepted.

        Args:
            unnamed: parameters of ours to leave out, in this order, where the refusal names none.
            tried: gets what is left out in this way.
        """
        if status not in _REFUSES:
            return False
        roles = [turn.get("role") for turn in body.get("messages", ()) if isinstance(turn, dict)]
        if "system" in roles and not self.system_in_user and _NO_SYSTEM.search(said.whole):
            self.system_in_user = True
            return True
        if self.ours or kind_of(status, said) not in ("refused", "failed", "key"):
            return False
        # What a server says when it breaks or closes its door may hold the name of a parameter by chance.
        by_chance = status in (403, 500, 501) and not said.parameter and not _REFUSAL.search(said.whole)
        if not by_chance and (name := _named(body, said)) is not None:
            other = _RENAMED.get(name)
            if other is not None and other not in self.left_out and other not in self.renamed:
                self.renamed[name] = other
            else:
                self._leave_out(name)
            return True
        if status not in (400, 422):
            return False
        for names in unnamed:
            if present := [name for name in names if name in body]:
                tried += present
                for name in present:
                    self._leave_out(name)
                return True
        return False

    def restore(self, names: Iterable[str]) -> None:
        """Forgets that these parameters were left out: the request was refused without them, too."""
        for name in set(names).intersection(self.left_out):
            self.left_out.remove(name)

    def _leave_out(self, name: str) -> None:
        # What was sent under its other name is refused under both.
        for old, new in list(self.renamed.items()):
            if new == name:
                del self.renamed[old]
                self.left_out.append(old)
        self.left_out += [each for each in (name, *_TOGETHER.get(name, ())) if each not in self.left_out]


def _named(body: Mapping[str, Any], said: ErrorReply) -> str | None:
    """Returns the parameter of ``body`` that a refusal names; None: it names none."""
    names = [name for name in body if name not in _FIXED]
    if (named := re.split(r"\W", said.parameter, maxsplit=1)[0]) in names:
        return named
    places = [(found.start(), name) for name in names if (found := re.search(rf"\b{re.escape(name)}\b", said.whole))]
    if places:
        return min(places)[1]
    inner = {"include_usage": "stream_options", "schema": "response_format", "json_schema": "response_format"}
    return next((name for word, name in inner.items() if name in body and word in said.whole), None)


def _without_system(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the turns with the system's text at the beginning of the first user's turn."""
    system = "\n\n".join(str(turn.get("content", "")) for turn in turns if turn.get("role") == "system")
    others = [dict(turn) for turn in turns if turn.get("role") != "system"]
    first = next((turn for turn in others if turn.get("role") == "user"), None)
    if first is None:
        return [{"role": "user", "content": system}, *others]
    content = first["content"]
    if isinstance(content, list):
        first["content"] = [{"type": "text", "text": system}, *content]
    else:
        first["content"] = f"{system}\n\n{content}"
    return others


@functools.lru_cache(256)
def refusals_of(_url: str, _model: str) -> Refusals:
    """Returns what this process has learnt of a model of a server."""
    return Refusals()


class Exchange:
    """One POST and the JSON objects of its answer. Made by ``ModelClient``; iterate it once."""

    def __init__(self, client: "ModelClient", response: httpx2.Response, limit_s: float) -> None:
        """``limit_s``: when the attempt must end, by the event loop's clock."""
        self.response = response
        self.marked = False
        """Whether the end marker came, or the whole document."""
        self.stopped_early = False
        """Whether reading stopped though the server had not ended the answer."""
        self._client = client
        self._limit_s = limit_s
        self._until_s: float | None = None

    def wait_for_rest(self, tail_s: float) -> None:
        """Notes that a finish reason has come: what follows is waited for only so long from now."""
        self._until_s = min(asyncio.get_running_loop().time() + tail_s, self._limit_s - MARGIN_S)

    @property
    def waits_for_rest(self) -> bool:
        return self._until_s is not None

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
        """Yields the answer's events, or the one JSON document of a server without streaming. Raises: ServerFault."""
        headers, who = self.response.headers, self._client.who
        if encoding := _encoding_of(self.response):
            raise ServerFault(
                "refused",
                f"{who}: sent a compressed answer ({encoding}) though asked not to; turn compression off there",
            )
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        is_json = kind == "application/json" or kind.endswith("+json")
        readable = False
        if kind in ("text/event-stream", "text/plain", "") or is_json:  # the body tells more than these
            async with aclosing(self._body().events()) as source:
                while (found := await self._next(source)) is not None:
                    if (event := self._parse(*found)) is not None:
                        readable = True
                        yield event
        if readable or self.marked or kind == "text/event-stream":
            return
        if is_json:
            raise ServerFault("failed", f"{who}: sent something that is not a JSON object; try again")
        shown = one_line(kind, limit=60) or "no content type"
        raise ServerFault(
            "refused", f"{who}: answered with {shown} instead of an event stream; check that base_url is an API's"
        )

    async def _next(self, source: AsyncGenerator[tuple[str, str]]) -> tuple[str, str] | None:
        """Returns the next event's name and data; None at the end."""
        try:
            if self._until_s is None:
                found = await anext(source)
            else:
                async with asyncio.timeout_at(self._until_s):
                    found = await anext(source)
        except StopAsyncIteration:
            return None
        except TimeoutError:
            self.stopped_early = True
            return None
        if self._until_s is None and asyncio.get_running_loop().time() > self._limit_s:
            words = f"took longer than {self._client.limit_s:g} s; raise timeout_s or try again"
            raise ServerFault("timeout", f"{self._client.who}: {words}")
        if found[1].strip() == "[DONE]":
            self.marked = True
            await _drain(source)
            return None
        return found

    def _body(self) -> Body:
        client = self._client
        return Body(
            async_stream(self.response),
            most_bytes=client.most_bytes * _WIRE_BYTES_PER_OUTPUT_BYTE,
            most_held=client.event_bytes,
            too_large=client.too_large,
            invalid=lambda: ServerFault("failed", f"{client.who}: sent bytes that are not UTF-8; try again"),
        )

    def _parse(self, name: str, text: str) -> dict[str, Any] | None:
        """Parses an event; None for one that is not a JSON object, such as a ping. Raises: ServerFault."""
        if name == DOCUMENT:
            self.marked, text = True, _END_MARK.sub("", text)
        parsed = _parsed(text)
        if not isinstance(parsed, dict):
            if name == UNFINISHED:
                return None
            if text.lstrip().startswith(("{", "[")):
                raise ServerFault("failed", f"{self._client.who}: sent something that is not a JSON object; try again")
            if name == "error":
                raise self._client.fault_of(200, error_reply_of(text))
            return None
        told_apart = "choices" not in parsed and ("detail" in parsed or parsed.get("object") == "error")
        error = parsed if name == "error" or told_apart else parsed.get("error")
        if error:
            raise self._client.fault_of(200, error_reply_of(error))
        return parsed


def _parsed(text: str) -> Any:
    """Returns what a JSON text says; None if it is not JSON."""
    try:
        return pydantic_core.from_json(text)  # in half the time
    except ValueError:
        # Only Python's own takes half a character, which some servers send.
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return None


def _encoding_of(response: httpx2.Response) -> str:
    encoding = response.headers.get("content-encoding", "").strip().lower()
    return "" if encoding == "identity" else one_line(encoding, limit=40)


async def _drain(source: AsyncIterator[Any]) -> None:
    try:
        async with asyncio.timeout(DRAIN_S):
            async for _ in source:
                pass
    except (TimeoutError, httpx2.TransportError, ServerFault):
        # The answer is whole; a connection that does not end cleanly is simply not used again.
        return


class ModelClient:
    """Asks one model of one server. Its connections belong to the event loop that first used it."""

    def __init__(
        self,
        spec: WorkerSpec,
        dialect: Dialect,
        who: str,
        *,
        key_hint: str,
        size_hint: str = "raise max_output_bytes or lower max_tokens",
        limit_s: float | None = None,
        most_event_bytes: int | None = None,
        keys: TypedKeys | None = None,
        socket: str | None = None,
    ) -> None:
        """Connects to nothing yet.

        Args:
            spec: the server to ask. who: for messages, as ``worker w``.
            key_hint: what to do about a key that is refused. size_hint: what to do about an answer that is too large.
            limit_s: seconds for a whole answer; None: those after which silence ends it.
            most_event_bytes: the largest event to hold in memory; None: a whole answer, with its characters escaped.
            keys: where a typed key is found.
            socket: the Unix socket of our own server, over which it is asked; None: by its address.
        """
        self.spec, self.dialect, self.who = spec, dialect, who
        self.most_bytes = spec.max_output_bytes
        self.event_bytes = most_event_bytes or 2 * spec.max_output_bytes + 64 * 1024
        self._key_hint, self._size_hint = key_hint, size_hint
        self.limit_s = limit_s or spec.timeout_s
        self.keys = keys
        # Without httpx2's client around it, whose redirects, cookies and sign-ins nobody uses here.
        self._transport: httpx2.AsyncBaseTransport | None = None
        self._socket, self._own_refusals = socket, Refusals(ours=True)
        self._extensions = {"timeout": _timeout(spec.timeout_s).as_dict()}

    def key(self) -> str | None:
        """Returns the key that the server wants, see ``read_key``. Raises: ServerFault."""
        return read_key(self.spec, self.who, self.keys)

    @property
    def refusals(self) -> Refusals:
        if self._socket is not None:
            return self._own_refusals
        return refusals_of(self.dialect.url(self.spec), self.spec.model)

    def too_large(self) -> ServerFault:
        return ServerFault(
            "too_large",
            f"{self.who}: sent more than the {self.most_bytes:,} bytes it may, or {self.event_bytes:,} in one event; "
            f"{self._size_hint}",
        )

    def fault_of(self, status: int, said: ErrorReply, wait_s: float | None = None) -> ServerFault:
        hint, variable = self._key_hint, self.spec.api_key_env
        if variable is not None and is_quoted(variable):
            hint = f"the value of {variable} begins and ends with a quotation mark: set it again without"
        return fault_of_reply(self._where, status, said, key_hint=hint, wait_s=wait_s)

    def fault_of_connection(self, error: Exception, *, answering: bool = False) -> ServerFault:
        return fault_of_connection(self._where, error, silence_s=self.spec.timeout_s, answering=answering)

    async def ask(
        self,
        messages: Sequence[Message],
        body: Mapping[str, Any],
        *,
        unnamed: Sequence[Sequence[str]] = (),
        passed: bool = False,
        retracts: bool = True,
        logprobs: list[Any] | None = None,
        watch: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> AsyncGenerator[Chunk]:
        """Streams an answer; the last chunk is ``Finished``.

        Masks the keys that this process knows in all that it yields or raises.

        Args:
            messages: what ``body`` says, for what can only be told with it.
            unnamed: parameters of ours that are left out, in this order, if the server refuses without naming any.
            passed, retracts: see ``AnswerText``.
            logprobs: gets what the events told of the probabilities of tokens, as it came.
            watch: gets each event before it is read.

        Raises: ServerFault.
        """
        try:
            key = self.key()
            tried: list[str] = []
            while True:
                sent, departures = self.refusals.applied(body)
                async with self._post(sent, key) as exchange:
                    if (status := exchange.response.status_code) != 200:
                        said = await exchange.complaint()
                        if self.refusals.learn(sent, status, said, unnamed, tried):
                            continue
                        self.refusals.restore(tried)
                        raise self.fault_of(status, said, retry_after_s(exchange.response.headers))
                    reading = _Reading(self, exchange, AnswerText(messages, passed=passed, retracts=retracts), watch)
                    begun = False
                    try:
                        async with aclosing(self._read(exchange, reading)) as chunks:
                            async for chunk in chunks:
                                begun = True
                                yield chunk
                    except ServerFault as fault:
                        if begun or not self.refusals.learn(sent, 200, fault.reply, (), tried):
                            raise
                        continue
                    if logprobs is not None:
                        logprobs += reading.reader.logprobs
                    yield reading.finished(estimate_input_tokens(tuple(messages)), departures)
                    return
        except ServerFault as fault:
            fault.args = (masking.known().text(str(fault)),)
            raise

    async def aclose(self) -> None:
        if self._transport is not None:
            await self._transport.aclose()
            self._transport = None

    @functools.cached_property
    def _url(self) -> httpx2.URL:
        try:
            return httpx2.URL(self.dialect.url(self.spec))
        except httpx2.InvalidURL:
            raise ServerFault("refused", f"{self.who}: its base_url is not a URL; correct it") from None

    @property
    def _where(self) -> str:
        if self._socket is not None:
            return f"{self.who}: {self.spec.model}"
        return f"{self.who}: {self._url.host}" + (f":{self._url.port}" if self._url.port else "")

    @asynccontextmanager
    async def _post(self, body: Mapping[str, Any], key: str | None) -> AsyncGenerator[Exchange]:
        """Sends ``body`` and yields the reply. Raises: ServerFault for a fault of the connection, reading included."""
        url = self._url
        if self._transport is None:
            self._transport = AiohttpTransport(socket=self._socket)
        answering, limit_s = False, asyncio.get_running_loop().time() + self.limit_s
        try:
            content = httpx2.ByteStream(
                json.dumps(dict(body), ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
            )
            headers = httpx2.Headers({**_ASKED_FOR, **self.dialect.headers(key)}, encoding="ascii")
            request = httpx2.Request("POST", url, headers=headers, stream=content, extensions=self._extensions)
            response = await self._transport.handle_async_request(request)
            try:
                answering, response.request = True, request
                yield Exchange(self, response, limit_s)
            finally:
                await response.aclose()
        except httpx2.TransportError as error:
            raise self.fault_of_connection(error, answering=answering) from error

    async def _read(self, exchange: Exchange, reading: "_Reading") -> AsyncGenerator[Delta]:
        """Yields an answer up to its end. Raises: ServerFault."""
        try:
            async with aclosing(exchange.events()) as events:
                async for event in events:
                    for chunk in reading.feed(event):
                        if chunk is None:
                            await asyncio.sleep(0)
                        else:
                            yield chunk
                    if exchange.marked:
                        break
        except (httpx2.TransportError, ServerFault):
            for part in reading.rest():
                yield part
            if not reading.whole:
                raise
        for part in reading.rest():
            yield part


class _Reading:
    """Reads one answer: what of it can be shown, and whether it is whole."""

    def __init__(
        self,
        client: ModelClient,
        exchange: Exchange,
        answer: AnswerText,
        watch: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> None:
        self._client, self._exchange, self._answer, self._watch = client, exchange, answer, watch
        self.reader = client.dialect.reader()
        self._masked = MaskedChunks(masking.known())
        self._allowed = client.most_bytes
        self._odd: NoPart | None = None
        self._complaint = ErrorReply()  # what the last event says, if it is not part of an answer
        self._read = False
        self._doubted = False  # text came after a finish reason: more may come after another

    @property
    def whole(self) -> bool:
        """Whether a finish reason has come that is to be believed: then only usage figures can be missing."""
        return self.reader.complete and not self._doubted

    def feed(self, event: Mapping[str, Any]) -> Iterator[Delta | None]:
        """Yields what of an event can be shown; None where others may run. Raises: ServerFault."""
        was_complete = self.reader.complete
        if self._watch is not None:
            self._watch(event)
        try:
            chunks = self.reader.feed(event)
        except NoPart as error:
            self._odd = self._odd or error
            self._complaint = error_reply_of(event)
            return
        except ValueError as error:
            raise self._unreadable(error) from error
        except RecursionError as error:
            raise self._unreadable(ValueError("a document that is nested too deeply")) from error
        self._read, self._complaint = True, ErrorReply()
        for chunk in chunks:
            self._allowed -= len(chunk.text.encode())
            if self._allowed < 0:
                raise self._client.too_large()
            for shown in self._masked.feed(chunk):
                if shown is None:
                    yield None
                else:
                    yield from self._answer.feed(shown)
        if self.reader.extras_size > self._allowed:
            raise self._client.too_large()
        self._exchange.marked = self._exchange.marked or self.reader.stopped
        if self.reader.complete and (chunks or not self._exchange.waits_for_rest):
            self._doubted = self._doubted or (bool(chunks) and was_complete)
            # A reason beside text may be in every event: then more comes.
            self._exchange.wait_for_rest(DOUBTED_TAIL_S if chunks else TAIL_S)

    def rest(self) -> Iterator[Delta]:
        """Yields what was held back: nothing follows any more."""
        for rest in self._masked.end():
            yield from self._answer.feed(rest)
        yield from self._answer.rest()

    def finished(self, prompt_tokens: int, departures: tuple[Departure, ...]) -> Finished:
        """Returns the end of the answer. Raises: ServerFault if it is not whole."""
        if self._exchange.marked and self._read:
            self.reader.ended()
        if not self.reader.complete or (self._doubted and self._exchange.stopped_early):
            if self._complaint.text:
                raise self._client.fault_of(200, self._complaint)
            if self._odd is not None and not self._read:
                raise self._unreadable(self._odd)
            words = "the stream ended without a finish reason, so the answer is not whole; try again"
            raise ServerFault("cut", f"{self._client.who}: {words}")
        finished = self.reader.finished(prompt_tokens)
        found = (*departures, *finished.departures, *self._answer.departures)
        return hidden(finished.model_copy(update={"departures": found}), masking.known())

    def _unreadable(self, error: ValueError) -> ServerFault:
        hint = "try again" if self._read else "check that base_url is such an API's"
        return ServerFault("failed", f"{self._client.who}: sent {error}; {hint}")
