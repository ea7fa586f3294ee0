"""What two providers take as messages, as JSON schemas, of which nothing else is taken.

OpenAI's is that of its own package (openai 3.52.0), which is generated from its interface. Anthropic's is recorded from
the types of its package (anthropics/anthropic-sdk-python at 1ae15cd, ``src/anthropic/types/*_block_param.py``), for the
kinds of blocks that we send.
"""

import functools
from typing import Any

from openai.types.chat import ChatCompletionMessageParam
from pydantic import TypeAdapter


def _closed(schema: Any) -> Any:
    """Returns the schema without room for unknown keys."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(value) for name, value in schema.items()}
    return closed | ({"additionalProperties": False} if "properties" in schema else {})


@functools.cache
def openai_messages() -> dict[str, Any]:
    schema: dict[str, Any] = _closed(TypeAdapter(list[ChatCompletionMessageParam]).json_schema())
    return schema


def _block(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": required | optional,
        "required": list(required),
        "additionalProperties": False,
    }


_TEXT = _block({"type": {"const": "text"}, "text": {"type": "string", "minLength": 1}})
_IMAGE = _block(
    {
        "type": {"const": "image"},
        "source": _block(
            {
                "type": {"const": "base64"},
                "media_type": {"enum": ["image/jpeg", "image/png", "image/gif", "image/webp"]},
                "data": {"type": "string", "pattern": "^[A-Za-z0-9+/]+={0,2}$"},
            }
        ),
    }
)
_TOOL_USE = _block(
    {
        "type": {"const": "tool_use"},
        "id": {"type": "string"},
        "name": {"type": "string"},
        "input": {"type": "object"},
    }
)
_TOOL_RESULT = _block(
    {"type": {"const": "tool_result"}, "tool_use_id": {"type": "string"}},
    content={"anyOf": [{"type": "string"}, {"type": "array", "items": {"anyOf": [_TEXT, _IMAGE]}}]},
    is_error={"type": "boolean"},
)
ANTHROPIC_MESSAGES = {
    "type": "array",
    "items": _block(
        {
            "role": {"enum": ["user", "assistant"]},
            "content": {
                "anyOf": [
                    {"type": "string"},
                    {"type": "array", "items": {"anyOf": [_TEXT, _IMAGE, _TOOL_USE, _TOOL_RESULT]}},
                ]
            },
        }
    ),
}
