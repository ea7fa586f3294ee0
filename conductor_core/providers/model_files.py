"""Reads a file of models: TOML with one table per model. It reports all faults, each with its place.

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
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from conductor_core.chat.messages import WorkerSpec
from conductor_core.errors import BadInput
from conductor_core.files import NotRegular, open_regular
from conductor_core.privacy import masking
from conductor_core.privacy.masking import environment_keys, holds_a_key, names_a_key, one_line, plain
from conductor_core.workflow.model import CONDUCTOR_AGENT

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
            if is_secret_name(name) and _could_be_one(item):
                yield here
            else:
                yield from _in_params(item, here, known)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _in_params(item, f"{place}[{index}]", known)
    elif isinstance(value, str) and holds_a_key(value, known):
        yield place


def _could_be_one(value: Any) -> bool:
    """Whether ``value`` can be a secret. A table may describe one, as JSON schemas do, and is searched, too."""
    return not isinstance(value, bool | Mapping) and value is not None


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

Check = Callable[[Any], str | None]

_WHOLE_NUMBERS = range(-(2**63), 2**63)
"""The range that TOML guarantees. No provider and no database takes more."""
_WEEK_S = 604_800
_MOST_USD = 1_000_000
PRICES = frozenset({"input", "output", "cached_input", "cache_write", "long"})
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
    import httpx2  # when used: most programs that read such a file ask no server

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
    if not {"input", "output"} <= set(value) or not set(value) <= PRICES:
        return (
            "must have input and output, in USD per million tokens, and may have cached_input, cache_write and "
            "long = { above, input, output }"
        )
    if "long" in value:
        long = value["long"]
        if not isinstance(long, dict) or check_count(long.get("above")):
            return "long must be a table with above, the tokens of a prompt from which on it holds"
        if fault := check_price({name: price for name, price in long.items() if name != "above"}):
            return f"long {fault}"
    for side in value.keys() - {"long"}:
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
    if _depth(value) > MOST_DEPTH:
        return f"lists and tables are nested more than {MOST_DEPTH} deep"
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


_MOST_BYTES = 1_000_000
_MOST_FAULTS = 100

Table = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Form:
    """How files of one kind are written.

    Attributes:
        file, table: the names of such a file and of its tables. needs: what a file without tables lacks.
        checks: the check of each field, by its key. required: fields that each table needs.
        more: finds faults of a table as a whole, each with its key, given the keys that have a fault already.
        invalid: makes the error from its message and all faults.
        options: keys that may come before the tables. option_faults: finds faults of their values, each with its key.
        across: finds faults between tables, each with its table's index and key.
    """

    file: str
    table: str
    needs: str
    checks: Mapping[str, Check]
    required: tuple[str, ...]
    more: Callable[[Table, Collection[str]], list[tuple[str, str]]]
    invalid: Callable[[str, list[str]], BadInput]
    options: tuple[str, ...] = ()
    option_faults: Callable[[Table], list[tuple[str, str]]] = field(default=lambda document: [])
    across: Callable[[Sequence[Table]], list[tuple[int, str, str]]] = field(default=lambda tables: [])


class Document(NamedTuple):
    """The tables of a file, in its order, and the options before them."""

    tables: list[dict[str, Any]]
    options: dict[str, Any]


def load_document(path: str | Path, form: Form, key_variables: Collection[str] = ()) -> Document:
    """Reads a file.

    Args:
        key_variables: names that ``api_key_env`` may give though they do not look like a key's.

    Raises: ``form.invalid`` with every fault. Each names its line, if there is one, and its key.
    """
    what = f"{form.file} {one_line(str(path), limit=120)}"
    try:
        with open_regular(path) as file:
            raw = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise form.invalid(f"{what}: no such file", ["no such file"]) from None
    except (OSError, ValueError) as error:
        why = str(error.strerror) if isinstance(error, NotRegular | IsADirectoryError) else "it cannot be read"
        raise form.invalid(f"{what}: {why}", [why]) from error
    faults: list[str] = []
    document = Document([], {})
    if len(raw) > _MOST_BYTES:
        faults.append(f"it has more than {_MOST_BYTES:,} bytes, too many for a {form.file}")
    else:
        try:
            document, faults = parse_document(raw.decode("utf-8-sig"), form, key_variables)
        except UnicodeDecodeError as error:
            faults.append(f"line {raw[: error.start].count(10) + 1}: not UTF-8 text")
    if faults:
        count = "" if len(faults) == 1 else f"{len(faults):,} faults: "
        if len(faults) > _MOST_FAULTS:
            faults = [*faults[:_MOST_FAULTS], f"and {len(faults) - _MOST_FAULTS:,} more"]
        raise form.invalid(f"{what}: {count}{'; '.join(faults)}", faults)
    return document


def parse_document(text: str, form: Form, key_variables: Collection[str] = ()) -> tuple[Document, list[str]]:
    """Returns what ``text`` holds, and every fault with its place. With a fault the document is empty."""
    nothing = Document([], {})
    try:
        document = read_toml(text)
    except NotToml as error:
        return nothing, [f"{error.place}not TOML: {one_line(error.what, limit=120)}"]
    places, name = _Places(text, form.table), form.table
    only = f"tables, and before them {' and '.join(form.options)}" if form.options else "tables only"
    faults = [
        f"{places.top(key)}{shown(key)}: unknown key; a {form.file} holds [[{name}]] {only}"
        for key in document
        if key != name and key not in form.options
    ]
    faults += [f"{places.top(key)}{key}: {fault}" for key, fault in form.option_faults(document)]
    tables = document.get(name, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        return nothing, [*faults, f"{places.top(name)}{name}: must be [[{name}]] tables, with double brackets"]
    if not tables:
        faults.append(f"no [[{name}]]: {form.needs}")
    known = environment_keys()
    for index, table in enumerate(tables):
        for key, fault in [*_table_faults(table, form, key_variables), *pasted_keys(table, known, form.file)]:
            faults.append(f"{places.of(index, key)}{name}[{index}].{shown(key)}: {fault}")
    for index, fault in _name_faults(tables, name):
        faults.append(f"{places.of(index, 'name')}{name}[{index}].name: {fault}")
    for index, key, fault in form.across(tables):
        faults.append(f"{places.of(index, key)}{name}[{index}].{key}: {fault}")
    if faults:
        return nothing, faults
    return Document(tables, {key: document[key] for key in form.options if key in document}), []


def _table_faults(table: Table, form: Form, key_variables: Collection[str]) -> list[tuple[str, str]]:
    """Returns the faults of one table, each with its key."""
    faults = [(key, f"missing; every {form.table} needs it") for key in form.required if key not in table]
    for key, value in table.items():
        check = form.checks.get(key)
        if check is None:
            faults.append((key, _unknown_key(key, form)))
        elif fault := check(value):
            faults.append((key, fault))
    faults += form.more(table, {key for key, _ in faults})
    if "api_key_env" in table and not any(key == "api_key_env" for key, _ in faults):
        fault = variable_fault(table["api_key_env"], key_variables)
        faults += [("api_key_env", fault)] if fault else []
    return faults


def _unknown_key(key: str, form: Form) -> str:
    if is_secret_name(key):
        return f"a key does not belong in a {form.file}; put it in an environment variable and name that in api_key_env"
    return f"unknown key; known are {', '.join(form.checks)}"


def _name_faults(tables: list[dict[str, Any]], what: str) -> list[tuple[int, str]]:
    first: dict[str, int] = {}
    faults = []
    for index, table in enumerate(tables):
        name = table.get("name")
        if isinstance(name, str) and name.strip():
            earlier = first.setdefault(name.casefold(), index)
            if earlier != index:
                faults.append((index, f'"{shown(name)}" is already the name of {what}[{earlier}]; names are unique'))
    return faults


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
                elif found := self._KEY.match(line):
                    table.setdefault(found[1], number)
            for quote in re.findall(r'"""|\'\'\'', line):
                inside = quote if inside is None else (None if inside == quote else inside)

    def top(self, key: str) -> str:
        return f"line {self._top[key]}, " if key in self._top else ""

    def of(self, index: int, key: str) -> str:
        known = index < len(self._tables)
        return f"line {self._tables[index].get(key, self._headers[index])}, " if known else ""
