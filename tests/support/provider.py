"""A scripted provider on loopback that speaks OpenAI's and Anthropic's streams, counts calls and can misbehave.

``with ScriptedProvider() as provider:`` starts it in a thread of its own, so that it serves the event loop of a test,
an engine in another thread and a browser alike. Unless told otherwise it answers every request with a text that depends
on nothing but the model and the messages. ``provider.then(...)`` queues replies (one a request) and
``provider.always(...)`` sets the reply for all others; both take a ``Reply``, an ``Answer`` or a function from ``Call``
to either.
"""

import asyncio
import hashlib
import json
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from conductor_core.chat.messages import Price, WorkerSpec
from tests.support.eventually import eventually

SSE = "text/event-stream"


@dataclass(frozen=True)
class Pause:
    """Waits before the next part of a reply."""

    seconds: float


@dataclass(frozen=True)
class Cut:
    """Closes the connection, in the middle of whatever was being said."""


@dataclass(frozen=True)
class Hang:
    """Says nothing more until the client leaves."""


Part = bytes | Pause | Cut | Hang


@dataclass(frozen=True)
class Call:
    """One request, as it came in. ``raw``: the bytes of its body; ``body`` is None if they are not JSON."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    connection: int
    raw: bytes = b""

    @property
    def model(self) -> str:
        return str(self.body.get("model", "")) if isinstance(self.body, dict) else ""

    @property
    def messages(self) -> list[dict[str, Any]]:
        return list(self.body.get("messages", [])) if isinstance(self.body, dict) else []

    @property
    def is_completion(self) -> bool:
        return self.path.endswith(("/chat/completions", "/messages"))


@dataclass(frozen=True)
class Reply:
    """Raw bytes under a status. Without a ``content-length`` among the headers the body is chunked."""

    parts: Iterable[Part] = ()
    status: int = 200
    content_type: str | None = SSE
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """A whole, well-behaved answer, told in the dialect of the request's path.

    Attributes:
        usage: input and output tokens; None: the provider reports none.
        pieces: number of events that the text is split into.
        pause_s: wait before each event.
    """

    text: str
    usage: tuple[int, int] | None = (7, 3)
    reasoning: str = ""
    finish_reason: str = "stop"
    pieces: int = 4
    pause_s: float = 0.0
    cost_usd: float | None = None


Script = Reply | Answer | Callable[[Call], "Reply | Answer"]


def deterministic_answer(call: Call) -> Answer:
    """The same messages to the same model always bring the same text, different ones a different text."""
    digest = hashlib.sha256(json.dumps([call.model, call.messages], sort_keys=True).encode()).hexdigest()[:16]
    return Answer(f"{call.model} answers {digest}")


def sse(*data: Any, event: str | None = None) -> bytes:
    """Server-sent events: each argument's JSON, or itself if it is a string, as one event."""
    head = f"event: {event}\n" if event else ""
    return "".join(f"{head}data: {item if isinstance(item, str) else json.dumps(item)}\n\n" for item in data).encode()


def delta(text: str | None = None, *, finish: str | None = None, index: int = 0, **more: Any) -> dict[str, Any]:
    """One OpenAI chunk."""
    content = {} if text is None else {"content": text}
    choice = {"index": index, "delta": content | more, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "model": "scripted", "choices": [choice]}


def error(status: int, body: Any = None, *, content_type: str = "application/json", **headers: str) -> Reply:
    """An error reply; a body that is no string is sent as JSON. Underscores in header names become hyphens."""
    if body is None:
        body = {"error": {"message": f"scripted status {status}", "type": "scripted", "code": None}}
    raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply([raw], status=status, content_type=content_type, headers=named)


def cut_after(text: str) -> Reply:
    """An answer cut in the middle of an event after ``text`` has arrived."""
    return Reply([sse(delta(text)), b'data: {"id": "c1", "choices": [{"ind', Cut()])


def hang_after(text: str = "") -> Reply:
    return Reply([*([sse(delta(text))] if text else []), Hang()])


def _split(text: str, pieces: int) -> list[str]:
    size = max(1, -(-len(text) // max(1, pieces)))
    return [text[start : start + size] for start in range(0, len(text), size)]


def _openai_events(answer: Answer, include_usage: bool) -> list[bytes]:
    events = [sse(delta(reasoning_content=piece)) for piece in _split(answer.reasoning, 2)]
    events += [sse(delta(piece)) for piece in _split(answer.text, answer.pieces)]
    events.append(sse(delta(finish=answer.finish_reason)))
    if answer.usage is not None and include_usage:
        given, made = answer.usage
        usage: dict[str, Any] = {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}
        if answer.cost_usd is not None:
            usage["cost"] = answer.cost_usd
        events.append(sse({"id": "c1", "model": "scripted", "choices": [], "usage": usage}))
    return [*events, sse("[DONE]")]


def openai_whole(answer: Answer, model: str) -> Reply:
    """The answer to a request that does not ask for a stream."""
    message = {"role": "assistant", "content": answer.text, "refusal": None}
    given, made = answer.usage or (0, 0)
    whole = {
        "id": "c1",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": answer.finish_reason, "logprobs": None}],
        "usage": {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made},
    }
    parts: list[Part] = [Pause(answer.pause_s)] if answer.pause_s else []
    return Reply([*parts, json.dumps(whole).encode()], content_type="application/json")


def _anthropic_events(answer: Answer) -> list[bytes]:
    def named(kind: str, **fields: Any) -> bytes:
        return sse({"type": kind} | fields, event=kind)

    given, made = answer.usage or (0, 0)
    start_usage = {"usage": {"input_tokens": given, "output_tokens": 1}} if answer.usage else {}
    events = [named("message_start", message={"id": "m1", "model": "scripted"} | start_usage), named("ping")]
    blocks: list[tuple[Literal["thinking", "text"], str]] = [("thinking", answer.reasoning), ("text", answer.text)]
    for index, (kind, text) in enumerate(block for block in blocks if block[1]):
        events.append(named("content_block_start", index=index, content_block={"type": kind, kind: ""}))
        for piece in _split(text, answer.pieces):
            part = {"type": f"{kind}_delta", kind: piece}
            events.append(named("content_block_delta", index=index, delta=part))
        events.append(named("content_block_stop", index=index))
    reason = {"stop": "end_turn", "length": "max_tokens"}.get(answer.finish_reason, answer.finish_reason)
    end_usage = {"usage": {"output_tokens": made}} if answer.usage else {}
    events.append(named("message_delta", **({"delta": {"stop_reason": reason}} | end_usage)))
    return [*events, named("message_stop")]


def _as_reply(script: Reply | Answer, call: Call) -> Reply:
    if isinstance(script, Reply):
        return script
    if call.path.endswith("/messages"):
        events = _anthropic_events(script)
    elif call.path.endswith("/chat/completions") and not call.body.get("stream"):
        return openai_whole(script, call.model)
    else:
        options = call.body.get("stream_options") or {} if isinstance(call.body, dict) else {}
        events = _openai_events(script, bool(options.get("include_usage")))
    if not script.pause_s:
        return Reply(events)
    return Reply([part for event in events for part in (Pause(script.pause_s), event)])


class ScriptedProvider:
    """See the module. Safe to use from any thread.

    Attributes:
        calls: every request so far, in order of arrival.
        connections: TCP connections accepted so far.
        left: the calls whose clients left before their reply was whole.
        most_at_once: the largest number of completions that were being answered at the same time.
    """

    def __init__(self, models: Iterable[str] = ("scripted",)) -> None:
        self.models = list(models)
        self.calls: list[Call] = []
        self.connections = 0
        self.left: list[Call] = []
        self.most_at_once = 0
        self._at_once = 0
        self._always: Script = deterministic_answer
        self._queue: deque[Script] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="scripted provider", daemon=True)
        self._ready = threading.Event()
        self._port = 0

    @property
    def url(self) -> str:
        """The base URL of both dialects, ending in /v1."""
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def port(self) -> int:
        return self._port

    @property
    def disconnects(self) -> int:
        return len(self.left)

    @property
    def completions(self) -> list[Call]:
        return [call for call in self.calls if call.is_completion]

    def spec(self, name: str = "alpha", **fields: Any) -> WorkerSpec:
        """A worker of this provider, priced so that costs are easy to check by hand."""
        known: dict[str, Any] = {
            "name": name,
            "provider": "openai",
            "model": name,
            "base_url": self.url,
            "usd_per_mtok": Price(input=1.0, output=10.0),
            "timeout_s": 10.0,
        }
        return WorkerSpec(**(known | fields))

    def always(self, script: Script) -> Self:
        self._always = script
        return self

    def then(self, *scripts: Script) -> Self:
        self._queue.extend(scripts)
        return self

    def reset(self) -> None:
        """Forgets calls, scripts and counts (of connections it does not)."""
        self.calls.clear()
        self._queue.clear()
        self._always = deterministic_answer
        self.most_at_once = 0
        # A new list: who leaves late, of an earlier test, is not counted here.
        self.left = []

    def wait_until(self, condition: Callable[[Self], bool]) -> bool:
        """Waits until ``condition`` holds, and says so."""
        return eventually(lambda: condition(self))

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(10):
            raise RuntimeError("the scripted provider did not start")
        return self

    def __exit__(self, *_: object) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)

    def _run(self) -> None:
        loop = self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        server = loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0, limit=2**24))
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        try:
            loop.run_forever()
        finally:
            server.close()
            # Those too that have not begun, or answer for a connection: a task that is left behind fails a later test.
            while left := asyncio.all_tasks(loop):
                for task in left:
                    task.cancel()
                loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        connection = self.connections
        ahead: bytes | None = b""
        with suppress(ConnectionError, asyncio.CancelledError):
            while ahead is not None and (call := await self._read(ahead, reader, connection)) is not None:
                self.calls.append(call)
                ahead = await self._reply(call, reader, writer)
        writer.close()

    async def _read(self, ahead: bytes, reader: asyncio.StreamReader, connection: int) -> Call | None:
        try:
            head = ahead + await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
        body = None
        with suppress(ValueError):
            body = json.loads(raw)
        return Call(method, path, headers, body, connection, raw)

    def _script(self, call: Call) -> Reply:
        if call.path.endswith("/models"):
            listed = [{"id": model, "object": "model", "owned_by": "scripted"} for model in self.models]
            listing = json.dumps({"object": "list", "data": listed}).encode()
            return Reply([listing], content_type="application/json")
        script = self._queue.popleft() if self._queue else self._always
        return _as_reply(script(call) if callable(script) else script, call)

    async def _reply(self, call: Call, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes | None:
        """What the client has already sent of its next request; None if the connection cannot be used again."""
        reply, leavers = self._script(call), self.left
        self._at_once += call.is_completion
        self.most_at_once = max(self.most_at_once, self._at_once)
        watch = asyncio.ensure_future(reader.read(1))
        told = asyncio.ensure_future(self._notify(reply, writer))
        try:
            await asyncio.wait({watch, told}, return_when=asyncio.FIRST_COMPLETED)
            if not told.done() and (watch.exception() or not watch.result()):
                leavers.append(call)
                return None
            try:
                usable = await told
            except ConnectionError:
                leavers.append(call)
                return None
            return (watch.result() if watch.done() else b"") if usable else None
        finally:
            self._at_once -= call.is_completion
            for task in (watch, told):
                task.cancel()
            await asyncio.gather(watch, told, return_exceptions=True)

    async def _notify(self, reply: Reply, writer: asyncio.StreamWriter) -> bool:
        headers = ({} if "content-length" in reply.headers else {"transfer-encoding": "chunked"}) | reply.headers
        if reply.content_type is not None:
            headers["content-type"] = reply.content_type
        lines = [f"HTTP/1.1 {reply.status} Scripted", *(f"{name}: {value}" for name, value in headers.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        chunked = headers.get("transfer-encoding") == "chunked"
        async for part in _paced(reply.parts):
            if isinstance(part, Cut):
                # Not abort(): a reset may overtake what was said before.
                writer.close()
                return False
            writer.write(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
            await writer.drain()
        writer.write(b"0\r\n\r\n" if chunked else b"")
        await writer.drain()
        return True


async def _paced(parts: Iterable[Part]) -> AsyncIterator[bytes | Cut]:
    for part in parts:
        if isinstance(part, Pause):
            await asyncio.sleep(part.seconds)
        elif isinstance(part, Hang):
            await asyncio.Event().wait()
        elif part:
            yield part
