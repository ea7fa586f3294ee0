"""The record of a forwarded request: a run with one step, whose worker is the model that the client asked for.

Nothing here changes what is sent or returned: it reads copies. A request is read by the readers of all requests; one
that they refuse (audio, files, a conversation that ends with the assistant) is recorded as its body's text. What a
request says beside its messages are the parameters of its worker. Requests of other paths have method, path, sizes and
status in their record, and no text.

An answer is read by the readers of providers' answers. Its usage is the upstream's own; if none came, because a stream
was not asked for it, it is estimated and says so. An answer that calls tools has ended well: its calls are in the
record, and nobody here carries them out. Of several choices the first is recorded.
"""

import re
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pydantic_core

from conductor_core import __version__
from conductor_core.chat.messages import (
    CallTerms,
    Finished,
    ImagePart,
    LoadedImage,
    Message,
    Usage,
    WorkerSpec,
    content_of,
    images_in,
)
from conductor_core.chat.usage import ReportedUsage, estimate_input_tokens, estimate_tokens
from conductor_core.engine.budgets import longest_answer, longest_question
from conductor_core.engine.prompts import digest_text, worker_identity
from conductor_core.providers.anthropic import AnthropicDialect
from conductor_core.providers.client import NoPart, Pieced, Reader
from conductor_core.providers.errors import ServerFault, error_reply_of, fault_of_reply, read_error_reply
from conductor_core.providers.openai import ChatReader
from conductor_core.run import events as ev
from conductor_core.run.actor import Caller
from conductor_core.run.request import PASS_PURPOSE, ClientRequest, RunRequest, new_run_id
from conductor_core.run.values import PoolInfo
from conductor_core.serving import chat, messages, responses
from conductor_core.serving.errors import Api, ApiError
from conductor_core.serving.reading import Asked, Fields, read_json
from conductor_core.serving.turns import task_of, without_contents
from conductor_core.text import whole_characters
from conductor_core.workers.pool import error_of
from conductor_core.workflow.model import QUESTION, Step, Workflow
from conductor_core.workflow.topology import topology

POOL = "pass-through"
MOST_TEXT = 4_000_000
"""Characters that are recorded of a body that cannot be read, or of an answer."""
MOST_KEPT_BYTES = 64 << 20
"""Of an answer, for its record."""
_PATH = (0,)
_TEXT_FIELDS = frozenset({"messages", "input", "system", "instructions", "model", "tools", "functions"})
"""Fields of a request that are recorded elsewhere."""
_ORDER_NOTHING = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})
_CONVERSATION: Mapping[Api, frozenset[str]] = {
    "chat": frozenset({"model", "messages", "stream"}),
    "messages": frozenset({"model", "messages", "system", "stream", "max_tokens"}),
    "responses": frozenset({"model", "input", "instructions", "stream"}),
}
_BESIDE: Mapping[Api, frozenset[str]] = {
    "chat": frozenset(
        {"tools", "tool_choice", "response_format", "stop", "max_tokens", "max_completion_tokens", "reasoning_effort"}
    ),
    "messages": frozenset({"tools", "tool_choice", "stop_sequences"}),
    "responses": frozenset({"tools", "tool_choice", "text", "max_output_tokens", "previous_response_id", "store"}),
}
"""What is read, too, if all of it can be. It is in the parameters, as all other fields are."""


# Requests.


@dataclass(frozen=True)
class Question:
    """What a client asks of the upstream, as far as it can be read.

    Attributes:
        api: None: another path. model: as asked for; empty: none was named.
        asked: None: the body is recorded as text, or only by its size.
        text: of the task, where ``asked`` is None.
        params: what the request says beside its messages.
        orders: whether it may be answered by a model, and cost.
    """

    api: Api | None
    model: str
    asked: Asked | None
    text: str
    params: Mapping[str, Any] = field(default_factory=dict)
    stream: bool = False
    orders: bool = False


def read_question(api: Api | None, method: str, path: str, body: bytes) -> Question:
    """Reads a request for its record. Nothing in it makes it raise. Blocks; it may unpack images for a second."""
    try:
        fields = read_json(body)
    except ApiError:
        fields = None
    model = "" if fields is None else fields.get("model")
    model = model if isinstance(model, str) else ""
    if api is None:
        shown = f"{method} {path[:500]}, {len(body):,} bytes"
        return Question(None, model[:256], None, shown, orders=bool(body) and method not in _ORDER_NOTHING)
    if fields is None:
        text = whole_characters(body[:MOST_TEXT].decode("utf-8", "replace"))
        return Question(api, "", None, text or "(an empty request)", orders=True)
    params = {name: value for name, value in fields.values.items() if name not in _TEXT_FIELDS}
    stream = fields.get("stream") is True
    for names in (_CONVERSATION[api] | _BESIDE[api], _CONVERSATION[api]):
        kept = Fields({name: value for name, value in fields.values.items() if name in names})
        try:
            asked = _read(api, kept)
            task_of(asked.turns)
        except ApiError:
            continue
        return Question(api, model[:256], asked, "", params, stream, orders=True)
    text = whole_characters(body.decode("utf-8", "replace"))
    cut = "" if len(text) <= MOST_TEXT else f"\n… ({len(body):,} bytes, of which this is the beginning)"
    return Question(api, model[:256], None, text[:MOST_TEXT] + cut, {}, stream, orders=True)


def model_in(body: bytes) -> str:
    """Returns the model that a body names; empty: none. Blocks."""
    return read_question(None, "", "", body).model


def _read(api: Api, fields: Fields) -> Asked:
    match api:
        case "chat":
            return chat.read_fields(fields)
        case "messages":
            return messages.read_fields(fields)
        case "responses":
            return responses.read_fields(fields, lambda _: None, b"")


# Runs.


@dataclass
class Forwarded:
    """One forwarded request, and what of its answer the record needs.

    Attributes:
        began: the events that are durable before anything leaves.
        status: of the answer; None: none came. kept: its bytes, up to ``MOST_KEPT_BYTES`` of ``size_bytes``.
        first_byte_ms: of the body, since the step began.
        fault: why no answer came, or it broke off. left_by: who ended it before its end; None: nobody.
    """

    question: Question
    request: RunRequest
    spec: WorkerSpec
    messages: tuple[Message, ...]
    where: str
    epoch_s: float
    began: tuple[ev.Event, ...] = ()
    status: int | None = None
    headers: httpx2.Headers = field(default_factory=httpx2.Headers)
    kept: bytearray = field(default_factory=bytearray)
    size_bytes: int = 0
    first_byte_ms: float | None = None
    fault: ServerFault | None = None
    left_by: Caller | None = None

    @property
    def run_id(self) -> str:
        return self.request.run_id

    def now_ms(self) -> float:
        return round((time.monotonic() - self.epoch_s) * 1000, 3)

    def keep(self, part: bytes) -> None:
        if self.first_byte_ms is None:
            self.first_byte_ms = self.now_ms()
        self.size_bytes += len(part)
        if len(self.kept) < MOST_KEPT_BYTES:
            self.kept += part


def forwarded(
    question: Question, spec: WorkerSpec, where: str, caller: Caller, conversation_id: str | None
) -> Forwarded:
    """Returns the run of a request that is about to be forwarded. ``where``: the upstream, for messages of faults."""
    asked, client = question.asked, None
    sent: list[Message] = []
    more: dict[str, Any] = {}
    task: str
    images: tuple[ImagePart, ...]
    before: tuple[Message, ...]
    if question.api is not None:
        store = asked is None or asked.store
        client = ClientRequest(
            api=question.api, model=question.model or spec.model, stream=question.stream, store=store
        )
    if asked is None:
        task, images, before = question.text, (), ()
    else:
        turns = tuple(without_contents(turn) for turn in asked.turns)
        task, images, before = task_of(turns)
        sent = [Message(role="system", content=asked.system)] if asked.system else []
        more = {"system": asked.system, "tools": asked.tools, "tool_choice": asked.tool_choice, "rules": asked.rules}
    workflow = Workflow(steps=(Step(instruction=QUESTION, agent=spec.name),))
    request = RunRequest(
        run_id=new_run_id(),
        task=task,
        images=images,
        turns_before=before,
        workflow=workflow,
        purpose=PASS_PURPOSE,
        client=client,
        conversation_id=conversation_id,
        actor=caller.actor,
        door=caller.door,
        **more,
    )
    sent += [*before, Message(role="user", content=content_of(task, images))]
    made = Forwarded(question, request, spec, tuple(sent), where, time.monotonic())
    terms = CallTerms(tools=request.tools, choice=request.tool_choice, rules=request.rules)
    at: dict[str, Any] = {"run_id": request.run_id}
    made.began = (
        ev.RunCreated(
            **at,
            request=request,
            conductor=None,
            pool=PoolInfo(name=POOL, workers=(spec,)),
            simulated=False,
            app_version=__version__,
        ),
        ev.PlanCompleted(**at, source="file", workflow=workflow, topology=topology(workflow)),
        ev.StepStarted(
            **at,
            path=_PATH,
            agent=spec.name,
            identity=worker_identity(spec, made.messages, request.seed, terms=terms),
            messages=made.messages,
        ),
    )
    return made


def images_of(question: Question) -> list[LoadedImage]:
    turns = () if question.asked is None else question.asked.turns
    return [image for turn in turns for image in images_in(turn.content) if isinstance(image, LoadedImage)]


def most_usage(made: Forwarded) -> Usage:
    """Returns what an answer may take at most. Of a request that cannot order one: nothing."""
    if not made.question.orders:
        return Usage()
    said = made.question.params
    several, most = said.get("n"), said.get("max_output_tokens")
    longest = most if type(most) is int and most > 0 else longest_answer(made.spec)
    written = longest * (several if type(several) is int and several > 0 else 1)
    return Usage(input_tokens=longest_question(made.messages), output_tokens=written, estimated=True)


def end_of(made: Forwarded) -> tuple[ev.Event, ...]:
    """Returns the events that end the run of a forwarded request. Blocks: it reads the whole answer."""
    answer = _Answer(made)
    now_ms = made.now_ms()
    at: dict[str, Any] = {"run_id": made.run_id, "at_ms": now_ms}
    spent = {"usage": answer.usage, "cost_usd": answer.cost_usd, "known_usd": answer.cost_usd or 0.0}
    thought = (ev.StepDelta(**at, path=_PATH, text=answer.reasoning, reasoning=True),) if answer.reasoning else ()
    if answer.whole:
        ending = "completed" if answer.finished.tool_calls else answer.finished.ending(answer.text)
        completed = ev.StepCompleted(
            **at,
            path=_PATH,
            output=answer.text,
            output_sha256=digest_text(answer.text),
            finish_reason=answer.finished.finish_reason,
            incomplete=ending != "completed",
            usage=answer.usage,
            cost_usd=answer.cost_usd,
            cost_estimated=answer.finished.cost_usd is None and answer.cost_usd is not None,
            model=answer.finished.model,
            first_token_ms=made.first_byte_ms,
            duration_ms=now_ms,
            ending=ending,
            refusal=answer.finished.refusal,
            tool_calls=answer.finished.tool_calls,
            departures=answer.finished.departures,
        )
        over = ev.RunCompleted(**at, answer=answer.text, duration_ms=now_ms, ending=ending, **spent)
        return (*thought, completed, over)
    if made.left_by is not None:
        said = (ev.StepDelta(**at, path=_PATH, text=answer.text),) if answer.text else ()
        by = {"actor": made.left_by.actor, "door": made.left_by.door}
        cut = (ev.BrokenOff(path=_PATH, usage=answer.usage, cost_usd=answer.cost_usd),)
        return (*thought, *said, ev.RunCancelled(**at, **spent, **by, broken_off=cut, duration_ms=now_ms))
    error = error_of(
        answer.fault or ServerFault("cut", f"{made.where} closed the connection in the middle of its answer")
    )
    failed = ev.StepFailed(
        **at,
        path=_PATH,
        error_code=error.code,
        error=str(error),
        partial=answer.text,
        usage=answer.usage,
        cost_usd=answer.cost_usd,
        duration_ms=now_ms,
    )
    return (*thought, failed, ev.RunFailed(**at, error_code=error.code, error=str(error), duration_ms=now_ms, **spent))


# Answers.


class _Answer:
    """What the bytes of an answer say.

    Attributes:
        whole: whether it is one, to its end. fault: why it is not; None: the connection broke, or the client left.
        usage: estimated if the upstream told none, or broke off.
    """

    def __init__(self, made: Forwarded) -> None:
        self.text = self.reasoning = ""
        self.finished = Finished(finish_reason="other")
        self.whole, self.fault = False, made.fault
        plain = without_encoding(made.headers.get("content-encoding", ""), bytes(made.kept))
        body, readable = plain or b"", plain is not None
        kind = made.headers.get("content-type", "").partition(";")[0].strip().lower()
        reported: Usage | None = None
        if made.status is None:
            pass
        elif made.status >= 400:
            said = read_error_reply(bytes(body[:65_536]), kind)
            self.fault = self.fault or fault_of_reply(made.where, made.status, said, key_hint="check its variable")
        elif made.question.api is None:
            reported = _usage_beside(body) if kind == "application/json" and made.fault is None else None
            self.whole = made.fault is None and made.left_by is None
            self.text = f"{made.status}, {kind or 'no content type'}, {made.size_bytes:,} bytes"
            self.finished = Finished(finish_reason="stop")
        else:
            reported = self._read(made, body, kind, readable=readable)
        nothing_ran = made.status is None or made.status >= 400
        if reported is not None:
            self.usage = reported
        elif nothing_ran or made.question.api is None:
            self.usage = Usage()
        else:
            read, written = estimate_input_tokens(made.messages), estimate_tokens(self.text + self.reasoning)
            self.usage = Usage(input_tokens=read, output_tokens=written, estimated=True)
        price = made.spec.price
        by_price = None if price is None else price.cost_usd(self.usage)
        if self.finished.cost_usd is not None:
            self.cost_usd: float | None = self.finished.cost_usd
        else:
            self.cost_usd = 0.0 if self.usage.total_tokens == 0 else by_price

    def _read(self, made: Forwarded, body: bytes, kind: str, *, readable: bool) -> Usage | None:
        """Reads an answer of one of the APIs, and returns the usage that it tells."""
        reader = _reader(made.question.api)
        said: list[str] = []
        thought: list[str] = []
        document = kind != "text/event-stream"
        understood = False
        try:
            for event in _events(body, document=document) if readable else ():
                if (fault := _error_in(event)) is not None:
                    self.fault = self.fault or fault_of_reply(made.where, 200, fault, key_hint="")
                    continue
                try:
                    pieces = reader.feed(event)
                except NoPart:
                    continue
                understood = True
                for piece in pieces:
                    (thought if type(piece).__name__ == "ReasoningDelta" else said).append(piece.text)
        except Exception:  # noqa: BLE001  whatever an upstream sends, its record has an end
            understood = False
        self.text, self.reasoning = "".join(said), "".join(thought)
        if not understood:
            self.text = whole_characters(body[:MOST_TEXT].decode("utf-8", "replace")) if readable else ""
        marked = document or body.rstrip().endswith(b"[DONE]") or reader.stopped
        broke = made.fault is not None or self.fault is not None
        if marked and made.fault is None and made.left_by is None:
            reader.ended()
        self.whole = not broke and (reader.complete or (not understood and made.left_by is None))
        if self.whole and not understood:
            reader.ended()
        self.finished = reader.finished(estimate_input_tokens(made.messages))
        return self.finished.usage


def _reader(api: Api | None) -> Reader:
    if api == "messages":
        return AnthropicDialect().reader()
    return ResponsesReader() if api == "responses" else ChatReader()


def without_encoding(encoding: str, body: bytes) -> bytes | None:
    """Returns a body without its encoding, of a cut one what came; None: it cannot be read. Blocks."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "x-gzip", "deflate"):
        return None
    plain = b""
    try:
        while body and len(plain) < MOST_KEPT_BYTES:  # gzip may have several members
            member = zlib.decompressobj(zlib.MAX_WBITS | 32)
            plain += member.decompress(body, MOST_KEPT_BYTES - len(plain))
            body = member.unused_data
    except zlib.error:
        return plain or None
    return plain


_EVENT_ENDS = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2}")


def _events(body: bytes, *, document: bool) -> Iterator[dict[str, Any]]:
    """Yields the JSON objects of an answer: the one document, or those of its events, also of a last one without end.

    Format: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
    """
    body = body.removeprefix(b"\xef\xbb\xbf")
    blocks = [body] if document else _EVENT_ENDS.split(body)
    for block in blocks:
        data = block
        if not document:
            lines = (line[5:].removeprefix(b" ") for line in block.splitlines() if line.startswith(b"data:"))
            data = b"\n".join(lines)
        try:
            parsed = pydantic_core.from_json(data) if data else None
        except ValueError:
            continue
        if isinstance(parsed, dict):
            yield parsed


def _error_in(event: Mapping[str, Any]) -> Any:
    """Returns the error that an event or a document under 200 says; None: it says none."""
    error = event.get("error")
    if event.get("type") == "error" or (isinstance(error, dict) and "choices" not in event and "id" not in event):
        return error_reply_of(error if isinstance(error, dict) else event)
    return None


def _usage_beside(body: bytes) -> Usage | None:
    """Returns the usage that a document of another path tells, as that of embeddings does."""
    document = next(_events(body, document=True), {})
    usage = document.get("usage")
    if not isinstance(usage, dict):
        return None
    reported = ReportedUsage()
    reported.read_chat(usage)
    return reported.of("", 0)


class ResponsesReader(Reader):
    """Reads OpenAI's Responses, whole or streamed.

    Source: https://platform.openai.com/docs/api-reference/responses-streaming
    """

    def feed(self, event: Mapping[str, Any]) -> Pieced:
        match event.get("type"):
            case "response.output_text.delta":
                return self._say(_text(event.get("delta")))
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return self._think(_text(event.get("delta")))
            case "response.completed" | "response.incomplete" | "response.failed":
                self.stopped = True
                return self._whole(event.get("response"))
            case str() as kind if kind.startswith("response."):
                return []
        if event.get("object") == "response":
            return self._whole(event)
        raise NoPart("an event that does not belong to a response")

    def _whole(self, response: Any) -> Pieced:
        """Reads a whole response. After events of the same response it brings only what they left out."""
        if not isinstance(response, dict):
            raise ValueError("a response of no shape")
        self._name(response.get("model"))
        usage, pieces, streamed, thought = response.get("usage"), [], bool(self._said), bool(self._thoughts)
        if isinstance(usage, dict):
            self._usage.read_chat(usage)
        items = response.get("output")
        for index, item in enumerate(items if isinstance(items, list) else ()):
            if not isinstance(item, dict):
                continue
            parts = [part for name in ("content", "summary") for part in item.get(name) or () if isinstance(part, dict)]
            match item.get("type"):
                case "message":
                    for part in parts:
                        self._extras.refuse(part.get("refusal"))
                        pieces += [] if streamed else self._say(_text(part.get("text")))
                case "reasoning":
                    pieces += [] if thought else self._think("".join(_text(part.get("text")) for part in parts))
                case "function_call" | "custom_tool_call":
                    arguments = item.get("arguments", item.get("input"))
                    self._extras.call(index, {"name": item.get("name"), "arguments": arguments})
        if response.get("status") == "completed":
            self._end("tool_calls" if self._extras.tool_calls else "stop")
        elif response.get("status") == "incomplete":
            details = response.get("incomplete_details")
            reason = details.get("reason") if isinstance(details, dict) else None
            self._end("content_filter" if reason == "content_filter" else "length")
        return pieces


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
