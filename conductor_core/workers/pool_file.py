"""Reads a pool file: TOML with one ``[[worker]]`` table per worker, and options for runs on the pool.

All faults are reported, each with its place. The options say how runs on the pool go unless they say otherwise.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

from conductor_core.chat.messages import ACCEPTED, OnIncomplete, Price, Provider, WorkerSpec
from conductor_core.errors import PoolInvalid
from conductor_core.providers.model_files import (
    Form,
    Table,
    check_base_url,
    check_count,
    check_flag,
    check_line,
    check_name,
    check_params,
    check_price,
    check_seconds,
    check_variable,
    kind_of,
    load_document,
    shown,
)
from conductor_core.workers.local_params import params_fault
from conductor_core.workflow.model import Frozen

# Options.


class PoolOptions(Frozen):
    """Holds the options of a pool file. None where the file leaves one to the settings.

    ``on_incomplete``: what happens to a step whose answer is not whole. ``give_question``: tell every step the task.
    """

    on_incomplete: OnIncomplete | None = None
    give_question: bool | None = None


class PoolFile(NamedTuple):
    """What a pool file says. ``workers``: in the file's order, which is the order of their ordinals."""

    workers: tuple[WorkerSpec, ...]
    options: PoolOptions = PoolOptions()


OPTIONS = tuple(PoolOptions.model_fields)
_POLICIES = get_args(OnIncomplete)


def option_faults(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Faults of the options in ``document``, each with its key."""
    faults = []
    policy = document.get("on_incomplete")
    if policy is not None and policy not in _POLICIES:
        faults.append(("on_incomplete", f"must be one of {', '.join(_POLICIES)}, in quotes"))
    if not isinstance(document.get("give_question", False), bool):
        faults.append(("give_question", "must be true or false"))
    return faults


def fallback_faults(tables: Sequence[Mapping[str, Any]]) -> list[tuple[int, str]]:
    """Fallbacks that name no other worker of the file, each with the worker's index."""
    names = [table.get("name") for table in tables]
    faults = []
    for index, table in enumerate(tables):
        fallback = table.get("fallback")
        if not isinstance(fallback, str):
            continue
        if fallback == table.get("name"):
            faults.append((index, "is this worker itself; name another one"))
        elif fallback not in names:
            has = ", ".join(str(name)[:80] for name in names[:12] if name != table.get("name"))
            faults.append((index, f"the file has no worker of that name; it has {has or 'no other'}"))
    return faults


POOL_FILES = {name: Path(__file__).with_name("pools") / f"{name}.toml" for name in ("paper", "small")}
"""The built-in pools of real workers."""
_PROVIDERS = get_args(Provider)


def read_pool_file(path: str | Path, key_variables: Collection[str] = ()) -> PoolFile:
    """What a pool file says.

    Args:
        key_variables: names that ``api_key_env`` may give though they do not look like a key's.

    Raises: PoolInvalid with every fault; each names its line, where there is one, and its key.
    """
    document = load_document(path, _FORM, key_variables)
    return PoolFile(tuple(_spec(table) for table in document.tables), PoolOptions(**document.options))


def _spec(table: Table) -> WorkerSpec:
    fields = dict(table)
    if "usd_per_mtok" in fields:
        fields["usd_per_mtok"] = Price(**fields["usd_per_mtok"])
    if "accepts" in fields:
        fields["accepts"] = tuple(kind for kind in ACCEPTED if kind in fields["accepts"])
    return WorkerSpec(**fields)


def _more(table: Table, faulty: Collection[str]) -> list[tuple[str, str]]:
    faults = []
    if table.get("provider") in ("local", "rehearsal"):
        faults += [
            (key, f"a {table['provider']} worker needs none; remove it")
            for key in ("base_url", "api_key_env")
            if key in table
        ]
        if "accepts" not in faulty and "image" in table.get("accepts", ()):
            faults.append(("accepts", f"a {table['provider']} worker accepts text alone; remove it"))
    if table.get("provider") == "local" and "params" not in faulty:
        fault = params_fault(table.get("params", {}))
        faults += [("params", fault)] if fault else []
    return faults


def _check_provider(value: Any) -> str | None:
    if value in _PROVIDERS and isinstance(value, str):
        return None
    given = f'"{shown(value)}"' if isinstance(value, str) else kind_of(value)
    return f"{given} is not a provider; use {', '.join(_PROVIDERS[:-1])} or {_PROVIDERS[-1]}"


def _check_description(value: Any) -> str | None:
    return None if value == "" else check_line(value, most=400)


def _check_accepts(value: Any) -> str | None:
    if isinstance(value, list) and "text" in value and all(kind in ACCEPTED for kind in value):
        return None
    return 'must be ["text"] or ["text", "image"]'


_FORM = Form(
    file="pool file",
    table="worker",
    needs="a pool needs at least one worker",
    checks={
        "name": check_name,
        "provider": _check_provider,
        "model": check_line,
        "description": _check_description,
        "base_url": check_base_url,
        "api_key_env": check_variable,
        "usd_per_mtok": check_price,
        "params": check_params,
        "timeout_s": check_seconds,
        "max_concurrency": check_count,
        "max_output_bytes": check_count,
        "pass_reasoning": check_flag,
        "fallback": check_line,
        "accepts": _check_accepts,
    },
    required=("name", "provider", "model"),
    more=_more,
    invalid=PoolInvalid,
    options=OPTIONS,
    option_faults=option_faults,
    across=lambda tables: [(index, "fallback", fault) for index, fault in fallback_faults(tables)],
)
