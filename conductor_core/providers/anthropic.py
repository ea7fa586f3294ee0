"""Speaks Anthropic's Messages interface, with its own streaming events.

Wire format: https://docs.anthropic.com/en/api/messages-streaming. An answer is complete when ``message_delta`` has
brought a ``stop_reason``. Input tokens come with ``message_start``, cumulative output tokens with ``message_delta``.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, assert_never
from urllib.parse import quote

from conductor_core.chat.messages import (
    NO_TERMS,
    CallTerms,
    ImagePart,
    Message,
    Part,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    WorkerSpec,
    image_base64,
)
from conductor_core.chat.servers import ANTHROPIC_URL
from conductor_core.providers.client import NoPart, Pieced, Reader
from conductor_core.providers.errors import ServerFault

_VERSION = "2023-06-01"
DEFAULT_MAX_TOKENS = 4096
"""The interface demands a limit; 4096 is what the paper gave its workers (arXiv 2512.04388, section 4)."""


class AnthropicDialect:
    """See ``client.Dialect``."""

    def url(self, spec: WorkerSpec) -> str:
        return f"{_base(spec)}/messages"

    def models_url(self, spec: WorkerSpec) -> str:
        """Names the one model: the list is paged and leaves out aliases."""
        return f"{_base(spec)}/models/{quote(spec.model, safe='')}"

    def headers(self, key: str | None) -> dict[str, str]:
        return {"anthropic-version": _VERSION} | ({"x-api-key": key} if key else {})

    def body(self, spec: WorkerSpec, messages: Sequence[Message], terms: CallTerms = NO_TERMS) -> dict[str, Any]:
        """Moves system turns into ``system``; the turns of the conversation keep their order."""
        system = "\n\n".join(message.text for message in messages if message.role == "system")
        turns = [{"role": turn.role, "content": _blocks(turn)} for turn in messages if turn.role != "system"]
        body: dict[str, Any] = {"max_tokens": DEFAULT_MAX_TOKENS, **spec.params}
        if terms:
            body |= _terms(body, terms)
        if system:
            body["system"] = system
        return body | {"model": spec.model, "messages": turns, "stream": True}

    def reader(self) -> "MessageReader":
        return MessageReader()


def _terms(body: Mapping[str, Any], terms: CallTerms) -> dict[str, Any]:
    """Returns what a request says beside its messages. A limit of the pool file is never raised."""
    said: dict[str, Any] = {}
    if (most := terms.rules.max_tokens) is not None:
        limit = body.get("max_tokens")
        said["max_tokens"] = min(limit, most) if type(limit) is int and limit > 0 else most
    if stops := [stop for stop in terms.rules.stop if stop.strip()]:  # others it does not take
        said["stop_sequences"] = stops
    if terms.tools and terms.choice != "none":
        said["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.schema_for_models}
            for tool in terms.tools
        ]
        if terms.choice != "auto":
            named = {"type": "tool", "name": terms.choice}
            said["tool_choice"] = {"type": "any"} if terms.choice == "required" else named
    return said


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


class MessageReader(Reader):
    """Reads the events of a message, block by block."""

    _blocks = 0

    def feed(self, event: Mapping[str, Any]) -> Pieced:
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
                self.stopped = True
            case "message":
                return self._whole(event)
            case str():
                # ``ping``, ``content_block_stop``; new types may be added by the provider.
                pass
            case _:
                raise NoPart("an event that does not belong to a message")
        return []

    def _whole(self, event: Mapping[str, Any]) -> Pieced:
        """Reads a whole message. After events of the same message it is a snapshot: only its figures count."""
        self._read_message(event)
        self._read_end(event)
        blocks = event.get("content") or []
        if not isinstance(blocks, list):
            raise ValueError("content that is not a list of blocks")
        if self._blocks:
            return []
        chunks: Pieced = []
        for block in blocks:
            self._blocks += 1
            chunks += self._block(_mapping(block, "a block of no shape"))
        return chunks

    def _block(self, block: Mapping[str, Any]) -> Pieced:
        text, thinking = block.get("text"), block.get("thinking")
        if isinstance(text, str) and (said := self._say(text)):
            return said
        if isinstance(thinking, str) and (thought := self._think(thinking)):
            return thought
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
        self._name(message.get("model"))
        self._read_usage(message.get("usage"))

    def _read_end(self, delta: Mapping[str, Any]) -> None:
        self._end(delta.get("stop_reason"))
        if isinstance(details := delta.get("stop_details"), dict):
            self._extras.refuse(details.get("explanation"))

    def _read_usage(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self._usage.read_message(usage)


def _mapping(value: Any, otherwise: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(otherwise)
    return value
