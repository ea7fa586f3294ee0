"""The endpoint over HTTP: every path below ``/v1``, and ``/mcp``.

Who asks, and how much they may, is decided before a run begins.

request -> guard -> key -> body -> served model -> limits of the key -> a place -> run -> answer, whole or as a stream
"""

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from time import monotonic
from typing import Any

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from conductor_core.errors import BadInput, StoreError, UnknownRun
from conductor_core.privacy.masking import one_line
from conductor_core.run.judgement import MOST_NOTE, Judgement
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import Path, label
from conductor_core.serving import chat, messages, responses
from conductor_core.serving.admission import (
    RETRY_S,
    TOO_MUCH_AT_ONCE,
    Admission,
    Allowance,
    Client,
    Held,
    ended,
    left,
    needs_key,
    refuse_key_in_address,
    unless_left,
)
from conductor_core.serving.errors import Api, ApiError
from conductor_core.serving.forwarded import Question, model_in
from conductor_core.serving.gateway import Gateway
from conductor_core.serving.outcome import Beat, Began, Ended, Outcome, Part, named
from conductor_core.serving.pass_through import PassThrough
from conductor_core.serving.reading import Asked, Fields, read_json
from conductor_core.serving.replies import (
    MCP,
    ROOT,
    Json,
    api_of,
    failure,
    id_headers,
    is_of_the_endpoint,
    new_request_id,
    refusal,
)
from conductor_core.serving.served_models import listed
from conductor_core.serving.turns import Turn

log = logging.getLogger(__name__)

MOST_BYTES = 64 * 2**20
"""Of a request. More is refused as it comes."""
HEARTBEAT_S = 10.0
"""A stream says that it goes on after so long without a part."""
SEND_S = 60.0
"""A client that reads nothing for so long counts as gone."""
_LINGER_S = 1.0
"""How long what a refused client still sends is read, so that it comes to read the refusal."""
_UNKNOWN_PATH = (
    "This path does not exist: an OpenAI client's address ends in /v1, an Anthropic client's is the same without /v1."
)
_ANSWERED = frozenset({f"{ROOT}/chat/completions", f"{ROOT}/responses", f"{ROOT}/messages"})
"""Paths where what is asked decides who answers."""
_APIS: Mapping[str, Api] = {"chat/completions": "chat", "responses": "responses", "messages": "messages"}
_POSTED = ("/chat/completions", "/responses", "/messages")


_Stream = chat.Stream | responses.Stream | messages.Stream


def _stream_of(asked: Asked, request_id: str) -> _Stream:
    match asked.api:
        case "chat":
            return chat.Stream(include_usage=asked.include_usage)
        case "responses":
            return responses.Stream()
        case "messages":
            return messages.Stream(request_id=request_id)


_WHOLE: Mapping[Api, Callable[[Outcome], dict[str, Any]]] = {
    "chat": chat.whole,
    "responses": responses.whole,
    "messages": messages.whole,
}


# Answers to who asks for a response.


class _Answer:
    """Carries out what a client asks, and answers with the response, whole or as a stream. An ASGI app."""

    def __init__(self, gateway: Callable[[], Gateway], api: Api) -> None:
        self._gateway = gateway
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._gateway().admission.holding() as held:
            await self._answer(held, scope, receive, send)

    async def _answer(self, held: Held, scope: Scope, receive: Receive, send: Send) -> None:
        request, gateway = Request(scope, receive, send), self._gateway()
        admission = gateway.admission
        client = await admission.client(request)
        admission.count(client)
        body = await _body(request, held)
        if gateway.passing is not None:
            question = await gateway.passing.read(self._api, request, body, held)
            if gateway.models.get(question.model) is None:
                await _forward(gateway, gateway.passing, question, request, body, client, send)
                return
        asked = await gateway.read(self._api, body, client)
        async with admission.allowance(client) as allowance:
            await _enter(admission, receive, allowance)
            try:
                excluded = () if client.key is None else client.key.excluded_providers
                turn = await gateway.turns.begin(asked, client.caller, excluded, allowance.cap)
                told = _Told(turn, _run_url(gateway, request, turn.run_id), allowance)
                try:
                    if asked.stream:
                        stream = _stream_of(asked, request.state.request_id)
                        await _EventStream(told, stream)(scope, receive, send)
                    else:
                        outcome = await unless_left(
                            told.outcome(), receive, allowance, lambda revoked: turn.revoke() if revoked else None
                        )
                        await _answer_of(outcome, told.headers)(scope, receive, send)
                except ClientDisconnect:
                    raise
                except Exception as error:
                    raise _Failed(_fault_of(error, f"run {turn.run_id}"), told.headers) from error
            finally:
                admission.leave()


async def _enter(admission: Admission, receive: Receive, allowance: Allowance) -> None:
    if admission.full:
        await unless_left(admission.enter(), receive, allowance)
    else:
        await admission.enter()


def _answer_of(outcome: Outcome, headers: Mapping[str, str]) -> Response:
    """Raises: ApiError if the run failed, or was cancelled and the API has no word for that."""
    api = outcome.client.api
    failed = failure(outcome)
    if failed is not None and (api != "responses" or outcome.status == "failed"):
        raise failed
    return Json(_WHOLE[api](outcome), headers={"cache-control": "no-store", **headers})


class _Failed(Exception):
    """A fault after a run was begun: workers may have been paid."""

    def __init__(self, error: ApiError, headers: Mapping[str, str]) -> None:
        super().__init__(error.message)
        self.error, self.headers = replace(error, may_retry=False), headers


@dataclass
class _Told:
    """One response as its client is told of it: with the address of its run that this client can open."""

    turn: Turn
    url: str
    allowance: Allowance

    @property
    def headers(self) -> Mapping[str, str]:
        return {"x-conductor-trace-id": self.turn.run_id, "x-conductor-trace-url": self.url}

    async def outcome(self) -> Outcome:
        return replace(await self.turn.outcome(), trace_url=self.url)

    def placed(self, part: Part) -> Part:
        if isinstance(part, Began | Ended):
            return replace(part, outcome=replace(part.outcome, trace_url=self.url))
        return part


def _run_url(gateway: Gateway, request: Request, run_id: str) -> str:
    base = gateway.inspector_url or f"{request.url.scheme}://{request.headers['host']}"
    return f"{base.rstrip('/')}/run?run={run_id}"


class _EventStream:
    """Sends a response as server-sent events as it is made, those that come together in one write. An ASGI app.

    If the client leaves, or a fault comes, the run is cancelled. A fault before the first event is raised; a later one
    ends the stream in the API's own way. One task follows the run and writes: a task for each part took longer than
    the part.
    """

    def __init__(self, told: _Told, stream: _Stream) -> None:
        self._told, self._stream = told, stream
        head = {"cache-control": "no-store", "x-accel-buffering": "no", **told.headers}
        self._head = Response(None, headers=head, media_type="text/event-stream")
        del self._head.headers["content-length"]
        self._begun = False
        self._writes = asyncio.Lock()
        self._written_s = monotonic()

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        writing = asyncio.create_task(self._write(send))
        leaving, revoked = asyncio.create_task(left(receive)), asyncio.create_task(self._told.allowance.revoked.wait())
        try:
            await self._until_one_ends(send, writing, leaving, revoked)
            if writing.done():
                writing.result()
            elif revoked.done():
                self._told.turn.revoke()
                raise needs_key()
            else:
                raise ClientDisconnect
        except ClientDisconnect:
            raise
        except Exception as error:
            await ended(writing)
            if not self._begun:
                raise
            await self._sent(send, self._stream.fault(_fault_of(error, f"run {self._told.turn.run_id}")))
        finally:
            await ended(writing, leaving, revoked)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _until_one_ends(self, send: Send, *tasks: "asyncio.Task[Any]") -> None:
        """Says meanwhile that the run goes on, if nothing else is sent for a while."""
        while True:
            silent_s = monotonic() - self._written_s
            writes = self._writes.locked()
            if writes and silent_s >= HEARTBEAT_S + SEND_S:
                raise ClientDisconnect
            if not writes and silent_s >= HEARTBEAT_S and self._begun:
                await self._sent(send, self._stream.feed(Beat()))
                continue
            left_s = HEARTBEAT_S - silent_s
            await asyncio.wait(
                tasks, timeout=left_s if left_s > 0 else HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED
            )
            if any(task.done() for task in tasks):
                return

    async def _write(self, send: Send) -> None:
        async with aclosing(self._told.turn.parts()) as groups:
            async for group in groups:
                events = [event for part in group for event in self._stream.feed(self._told.placed(part))]
                async with self._writes:
                    await self._send(send, events)

    async def _send(self, send: Send, events: Iterable[bytes]) -> None:
        if body := b"".join(events):
            if not self._begun:
                self._begun = True
                await send({"type": "http.response.start", "status": 200, "headers": self._head.raw_headers})
            await send({"type": "http.response.body", "body": body, "more_body": True})
        self._written_s = monotonic()

    async def _sent(self, send: Send, events: Iterable[bytes]) -> None:
        """Raises: ClientDisconnect if the client reads nothing."""
        try:
            async with asyncio.timeout(SEND_S), self._writes:
                await self._send(send, events)
        except TimeoutError:
            raise ClientDisconnect from None


class _Tools:
    """Lets an MCP client read runs. It is admitted as whoever asks for a response. An ASGI app."""

    def __init__(self, gateway: Callable[[], Gateway]) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gateway = self._gateway()
        if gateway.tools is None:
            raise HTTPException(404)
        client = await gateway.admission.client(Request(scope))
        gateway.admission.count(client)
        with gateway.admission.holding() as held:
            body = await _body(Request(scope, receive), held)
            await gateway.admission.enter()
            try:
                await gateway.tools(client.caller, scope, _again(body, receive), send)
            finally:
                gateway.admission.leave()


async def _body(request: Request, held: Held) -> bytes:
    """Raises: ApiError 413, 503; ClientDisconnect."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        held.add(len(piece))
        if len(body) > MOST_BYTES:
            message = f"The request is larger than {MOST_BYTES >> 20} MB."
            raise ApiError(413, message, code="request_too_large")
    return bytes(body)


# What is forwarded.


async def _forward(
    gateway: Gateway,
    passing: PassThrough,
    question: Question,
    request: Request,
    body: bytes,
    client: Client,
    send: Send,
) -> None:
    passing.check(question, client)
    async with gateway.admission.allowance(client) as allowance:
        await _enter(gateway.admission, request.receive, allowance)
        try:
            await passing.answer(question, request, body, client, allowance, send)
        finally:
            gateway.admission.leave()


class _ForwardsOthers:
    """Forwards what is asked at paths that are not ours, or of models and responses that are not. An ASGI app."""

    def __init__(self, app: Router, gateway: Callable[[], Gateway]) -> None:
        self._app, self._gateway = app, gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gateway = self._gateway()
        passing, path = gateway.passing, scope["path"]
        answered = path in _ANSWERED and scope["method"] == "POST"
        if passing is None or answered or not path.startswith(f"{ROOT}/") or _leads_out(scope):
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive, send)
        client = await gateway.admission.client(request)
        with gateway.admission.holding() as held:
            names = path.removeprefix(f"{ROOT}/").split("/")
            body = b"" if names[0] == "models" else await _body(request, held)
            if any(route.matches(scope)[0] is Match.FULL for route in self._app.routes) and await self._is_ours(
                gateway, client, names, body
            ):
                await self._app(scope, _again(body, receive), send)
                return
            gateway.admission.count(client)
            # Many servers take a path with more slashes for the same one.
            api = _APIS.get("/".join(name for name in names if name)) if scope["method"] == "POST" else None
            question = await passing.read(api, request, body, held)
            await _forward(gateway, passing, question, request, body, client, send)

    @staticmethod
    async def _is_ours(gateway: Gateway, client: Client, names: list[str], body: bytes) -> bool:
        """Whether a request at a path of ours is for us."""
        match names:
            case ["models"]:
                return True
            case ["models", *model_id]:
                return gateway.models.get("/".join(model_id)) is not None
            case ["responses", "compact"] | ["messages", "count_tokens"]:
                return gateway.models.get(await asyncio.to_thread(model_in, body)) is not None
            case ["responses", response_id, *_]:
                try:
                    await gateway.response(client, response_id)
                except ApiError as error:
                    return error.status != 404
        return True


def _leads_out(scope: Scope) -> bool:
    """Whether a path leads out of the API's root. As it was written: with ``/v1%2f@host`` it names another host."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    names = (part.partition(b";")[0].lower() for part in re.split(rb"/|%2[fF]|\\|%5[cC]", raw))
    return not raw.startswith(f"{ROOT}/".encode()) or any(name.replace(b"%2e", b".") in (b".", b"..") for name in names)


def _again(body: bytes, receive: Receive) -> Receive:
    """Returns what gives a body that was read once more, and then what else comes."""
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Message:
        return left.pop() if left else await receive()

    return received


# What is read: models, what was answered, and what is held of it.


async def _models(request: Request, gateway: Gateway, client: Client) -> Response:
    found = gateway.listed(client)
    others = [] if gateway.passing is None else await gateway.passing.models(request, client, gateway.models)
    anthropic = "anthropic-version" in request.headers
    data = [*(listed(each, model, anthropic=anthropic) for each, model in found), *others]
    if not anthropic:
        return Json({"object": "list", "data": data})
    ends = {"first_id": data[0]["id"] if data else None, "last_id": data[-1]["id"] if data else None}
    return Json({"data": data, "has_more": False, **ends})


async def _model(request: Request, gateway: Gateway, client: Client) -> Response:
    model_id = request.path_params["model_id"]
    model = gateway.model_for(client, model_id)
    return Json(listed(model_id, model, anthropic="anthropic-version" in request.headers))


async def _response(request: Request, gateway: Gateway, client: Client) -> Response:
    outcome = await gateway.response(client, request.path_params["response_id"])
    return _shown(request, gateway, outcome)


def _shown(request: Request, gateway: Gateway, outcome: Outcome) -> Response:
    url = _run_url(gateway, request, outcome.run_id)
    headers = {"x-conductor-trace-id": outcome.run_id, "x-conductor-trace-url": url}
    return Json(responses.whole(replace(outcome, trace_url=url)), headers=headers)


async def _delete(request: Request, gateway: Gateway, client: Client) -> Response:
    response_id = request.path_params["response_id"]
    await gateway.response(client, response_id)
    await asyncio.to_thread(gateway.deletions.delete, response_id, client.caller)
    return Json({"id": response_id, "object": "response.deleted", "deleted": True})


async def _cancel(request: Request, gateway: Gateway, client: Client) -> Response:
    outcome = await gateway.response(client, request.path_params["response_id"])
    if outcome.status == "in_progress":
        await gateway.turns.cancel(outcome.run_id, client.caller)
        outcome = await asyncio.to_thread(gateway.turns.recorded, outcome.run_id, outcome.number)
    return _shown(request, gateway, outcome)


async def _input_items(request: Request, gateway: Gateway, client: Client) -> Response:
    outcome = await gateway.response(client, request.path_params["response_id"])
    turns = await asyncio.to_thread(gateway.turns.input_of, outcome.run_id, outcome.number)
    custom = [tool.name for tool in outcome.tools if tool.custom]
    told = responses.input_system(outcome.system, outcome.client.echoed)
    items = responses.input_items(outcome.run_id, outcome.number, turns, told, custom)
    return Json(responses.page(items, request.query_params))


async def _compact(request: Request, gateway: Gateway, client: Client) -> Response:
    gateway.admission.count(client)
    with gateway.admission.holding() as held:
        asked, before = await gateway.read_compact(await _body(request, held), client)
    return Json(await asyncio.to_thread(responses.compact, asked, gateway.seal, datetime.now(UTC), before))


async def _count_tokens(request: Request, gateway: Gateway, client: Client) -> Response:
    gateway.admission.count(client)
    with gateway.admission.holding() as held:
        model, tokens = await asyncio.to_thread(messages.count_tokens, await _body(request, held))
    gateway.model_for(client, model)
    return Json({"input_tokens": tokens})


async def _judge(request: Request, gateway: Gateway, client: Client) -> Response:
    gateway.admission.count(client)
    with gateway.admission.holding() as held:
        return Json(await asyncio.to_thread(_judged, gateway, client, await _body(request, held)))


async def _judgements(request: Request, gateway: Gateway, client: Client) -> Response:
    gateway.admission.count(client)
    run_id = request.query_params.get("run_id", "")
    return Json(await asyncio.to_thread(_counting, gateway, client, run_id))


# ``/v1/judgements``: what a client holds of the runs that it caused, in our own words: no API has such a call.


def _judged(gateway: Gateway, client: Client, body: bytes) -> dict[str, Any]:
    """Keeps what a request says, and returns it. Blocks. Raises: ApiError, StoreError."""
    fields = read_json(body)
    ids = [name for name in ("run_id", "response_id") if fields.get(name) is not None]
    if len(ids) != 1:
        raise ApiError(400, "Give run_id or response_id, not both.", code="missing_required_parameter", param="run_id")
    trace = _run(gateway, client, fields.name(ids[0]), of_response=ids == ["response_id"])
    mark: Any = fields.choice("mark", ("right", "wrong"))
    by: Any = fields.choice("by", ("person", "grader")) or "person"
    score, note = fields.number("score"), fields.text("note") or ""
    if score is not None and not 0 <= score <= 1:
        raise fields.refused("score", "expected 0 (bad) to 1 (good)")
    if len(note) > MOST_NOTE:
        raise fields.refused("note", f"expected at most {MOST_NOTE:,} characters, got {len(note):,}")
    path = _judged_step(fields, trace)
    try:
        kept = gateway.judgements.add(trace.run_id, client.caller, path=path, mark=mark, score=score, note=note, by=by)
    except UnknownRun:  # it was deleted meanwhile
        raise _unknown(trace.run_id) from None
    except BadInput as error:
        raise ApiError(400, one_line(str(error), limit=200), code="invalid_value") from None
    return _judgement(kept)


def _counting(gateway: Gateway, client: Client, run_id: str) -> dict[str, Any]:
    """Returns what counts of the client's own judgements of a run. Blocks. Raises: as ``_judged``."""
    if not run_id:
        raise ApiError(400, "Give run_id in the address.", code="missing_required_parameter", param="run_id")
    trace = _run(gateway, client, run_id)
    found = gateway.judgements.latest([trace.run_id]).get(trace.run_id, ())
    own = [each for each in found if client.key is None or _is_of(each, client)]
    return {"object": "list", "data": [_judgement(each) for each in own]}


def _is_of(judgement: Judgement, client: Client) -> bool:
    actor = None if client.key is None else client.key.actor
    return actor is not None and judgement.actor is not None and judgement.actor.account == actor.account


def _run(gateway: Gateway, client: Client, given: str, *, of_response: bool = False) -> RunTrace:
    """Returns the run of this id, or of the response of this id, if this client caused it. Raises: ApiError 404."""
    unknown = _unknown(given)
    if of_response:
        found = named(given)
        if found is None or gateway.deletions.deleted(given):
            raise unknown
        given = found.run_id
    try:
        trace = gateway.turns.run(given)
    except UnknownRun:
        raise unknown from None
    foreign = client.key is not None and (trace.actor is None or trace.actor.id != client.key.actor.id)
    if foreign:
        raise unknown
    return trace


def _unknown(given: str) -> ApiError:
    return ApiError(404, f"Run or response '{one_line(given, limit=80)}' not found.", code="run_not_found")


def _judged_step(fields: Fields, trace: RunTrace) -> Path | None:
    value = fields.get("step")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise fields.wrong_type("step", "a number, or a string such as 2.0")
    path = next((step.path for step in trace.walk() if label(step.path) == str(value)), None)
    if path is None:
        raise fields.refused("step", "the run has no such step", "step_not_found")
    return path


def _judgement(judgement: Judgement) -> dict[str, Any]:
    return {
        "id": f"judgement_{judgement.id}",
        "object": "judgement",
        "created_at": int(judgement.at_utc.timestamp()),
        "run_id": judgement.run_id,
        "step": None if judgement.path is None else label(judgement.path),
        "mark": judgement.mark,
        "score": judgement.score,
        "note": judgement.note,
        "by": judgement.by,
        "judge": None if judgement.actor is None else judgement.actor.name,
    }


# Routes.

_Handler = Callable[[Request, Gateway, Client], Coroutine[Any, Any, Response]]


def endpoint(gateway: Callable[[], Gateway]) -> ASGIApp:
    """Returns the app that answers every path in the shape of its API.

    ``gateway`` is asked at each request: the server may begin later than the app is made.
    """

    def known(handler: _Handler) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        async def answer(request: Request) -> Response:
            client = await gateway().admission.client(request)
            response = await handler(request, gateway(), client)
            response.headers["cache-control"] = "no-store"
            return response

        return answer

    one = f"{ROOT}/responses/{{response_id}}"
    paths: list[BaseRoute] = [
        Route(f"{ROOT}/chat/completions", _Answer(gateway, "chat"), methods=["POST"]),
        Route(f"{ROOT}/responses", _Answer(gateway, "responses"), methods=["POST"]),
        Route(f"{ROOT}/messages", _Answer(gateway, "messages"), methods=["POST"]),
        Route(one, known(_response), methods=["GET"]),
        Route(one, known(_delete), methods=["DELETE"]),
        Route(f"{ROOT}/responses/compact", known(_compact), methods=["POST"]),
        Route(f"{one}/cancel", known(_cancel), methods=["POST"]),
        Route(f"{one}/input_items", known(_input_items), methods=["GET"]),
        Route(f"{ROOT}/messages/count_tokens", known(_count_tokens), methods=["POST"]),
        Route(f"{ROOT}/judgements", known(_judge), methods=["POST"]),
        Route(f"{ROOT}/judgements", known(_judgements), methods=["GET"]),
        Route(f"{ROOT}/models", known(_models), methods=["GET"]),
        Route(f"{ROOT}/models/{{model_id:path}}", known(_model), methods=["GET"]),
        Route(MCP, _Tools(gateway), methods=["POST"]),
    ]
    router = Router(paths, redirect_slashes=False, default=_unknown_path)
    return _Endpoint(_ForwardsOthers(router, gateway))


async def _unknown_path(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise HTTPException(404)


class Beside:
    """Answers the endpoint's paths beside another app, whose own layers would refuse odd ones in their own words.

    What a client asks without ``/v1`` is told so, too: the other app knows none of these calls.
    """

    def __init__(self, app: ASGIApp, gateway: Callable[[], Gateway]) -> None:
        self._app, self._endpoint = app, endpoint(gateway)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        ours = scope["type"] in ("http", "websocket") and (is_of_the_endpoint(scope["path"]) or _lacks_root(scope))
        await (self._endpoint if ours else self._app)(scope, receive, send)


def _lacks_root(scope: Scope) -> bool:
    if scope["type"] != "http":
        return False
    path: str = scope["path"]
    if scope["method"] == "GET":  # a browser that opens the page of this name accepts HTML
        return path == "/models" and Headers(scope=scope).get("accept") == "application/json"
    return scope["method"] == "POST" and path.startswith(_POSTED)


class _Endpoint:
    """Gives each request an id, and answers every fault in the shape of its API. An ASGI app."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await WebSocketClose(4404)(scope, receive, send)
            return
        request_id, path = new_request_id(), scope["path"]
        ids = [(name.encode(), value.encode()) for name, value in id_headers(request_id, api_of(scope)).items()]
        begun = False

        async def send_with_id(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                given = message.get("headers", ())
                named = {name.lower() for name, _ in given}  # a forwarded answer has its own
                message = {**message, "headers": [*given, *(each for each in ids if each[0] not in named)]}
            await send(message)

        # With an app in it, Starlette raises what it would else answer in its own words.
        inner = {**scope, "app": self, "state": {**scope.get("state", {}), "request_id": request_id}}
        try:
            refuse_key_in_address(Request(scope))
            await self._app(inner, receive, send_with_id)
            return
        except ClientDisconnect:
            log.info("%s %s: the client left", scope["method"], one_line(path, limit=100))
            return
        except asyncio.CancelledError:  # by the server, which is stopping and would log a traceback
            log.warning("%s %s: broken off, because the server stops", scope["method"], one_line(path, limit=100))
            return
        except _Failed as failed:
            error, headers = failed.error, failed.headers
        except HTTPException as refused:
            error, headers = _of_http(refused), refused.headers or {}
        except Exception as fault:  # noqa: BLE001 - every fault is answered in the shape of the API
            error, headers = _fault_of(fault, f"{scope['method']} {path}"), {}
        if not begun:
            await _refuse(refusal(error, scope, request_id, headers), error, scope, receive, send)


async def _refuse(answer: Response, error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    if error.status != 413 and error.code != TOO_MUCH_AT_ONCE:
        await answer(scope, receive, send)
        return
    # A connection that is closed while the client still sends would take the answer with it.
    answer.headers["connection"] = "close"
    await send({"type": "http.response.start", "status": answer.status_code, "headers": answer.raw_headers})
    await send({"type": "http.response.body", "body": answer.body, "more_body": True})
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_S):
            while (message := await receive())["type"] == "http.request" and message.get("more_body"):
                pass
    await send({"type": "http.response.body", "body": b""})


def _of_http(refused: HTTPException) -> ApiError:
    if refused.status_code == 404:
        return ApiError(404, _UNKNOWN_PATH, code="unknown_url")
    if refused.status_code == 405:
        return ApiError(405, "This path does not take this method.", code="method_not_allowed")
    return ApiError(refused.status_code, one_line(str(refused.detail), limit=200))


def _fault_of(error: Exception, what: str) -> ApiError:
    """Returns what a client is told of a fault. One that nobody foresaw is logged in one line, and not told."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, BadInput):
        return ApiError(400, one_line(str(error), limit=500))
    line = one_line(f"{what}: {type(error).__name__}: {error}", limit=500)
    if isinstance(error, StoreError):
        log.error("%s", line)
        return ApiError(503, "The database cannot be used at the moment.", code="database", retry_after_s=RETRY_S)
    log.error("unforeseen: %s", line)
    return ApiError(500, "Something went wrong here; the server's log says what.", code="internal_error")
