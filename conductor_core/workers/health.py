"""Whether a worker would answer: the best proof there is that costs nothing."""

import asyncio
import time
from pathlib import Path

import httpx2

from conductor_core.chat.messages import Worker, WorkerSpec
from conductor_core.errors import WorkerError, WorkerModelUnknown, WorkerRefused
from conductor_core.files import expand_path
from conductor_core.inference.generation import ModelUnavailable
from conductor_core.inference.source import HUB_ID, context_of, local_folder, not_here
from conductor_core.privacy import masking
from conductor_core.privacy.masking import TypedKeys, has_key, one_line
from conductor_core.providers.client import ModelClient, open_client
from conductor_core.providers.errors import ServerFault, read_error_reply
from conductor_core.workers.discovery import read_context, read_models
from conductor_core.workers.pool import GgufWorker, HttpWorker, error_of
from conductor_core.workflow.model import Frozen

_CHECK_S = 10.0
_MOST_BYTES = 4_000_000


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
                if len(body) > _MOST_BYTES:
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
