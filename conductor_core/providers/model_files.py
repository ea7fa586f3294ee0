"""Reads files of models: TOML with one table per model. A model of pydantic declares what a file of a kind may hold.

All faults are reported, each with its place and with what is allowed there.

A key pasted where a variable's name belongs is refused without being repeated: a message may end up in a log. A file
may come from anybody, and the value of its ``api_key_env`` is sent to its ``base_url``: so variables that do not look
like a key's are refused, too.

The bounds of TOML are checked before it is read. The standard library's reader takes time quadratic in the parts of a
key, recurses with the nesting, and gives no place for a number that is too long.
"""

import math
import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ValidationError, ValidationInfo, field_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from conductor_core.chat.messages import Sampling, WorkerSpec
from conductor_core.errors import BadInput, ModelsInvalid
from conductor_core.files import Unread, read_named, text_of
from conductor_core.privacy import masking
from conductor_core.privacy.masking import environment_keys, holds_a_key, names_a_key, one_line, plain
from conductor_core.workflow.model import CONDUCTOR_AGENT, Frozen

# Keys in fields.

_SECRET_NAMES = re.compile(
    r"api_?key|(?:access|private|secret|subscription|account|functions|master|auth)_?key|(?:^|_)auth(?:$|_)"
    r"|authorization|bearer|credential|secret|passw(?:or)?d|passphrase|cookie|(?:^|_)jwt$|^x_goog_.*key$|^(?:token|key)$"
    r"|(?:access|api|auth|bearer|client|id|personal|refresh|secret|session|user)_?tokens?$"
)

_SEARCHED_FOR_FORMS = ("base_url", "description")
"""In other fields a name may have a key's form: ``hf_llama3_instruct``."""


def variable_fault(name: str, allowed: Collection[str]) -> str | None:
    """Says why no worker may read the variable ``name``; None if one may. ``allowed``: the setting's names."""
    if names_a_key(name) or name in allowed:
        return None
    return (
        f"{name} does not look like the variable of a key (no KEY, TOKEN or SECRET in its name), and its value would "
        f"be sent to the model's server; if it is one, allow it by CONDUCTOR_KEY_VARIABLES={name}"
    )


def pasted_keys(
    fields: Mapping[str, Any], known: Collection[str], file: str = "pool file"
) -> Iterator[tuple[str, str]]:
    """Yields, for each key in the fields of a model, the field and a fault that names the place but never the key.

    Args:
        known: keys that must not be anywhere. file: the name of a file of such models.
    """
    for name, value in fields.items():
        if name == "params" and isinstance(value, Mapping):
            for place in _in_params(value, "", known):
                yield name, f"{place}: a key does not belong in a {file}; name its variable in api_key_env"
        elif isinstance(value, str) and (
            holds_a_key(value, known) if name in _SEARCHED_FOR_FORMS else any(key in value for key in known)
        ):
            yield name, "holds a key, which every run would record; put it in a variable, named in api_key_env"


def check_spec(spec: WorkerSpec, allowed: Collection[str]) -> None:
    """Raises BadInput for a worker that may not be opened, even if an earlier version recorded it."""
    if spec.api_key_env is not None and (fault := variable_fault(spec.api_key_env, allowed)):
        raise BadInput(f"worker {spec.name}: api_key_env: {fault}")
    for name, fault in pasted_keys(spec.model_dump(), environment_keys()):
        raise BadInput(masking.known().text(f"worker {spec.name}: {name}: {fault}"))


def is_secret_name(name: str) -> bool:
    """Whether a field of this name holds a secret. ``apiKey``, ``X-Api-Key`` and ``api_key`` are one name."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return bool(_SECRET_NAMES.search(re.sub(r"[^a-z0-9]+", "_", snake)))


def _in_params(value: Any, place: str, known: Collection[str]) -> Iterator[str]:
    """Yields the places of keys in ``value``, such as ``extra_body.api_key`` or ``stop[0]``."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            if holds_a_key(name, known):
                yield place or "a name"
                continue
            here = f"{place}.{name[:60]}" if place else name[:60]
            # A table may describe a secret, as JSON schemas do, and is searched, too.
            if is_secret_name(name) and not isinstance(item, bool | Mapping) and item is not None:
                yield here
            else:
                yield from _in_params(item, here, known)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _in_params(item, f"{place}[{index}]", known)
    elif isinstance(value, str) and holds_a_key(value, known):
        yield place


# TOML within bounds.

MOST_PARTS = 16
MOST_DEPTH = 16
MOST_DIGITS = 300

_TOKEN = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*+(?:"""|\Z)'
    r"|'''(?:[^']|'(?!''))*+(?:'''|\Z)"
    r'|"(?:[^"\\\n]|\\.)*+"?'
    r"|'[^'\n]*+'?"
    r"|\#[^\n]*+"
    r"|(?P<open>[\[{])|(?P<close>[\]}])|(?P<dot>\.)|(?P<end>[=,\n])"
    r"|(?P<digits>(?<![\w.])[+-]?[0-9][\w]{300,})",
    re.DOTALL,
)


class NotToml(Exception):
    """The text cannot be read. ``place`` is "line 3, column 9: ", "at its end: " or empty; ``what`` is a clause."""

    def __init__(self, place: str, what: str) -> None:
        super().__init__(f"{place}not TOML: {what}")
        self.place = place
        self.what = what


def read_toml(text: str) -> dict[str, Any]:
    """Reads ``text``. Raises: NotToml."""
    _check_bounds(text)
    try:
        # The added line end gives an error at the very end a line.
        return tomllib.loads(text + "\n")
    except tomllib.TOMLDecodeError as error:
        # tomllib puts the place at the end, "(at line 3, column 9)", and we put it first.
        message = str(error)
        found = re.search(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$", message)
        what = message[: found.start()] if found else message
        place = f"line {found[1]}, column {found[2]}: " if found and found[1] else "at its end: "
        raise NotToml(place, what.replace("Cannot overwrite a value", "a key is given twice")) from None
    except (RecursionError, ValueError):
        raise NotToml("", "too deeply nested, or a number or date that is none") from None


def _check_bounds(text: str) -> None:
    depth = dots = 0
    for token in _TOKEN.finditer(text):
        match token.lastgroup:
            case "open":
                depth, dots = depth + 1, 0
            case "close":
                depth, dots = max(0, depth - 1), 0
            case "dot":
                dots += 1
            case "end":
                dots = 0
            case "digits":
                raise NotToml(_place(text, token.start()), f"a number of more than {MOST_DIGITS} digits")
        if depth > MOST_DEPTH:
            raise NotToml(_place(text, token.start()), f"brackets are nested more than {MOST_DEPTH} deep")
        if dots >= MOST_PARTS:
            raise NotToml(_place(text, token.start()), f"a key has more than {MOST_PARTS} parts")


def _place(text: str, offset: int) -> str:
    line_start = text.rfind("\n", 0, offset) + 1
    return f"line {text.count(chr(10), 0, offset) + 1}, column {offset - line_start + 1}: "


# Checks of fields. Each returns one clear fault, or None.

Loc = tuple[int | str, ...]
"""A place in a file, as pydantic says it: ``("worker", 0, "usd_per_mtok", "input")``."""

_WHOLE_NUMBERS = range(-(2**63), 2**63)
"""The range that TOML guarantees. No provider and no database takes more."""
SET_BY_US = frozenset({"model", "messages", "stream", "stream_options", "system", "n"})
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEY_PREFIX = re.compile(r"(?:sk|pk|rk|gsk|xai|hf|r8|AIza|AKIA|ghp|glpat)[-_A-Z0-9]", re.IGNORECASE)
_ORDINAL = re.compile(r"(?:(?:model|agent|step)\s*)?[+-]?\d+", re.IGNORECASE)


def shown(key: str) -> str:
    return one_line(key, limit=60)


def check_name(value: str) -> str | None:
    if fault := check_line(value, most=80):
        return fault
    if value.casefold() == CONDUCTOR_AGENT:
        return f'"{CONDUCTOR_AGENT}" is reserved for the Conductor itself; choose another name'
    if _ORDINAL.fullmatch(value):
        return "would be taken for a number in a workflow; choose a name with a word in it"
    return None


def check_line(value: str, most: int = 200) -> str | None:
    if not value.strip():
        return "must not be empty"
    if len(value) > most:
        return f"must have at most {most} characters, not {len(value)}"
    if value != plain(value):
        return "must be plain text on one line, without control characters, outer or double spaces"
    return None


def check_base_url(value: str) -> str | None:
    import httpx2  # when used: most programs that read such a file ask no server

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


def check_variable(value: object) -> str | None:
    wrong = 'must be the name of an environment variable, such as "OPENAI_API_KEY", never the key itself'
    if not isinstance(value, str) or not _VARIABLE.fullmatch(value) or len(value) > 100:
        return wrong
    prefixed = _KEY_PREFIX.match(value) and any(char.islower() for char in value)
    letters_and_digits = any(char.islower() for char in value) and sum(char.isdigit() for char in value) >= 4
    unbroken = len(value) >= 24 and "_" not in value
    if prefixed or (len(value) >= 20 and letters_and_digits) or unbroken:
        return wrong
    return None


def check_params(value: Mapping[str, Any]) -> str | None:
    if taken := SET_BY_US.intersection(value):
        return f"{min(taken)} is set by the program; remove it"
    if _depth(value) > MOST_DEPTH:
        return f"lists and tables are nested more than {MOST_DEPTH} deep"
    if _is_json(value):
        return None
    return "must hold only text, finite numbers of at most 64 bits, true or false, lists and tables"


def _depth(value: Any) -> int:
    """Returns how deep lists and tables are nested. The reader bounds the depth, so this recursion cannot fail."""
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else None
    return 0 if items is None else 1 + max(map(_depth, items), default=0)


def _is_json(value: Any) -> bool:
    """Whether JSON has such a value. TOML also has dates, and numbers that JSON lacks."""
    if isinstance(value, Mapping):
        return all(_is_json(item) for item in value.values())
    if isinstance(value, list):
        return all(_is_json(item) for item in value)
    if isinstance(value, str | bool):
        return True
    return (type(value) is int and value in _WHOLE_NUMBERS) or (type(value) is float and math.isfinite(value))


# Files and their tables.

_MOST_BYTES = 1_000_000
_MOST_FAULTS = 100


@dataclass(frozen=True)
class Reading:
    """What the checks of a field know beside its table.

    Attributes:
        file: what such a file is called. beside: the folder that relative paths start from.
        known: keys that must not be in it. key_variables: names that ``api_key_env`` may give though they do not look
            like a key's.
        names: of all models of the file, as they are written. others: the tables of its other kinds, as they are
            written.
    """

    file: str
    beside: Path
    known: Collection[str]
    key_variables: Collection[str]
    names: Sequence[object]
    others: Mapping[str, Sequence[Mapping[str, object]]] = field(default_factory=dict)


def without_fault(value: Any, fault: str | None) -> Any:
    """Returns ``value``. Raises: ValueError, which says its fault, if it has one."""
    if fault:
        raise ValueError(fault)
    return value


def _checked(check: Callable[[str], str | None]) -> AfterValidator:
    return AfterValidator(lambda value: without_fault(value, check(value)))


Line = Annotated[str, _checked(check_line)]


class ModelTable(Frozen):
    """What all such tables hold, checked. A file's table inherits this first, and then what is recorded of a model."""

    name: Annotated[str, _checked(check_name)]
    model: Line
    base_url: Annotated[str, _checked(check_base_url)] | None = None

    @field_validator("*", mode="before")
    @classmethod
    def _without_keys(cls, value: object, info: ValidationInfo[Reading]) -> object:
        faults = pasted_keys({info.field_name or "": value}, info.context.known, info.context.file)
        return without_fault(value, "; ".join(fault for _, fault in faults))

    @field_validator("api_key_env", mode="before", check_fields=False)
    @classmethod
    def _variable(cls, value: Any, info: ValidationInfo[Reading]) -> object:
        return without_fault(value, check_variable(value) or variable_fault(value, info.context.key_variables))

    @field_validator("params", check_fields=False)
    @classmethod
    def _params(cls, value: Mapping[str, Any]) -> object:
        return without_fault(value, check_params(value))

    @property
    def given(self) -> dict[str, Any]:
        """The fields that the file gives, by name."""
        return {name: getattr(self, name) for name in self.model_fields_set}


def sampling_fault(params: Mapping[str, Any], form: type[Sampling]) -> str | None:
    """Says what is wrong with ``params`` of a model in this process; None: nothing."""
    try:
        form.model_validate(dict(params), strict=True)
    except ValidationError as error:
        return "; ".join(f"{_written(each['loc'])}: {in_words(each, form)}" for each in error.errors())
    return None


class ModelFile(Frozen):
    """The form of one kind of file. A subclass declares its options, and its tables as a field of their name.

    Attributes:
        file, table: the names of such a file and of its tables. needs: what a file without tables lacks.
        others: the names of tables of other kinds, which a file need not have.
        key: the field that is unique among the tables of each kind.
        invalid: the error that carries all faults.
    """

    file: ClassVar[str]
    table: ClassVar[str]
    others: ClassVar[tuple[str, ...]] = ()
    key: ClassVar[str] = "name"
    needs: ClassVar[str]
    invalid: ClassVar[type[ModelsInvalid]]


File = TypeVar("File", bound=ModelFile)


def read_model_file(path: str | Path, form: type[File], key_variables: Collection[str] = ()) -> File:
    """Reads a file.

    Args:
        key_variables: names that ``api_key_env`` may give though they do not look like a key's.

    Raises: ``form.invalid`` with every fault. Each names its line, if there is one, and its key.
    """
    what = f"{form.file} {one_line(str(path), limit=120)}"
    try:
        text = text_of(read_named(path, _MOST_BYTES))
    except Unread as error:
        raise form.invalid(f"{what}: {error}", [str(error)]) from error
    read, faults = parse_model_file(text, form, key_variables, Path(path).parent)
    if read is not None:
        return read
    count = "" if len(faults) == 1 else f"{len(faults):,} faults: "
    if len(faults) > _MOST_FAULTS:
        faults = [*faults[:_MOST_FAULTS], f"and {len(faults) - _MOST_FAULTS:,} more"]
    raise form.invalid(f"{what}: {count}{'; '.join(faults)}", faults)


def parse_model_file(
    text: str, form: type[File], key_variables: Collection[str] = (), beside: Path = Path()
) -> tuple[File | None, list[str]]:
    """Returns what ``text`` holds, or None and every fault with its place, in the order of the lines."""
    try:
        document = read_toml(text)
    except NotToml as error:
        return None, [f"{error.place}not TOML: {one_line(error.what, limit=120)}"]
    faults: list[tuple[Loc, str]] = []
    written: dict[str, list[Mapping[str, object]]] = {}
    for kind in (form.table, *form.others):
        tables = document.get(kind, [])
        listed = isinstance(tables, list) and all(isinstance(table, dict) for table in tables)
        written[kind] = tables if listed else []
        faults += _repeated_names(kind, [table.get(form.key) for table in written[kind]], form)
        if not listed:
            faults.append(((kind,), f"must be [[{kind}]] tables, with double brackets"))
    names = [table.get(form.key) for table in written[form.table]]
    read = None
    try:
        others = {kind: written[kind] for kind in form.others}
        context = Reading(form.file, beside, environment_keys(), key_variables, names, others)
        read = form.model_validate(document, strict=True, context=context)
    except ValidationError as error:
        without = [kind for kind, tables in written.items() if not tables]
        faults += [(each["loc"], in_words(each, form)) for each in error.errors() if each["loc"][0] not in without]
    places = {kind: _Places(text, kind) for kind in written}
    told = sorted(
        (places.get(str(loc[0]), places[form.table]).line(loc), number, f"{_written(loc)}: {fault}")
        for number, (loc, fault) in enumerate(faults)
    )
    if document.get(form.table, []) == []:
        told.append((0, len(told), f"no [[{form.table}]]: {form.needs}"))
    return None if told else read, [f"line {line}, {fault}" if line else fault for line, _, fault in told]


def _repeated_names(table: str, names: list[object], form: type[ModelFile]) -> Iterator[tuple[Loc, str]]:
    key = form.key
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        if isinstance(name, str) and name.strip():
            earlier = first.setdefault(name.casefold(), index)
            if earlier != index:
                yield (
                    (table, index, key),
                    f'"{shown(name)}" is already the {key} of {table}[{earlier}]; {key}s are unique',
                )


def _written(loc: Loc) -> str:
    """``worker[0].usd_per_mtok.input``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{shown(part)}" for part in loc).removeprefix(".")


# Faults in words.

_TYPES = {"string_type": "text in quotes", "bool_type": "true or false"}


def in_words(error: ErrorDetails, form: type[BaseModel]) -> str:
    """Says what is wrong at a place of a form, and what is allowed: the field's description, where it has one."""
    loc, kind, given = error["loc"], error["type"], error["input"]
    table, field = _declared(form, loc)
    if kind == "value_error":
        return str(error.get("ctx", {}).get("error"))
    if kind == "missing":
        return f"missing; every {next(str(part) for part in reversed(loc[:-1]) if isinstance(part, str))} needs it"
    if kind == "extra_forbidden":
        return _unknown(str(loc[-1]), table, form)
    if kind == "literal_error":
        named = f'"{shown(given)}"' if isinstance(given, str) else kind_of(given)
        return f"{named} is not allowed; use {error.get('ctx', {})['expected']}".replace("'", '"')
    allowed = _TYPES.get(kind, error["msg"]) if field is None else _description(field) or _TYPES.get(kind, error["msg"])
    if not kind.endswith("_type"):
        return f"must be {allowed}"
    return f"must be {allowed}, not {'a fraction' if kind == 'int_type' and type(given) is float else kind_of(given)}"


def _unknown(key: str, table: type[BaseModel], form: type[BaseModel]) -> str:
    known = [field.alias or name for name, field in table.model_fields.items()]
    file = form.file if issubclass(form, ModelFile) else "file of models"
    if is_secret_name(key):
        return f"a key does not belong in a {file}; put it in an environment variable and name that in api_key_env"
    if issubclass(table, ModelFile):
        options = [name for name in known if name not in (table.table, *table.others)]
        only = f"tables, and before them {' and '.join(options)}" if options else "tables only"
        kinds = " and ".join(f"[[{kind}]]" for kind in (table.table, *table.others))
        return f"unknown key; a {file} holds {kinds} {only}"
    return f"unknown key; known are {', '.join(known)}"


def _declared(table: type[BaseModel], loc: Loc) -> tuple[type[BaseModel], FieldInfo | None]:
    """Returns the innermost model that holds the place, and the place's field, if it has one there."""
    field: FieldInfo | None = None
    for part in loc:
        if isinstance(part, int):
            continue
        if field is not None:
            inner = (each for each in _types_in(field.annotation) if isinstance(each, type))
            table = next(each for each in inner if issubclass(each, BaseModel))
        field = next((each for name, each in table.model_fields.items() if part == (each.alias or name)), None)
    return table, field


def _description(field: FieldInfo) -> str | None:
    """Returns what the field's declaration says is allowed; ``X | None`` keeps what ``X`` says."""
    inner = (each.description for each in _types_in(field.annotation) if isinstance(each, FieldInfo))
    return field.description or next(inner, None)


def _types_in(annotation: Any) -> Iterator[Any]:
    yield annotation
    for each in get_args(annotation):
        yield from _types_in(each)


def kind_of(value: object) -> str:
    names = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "a table"}
    return names.get(type(value), "a date or time")


class _Places:
    """Finds the lines of tables and keys by their shape: tomllib gives none. A key not found has its table's line.

    It skips text in multi-line strings. A table in another form than ``[[worker]]`` has no line.
    """

    _HEADER = re.compile(r"\s*\[")
    _KEY = re.compile(r"\s*[\"']?([^\"'=\s.]+)[\"']?\s*[.=]")

    def __init__(self, text: str, name: str) -> None:
        table_head = re.compile(rf"\s*\[\[\s*[\"']?{name}[\"']?\s*\]\]")
        sub_table = re.compile(rf"\s*\[\s*{name}\s*\.\s*[\"']?([\w-]+)")
        self._top: dict[str, int] = {}
        self._tables: list[dict[str, int]] = []
        self._headers: list[int] = []
        inside: str | None = None
        table = self._top
        for number, line in enumerate(text.split("\n"), start=1):
            if inside is None:
                if table_head.match(line):
                    table = {}
                    self._tables.append(table)
                    self._headers.append(number)
                elif found := sub_table.match(line):
                    table.setdefault(found[1], number)
                elif self._HEADER.match(line):
                    self._top.setdefault(line.strip(" \t[]").split(".")[0], number)
                    table = {}  # its keys belong to no table of this name
                elif found := self._KEY.match(line):
                    table.setdefault(found[1], number)
            for quote in re.findall(r'"""|\'\'\'', line):
                inside = quote if inside is None else (None if inside == quote else inside)

    def line(self, loc: Loc) -> int:
        """Returns the line of a place, or of its table; 0 if it has none."""
        if len(loc) == 1:
            return self._top.get(str(loc[0]), 0)
        _, index, *keys = loc
        table = int(index)
        if table >= len(self._tables):
            return 0
        return self._tables[table].get(str(keys[0]), self._headers[table]) if keys else self._headers[table]
