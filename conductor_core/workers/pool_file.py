"""Reads a pool file: TOML with one ``[[worker]]`` table per worker, and options for runs on the pool.

All faults are reported, each with its place. The options say how runs on the pool go unless they say otherwise.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from pydantic import Field, ValidationInfo, field_validator

from conductor_core.chat.messages import ACCEPTED, HERE, OnIncomplete, Sampling, WorkerSpec
from conductor_core.errors import PoolInvalid
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

    @field_validator("accepts", mode="before")
    @classmethod
    def _kinds(cls, value: object, info: ValidationInfo[Reading]) -> tuple[str, ...]:
        if not isinstance(value, list) or "text" not in value or not all(kind in ACCEPTED for kind in value):
            raise ValueError('must be ["text"] or ["text", "image"]')
        provider = info.data.get("provider")
        if provider in (*HERE, "rehearsal") and "image" in value:
            raise ValueError(f"a {provider} worker accepts text alone; remove it")
        return tuple(kind for kind in ACCEPTED if kind in value)


class PoolForm(ModelFile):
    file: ClassVar = "pool file"
    table: ClassVar = "worker"
    needs: ClassVar = "a pool needs at least one worker"
    invalid: ClassVar = PoolInvalid

    on_incomplete: OnIncomplete | None = None
    give_question: bool | None = None
    worker: list[WorkerTable]


class PoolFile(NamedTuple):
    """What a pool file says. The options are None where the file leaves them to the settings.

    Attributes:
        workers: in the file's order, which is the order of their ordinals.
        on_incomplete: what happens to a step whose answer is not whole. give_question: tell every step the task.
    """

    workers: tuple[WorkerSpec, ...]
    on_incomplete: OnIncomplete | None = None
    give_question: bool | None = None


def read_pool_file(path: str | Path, key_variables: Collection[str] = ()) -> PoolFile:
    """Returns what a pool file says.

    Args:
        key_variables: names that ``api_key_env`` may give though they do not look like a key's.

    Raises: PoolInvalid with every fault; each names its line, where there is one, and its key.
    """
    read = read_model_file(path, PoolForm, key_variables)
    return PoolFile(tuple(WorkerSpec(**table.given) for table in read.worker), read.on_incomplete, read.give_question)
