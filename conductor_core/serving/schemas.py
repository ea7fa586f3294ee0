"""Says why a JSON Schema of a request cannot be used, before anything is asked of a model.

A schema is a client's: it may be large, point at other servers, or at itself.
"""

import json
import warnings
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from jsonschema import Draft7Validator, Draft202012Validator
from jsonschema.exceptions import SchemaError

from conductor_core.privacy.masking import one_line

MOST_CHARACTERS = 100_000

_ONE = (
    "additionalProperties", "items", "contains", "not", "if", "then", "else", "propertyNames", "unevaluatedItems",
    "unevaluatedProperties", "contentSchema",
)  # fmt: skip
_MANY = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_MOST_WEIGHT = 10_000
"""Of schemas that are asked about one value: references can multiply without making a schema long."""
_BOUNDS = (
    ("minimum", "maximum"), ("minLength", "maxLength"), ("minItems", "maxItems"), ("minProperties", "maxProperties"),
)  # fmt: skip

_Schema = Mapping[str, Any]


def answer_schema_fault(schema: _Schema) -> str | None:
    """Returns why no answer can be checked against ``schema`` (2020-12); None: one can."""
    text = json.dumps(schema, ensure_ascii=False)
    return _answer_fault(text) if len(text) <= MOST_CHARACTERS else _too_long(text)


def tool_schema_fault(schema: _Schema) -> str | None:
    """Returns why ``schema`` is not one of a tool's arguments; None: it is.

    It goes to workers as it is, and nothing is checked against it. So it is read by draft 7, which takes the keywords
    of later drafts, too, and is read in a fifth of the time.
    """
    text = json.dumps(schema, ensure_ascii=False)
    return _tool_fault(text) if len(text) <= MOST_CHARACTERS else _too_long(text)


def _too_long(text: str) -> str:
    return f"the schema has {len(text):,} characters; at most {MOST_CHARACTERS:,} are read"


@lru_cache(maxsize=16)
def _answer_fault(text: str) -> str | None:
    schema = json.loads(text)
    if fault := _invalid(schema, Draft202012Validator):
        return fault
    try:
        return _AnswerSchema(schema).fault()
    except RecursionError:
        return "the schema is nested too deeply"


@lru_cache(maxsize=128)  # a client sends the same tools with every turn
def _tool_fault(text: str) -> str | None:
    schema = json.loads(text)
    if schema.get("type", "object") != "object":
        return "the arguments of a tool must be of the type object"
    return _invalid(schema, Draft7Validator)


def _invalid(schema: _Schema, validator: Any) -> str | None:
    try:
        with warnings.catch_warnings():
            # Python warns of patterns that it reads otherwise than JavaScript does.
            warnings.simplefilter("ignore")
            validator.check_schema(schema)
    except SchemaError as error:
        place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path)
        return f"not a valid JSON Schema{f' at {_shown(place[1:])}' if place else ''}: {_shown(error.message)}"
    except (RecursionError, OverflowError):
        return "not a valid JSON Schema: it is nested too deeply, or holds a pattern that cannot be read"
    return None


def _shown(text: str) -> str:
    return one_line(text, limit=160)


class _AnswerSchema:
    """A valid schema, and what it refers to."""

    def __init__(self, schema: _Schema) -> None:
        self._schema = schema
        self._parts = list(_parts(schema))
        self._own = {id(part) for part in self._parts}
        self._anchors = {part["$anchor"]: part for part in self._parts if "$anchor" in part}
        self._weights: dict[int, int | None] = {}
        self._possible: set[int] = set()

    def fault(self) -> str | None:
        for part in self._parts:
            if "$dynamicRef" in part or ("$id" in part and part is not self._schema):
                return (
                    f"the schema uses {'$dynamicRef' if '$dynamicRef' in part else 'a nested $id'}, which is not read"
                )
            if "patternProperties" in part:
                return "the schema uses patternProperties, by which no answer is checked; name the properties"
            if "$ref" in part and self._target(part["$ref"]) is None:
                elsewhere = "" if part["$ref"].startswith("#") else "; nothing is fetched from elsewhere"
                return f"the schema refers to {_shown(part['$ref'])}, which it does not hold{elsewhere}"
        for part in self._parts:
            if (weight := self._weight(part)) is None:
                return "the schema refers to itself without an end"
            if weight > _MOST_WEIGHT:
                return "the schema asks too many things about one value"
        return self._contradiction(self._schema, frozenset())

    def _target(self, ref: str) -> _Schema | bool | None:
        """Returns the part that a reference points at; None: none."""
        if not ref.startswith("#"):
            return None
        found: Any = self._schema
        if ref[1:2] not in ("", "/"):
            found = self._anchors.get(ref[1:])
        for step in ref.split("/")[1:]:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and name.isascii() and name.isdecimal() and len(name) < 7:
                found = found[int(name)] if int(name) < len(found) else None
            else:
                found = found.get(name) if isinstance(found, dict) else None
        return found if isinstance(found, bool) or id(found) in self._own else None

    def _weight(self, part: _Schema) -> int | None:
        """Returns how many schemas are asked about one value, with this one; None: there is no end."""
        if id(part) not in self._weights:
            self._weights[id(part)] = None
            weights = [self._weight(each) for each in self._asked_too(part)]
            known = [weight for weight in weights if weight is not None]
            self._weights[id(part)] = 1 + sum(known) if len(known) == len(weights) else None
        return self._weights[id(part)]

    def _asked_too(self, part: _Schema) -> Iterator[_Schema]:
        """Yields the schemas that are asked about the value that ``part`` is asked about."""
        asked: list[Any] = [part[name] for name in ("not", "if", "then", "else") if name in part]
        asked += [each for name in ("allOf", "anyOf", "oneOf") for each in part.get(name, ())]
        asked += part.get("dependentSchemas", {}).values()
        if "$ref" in part:
            asked.append(self._target(part["$ref"]))
        return (each for each in asked if isinstance(each, dict))

    def _contradiction(self, part: Any, around: frozenset[int]) -> str | None:
        """Says what no value can fit, where that is plain: at the top, and in properties that are required.

        ``around``: the schemas that this one is in. A value that must hold itself has no end.
        """
        if part is False or id(part) in around:
            return "no value fits the schema"
        if not isinstance(part, dict) or id(part) in self._possible:
            return None
        if part.get("enum") == [] or part.get("not", False) in (True, {}):
            return "no value fits the schema"
        for least, most in _BOUNDS:
            if least in part and most in part and part[least] > part[most]:
                return f"no value fits the schema: {least} is above {most}"
        within = list(part.get("allOf", ()))
        if "$ref" in part:
            within.append(self._target(part["$ref"]))
        if part.get("type") == "object":
            properties = part.get("properties", {})
            within += [properties[name] for name in part.get("required", ()) if name in properties]
        for each in within:
            if fault := self._contradiction(each, around | {id(part)}):
                return fault
        self._possible.add(id(part))
        return None


def _parts(schema: Any) -> Iterator[_Schema]:
    """Yields the schema and all schemas in it."""
    ahead = [schema]
    while ahead:
        part = ahead.pop()
        if isinstance(part, dict):
            yield part
            ahead += [part[name] for name in _ONE if name in part]
            ahead += [each for name in _MANY for each in part.get(name, ())]
            ahead += [each for name in _NAMED for each in part.get(name, {}).values()]
