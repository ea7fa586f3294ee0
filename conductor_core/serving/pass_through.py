"""Forwards what clients ask of a model that is not ours, unchanged, and records each request as a run.

The upstream is the model that a team uses today. Of a request all headers go on but those of one connection (RFC 9110,
7.6.1), cookies, what reverse proxies say of the client's address, and the client's key, under whatever name: the
upstream's own is sent in its place, as the upstream takes it. Encodings of answers that the record could not be read
from are not asked for. Of an answer all headers go back but those of one connection, cookies, and what would bind
browsers to another host.

request -> guard -> key and its limits -> begun in the record -> upstream -> each part of the answer as it comes
                                                                          -> after the last part: the end of the record

What leaves is durable before it leaves: ``run.created``, the plan of one step and ``step.started`` are one commit. All
else of the run is one commit after the answer was relayed. Nothing waits for it.

If the record cannot be written, the client is served. A team that points its clients here is promised that nothing
changes for them, and an audit that takes a product down is switched off the same day, and then records nothing at all.
So the loss is counted (``counts``), logged and told in the docs, and the answer lacks ``x-conductor-trace-id``. A
commit that takes long (``BEGIN_S``) is waited for no longer; what it brings is recorded if it succeeds later.
"""

import asyncio
import json
import logging
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import httpx2
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.types import Send

from conductor_core.chat.messages import LoadedImage, WorkerSpec
from conductor_core.chat.servers import ANTHROPIC_URL, OPENAI_URL, host_of, servers
from conductor_core.engine.budgets import CostCapReached
from conductor_core.errors import StoreError
from conductor_core.providers.client import CONNECT_TIMEOUT_S, read_key
from conductor_core.providers.errors import ServerFault, fault_of_connection
from conductor_core.providers.transport import AiohttpTransport, async_stream
from conductor_core.run import events as ev
from conductor_core.run.actor import THE_PROGRAM, Caller
from conductor_core.run.events import EventSink
from conductor_core.serving.admission import (
    Allowance,
    Client,
    Held,
    day_is_spent,
    ended,
    holds_service_key,
    unless_left,
)
from conductor_core.serving.counts import Count, Counts
from conductor_core.serving.errors import Api, ApiError
from conductor_core.serving.forwarded import (
    Forwarded,
    Question,
    end_of,
    forwarded,
    images_of,
    most_usage,
    read_question,
    without_encoding,
)
from conductor_core.serving.replies import ROOT
from conductor_core.serving.served_models import OWNED_BY, ServedModel, ServedModels
from conductor_core.serving.served_models import listed as listed_model
from conductor_core.serving.shadow import Shadow
from conductor_core.serving.turns import Turns
from conductor_core.workflow.model import CONDUCTOR_AGENT

SILENCE_S = 3600.0
"""So long an upstream may say nothing. A client that waits less leaves, and its call is closed."""
_LIST_S = 5.0
_MOST_LISTED_BYTES = 4 << 20
_OF_A_CONNECTION = frozenset(
    {
        "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
        "transfer-encoding", "upgrade",
    }
)  # fmt: skip
_NOT_SENT = _OF_A_CONNECTION | {
    "host", "content-length", "authorization", "x-api-key", "api-key", "cookie", "expect", "forwarded", "via",
    "x-forwarded-for", "x-forwarded-host", "x-forwarded-port", "x-forwarded-proto", "x-real-ip", "cf-connecting-ip",
    "true-client-ip",
}  # fmt: skip
_NOT_RETURNED = _OF_A_CONNECTION | {
    "date", "set-cookie", "alt-svc", "strict-transport-security", "x-conductor-trace-id",
}  # fmt: skip
"""The server adds the date itself, and the run."""
_READABLE = frozenset({"gzip", "deflate", "identity"})
"""Encodings that the record is read from."""


@dataclass
class Upstream:
    """Belongs to the event loop that first used it.

    Attributes:
        spec: the model, with address, key variable and price.
        any_api: whether it was named by address, so that it may speak any of the APIs.
    """

    spec: WorkerSpec
    any_api: bool
    _transport: AiohttpTransport = field(default_factory=AiohttpTransport)

    @property
    def base_url(self) -> str:
        usual = ANTHROPIC_URL if self.spec.provider == "anthropic" else OPENAI_URL
        return (self.spec.base_url or usual).rstrip("/")

    @property
    def where(self) -> str:
        return f"{self.spec.name}: {host_of(self.base_url)}"

    def check_key(self) -> None:
        """Raises: ServerFault if the variable of its key is not set."""
        read_key(self.spec, self.spec.name)

    def spec_for(self, model: str, api: Api | None, params: Mapping[str, Any]) -> WorkerSpec:
        """Returns the worker that the record names for a model that a client asks for.

        Only the model that this upstream was named with has its price. ``params``: what the request says beside its
        messages.
        """
        shown = " ".join(model.split())[:80] or self.spec.name
        anthropic = (api == "messages") if self.any_api else self.spec.provider == "anthropic"
        return WorkerSpec(
            name=f"{shown} (upstream)"[-80:] if shown == CONDUCTOR_AGENT else shown,
            provider="anthropic" if anthropic else "openai",
            model=model or self.spec.model,
            base_url=self.base_url,
            api_key_env=self.spec.api_key_env,
            usd_per_mtok=self.spec.usd_per_mtok if model in ("", self.spec.model) else None,
            params=params,
            accepts=("text", "image"),
        )

    def headers(self, given: Headers, api: Api | None) -> list[tuple[str, str]]:
        """Returns the headers of a forwarded request. Raises: ServerFault if the upstream's key is not there."""
        named = {name.strip().lower() for value in given.getlist("connection") for name in value.split(",")}
        sent = [
            (name, value)
            for name, value in given.items()
            if name not in _NOT_SENT and name not in named and not holds_service_key(value)
        ]
        sent = [(name, _readable(value) if name == "accept-encoding" else value) for name, value in sent]
        if (key := read_key(self.spec, self.spec.name)) is not None:
            anthropic = api == "messages" or "anthropic-version" in given
            if anthropic:
                sent.append(("x-api-key", key))
            if not anthropic or (self.any_api and not self.base_url.startswith(ANTHROPIC_URL)):
                sent.append(("authorization", f"Bearer {key}"))
        return sent

    async def send(
        self, method: str, path: str, query: str, headers: Iterable[tuple[str, str]], body: bytes
    ) -> httpx2.Response:
        """Sends a request, and returns as soon as the head of the answer is there. Raises: httpx2.TransportError.

        Args:
            path: below the root of the API, such as ``/chat/completions``. query: as it came.
        """
        url = f"{self.base_url}{path}{'?' if query else ''}{query}"
        timeouts = {"connect": CONNECT_TIMEOUT_S, "read": SILENCE_S, "write": SILENCE_S, "pool": None}
        # As bytes: texts beyond ASCII would not be taken.
        sent = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        request = httpx2.Request(method, url, headers=sent, content=body or None, extensions={"timeout": timeouts})
        return await self._transport.handle_async_request(request)

    async def models(self, given: Headers, query: str) -> list[dict[str, Any]]:
        """Returns the upstream's own list of models, each as it says it; empty: it told none in time."""
        try:
            async with asyncio.timeout(_LIST_S):
                response = await self.send("GET", "/models", query, self.headers(given, None), b"")
                body = bytearray()
                try:
                    async for part in async_stream(response):
                        body += part
                        if len(body) > _MOST_LISTED_BYTES:
                            return []
                finally:
                    await response.aclose()
            listed = json.loads(bytes(body)).get("data") if response.status_code == 200 else None
        except (TimeoutError, httpx2.TransportError, ValueError, AttributeError, RecursionError):
            return []
        return [each for each in listed or () if isinstance(each, dict) and isinstance(each.get("id"), str)]

    async def aclose(self) -> None:
        await self._transport.aclose()


def _readable(accepted: str) -> str:
    kept = [each.strip() for each in accepted.split(",") if each.partition(";")[0].strip().lower() in _READABLE]
    return ", ".join(kept) or "identity"


def returned(response: httpx2.Response) -> list[tuple[bytes, bytes]]:
    """Returns the headers of an answer as its client gets them, in their order."""
    named = {name.strip().lower() for name in response.headers.get("connection", "").split(",")}
    return [
        (name.lower(), value)
        for name, value in response.headers.raw
        if (shown := name.decode("latin-1").lower()) not in _NOT_RETURNED and shown not in named
    ]


def path_below_root(path: str) -> str:
    """Returns ``/chat/completions`` for ``/v1/chat/completions``."""
    return path.removeprefix(ROOT)


# Forwarding.


log = logging.getLogger(__name__)

BEGIN_S, BEGIN_BYTES_PER_S = 2.0, 4e6
"""So long a request waits for its record to begin, and the longer, the larger it is."""
SEND_S = 600.0
"""A client that reads nothing for so long counts as gone."""
_RETRIES_S = (0.5, 2.0, 8.0, 30.0)
"""Pauses before the end of a record is written again."""
_KEEP_S = 5.0
_END_S = 2.0


class Keeps(Protocol):
    def keep_images(self, images: list[LoadedImage]) -> None: ...


class PassThrough:
    """Belongs to one event loop, that of the server.

    Attributes:
        shadow: takes a share of the answered requests; None: there is none.
    """

    def __init__(self, upstream: Upstream, sink: EventSink, records: Keeps, turns: Turns, counts: Counts) -> None:
        self.upstream, self.counts = upstream, counts
        self.shadow: Shadow | None = None
        self._sink, self._records, self._turns = sink, records, turns
        self._writing: set[asyncio.Task[None]] = set()
        self._keeping: asyncio.Task[None] | None = None

    async def read(self, api: Api | None, request: Request, body: bytes, held: Held) -> Question:
        """Reads a request for its record. Raises: ApiError 503 if too much is held."""
        encoding = request.headers.get("content-encoding", "")
        plain = await asyncio.to_thread(without_encoding, encoding, body)
        if plain is None:
            shown = f"{request.method} {request.url.path[:500]}, {len(body):,} bytes, encoded as {encoding[:80]}"
            return Question(api, "", None, shown, orders=True)
        if plain is not body:
            held.add(len(plain))
        return await asyncio.to_thread(read_question, api, request.method, request.url.path, plain)

    def check(self, question: Question, client: Client) -> None:
        """Raises: ApiError if the client's key may not ask this, or has a limit that could not be kept."""
        key = client.key
        if key is None:
            return
        spec = self.upstream.spec_for(question.model, question.api, {})
        if key.models is not None and spec.model not in key.models:
            raise ApiError(403, "This key may not ask this model.", code="model_not_allowed", param="model")
        if not servers(spec).isdisjoint(key.excluded_providers):
            message = "This key excludes the provider that requests are forwarded to."
            raise ApiError(403, message, code="providers_excluded")
        if not question.orders:
            return
        if not question.model and (key.models is not None or key.usd_per_day is not None):
            message = (
                "This key has a limit of models or USD, and no model can be read in this request: name it in JSON."
            )
            raise ApiError(400, message, code="model_not_named", param="model")
        if key.usd_per_day is not None and spec.price is None:
            message = "This key has a limit in USD, and no price is known of this model: name a worker of a pool file."
            raise ApiError(400, message, code="no_price", param="model")

    async def models(self, request: Request, client: Client, ours: ServedModels) -> list[dict[str, Any]]:
        """Returns the upstream's models that a client may ask, as the upstream lists them, with the named one."""
        listed = await self.upstream.models(request.headers, request.url.query)
        model = self.upstream.spec.model
        if all(each["id"] != model for each in listed):
            own = ServedModel(id=model, owned_by=host_of(self.upstream.base_url) or OWNED_BY)
            listed.insert(0, listed_model(model, own, anthropic="anthropic-version" in request.headers))
        allowed = None if client.key is None else client.key.models
        return [each for each in listed if ours.get(each["id"]) is None and (allowed is None or each["id"] in allowed)]

    async def answer(
        self, question: Question, request: Request, body: bytes, client: Client, allowance: Allowance, send: Send
    ) -> None:
        """Forwards a request and relays its answer. Raises: ApiError if there is none; ClientDisconnect."""
        try:
            made = self._made(question, client.caller)
        except ValueError as error:  # a request that no run can hold; it goes on all the same
            log.error("%s is recorded without its text: %s", request.url.path, type(error).__name__)
            shown = f"{request.method} {request.url.path[:500]}, {len(body):,} bytes"
            made = self._made(replace(question, asked=None, text=shown, params={}), client.caller)
        async with AsyncExitStack() as room:
            if allowance.cap is not None:
                reserved = allowance.cap.room(made.spec.price, most_usage(made))
                try:
                    await unless_left(room.enter_async_context(reserved), request.receive, allowance)
                except CostCapReached:
                    raise day_is_spent() from None
            await self._answer(made, request, body, client, allowance, send)

    async def _answer(
        self, made: Forwarded, request: Request, body: bytes, client: Client, allowance: Allowance, send: Send
    ) -> None:
        begun = await self._begin(made, BEGIN_S + len(body) / BEGIN_BYTES_PER_S)

        def gone(revoked: bool) -> None:
            made.left_by = Caller(actor=THE_PROGRAM, door="api") if revoked else client.caller

        relaying = self._relay(made, request, body, send, named=begun is not None)
        try:
            await unless_left(relaying, request.receive, allowance, gone)
        except asyncio.CancelledError:
            made.left_by = made.left_by or Caller(actor=THE_PROGRAM, door="api")
            raise
        finally:
            counted = self._end(made, begun, allowance)
            if allowance.cap is not None:
                await counted.wait()

    def _made(self, question: Question, caller: Caller) -> Forwarded:
        spec = self.upstream.spec_for(question.model, question.api, question.params)
        before = () if question.asked is None else question.asked.turns[:-1]
        conversation_id = self._turns.conversation_of(caller, before) if before else None
        return forwarded(question, spec, self.upstream.where, caller, conversation_id)

    # The answer.

    async def _relay(self, made: Forwarded, request: Request, body: bytes, send: Send, *, named: bool) -> None:
        path, query = path_below_root(request.scope["path"]), request.url.query
        raw = request.scope.get("raw_path") or b""
        if raw.startswith(f"{ROOT}/".encode()):
            path = path_below_root(raw.partition(b"?")[0].decode("latin-1"))
        try:
            headers = self.upstream.headers(Headers(scope=request.scope), made.question.api)
            response = await self.upstream.send(request.method, path, query, headers, body)
            if not 200 <= response.status_code < 600:  # no answer to a request
                await response.aclose()
                raise httpx2.RemoteProtocolError(f"status {response.status_code}")
        except ServerFault as fault:  # its key is not there
            made.fault = fault
            raise _unreached(fault, made) from None
        except httpx2.TransportError as error:
            made.fault = fault_of_connection(made.where, error, silence_s=SILENCE_S, answering=False)
            raise _unreached(made.fault, made) from None
        try:
            made.status, made.headers = response.status_code, response.headers
            relayed = returned(response)
            if named:
                relayed.append((b"x-conductor-trace-id", made.run_id.encode()))
            await _sent(send, {"type": "http.response.start", "status": made.status, "headers": relayed})
            async for part in async_stream(response):
                made.keep(part)
                await _sent(send, {"type": "http.response.body", "body": part, "more_body": True})
        except httpx2.TransportError as error:
            # The server closes the client's connection as this one was closed: in the middle.
            made.fault = fault_of_connection(made.where, error, silence_s=SILENCE_S, answering=True)
            raise ClientDisconnect from None
        finally:
            await response.aclose()
        await _sent(send, {"type": "http.response.body", "body": b"", "more_body": False})

    # The record.

    async def _begin(self, made: Forwarded, within_s: float) -> "asyncio.Future[None] | None":
        """Returns the writing of the record's beginning, durable unless that takes too long; None: there is none."""
        begun: asyncio.Future[None] | None = None
        try:
            async with asyncio.timeout(within_s):
                if images := images_of(made.question):
                    await asyncio.to_thread(self._records.keep_images, images)
                begun = self._sink.append(*made.began)
                await asyncio.shield(begun)
        except TimeoutError as error:
            if begun is None:
                self._lost(made, "unrecorded", error)
            log.warning("run %s: its record has not begun after %g s", made.run_id, within_s)
        except Exception as error:  # noqa: BLE001  whatever the record cannot take, the client is served
            self._lost(made, "unrecorded", error)
            return None
        return begun

    def _end(self, made: Forwarded, begun: "asyncio.Future[None] | None", allowance: Allowance) -> asyncio.Event:
        """Writes the end of a record in the background. Returns what is set once its cost counts in the key's day."""
        counted = asyncio.Event()
        task = asyncio.create_task(self._write_end(made, begun, allowance, counted))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        if self._keeping is None:
            self._keeping = asyncio.create_task(self._keep_counts())
        return counted

    async def _write_end(
        self, made: Forwarded, begun: "asyncio.Future[None] | None", allowance: Allowance, counted: asyncio.Event
    ) -> None:
        try:
            events = await asyncio.to_thread(end_of, made)
            over = events[-1]
            if allowance.cap is not None and isinstance(over, ev.RunCompleted | ev.Spent):
                allowance.cap.add(over.usage, over.known_usd or 0.0)
        except Exception as error:  # noqa: BLE001
            self._lost(made, "record_cut" if begun is not None else "unrecorded", error)
            return
        finally:
            counted.set()
        if begun is None:
            return
        try:
            await begun
        except Exception as error:  # noqa: BLE001
            self._lost(made, "unrecorded", error)
            return
        for pause_s in (*_RETRIES_S, None):
            try:
                await self._sink.append(*events)
                break
            except StoreError as error:
                if pause_s is None:
                    self._lost(made, "record_cut", error)
                    return
                await asyncio.sleep(pause_s)
            except Exception as error:  # noqa: BLE001
                self._lost(made, "record_cut", error)
                return
        if isinstance(over, ev.RunCompleted):
            made.kept.clear()
            if made.question.asked is not None and over.answer:
                self._turns.remember_answer(made.request, over.answer)
            if self.shadow is not None:
                self.shadow.offer(made)

    def _lost(self, made: Forwarded, how: Count, error: Exception) -> None:
        self.counts.add(how)
        log.error("run %s: %s: %s", made.run_id, how.replace("_", " "), error)

    async def _keep_counts(self) -> None:
        while True:
            await asyncio.to_thread(self.counts.keep)
            await asyncio.sleep(_KEEP_S)

    async def aclose(self) -> None:
        """Waits for a moment until the records that are being ended are written; for the shadow not at all."""
        if self.shadow is not None:
            await self.shadow.aclose()
        if self._writing:
            _, late = await asyncio.wait(self._writing, timeout=_END_S)
            if late:
                self.counts.add("record_cut", len(late))
            await ended(*late)
        if self._keeping is not None:
            await ended(self._keeping)
        await asyncio.to_thread(self.counts.keep)
        await self.upstream.aclose()


async def _sent(send: Send, message: dict[str, object]) -> None:
    try:
        async with asyncio.timeout(SEND_S):
            await send(message)
    except TimeoutError:
        raise ClientDisconnect from None


def _unreached(fault: ServerFault, made: Forwarded) -> ApiError:
    """Returns what a client is told whose request brought no answer of the upstream."""
    late = fault.kind == "timeout"
    what = "sent nothing in time" if late else "cannot be reached"
    message = f"The model that this request was forwarded to {what}; run {made.run_id} says why."
    code = "upstream_timeout" if late else "upstream_unreachable"
    return ApiError(504 if late else 502, message, code=code, run_id=made.run_id)
