"""Reads a conductors file, TOML with one ``[[conductor]]`` table per Conductor, and finds Conductors by their names.

It reports all faults, with places. The names:

NAME             of a table in ``conductors/*.toml`` of the data folder
FILE             a conductors file (a path, or one of that folder) that holds a single Conductor
FILE#NAME        one of several
"""

import hashlib
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PositiveFloat

from conductor_core.chat.messages import Price
from conductor_core.errors import ConductorsInvalid, UnknownConductor
from conductor_core.files import NotRegular, expand_path, is_file, is_folder, is_there, open_regular
from conductor_core.inference.source import HUB_ID
from conductor_core.privacy.masking import environment_keys, holds_a_key, one_line
from conductor_core.providers.model_files import (
    SET_BY_US,
    Form,
    Table,
    check_base_url,
    check_flag,
    check_line,
    check_name,
    check_params,
    check_price,
    check_seconds,
    check_variable,
    load_document,
)
from conductor_core.settings import Settings
from conductor_core.workflow.model import Frozen

BUILT_IN = frozenset({"tiny"})
_LEAST_TOKENS, _MOST_TOKENS = 16, 10**6
_MOST_PROMPT_BYTES = 65_536
_LOCAL_PARAMS = {"temperature": (0.0, 4.0), "top_p": (0.0, 1.0), "top_k": (0, 10**6)}


class ConductorSpec(Frozen):
    """One Conductor, as written in a conductors file. It never holds a key, only the name of the variable that does.

    Attributes:
        model: its name on the server at ``base_url``; without ``base_url`` a model folder or a hub id.
        params: what each request carries; for a model that runs here ``temperature``, ``top_p`` and ``top_k``.
        prompt: ``short`` for models that were trained on the short prompt. None: as the model folder says, else full.
        prompt_file, prompt_text: the user's own text in place of the full prompt's, see ``prompts.full_prompt``.
        constrained: whether a grammar holds its completion to the form of a plan. None: as the setting says.
        max_tokens: the longest completion, within the setting ``plan_max_tokens``.
        timeout_s: seconds for a server's whole plan. context: the tokens that prompt and completion may take together.
    """

    name: str = Field(min_length=1)
    model: str = Field(min_length=1)
    base_url: str | None = None
    api_key_env: str | None = None
    usd_per_mtok: Price | None = None
    params: Mapping[str, Any] = Field(default_factory=dict)
    prompt: Literal["full", "short"] | None = None
    prompt_file: str | None = None
    prompt_text: str | None = None
    constrained: bool | None = None
    max_tokens: int | None = Field(None, ge=_LEAST_TOKENS, le=_MOST_TOKENS)
    timeout_s: PositiveFloat | None = None
    context: int | None = Field(None, ge=_LEAST_TOKENS)

    @property
    def prompt_sha256(self) -> str | None:
        """The digest of the user's own prompt in UTF-8; None: there is none."""
        return None if self.prompt_text is None else hashlib.sha256(self.prompt_text.encode()).hexdigest()


def load_conductors_file(path: str | Path, key_variables: Collection[str] = ()) -> tuple[ConductorSpec, ...]:
    """Returns the Conductors of a file, in its order. A relative model folder or prompt file is relative to the file.

    Args:
        key_variables: names that ``api_key_env`` may give though they do not look like a key's.

    Raises: ConductorsInvalid with every fault; each names its line, where there is one, and its key.
    """
    beside = Path(path).parent
    return tuple(_spec(table, beside) for table in load_document(path, _form(beside), key_variables).tables)


def _spec(table: Table, beside: Path) -> ConductorSpec:
    fields = dict(table)
    if "usd_per_mtok" in fields:
        fields["usd_per_mtok"] = Price(**fields["usd_per_mtok"])
    if "prompt_file" in fields:
        fields["prompt_text"] = own_prompt(beside / Path(fields["prompt_file"]).expanduser())
    if "base_url" in fields:
        fields["base_url"] = fields["base_url"].rstrip("/")
    else:
        folder = beside / expand_path(fields["model"])
        if is_folder(folder) or not HUB_ID.fullmatch(fields["model"]):
            fields["model"] = str(folder)
    return ConductorSpec(**fields)


def own_prompt(file: Path) -> str:
    """Reads a user's own prompt. Raises: ConductorsInvalid, saying what is wrong with the file."""
    try:
        with open_regular(file) as opened:
            raw = opened.read(_MOST_PROMPT_BYTES + 1)
    except FileNotFoundError:
        raise _no_prompt("no such file") from None
    except (NotRegular, IsADirectoryError) as error:
        raise _no_prompt(str(error.strerror)) from None
    except (OSError, ValueError):
        raise _no_prompt("it cannot be read") from None
    if len(raw) > _MOST_PROMPT_BYTES:
        raise _no_prompt(f"it has more than {_MOST_PROMPT_BYTES:,} bytes")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _no_prompt(f"line {raw[: error.start].count(10) + 1}: not UTF-8 text") from None
    if not text.strip():
        raise _no_prompt("it is empty")
    if holds_a_key(text, environment_keys()):
        raise _no_prompt("it holds a key, which every run would record")
    return text


def _no_prompt(why: str) -> ConductorsInvalid:
    return ConductorsInvalid(why, [why])


def _prompt_faults(table: Table, beside: Path) -> list[tuple[str, str]]:
    if table.get("prompt") == "short":
        return [("prompt_file", 'goes with the full prompt; a model that was trained on "short" knows only that one')]
    try:
        own_prompt(beside / Path(table["prompt_file"]).expanduser())
    except ConductorsInvalid as fault:
        return [("prompt_file", f"{one_line(table['prompt_file'], limit=120)}: {fault}")]
    return []


def _more(beside: Path, table: Table, faulty: Collection[str]) -> list[tuple[str, str]]:
    faults = _place_faults(table, faulty)
    if "prompt_file" in table and "prompt_file" not in faulty:
        faults += _prompt_faults(table, beside)
    return faults


def _place_faults(table: Table, faulty: Collection[str]) -> list[tuple[str, str]]:
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


def _check_tokens(value: Any) -> str | None:
    if type(value) is int and _LEAST_TOKENS <= value <= _MOST_TOKENS:
        return None
    return f"must be a whole number of tokens, {_LEAST_TOKENS} to {_MOST_TOKENS:,}"


def _check_context(value: Any) -> str | None:
    if type(value) is int and _LEAST_TOKENS <= value < 2**31:
        return None
    return f"must be a whole number of tokens, {_LEAST_TOKENS} or more"


def _form(beside: Path) -> Form:
    """Returns the form of a conductors file; relative prompt files are in the folder ``beside``."""
    return Form(
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
            "prompt_file": check_line,
            "constrained": check_flag,
            "max_tokens": _check_tokens,
            "timeout_s": check_seconds,
            "context": _check_context,
        },
        required=("name", "model"),
        more=partial(_more, beside),
        invalid=ConductorsInvalid,
    )


# Conductors by name.


def conductors_files(settings: Settings) -> list[Path]:
    """Returns the conductors files of the data folder, sorted by name."""
    return sorted(file for file in settings.conductors_folder.glob("*.toml") if file.is_file())


def listed(settings: Settings) -> tuple[dict[str, ConductorSpec], list[str]]:
    """Returns all Conductors of the data folder by the name of each, and the faults of files that cannot be read."""
    found: dict[str, ConductorSpec] = {}
    specs, faults = _read(settings)
    for file, spec in specs:
        shared = sum(other.name == spec.name for _, other in specs) > 1
        found[f"{file.name}#{spec.name}" if shared else spec.name] = spec
    return found, [str(fault) for fault in faults]


def find(ref: str, settings: Settings) -> ConductorSpec | None:
    """Returns the Conductor that ``ref`` names; None if ``ref`` is no name or file of one.

    Raises: ConductorsInvalid with every fault of its file, UnknownConductor where the name is not clear.
    """
    path, _, name = ref.partition("#")
    if path.casefold().endswith(".toml"):
        file = _file(path, settings)
        return _of_file(file, load_conductors_file(file, settings.key_variables), name)
    specs, faults = _read(settings)
    same = [(file, spec) for file, spec in specs if spec.name == ref]
    if len(same) > 1:
        written = " or ".join(f"{file.name}#{ref}" for file, _ in same)
        raise UnknownConductor(f"{len(same)} Conductors are called {one_line(ref)!r}: write {written}")
    if same:
        return same[0][1]
    own = settings.conductors_folder / f"{ref}.toml"
    if Path(ref).name == ref and is_file(own):
        return _of_file(own, load_conductors_file(own, settings.key_variables), "")
    if faults and Path(ref).name == ref and not is_there(ref):
        raise faults[0]  # It may be the one that is meant.
    return None


def _file(path: str, settings: Settings) -> Path:
    given = expand_path(path)
    own = settings.conductors_folder / given
    return own if given.name == path and is_file(own) and not is_file(given) else given


def _of_file(file: Path, specs: tuple[ConductorSpec, ...], name: str) -> ConductorSpec:
    names = ", ".join(spec.name for spec in specs)
    if not name and len(specs) > 1:
        raise UnknownConductor(f"which Conductor of {one_line(str(file))}? It holds {names}: write {file.name}#NAME")
    found = specs[0] if not name else next((spec for spec in specs if spec.name == name), None)
    if found is None:
        raise UnknownConductor(f"no Conductor {one_line(name)!r} in {one_line(str(file))}, which holds {names}")
    return found


def _read(settings: Settings) -> tuple[list[tuple[Path, ConductorSpec]], list[ConductorsInvalid]]:
    specs: list[tuple[Path, ConductorSpec]] = []
    faults: list[ConductorsInvalid] = []
    for file in conductors_files(settings):
        try:
            specs += [(file, spec) for spec in load_conductors_file(file, settings.key_variables)]
        except ConductorsInvalid as fault:
            faults.append(fault)
    return specs, faults
