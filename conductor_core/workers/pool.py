"""Opens a worker of any real provider. ``providers.client`` asks servers; this makes workers' errors."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from types import MappingProxyType

import httpx2

from conductor_core.chat.messages import (
    NO_TERMS,
    CallTerms,
    Chunk,
    Departure,
    Finished,
    Message,
    TextDelta,
    Weights,
    Worker,
    WorkerSpec,
)
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
from conductor_core.files import expand_path
from conductor_core.inference.found import gguf_path
from conductor_core.inference.generation import (
    Done,
    Generation,
    InferenceError,
    ModelNotHere,
    ModelUnavailable,
    ProcessEnded,
    PromptTooLong,
)
from conductor_core.inference.gguf_file import known_digest
from conductor_core.inference.llama import REQUEST, URL, checked, shared_llama
from conductor_core.inference.shared import shared_model
from conductor_core.privacy import masking
from conductor_core.privacy.masking import TYPED_KEY, TypedKeys
from conductor_core.providers.answer_text import TURN_TOKENS, AnswerText
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
        self.spec, self._params = spec, _params_of(spec)
        self._model = shared_model(spec.model)
        if idle_s is not None:
            self._model.idle_s = idle_s

    async def answer(self, messages: Sequence[Message], terms: CallTerms = NO_TERMS) -> AsyncGenerator[Chunk, None]:
        """See ``Worker.answer``. Answers of one model wait for each other: it writes one at a time.

        It is offered no tools, because not every template knows them.
        """
        params = self._params
        generation = Generation(
            prompt=tuple(messages),
            max_tokens=min(params.max_tokens, terms.rules.max_tokens or params.max_tokens),
            sampling=params,
            seed=params.seed,
            thinking=params.thinking,
        )
        allowed = self.spec.max_output_bytes
        answer = AnswerText(messages, passed=self.spec.pass_reasoning)
        no_tools = (Departure(kind="left_out", what="tools"),) if terms.tools else ()
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
                            departures=(*answer.departures, *no_tools),
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


SILENCE_S = 3600.0
"""Seconds between two pieces of a GGUF model's answer: on a slow processor a large one may take its time."""


class GgufWorker:
    """Answers steps with a GGUF file, which llama.cpp runs in a process of ours from the first answer on.

    Attributes: file: the one that ``spec.model`` names.
    """

    def __init__(self, spec: WorkerSpec, models_folder: Path, data_folder: Path, idle_s: float | None = None) -> None:
        """``models_folder``: where our own files lie, for a model named by its title (``inference.found``).
        ``data_folder``: where digests of files are kept. ``idle_s``: seconds without a request after which its process
        ends; None: what it was before.

        Raises: PoolInvalid if ``spec.params`` holds something that a local model does not know.
        """
        self.spec, self._params = spec, _params_of(spec)
        self._data_folder = data_folder
        self.file = file = gguf_path(spec.model, models_folder)
        self._llama = shared_llama(file, None if spec.lora is None else expand_path(spec.lora))
        if idle_s is not None:
            self._llama.idle_s = idle_s
        served = spec.model_copy(update={"model": file.name, "base_url": URL, "params": {}, "timeout_s": SILENCE_S})
        self._client = ModelClient(
            served, OpenAIDialect(), f"worker {spec.name}", key_hint="", limit_s=86_400, socket=self._llama.socket
        )

    async def answer(self, messages: Sequence[Message], terms: CallTerms = NO_TERMS) -> AsyncGenerator[Chunk]:
        """See ``Worker.answer``. Answers of one model wait for each other: it writes one at a time."""
        params, passed = self._params, self.spec.pass_reasoning
        most = min(params.max_tokens, terms.rules.max_tokens or params.max_tokens)
        try:
            async with self._llama.turn() as turn:
                inert = await turn.inert(messages)
                body: Mapping[str, object] = {
                    **self._client.dialect.body(self._client.spec, inert, terms),
                    **REQUEST,
                    "chat_template_kwargs": {"enable_thinking": params.thinking},
                    "temperature": params.temperature,
                    "top_p": params.top_p,
                    "top_k": params.top_k,
                    "seed": params.seed & 0x7FFFFFFF,
                    "max_tokens": most,
                    "cache_prompt": False,
                    "stop": [*await asyncio.to_thread(self._ends, inert), *terms.rules.stop],
                }
                asked = self._client.ask(inert, body, passed=passed, watch=turn.progress(most))
                async with aclosing(asked) as chunks:
                    async for chunk in chunks:
                        if isinstance(chunk, Finished):
                            yield chunk.model_copy(update={"weights": await asyncio.to_thread(self._weights)})
                        else:
                            yield chunk
        except ServerFault as fault:
            raise error_of(fault) from fault
        except (InferenceError, httpx2.TransportError) as error:
            raise _kind_of(error)(f"worker {self.spec.name}: {error}") from error

    def _ends(self, messages: Sequence[Message]) -> list[str]:
        """Returns the texts that end an answer.

        A model without a chat template knows no token that ends its turn. It may write one as text, and goes on to its
        limit with what nobody reads (``providers.answer_text``).
        """
        asked = "\n".join(message.text for message in messages)
        known = checked(self.file).has_chat_template
        return [] if known else [token for token in TURN_TOKENS if token not in asked]

    def _weights(self) -> Weights:
        return Weights(parameters=checked(self.file).parameters, sha256=known_digest(self.file, self._data_folder))

    async def aclose(self) -> None:
        """The model stays with the process, for all who share it."""
        await self._client.aclose()


def _params_of(spec: WorkerSpec) -> LocalParams:
    """Returns how a model of this machine answers. Raises: PoolInvalid for a parameter that it does not know."""
    if fault := sampling_fault(spec.params, LocalParams):
        raise PoolInvalid(f"worker {spec.name}: params: {fault}", [fault])
    return LocalParams.model_validate(dict(spec.params))


def _kind_of(error: Exception) -> type[WorkerError]:
    if isinstance(error, ProcessEnded):
        return WorkerStreamCut
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

    async def answer(self, messages: Sequence[Message], terms: CallTerms = NO_TERMS) -> AsyncGenerator[Chunk]:
        """Streams an answer, see ``Worker.answer``. Refuses a missing key before it connects.

        It masks the keys that this process knows in all that it yields or raises.
        """
        try:
            body = self.client.dialect.body(self.spec, messages, terms)
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
        return GgufWorker(spec, settings.models_folder, settings.data_folder, settings.model_idle_s)
    raise BadInput(f"worker {spec.name}: a rehearsal worker is simulated and has no provider to open")
