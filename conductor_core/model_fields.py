"""Checks the fields of a model in a file that a user wrote. Each check returns one clear fault, or None."""

import math
import re
from collections.abc import Callable, Collection
from typing import Any
from urllib.parse import urlsplit

import httpx2

from conductor_core.quoted import one_line, plain
from conductor_core.workflow.model import CONDUCTOR_AGENT

Check = Callable[[Any], str | None]

_MOST_DEPTH = 16
_WHOLE_NUMBERS = range(-(2**63), 2**63)
"""The range that TOML guarantees. No provider and no database takes more."""
_WEEK_S = 604_800
_MOST_USD = 1_000_000
SET_BY_US = frozenset({"model", "messages", "stream", "stream_options", "system", "n"})
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEY_PREFIX = re.compile(r"(?:sk|pk|rk|gsk|xai|hf|r8|AIza|AKIA|ghp|glpat)[-_A-Z0-9]", re.IGNORECASE)
_ORDINAL = re.compile(r"(?:(?:model|agent|step)\s*)?[+-]?\d+", re.IGNORECASE)


def shown(key: str) -> str:
    return one_line(key, limit=60)


def check_name(value: Any) -> str | None:
    if fault := check_line(value, most=80):
        return fault
    if value.casefold() == CONDUCTOR_AGENT:
        return f'"{CONDUCTOR_AGENT}" is reserved for the Conductor itself; choose another name'
    if _ORDINAL.fullmatch(value):
        return "would be taken for a number in a workflow; choose a name with a word in it"
    return None


def check_line(value: Any, most: int = 200) -> str | None:
    if not isinstance(value, str):
        return f"must be text in quotes, not {kind_of(value)}"
    if not value.strip():
        return "must not be empty"
    if len(value) > most:
        return f"must have at most {most} characters, not {len(value)}"
    if value != plain(value):
        return "must be plain text on one line, without control characters, outer or double spaces"
    return None


def check_base_url(value: Any) -> str | None:
    if not isinstance(value, str):
        return f"must be a URL in quotes, not {kind_of(value)}"
    try:
        parts = urlsplit(value)
        port, host = parts.port, parts.hostname
        httpx2.URL(value)
    except (ValueError, httpx2.InvalidURL):
        return "is not a URL"
    if parts.scheme not in ("http", "https") or not host or port == 0:
        return "must be a URL that begins with http:// or https:// and names a host"
    if parts.username is not None or parts.password is not None:
        return "must not hold a user or password; put the key in an environment variable and name it in api_key_env"
    if parts.query or parts.fragment:
        return "must not have anything after ? or #"
    if any(char.isspace() or not char.isprintable() for char in value) or not value.isascii():
        return "must not hold spaces or characters beyond ASCII"
    if re.search(r"/(?:chat/completions|messages|completions|models)/*$", parts.path):
        return "must end before the path of the call: usually in /v1"
    return None


def check_variable(value: Any) -> str | None:
    wrong = 'must be the name of an environment variable, such as "OPENAI_API_KEY", never the key itself'
    if not isinstance(value, str) or not _VARIABLE.fullmatch(value) or len(value) > 100:
        return wrong
    prefixed = _KEY_PREFIX.match(value) and any(char.islower() for char in value)
    letters_and_digits = any(char.islower() for char in value) and sum(char.isdigit() for char in value) >= 4
    unbroken = len(value) >= 24 and "_" not in value
    if prefixed or (len(value) >= 20 and letters_and_digits) or unbroken:
        return wrong
    return None


def check_flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else f"must be true or false, not {kind_of(value)}"


def check_price(value: Any) -> str | None:
    if not isinstance(value, dict):
        return f"must be a table, such as {{ input = 1.25, output = 10.0 }}, not {kind_of(value)}"
    if set(value) != {"input", "output"}:
        return "must have exactly input and output, in USD per million tokens"
    for side in ("input", "output"):
        if type(value[side]) in (int, float) and value[side] > _MOST_USD:
            return f"{side} must be at most {_MOST_USD:,} USD"
        if not is_number(value[side]) or value[side] < 0:
            return f"{side} must be a number of USD, 0 or more"
    return None


def check_params(value: Any, set_by_us: Collection[str] = SET_BY_US) -> str | None:
    if not isinstance(value, dict):
        return f"must be a table, such as {{ temperature = 0.2 }}, not {kind_of(value)}"
    for key in value:
        if key in set_by_us:
            return f"{key} is set by the program; remove it"
    if _depth(value) > _MOST_DEPTH:
        return f"lists and tables are nested more than {_MOST_DEPTH} deep"
    if _is_json(value):
        return None
    return "must hold only text, finite numbers of at most 64 bits, true or false, lists and tables"


def check_seconds(value: Any) -> str | None:
    if type(value) in (int, float) and value > _WEEK_S:
        return f"must be at most {_WEEK_S:,} seconds, a week"
    return None if is_number(value) and value > 0 else "must be a number of seconds above 0"


def check_count(value: Any) -> str | None:
    return None if type(value) is int and 0 < value < 2**31 else "must be a whole number above 0"


def is_number(value: Any) -> bool:
    return (type(value) is int and value in _WHOLE_NUMBERS) or (type(value) is float and math.isfinite(value))


def _depth(value: Any) -> int:
    """Returns how deep lists and tables are nested. The reader bounds the depth, so this recursion cannot fail."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if items is None else 1 + max(map(_depth, items), default=0)


def _is_json(value: Any) -> bool:
    """Whether JSON has such a value. TOML also has dates, and numbers that JSON lacks."""
    if isinstance(value, dict):
        return all(_is_json(item) for item in value.values())
    if isinstance(value, list):
        return all(_is_json(item) for item in value)
    return isinstance(value, str | bool) or is_number(value)


def kind_of(value: Any) -> str:
    names = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "a table"}
    return names.get(type(value), "a date or time")
