"""A worker of a GGUF file, which llama.cpp runs in a process of ours (``inference.llama``)."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path

import httpx2

from conductor_core.chat.messages import Chunk, Finished, Message, Weights, WorkerSpec
from conductor_core.errors import (
    PoolInvalid,
    WorkerError,
    WorkerModelUnknown,
    WorkerModelUnusable,
    WorkerRefused,
    WorkerStreamCut,
)
from conductor_core.files import expand_path
from conductor_core.inference.found import gguf_path
from conductor_core.inference.generation import InferenceError, ModelNotHere, ModelUnavailable, ProcessEnded
from conductor_core.inference.gguf_digest import known_digest
from conductor_core.inference.llama import REQUEST, URL, checked, shared_llama
from conductor_core.providers.answer_text import TURN_TOKENS
from conductor_core.providers.client import ModelClient
from conductor_core.providers.errors import ServerFault
from conductor_core.providers.model_files import sampling_fault
from conductor_core.providers.openai import OpenAIDialect
from conductor_core.workers.pool import error_of
from conductor_core.workers.pool_file import LocalParams

SILENCE_S = 3600.0


class GgufWorker:
    """Answers steps with a GGUF file. Nothing is loaded before the first answer.

    Attributes: file: the one that ``spec.model`` names.
    """

    def __init__(self, spec: WorkerSpec, models_folder: Path, data_folder: Path, idle_s: float | None = None) -> None:
        """``models_folder``: where our own files lie, for a model named by its title (``inference.found``).
        ``data_folder``: where digests of files are kept. ``idle_s``: seconds without a request after which its process
        ends; None: what it was before.

        Raises: PoolInvalid if ``spec.params`` holds something that a local model does not know.
        """
        if fault := sampling_fault(spec.params, LocalParams):
            raise PoolInvalid(f"worker {spec.name}: params: {fault}", [fault])
        self.spec = spec
        self._params = LocalParams.model_validate(dict(spec.params))
        self._data_folder = data_folder
        self.file = file = gguf_path(spec.model, models_folder)
        self._llama = shared_llama(file, None if spec.lora is None else expand_path(spec.lora))
        if idle_s is not None:
            self._llama.idle_s = idle_s
        served = spec.model_copy(update={"model": file.name, "base_url": URL, "params": {}, "timeout_s": SILENCE_S})
        self._client = ModelClient(
            served, OpenAIDialect(), f"worker {spec.name}", key_hint="", limit_s=86_400, socket=self._llama.socket
        )

    async def answer(self, messages: Sequence[Message]) -> AsyncGenerator[Chunk]:
        """See ``Worker.answer``. Answers of one model wait for each other: it writes one at a time."""
        params, passed = self._params, self.spec.pass_reasoning
        try:
            async with self._llama.turn() as turn:
                inert = await turn.inert(messages)
                body: Mapping[str, object] = {
                    **self._client.dialect.body(self._client.spec, inert),
                    **REQUEST,
                    "chat_template_kwargs": {"enable_thinking": params.thinking},
                    "temperature": params.temperature,
                    "top_p": params.top_p,
                    "top_k": params.top_k,
                    "seed": params.seed & 0x7FFFFFFF,
                    "max_tokens": params.max_tokens,
                    "cache_prompt": False,
                    "stop": await asyncio.to_thread(self._ends, inert),
                }
                asked = self._client.ask(inert, body, passed=passed, watch=turn.progress(params.max_tokens))
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


def _kind_of(error: Exception) -> type[WorkerError]:
    if isinstance(error, ProcessEnded):
        return WorkerStreamCut
    if isinstance(error, ModelNotHere):
        return WorkerModelUnknown
    return WorkerModelUnusable if isinstance(error, ModelUnavailable) else WorkerRefused
