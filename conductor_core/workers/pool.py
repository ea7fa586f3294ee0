"""Opens a worker of any real provider. ``providers.client`` asks servers; this makes workers' errors."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from types import MappingProxyType

from conductor_core.chat.messages import Chunk, Finished, Message, TextDelta, Weights, Worker, WorkerSpec
from conductor_core.errors import (
    BadInput,
    PoolInvalid,
    WorkerCertificate,
    WorkerContextOverflow,
    WorkerError,
    WorkerFailed,
    WorkerFiltered,
    WorkerKeyRefused,
    WorkerLoading,
    WorkerModelUnknown,
    WorkerModelUnusable,
    WorkerNoImages,
    WorkerOutputTooLarge,
    WorkerRateLimited,
    WorkerRefused,
    WorkerStreamCut,
    WorkerTimedOut,
    WorkerUnpaid,
    WorkerUnreachable,
)
from conductor_core.inference.generation import (
    Done,
    Generation,
    InferenceError,
    ModelNotHere,
    ModelUnavailable,
    PromptTooLong,
)
from conductor_core.inference.shared import shared_model
from conductor_core.privacy import masking
from conductor_core.privacy.masking import TYPED_KEY, TypedKeys
from conductor_core.providers.answer_text import AnswerText
from conductor_core.providers.anthropic import AnthropicDialect
from conductor_core.providers.client import Dialect, ModelClient
from conductor_core.providers.errors import FaultKind, ServerFault
from conductor_core.providers.model_files import check_spec, sampling_fault
from conductor_core.providers.openai import OpenAIDialect
from conductor_core.settings import Settings
from conductor_core.workers.pool_file import LocalParams


class LocalWorker:
    """Answers steps with ``spec.model``, a folder or hub id. Nothing is loaded before the first answer."""

    def __init__(self, spec: WorkerSpec, idle_s: float | None = None) -> None:
        """Loads nothing.

        Args:
            idle_s: seconds after which a model that nobody asks leaves memory; None: what it was before.

        Raises: PoolInvalid if ``spec.params`` holds something that a local model does not know."""
        if fault := sampling_fault(spec.params, LocalParams):
            raise PoolInvalid(f"worker {spec.name}: params: {fault}", [fault])
        self.spec = spec
        self._model = shared_model(spec.model)
        if idle_s is not None:
            self._model.idle_s = idle_s
        self._params = LocalParams.model_validate(dict(spec.params))

    async def answer(self, messages: Sequence[Message]) -> AsyncGenerator[Chunk, None]:
        """See ``Worker.answer``. Answers of one model wait for each other: it writes one at a time."""
        params = self._params
        generation = Generation(
            prompt=tuple(messages),
            max_tokens=params.max_tokens,
            sampling=params,
            seed=params.seed,
            thinking=params.thinking,
        )
        allowed = self.spec.max_output_bytes
        answer = AnswerText(messages, passed=self.spec.pass_reasoning)
        try:
            async with aclosing(self._model.stream(generation)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Done):
                        loaded = self._model.loaded
                        for chunk in answer.rest():
                            yield chunk
                        yield Finished(
                            finish_reason=piece.finish_reason,
                            usage=piece.usage,
                            model=self.spec.model,
                            departures=answer.departures,
                            weights=loaded and Weights(parameters=loaded.files.parameters),
                        )
                        return
                    allowed -= len(piece.encode())
                    if allowed < 0:
                        raise WorkerOutputTooLarge(
                            f"worker {self.spec.name}: wrote over the {self.spec.max_output_bytes:,} bytes it may"
                        )
                    for chunk in answer.feed(TextDelta(text=piece)):
                        yield chunk
        except InferenceError as error:
            raise _kind_of(error)(f"worker {self.spec.name}: {error}") from error

    async def aclose(self) -> None:
        """Nothing to release: the model stays with the process, for all who share it."""


def _kind_of(error: InferenceError) -> type[WorkerRefused]:
    if isinstance(error, PromptTooLong):
        return WorkerContextOverflow
    if isinstance(error, ModelNotHere):
        return WorkerModelUnknown
    return WorkerModelUnusable if isinstance(error, ModelUnavailable) else WorkerRefused


_ERRORS: Mapping[FaultKind, type[WorkerError]] = MappingProxyType(
    {
        "filtered": WorkerFiltered,
        "unpaid": WorkerUnpaid,
        "key": WorkerKeyRefused,
        "too_long": WorkerContextOverflow,
        "no_images": WorkerNoImages,
        "model": WorkerModelUnknown,
        "rate": WorkerRateLimited,
        "timeout": WorkerTimedOut,
        "loading": WorkerLoading,
        "failed": WorkerFailed,
        "refused": WorkerRefused,
        "unreachable": WorkerUnreachable,
        "certificate": WorkerCertificate,
        "cut": WorkerStreamCut,
        "too_large": WorkerOutputTooLarge,
    }
)


def error_of(fault: ServerFault) -> WorkerError:
    """Returns the worker's error for what went wrong at its server."""
    kind, message = _ERRORS[fault.kind], str(fault)
    if kind is WorkerRefused:
        return WorkerRefused(message, of_request=fault.of_request)
    if issubclass(kind, WorkerRefused):
        return kind(message)
    error = kind(message)
    error.retry_after_s = fault.retry_after_s
    return error


class HttpWorker:
    """Answers steps through one provider. Its connections belong to the event loop that first used it."""

    def __init__(self, spec: WorkerSpec, dialect: Dialect, keys: TypedKeys | None = None) -> None:
        self.spec = spec
        if spec.api_key_env is None:
            hint = "name the variable that holds its key as api_key_env in the pool file"
        elif spec.api_key_env == TYPED_KEY:
            hint = "type its key again on the Run page"
        else:
            hint = f"check the key in {spec.api_key_env}"
        self.client = ModelClient(spec, dialect, f"worker {spec.name}", key_hint=hint, keys=keys)

    async def answer(self, messages: Sequence[Message]) -> AsyncGenerator[Chunk]:
        """Streams an answer, see ``Worker.answer``. Refuses a missing key before it connects.

        It masks the keys that this process knows in all that it yields or raises.
        """
        try:
            body = self.client.dialect.body(self.spec, messages)
            asked = self.client.ask(messages, body, passed=self.spec.pass_reasoning)
            async with aclosing(asked) as chunks:
                async for chunk in chunks:
                    yield chunk
        except ServerFault as fault:
            raise error_of(fault) from fault

    async def aclose(self) -> None:
        await self.client.aclose()


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
        return LocalWorker(spec, settings.model_idle_s)
    if spec.provider == "gguf":
        # When used: a pool without such a file needs no llama.cpp.
        from conductor_core.workers.gguf import GgufWorker

        return GgufWorker(spec, settings.models_folder, settings.data_folder, settings.model_idle_s)
    raise BadInput(f"worker {spec.name}: a rehearsal worker is simulated and has no provider to open")
