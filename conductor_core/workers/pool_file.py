"""Reads a pool file: TOML with one ``[[worker]]`` table per worker, ``[[tools]]`` tables, and options for its runs.

All faults are reported, each with its place. The options say how runs on the pool go unless they say otherwise.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from conductor_core.chat.messages import ACCEPTED, HERE, OnIncomplete, Sampling, WorkerSpec
from conductor_core.chat.tools import PYTHON, ToolServerSpec
from conductor_core.errors import PoolInvalid
from conductor_core.files import expand_path
from conductor_core.privacy.masking import holds_a_key
from conductor_core.providers.model_files import (
    Line,
    ModelFile,
    ModelTable,
    Reading,
    check_base_url,
    check_line,
    check_variable,
    is_secret_name,
    read_model_file,
    sampling_fault,
    shown,
    variable_fault,
    without_fault,
)
from conductor_core.run.values import PoolFile

POOL_FILES = {name: Path(__file__).with_name("pools") / f"{name}.toml" for name in ("paper", "small")}
"""The built-in pools of real workers."""


class LocalParams(Sampling):
    """How a local model answers. ``thinking``: asks a hybrid model to think before it answers."""

    seed: int = Field(0, description="a whole number")
    max_tokens: int = Field(1024, ge=1, description="a whole number above 0")
    thinking: bool = False


class WorkerTable(ModelTable, WorkerSpec):
    """A ``[[worker]]`` of a pool file."""

    fallback: Line | None = None

    @field_validator("description")
    @classmethod
    def _description(cls, value: str) -> str:
        without_fault(value, value and check_line(value, most=400))
        return value

    @field_validator("base_url", "api_key_env")
    @classmethod
    def _of_a_server(cls, value: str, info: ValidationInfo[Reading]) -> str:
        provider = info.data.get("provider")
        if provider in (*HERE, "rehearsal"):
            raise ValueError(f"a {provider} worker needs none; remove it")
        return value

    @field_validator("lora")
    @classmethod
    def _of_a_file(cls, value: str, info: ValidationInfo[Reading]) -> str:
        if info.data.get("provider") != "gguf":
            raise ValueError('goes with provider = "gguf" alone; remove it')
        return without_fault(value, check_line(value))  # type: ignore[no-any-return]

    @field_validator("params")
    @classmethod
    def _local_params(cls, value: dict[str, Any], info: ValidationInfo[Reading]) -> dict[str, Any]:
        without_fault(value, sampling_fault(value, LocalParams) if info.data.get("provider") in HERE else None)
        return value

    @field_validator("fallback")
    @classmethod
    def _other_worker(cls, value: str, info: ValidationInfo[Reading]) -> str:
        own, names = info.data.get("name"), info.context.names
        if value == own:
            raise ValueError("is this worker itself; name another one")
        if value not in names:
            has = ", ".join(str(name)[:80] for name in names[:12] if name != own)
            raise ValueError(f"the file has no worker of that name; it has {has or 'no other'}")
        return value

    @field_validator("tools", mode="before")
    @classmethod
    def _tools(cls, value: object, info: ValidationInfo[Reading]) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise ValueError('must be a list of tool servers, or of SERVER.TOOL: ["files", "git.log"]')
        if value and info.data.get("provider") == "local":
            raise ValueError(
                "a local worker is offered no tools, because not every model's template knows them; remove it"
            )
        tables = info.context.others.get("tools", ())
        for number, each in enumerate(value):
            without_fault(
                each,
                _grant_fault(each, tables) or (f'"{shown(each)}" is named twice' if each in value[:number] else None),
            )
        return tuple(value)

    @field_validator("accepts", mode="before")
    @classmethod
    def _kinds(cls, value: object, info: ValidationInfo[Reading]) -> tuple[str, ...]:
        if not isinstance(value, list) or "text" not in value or not all(kind in ACCEPTED for kind in value):
            raise ValueError('must be ["text"] or ["text", "image"]')
        provider = info.data.get("provider")
        if provider in (*HERE, "rehearsal") and "image" in value:
            raise ValueError(f"a {provider} worker accepts text alone; remove it")
        return tuple(kind for kind in ACCEPTED if kind in value)


def _grant_fault(grant: str, tables: Sequence[Mapping[str, object]]) -> str | None:
    server, dot, tool = grant.partition(".")
    table = next((each for each in tables if each.get("name") == server), None)
    if table is None and server != PYTHON:
        names = [shown(str(each.get("name"))) for each in tables[:12] if each.get("name") != PYTHON]
        return f'the file has no tool server "{shown(server)}"; it has {", ".join([*names, PYTHON])}'
    only = [PYTHON_TOOL] if server == PYTHON else table and table.get("only")
    if dot and (not tool or (isinstance(only, list) and tool not in only)):
        return f'"{shown(server)}" offers no tool "{shown(tool)}"' + (
            f"; it offers {', '.join(map(shown, only))}" if isinstance(only, list) else ""
        )
    return None


PYTHON_TOOL = "run"
_LISTS = {
    "command": "a list of texts, the program first",
    "env": "a list of names of variables",
    "only": "a list of names of tools",
}


class ToolsTable(ToolServerSpec):
    """A ``[[tools]]`` of a pool file."""

    @field_validator("name", mode="before")
    @classmethod
    def _name(cls, value: object) -> object:
        if isinstance(value, str) and not re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,38}[A-Za-z0-9])?", value):
            raise ValueError("must be of letters, digits and - between them, at most 40 characters")
        return value

    @field_validator("command", "env", "only", mode="before")
    @classmethod
    def _lists(cls, value: object, info: ValidationInfo[Reading]) -> object:
        if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
            raise ValueError(f"must be {_LISTS[str(info.field_name)]}")
        if info.field_name != "command" and (twice := _twice(value)):
            raise ValueError(f'"{shown(twice)}" is named twice')
        return tuple(value)

    @field_validator("command")
    @classmethod
    def _command(cls, value: tuple[str, ...], info: ValidationInfo[Reading]) -> tuple[str, ...]:
        _no_secret_arguments(value, info.context.known)
        if any("\0" in each or len(each) > 4000 for each in value) or len(value) > 200:
            raise ValueError("must have at most 200 texts of at most 4,000 characters")
        if info.data.get("name") == PYTHON:
            raise ValueError(f'"{PYTHON}" is the name of the built-in sandbox; choose another name')
        program = value[0]
        if "/" not in program:
            return value
        return (str((info.context.beside / expand_path(program)).absolute()), *value[1:])

    @field_validator("url")
    @classmethod
    def _url(cls, value: str, info: ValidationInfo[Reading]) -> str:
        if holds_a_key(value, info.context.known):
            raise ValueError("holds a key, which every run would record; put it in a variable, named in token_env")
        fault = check_base_url(value)
        without_fault(value, fault and fault.replace("api_key_env", "token_env"))
        if info.data.get("command"):
            raise ValueError("goes without command: a server is started or reached, not both")
        if info.data.get("name") == PYTHON:
            raise ValueError(f'"{PYTHON}" is the name of the built-in sandbox; choose another name')
        return value

    @field_validator("env")
    @classmethod
    def _env(cls, value: tuple[str, ...], info: ValidationInfo[Reading]) -> tuple[str, ...]:
        for each in value:
            without_fault(each, check_variable(each))
            if each.upper().startswith("CONDUCTOR_"):
                raise ValueError(f"{each} is a variable of this program, which no server is given")
        if "command" in info.data and not info.data["command"]:
            raise ValueError("goes with command alone; remove it")
        return value

    @field_validator("token_env", mode="before")
    @classmethod
    def _token(cls, value: Any, info: ValidationInfo[Reading]) -> object:
        without_fault(value, check_variable(value) or variable_fault(value, info.context.key_variables))
        if "url" in info.data and info.data["url"] is None:
            raise ValueError("goes with url alone; give a started server its variables in env")
        return value

    @field_validator("effects", mode="before")
    @classmethod
    def _effects(cls, value: object, info: ValidationInfo[Reading]) -> object:
        if value in ("all", "none"):
            return value
        if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
            raise ValueError('must be "all", "none", or a list of the tools that change something')
        if twice := _twice(value):
            raise ValueError(f'"{shown(twice)}" is named twice')
        return tuple(value)

    @field_validator("effects", "only")
    @classmethod
    def _not_of_python(cls, value: object, info: ValidationInfo[Reading]) -> object:
        if info.data.get("name") == PYTHON:
            raise ValueError(f"{PYTHON} needs none; remove it")
        return value

    @field_validator("only")
    @classmethod
    def _of_those_offered(cls, value: tuple[str, ...], info: ValidationInfo[Reading]) -> tuple[str, ...]:
        effects = info.data.get("effects")
        if isinstance(effects, tuple) and (unknown := [each for each in effects if each not in value]):
            raise ValueError(f'effects names "{shown(unknown[0])}", which is not in it')
        return value

    @model_validator(mode="after")
    def _reached_somehow(self) -> Self:
        if self.kind == "python" and self.name != PYTHON:
            raise ValueError("needs command, to start it, or url, to reach it")
        return self


def _twice(names: Sequence[str]) -> str:
    return next((each for number, each in enumerate(names) if each in names[:number]), "")


def _no_secret_arguments(command: Sequence[str], known: Collection[str]) -> None:
    """Raises: ValueError for a key among the arguments, by its form or by the option before it."""
    for before, each in pairwise(("", *command)):
        option, sign, value = each.partition("=")
        if not sign and before.startswith("-") and "=" not in before and not each.startswith("-"):
            option, value = before, each
        if holds_a_key(each, known) or (value and is_secret_name(option.lstrip("-"))):
            raise ValueError("holds a key, which every run would record; put it in a variable, and name that in env")


class PoolForm(ModelFile):
    file: ClassVar = "pool file"
    table: ClassVar = "worker"
    others: ClassVar = ("tools",)
    needs: ClassVar = "a pool needs at least one worker"
    invalid: ClassVar = PoolInvalid

    on_incomplete: OnIncomplete | None = None
    give_question: bool | None = None
    worker: list[WorkerTable]
    tools: list[ToolsTable] = Field(default_factory=list)


def read_pool_file(path: str | Path, key_variables: Collection[str] = ()) -> PoolFile:
    """Returns what a pool file says.

    Args:
        key_variables: names that ``api_key_env`` may give though they do not look like a key's.

    Raises: PoolInvalid with every fault; each names its line, where there is one, and its key.
    """
    read = read_model_file(path, PoolForm, key_variables)
    workers = tuple(WorkerSpec(**table.given) for table in read.worker)
    tools = [ToolServerSpec(**table.model_dump()) for table in read.tools]
    named = {grant.partition(".")[0] for spec in workers for grant in spec.tools}
    if PYTHON in named and all(spec.name != PYTHON for spec in tools):
        tools.append(ToolServerSpec(name=PYTHON))
    return PoolFile(workers, read.on_incomplete, read.give_question, tuple(tools))
