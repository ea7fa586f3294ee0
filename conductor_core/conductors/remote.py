"""A Conductor behind an OpenAI-compatible server: vLLM, Ollama, llama.cpp, LM Studio or a provider.

identify                 what the server is, and how to ask it to hold a completion to a form
RemoteConductor.write    one POST, simpler when a part of it is refused
  _Completion            its events as text; whole only when a finish_reason says so
  from_status, from_error_object    what went wrong, as one of our errors with one clear line

Sources for the parameters of forms: vLLM's documentation of structured outputs (``guided_grammar`` until 0.11, then
``structured_outputs``), llama.cpp's server README (``grammar``), SGLang's documentation (``ebnf``), OpenAI's
``response_format``, which Ollama and LM Studio understand as well.
"""

import asyncio
import json
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal

import httpx2

from conductor_core import __version__
from conductor_core.chat.messages import (
    ConductorInfo,
    FinishReason,
    Message,
    PlanFinished,
    PlanRequest,
    PlanText,
    PlanThought,
    Usage,
)
from conductor_core.chat.responses import ResponseExtras, calls_of, hidden
from conductor_core.chat.usage import chat_tokens, usd
from conductor_core.conductors.alternatives import ASKED, BYTES_PER_TOKEN, TokenLog
from conductor_core.conductors.conductors_file import ConductorSpec
from conductor_core.conductors.grammar import PlanShape, choices_of, plan_grammar, plan_schema
from conductor_core.conductors.prompts import full_prompt, require_room, short_prompt
from conductor_core.conductors.roles import agents_by_ordinal
from conductor_core.errors import (
    ConductorCertificate,
    ConductorError,
    ConductorFailed,
    ConductorKeyRefused,
    ConductorLoading,
    ConductorModelUnknown,
    ConductorRateLimited,
    ConductorStreamCut,
    ConductorTimedOut,
    ConductorUnavailable,
    ConductorUnpaid,
    PromptOverflows,
)
from conductor_core.privacy import masking
from conductor_core.privacy.masking import MaskedText, one_line
from conductor_core.providers import errors
from conductor_core.providers.sse import Body, async_stream
from conductor_core.providers.transport import AiohttpTransport, no_certificate, tls
from conductor_core.settings import Settings

# Errors.


class Refused(Exception):
    """The server does not accept the request as it is (400, 422), or its ``logprobs``."""


class Filtered(Exception):
    """A filter of the server refused the request; the message is what the server said."""


async def from_status(where: str, model: str, response: httpx2.Response, key_hint: str) -> Exception:
    """Returns the error for a reply that is no completion.

    Args:
        where: the server, as a message names it.
        key_hint: what to do about a key that is refused.
    """
    status = response.status_code
    said = await _beginning(response)
    text, code = errors.read_error_reply(said, response.headers.get("content-type", ""))
    detail = f": {text}" if text else ""
    wait_s = errors.retry_after_s(response.headers)
    if errors.filtered(status, code):
        return Filtered(text or f"status {status}")
    if errors.unpaid(status, code, text):
        return ConductorUnpaid(f"{where} wants to be paid first ({status}){detail}")
    if errors.too_long(status, code, text):
        return PromptOverflows(f"{where} refuses the request as too long: {text}")
    if status in (400, 422) or "logprobs" in text:  # OpenAI forbids these for some models (403)
        return Refused(text or f"status {status}")
    if status in (401, 403):
        return ConductorKeyRefused(f"{where} refuses access ({status}): {key_hint}{detail}")
    if status == 404:
        return ConductorModelUnknown(f"{where} does not know the model {model!r} or the address{detail}")
    if status == 429:
        asked = "" if wait_s is None else f", asking to wait {wait_s:.0f} s"
        said_so = f"{where} has too many requests (429{asked}): try again later{detail}"
        return ConductorRateLimited(said_so, retry_after_s=wait_s)
    if errors.loading(status, text):
        return ConductorLoading(f"{where} is loading its model ({status}){detail}", retry_after_s=wait_s)
    if status >= 500 or status in (408, 409, 425):
        return ConductorFailed(f"{where} failed ({status}): try again{detail}", retry_after_s=wait_s)
    return ConductorUnavailable(f"{where} failed ({status}): try again{detail}")


def from_error_object(where: str, data: str) -> ConductorError:
    """Returns the error for an error object that comes instead of a plan, or in the middle of one."""
    text, code = errors.read_error_reply(data.encode())
    if errors.too_long(400, code, text):
        return PromptOverflows(f"{where} refuses the request as too long: {text}")
    kind = ConductorUnpaid if errors.unpaid(400, code, text) else ConductorFailed
    return kind(f"{where} reports an error: {text or 'without words'}")


async def _beginning(response: httpx2.Response) -> bytes:
    """Reads the first bytes of an error's body."""
    body = b""
    async for part in response.aiter_raw():
        body += part
        if len(body) > 16_384:
            break
    return body


# Kinds of servers.

Kind = Literal["vllm", "llama.cpp", "sglang", "ollama", "other"]
_OWNERS: dict[str, Kind] = {
    "vllm": "vllm",
    "llamacpp": "llama.cpp",
    "me": "llama.cpp",  # llama-cpp-python
    "sglang": "sglang",
    "library": "ollama",
}
PROBE_TIMEOUT_S = 3.0
PROBE_MOST_BYTES = 1_000_000


@dataclass(frozen=True)
class Server:
    """A server. ``version`` is major and minor; None where the server does not tell."""

    kind: Kind
    version: tuple[int, int] | None = None

    def structured(self, shape: PlanShape) -> dict[str, Any]:
        """Returns the parameters of a request that hold the completion to ``shape``."""
        match self.kind:
            case "vllm" if self.version is None or self.version >= (0, 11):
                return {"structured_outputs": {"grammar": plan_grammar(shape)}}
            case "vllm":
                return {"guided_grammar": plan_grammar(shape)}
            case "llama.cpp":
                return {"grammar": plan_grammar(shape)}
            case "sglang":
                return {"ebnf": plan_grammar(shape)}
            case "ollama" | "other":
                schema = {"name": "workflow", "strict": True, "schema": plan_schema(shape)}
                return {"response_format": {"type": "json_schema", "json_schema": schema}}


def names_a_form(complaint: str) -> bool:
    """Tells whether a server complains of what holds a completion to a form."""
    return any(name in complaint for name in ("structured_outputs", "grammar", "ebnf", "response_format", "schema"))


async def identify(client: httpx2.AsyncClient, base_url: str) -> Server:
    """Asks the server what it is; ``other`` where it does not tell. ``base_url`` ends in ``/v1`` or the like.

    Raises: httpx2.TransportError if nothing answers there.
    """
    root = re.sub(r"/v\d+$", "", base_url)
    models = await _json(client, f"{base_url}/models")
    listed = models.get("data") if isinstance(models, dict) else None
    models_there = [model for model in listed if isinstance(model, dict)] if isinstance(listed, list) else []
    owners = [owner for model in models_there if isinstance(owner := model.get("owned_by"), str)]
    kind: Kind = next((_OWNERS[owner] for owner in owners if owner in _OWNERS), "other")
    if kind == "vllm":
        return Server(kind, _version(await _json(client, f"{root}/version")))
    if kind == "other" and not models_there:
        # A server without a model list says what it is by the addresses that only it has.
        if isinstance(props := await _json(client, f"{root}/props"), dict) and "default_generation_settings" in props:
            return Server("llama.cpp")
        if _version(await _json(client, f"{root}/api/version")) is not None:
            return Server("ollama")
    return Server(kind)


def _version(answer: Any) -> tuple[int, int] | None:
    version = answer.get("version") if isinstance(answer, dict) else None
    found = re.match(r"v?([0-9]{1,4})\.([0-9]{1,4})(?![0-9])", version) if isinstance(version, str) else None
    return (int(found[1]), int(found[2])) if found else None


async def _json(client: httpx2.AsyncClient, url: str) -> Any:
    """Returns the JSON document at ``url``; None if there is none or it is over ``PROBE_MOST_BYTES``."""
    body = bytearray()
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S), client.stream("GET", url, timeout=PROBE_TIMEOUT_S) as response:
            async for part in response.aiter_bytes():
                body += part
                if len(body) > PROBE_MOST_BYTES:
                    return None
            return json.loads(body) if response.status_code == 200 else None
    except (ValueError, RecursionError, TimeoutError, httpx2.ReadTimeout, httpx2.DecodingError):
        return None


API_KEY_VARIABLE = "CONDUCTOR_API_KEY"
CONNECT_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 600.0
"""Seconds for a whole plan, from its first byte on: as long as a run may take by default."""
TAIL_S = 2.0
"""Seconds to wait for the rest (usage figures) after the finish_reason, however much of it comes."""
READ_TIMEOUT_S = 120.0
"""Seconds between two pieces; the first may take long on a processor."""
MAX_ANSWER_BYTES = 64_000_000
"""The limit of a whole stream with its events' own text; ``plan_max_bytes`` limits the plan itself."""
_FINISH: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "content_filter",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "refusal": "refusal",
}


class RemoteConductor:
    """Writes plans with a model of a server. Opens connections at the first ``write``."""

    def __init__(self, name: str, spec: ConductorSpec, settings: Settings) -> None:
        """``spec`` has a ``base_url``."""
        self._name = name
        self._spec = spec
        self._base_url = spec.base_url or ""
        self._model = spec.model
        self._max_tokens = min(settings.plan_max_tokens, spec.max_tokens or settings.plan_max_tokens)
        self._short_prompt = spec.prompt == "short"
        # One event may hold the whole answer, each character of it escaped, and all that is told of its tokens.
        self._most_event_bytes = 6 * settings.plan_max_bytes + 65_536 + self._max_tokens * BYTES_PER_TOKEN
        self._constrained = settings.constrained if spec.constrained is None else spec.constrained
        self._reports_usage = True
        self._asks_logprobs = True
        self._client: httpx2.AsyncClient | None = None
        self._server: Server | None = None
        masking.remember(_key(spec))

    @property
    def info(self) -> ConductorInfo:
        """``constrained`` becomes False when the server refuses its structured-output parameter."""
        return ConductorInfo(
            name=self._name,
            kind="remote",
            model=self._model,
            constrained=self._constrained,
            seated=self._short_prompt,
            usd_per_mtok=self._spec.usd_per_mtok,
            prompt_sha256=self._spec.prompt_sha256,
        )

    def messages(self, request: PlanRequest) -> tuple[Message, ...]:
        if self._short_prompt:
            return (Message(role="user", content=short_prompt(request)),)
        return full_prompt(request, self._spec.prompt_text)

    async def write(self, request: PlanRequest) -> AsyncIterator[PlanText | PlanThought | PlanFinished]:
        """Writes a plan, see ``Conductor.write``. All that it gives or raises has the keys hidden that we know."""
        masked, thoughts = MaskedText(masking.known()), MaskedText(masking.known())
        try:
            async with aclosing(self._written(request)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, PlanText):
                        if text := masked.feed(piece.text):
                            yield PlanText(text=text)
                        continue
                    if thought := thoughts.feed(piece.text) if isinstance(piece, PlanThought) else thoughts.end():
                        yield PlanThought(text=thought)
                    if isinstance(piece, PlanFinished):
                        if rest := masked.end():
                            yield PlanText(text=rest)
                        yield hidden(piece, masking.known())
        except ConductorError as error:
            if thought := thoughts.end():
                yield PlanThought(text=thought)
            if rest := masked.end():
                yield PlanText(text=rest)
            error.args = (masking.known().text(str(error)),)
            raise

    async def _written(self, request: PlanRequest) -> AsyncGenerator[PlanText | PlanThought | PlanFinished]:
        require_room(self._name, self.messages(request), self._spec.context)
        if self._client is None:
            self._client = self._open_client()
        try:
            if self._constrained and self._server is None:
                self._server = await identify(self._client, self._base_url)
            while True:
                constrained = self._constrained
                body = self._body(request)
                try:
                    async with aclosing(self._complete(self._client, body)) as pieces:
                        async for piece in pieces:
                            yield piece
                    return
                except Refused as refusal:
                    # Nothing was written yet: ask again without what not every server knows, and remember that.
                    self._simplify(str(refusal), constrained, body)
        except httpx2.TransportError as error:
            raise self._transport_fault(error) from error

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def _open_client(self) -> httpx2.AsyncClient:
        headers = {"user-agent": f"conductor-inspector/{__version__}", "accept-encoding": "identity"}
        if key := _key(self._spec):
            masking.remember(key)
            if not key.isascii() or not key.isprintable():
                raise ConductorUnavailable(
                    f"the value of {self._spec.api_key_env} has characters that no key has: set it again"
                )
            headers["authorization"] = f"Bearer {key}"
        elif self._spec.api_key_env is not None:
            raise ConductorUnavailable(
                f"Conductor {self._name}: the environment variable {self._spec.api_key_env} is not set; put the key "
                "into it"
            )
        timeout = httpx2.Timeout(self._spec.timeout_s or READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        return httpx2.AsyncClient(
            transport=AiohttpTransport(tls=tls()), headers=headers, timeout=timeout, follow_redirects=False
        )

    def _body(self, request: PlanRequest) -> dict[str, Any]:
        messages = self.messages(request)
        body: dict[str, Any] = {
            "temperature": request.temperature or (0.7 if request.rejected else 0.0),
            **(ASKED if self._asks_logprobs and "logprobs" not in self._spec.params else {}),
            **self._spec.params,
            "model": self._model,
            "messages": [message.model_dump() for message in messages],
            "seed": request.seed,
            "stream": True,
        }
        if "max_completion_tokens" not in body:  # as some models want it called
            body["max_tokens"] = self._max_tokens
        if self._reports_usage:
            body["stream_options"] = {"include_usage": True}
        if self._constrained and self._server is not None:
            shape = PlanShape(
                choices=choices_of(agents_by_ordinal(self.info, request.agents), recursion=request.allow_recursion),
                max_steps=request.max_steps,
                may_stop=request.parent is not None,
                bounded=True,
            )
            body |= self._server.structured(shape)
        return body

    def _simplify(self, complaint: str, constrained: bool, body: Mapping[str, Any]) -> None:
        """Leaves out one of what the refused request had (another call may have left out more meanwhile).

        Raises: ConductorUnavailable if there is nothing left to leave out.
        """
        usage, tokens = "stream_options" in body, "logprobs" in body and "logprobs" not in self._spec.params
        of_others = (usage and "stream_options" in complaint) or (constrained and names_a_form(complaint))
        if tokens and ("logprobs" in complaint or not of_others):
            self._asks_logprobs = False
        elif usage and ("stream_options" in complaint or not constrained):
            self._reports_usage = False
        elif constrained:
            self._constrained = False
        else:
            raise ConductorUnavailable(f"{self._where} refuses the request: {complaint}")

    @property
    def _answer_timeout_s(self) -> float:
        return self._spec.timeout_s or ANSWER_TIMEOUT_S

    @property
    def _where(self) -> str:
        return f"the Conductor's server at {self._base_url}"

    async def _complete(
        self, client: httpx2.AsyncClient, body: Mapping[str, Any]
    ) -> AsyncGenerator[PlanText | PlanThought | PlanFinished, None]:
        url = f"{self._base_url}/chat/completions"
        headers = {"accept": "text/event-stream", "cache-control": "no-store"}
        async with client.stream("POST", url, json=dict(body), headers=headers) as response:
            if response.status_code != 200:
                variable = self._spec.api_key_env or (API_KEY_VARIABLE if "://" in self._name else None)
                key_hint = f"set {variable} to its key" if variable else "name the variable of its key in api_key_env"
                fault = await from_status(self._where, self._model, response, key_hint)
                if isinstance(fault, Filtered):
                    yield PlanFinished(finish_reason="content_filter", usage=Usage(), refusal=str(fault))
                    return
                raise fault
            kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            whole = kind == "application/json" or kind.endswith("+json")
            if not whole and kind != "text/event-stream":
                sent = one_line(kind) or "no content type"
                raise ConductorUnavailable(f"{self._where} sent {sent}, no event stream")
            if response.headers.get("content-encoding", "identity").lower() != "identity":
                raise ConductorUnavailable(f"{self._where} compresses its stream though asked not to")
            completion = _Completion(self._where, self._answer_timeout_s)
            body_text = self._body_of(response)
            # A server that does not stream sends one JSON document, which is read as one event.
            async with aclosing(_joined(body_text.texts()) if whole else body_text.data()) as events:
                while (data := await self._next(events, completion)) is not None:
                    text = completion.feed(data)
                    if completion.thought:
                        yield PlanThought(text=completion.thought)
                    if text:
                        yield PlanText(text=text)
            yield completion.finished()

    async def _next(self, events: AsyncGenerator[str], completion: "_Completion") -> str | None:
        """Returns the next event's data; None at the end. A failure after the finish_reason is an end, too."""
        try:
            async with asyncio.timeout_at(completion.until_s):
                data = await anext(events)
        except StopAsyncIteration:
            return None
        except TimeoutError:
            if completion.whole:
                return None
            took = f"took longer than {self._answer_timeout_s:.0f} s: try again"
            raise ConductorTimedOut(f"{self._where} {took}") from None
        except (ConductorUnavailable, httpx2.TransportError):
            if completion.whole:
                return None
            raise
        return None if data == "[DONE]" else data

    def _body_of(self, response: httpx2.Response) -> Body:
        return Body(
            async_stream(response),
            most_bytes=MAX_ANSWER_BYTES,
            most_held=self._most_event_bytes,
            too_large=lambda: ConductorUnavailable(
                f"{self._where} sent over {MAX_ANSWER_BYTES:,} bytes, or {self._most_event_bytes:,} in one event, "
                "which no plan needs"
            ),
            invalid=lambda: ConductorUnavailable(f"{self._where} sent bytes that are not UTF-8: try again"),
        )

    def _transport_fault(self, error: httpx2.TransportError) -> ConductorUnavailable:
        if no_certificate(error):
            return ConductorCertificate(f"{self._where} offers no valid TLS certificate: check the address")
        if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
            return ConductorUnavailable(f"nothing answers at {self._base_url}: start the server or correct the address")
        if isinstance(error, httpx2.TimeoutException):
            return ConductorTimedOut(f"{self._where} said nothing for {self._spec.timeout_s or READ_TIMEOUT_S:.0f} s")
        if isinstance(error, httpx2.UnsupportedProtocol | httpx2.LocalProtocolError):
            return ConductorUnavailable(f"{self._base_url} is not an address that can be asked: {one_line(str(error))}")
        return ConductorStreamCut(
            f"{self._where} broke off in the middle of the plan ({type(error).__name__}): try again"
        )


class _Completion:
    """Reads the events of one completion. Only the first choice counts: one was asked for."""

    def __init__(self, where: str, timeout_s: float) -> None:
        self._where = where
        self._finish: FinishReason | None = None
        self._usage: Usage | None = None
        self._cost_usd: float | None = None
        self._characters = 0
        self._text: list[str] = []
        self._tokens = TokenLog()
        self._extras = ResponseExtras()
        self.thought = ""
        """The reasoning in the event that was read last: some servers send it apart from the text."""
        self.until_s = asyncio.get_running_loop().time() + timeout_s
        """The event loop's time until which events are awaited: a short time, once the completion is whole."""

    @property
    def whole(self) -> bool:
        return self._finish is not None

    def feed(self, data: str) -> str:
        """Returns the text that an event adds, perhaps none. Raises: ConductorUnavailable."""
        was_whole = self.whole
        try:
            return self._read(data)
        except ConductorUnavailable:
            if was_whole:
                return ""  # Only usage could have followed.
            raise

    def _read(self, data: str) -> str:
        self.thought = ""
        try:
            event = json.loads(data)
        except (ValueError, RecursionError):
            event = None
        if not isinstance(event, dict):
            raise ConductorUnavailable(f"{self._where} sent something that is not a JSON object: try again")
        if event.get("error"):
            raise from_error_object(self._where, data)
        usage = event.get("usage")
        if isinstance(usage, dict):
            if (tokens := chat_tokens(usage)) is not None:
                self._usage = Usage(input_tokens=tokens[0], output_tokens=tokens[1])
            if (cost_usd := usd(usage.get("cost"))) is not None:
                self._cost_usd = cost_usd
        choices = event.get("choices")
        listed = choices if isinstance(choices, list) else []
        choice = next((each for each in listed if isinstance(each, dict) and each.get("index", 0) in (0, None)), None)
        if choice is None:
            return ""
        if (reason := choice.get("finish_reason")) is not None:
            if self._finish is None:
                self.until_s = min(self.until_s, asyncio.get_running_loop().time() + TAIL_S)
            self._finish = _FINISH.get(reason, "other") if isinstance(reason, str) else "other"
        delta = choice.get("delta") or choice.get("message")
        delta = delta if isinstance(delta, dict) else {}
        self._extras.refuse(delta.get("refusal"))
        calls_of(delta, self._extras)
        text, thought = delta.get("content"), delta.get("reasoning_content") or delta.get("reasoning")
        self._extras.think(thought)
        text, self.thought = (each if isinstance(each, str) else "" for each in (text, thought))
        self._characters += len(text) + len(self.thought)
        self._text.append(text)
        self._tokens.feed(choice.get("logprobs"))
        return text

    def finished(self) -> PlanFinished:
        """Returns the end of the plan. Raises: ConductorStreamCut if no finish_reason came."""
        if self._finish is None:
            raise ConductorStreamCut(f"{self._where} ended the plan without a finish_reason, so it is cut: try again")
        text = "".join(self._text)
        # Where a key is hidden in the text, the places of its tokens are others.
        choices = self._tokens.choices(text) if masking.known().text(text) == text else ()
        guess = Usage(input_tokens=0, output_tokens=-(-self._characters // 4), estimated=True)
        return PlanFinished(
            finish_reason=self._finish,
            usage=self._usage or guess,
            cost_usd=self._cost_usd,
            refusal=self._extras.refusal,
            tool_calls=self._extras.tool_calls,
            reasoning=self._extras.reasoning,
            choices=choices,
            told_by_server=bool(choices),
        )


async def _joined(texts: AsyncGenerator[str]) -> AsyncGenerator[str]:
    async with aclosing(texts):
        yield "".join([text async for text in texts])


def _key(spec: ConductorSpec) -> str:
    return "" if spec.api_key_env is None else os.environ.get(spec.api_key_env, "").strip()
