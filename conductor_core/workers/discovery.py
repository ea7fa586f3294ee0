"""Model servers running on this machine, found on the ports they use by default, and their models as ready workers.

Of any worker it is found out whether it would answer, by the best proof there is that costs nothing.
"""

import asyncio
import json
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx2

from conductor_core.chat.messages import Worker, WorkerSpec
from conductor_core.chat.usage import is_count
from conductor_core.errors import WorkerError, WorkerModelUnknown, WorkerRefused
from conductor_core.files import expand_path
from conductor_core.inference.generation import ModelUnavailable
from conductor_core.inference.source import HUB_ID, context_of, local_folder, not_here
from conductor_core.privacy import masking
from conductor_core.privacy.masking import TYPED_KEY, TypedKeys, has_key, one_line, plain
from conductor_core.providers.client import ModelClient, open_client
from conductor_core.providers.errors import ServerFault, read_error_reply
from conductor_core.providers.model_files import check_name
from conductor_core.workers.pool import GgufWorker, HttpWorker, error_of
from conductor_core.workflow.model import Frozen

USUAL_PORTS: Mapping[int, str] = {
    11434: "Ollama",
    1234: "LM Studio",
    8000: "vLLM",
    8080: "llama.cpp",
    30000: "SGLang",
    4000: "LiteLLM",
}
"""Default ports, from each server's own documentation; the name is a guess until the server says who it is."""


def titles(ports: Iterable[int]) -> dict[int, str]:
    """Says what to call a server at each of ``ports`` until it says who it is."""
    return {port: USUAL_PORTS.get(port, f"port {port}") for port in ports}


_PROBE_S = 0.5
_MOST_BYTES = 1_000_000
_MOST_MODELS = 50
_OWNERS = {
    "library": "Ollama",
    "vllm": "vLLM",
    "llamacpp": "llama.cpp",
    "sglang": "SGLang",
    "organization_owner": "LM Studio",
}
_OLLAMA_SIZE = re.compile(r"(\d{1,5}(?:\.\d{1,3})?)([BM])")
_NOT_CHAT = re.compile(r"embed|rerank|whisper|tts", re.IGNORECASE)


@dataclass(frozen=True)
class FoundServer:
    """Is a model server that answered.

    ``title`` is the name that it gives, or the usual one of its port, which is ``guessed``. ``models`` are those for
    chat; a server that wants a key first (``needs_key``) names none. ``api_key_env`` is the variable whose key it was
    sent. ``parameters``: the number of each model's parameters, where the server tells. ``latency_ms``: until it
    answered.
    """

    base_url: str
    title: str
    models: tuple[str, ...] = ()
    needs_key: bool = False
    api_key_env: str | None = None
    parameters: Mapping[str, int] = field(default_factory=dict)
    latency_ms: float | None = None
    guessed: bool = False


async def find_servers(
    ports: Mapping[int, str] = USUAL_PORTS,
    *,
    host: str = "127.0.0.1",
    timeout_s: float = _PROBE_S,
    key_variables: Mapping[str, str] = MappingProxyType({}),
    keys: TypedKeys | None = None,
) -> tuple[FoundServer, ...]:
    """Asks every port at once for its models; what does not answer as a model server within ``timeout_s`` is not there.

    Args:
        key_variables: by base URL, the variable whose value that server is sent as its key.
        keys: those that were typed, each for its server.

    Returns: in the order of the ports.
    """
    # No proxy: these are this machine's own ports.
    async with httpx2.AsyncClient(timeout=timeout_s, trust_env=False, follow_redirects=False) as client:
        urls = {f"http://{host}:{port}/v1": title for port, title in ports.items()}
        found = await asyncio.gather(
            *[_ask(client, url, title, timeout_s, key_variables.get(url), keys) for url, title in urls.items()]
        )
    return tuple(server for server in found if server is not None)


def ready_workers(servers: Sequence[FoundServer]) -> tuple[WorkerSpec, ...]:
    """Makes one worker for each model, in the order of the servers. Names are unique; descriptions name the server."""
    specs: list[WorkerSpec] = []
    taken: set[str] = set()
    for server in servers:
        for model in server.models:
            parameters = server.parameters.get(model)
            size = "" if parameters is None else f" ({in_words(parameters)} parameters)"
            name = _unique(model, server.title, taken)
            taken.add(name.casefold())
            specs.append(
                WorkerSpec(
                    name=name,
                    provider="openai",
                    model=model,
                    description=f"{model}{size} on this machine, served by {server.title}"[:400],
                    base_url=server.base_url,
                    api_key_env=server.api_key_env,
                    # A local model answers one request at a time well and has no price.
                    max_concurrency=2,
                    timeout_s=300,
                )
            )
    return tuple(specs)


def in_words(parameters: int) -> str:
    """``7.6 billion``, ``494 million``."""
    billions = parameters / 1e9
    return f"{billions:.3g} billion" if billions >= 1 else f"{parameters / 1e6:.0f} million"


async def _ask(
    client: httpx2.AsyncClient,
    base_url: str,
    title: str,
    timeout_s: float,
    variable: str | None,
    keys: TypedKeys | None,
) -> FoundServer | None:
    key = "" if variable is None else os.environ.get(variable, "").strip()
    if keys is not None and (typed := keys.of(base_url)):
        key, variable = typed, TYPED_KEY
    began_s = time.perf_counter()
    headers = {"authorization": f"Bearer {key}"} if key else {}
    try:
        status, body = await _get(client, f"{base_url}/models", timeout_s, headers)
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, TimeoutError):
        return None
    latency_ms = (time.perf_counter() - began_s) * 1000
    if status in (401, 403):
        return FoundServer(base_url, title, needs_key=True, guessed=True)
    listed = read_models(body) if status == 200 else None
    if listed is None:
        return None
    named = next((_OWNERS[owned] for _, owned in listed if owned in _OWNERS), None)
    owner = named or title
    models = [model for model, _ in listed if not _NOT_CHAT.search(model)][:_MOST_MODELS]
    parameters = _reported_parameters(body)
    if owner == "Ollama" and not parameters:
        parameters = await _parameters_of_ollama(client, base_url, timeout_s)
    sent = variable if key else None
    return FoundServer(
        base_url,
        owner,
        tuple(models),
        api_key_env=sent,
        parameters=parameters,
        latency_ms=latency_ms,
        guessed=named is None,
    )


async def _get(
    client: httpx2.AsyncClient, url: str, timeout_s: float, headers: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    """Returns status and body; the body is read only under status 200. Raises: ValueError if it is too large."""
    body = bytearray()
    async with asyncio.timeout(timeout_s), client.stream("GET", url, headers=headers) as response:
        if response.status_code == 200:
            async for part in response.aiter_bytes():
                body += part
                if len(body) > _MOST_BYTES:
                    raise ValueError("the answer is too large")
    return response.status_code, bytes(body)


def _reported_parameters(body: bytes) -> dict[str, int]:
    """Reads each model's number of parameters from a list of models, where llama.cpp tells it."""
    sizes: dict[str, int] = {}
    for item in json.loads(body)["data"]:
        meta = item.get("meta") if isinstance(item, dict) else None
        count = meta.get("n_params") if isinstance(meta, dict) else None
        if is_count(count) and count > 0:
            sizes[str(item.get("id"))] = count
    return sizes


async def _parameters_of_ollama(client: httpx2.AsyncClient, base_url: str, timeout_s: float) -> dict[str, int]:
    """Reads each model's number of parameters from Ollama's own list ("7.6B"); empty if there is none."""
    try:
        status, body = await _get(client, f"{base_url[:-3]}/api/tags", timeout_s)
        document = json.loads(body) if status == 200 else None
    except (httpx2.HTTPError, TimeoutError, ValueError, RecursionError):
        return {}
    listed = document.get("models") if isinstance(document, dict) else None
    sizes: dict[str, int] = {}
    for item in listed if isinstance(listed, list) else ():
        details = item.get("details") if isinstance(item, dict) else None
        size = _OLLAMA_SIZE.fullmatch(str(details.get("parameter_size"))) if isinstance(details, dict) else None
        if size:
            sizes[str(item.get("name"))] = int(float(size[1]) * (1e9 if size[2] == "B" else 1e6))
    return sizes


def read_models(body: bytes) -> list[tuple[str, str]] | None:
    """Model ids and owners of an OpenAI or Anthropic model list; None if ``body`` is something else.

    An id that is no name for a model, or has a known key in it, is left out.
    """
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    data: Any = document.get("data") if isinstance(document, dict) else None
    if not isinstance(data, list):
        return None
    found = []
    for item in data:
        id_, owner = (item.get("id"), item.get("owned_by")) if isinstance(item, dict) else (None, None)
        if isinstance(id_, str) and 0 < len(id_) <= 200 and id_ == plain(id_) == masking.known().text(id_):
            found.append((id_, owner if isinstance(owner, str) else ""))
    return found


def read_context(body: bytes, model: str) -> int | None:
    """The tokens that ``model`` takes by a model list, as vLLM, SGLang, OpenRouter, Groq and LM Studio tell them."""
    listed = json.loads(body)["data"]
    entry = next((item for item in listed if isinstance(item, dict) and item.get("id") == model), {})
    sizes = (entry.get(key) for key in ("max_model_len", "context_length", "context_window", "max_context_length"))
    return next((tokens for tokens in sizes if is_count(tokens) and tokens > 0), None)


def _unique(model: str, title: str, taken: set[str]) -> str:
    """A name for a worker, and for a Conductor: the model's last part, told apart by its server and a number."""
    short = plain(re.sub(r"[\\#]", "-", model.rsplit("/", 1)[-1])[:60]) or title
    name, number = short, 2
    # The shipped Conductor's name, or what would be taken for a conductors file.
    means_another = name.casefold() == "tiny" or name.casefold().endswith(".toml")
    if name.casefold() in taken or check_name(name) or means_another:
        name = f"{short} ({title})"
    while name.casefold() in taken:
        name, number = f"{short} ({title} {number})", number + 1
    return name


# Whether a worker would answer.


_CHECK_S = 10.0
_MOST_LISTED_BYTES = 4_000_000


class Health(Frozen):
    """Holds the outcome of one check.

    ``latency_ms`` is None if nothing was asked. ``detail`` says on one line what was proven, or what is wrong and what
    to do. ``key``: as ``OPENAI_API_KEY: present``, None if no key is needed. ``context``: the tokens that the model
    takes, if its server or its configuration tells. ``away``: the weights of a local model are not on this machine.
    """

    ok: bool
    latency_ms: float | None
    detail: str
    key: str | None = None
    context: int | None = None
    away: bool = False


def key_state(spec: WorkerSpec, keys: TypedKeys | None = None) -> str | None:
    """``NAME: present`` or ``NAME: missing``; None for a worker that needs no key."""
    if spec.api_key_env is None:
        return None
    return f"{spec.api_key_env}: {'present' if has_key(spec.api_key_env, spec.base_url, keys) else 'missing'}"


async def check_health(worker: Worker, within_s: float = _CHECK_S) -> Health:
    """Asks the provider for its models. A provider that says nothing for ``within_s`` seconds counts as away.

    Uses its own connections, so that any event loop can call it. Asks nothing of a local or rehearsal worker.
    """
    spec = worker.spec
    if not isinstance(worker, HttpWorker):
        if isinstance(worker, GgufWorker):
            return await asyncio.to_thread(_health_of_file, spec, worker.file)
        if spec.provider != "local":
            return Health(ok=True, latency_ms=None, detail="simulated, always available")
        if HUB_ID.fullmatch(spec.model) and await asyncio.to_thread(local_folder, spec.model) is None:
            said = f"worker {spec.name}: {not_here(spec.model)}"
            return Health(ok=False, latency_ms=None, detail=said, away=True)
        reads_at_most = await asyncio.to_thread(context_of, spec.model)
        reads = "" if reads_at_most is None else f"; it reads up to {reads_at_most:,} tokens"
        detail = f"runs on this machine, loaded when first asked{reads}"
        return Health(ok=True, latency_ms=None, detail=detail, context=reads_at_most)
    context: int | None = None
    started_s, within_s = time.perf_counter(), min(within_s, spec.timeout_s)
    try:
        async with asyncio.timeout(within_s):
            detail, context = await _models_of(worker.client)
        ok = True
    except ServerFault as fault:
        ok, detail = False, masking.known().text(str(error_of(fault)))
    except WorkerError as error:
        ok, detail = False, masking.known().text(str(error))
    except TimeoutError:
        ok, detail = False, f"worker {spec.name}: no answer within {within_s:g} s"
    latency_ms = (time.perf_counter() - started_s) * 1000
    return Health(ok=ok, latency_ms=latency_ms, detail=detail, key=key_state(spec, worker.client.keys), context=context)


def _health_of_file(spec: WorkerSpec, file: Path) -> Health:
    from conductor_core.inference.llama import checked

    try:
        header = checked(file, None if spec.lora is None else expand_path(spec.lora))
    except ModelUnavailable as error:
        return Health(ok=False, latency_ms=None, detail=f"worker {spec.name}: {error}", away=True)
    reads = "" if header.context is None else f"; made for up to {header.context:,} tokens"
    return Health(
        ok=True,
        latency_ms=None,
        detail=f"runs on this machine by llama.cpp ({header.quantisation}), loaded when first asked{reads}",
    )


async def _models_of(client: ModelClient) -> tuple[str, int | None]:
    """What was proven, and the model's context where that is told.

    Raises: ServerFault if the server is away or refuses the key; WorkerError if it does not have the model.
    """
    spec, dialect = client.spec, client.dialect
    key = client.key()
    url = httpx2.URL(dialect.models_url(spec))
    body = bytearray()
    try:
        async with open_client(spec) as asking, asking.stream("GET", url, headers=dialect.headers(key)) as response:
            async for part in response.aiter_raw():
                body += part
                if len(body) > _MOST_LISTED_BYTES:
                    break
    except httpx2.TransportError as error:
        raise client.fault_of_connection(error) from error
    if response.status_code in (404, 405, 501) and url.path.endswith("/models"):
        return "reached; it does not list its models, so the first step will show whether it has this one", None
    if response.status_code != 200:
        said = read_error_reply(bytes(body), response.headers.get("content-type", ""))
        raise client.fault_of(response.status_code, said)
    if not url.path.endswith("/models"):
        return "reached; it knows the model", None
    models = read_models(bytes(body))
    if models is None:
        raise WorkerRefused(f"worker {spec.name}: what answers at {url.host} is not a model server; check base_url")
    names = sorted({name.removeprefix("models/") for name, _ in models})
    if {spec.model, f"{spec.model}:latest"}.isdisjoint(names):
        if [owner for _, owner in models] == ["llamacpp"]:
            return f"reached; llama.cpp answers any name with its one model, {names[0]}", None
        listed = one_line(", ".join(names), limit=200) or "none"
        raise WorkerModelUnknown(
            f"worker {spec.name}: {spec.model} is not among the server's models ({listed}); check model"
        )
    return "reached; it lists the model", read_context(bytes(body), spec.model)
