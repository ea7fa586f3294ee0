"""Speaks Anthropic's Messages interface, with its own streaming events.

Wire format: https://docs.anthropic.com/en/api/messages-streaming. An answer is complete when ``message_delta`` has
brought a ``stop_reason``. Input tokens come with ``message_start``, cumulative output tokens with ``message_delta``.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, assert_never
from urllib.parse import quote

from conductor_core.chat.messages import (
    Finished,
    FinishReason,
    ImagePart,
    Message,
    Part,
    ReasoningDelta,
    TextDelta,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    Usage,
    WorkerSpec,
    image_base64,
)
from conductor_core.chat.responses import ResponseExtras
from conductor_core.chat.usage import is_count
from conductor_core.errors import WorkerRefused
from conductor_core.providers.servers import ANTHROPIC_URL
from conductor_core.text import Pieces, whole_characters

_VERSION = "2023-06-01"
DEFAULT_MAX_TOKENS = 4096
"""The interface demands a limit; 4096 is what the paper gave its workers (arXiv 2512.04388, section 4)."""

_REASONS: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
    "tool_use": "tool_calls",
}


class AnthropicDialect:
    """See ``http.Dialect``."""

    def url(self, spec: WorkerSpec) -> str:
        return f"{_base(spec)}/messages"

    def models_url(self, spec: WorkerSpec) -> str:
        """Names the one model: the list is paged and leaves out aliases."""
        return f"{_base(spec)}/models/{quote(spec.model, safe='')}"

    def headers(self, key: str | None) -> dict[str, str]:
        return {"anthropic-version": _VERSION} | ({"x-api-key": key} if key else {})

    def body(self, spec: WorkerSpec, messages: Sequence[Message]) -> dict[str, Any]:
        """Moves system turns into ``system``; the turns of the conversation keep their order."""
        system = "\n\n".join(message.text for message in messages if message.role == "system")
        turns = [{"role": turn.role, "content": _blocks(turn)} for turn in messages if turn.role != "system"]
        body: dict[str, Any] = {"max_tokens": DEFAULT_MAX_TOKENS, **spec.params}
        if system:
            body["system"] = system
        return body | {"model": spec.model, "messages": turns, "stream": True}

    def simpler(self, body: Mapping[str, Any], complaint: str) -> dict[str, Any] | None:
        """Returns None: nothing that is sent is optional."""
        return None

    def reader(self) -> "MessageReader":
        return MessageReader()


def _blocks(turn: Message) -> str | list[dict[str, Any]]:
    return turn.content if isinstance(turn.content, str) else list(map(_block, turn.content))


def _block(part: Part) -> dict[str, Any]:
    """Raises: WorkerRefused for a tool call whose arguments are no JSON object."""
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ImagePart():
            source = {"type": "base64", "media_type": part.media_type, "data": image_base64(part)}
            return {"type": "image", "source": source}
        case ToolCallPart():
            return {"type": "tool_use", "id": part.call_id, "name": part.name, "input": _arguments(part)}
        case ToolResultPart():
            result = {"type": "tool_result", "tool_use_id": part.call_id, "content": part.text}
            return result | ({"is_error": True} if part.is_error else {})
        case _:
            assert_never(part)


def _arguments(part: ToolCallPart) -> dict[str, Any]:
    try:
        read = json.loads(part.arguments or "{}")
    except ValueError:
        read = None
    if not isinstance(read, dict):
        raise WorkerRefused(f"the arguments of tool call {part.call_id} are no JSON object, which Anthropic demands")
    return read


def _base(spec: WorkerSpec) -> str:
    """Returns the base URL with the version: both forms are in use."""
    base = (spec.base_url or ANTHROPIC_URL).rstrip("/")
    return base if base.endswith("/v1") else f"{base}/v1"


class MessageReader:
    """Reads the events of one message."""

    def __init__(self) -> None:
        self._stop_reason: FinishReason | None = None
        self._input_tokens: int | None = None
        self._output_tokens: int | None = None
        self._model: str | None = None
        self._text = Pieces()
        self._thinking = Pieces()
        self._extras = ResponseExtras()
        self._blocks = 0

    @property
    def extras_size(self) -> int:
        return self._extras.size

    @property
    def complete(self) -> bool:
        return self._stop_reason is not None

    def feed(self, event: Mapping[str, Any]) -> list[TextDelta | ReasoningDelta]:
        match event.get("type"):
            case "message_start":
                self._read_message(_mapping(event.get("message"), "message_start without a message"))
            case "content_block_start":
                self._blocks += 1
                return self._block(_mapping(event.get("content_block"), "a block without content"))
            case "content_block_delta":
                return self._block(_mapping(event.get("delta"), "a block without a delta"))
            case "message_delta":
                self._read_end(_mapping(event.get("delta"), "message_delta without a delta"))
                self._read_usage(event.get("usage"))
            case "message":
                self._read_message(event)
                self._read_end(event)
                blocks = event.get("content") or []
                if not isinstance(blocks, list):
                    raise ValueError("content that is no list of blocks")
                return [chunk for block in blocks for chunk in self._whole_block(block)]
            case None:
                raise ValueError("an event that is no part of a message")
            case _:
                # ``ping``, ``content_block_stop``, ``message_stop``; new types may be added by the provider.
                pass
        return []

    def finished(self) -> Finished:
        usage = None
        if self._input_tokens is not None and self._output_tokens is not None:
            usage = Usage(input_tokens=self._input_tokens, output_tokens=self._output_tokens)
        return Finished(
            finish_reason=self._stop_reason or "other",
            usage=usage,
            model=self._model,
            refusal=self._extras.refusal,
            tool_calls=self._extras.tool_calls,
        )

    def _whole_block(self, block: Any) -> list[TextDelta | ReasoningDelta]:
        self._blocks += 1
        return self._block(_mapping(block, "a block of no shape"))

    def _block(self, block: Mapping[str, Any]) -> list[TextDelta | ReasoningDelta]:
        text, thinking = block.get("text"), block.get("thinking")
        if isinstance(text, str) and (joined := self._text.feed(text)):
            return [TextDelta(text=joined)]
        if isinstance(thinking, str) and (joined := self._thinking.feed(thinking)):
            return [ReasoningDelta(text=joined)]
        self._tool(block)
        return []

    def _tool(self, block: Mapping[str, Any]) -> None:
        """Reads ``tool_use``: its name comes with the block's start, its input there as a whole or in later pieces."""
        if block.get("type") == "tool_use":
            given = json.dumps(block["input"], ensure_ascii=False) if block.get("input") else ""
            self._extras.call(self._blocks, {"name": block.get("name"), "arguments": given})
        elif block.get("type") == "input_json_delta":
            self._extras.call(self._blocks, {"arguments": block.get("partial_json")})

    def _read_message(self, message: Mapping[str, Any]) -> None:
        if isinstance(model := message.get("model"), str) and model:
            self._model = whole_characters(model)
        self._read_usage(message.get("usage"))

    def _read_end(self, delta: Mapping[str, Any]) -> None:
        if isinstance(reason := delta.get("stop_reason"), str) and reason:
            self._stop_reason = _REASONS.get(reason, "other")
        if isinstance(details := delta.get("stop_details"), dict):
            self._extras.refuse(details.get("explanation"))

    def _read_usage(self, usage: Any) -> None:
        """Counts cached input too, which is reported apart from ``input_tokens``."""
        if not isinstance(usage, dict):
            return
        parts = [usage.get(name) for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")]
        if is_count(parts[0]):
            self._input_tokens = sum(part for part in parts if is_count(part))
        if is_count(usage.get("output_tokens")):
            self._output_tokens = usage["output_tokens"]


def _mapping(value: Any, otherwise: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(otherwise)
    return value
