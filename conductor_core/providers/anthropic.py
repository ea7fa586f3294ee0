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
    WorkerSpec,
    image_base64,
)
from conductor_core.chat.usage import ReportedUsage
from conductor_core.providers.answer_text import ResponseExtras
from conductor_core.providers.client import NO_REASON, NoPart
from conductor_core.providers.errors import ServerFault
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
    """See ``client.Dialect``."""

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

    def reader(self) -> "MessageReader":
        return MessageReader()


def _blocks(turn: Message) -> str | list[dict[str, Any]]:
    return turn.content if isinstance(turn.content, str) else list(map(_block, turn.content))


def _block(part: Part) -> dict[str, Any]:
    """Raises: ServerFault for a tool call whose arguments are not a JSON object."""
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
        said = f"the arguments of tool call {part.call_id} are not a JSON object, which Anthropic requires"
        raise ServerFault("refused", said)
    return read


def _base(spec: WorkerSpec) -> str:
    """Returns the base URL with the version: both forms are in use."""
    base = (spec.base_url or ANTHROPIC_URL).rstrip("/")
    return base if base.endswith("/v1") else f"{base}/v1"


class MessageReader:
    """See ``client.Reader``."""

    def __init__(self) -> None:
        self._reason: FinishReason | None = None
        self._model: str | None = None
        self._text = Pieces()
        self._thinking = Pieces()
        self._written: list[str] = []
        self._usage = ReportedUsage()
        self._extras = ResponseExtras()
        self._blocks = 0
        self._stopped = False
        self.logprobs: list[Any] = []

    @property
    def extras_size(self) -> int:
        return self._extras.size

    @property
    def complete(self) -> bool:
        return self._reason is not None

    @property
    def stopped(self) -> bool:
        return self._stopped

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
            case "message_stop":
                self._stopped = True
            case "message":
                return self._whole(event)
            case str():
                # ``ping``, ``content_block_stop``; new types may be added by the provider.
                pass
            case _:
                raise NoPart("an event that does not belong to a message")
        return []

    def ended(self) -> None:
        if self._reason is None:
            self._reason = "stop"

    def finished(self, prompt_tokens: int = 0) -> Finished:
        return Finished(
            finish_reason=self._reason or "other",
            usage=self._usage.of("".join(self._written), prompt_tokens),
            model=self._model,
            refusal=self._extras.refusal,
            tool_calls=self._extras.tool_calls,
        )

    def _whole(self, event: Mapping[str, Any]) -> list[TextDelta | ReasoningDelta]:
        """Reads a whole message. After events of the same message it is a snapshot: only its figures count."""
        self._read_message(event)
        self._read_end(event)
        blocks = event.get("content") or []
        if not isinstance(blocks, list):
            raise ValueError("content that is not a list of blocks")
        if self._blocks:
            return []
        return [chunk for block in blocks for chunk in self._whole_block(block)]

    def _whole_block(self, block: Any) -> list[TextDelta | ReasoningDelta]:
        self._blocks += 1
        return self._block(_mapping(block, "a block of no shape"))

    def _block(self, block: Mapping[str, Any]) -> list[TextDelta | ReasoningDelta]:
        text, thinking = block.get("text"), block.get("thinking")
        if isinstance(text, str) and (joined := self._text.feed(text)):
            self._written.append(joined)
            return [TextDelta(text=joined)]
        if isinstance(thinking, str) and (joined := self._thinking.feed(thinking)):
            self._written.append(joined)
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
        reason = delta.get("stop_reason")
        if isinstance(reason, str) and (word := reason.strip().lower()) not in NO_REASON:
            self._reason = _REASONS.get(word, "other")
        if isinstance(details := delta.get("stop_details"), dict):
            self._extras.refuse(details.get("explanation"))

    def _read_usage(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self._usage.read_message(usage)


def _mapping(value: Any, otherwise: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(otherwise)
    return value
