"""What a server's definitions of its tools become as tools that workers are offered: names, effects, bounds.

A server is not trusted: names and definitions are bounded, and their words are made inert.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from conductor_core.chat.messages import ToolSpec
from conductor_core.chat.tools import OfferedTool, ToolServerSpec
from conductor_core.privacy import masking
from conductor_core.text import plain, whole_characters

MOST_TOOLS = 128
"""Of one server. No provider takes more in one call."""
MOST_DESCRIPTION, MOST_SCHEMA = 16_000, 64_000
"""Characters of a tool's description, and of the schema of its arguments as JSON."""
_MOST_LEFT_OUT = 20
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What every provider takes as a tool's name."""
_DIGITS = 8
_MOST_DEPTH = 32


class Definition(NamedTuple):
    """A tool as its server defines it. ``read_only``: as its annotations say."""

    name: str
    description: str
    schema: Mapping[str, Any]
    read_only: bool


def offered(spec: ToolServerSpec, definitions: Sequence[Definition]) -> tuple[tuple[OfferedTool, ...], tuple[str, ...]]:
    """Returns the tools that a server's file offers, and the names of those that cannot be, with reasons."""
    tools: dict[str, OfferedTool] = {}
    left_out: list[str] = []
    seen: set[str] = set()
    for each in definitions:
        if spec.only is not None and each.name not in spec.only:
            continue
        fault = _fault(each, seen)
        if not fault and (tool := _tool(spec, each)).spec.name in tools:
            fault = "another tool has the same name once both are made fit"
        if not fault and len(tools) == MOST_TOOLS:
            fault = f"the server has more than {MOST_TOOLS}: name those to offer in only"
        seen.add(each.name)
        if fault:
            left_out.append(f"{inert(each.name)[:80] or 'a tool without a name'}: {fault}")
        else:
            tools[tool.spec.name] = tool
    if spec.only is not None:
        left_out += [f"{name}: the server has no such tool" for name in spec.only if name not in seen]
    if len(left_out) > _MOST_LEFT_OUT:
        left_out = [*left_out[:_MOST_LEFT_OUT], f"and {len(left_out) - _MOST_LEFT_OUT:,} more"]
    return tuple(tools.values()), tuple(left_out)


def _fault(each: Definition, seen: set[str]) -> str:
    if not each.name.strip():
        return "it has no name"
    if len(each.name) > 256 or each.name != inert(each.name) or "\n" in each.name:
        return "its name is longer than 256 characters, or holds characters that steer a terminal"
    if each.name in seen:
        return "the server has two tools of that name"
    if len(each.description) > MOST_DESCRIPTION:
        return f"its description has {len(each.description):,} characters, more than {MOST_DESCRIPTION:,}"
    if _is_deeper(each.schema, _MOST_DEPTH):
        return f"the schema of its arguments is nested more than {_MOST_DEPTH} deep"
    try:
        size = len(json.dumps(each.schema, allow_nan=False))
    except ValueError:
        return "the schema of its arguments has a number that JSON does not have"
    if size > MOST_SCHEMA:
        return f"the schema of its arguments has {size:,} characters, more than {MOST_SCHEMA:,}"
    if each.schema.get("type", "object") != "object":
        return "its arguments are not an object"
    return ""


def _tool(spec: ToolServerSpec, each: Definition) -> OfferedTool:
    parameters = {"type": "object", "properties": {}, **_cleaned(each.schema)}
    return OfferedTool(
        server=spec.name,
        tool=each.name,
        spec=ToolSpec(name=fit_name(spec.name, each.name), description=inert(each.description), parameters=parameters),
        effects=has_effects(spec, each.name, read_only=each.read_only),
    )


def has_effects(spec: ToolServerSpec, tool: str, *, read_only: bool) -> bool:
    if spec.effects is None:
        return not read_only
    return spec.effects == "all" or (spec.effects != "none" and tool in spec.effects)


def fit_name(server: str, tool: str) -> str:
    """Returns ``SERVER__TOOL``. If that is no name for a provider, odd characters become ``_``, and a digest is added.

    A server's name has no ``_``, so names of two servers never meet.
    """
    name = f"{server}__{tool}"
    if _NAME.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    return f"{re.sub(r'[^a-zA-Z0-9_-]', '_', name)[: 64 - _DIGITS - 1]}_{digest}"


def inert(text: str) -> str:
    """Returns a server's text without keys that this process knows, and with control characters written out."""
    return plain(masking.known().text(whole_characters(text)))


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return inert(value)
    if isinstance(value, Mapping):
        return {inert(str(name)): _cleaned(each) for name, each in value.items()}
    return [_cleaned(each) for each in value] if isinstance(value, list | tuple) else value


def _is_deeper(value: Any, most: int) -> bool:
    if isinstance(value, Mapping):
        value = list(value.values())
    return isinstance(value, list) and (most == 0 or any(_is_deeper(each, most - 1) for each in value))
