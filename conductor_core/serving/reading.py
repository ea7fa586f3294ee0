"""Reads the JSON of requests: what all three APIs share. Whatever the bytes, nothing raises anything but ApiError.

A fault names its place as OpenAI does (``messages[3].content[0].type``). Null counts as left out, because clients send
back what they were sent.
"""

import base64
import binascii
import json
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, cast, get_args
from urllib.parse import unquote

import pydantic_core
from jsonschema import Draft7Validator, Draft202012Validator
from jsonschema.exceptions import SchemaError

from conductor_core.chat.images import MOST_FILE_BYTES, prepare
from conductor_core.chat.messages import (
    AnswerRules,
    ImagePart,
    LoadedImage,
    Message,
    Part,
    TextPart,
    ToolResultPart,
    ToolSpec,
)
from conductor_core.errors import BadInput
from conductor_core.privacy.masking import one_line
from conductor_core.serving.errors import Api, ApiError
from conductor_core.text import whole_characters
from conductor_core.workflow.model import Step, Workflow
from conductor_core.workflow.parser import parse_workflow_file

Effort = Literal["minimal", "low", "medium", "high", "xhigh", "max"]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, read and checked.

    Attributes:
        system: system and developer messages and ``instructions``, one after another.
        turns: the conversation without these, in the client's order. Images are loaded (``chat.images.prepare``). Calls
            and results of tools are parts of the assistant's and the user's turns. Of Responses with a
            ``previous_response_id`` it is only what this request adds.
        results: of tools, those after the assistant's last turn; they are in ``turns``, too.
        tool_choice: ``auto``, ``none``, ``required``, or a tool's name.
        summaries: whether plan and steps are told as summaries of reasoning; None: as the served model says.
        include_usage: whether a chat's stream ends with its usage.
        excluded: workers that this request must not use. workflow: a given plan. Both come in ``conductor``.
        echoed: what the answer repeats of the request, with OpenAI's defaults where it says nothing.
    """

    api: Api
    model: str
    turns: tuple[Message, ...]
    system: str = ""
    results: tuple[ToolResultPart, ...] = ()
    stream: bool = False
    include_usage: bool = False
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = "auto"
    rules: AnswerRules = field(default_factory=AnswerRules)
    effort: Effort | None = None
    summaries: bool | None = None
    previous_response_id: str | None = None
    store: bool = True
    excluded: tuple[str, ...] = ()
    workflow: Workflow | None = None
    echoed: Mapping[str, Any] = field(default_factory=dict)


MOST_NESTING = 100
MOST_VALUES = 1_000_000
"""Of one request: each takes sixty times the memory that its two or three bytes do."""
MOST_TOOLS = 512
_MOST_BITS = 1023
"""Of a whole number: a float can be as large."""
_MOST_COUNT = 2**31 - 1
_MOST_READ_IMAGES = 100
"""In one conversation. Each costs up to half a second to unpack."""
_MOST_NAME = 256
_MOST_EXCLUDED = 100


def refused(param: str, message: str, code: str = "invalid_value") -> ApiError:
    """Returns a 400 about the field at ``param``."""
    return ApiError(400, f"{param}: {message}" if param else message, code=code, param=param or None)


# JSON.


def read_json(body: bytes) -> "Fields":
    """Returns the request as JSON with bounded nesting and finite numbers; half characters are replaced."""
    if _has_too_many_values(body):
        message = f"The request body holds too many values: at most {MOST_VALUES:,} are read."
        raise ApiError(413, message, code="request_too_large")
    try:
        parsed = pydantic_core.from_json(body, allow_inf_nan=False)  # in half the time
    except ValueError:
        # Only Python's own takes half a character, and a mark of byte order.
        try:
            parsed = json.loads(body.decode("utf-8-sig"), parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            deep = isinstance(error, RecursionError)
            why = "is nested too deeply" if deep else f"is not valid JSON ({one_line(str(error), limit=120)})"
            raise ApiError(400, f"The request body {why}.", code="invalid_json") from None
    if not isinstance(parsed, dict):
        raise ApiError(400, f"The request body must be a JSON object, not {_kind(parsed)}.", code="invalid_json")
    return Fields(_checked(parsed, 0))


def _has_too_many_values(body: bytes) -> bool:
    """Whether JSON has too many values, counted without reading it. Of what is no JSON it says anything."""
    if len(body) <= MOST_VALUES:
        return False
    bare = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if bare.count(b'"') > 4 * MOST_VALUES:
        return True
    outside = b"".join(bare.split(b'"')[::2])
    return outside.count(b",") + outside.count(b"[") + outside.count(b"{") > MOST_VALUES


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number of JSON")


def _checked(value: Any, depth: int) -> Any:
    """Returns the value, with whole characters. Raises: ApiError if it cannot be kept and written again."""
    if isinstance(value, str):
        return whole_characters(value)
    if isinstance(value, dict | list):
        if depth >= MOST_NESTING:
            message = f"The request body is nested too deeply: at most {MOST_NESTING} levels are read."
            raise ApiError(400, message, code="invalid_json")
        if isinstance(value, list):
            return [_checked(item, depth + 1) for item in value]
        return {whole_characters(key): _checked(item, depth + 1) for key, item in value.items()}
    if (isinstance(value, float) and not math.isfinite(value)) or (
        isinstance(value, int) and value.bit_length() > _MOST_BITS
    ):
        raise ApiError(400, "The request body holds a number that is too large.", code="invalid_json")
    return value


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    kinds = {bool: "a boolean", int: "an integer", float: "a number", str: "a string", list: "an array"}
    return kinds.get(type(value), "an object")


@dataclass(frozen=True, slots=True)
class Fields:
    """A JSON object of a request. ``place``: where it lies in it; empty: it is the request."""

    values: Mapping[str, Any]
    place: str = ""

    def param(self, name: str) -> str:
        return f"{self.place}.{name}" if self.place else name

    def refused(self, name: str, message: str, code: str = "invalid_value") -> ApiError:
        return refused(self.param(name), message, code)

    def wrong_type(self, name: str, expected: str) -> ApiError:
        return self.refused(name, f"expected {expected}, got {_kind(self.values.get(name))}", "invalid_type")

    def missing(self, name: str) -> ApiError:
        return self.refused(name, "this field is required", "missing_required_parameter")

    def get(self, name: str) -> Any:
        """Returns what is there, of any type; None: null or nothing."""
        return self.values.get(name)

    def text(self, name: str) -> str | None:
        value = self.values.get(name)
        if value is not None and not isinstance(value, str):
            raise self.wrong_type(name, "a string")
        return value

    def needed_text(self, name: str) -> str:
        value = self.text(name)
        if value is None:
            raise self.missing(name)
        return value

    def name(self, name: str) -> str:
        """Returns a text that is neither empty nor long."""
        value = self.needed_text(name)
        if not 0 < len(value) <= _MOST_NAME:
            raise self.refused(name, f"expected 1 to {_MOST_NAME} characters, got {len(value):,}")
        return value

    def flag(self, name: str) -> bool | None:
        value = self.values.get(name)
        if value is not None and not isinstance(value, bool):
            raise self.wrong_type(name, "a boolean")
        return value

    def number(self, name: str) -> float | None:
        value = self.values.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise self.wrong_type(name, "a number")
        return value

    def count(self, name: str, least: int = 0, most: int = _MOST_COUNT) -> int | None:
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong_type(name, "an integer")
        if not least <= value <= most:
            raise self.refused(name, f"expected {least:,} to {most:,}, got {value:.6g}")
        return value

    def choice(self, name: str, choices: Sequence[str]) -> str | None:
        value = self.text(name)
        if value is not None and value not in choices:
            raise self.refused(name, f"expected one of {', '.join(choices)}; got {shown(value)}")
        return value

    def table(self, name: str) -> "Fields | None":
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.wrong_type(name, "an object")
        return Fields(value, self.param(name))

    def needed_table(self, name: str) -> "Fields":
        value = self.table(name)
        if value is None:
            raise self.missing(name)
        return value

    def tables(self, name: str, most: int | None = None) -> "list[Fields] | None":
        """Returns a list of objects, ``most`` at most."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self.wrong_type(name, "an array of objects")
        if most is not None and len(value) > most:
            raise self.refused(name, f"at most {most} are taken, got {len(value):,}")
        place = self.param(name)
        for index, item in enumerate(value):
            if not isinstance(item, dict):
                raise refused(f"{place}[{index}]", f"expected an object, got {_kind(item)}", "invalid_type")
        return [Fields(item, f"{place}[{index}]") for index, item in enumerate(value)]

    def parts(self, name: str) -> "list[Fields]":
        """Returns the parts of what a message says: a text alone is one part, and null has none."""
        value = self.values.get(name)
        if isinstance(value, str):
            return [Fields({"type": "text", "text": value}, self.param(name))]
        if value is not None and not isinstance(value, list):
            raise self.wrong_type(name, "a string or an array of parts")
        return self.tables(name) or []

    def texts(self, name: str, most: int) -> tuple[str, ...]:
        """Returns a list of texts, none of them empty; () where there is none."""
        value = self.values.get(name)
        if value is None:
            return ()
        if not isinstance(value, list):
            raise self.wrong_type(name, "an array of strings")
        if len(value) > most:
            raise self.refused(name, f"at most {most} are taken, got {len(value):,}")
        for index, item in enumerate(value):
            if not isinstance(item, str):
                raise refused(f"{self.param(name)}[{index}]", f"expected a string, got {_kind(item)}", "invalid_type")
            if not item:
                raise refused(f"{self.param(name)}[{index}]", "must not be empty")
        return tuple(value)


def shown(text: str) -> str:
    """Returns a text of a request in quotes, short enough for a sentence."""
    return repr(one_line(text, limit=80))


# The conversation.


class Conversation:
    """Collects the turns of a request. Messages of one side that follow each other become one turn."""

    def __init__(self) -> None:
        self._system: list[str] = []
        self._turns: list[tuple[Literal["user", "assistant"], list[Part]]] = []
        self._last: str | None = None

    def add_system(self, text: str) -> None:
        if text:
            self._system.append(text)

    def add(self, role: Literal["user", "assistant"], parts: Iterable[Part]) -> None:
        self._last = role
        kept = [part for part in parts if not isinstance(part, TextPart) or part.text]
        if kept and self._turns and self._turns[-1][0] == role:
            self._turns[-1][1].extend(kept)
        elif kept:
            self._turns.append((role, kept))

    @property
    def system(self) -> str:
        return "\n\n".join(self._system)

    def turns(self) -> tuple[Message, ...]:
        return tuple(_message(role, parts) for role, parts in self._turns)

    @property
    def results(self) -> tuple[ToolResultPart, ...]:
        """Of tools, those after the assistant's last turn."""
        last = self._turns[-1] if self._turns else ("assistant", [])
        return tuple(part for part in last[1] if isinstance(part, ToolResultPart)) if last[0] == "user" else ()

    def require_answerable(self, param: str) -> None:
        """Raises: ApiError unless the conversation ends with something that a user said or a tool gave back."""
        if self._last is None:
            raise refused(param, "the conversation is empty: expected at least one message of the user")
        if self._last != "user":
            raise refused(param, "the last message must be the user's or a tool's result")
        role, parts = self._turns[-1] if self._turns else ("assistant", [])
        if role != "user" or not any(not isinstance(part, TextPart) or part.text.strip() for part in parts):
            raise refused(param, "the last message is empty")

    def asked(self, fields: Fields, **own: Any) -> Asked:
        """Returns the request that this is the conversation of. ``own``: what its API says in words of its own."""
        excluded, workflow = read_extension(fields)
        return Asked(
            turns=self.turns(),
            system=self.system,
            results=self.results,
            stream=fields.flag("stream") or False,
            excluded=excluded,
            workflow=workflow,
            **own,
        )


def _message(role: Literal["user", "assistant"], parts: list[Part]) -> Message:
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    return Message(role=role, content="\n\n".join(texts) if len(texts) == len(parts) else tuple(parts))


class Images:
    """Reads the images of one request, each once however often it comes."""

    def __init__(self) -> None:
        self._read: dict[str, LoadedImage] = {}

    def of_url(self, url: str, param: str) -> LoadedImage:
        """Returns the image in a data URL. Nothing is fetched."""
        head, comma, _ = url[:200].partition(",")
        if head[:5].lower() != "data:":
            raise refused(param, "remote images are not fetched; send the image as a data URL", "invalid_image")
        if not comma or not head.lower().endswith(";base64"):
            raise refused(param, "expected a data URL such as data:image/png;base64,…", "invalid_image")
        return self.of_base64(url[len(head) + 1 :], param)

    def of_base64(self, data: str, param: str) -> LoadedImage:
        if data not in self._read:
            if len(self._read) >= _MOST_READ_IMAGES:
                raise refused(param, f"more than {_MOST_READ_IMAGES} images in one conversation", "invalid_image")
            self._read[data] = _image(data, param)
        return self._read[data]


def _image(data: str, param: str) -> LoadedImage:
    if len(data) > MOST_FILE_BYTES * 3 // 2:
        raise refused(param, f"the image has more than {MOST_FILE_BYTES >> 20} MiB", "invalid_image")
    try:
        raw = base64.b64decode("".join(data.split()), validate=True)
    except (binascii.Error, ValueError):
        raise refused(param, "the image is not valid base64", "invalid_image") from None
    try:
        return prepare(raw, param)
    except BadInput as error:
        raise ApiError(400, str(error), code="invalid_image", param=param) from error


# Tools.


def result_parts(call_id: str, parts: Sequence[TextPart | ImagePart], *, is_error: bool = False) -> list[Part]:
    """Returns what a tool gave back: its text, which describes its images, and these after it."""
    text = "\n\n".join(part.text if isinstance(part, TextPart) else part.described for part in parts)
    images = [part for part in parts if isinstance(part, ImagePart)]
    return [ToolResultPart(call_id=call_id, text=text, is_error=is_error), *images]


def function_tool(fields: Fields, schema: str = "parameters") -> ToolSpec:
    """Returns a tool. ``schema``: the field that has the schema of its arguments."""
    parameters = fields.table(schema)
    if parameters is not None and (fault := tool_schema_fault(parameters.values)):
        raise fields.refused(schema, fault, "invalid_schema")
    return ToolSpec(
        name=fields.name("name"),
        description=fields.text("description") or "",
        parameters={} if parameters is None else parameters.values,
        strict=fields.flag("strict"),
    )


def custom_tool(fields: Fields) -> ToolSpec:
    """Returns a tool of one text. A grammar for that text is told to workers in words."""
    described = fields.text("description") or ""
    form = fields.table("format")
    if form is not None and form.text("type") == "grammar":
        grammar = form.table("grammar") or form
        words = f"The input must fit this grammar ({grammar.text('syntax') or 'lark'}):"
        described = f"{described}\n\n{words}\n{grammar.needed_text('definition')}".strip()
    return ToolSpec(name=fields.name("name"), description=described, custom=True)


def custom_arguments(text: str) -> str:
    """Returns the arguments of a call to a ``custom`` tool as workers see it: a function of one text."""
    return json.dumps({"input": text}, ensure_ascii=False)


def custom_input(arguments: str) -> str:
    """Returns the text of a call to a ``custom`` tool, from arguments as a worker wrote them."""
    try:
        text = json.loads(arguments)["input"]
    except (ValueError, TypeError, LookupError, RecursionError):
        return arguments
    return text if isinstance(text, str) else arguments


def distinct(tools: Iterable[ToolSpec], param: str = "tools") -> tuple[ToolSpec, ...]:
    """Raises: ApiError if two tools have one name."""
    listed = tuple(tools)
    names: set[str] = set()
    for tool in listed:
        if tool.name in names:
            raise refused(param, f"two tools are called {shown(tool.name)}")
        names.add(tool.name)
    return listed


def tool_choice(choice: str, tools: Sequence[ToolSpec], fields: Fields, *, named: bool = False) -> str:
    """Returns ``Asked.tool_choice``, checked. ``named``: ``choice`` is a tool's name."""
    if named:
        if all(tool.name != choice for tool in tools):
            raise fields.refused("tool_choice", f"no tool is called {shown(choice)}")
    elif choice not in ("auto", "none", "required"):
        raise fields.refused("tool_choice", f"expected auto, none, required or a tool; got {shown(choice)}")
    elif choice == "required" and not tools:
        # Where all were a server's own, none is left to call.
        if not fields.get("tools"):
            raise fields.refused("tool_choice", "a call is required, but there are no tools")
        return "auto"
    return choice


# What the answer is to be.

_EFFORTS: tuple[str, ...] = get_args(Effort)


def read_effort(fields: Fields, name: str) -> Effort | None:
    value = fields.choice(name, ("none", *_EFFORTS))
    return "minimal" if value == "none" else cast(Effort | None, value)


def read_form(form: Fields | None, schema_in: str = "") -> AnswerRules:
    """Returns rules with ``form``, ``json_schema`` and ``schema_name`` set, as OpenAI's formats say.

    Args:
        form: ``response_format``, or ``text.format``. schema_in: the field of it that holds name and schema; empty: it
            holds them itself.
    """
    if form is None:
        return AnswerRules()
    match form.choice("type", ("text", "json_object", "json_schema")):
        case "json_object":
            return AnswerRules(form="json")
        case "json_schema":
            return read_schema(form.needed_table(schema_in) if schema_in else form)
        case "text":
            return AnswerRules()
    raise form.missing("type")


def read_schema(holder: Fields) -> AnswerRules:
    """Returns the rules that the field ``schema`` of ``holder`` makes."""
    schema = holder.needed_table("schema")
    if fault := answer_schema_fault(schema.values):
        raise holder.refused("schema", fault, "invalid_schema")
    name = holder.text("name") or ""
    if len(name) > _MOST_NAME:
        raise holder.refused("name", f"expected at most {_MOST_NAME} characters")
    return AnswerRules(form="schema", json_schema=schema.values, schema_name=name)


def read_metadata(fields: Fields) -> dict[str, str]:
    """Returns ``metadata``: texts by name. Null values are left out."""
    table = fields.table("metadata")
    if table is None:
        return {}
    return {name: text for name in table.values if (text := table.text(name)) is not None}


NUMBERS_WITHOUT_EFFECT = ("temperature", "top_p", "seed", "presence_penalty", "frequency_penalty")


def check_without_effect(fields: Fields, numbers: Sequence[str] = NUMBERS_WITHOUT_EFFECT) -> None:
    """Raises: ApiError if a field that has no effect is of a type that it cannot have."""
    for name in numbers:
        fields.number(name)


# Our own field.


def read_extension(body: Fields) -> tuple[tuple[str, ...], Workflow | None]:
    """Returns what ``conductor`` says: workers to leave out, and a plan. What an answer has in it has no effect."""
    own = body.table("conductor")
    return ((), None) if own is None else (own.texts("exclude", _MOST_EXCLUDED), _workflow(own))


def _workflow(own: Fields) -> Workflow | None:
    """Returns the plan, which is written as in a workflow file."""
    given = own.table("workflow")
    if given is None:
        return None
    parsed = parse_workflow_file(json.dumps(given.values, ensure_ascii=False))
    if parsed.faults:
        raise own.refused("workflow", one_line(parsed.faults[0].message, limit=300), "invalid_workflow")
    if not parsed.steps or parsed.more_steps:
        why = f"has too many steps: {len(parsed.steps or ()) + parsed.more_steps:,}" if parsed.steps else "has no steps"
        raise own.refused("workflow", f"the workflow {why}", "invalid_workflow")
    steps: list[Step] = []
    for index, raw in enumerate(parsed.steps):
        if raw.instruction is None or raw.access_list is None or not isinstance(raw.agent, str):
            message = f"step {index}: name its agent, and give an instruction and an access_list"
            raise own.refused("workflow", message, "invalid_workflow")
        steps.append(Step(instruction=raw.instruction, agent=raw.agent, access_list=raw.access_list))
    return Workflow(steps=tuple(steps))


# JSON Schemas. A schema is a client's: it may be large, point at other servers, or at itself.


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
