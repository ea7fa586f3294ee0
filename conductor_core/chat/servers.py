"""Where a worker's and a Conductor's calls go: the host of its server."""

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from conductor_core.chat.messages import ConductorInfo, WorkerSpec

OPENAI_URL = "https://api.openai.com/v1"
ANTHROPIC_URL = "https://api.anthropic.com/v1"
_USUAL_SERVERS = {"openai": OPENAI_URL, "anthropic": ANTHROPIC_URL}


UNKNOWN_HOST = "a host that is not recorded"
"""Of a Conductor behind a server whose record does not say its address."""

Model = WorkerSpec | ConductorInfo


def provider_of(model: Model) -> str:
    if isinstance(model, WorkerSpec):
        return model.provider
    return "local" if model.kind == "local" else "openai"


def servers(model: Model) -> set[str]:
    """Returns the names by which a gate may name the provider of a model: its kind and its server's host."""
    return {provider_of(model), *_hosts(_url_of(model))}


def server_of(model: Model) -> str:
    """Returns the host of the model's server, with the port that its address names; empty: it runs in this process."""
    unknown = UNKNOWN_HOST if isinstance(model, ConductorInfo) and model.kind == "remote" else ""
    return host_of(_url_of(model)) or unknown


def host_of(url: str | None) -> str:
    """Returns the host of an address, with the port that it names; empty: it names none."""
    return max(_hosts(url), key=len, default="")


def sent_beside(model: Model) -> str:
    """Returns what a request to the model's server says beside the messages, a line each: path, model, parameters."""
    try:
        path = urlsplit(_url_of(model) or "").path.strip("/")
    except ValueError:
        path = ""
    lines = [f"/{path}"] if path else []
    return "\n".join([*lines, f"model: {model.model}", *_lines(model.params, "")])


def _url_of(model: Model) -> str | None:
    if isinstance(model, WorkerSpec):
        return model.base_url or _USUAL_SERVERS.get(model.provider)
    return None if model.kind == "local" else model.base_url or model.name.partition("#")[0]


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
