"""Where a worker's and a Conductor's calls go: the host of its server."""

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from conductor_core.chat.messages import ConductorInfo, WorkerSpec

OPENAI_URL = "https://api.openai.com/v1"
ANTHROPIC_URL = "https://api.anthropic.com/v1"
_USUAL_SERVERS = {"openai": OPENAI_URL, "anthropic": ANTHROPIC_URL}


def servers(spec: WorkerSpec) -> set[str]:
    """Returns the names by which a gate may name the provider of ``spec``: its kind and its server's host."""
    return {spec.provider, *_hosts(spec.base_url or _USUAL_SERVERS.get(spec.provider))}


UNKNOWN_HOST = "a host that is not recorded"
"""Of a Conductor behind a server in older records that name it and not its address."""


def servers_of_conductor(conductor: ConductorInfo | None) -> set[str]:
    """Returns the names by which a gate may name the provider of a Conductor."""
    if conductor is None or conductor.kind == "local":
        return {"local"}
    return {"openai", *_hosts(_url_of_conductor(conductor))}


def server_of(spec: WorkerSpec) -> str:
    """Returns the host of the worker's server, with the port that its address names; empty: it runs in this process."""
    return host_of(spec.base_url or _USUAL_SERVERS.get(spec.provider))


def server_of_conductor(conductor: ConductorInfo) -> str:
    """Returns the host of a Conductor's server, as ``server_of`` does for a worker's; or ``UNKNOWN_HOST``."""
    return "" if conductor.kind == "local" else host_of(_url_of_conductor(conductor)) or UNKNOWN_HOST


def host_of(url: str | None) -> str:
    """Returns the host of an address, with the port that it names; empty: it names none."""
    return max(_hosts(url), key=len, default="")


def sent_beside(spec: WorkerSpec) -> str:
    """Returns what a request to the worker's server says beside the messages, a line each: path, model, parameters."""
    return _beside(spec.base_url or _USUAL_SERVERS.get(spec.provider), spec.model, spec.params)


def sent_beside_by_conductor(conductor: ConductorInfo) -> str:
    """Returns the same of a Conductor, as far as its record says it."""
    return _beside(_url_of_conductor(conductor), conductor.model, conductor.params)


def _url_of_conductor(conductor: ConductorInfo) -> str:
    return conductor.base_url or conductor.name.partition("#")[0]


def _beside(url: str | None, model: str, params: Mapping[str, Any]) -> str:
    try:
        path = urlsplit(url or "").path.strip("/")
    except ValueError:
        path = ""
    lines = [f"/{path}"] if path else []
    return "\n".join([*lines, f"model: {model}", *_lines(params, "")])


def _lines(value: Any, name: str) -> Iterator[str]:
    """Yields each text or figure of a parameter, however deep, with its name: ``metadata.customer: Ada``."""
    match value:
        case Mapping():
            for key, item in value.items():
                yield from _lines(item, f"{name}.{key}" if name else str(key))
            if name and not value:
                yield f"{name}:"
        case list() | tuple():
            for item in value:
                yield from _lines(item, name)
            if not value:
                yield f"{name}:"
        case str():
            yield f"{name}: {value}"
        case _:
            yield f"{name}: {json.dumps(value)}"


def _hosts(url: str | None) -> set[str]:
    try:
        parts = urlsplit(url or "")
    except ValueError:
        return set()
    # The dot at its end names the same host.
    host = (parts.hostname or "").rstrip(".")
    port = parts.netloc.rpartition("@")[2].rpartition(":")[2]
    return {host, f"{host}:{port}"} if host and port.isdigit() else {host} - {""}
