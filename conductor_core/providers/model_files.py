"""Reads a file of models: TOML with one table per model. It reports all faults, each with its place.

A key pasted where a variable's name belongs is refused without being repeated: a message may end up in a log.
"""

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from conductor_core.errors import BadInput
from conductor_core.privacy.keys import environment_keys
from conductor_core.privacy.masking import one_line, plain
from conductor_core.providers.pasted_keys import is_secret_name, pasted_keys, variable_fault
from conductor_core.providers.toml_text import NotToml, read_toml
from conductor_core.workflow.model import CONDUCTOR_AGENT

# Checks the fields of a model in a file that a user wrote. Each check returns one clear fault, or None.

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
        # Reading a pipe would wait, and a second reading would find nothing.
        if Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir():
            raise form.invalid(f"{what}: it is no file", ["it is no file"])
        with Path(path).open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise form.invalid(f"{what}: there is no such file", ["there is no such file"]) from None
    except (OSError, ValueError) as error:
        why = "it is a folder" if isinstance(error, IsADirectoryError) else "it cannot be read"
        raise form.invalid(f"{what}: {why}", [why]) from error
    faults: list[str] = []
    document = Document([], {})
    if len(raw) > _MOST_BYTES:
        faults.append(f"it has more than {_MOST_BYTES:,} bytes: this is no {form.file}")
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
