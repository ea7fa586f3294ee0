"""OpenAI's Responses API: reads a request, and writes a response whole and as a stream. No HTTP."""

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, NamedTuple

from conductor_core.chat.messages import (
    ImagePart,
    LoadedImage,
    Message,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    ToolSpec,
    data_url,
    parts_of,
)
from conductor_core.chat.messages import Part as MessagePart
from conductor_core.serving import compaction
from conductor_core.serving.errors import ApiError
from conductor_core.serving.outcome import (
    Beat,
    Began,
    Called,
    Ended,
    Outcome,
    Part,
    Spending,
    Summary,
    Text,
    made_id,
)
from conductor_core.serving.reading import (
    Asked,
    Conversation,
    Fields,
    Images,
    custom_arguments,
    custom_input,
    custom_tool,
    distinct,
    function_tool,
    read_effort,
    read_form,
    read_json,
    read_metadata,
    result_parts,
    shown,
    tool_choice,
)
from conductor_core.serving.replies import event

# Reading a request.

Resolve = Callable[[str], Sequence[Mapping[str, Any]] | None]
"""Returns the recorded items of an id that a client was told; None: they are gone, or another key's."""

_UNSUPPORTED = {
    "background": "responses are not made in the background; leave it out, or stream",
    "conversation": "conversations are not kept here; send previous_response_id or the whole input",
    "logprobs": "probabilities of tokens are not available",
    "prompt": "stored prompts are not available; send instructions",
    "top_logprobs": "probabilities of tokens are not available",
}
_MOST_REFERENCES = 1_000
"""In one request. Each may read a whole run."""
_SUMMARIES = ("auto", "concise", "detailed")
_HOSTED = ("_call", "_call_output", "_output", "_approval_request", "_approval_response")
_HISTORY = frozenset(
    {"reasoning", "additional_tools", "compaction_trigger", "configuration_update", "mcp_list_tools", "program"}
)
"""Items that say nothing to a worker. So are those that end as in ``_HOSTED``: the work of a server's own tools."""


def read(body: bytes, resolve: Resolve, key: bytes) -> Asked:
    """Reads a request of ``POST /v1/responses``. It unpacks images, so it may take a second.

    Args:
        resolve: finds what an ``item_reference`` names.
        key: by which compacted conversations were sealed.

    Raises: ApiError.
    """
    fields = read_json(body)
    for name, why in _UNSUPPORTED.items():
        if fields.get(name):
            raise fields.refused(name, why, "unsupported_parameter")
    if (fields.count("n") or 1) > 1:
        raise fields.refused("n", "one answer is given to each request", "unsupported_parameter")
    return read_fields(fields, resolve, key)


def read_compact(body: bytes, resolve: Resolve, key: bytes) -> Asked:
    """Reads a request of ``POST /v1/responses/compact``, which may end with anybody's turn. Raises: ApiError."""
    return read_fields(read_json(body), resolve, key, to_answer=False)


def read_fields(fields: Fields, resolve: Resolve, key: bytes, *, to_answer: bool = True) -> Asked:
    """Reads a request whose unsupported fields are not looked at. Raises: ApiError."""
    model = fields.name("model")
    conversation = Conversation()
    conversation.add_system(fields.text("instructions") or "")
    previous = fields.text("previous_response_id")
    _Input(conversation, Images(), resolve, key).add(fields, needed=to_answer or previous is None)
    if to_answer:
        conversation.require_answerable("input")
    tools, choice = _tools(fields)
    reasoning = fields.table("reasoning")
    summary = None if reasoning is None else reasoning.text("summary")
    text = fields.table("text")
    rules = read_form(None if text is None else text.table("format"))
    return conversation.asked(
        fields,
        api="responses",
        model=model,
        tools=tools,
        tool_choice=choice,
        rules=rules.model_copy(update={"max_tokens": fields.count("max_output_tokens", least=1)}),
        effort=None if reasoning is None else read_effort(reasoning, "effort"),
        summaries=None if summary is None else summary != "none",
        previous_response_id=previous,
        store=fields.flag("store") is not False,
        echoed=_echoed(fields),
    )


@dataclass(frozen=True, slots=True)
class _Input:
    """Adds the items of ``input`` to a conversation."""

    conversation: Conversation
    images: Images
    resolve: Resolve
    key: bytes
    found: dict[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    def add(self, fields: Fields, *, needed: bool) -> None:
        given = fields.get("input")
        if isinstance(given, str):
            self.conversation.add("user", [TextPart(text=given)])
            return
        if given is not None and not isinstance(given, list):
            raise fields.wrong_type("input", "a string or an array of items")
        if given is None and needed:
            raise fields.missing("input")
        for item in fields.tables("input") or []:
            self._item(item)

    def _item(self, item: Fields, *, recorded: bool = False) -> None:
        kind = item.text("type") or _kind_of(item)
        match kind:
            case "message":
                self._message(item)
            case "function_call":
                self._call(item, item.needed_text("arguments"))
            case "custom_tool_call":
                self._call(item, custom_arguments(item.needed_text("input")))
            case "function_call_output" | "custom_tool_call_output":
                self._result(item)
            case "compaction":
                self._compacted(item)
            case "item_reference" if not recorded:
                self._reference(item)
            case _ if kind not in _HISTORY and not kind.endswith(_HOSTED):
                raise item.refused("type", f"unknown item type {shown(kind)}")

    def _message(self, item: Fields) -> None:
        role = item.choice("role", ("user", "assistant", "system", "developer"))
        if role is None:
            raise item.missing("role")
        parts = self._parts(item, "content")
        if role == "user":
            self.conversation.add("user", parts)
            return
        texts = [part for part in parts if isinstance(part, TextPart)]
        if len(texts) < len(parts):
            raise item.refused("content", f"images come in messages of the user, not of {role}")
        if role == "assistant":
            self.conversation.add("assistant", texts)
        else:
            self.conversation.add_system("\n\n".join(part.text for part in texts))

    def _call(self, item: Fields, arguments: str) -> None:
        called = ToolCallPart(call_id=item.name("call_id"), name=item.name("name"), arguments=arguments)
        self.conversation.add("assistant", [called])

    def _result(self, item: Fields) -> None:
        parts = self._parts(item, "output")
        self.conversation.add("user", result_parts(item.name("call_id"), parts))

    def _parts(self, item: Fields, name: str) -> list[TextPart | ImagePart]:
        """Returns what is a text, or a list of parts."""
        if item.get(name) is None:
            raise item.missing(name)
        return [self._part(part) for part in item.parts(name)]

    def _part(self, part: Fields) -> TextPart | ImagePart:
        kind = part.needed_text("type")
        match kind:
            case "input_text" | "output_text" | "text" | "summary_text":
                return TextPart(text=part.needed_text("text"))
            case "refusal":
                return TextPart(text=part.needed_text("refusal"))
            case "input_image":
                return self.images.of_url(part.needed_text("image_url"), part.param("image_url"))
        raise part.refused("type", f"expected input_text, output_text, input_image or refusal; got {shown(kind)}")

    def _compacted(self, item: Fields) -> None:
        try:
            kept = compaction.opened(item.needed_text("encrypted_content"), self.key)
        except compaction.Damaged as error:
            raise item.refused("encrypted_content", str(error)) from error
        self.conversation.add_system(kept.system)
        for turn in kept.turns:
            self.conversation.add("assistant" if turn.role == "assistant" else "user", [TextPart(text=turn.text)])

    def _reference(self, item: Fields) -> None:
        name = item.name("id")
        if name not in self.found:
            if len(self.found) >= _MOST_REFERENCES:
                raise item.refused("id", f"more than {_MOST_REFERENCES:,} items are referred to; send them")
            found = self.resolve(name)
            if found is None:
                raise item.refused("id", f"unknown item {shown(name)}; send the item itself")
            self.found[name] = found
        for each in self.found[name]:
            self._item(Fields(each, item.place), recorded=True)


def _kind_of(item: Fields) -> str:
    """Returns the type of an item that does not name it, as OpenAI takes it."""
    if item.get("role") is not None:
        return "message"
    if item.get("id") is not None:
        return "item_reference"
    raise item.missing("type")


def _tools(fields: Fields) -> tuple[tuple[ToolSpec, ...], str]:
    """Returns the tools that workers are offered, and what is to be chosen of them."""
    listed = [_tool(each) for each in fields.tables("tools") or []]
    tools = distinct(tool for tool in listed if tool is not None)
    given = fields.get("tool_choice")
    if given is None or isinstance(given, str):
        return tools, tool_choice("auto" if given is None else given, tools, fields)
    if not isinstance(given, dict):
        raise fields.wrong_type("tool_choice", "a string or an object")
    choice = fields.needed_table("tool_choice")
    kind = choice.needed_text("type")
    if kind in ("function", "custom"):
        return tools, tool_choice(choice.name("name"), tools, fields, named=True)
    if kind != "allowed_tools":  # a tool of OpenAI's own, which is left out
        return tools, "auto"
    names = {each.text("name") for each in choice.tables("tools") or []}
    allowed = tuple(tool for tool in tools if tool.name in names)
    return allowed, tool_choice(choice.choice("mode", ("auto", "required")) or "auto", allowed, fields)


def _tool(fields: Fields) -> ToolSpec | None:
    """Returns a tool of the client; None for one that OpenAI would carry out itself."""
    match fields.needed_text("type"):
        case "function":
            return function_tool(fields)
        case "custom":
            return custom_tool(fields)
    return None


# What a response repeats of its request.


def _echoed(fields: Fields) -> dict[str, Any]:
    said: dict[str, Any] = {
        "instructions": fields.text("instructions"),
        "max_output_tokens": fields.count("max_output_tokens"),
        "max_tool_calls": fields.count("max_tool_calls"),
        "metadata": read_metadata(fields),
        "parallel_tool_calls": fields.flag("parallel_tool_calls"),
        "previous_response_id": fields.text("previous_response_id"),
        "prompt_cache_key": fields.text("prompt_cache_key"),
        "reasoning": _echoed_reasoning(fields.table("reasoning")),
        "safety_identifier": fields.text("safety_identifier"),
        "store": fields.flag("store") is not False,
        "text": _echoed_text(fields.table("text")),
        "tool_choice": _echoed_choice(fields.get("tool_choice")),
        "tools": [echo for each in fields.tables("tools") or [] if (echo := _echoed_tool(each)) is not None],
        "truncation": fields.choice("truncation", ("auto", "disabled")),
        "user": fields.text("user"),
    }
    for name in ("frequency_penalty", "presence_penalty", "temperature", "top_p"):
        said[name] = fields.number(name)
    return {
        **_never_null(),
        **{name: value for name, value in said.items() if value is not None or name in _MAY_BE_NULL},
    }


def _echoed_reasoning(reasoning: Fields | None) -> dict[str, Any] | None:
    if reasoning is None:
        return None
    summary = reasoning.text("summary")
    return {"effort": reasoning.text("effort"), "summary": summary if summary in _SUMMARIES else None}


def _echoed_text(text: Fields | None) -> dict[str, Any] | None:
    if text is None:
        return None
    form = text.table("format")
    echo: dict[str, Any] = {"format": {"type": "text"}}
    if form is not None and form.get("type") == "json_schema":
        told = {"name": form.get("name") or "schema", "description": form.text("description")}
        echo["format"] = {
            "type": "json_schema",
            **told,
            "schema": form.get("schema"),
            "strict": bool(form.flag("strict")),
        }
    elif form is not None:
        echo["format"] = {"type": form.get("type")}
    verbosity = text.choice("verbosity", ("low", "medium", "high"))
    return echo if verbosity is None else echo | {"verbosity": verbosity}


def _echoed_choice(given: Any) -> Any:
    """Returns a choice that ``_tools`` took; one of OpenAI's own tools is as none."""
    if not isinstance(given, dict):
        return given
    if given["type"] == "allowed_tools":
        return {"type": "allowed_tools", "mode": given.get("mode") or "auto", "tools": given.get("tools") or []}
    return {"type": given["type"], "name": given["name"]} if given["type"] in ("function", "custom") else "auto"


def _echoed_tool(tool: Fields) -> dict[str, Any] | None:
    common = {"type": tool.get("type"), "name": tool.get("name"), "description": tool.text("description") or ""}
    match tool.get("type"):
        case "function":
            return {**common, "parameters": tool.get("parameters") or {}, "strict": bool(tool.flag("strict"))}
        case "custom":
            return {**common, "format": _echoed_input_format(tool.table("format"))}
    return None


def _echoed_input_format(form: Fields | None) -> dict[str, Any]:
    if form is None or form.get("type") != "grammar":
        return {"type": "text"}
    grammar = form.table("grammar") or form
    syntax = "regex" if grammar.get("syntax") == "regex" else "lark"
    return {"type": "grammar", "syntax": syntax, "definition": grammar.get("definition")}


# What a response is.

_MAY_BE_NULL = (
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "prompt_cache_key",
    "reasoning",
    "safety_identifier",
    "user",
)
_ENDS: Mapping[str, str] = {"completed": "response.completed", "failed": "response.failed"}
"""The last event by the response's status; all else ends incomplete."""


def _never_null() -> dict[str, Any]:
    """Returns what a request may set, as OpenAI has it where the request says nothing."""
    return {
        "background": False,
        "frequency_penalty": 0.0,
        "metadata": {},
        "parallel_tool_calls": True,
        "presence_penalty": 0.0,
        "service_tier": "default",
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
    }


def whole(outcome: Outcome) -> dict[str, Any]:
    """Returns the response object as far as the response is. Every key is always there."""
    client = outcome.client
    said = {name: value for name, value in client.echoed.items() if value is not None}
    return {
        "id": made_id("resp", outcome.run_id, outcome.number),
        "object": "response",
        "created_at": int(outcome.created_at.timestamp()),
        "status": outcome.status,
        "completed_at": _completed_at(outcome),
        "error": _error(outcome),
        "incomplete_details": _incomplete_details(outcome),
        "model": client.model,
        "output": _output(outcome),
        "previous_response_id": client.previous_response_id,
        "store": client.store,
        **{name: said.get(name, value) for name, value in _never_null().items()},
        **{name: said.get(name) for name in _MAY_BE_NULL},
        "usage": None if outcome.status == "in_progress" else _usage(outcome.spending),
        "conductor": outcome.conductor,
    }


def _completed_at(outcome: Outcome) -> int | None:
    at = outcome.completed_at
    return int(at.timestamp()) if outcome.status == "completed" and at is not None else None


def _error(outcome: Outcome) -> dict[str, Any] | None:
    if outcome.status != "failed":
        return None
    error = outcome.error or ApiError(500, "The run failed.")
    code = error.code or {400: "invalid_prompt", 429: "rate_limit_exceeded"}.get(error.status, "server_error")
    return {"code": code, "message": error.message}


def _incomplete_details(outcome: Outcome) -> dict[str, Any] | None:
    if outcome.status != "incomplete":
        return None
    return {"reason": "max_output_tokens" if outcome.finish == "length" else "content_filter"}


def _usage(spent: Spending) -> dict[str, Any]:
    return {
        "input_tokens": spent.input_tokens,
        "input_tokens_details": {
            "cached_tokens": spent.cached_tokens,
            "cache_write_tokens": spent.cache_write_tokens,
            "orchestration_input_tokens": spent.orchestration_input_tokens,
            "orchestration_input_cached_tokens": spent.orchestration_cached_tokens,
        },
        "output_tokens": spent.output_tokens,
        "output_tokens_details": {
            "reasoning_tokens": spent.reasoning_tokens,
            "orchestration_output_tokens": spent.orchestration_output_tokens,
        },
        "total_tokens": spent.total_tokens,
    }


# Its items: reasoning, the message, the calls.


def _output(outcome: Outcome) -> list[dict[str, Any]]:
    items = [_reasoning(outcome)] if outcome.summaries else []
    if _message_parts(outcome):
        items.append(_message(outcome))
    return [*items, *(_call(outcome, called) for called in outcome.calls)]


def _reasoning(outcome: Outcome) -> dict[str, Any]:
    summary = [_summary_part(text) for text in outcome.summaries]
    return {"id": made_id("rs", outcome.run_id, outcome.number), "type": "reasoning", "summary": summary}


def _message(outcome: Outcome) -> dict[str, Any]:
    status = outcome.status if outcome.status in ("in_progress", "completed") else "incomplete"
    return {
        "id": made_id("msg", outcome.run_id, outcome.number),
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": _message_parts(outcome),
    }


def _message_parts(outcome: Outcome) -> list[dict[str, Any]]:
    refused = [_refusal_part(outcome.refusal)] if outcome.refusal else []
    has_text = outcome.text if refused else outcome.text is not None
    return [_text_part(outcome.text or ""), *refused] if has_text else refused


def _call(outcome: Outcome, called: Called) -> dict[str, Any]:
    kind = _CUSTOM_CALL if called.custom else _FUNCTION_CALL
    return {
        "id": made_id(kind.prefix, outcome.run_id, called.number),
        "type": kind.type,
        "call_id": called.call_id,
        "name": called.name,
        kind.field: called.arguments,
        "status": "completed",
    }


class _CallKind(NamedTuple):
    prefix: str
    type: str
    field: str
    events: str


_FUNCTION_CALL = _CallKind("fc", "function_call", "arguments", "response.function_call_arguments")
_CUSTOM_CALL = _CallKind("ctc", "custom_tool_call", "input", "response.custom_tool_call_input")


def _summary_part(text: str) -> dict[str, Any]:
    return {"type": "summary_text", "text": text}


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _refusal_part(text: str) -> dict[str, Any]:
    return {"type": "refusal", "refusal": text}


# The same as a stream.

_Event = tuple[str, dict[str, Any]]


class Stream:
    """Writes one response as server-sent events. Its last one has what ``whole`` says of the ended response."""

    def __init__(self) -> None:
        self._sequence_number = 0
        self._began: Outcome | None = None
        self._summaries: list[list[str]] = []
        self._text: list[str] = []
        self._open: Literal["reasoning", "message"] | None = None

    def feed(self, part: Part) -> list[bytes]:
        """Returns complete events. Raises: ValueError for an end that is not what came before it."""
        return [self._numbered(kind, fields) for kind, fields in self._told(part)]

    def fault(self, error: ApiError) -> list[bytes]:
        """Returns the last events of a stream whose parts cannot go on."""
        if self._began is not None:
            return self.feed(Ended(replace(self._now(self._began), status="failed", error=error)))
        flat = {"code": error.code, "message": error.message, "param": error.param}
        return [self._numbered("error", {"error": {"type": error.type, **flat}, **flat})]

    def _numbered(self, kind: str, fields: dict[str, Any]) -> bytes:
        number, self._sequence_number = self._sequence_number, self._sequence_number + 1
        return event({"type": kind, "sequence_number": number, **fields}, kind)

    def _told(self, part: Part) -> Iterator[_Event]:
        began = self._began
        if isinstance(part, Began):
            yield from self._begun(part.outcome)
        elif began is None:
            raise ValueError("a response has to begin first")
        else:
            match part:
                case Summary():
                    yield from self._summarized(began, part)
                case Text():
                    yield from self._said(began, part.text)
                case Beat():
                    yield "response.in_progress", {"response": whole(self._now(began))}
                case Ended():
                    yield from self._ended(began, part.outcome)

    def _begun(self, outcome: Outcome) -> Iterator[_Event]:
        self._began = replace(outcome, status="in_progress", summaries=(), text=None, calls=(), refusal="", error=None)
        for kind in ("response.created", "response.in_progress"):
            yield kind, {"response": whole(self._began)}

    def _now(self, began: Outcome) -> Outcome:
        """The response as far as it was told."""
        text = "".join(self._text) if self._text else None
        return replace(began, summaries=tuple("".join(pieces) for pieces in self._summaries), text=text)

    # Reasoning.

    def _summarized(self, began: Outcome, part: Summary) -> Iterator[_Event]:
        item = _reasoning(began)
        at = {"item_id": item["id"], "output_index": 0, "summary_index": part.number}
        if self._open is None:
            self._open = "reasoning"
            yield "response.output_item.added", {"output_index": 0, "item": item}
        if part.number == len(self._summaries):
            yield from self._summary_closed(began)
            self._summaries.append([])
            yield "response.reasoning_summary_part.added", {**at, "part": _summary_part("")}
        if part.text:
            self._summaries[-1].append(part.text)
            yield "response.reasoning_summary_text.delta", {**at, "delta": part.text}

    def _summary_closed(self, began: Outcome) -> Iterator[_Event]:
        if self._summaries:
            number, text = len(self._summaries) - 1, "".join(self._summaries[-1])
            at = {"item_id": _reasoning(began)["id"], "output_index": 0, "summary_index": number}
            yield "response.reasoning_summary_text.done", {**at, "text": text}
            yield "response.reasoning_summary_part.done", {**at, "part": _summary_part(text)}

    def _reasoning_closed(self, began: Outcome) -> Iterator[_Event]:
        if self._open == "reasoning":
            self._open = None
            yield from self._summary_closed(began)
            yield "response.output_item.done", {"output_index": 0, "item": _reasoning(self._now(began))}

    # The message.

    def _said(self, began: Outcome, text: str) -> Iterator[_Event]:
        if not text:  # as the first one it would begin a message that the whole response may not have
            return
        if not self._text:
            yield from self._reasoning_closed(began)
            yield from self._message_opened(began)
            yield from self._part_opened(began, 0, _text_part(""))
        self._text.append(text)
        yield "response.output_text.delta", {**self._in_message(began, 0), "delta": text, "logprobs": []}

    def _message_opened(self, began: Outcome) -> Iterator[_Event]:
        self._open = "message"
        yield "response.output_item.added", {"output_index": self._message_index, "item": _message(began)}

    def _part_opened(self, began: Outcome, number: int, part: dict[str, Any]) -> Iterator[_Event]:
        yield "response.content_part.added", {**self._in_message(began, number), "part": part}

    def _in_message(self, began: Outcome, number: int) -> dict[str, Any]:
        return {"item_id": _message(began)["id"], "output_index": self._message_index, "content_index": number}

    @property
    def _message_index(self) -> int:
        return 1 if self._summaries else 0

    # The end.

    def _ended(self, began: Outcome, outcome: Outcome) -> Iterator[_Event]:
        told = self._now(began)
        if outcome.summaries != told.summaries or (outcome.text or "") != (told.text or ""):
            raise ValueError("the whole response is not what was streamed")
        yield from self._reasoning_closed(began)
        yield from self._message_closed(began, outcome)
        first = self._message_index + bool(_message_parts(outcome))
        for index, called in enumerate(outcome.calls, first):
            yield from _called(index, _call(outcome, called))
        yield _ENDS.get(outcome.status, "response.incomplete"), {"response": whole(outcome)}

    def _message_closed(self, began: Outcome, outcome: Outcome) -> Iterator[_Event]:
        parts = _message_parts(outcome)
        if parts and self._open != "message":
            yield from self._message_opened(began)
        for number, part in enumerate(parts):
            at = self._in_message(began, number)
            if part["type"] == "output_text":
                if not self._text:
                    yield from self._part_opened(began, number, _text_part(""))
                yield "response.output_text.done", {**at, "text": part["text"], "logprobs": []}
            else:
                yield from self._part_opened(began, number, _refusal_part(""))
                yield "response.refusal.delta", {**at, "delta": part["refusal"]}
                yield "response.refusal.done", {**at, "refusal": part["refusal"]}
            yield "response.content_part.done", {**at, "part": part}
        if parts:
            yield "response.output_item.done", {"output_index": self._message_index, "item": _message(outcome)}


def _called(index: int, item: dict[str, Any]) -> Iterator[_Event]:
    kind = _CUSTOM_CALL if item["type"] == _CUSTOM_CALL.type else _FUNCTION_CALL
    text = item[kind.field]
    at = {"item_id": item["id"], "output_index": index}
    yield (
        "response.output_item.added",
        {"output_index": index, "item": {**item, kind.field: "", "status": "in_progress"}},
    )
    if text:
        yield f"{kind.events}.delta", {**at, "delta": text}
    yield f"{kind.events}.done", {**at, kind.field: text}
    yield "response.output_item.done", {"output_index": index, "item": item}


# A request's conversation as items, and one page of them.


def input_items(
    run_id: str, number: int, turns: Iterable[Message], system: str = "", custom: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Returns what a response was asked with, oldest first. ``custom``: the names of tools that take one text."""
    items: list[dict[str, Any]] = []

    def add(prefix: str, kind: str, **fields: Any) -> None:
        identity = made_id(prefix, run_id, number, len(items))
        items.append({"id": identity, "type": kind, "status": "completed", **fields})

    if system:
        add("msg", "message", role="system", content=[{"type": "input_text", "text": system}])
    custom_calls: set[str] = set()
    for turn in turns:
        for part in parts_of(turn.content):
            match part:
                case ToolCallPart() if part.name in custom:
                    custom_calls.add(part.call_id)
                    text = custom_input(part.arguments)
                    add("ctc", "custom_tool_call", call_id=part.call_id, name=part.name, input=text)
                case ToolCallPart():
                    add("fc", "function_call", call_id=part.call_id, name=part.name, arguments=part.arguments)
                case ToolResultPart() if part.call_id in custom_calls:
                    add("ctco", "custom_tool_call_output", call_id=part.call_id, output=part.text)
                case ToolResultPart():
                    add("fco", "function_call_output", call_id=part.call_id, output=part.text)
                case _ if items and items[-1]["type"] == "message" and items[-1]["role"] == turn.role:
                    items[-1]["content"].append(_content(part, turn.role))
                case _:
                    add("msg", "message", role=turn.role, content=[_content(part, turn.role)])
    return items


def _content(part: MessagePart, role: str) -> dict[str, Any]:
    if isinstance(part, ImagePart):
        url = data_url(part) if isinstance(part, LoadedImage) else None
        return {"type": "input_image", "image_url": url, "file_id": None, "detail": "auto"}
    text = part.text if isinstance(part, TextPart) else ""
    return _text_part(text) if role == "assistant" else {"type": "input_text", "text": text}


def page(items: Sequence[dict[str, Any]], query: Mapping[str, str]) -> dict[str, Any]:
    """Returns the part of a list that ``limit`` (20), ``after`` and ``order`` (desc) of a query ask for.

    Raises: ApiError.
    """
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise ApiError(400, f"order: expected asc or desc, got {shown(order)}", "invalid_value", "order")
    given = query.get("limit", "20")
    limit = int(given) if given.isascii() and given.isdigit() and len(given) <= 3 else 0
    if not 1 <= limit <= 100:
        raise ApiError(400, f"limit: expected 1 to 100, got {shown(given)}", "invalid_value", "limit")
    listed = list(items if order == "asc" else reversed(items))
    if "after" in query:
        ids = [item["id"] for item in listed]
        if query["after"] not in ids:
            raise ApiError(400, f"after: no item {shown(query['after'])} is in this list", "invalid_value", "after")
        listed = listed[ids.index(query["after"]) + 1 :]
    data = listed[:limit]
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return {"object": "list", "data": data, "first_id": first, "last_id": last, "has_more": len(listed) > limit}


# A conversation made short.


def compact(asked: Asked, key: bytes, now: datetime, before: Sequence[Message] = ()) -> dict[str, Any]:
    """Returns the conversation as one sealed item, which later input may hold. No model is asked, so it costs nothing.

    ``before``: the turns that ``previous_response_id`` adds. Instructions are not kept: each request brings its own.
    """
    sealed = compaction.sealed(input_system(asked.system, asked.echoed), (*before, *asked.turns), key)
    name = uuid.uuid4().hex
    return {
        "id": f"cmpct_{name}",
        "object": "response.compaction",
        "created_at": int(now.timestamp()),
        "output": [{"type": "compaction", "id": f"cmp_{name}", "encrypted_content": sealed}],
        "usage": _usage(Spending()),
    }


def input_system(system: str, echoed: Mapping[str, Any]) -> str:
    """Returns what a client told as system messages, without ``instructions``, which hold for one request only."""
    instructions = echoed.get("instructions")
    if not isinstance(instructions, str) or not instructions or not system.startswith(instructions):
        return system
    return system[len(instructions) :].removeprefix("\n\n")
