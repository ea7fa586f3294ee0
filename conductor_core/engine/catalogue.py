"""Lists what a run can choose from, for the pages, which know the engine and no package below it.

The functions that ask servers block. They are for callers without an event loop.
"""

import asyncio
import json
import os
from collections.abc import Iterable, Mapping, Sequence

from conductor_core import masking
from conductor_core.chat import WorkerSpec
from conductor_core.conductors.catalogue import ConductorOption, conductor_faults, list_conductors
from conductor_core.conductors.seating import cast_of
from conductor_core.engine.pool import open_worker
from conductor_core.engine.preflight import look, preflight
from conductor_core.errors import BadInput, InspectorError
from conductor_core.events import Limits
from conductor_core.keys import is_set
from conductor_core.pasted_keys import variable_fault
from conductor_core.rehearsal import EXAMPLES, Example
from conductor_core.settings import Settings
from conductor_core.workers import discovery
from conductor_core.workers.discovery import FoundServer, ready_workers
from conductor_core.workers.health import Health, check_health, key_state

__all__ = [
    "EXAMPLES",
    "ConductorOption",
    "Example",
    "FoundServer",
    "Health",
    "cast_of",
    "check_all",
    "check_conductor",
    "check_worker",
    "conductor_faults",
    "conductors_file_text",
    "discover_local_servers",
    "find_servers",
    "key_state",
    "list_conductors",
    "pool_file_text",
    "ready_workers",
]


def check_worker(spec: WorkerSpec, settings: Settings) -> Health:
    """Checks whether the provider of ``spec`` would answer: asks it for its models, which costs nothing."""

    async def check() -> Health:
        worker = open_worker(spec, settings, settings.seed)
        try:
            return await check_health(worker)
        finally:
            await worker.aclose()

    return asyncio.run(check())


def check_conductor(ref: str, settings: Settings) -> Health:
    """Checks whether the Conductor ``ref`` would write: asks its server for its models. Raises: BadInput."""
    [part] = preflight(ref, (), Limits(), settings).parts
    return Health(ok=part.ok, latency_ms=part.latency_ms, detail=part.detail)


def check_all(
    refs: Sequence[str], specs: Sequence[WorkerSpec], settings: Settings
) -> tuple[dict[str, Health], dict[str, Health]]:
    """Returns the health of Conductors and workers by name, all asked at once. An unknown Conductor has its fault."""

    async def conductor(ref: str) -> Health:
        try:
            [part] = (await look(ref, (), Limits(), settings)).parts
        except InspectorError as error:
            return Health(ok=False, latency_ms=None, detail=str(error))
        return Health(ok=part.ok, latency_ms=part.latency_ms, detail=part.detail)

    async def ask() -> tuple[dict[str, Health], dict[str, Health]]:
        written, workers = await asyncio.gather(
            asyncio.gather(*map(conductor, refs)), look(None, specs, Limits(), settings)
        )
        told = {part.name: Health(ok=part.ok, latency_ms=part.latency_ms, detail=part.detail) for part in workers.parts}
        return dict(zip(refs, written, strict=True)), told

    return asyncio.run(ask())


def discover_local_servers(settings: Settings) -> tuple[WorkerSpec, ...]:
    """Returns the models of the servers on the settings' ports, as ready workers."""
    return asyncio.run(discovery.discover_local_servers(discovery.titles(settings.server_ports)))


def find_servers(key_variables: Mapping[str, str], settings: Settings) -> tuple[FoundServer, ...]:
    """Returns the model servers on the settings' ports, including those that want a key.

    Args:
        key_variables: by base URL, the variable whose value is sent to that server as its key.

    Raises: BadInput for a variable that does not look like a key's, or is not set; then no server is asked.
    """
    for variable in key_variables.values():
        if fault := variable_fault(variable, settings.key_variables):
            raise BadInput(fault)
        if not is_set(variable):
            raise BadInput(f"{variable} is not set where the inspector was started")
        masking.remember(os.environ[variable].strip())
    return asyncio.run(discovery.find_servers(discovery.titles(settings.server_ports), key_variables=key_variables))


def conductors_file_text(specs: Iterable[WorkerSpec]) -> str:
    """Returns a conductors file (TOML) with the models of ``specs`` as Conductors."""
    keys = ("name", "model", "base_url", "api_key_env")
    tables = [{key: getattr(spec, key) for key in keys} for spec in specs]
    return "\n".join(
        "\n".join(["[[conductor]]", *(f"{key} = {_toml(value)}" for key, value in table.items() if value), ""])
        for table in tables
    )


def pool_file_text(specs: Iterable[WorkerSpec]) -> str:
    """Returns a pool file (TOML) with ``specs``, to be saved and edited, without defaults."""
    return "\n".join(_worker_table(spec) for spec in specs)


def _worker_table(spec: WorkerSpec) -> str:
    # A JSON string, number or boolean is the same in TOML, but for the character DEL, which TOML wants escaped.
    lines = ["[[worker]]"]
    for key, value in spec.model_dump(mode="json", exclude_defaults=True).items():
        lines.append(f"{key} = {_toml(value)}")
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return (
            "{ "
            + ", ".join(
                f"{key if key.isidentifier() and key.isascii() else json.dumps(key)} = {_toml(item)}"
                for key, item in value.items()
            )
            + " }"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
