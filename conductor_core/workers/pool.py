"""Opens a worker of any real provider."""

from conductor_core.chat.messages import Worker, WorkerSpec
from conductor_core.errors import BadInput
from conductor_core.privacy import masking
from conductor_core.privacy.masking import TypedKeys
from conductor_core.providers.anthropic import AnthropicDialect
from conductor_core.providers.model_files import check_spec
from conductor_core.providers.openai import OpenAIDialect
from conductor_core.settings import Settings
from conductor_core.workers.http import HttpWorker


def open_worker(spec: WorkerSpec, settings: Settings, keys: TypedKeys | None = None) -> Worker:
    """Opens the worker that ``spec`` describes. Connects to nothing and loads no model before its first answer.

    ``keys``: where a typed key is found.

    Raises: BadInput for a rehearsal worker (``conductor_core.rehearsal`` opens those), for a key in one of its fields,
        for a key in a variable that does not look like one, and for a key that is too short to be hidden.
    """
    check_spec(spec, settings.key_variables)
    # Before any worker of the pool is asked: what one provider knows, another may.
    masking.remember_variable(spec.api_key_env)
    if spec.provider == "openai":
        return HttpWorker(spec, OpenAIDialect(), keys)
    if spec.provider == "anthropic":
        return HttpWorker(spec, AnthropicDialect(), keys)
    if spec.provider == "local":
        # Imported here because it brings torch, which a pool of remote workers never needs.
        from conductor_core.workers.local import LocalWorker

        return LocalWorker(spec, settings.model_idle_s, drafts=settings.drafts)
    raise BadInput(f"worker {spec.name}: a rehearsal worker is simulated and has no provider to open")
