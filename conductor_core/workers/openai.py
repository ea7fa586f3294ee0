"""Speaks OpenAI's chat completions, as do Google, OpenRouter, vLLM, Ollama, llama.cpp, LM Studio and others.

Wire format: https://platform.openai.com/docs/api-reference/chat-streaming. It also reads known departures of compatible
servers: thinking in ``reasoning_content`` or ``reasoning``, content as a list of parts, a whole ``message`` in place of
a ``delta`` (a server that does not stream), usage in every event, no ``[DONE]``, cost in ``usage.cost``.
"""

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from conductor_core.chat.messages import (
    Finished,
    FinishReason,
    ImagePart,
    Message,
    ReasoningDelta,
    TextDelta,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    Usage,
    WorkerSpec,
    data_url,
)
from conductor_core.chat.responses import ResponseExtras, calls_of
from conductor_core.chat.usage import chat_tokens, usd
from conductor_core.providers.servers import OPENAI_URL
from conductor_core.text import Pieces, whole_characters

_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "end_turn": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "stop_token": "stop",
    "complete": "stop",
    "completed": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "content_filter",
    "content-filter": "content_filter",
    "safety": "content_filter",
    "recitation": "content_filter",
    "prohibited_content": "content_filter",
    "refusal": "refusal",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
}


class OpenAIDialect:
    """See ``http.Dialect``."""

    def url(self, spec: WorkerSpec) -> str:
        return f"{_base(spec)}/chat/completions"

    def models_url(self, spec: WorkerSpec) -> str:
        return f"{_base(spec)}/models"

    def headers(self, key: str | None) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"} if key else {}

    def body(self, spec: WorkerSpec, messages: Sequence[Message]) -> dict[str, Any]:
        return {
            **spec.params,
            "model": spec.model,
            "messages": [turn for message in messages for turn in _turns(message)],
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    def simpler(self, body: Mapping[str, Any], complaint: str) -> dict[str, Any] | None:
        """Leaves out ``stream_options``, which older compatible servers refuse."""
        if "stream_options" not in body or not ("stream_options" in complaint or "include_usage" in complaint):
            return None
        return {key: value for key, value in body.items() if key != "stream_options"}

    def reader(self) -> "ChatReader":
        return ChatReader()


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


class ChatReader:
    """Reads the events of one chat completion; of several choices only the first (index 0)."""

    def __init__(self) -> None:
        self._finish_reason: FinishReason | None = None
        self._usage: Usage | None = None
        self._cost_usd: float | None = None
        self._model: str | None = None
        self._text = Pieces()
        self._reasoning = Pieces()
        self._extras = ResponseExtras()

    @property
    def extras_size(self) -> int:
        return self._extras.size

    @property
    def complete(self) -> bool:
        return self._finish_reason is not None

    def feed(self, event: Mapping[str, Any]) -> list[TextDelta | ReasoningDelta]:
        if isinstance(model := event.get("model"), str) and model and model != self._model:
            self._model = whole_characters(model)
        if isinstance(usage := event.get("usage"), dict):
            self._read_usage(usage)
        choices = event.get("choices")
        if choices is None and ("usage" in event or event.get("object") == "chat.completion.chunk"):
            choices = []
        if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
            raise ValueError("an event that is no part of a chat completion")
        return [chunk for choice in choices if choice.get("index", 0) in (0, None) for chunk in self._choice(choice)]

    def finished(self) -> Finished:
        return Finished(
            finish_reason=self._finish_reason or "other",
            usage=self._usage,
            cost_usd=self._cost_usd,
            model=self._model,
            refusal=self._extras.refusal,
            tool_calls=self._extras.tool_calls,
        )

    def _choice(self, choice: Mapping[str, Any]) -> list[TextDelta | ReasoningDelta]:
        delta = choice.get("delta") or choice.get("message") or {}
        if not isinstance(delta, dict):
            raise ValueError("a choice without a delta")
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            if reason == "error":
                raise ValueError("the finish reason 'error' without saying which")
            self._finish_reason = _REASONS.get(reason.lower(), "other")
        if len(delta) == 1 and isinstance(content := delta.get("content"), str):
            return self._content(content)  # nothing beside it, as in most events
        chunks: list[TextDelta | ReasoningDelta] = []
        thinking = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(thinking, str) and (text := self._reasoning.feed(thinking)):
            chunks.append(ReasoningDelta(text=text))
        chunks += self._content(delta.get("content"))
        self._extras.refuse(delta.get("refusal"))
        calls_of(delta, self._extras)
        return chunks

    def _content(self, content: Any) -> list[TextDelta | ReasoningDelta]:
        if content is None:
            return []
        if isinstance(content, str):
            text = self._text.feed(content)
            return [TextDelta(text=text)] if text else []
        if isinstance(content, list) and all(isinstance(part, dict) for part in content):
            for part in content:
                self._extras.refuse(part.get("refusal"))
            texts = [part["text"] for part in content if isinstance(part.get("text"), str)]
            return [chunk for text in texts for chunk in self._content(text)]
        raise ValueError("content that is no text")

    def _read_usage(self, usage: Mapping[str, Any]) -> None:
        if (tokens := chat_tokens(usage)) is not None:
            self._usage = Usage(input_tokens=tokens[0], output_tokens=tokens[1])
        if (cost_usd := usd(usage.get("cost"))) is not None:
            self._cost_usd = cost_usd
