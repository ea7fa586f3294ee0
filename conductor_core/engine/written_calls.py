"""Calls of tools that a small model of this machine wrote as text: its template knows tools, the model only half."""

import json
import re
from collections.abc import Collection
from typing import Any

from conductor_core.chat.messages import ToolCall
from conductor_core.engine.answer_form import document_in

_TAGGED = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)
_BEGINNINGS = ("{", "[", "<", "`")
MOST_HELD = 20_000
"""Characters that are held back at most: a longer text is an answer."""


def may_be_calls(text: str) -> bool:
    """Whether a text that is not whole may be nothing but calls: then it is not shown yet."""
    said = text.lstrip()
    return len(text) < MOST_HELD and (not said or said.startswith(_BEGINNINGS))


def written_calls(text: str, names: Collection[str]) -> tuple[ToolCall, ...]:
    """Returns the calls that a whole text consists of, all of tools called ``names``; none if it is anything else.

    A call that such a model writes again and again is one call.
    """
    said = text.strip()
    if tagged := _TAGGED.findall(said):
        if _TAGGED.sub("", said).strip():
            return ()
        read = [_read(each) for each in tagged]
    else:
        found = _one_after_another(document_in(said))
        read = found[0] if len(found) == 1 and isinstance(found[0], list) else found
    calls = [_call(each, names) for each in read]
    return tuple(dict.fromkeys(call for call in calls if call is not None)) if all(calls) else ()


def _one_after_another(text: str) -> list[Any]:
    """Returns the documents that a text consists of, with white space between them; ``[None]`` if it does not."""
    found: list[Any] = []
    at, decoder = 0, json.JSONDecoder()
    try:
        while at < len(text):
            document, at = decoder.raw_decode(text, at)
            found.append(document)
            at += len(text[at:]) - len(text[at:].lstrip())
    except (ValueError, RecursionError):
        return [None]
    return found


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _call(read: Any, names: Collection[str]) -> ToolCall | None:
    if not isinstance(read, dict) or read.keys() - {"name", "arguments", "parameters", "type", "id"}:
        return None
    arguments = read.get("arguments", read.get("parameters"))
    if read.get("name") not in names or not isinstance(arguments, dict):
        return None
    return ToolCall(name=read["name"], arguments=json.dumps(arguments, ensure_ascii=False))
