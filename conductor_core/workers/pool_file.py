"""Reads a pool file: TOML with one ``[[worker]]`` table per worker. All faults are reported, each with its place.

A key pasted where a variable's name belongs is refused without being repeated: a message may end up in a log.
"""

import math
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit

import httpx2

from conductor_core.chat import Price, Provider, WorkerSpec
from conductor_core.errors import PoolInvalid
from conductor_core.keys import environment_keys
from conductor_core.toml_text import NotToml, read_toml
from conductor_core.workers.faults import one_line, plain
from conductor_core.workers.local_params import params_fault
from conductor_core.workers.pasted_keys import is_secret_name, pasted_keys, variable_fault
from conductor_core.workers.pool_options import OPTIONS, PoolFile, PoolOptions, fallback_faults, option_faults
from conductor_core.workflow.model import CONDUCTOR_AGENT

_MOST_BYTES = 1_000_000
_MOST_FAULTS = 100
_MOST_DEPTH = 16
_WHOLE_NUMBERS = range(-(2**63), 2**63)
"""What TOML promises to keep; no provider and no database takes more."""
_WEEK_S = 604_800
_MOST_USD = 1_000_000
_KEYS = tuple(WorkerSpec.model_fields)
_PROVIDERS = get_args(Provider)
_SET_BY_US = frozenset({"model", "messages", "stream", "stream_options", "system", "n"})
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEY_PREFIX = re.compile(r"(?:sk|pk|rk|gsk|xai|hf|r8|AIza|AKIA|ghp|glpat)[-_A-Z0-9]", re.IGNORECASE)
_ORDINAL = re.compile(r"(?:(?:model|agent|step)\s*)?[+-]?\d+", re.IGNORECASE)


def load_pool_file(path: str | Path, key_variables: Collection[str] = ()) -> tuple[WorkerSpec, ...]:
    """The workers of a pool file, see ``read_pool_file``."""
    return read_pool_file(path, key_variables).workers


def read_pool_file(path: str | Path, key_variables: Collection[str] = ()) -> PoolFile:
    """What a pool file says.

    Args:
        key_variables: names that ``api_key_env`` may give though they do not look like a key's.

    Raises: PoolInvalid with every fault; each names its line, where there is one, and its key.
    """
    name = one_line(str(path), limit=120)
    try:
        # A pipe would be waited for, and has nothing left when it is read again.
        if Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir():
            raise PoolInvalid(f"pool file {name}: it is no file", ["it is no file"])
        with Path(path).open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise PoolInvalid(f"pool file {name}: there is no such file", ["there is no such file"]) from None
    except (OSError, ValueError) as error:
        why = "it is a folder" if isinstance(error, IsADirectoryError) else "it cannot be read"
        raise PoolInvalid(f"pool file {name}: {why}", [why]) from error
    faults: list[str] = []
    pool = PoolFile(())
    if len(raw) > _MOST_BYTES:
        faults.append(f"it has more than {_MOST_BYTES:,} bytes: this is no pool file")
    else:
        try:
            pool, faults = _parse(raw.decode("utf-8-sig"), key_variables)
        except UnicodeDecodeError as error:
            faults.append(f"line {raw[: error.start].count(10) + 1}: not UTF-8 text")
    if faults:
        count = "" if len(faults) == 1 else f"{len(faults):,} faults: "
        if len(faults) > _MOST_FAULTS:
            faults = [*faults[:_MOST_FAULTS], f"and {len(faults) - _MOST_FAULTS:,} more"]
        raise PoolInvalid(f"pool file {name}: {count}{'; '.join(faults)}", faults)
    return pool


def parse_pool(text: str, key_variables: Collection[str] = ()) -> tuple[tuple[WorkerSpec, ...], list[str]]:
    """The workers written in ``text``, and every fault with its place. With a fault there are no workers."""
    pool, faults = _parse(text, key_variables)
    return pool.workers, faults


def _parse(text: str, key_variables: Collection[str]) -> tuple[PoolFile, list[str]]:
    try:
        document = read_toml(text)
    except NotToml as error:
        return PoolFile(()), [f"{error.place}not TOML: {one_line(error.what, limit=120)}"]
    places = _Places(text)
    faults = [
        f"{places.top(key)}{_shown(key)}: unknown key; a pool file holds [[worker]] tables, and before them "
        f"{' and '.join(OPTIONS)}"
        for key in document
        if key != "worker" and key not in OPTIONS
    ]
    faults += [f"{places.top(key)}{key}: {fault}" for key, fault in option_faults(document)]
    tables = document.get("worker", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        return PoolFile(()), [*faults, f"{places.top('worker')}worker: must be [[worker]] tables, with double brackets"]
    if not tables:
        faults.append("no [[worker]]: a pool needs at least one worker")
    known = environment_keys()
    for index, table in enumerate(tables):
        for key, fault in [*_table_faults(table, key_variables), *pasted_keys(table, known)]:
            faults.append(f"{places.of(index, key)}worker[{index}].{_shown(key)}: {fault}")
    for index, fault in _name_faults(tables):
        faults.append(f"{places.of(index, 'name')}worker[{index}].name: {fault}")
    for index, fault in fallback_faults(tables):
        faults.append(f"{places.of(index, 'fallback')}worker[{index}].fallback: {fault}")
    if faults:
        return PoolFile(()), faults
    options = PoolOptions(**{key: document[key] for key in OPTIONS if key in document})
    return PoolFile(tuple(_spec(table) for table in tables), options), []


def _shown(key: str) -> str:
    return one_line(key, limit=60)


def _spec(table: Mapping[str, Any]) -> WorkerSpec:
    fields = dict(table)
    if "usd_per_mtok" in fields:
        fields["usd_per_mtok"] = Price(**fields["usd_per_mtok"])
    return WorkerSpec(**fields)


def _table_faults(table: Mapping[str, Any], key_variables: Collection[str]) -> list[tuple[str, str]]:
    """Faults of one worker, each with the key it is about."""
    faults = [(key, "missing; every worker needs it") for key in ("name", "provider", "model") if key not in table]
    for key, value in table.items():
        check = _CHECKS.get(key)
        if check is None:
            faults.append((key, _unknown_key(key)))
        elif fault := check(value):
            faults.append((key, fault))
    if table.get("provider") in ("local", "rehearsal"):
        faults += [
            (key, f"a {table['provider']} worker needs none; remove it")
            for key in ("base_url", "api_key_env")
            if key in table
        ]
    elif not any(key == "api_key_env" for key, _ in faults) and "api_key_env" in table:
        fault = variable_fault(table["api_key_env"], key_variables)
        faults += [("api_key_env", fault)] if fault else []
    if table.get("provider") == "local" and not any(key == "params" for key, _ in faults):
        fault = params_fault(table.get("params", {}))
        faults += [("params", fault)] if fault else []
    return faults


def _unknown_key(key: str) -> str:
    if is_secret_name(key):
        return "a key does not belong in a pool file; put it in an environment variable and name that in api_key_env"
    return f"unknown key; known are {', '.join(_KEYS)}"


def _name_faults(tables: list[dict[str, Any]]) -> list[tuple[int, str]]:
    first: dict[str, int] = {}
    faults = []
    for index, table in enumerate(tables):
        name = table.get("name")
        if isinstance(name, str) and name.strip():
            earlier = first.setdefault(name.casefold(), index)
            if earlier != index:
                faults.append((index, f'"{_shown(name)}" is already the name of worker[{earlier}]; names are unique'))
    return faults


def _check_name(value: Any) -> str | None:
    if fault := _check_line(value, most=80):
        return fault
    if value.casefold() == CONDUCTOR_AGENT:
        return f'"{CONDUCTOR_AGENT}" is reserved for the Conductor itself; choose another name'
    if _ORDINAL.fullmatch(value):
        return "would be taken for a number in a workflow; choose a name with a word in it"
    return None


def _check_line(value: Any, most: int = 200) -> str | None:
    if not isinstance(value, str):
        return f"must be text in quotes, not {_kind(value)}"
    if not value.strip():
        return "must not be empty"
    if len(value) > most:
        return f"must have at most {most} characters, not {len(value)}"
    if value != plain(value):
        return "must be plain text on one line, without control characters, outer or double spaces"
    return None


def _check_provider(value: Any) -> str | None:
    if value in _PROVIDERS and isinstance(value, str):
        return None
    shown = f'"{_shown(value)}"' if isinstance(value, str) else _kind(value)
    return f"{shown} is not a provider; use {', '.join(_PROVIDERS[:-1])} or {_PROVIDERS[-1]}"


def _check_description(value: Any) -> str | None:
    return None if value == "" else _check_line(value, most=400)


def _check_base_url(value: Any) -> str | None:
    if not isinstance(value, str):
        return f"must be a URL in quotes, not {_kind(value)}"
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


def _check_api_key_env(value: Any) -> str | None:
    wrong = 'must be the name of an environment variable, such as "OPENAI_API_KEY", never the key itself'
    if not isinstance(value, str) or not _VARIABLE.fullmatch(value) or len(value) > 100:
        return wrong
    prefixed = _KEY_PREFIX.match(value) and any(char.islower() for char in value)
    letters_and_digits = any(char.islower() for char in value) and sum(char.isdigit() for char in value) >= 4
    unbroken = len(value) >= 24 and "_" not in value
    if prefixed or (len(value) >= 20 and letters_and_digits) or unbroken:
        return wrong
    return None


def _check_price(value: Any) -> str | None:
    if not isinstance(value, dict):
        return f"must be a table, such as {{ input = 1.25, output = 10.0 }}, not {_kind(value)}"
    if set(value) != {"input", "output"}:
        return "must have exactly input and output, in USD per million tokens"
    for side in ("input", "output"):
        if type(value[side]) in (int, float) and value[side] > _MOST_USD:
            return f"{side} must be at most {_MOST_USD:,} USD"
        if not _is_number(value[side]) or value[side] < 0:
            return f"{side} must be a number of USD, 0 or more"
    return None


def _check_params(value: Any) -> str | None:
    if not isinstance(value, dict):
        return f"must be a table, such as {{ temperature = 0.2 }}, not {_kind(value)}"
    for key in value:
        if key in _SET_BY_US:
            return f"{key} is set by the program; remove it"
    if _depth(value) > _MOST_DEPTH:
        return f"lists and tables are nested more than {_MOST_DEPTH} deep"
    if _is_json(value):
        return None
    return "must hold only text, finite numbers of at most 64 bits, true or false, lists and tables"


def _check_positive(value: Any) -> str | None:
    if type(value) in (int, float) and value > _WEEK_S:
        return f"must be at most {_WEEK_S:,} seconds, a week"
    return None if _is_number(value) and value > 0 else "must be a number of seconds above 0"


def _check_count(value: Any) -> str | None:
    return None if type(value) is int and 0 < value < 2**31 else "must be a whole number above 0"


def _is_number(value: Any) -> bool:
    return (type(value) is int and value in _WHOLE_NUMBERS) or (type(value) is float and math.isfinite(value))


def _depth(value: Any) -> int:
    """Lists and tables in each other. What was read is never nested so deep that this recursion fails."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if items is None else 1 + max(map(_depth, items), default=0)


def _is_json(value: Any) -> bool:
    """TOML also has dates, and numbers that JSON has not."""
    if isinstance(value, dict):
        return all(_is_json(item) for item in value.values())
    if isinstance(value, list):
        return all(_is_json(item) for item in value)
    return isinstance(value, str | bool) or _is_number(value)


def _kind(value: Any) -> str:
    names = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "a table"}
    return names.get(type(value), "a date or time")


_CHECKS: dict[str, Callable[[Any], str | None]] = {
    "name": _check_name,
    "provider": _check_provider,
    "model": _check_line,
    "description": _check_description,
    "base_url": _check_base_url,
    "api_key_env": _check_api_key_env,
    "usd_per_mtok": _check_price,
    "params": _check_params,
    "timeout_s": _check_positive,
    "max_concurrency": _check_count,
    "max_output_bytes": _check_count,
    "fallback": _check_line,
}


class _Places:
    """Where tables and keys stand, found by their shape: tomllib does not say. A key not found has its table's line.

    Text inside multi-line strings is skipped. A worker written in another form than ``[[worker]]`` has no line.
    """

    _TABLE = re.compile(r"\s*\[\[\s*[\"']?worker[\"']?\s*\]\]")
    _SUB_TABLE = re.compile(r"\s*\[\s*worker\s*\.\s*[\"']?([\w-]+)")
    _HEADER = re.compile(r"\s*\[")
    _KEY = re.compile(r"\s*[\"']?([^\"'=\s.]+)[\"']?\s*[.=]")

    def __init__(self, text: str) -> None:
        self._top: dict[str, int] = {}
        self._tables: list[dict[str, int]] = []
        self._headers: list[int] = []
        inside: str | None = None
        table = self._top
        for number, line in enumerate(text.split("\n"), start=1):
            if inside is None:
                if self._TABLE.match(line):
                    table = {}
                    self._tables.append(table)
                    self._headers.append(number)
                elif found := self._SUB_TABLE.match(line):
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
        if index >= len(self._tables):
            return ""
        return f"line {self._tables[index].get(key, self._headers[index])}, "
