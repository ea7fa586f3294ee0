"""Reads a conductors file, TOML with one ``[[conductor]]`` table per Conductor, and finds Conductors by their names.

It reports all faults, with places. The names:

NAME             of a table in ``conductors/*.toml`` of the data folder
FILE             a conductors file (a path, or one of that folder) that holds a single Conductor
FILE#NAME        one of several
"""

import hashlib
from collections.abc import Collection
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from conductor_core.chat.messages import Params, Prices, Sampling, Seconds
from conductor_core.errors import ConductorsInvalid, UnknownConductor
from conductor_core.files import Unread, expand_path, is_file, is_there, read_named, text_of
from conductor_core.inference.source import HUB_ID
from conductor_core.privacy.masking import environment_keys, holds_a_key, one_line
from conductor_core.providers.model_files import (
    Line,
    ModelFile,
    ModelTable,
    Reading,
    check_line,
    read_model_file,
    sampling_fault,
    without_fault,
)
from conductor_core.settings import SHIPPED, Settings
from conductor_core.workflow.model import Frozen

API_KEY_VARIABLE = "CONDUCTOR_API_KEY"
"""Holds the key of a Conductor that is named by its address alone."""
_MOST_PROMPT_BYTES = 65_536


class ConductorSpec(Frozen):
    """One Conductor, as written in a conductors file. It never holds a key, only the name of the variable that does.

    Attributes:
        model: its name on the server at ``base_url``; without ``base_url`` a model folder, a hub id or a GGUF file.
        lora: the file of an adapter for that GGUF file.
        params: what each request carries; for a model that runs here ``temperature``, ``top_p`` and ``top_k``.
        prompt: ``short`` for models that were trained on the short prompt. None: as the model folder says, else full.
        prompt_text: the user's own in place of the full prompt's, see ``prompts.full_prompt``. A file names its file.
        constrained: whether a grammar holds its completion to the form of a plan. None: as the setting says.
        max_tokens: the longest completion, within the setting ``plan_max_tokens``.
        timeout_s: seconds for a server's whole plan. context: the tokens that prompt and completion may take together.
    """

    name: str = Field(min_length=1)
    model: str = Field(min_length=1)
    base_url: str | None = None
    lora: str | None = None
    api_key_env: str | None = None
    usd_per_mtok: Prices = None
    params: Params = Field(default_factory=dict)
    prompt: Literal["full", "short", "roles"] | None = None
    prompt_text: str | None = None
    constrained: bool | None = None
    max_tokens: int | None = Field(None, ge=16, le=1_000_000, description="a whole number of tokens, 16 to 1,000,000")
    timeout_s: Seconds | None = None
    context: int | None = Field(None, ge=16, lt=2**31, description="a whole number of tokens, 16 or more")

    @property
    def prompt_sha256(self) -> str | None:
        """The digest of the user's own prompt in UTF-8; None: there is none."""
        return None if self.prompt_text is None else hashlib.sha256(self.prompt_text.encode()).hexdigest()


class ConductorTable(ModelTable, ConductorSpec):
    """A ``[[conductor]]`` of a conductors file."""

    prompt_text: Line | None = Field(None, alias="prompt_file")

    @field_validator("name")
    @classmethod
    def _means_nothing_else(cls, value: str) -> str:
        if value.casefold() in SHIPPED:
            raise ValueError(f'"{value}" is the name of the shipped Conductor; choose another name')
        if any(mark in value for mark in ("/", "\\", "#")) or value.casefold().endswith(".toml"):
            raise ValueError(
                "would be taken for a file, a hub id or an address; choose a name without / \\ # and .toml"
            )
        return value

    @field_validator("api_key_env", "timeout_s")
    @classmethod
    def _of_a_server(cls, value: object, info: ValidationInfo[Reading]) -> object:
        if info.data.get("base_url", "") is None:
            raise ValueError("a Conductor that runs here has none; give its server as base_url, or remove this")
        return value

    @field_validator("lora")
    @classmethod
    def _of_a_file(cls, value: str, info: ValidationInfo[Reading]) -> str:
        without_fault(value, check_line(value))
        if info.data.get("base_url") is not None:
            raise ValueError("an adapter is for a GGUF file of this machine; remove it, or base_url")
        return value

    @field_validator("params")
    @classmethod
    def _params_here_or_there(cls, value: dict[str, Any], info: ValidationInfo[Reading]) -> dict[str, Any]:
        if "seed" in value:
            raise ValueError("seed is set by the program; remove it")
        if info.data.get("base_url", "") is None:
            without_fault(value, sampling_fault(value, Sampling))
        elif "max_tokens" in value:
            raise ValueError("give max_tokens beside params, as a key of its own")
        return value

    @field_validator("prompt_text")
    @classmethod
    def _read_prompt(cls, value: str, info: ValidationInfo[Reading]) -> str:
        if (prompt := info.data.get("prompt")) not in (None, "full"):
            raise ValueError(f'goes with the full prompt; a model that was trained on "{prompt}" knows only that one')
        try:
            return _own_prompt(info.context.beside / Path(value).expanduser())
        except ValueError as fault:
            raise ValueError(f"{one_line(value, limit=120)}: {fault}") from None

    def spec(self, beside: Path) -> ConductorSpec:
        """Returns the Conductor. A relative model folder is in the folder ``beside``."""
        fields = self.given
        if self.base_url is not None:
            fields["base_url"] = self.base_url.rstrip("/")
        else:
            folder = beside / expand_path(self.model)
            if is_there(folder) or not HUB_ID.fullmatch(self.model):
                fields["model"] = str(folder)
            if self.lora is not None:
                fields["lora"] = str(beside / expand_path(self.lora))
        return ConductorSpec(**fields)


class ConductorsForm(ModelFile):
    file: ClassVar = "conductors file"
    table: ClassVar = "conductor"
    needs: ClassVar = "it needs at least one Conductor"
    invalid: ClassVar = ConductorsInvalid

    conductor: list[ConductorTable]


def load_conductors_file(path: str | Path, key_variables: Collection[str] = ()) -> tuple[ConductorSpec, ...]:
    """Returns the Conductors of a file, in its order. A relative model folder or prompt file is relative to the file.

    Args:
        key_variables: names that ``api_key_env`` may give though they do not look like a key's.

    Raises: ConductorsInvalid with every fault; each names its line, where there is one, and its key.
    """
    read = read_model_file(path, ConductorsForm, key_variables)
    return tuple(table.spec(Path(path).parent) for table in read.conductor)


def _own_prompt(file: Path) -> str:
    """Reads a user's own prompt. Raises: ValueError, saying what is wrong with the file."""
    try:
        text = text_of(read_named(file, _MOST_PROMPT_BYTES))
    except Unread as error:
        raise ValueError(str(error)) from None
    if not text.strip():
        raise ValueError("it is empty")
    if holds_a_key(text, environment_keys()):
        raise ValueError("it holds a key, which every run would record")
    return text


# Conductors by name.


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
    for file in sorted(filter(Path.is_file, settings.conductors_folder.glob("*.toml"))):
        try:
            specs += [(file, spec) for spec in load_conductors_file(file, settings.key_variables)]
        except ConductorsInvalid as fault:
            faults.append(fault)
    return specs, faults
