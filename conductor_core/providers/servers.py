"""Where a worker's and a Conductor's calls go: the host of its server."""

from urllib.parse import urlsplit

from conductor_core.chat.messages import ConductorInfo, WorkerSpec

OPENAI_URL = "https://api.openai.com/v1"
ANTHROPIC_URL = "https://api.anthropic.com/v1"
_USUAL_SERVERS = {"openai": OPENAI_URL, "anthropic": ANTHROPIC_URL}


def servers(spec: WorkerSpec) -> set[str]:
    """Returns the names by which a gate may name the provider of ``spec``: its kind and its server's host."""
    return {spec.provider, *_hosts(spec.base_url or _USUAL_SERVERS.get(spec.provider))}


def servers_of_conductor(conductor: ConductorInfo | None) -> set[str]:
    """Returns the names by which a gate may name the provider of a Conductor."""
    if conductor is None or conductor.kind == "local":
        return {"local"}
    return {"openai", *_hosts(conductor.name.partition("#")[0])}


def server_of(spec: WorkerSpec) -> str:
    """Returns the host of the worker's server, with the port that its address names; empty: it runs in this process."""
    return max(_hosts(spec.base_url or _USUAL_SERVERS.get(spec.provider)), key=len, default="")


def server_of_conductor(conductor: ConductorInfo) -> str:
    """Returns the host of a Conductor's server, as ``server_of`` does for a worker's."""
    return "" if conductor.kind == "local" else max(_hosts(conductor.name.partition("#")[0]), key=len, default="")


def _hosts(url: str | None) -> set[str]:
    try:
        parts = urlsplit(url or "")
    except ValueError:
        return set()
    # The dot at its end names the same host.
    host = (parts.hostname or "").rstrip(".")
    port = parts.netloc.rpartition("@")[2].rpartition(":")[2]
    return {host, f"{host}:{port}"} if host and port.isdigit() else {host} - {""}
