"""The wire format of Anthropic's Messages: reads requests, writes answers and streams, estimates tokens.

Summaries of reasoning are not sent: a thinking block needs a signature, which nobody here can give.
Source: https://docs.anthropic.com/en/api/messages
"""

import json
from collections.abc import Mapping
from typing import Any

import pydantic_core

from conductor_core.chat.messages import AnswerRules, ImagePart, Message, Part, TextPart, ToolCallPart, ToolSpec
from conductor_core.chat.usage import estimate_input_tokens, estimate_tokens
from conductor_core.serving.errors import ApiError
from conductor_core.serving.outcome import Beat, Began, Called, Ended, Finish, Outcome, Spending, Summary, Text, made_id
from conductor_core.serving.outcome import Part as Told
from conductor_core.serving.reading import (
    MOST_TOOLS,
    Asked,
    Conversation,
    Effort,
    Fields,
    Images,
    check_without_effect,
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
from conductor_core.serving.replies import event, failure

_MOST_STOPS = 64
_NUMBERS_WITHOUT_EFFECT = ("temperature", "top_p", "top_k")
_UNREAD = frozenset(
    {"thinking", "redacted_thinking", "server_tool_use", "mcp_tool_use", "container_upload", "compaction", "fallback"}
)
"""Blocks of an assistant's message that another server wrote for itself; so are those that end in ``_tool_result``."""
_STOP_REASONS: Mapping[Finish, str] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}


def read(body: bytes) -> Asked:
    """Raises: ApiError 400 for whatever cannot be done."""
    return read_fields(read_json(body))


def read_fields(fields: Fields) -> Asked:
    """Raises: ApiError 400."""
    model = fields.name("model")
    check_without_effect(fields, _NUMBERS_WITHOUT_EFFECT)
    tools = _tools(fields)
    conversation = _conversation(fields)
    conversation.require_answerable("messages")
    rules, effort = _rules(fields)
    metadata = read_metadata(fields)
    return conversation.asked(
        fields,
        api="messages",
        model=model,
        tools=tools,
        tool_choice=_choice(fields, tools),
        rules=rules,
        effort=effort,
        summaries=False,
        echoed={"metadata": metadata} if metadata else {},
    )


def count_tokens(body: bytes) -> tuple[str, int]:
    """Returns the model of a request, and about how many tokens it has. Raises: ApiError 400."""
    fields = read_json(body)
    model = fields.name("model")
    conversation, tools = _conversation(fields), _tools(fields)
    turns = conversation.turns()
    if not turns:
        raise fields.refused("messages", "the conversation is empty: expected at least one message of the user")
    system = (Message(role="system", content=conversation.system),) if conversation.system else ()
    described = [tool.model_dump(include={"name", "description", "parameters"}) for tool in tools]
    told = sum(estimate_tokens(json.dumps(tool, ensure_ascii=False)) for tool in described)
    return model, estimate_input_tokens((*system, *turns)) + told


def _rules(fields: Fields) -> tuple[AnswerRules, Effort | None]:
    configured = fields.table("output_config")
    form, effort = fields.table("output_format"), None
    if configured is not None:
        form, effort = configured.table("format") or form, read_effort(configured, "effort")
    limits = {
        "max_tokens": fields.count("max_tokens", least=1),
        "stop": fields.texts("stop_sequences", _MOST_STOPS),
    }
    return read_form(form).model_copy(update=limits), effort


def _tools(fields: Fields) -> tuple[ToolSpec, ...]:
    """Returns the client's tools. Anthropic's own have another type and no schema, and are left out."""
    listed = fields.tables("tools", MOST_TOOLS) or ()
    return distinct(function_tool(each, "input_schema") for each in listed if each.text("type") in (None, "custom"))


def _choice(fields: Fields, tools: tuple[ToolSpec, ...]) -> str:
    chosen = fields.table("tool_choice")
    if chosen is None:
        return "auto"
    match chosen.choice("type", ("auto", "any", "tool", "none")):
        case "tool":
            return tool_choice(chosen.needed_text("name"), tools, fields, named=True)
        case "any":
            return tool_choice("required", tools, fields)
        case "none":
            return "none"
        case "auto":
            return "auto"
    raise chosen.missing("type")


# The conversation.


def _conversation(fields: Fields) -> Conversation:
    conversation, images = Conversation(), Images()
    conversation.add_system(_text(fields, "system"))
    messages = fields.tables("messages")
    if messages is None:
        raise fields.missing("messages")
    for message in messages:
        match message.choice("role", ("user", "assistant", "system")):
            case "user":
                conversation.add("user", _user(message, images))
            case "assistant":
                conversation.add("assistant", _assistant(message))
            case "system":
                conversation.add_system(_text(message, "content"))
            case _:
                raise message.missing("role")
    return conversation


def _text(holder: Fields, name: str) -> str:
    """Returns a content that has text alone."""
    texts: list[str] = []
    for block in holder.parts(name):
        if (kind := block.needed_text("type")) != "text":
            raise block.refused("type", f"expected text here; got {shown(kind)}")
        texts.append(block.needed_text("text"))
    return "\n\n".join(filter(None, texts))


def _user(message: Fields, images: Images) -> list[Part]:
    parts: list[Part] = []
    for block in message.parts("content"):
        if block.needed_text("type") == "tool_result":
            seen = _seen(block.parts("content"), images)
            parts += result_parts(block.needed_text("tool_use_id"), seen, is_error=block.flag("is_error") or False)
        else:
            parts += _seen([block], images)
    return parts


def _seen(blocks: list[Fields], images: Images) -> list[TextPart | ImagePart]:
    """Returns what is to be read or seen in blocks of a user's message, or of a tool's result."""
    parts: list[TextPart | ImagePart] = []
    for block in blocks:
        match block.needed_text("type"):
            case "text":
                parts.append(TextPart(text=block.needed_text("text")))
            case "image":
                parts.append(_image(block.needed_table("source"), images))
            case "document":
                parts += _document(block, images)
            case "search_result":
                found = [block.text("title") or "", block.text("source") or "", _text(block, "content")]
                parts.append(TextPart(text="\n".join(filter(None, found))))
            case "tool_reference":
                parts.append(TextPart(text=f"[tool: {block.needed_text('tool_name')}]"))
            case kind:
                raise block.refused("type", f"expected text, image, document or tool_result; got {shown(kind)}")
    return parts


def _image(source: Fields, images: Images) -> ImagePart:
    match source.choice("type", ("base64", "url", "file")):
        case "base64":
            source.text("media_type")
            return images.of_base64(source.needed_text("data"), source.param("data"))
        case "url":
            return images.of_url(source.needed_text("url"), source.param("url"))
        case "file":
            raise source.refused("type", "no files are kept here; send the image as base64", "invalid_image")
    raise source.missing("type")


def _document(block: Fields, images: Images) -> list[TextPart | ImagePart]:
    source = block.needed_table("source")
    title = [TextPart(text=text)] if (text := block.text("title")) else []
    match source.needed_text("type"):
        case "text":
            return [*title, TextPart(text=source.needed_text("data"))]
        case "content":
            return [*title, *_seen(source.parts("content"), images)]
        case kind:
            raise source.refused("type", f"expected a document as text or content; got {shown(kind)}")


def _assistant(message: Fields) -> list[Part]:
    parts: list[Part] = []
    for block in message.parts("content"):
        kind = block.needed_text("type")
        if kind == "text":
            parts.append(TextPart(text=block.needed_text("text")))
        elif kind == "tool_use":
            given = block.table("input")
            arguments = json.dumps(dict(given.values) if given is not None else {}, ensure_ascii=False)
            call_id = block.needed_text("id")
            parts.append(ToolCallPart(call_id=call_id, name=block.name("name"), arguments=arguments))
        elif kind not in _UNREAD and not kind.endswith("_tool_result"):
            raise block.refused("type", f"expected text, thinking or tool_use; got {shown(kind)}")
    return parts


# Answers.


def usage(spending: Spending) -> dict[str, int]:
    """Returns what the answer used. What a cache gave or took is not in ``input_tokens``."""
    apart = spending.cached_tokens + spending.cache_write_tokens
    return {
        "input_tokens": max(0, spending.input_tokens - apart),
        "cache_creation_input_tokens": spending.cache_write_tokens,
        "cache_read_input_tokens": spending.cached_tokens,
        "output_tokens": spending.output_tokens,
    }


def whole(outcome: Outcome) -> dict[str, Any]:
    """Returns the answer that is not streamed."""
    texts = filter(None, (outcome.text, outcome.refusal))
    calls = [{**_call(call), "input": _input(call)} for call in outcome.calls]
    content = [*({"type": "text", "text": text} for text in texts), *calls]
    return {**_head(outcome), "content": content, **_stop(outcome), **_spent(outcome)}


def _head(outcome: Outcome) -> dict[str, Any]:
    made = made_id("msg", outcome.run_id, outcome.number)
    return {"id": made, "type": "message", "role": "assistant", "model": outcome.client.model}


def _stop(outcome: Outcome) -> dict[str, Any]:
    finish = outcome.finish or "stop"
    if outcome.refusal:
        return {"stop_reason": "refusal", "stop_sequence": None}
    if finish == "stop" and outcome.stop_sequence is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": outcome.stop_sequence}
    return {"stop_reason": _STOP_REASONS[finish], "stop_sequence": None}


def _spent(outcome: Outcome) -> dict[str, Any]:
    return {"usage": usage(outcome.spending), "conductor": outcome.conductor}


def _call(call: Called) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.call_id, "name": call.name, "input": {}}


def _input(call: Called) -> dict[str, Any]:
    """Returns the arguments as the object that they have to be here, even if a model wrote something else."""
    if call.custom:
        return {"input": call.arguments}
    try:
        read = pydantic_core.from_json(call.arguments or "{}")
        json.dumps(read, allow_nan=False)
    except ValueError:
        read = None
    return read if isinstance(read, dict) else {"arguments": call.arguments}


class Stream:
    """Writes one answer as events."""

    def __init__(self, *, request_id: str = "") -> None:
        self._request_id = request_id
        self._own: dict[str, Any] = {}
        self._index = 0
        self._writing = False

    def feed(self, part: Told) -> list[bytes]:
        """Returns the events that ``part`` makes, each whole."""
        match part:
            case Began():
                self._own = {"conductor": part.outcome.conductor}
                stop = {"stop_reason": None, "stop_sequence": None}
                message = {**_head(part.outcome), "content": [], **stop, "usage": usage(part.outcome.spending)}
                return [_event("message_start", message=message)]
            case Summary():
                return []
            case Text():
                return self._write(part.text)
            case Beat():
                return [_event("ping")]
            case Ended():
                return self._end(part.outcome)

    def _write(self, text: str) -> list[bytes]:
        begun = [] if self._writing else [self._block({"type": "text", "text": ""})]
        self._writing = True
        return [*begun, self._delta({"type": "text_delta", "text": text})]

    def fault(self, error: ApiError) -> list[bytes]:
        """Returns the last events of a stream that cannot go on."""
        document = error.document("messages", self._request_id)
        return [*self._close(), event({**document, **self._own}, "error")]

    def _end(self, outcome: Outcome) -> list[bytes]:
        self._own = {"conductor": outcome.conductor}
        if (error := failure(outcome)) is not None:
            return self.fault(error)
        told = self._close()
        if outcome.refusal:
            told += [*self._write(outcome.refusal), *self._close()]
        for call in outcome.calls:
            self._writing = True
            given = json.dumps(_input(call), ensure_ascii=False)
            pieces = (self._block(_call(call)), self._delta({"type": "input_json_delta", "partial_json": given}))
            told += [*pieces, *self._close()]
        told.append(_event("message_delta", delta=_stop(outcome), **_spent(outcome)))
        # In all APIs a stream's last data says what is ours.
        return [*told, _event("message_stop", **self._own)]

    def _block(self, block: Mapping[str, Any]) -> bytes:
        return _event("content_block_start", index=self._index, content_block=block)

    def _delta(self, delta: Mapping[str, Any]) -> bytes:
        return _event("content_block_delta", index=self._index, delta=delta)

    def _close(self) -> list[bytes]:
        """Ends the block that is being written, if one is."""
        if not self._writing:
            return []
        closed = _event("content_block_stop", index=self._index)
        self._writing = False
        self._index += 1
        return [closed]


def _event(name: str, **fields: Any) -> bytes:
    return event({"type": name, **fields}, name)
