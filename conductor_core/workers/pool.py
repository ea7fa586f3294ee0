"""The worker pool's doors: read a pool file, open a worker, find local servers, check a worker's health."""

import os

from conductor_core import masking
from conductor_core.chat import Worker, WorkerSpec
from conductor_core.errors import BadInput
from conductor_core.pasted_keys import check_spec
from conductor_core.settings import Settings
from conductor_core.workers.anthropic import AnthropicDialect
from conductor_core.workers.discovery import FoundServer, discover_local_servers, find_servers, ready_workers, titles
from conductor_core.workers.health import Health, check_health
from conductor_core.workers.http import HttpWorker
from conductor_core.workers.openai import OpenAIDialect
from conductor_core.workers.pool_file import POOL_FILES, load_pool_file, read_pool_file

__all__ = [
    "POOL_FILES",
    "FoundServer",
    "Health",
    "check_health",
    "discover_local_servers",
    "find_servers",
    "load_pool_file",
    "open_worker",
    "read_pool_file",
    "ready_workers",
    "titles",
]


def open_worker(spec: WorkerSpec, settings: Settings) -> Worker:
    """The worker that ``spec`` describes. Nothing is connected and no model loaded before its first answer.

    Raises: BadInput for a rehearsal worker: those come from ``conductor_core.rehearsal``; and for one in whose fields a
        key stands, or whose key is in a variable that does not look like one.
    """
    check_spec(spec, settings.key_variables)
    if spec.api_key_env is not None:
        # Before any worker of the pool is asked: what one provider knows, another may.
        masking.remember(os.environ.get(spec.api_key_env, "").strip())
    if spec.provider == "openai":
        return HttpWorker(spec, OpenAIDialect())
    if spec.provider == "anthropic":
        return HttpWorker(spec, AnthropicDialect())
    if spec.provider == "local":
        # Imported here because it brings torch, which a pool of remote workers never needs.
        from conductor_core.workers.local import LocalWorker

        return LocalWorker(spec, settings.model_idle_s)
    raise BadInput(f"worker {spec.name}: a rehearsal worker is simulated and has no provider to open")
