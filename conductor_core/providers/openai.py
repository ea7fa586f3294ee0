"""Speaks OpenAI's chat completions, as do Google, OpenRouter, vLLM, Ollama, llama.cpp, LM Studio and others.

Wire format: https://platform.openai.com/docs/api-reference/chat-streaming. It also reads known departures of compatible
servers: reasoning under several names and in parts, content as a list of parts, a whole ``message`` in place of a
``delta`` (a server that does not stream) or after all of them (a snapshot), a finish reason or usage in every event, no
``[DONE]``, cost in ``usage.cost``.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from conductor_core.chat.messages import (
    NO_TERMS,
    CallTerms,
    Departure,
    Finished,
    ImagePart,
    Message,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    ToolSpec,
    WorkerSpec,
    data_url,
)
from conductor_core.chat.servers import OPENAI_URL
from conductor_core.chat.usage import usd
from conductor_core.providers.answer_text import calls_of
from conductor_core.providers.client import NoPart, Pieced, Reader
from conductor_core.text import whole_characters

REASONING_FIELDS = (
    "reasoning_content",  # DeepSeek, vLLM
    "reasoning",  # OpenRouter, Ollama
    "reasoning_details",  # OpenRouter, in parts
    "thinking_blocks",  # LiteLLM, beside the first
    "thinking",
    "thinking_content",
    "reasoning_text",
    "thought",
    "thoughts",
)
"""Where servers put reasoning."""
KNOWN_FIELDS = frozenset({"role", "content", "refusal", "tool_calls", "function_call", "name", *REASONING_FIELDS})
MOST_UNKNOWN = 65_536
"""Characters that are kept of fields that are not known."""


def text_of(value: Any, levels: int = 6) -> str:
    """Returns the text in a field that may be text, an object or a list of such; empty: there is none."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and levels:
        return "".join(text_of(item, levels - 1) for item in value)
    if isinstance(value, dict) and levels:
        names = ("text", "thinking", "summary", "content", "reasoning", "reasoning_content")
        return next((text for name in names if (text := text_of(value.get(name), levels - 1))), "")
    return ""


class OpenAIDialect:
    """See ``client.Dialect``."""

    def url(self, spec: WorkerSpec) -> str:
        return f"{_base(spec)}/chat/completions"

    def models_url(self, spec: WorkerSpec) -> str:
        return f"{_base(spec)}/models"

    def headers(self, key: str | None) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"} if key else {}

    def body(self, spec: WorkerSpec, messages: Sequence[Message], terms: CallTerms = NO_TERMS) -> dict[str, Any]:
        return {
            **spec.params,
            **(_terms(spec, terms) if terms else {}),
            "model": spec.model,
            "messages": [turn for message in messages for turn in _turns(message)],
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    def reader(self) -> "ChatReader":
        return ChatReader()


def _terms(spec: WorkerSpec, terms: CallTerms) -> dict[str, Any]:
    """Returns what a request says beside its messages. A limit of the pool file is never raised."""
    said: dict[str, Any] = {}
    rules = terms.rules
    if rules.max_tokens is not None:
        limits = [name for name in ("max_completion_tokens", "max_tokens") if name in spec.params] or ["max_tokens"]
        said |= {name: _least(spec.params.get(name), rules.max_tokens) for name in limits}
    if rules.stop:
        said["stop"] = [*rules.stop][:MOST_STOPS]
    if rules.form == "json":
        said["response_format"] = {"type": "json_object"}
    elif rules.form == "schema":
        schema = {"name": rules.schema_name or "answer", "schema": dict(rules.json_schema or {})}
        said["response_format"] = {"type": "json_schema", "json_schema": schema}
    if terms.tools and terms.choice != "none":
        said["tools"] = [{"type": "function", "function": _function(tool)} for tool in terms.tools]
        if terms.choice != "auto":
            named = {"type": "function", "function": {"name": terms.choice}}
            said["tool_choice"] = terms.choice if terms.choice == "required" else named
    return said


MOST_STOPS = 4
"""More texts that end an answer OpenAI does not take; ``engine.step`` knows all of them."""


def _least(limit: Any, most: int) -> int:
    return min(limit, most) if type(limit) is int and limit > 0 else most


def _function(tool: ToolSpec) -> dict[str, Any]:
    strict = {} if tool.strict is None else {"strict": tool.strict}
    return {"name": tool.name, "description": tool.description, "parameters": tool.schema_for_models, **strict}


def _turns(message: Message) -> list[dict[str, Any]]:
    """Returns the turns that say ``message``: the result of a tool is one of its own."""
    if isinstance(message.content, str):
        return [{"role": message.role, "content": message.content}]
    turns: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    for part in message.content:
        match part:
            case TextPart():
                parts.append({"type": "text", "text": part.text})
            case ImagePart():
                parts.append({"type": "image_url", "image_url": {"url": data_url(part)}})
            case ToolCallPart():
                function = {"name": part.name, "arguments": part.arguments}
                calls.append({"id": part.call_id, "type": "function", "function": function})
            case ToolResultPart():
                turns.append({"role": "tool", "tool_call_id": part.call_id, "content": part.text})
            case _:
                assert_never(part)
    if calls:
        # An assistant's text is a string here: compatible servers take no list of parts from it.
        text = "\n\n".join(part["text"] for part in parts if part["type"] == "text")
        return [*turns, {"role": message.role, "content": text or None, "tool_calls": calls}]
    return [*turns, {"role": message.role, "content": parts}] if parts else turns


def _base(spec: WorkerSpec) -> str:
    return (spec.base_url or OPENAI_URL).rstrip("/")


class ChatReader(Reader):
    """Of several choices only the first (index 0) counts."""

    def __init__(self) -> None:
        super().__init__()
        self._unknown: dict[str, list[str]] = {}
        self._unknown_size = 0

    @property
    def extras_size(self) -> int:
        return self._extras.size + self._unknown_size

    def feed(self, event: Mapping[str, Any]) -> Pieced:
        self._name(event.get("model"))
        choices = event.get("choices")
        has_usage = self._read_usage(event)
        if choices is None and (has_usage or event.get("object") == "chat.completion.chunk"):
            return []
        if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
            raise NoPart("an event that does not belong to a chat completion")
        for choice in choices:
            self._read_usage(choice)  # Moonshot
        if (beside := event.get("x_groq")) is not None:
            self._read_usage(beside)
        return [chunk for choice in choices if choice.get("index", 0) in (0, None) for chunk in self._choice(choice)]

    def _read_usage(self, place: Any) -> bool:
        """Reads the usage in ``place``, if any. Returns whether there is one."""
        usage = place.get("usage") if isinstance(place, dict) else None
        if not isinstance(usage, dict):
            return False
        self._usage.read_chat(usage)
        if (cost_usd := usd(usage.get("cost"))) is not None:
            self._cost_usd = cost_usd
        return True

    def finished(self, prompt_tokens: int = 0) -> Finished:
        unknown = tuple(
            Departure(kind="unknown_field", what=name, text=whole_characters("".join(parts)))
            for name, parts in self._unknown.items()
        )
        return super().finished(prompt_tokens).model_copy(update={"departures": unknown})

    def _choice(self, choice: Mapping[str, Any]) -> Pieced:
        delta, whole = choice.get("delta"), choice.get("message")
        delta = delta or whole or {}
        if not isinstance(delta, dict):
            raise ValueError("a choice without a delta")
        self._end(choice.get("finish_reason"))
        if choice.get("logprobs"):
            self.logprobs.append(choice["logprobs"])
        if len(delta) == 1 and isinstance(content := delta.get("content"), str):
            return self._content(content, snapshot=delta is whole)  # nothing beside it, as in most events
        chunks: Pieced = []
        if (thought := self._thought(delta)) and not (delta is whole and self._thoughts):
            chunks += self._think(thought)
        chunks += self._content(delta.get("content"), snapshot=delta is whole)
        self._extras.refuse(delta.get("refusal"))
        calls_of(delta, self._extras)
        self._keep_unknown(delta)
        return chunks

    def _thought(self, delta: Mapping[str, Any]) -> str:
        """Returns the reasoning of an event under the first name that has any: some servers repeat it under several."""
        return next((text for name in REASONING_FIELDS if (text := text_of(delta.get(name)))), "")

    def _content(self, content: Any, *, snapshot: bool = False) -> Pieced:
        if content is None:
            return []
        if isinstance(content, str):
            if snapshot and self._said:  # what came so far is kept; the snapshot may add its end
                said = "".join(self._said)
                content = content[len(said) :] if content.startswith(said) else ""
            return self._say(content)
        if isinstance(content, list) and all(isinstance(part, dict) for part in content):
            return [chunk for part in content for chunk in self._part(part)]
        raise ValueError("content that is not text")

    def _part(self, part: Mapping[str, Any]) -> Pieced:
        self._extras.refuse(part.get("refusal"))
        if part.get("type") in ("thinking", "reasoning", "reasoning_text", "summary_text"):
            return self._think(text_of(part))
        return self._content(part["text"]) if isinstance(part.get("text"), str) else []

    def _keep_unknown(self, delta: Mapping[str, Any]) -> None:
        for name in delta.keys() - KNOWN_FIELDS:
            value = delta[name]
            left = MOST_UNKNOWN - self._unknown_size
            if value in (None, "", [], {}) or left <= 0 or len(self._unknown) > 32:
                continue
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
            text = text[:left]
            self._unknown_size += len(text)
            self._unknown.setdefault(whole_characters(name[:200]), []).append(text)
