"""Reads a conductors file: TOML with one ``[[conductor]]`` table per Conductor. All faults are told, with places."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PositiveFloat

from conductor_core.chat import Price
from conductor_core.errors import ConductorsInvalid
from conductor_core.given_path import given_path, is_folder
from conductor_core.inference.source import HUB_ID
from conductor_core.model_fields import (
    SET_BY_US,
    check_base_url,
    check_line,
    check_name,
    check_params,
    check_price,
    check_seconds,
    check_variable,
    kind_of,
)
from conductor_core.model_tables import Form, Table, load_tables, parse_tables
from conductor_core.workflow.model import Frozen

BUILT_IN = frozenset({"tiny"})
_LEAST_TOKENS, _MOST_TOKENS = 16, 10**6
_LOCAL_PARAMS = {"temperature": (0.0, 4.0), "top_p": (0.0, 1.0), "top_k": (0, 10**6)}


class ConductorSpec(Frozen):
    """One Conductor, as written in a conductors file. Never holds a key, only the name of the variable that does.

    Attributes:
        model: what the server at ``base_url`` calls it; without ``base_url`` a model folder or a hub id.
        params: sent along with each request; of a model that runs here ``temperature``, ``top_p`` and ``top_k``.
        prompt: ``short`` for models that were trained on the short prompt. None: as the model folder says, else full.
        constrained: whether its completion is held to the form of a plan. None: as the setting says.
        max_tokens: longest completion, within the setting ``plan_max_tokens``.
        timeout_s: for a whole plan, of a server. context: tokens that prompt and completion may take together.
    """

    name: str = Field(min_length=1)
    model: str = Field(min_length=1)
    base_url: str | None = None
    api_key_env: str | None = None
    usd_per_mtok: Price | None = None
    params: Mapping[str, Any] = Field(default_factory=dict)
    prompt: Literal["full", "short"] | None = None
    constrained: bool | None = None
    max_tokens: int | None = Field(None, ge=_LEAST_TOKENS, le=_MOST_TOKENS)
    timeout_s: PositiveFloat | None = None
    context: int | None = Field(None, ge=_LEAST_TOKENS)


def load_conductors_file(path: str | Path, key_variables: Collection[str] = ()) -> tuple[ConductorSpec, ...]:
    """The Conductors of a file, in its order. A relative model folder is found beside the file.

    Args:
        key_variables: names that ``api_key_env`` may give though they do not look like a key's.

    Raises: ConductorsInvalid with every fault; each names its line, where there is one, and its key.
    """
    return tuple(_spec(table, Path(path).parent) for table in load_tables(path, _FORM, key_variables))


def parse_conductors(text: str, key_variables: Collection[str] = ()) -> tuple[tuple[ConductorSpec, ...], list[str]]:
    """The Conductors written in ``text``, and every fault with its place. With a fault there are none."""
    tables, faults = parse_tables(text, _FORM, key_variables)
    return tuple(_spec(table, Path()) for table in tables), faults


def _spec(table: Table, beside: Path) -> ConductorSpec:
    fields = dict(table)
    if "usd_per_mtok" in fields:
        fields["usd_per_mtok"] = Price(**fields["usd_per_mtok"])
    if "base_url" in fields:
        fields["base_url"] = fields["base_url"].rstrip("/")
    else:
        folder = beside / given_path(fields["model"])
        if is_folder(folder) or not HUB_ID.fullmatch(fields["model"]):
            fields["model"] = str(folder)
    return ConductorSpec(**fields)


def _more(table: Table, faulty: Collection[str]) -> list[tuple[str, str]]:
    if "base_url" in table:
        given = table.get("params", {})
        if "params" not in faulty and isinstance(given, dict) and "max_tokens" in given:
            return [("params", "give max_tokens beside params, as a key of its own")]
        return []
    faults = [
        (key, "a Conductor that runs here has none; give its server as base_url, or remove this")
        for key in ("api_key_env", "timeout_s")
        if key in table
    ]
    if "params" not in faulty:
        faults += [("params", fault) for fault in _local_faults(table.get("params", {}))]
    return faults


def _local_faults(params: Mapping[str, Any]) -> list[str]:
    known = ", ".join(_LOCAL_PARAMS)
    faults = [
        f"{key[:60]}: unknown; a Conductor that runs here knows {known}" for key in params if key not in _LOCAL_PARAMS
    ]
    for key, (least, most) in _LOCAL_PARAMS.items():
        value = params.get(key, most)
        number = type(value) is int or (type(value) is float and key != "top_k")
        if not number or not least <= value <= most or (key == "top_p" and value == 0):
            faults.append(f"{key}: must be a number {'above' if key == 'top_p' else 'from'} {least:g} to {most:g}")
    return faults


def _check_name(value: Any) -> str | None:
    if fault := check_name(value):
        return fault
    if value.casefold() in BUILT_IN:
        return f'"{value}" is the name of the shipped Conductor; choose another name'
    if any(mark in value for mark in ("/", "\\", "#")) or value.casefold().endswith(".toml"):
        return "would be taken for a file, a hub id or an address; choose a name without / \\ # and .toml"
    return None


def _check_prompt(value: Any) -> str | None:
    if value in ("full", "short") and isinstance(value, str):
        return None
    return 'must be "full", or "short" for a model that was trained on the short prompt'


def _check_switch(value: Any) -> str | None:
    return None if isinstance(value, bool) else f"must be true or false, not {kind_of(value)}"


def _check_tokens(value: Any) -> str | None:
    if type(value) is int and _LEAST_TOKENS <= value <= _MOST_TOKENS:
        return None
    return f"must be a whole number of tokens, {_LEAST_TOKENS} to {_MOST_TOKENS:,}"


def _check_context(value: Any) -> str | None:
    if type(value) is int and _LEAST_TOKENS <= value < 2**31:
        return None
    return f"must be a whole number of tokens, {_LEAST_TOKENS} or more"


_FORM = Form(
    file="conductors file",
    table="conductor",
    needs="it needs at least one Conductor",
    checks={
        "name": _check_name,
        "model": check_line,
        "base_url": check_base_url,
        "api_key_env": check_variable,
        "usd_per_mtok": check_price,
        "params": lambda value: check_params(value, SET_BY_US | {"seed"}),
        "prompt": _check_prompt,
        "constrained": _check_switch,
        "max_tokens": _check_tokens,
        "timeout_s": check_seconds,
        "context": _check_context,
    },
    required=("name", "model"),
    more=_more,
    invalid=ConductorsInvalid,
)
