"""Workers behind an HTTP interface. ``providers.client`` asks; this names the server and makes workers' errors."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from types import MappingProxyType

from conductor_core.chat.messages import Chunk, Message, WorkerSpec
from conductor_core.errors import (
    WorkerCertificate,
    WorkerContextOverflow,
    WorkerError,
    WorkerFailed,
    WorkerFiltered,
    WorkerKeyRefused,
    WorkerLoading,
    WorkerModelUnknown,
    WorkerNoImages,
    WorkerOutputTooLarge,
    WorkerRateLimited,
    WorkerRefused,
    WorkerStreamCut,
    WorkerTimedOut,
    WorkerUnpaid,
    WorkerUnreachable,
)
from conductor_core.privacy.masking import TYPED_KEY, TypedKeys
from conductor_core.providers.client import Dialect, ModelClient
from conductor_core.providers.errors import FaultKind, ServerFault

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


def client_of(spec: WorkerSpec, dialect: Dialect, keys: TypedKeys | None = None) -> ModelClient:
    """Returns the client that asks the worker of ``spec``."""
    if spec.api_key_env is None:
        hint = "name the variable that holds its key as api_key_env in the pool file"
    elif spec.api_key_env == TYPED_KEY:
        hint = "type its key again on the Run page"
    else:
        hint = f"check the key in {spec.api_key_env}"
    return ModelClient(spec, dialect, f"worker {spec.name}", key_hint=hint, keys=keys)


class HttpWorker:
    """Answers steps through one provider. Its connections belong to the event loop that first used it."""

    def __init__(self, spec: WorkerSpec, dialect: Dialect, keys: TypedKeys | None = None) -> None:
        self._spec = spec
        self._dialect = dialect
        self._client = client_of(spec, dialect, keys)

    @property
    def spec(self) -> WorkerSpec:
        return self._spec

    @property
    def client(self) -> ModelClient:
        return self._client

    async def answer(self, messages: Sequence[Message]) -> AsyncGenerator[Chunk]:
        """Streams an answer, see ``Worker.answer``. Refuses a missing key before it connects.

        It masks the keys that this process knows in all that it yields or raises.
        """
        try:
            body = self._dialect.body(self._spec, messages)
            asked = self._client.ask(messages, body, passed=self._spec.pass_reasoning)
            async with aclosing(asked) as chunks:
                async for chunk in chunks:
                    yield chunk
        except ServerFault as fault:
            raise error_of(fault) from fault

    async def aclose(self) -> None:
        await self._client.aclose()
