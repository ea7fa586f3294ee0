"""The wire format of OpenAI's chat completions: reads requests, writes answers and streams.

Source: https://platform.openai.com/docs/api-reference/chat
"""

from collections.abc import Mapping
from typing import Any

from conductor_core.chat.messages import AnswerRules, ImagePart, Part, TextPart, ToolCallPart, ToolSpec
from conductor_core.serving.errors import ApiError
from conductor_core.serving.outcome import Beat, Began, Called, Ended, Outcome, Spending, Summary, Text, made_id
from conductor_core.serving.outcome import Part as Told
from conductor_core.serving.reading import (
    MOST_TOOLS,
    Asked,
    Conversation,
    Fields,
    Images,
    check_without_effect,
    custom_arguments,
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
from conductor_core.serving.replies import COMMENT, DONE, event, failure

_MOST_STOPS = 4
_UNREAD = frozenset({"thinking", "redacted_thinking", "reasoning"})
"""Parts of an assistant's message that other servers wrote."""


def read(body: bytes) -> Asked:
    """Raises: ApiError 400 for whatever cannot be done."""
    fields = read_json(body)
    _require_possible(fields)
    return read_fields(fields)


def read_fields(fields: Fields) -> Asked:
    """Reads a request whose ``n`` and ``logprobs`` are not looked at. Raises: ApiError 400."""
    model = fields.name("model")
    check_without_effect(fields)
    tools = _tools(fields)
    choice, tools = _choice(fields, tools)
    conversation = _conversation(fields)
    conversation.require_answerable("messages")
    options = fields.table("stream_options")
    metadata = read_metadata(fields)
    return conversation.asked(
        fields,
        api="chat",
        model=model,
        include_usage=(options is not None and options.flag("include_usage")) or False,
        tools=tools,
        tool_choice=choice,
        rules=_rules(fields),
        effort=read_effort(fields, "reasoning_effort"),
        store=fields.flag("store") is not False,
        echoed={"metadata": metadata} if metadata else {},
    )


def _require_possible(fields: Fields) -> None:
    if (fields.count("n", least=1) or 1) > 1:
        raise fields.refused("n", "only one answer is given to a request", "unsupported_value")
    if fields.flag("logprobs") or fields.count("top_logprobs"):
        name = "logprobs" if fields.flag("logprobs") else "top_logprobs"
        raise fields.refused(name, "log probabilities are not available", "unsupported_value")
    if "audio" in fields.texts("modalities", 10):
        raise fields.refused("modalities", "answers are text only", "unsupported_value")
    fields.flag("parallel_tool_calls")


def _rules(fields: Fields) -> AnswerRules:
    rules = read_form(fields.table("response_format"), "json_schema")
    stop = fields.get("stop")
    stops = (stop,) if isinstance(stop, str) else fields.texts("stop", _MOST_STOPS)
    if "" in stops:
        raise fields.refused("stop", "must not be empty")
    older = fields.count("max_tokens", least=1)
    newer = fields.count("max_completion_tokens", least=1)
    return rules.model_copy(update={"stop": stops, "max_tokens": older if newer is None else newer})


def _tools(fields: Fields) -> tuple[ToolSpec, ...]:
    tools: list[ToolSpec] = []
    for each in fields.tables("tools", MOST_TOOLS) or ():
        match each.needed_text("type"):
            case "function":
                tools.append(function_tool(each.needed_table("function")))
            case "custom":
                tools.append(custom_tool(each.needed_table("custom")))
    return distinct(tools)


def _choice(fields: Fields, tools: tuple[ToolSpec, ...]) -> tuple[str, tuple[ToolSpec, ...]]:
    """Returns the choice, and the tools that it allows."""
    value = fields.get("tool_choice")
    if value is None or isinstance(value, str):
        return tool_choice(value or "auto", tools, fields), tools
    chosen = fields.needed_table("tool_choice")
    match chosen.choice("type", ("function", "custom", "allowed_tools")):
        case "allowed_tools":
            allowed = chosen.table("allowed_tools") or chosen
            mode = allowed.choice("mode", ("auto", "required")) or "auto"
            named = [_named(each) for each in allowed.tables("tools") or ()]
            kept = tuple(tool for tool in tools if tool.name in named)
            return tool_choice(mode, kept, fields), kept
        case None:
            raise chosen.missing("type")
    return tool_choice(_named(chosen), tools, fields, named=True), tools


def _named(chosen: Fields) -> str:
    kind = chosen.needed_text("type")
    return (chosen.table(kind) or chosen).needed_text("name")


# Messages.


def _conversation(fields: Fields) -> Conversation:
    conversation, images = Conversation(), Images()
    messages = fields.tables("messages")
    if messages is None:
        raise fields.missing("messages")
    for message in messages:
        match message.choice("role", ("system", "developer", "user", "assistant", "tool")):
            case "system" | "developer":
                conversation.add_system("\n\n".join(part.text for part in _content(message) if part.text))
            case "user":
                conversation.add("user", _seen(message, images))
            case "assistant":
                conversation.add("assistant", _said(message))
            case "tool":
                result = result_parts(message.needed_text("tool_call_id"), _seen(message, images))
                conversation.add("user", result)
            case _:
                raise message.missing("role")
    return conversation


def _content(message: Fields, unread: frozenset[str] = frozenset()) -> list[TextPart]:
    """Returns the texts of a message that has nothing else."""
    texts: list[TextPart] = []
    for part in message.parts("content"):
        kind = part.needed_text("type")
        if kind == "text":
            texts.append(TextPart(text=part.needed_text("text")))
        elif kind == "refusal" and unread:
            texts.append(TextPart(text=part.needed_text("refusal")))
        elif kind not in unread:
            raise part.refused("type", f"expected text here; got {shown(kind)}")
    return texts


def _seen(message: Fields, images: Images) -> list[TextPart | ImagePart]:
    parts: list[TextPart | ImagePart] = []
    for part in message.parts("content"):
        match part.needed_text("type"):
            case "text":
                parts.append(TextPart(text=part.needed_text("text")))
            case "image_url":
                if isinstance(part.get("image_url"), str):
                    parts.append(images.of_url(part.needed_text("image_url"), part.param("image_url")))
                else:
                    holder = part.needed_table("image_url")
                    parts.append(images.of_url(holder.needed_text("url"), holder.param("url")))
            case kind:
                raise part.refused("type", f"expected text or image_url; got {shown(kind)}")
    return parts


def _said(message: Fields) -> list[Part]:
    parts: list[Part] = [*_content(message, _UNREAD)]
    refusal = message.text("refusal")
    if refusal and not parts:
        parts.append(TextPart(text=refusal))
    for call in message.tables("tool_calls") or ():
        call_id = call.needed_text("id")
        if call.choice("type", ("function", "custom")) == "custom":
            called = call.needed_table("custom")
            arguments = custom_arguments(called.text("input") or "")
        else:
            called = call.needed_table("function")
            arguments = called.text("arguments") or ""
        parts.append(ToolCallPart(call_id=call_id, name=called.name("name"), arguments=arguments))
    return parts


# Answers.


def usage(spending: Spending) -> dict[str, Any]:
    return {
        "prompt_tokens": spending.input_tokens,
        "completion_tokens": spending.output_tokens,
        "total_tokens": spending.total_tokens,
        "prompt_tokens_details": {
            "cached_tokens": spending.cached_tokens,
            "orchestration_input_tokens": spending.orchestration_input_tokens,
            "orchestration_input_cached_tokens": spending.orchestration_cached_tokens,
        },
        "completion_tokens_details": {
            "reasoning_tokens": spending.reasoning_tokens,
            "orchestration_output_tokens": spending.orchestration_output_tokens,
        },
    }


def whole(outcome: Outcome) -> dict[str, Any]:
    """Returns the answer that is not streamed."""
    message: dict[str, Any] = {
        "role": "assistant",
        "content": outcome.text or (None if outcome.calls or outcome.refusal else ""),
        "refusal": outcome.refusal or None,
    }
    if outcome.summaries:
        message["reasoning_content"] = "\n\n".join(outcome.summaries)
    if outcome.calls:
        message["tool_calls"] = [_call(call, call.arguments) for call in outcome.calls]
    choice = {"index": 0, "finish_reason": outcome.finish or "stop", "logprobs": None, "message": message}
    return {
        **_head(outcome, "chat.completion"),
        "choices": [choice],
        "usage": usage(outcome.spending),
        "conductor": outcome.conductor,
    }


def _head(outcome: Outcome, kind: str) -> dict[str, Any]:
    return {
        "id": made_id("chatcmpl", outcome.run_id, outcome.number).replace("_", "-", 1),
        "object": kind,
        "created": int(outcome.created_at.timestamp()),
        "model": outcome.client.model,
    }


def _call(call: Called, told: str) -> dict[str, Any]:
    """Returns a call with ``told`` as its arguments."""
    if call.custom:
        return {"id": call.call_id, "type": "custom", "custom": {"name": call.name, "input": told}}
    # Clients parse them, and a call without any has an empty text.
    return {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": told or "{}"}}


class Stream:
    """Writes one answer as events. ``include_usage``: whether the last one has the usage."""

    def __init__(self, *, include_usage: bool = False) -> None:
        self._include_usage = include_usage
        self._own: dict[str, Any] = {}
        self._head: dict[str, Any] = {}
        self._summary: int | None = None

    def feed(self, part: Told) -> list[bytes]:
        """Returns the events that ``part`` makes, each whole."""
        match part:
            case Began():
                self._head = _head(part.outcome, "chat.completion.chunk")
                self._own = {"conductor": part.outcome.conductor}
                return [self._chunk({"role": "assistant"})]
            case Summary():
                between = "\n\n" if self._summary is not None and part.number != self._summary else ""
                self._summary = part.number
                return [self._chunk({"reasoning_content": between + part.text})]
            case Text():
                return [self._chunk({"content": part.text})]
            case Beat():
                return [COMMENT]
            case Ended():
                return self._end(part.outcome)

    def fault(self, error: ApiError) -> list[bytes]:
        """Returns the last events of a stream that cannot go on."""
        return [event({**error.document("chat", ""), **self._own}), DONE]

    def _end(self, outcome: Outcome) -> list[bytes]:
        self._own = {"conductor": outcome.conductor}
        if (error := failure(outcome)) is not None:
            return self.fault(error)
        told = [self._chunk({"refusal": outcome.refusal})] if outcome.refusal else []
        for index, call in enumerate(outcome.calls):
            begun = _call(call, "")
            kind = begun["type"]
            rest = _call(call, call.arguments)[kind]
            name = "input" if call.custom else "arguments"
            begun[kind][name] = ""
            told.append(self._chunk({"tool_calls": [{"index": index, **begun}]}))
            told.append(self._chunk({"tool_calls": [{"index": index, kind: {name: rest[name]}}]}))
        told.append(self._chunk({}, outcome.finish or "stop", {} if self._include_usage else self._own))
        if self._include_usage:
            told.append(event({**self._head, "choices": [], "usage": usage(outcome.spending), **self._own}))
        return [*told, DONE]

    def _chunk(
        self, delta: Mapping[str, Any], finish: str | None = None, more: Mapping[str, Any] | None = None
    ) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return event({**self._head, "choices": [choice], **(more or {})})
