"""A Conductor of a GGUF file, which llama.cpp runs in a process of ours (``inference.llama``).

It is asked as one behind a llama.cpp server (``remote``), over a socket: the same grammar, alternatives and reader of
answers. What a model of this machine has besides: static beginnings that are read once, control tokens made inert,
progress, and both prompts.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx2

from conductor_core.chat.messages import ConductorInfo, PlanFinished, PlanRequest, ReasoningDelta, TextDelta
from conductor_core.conductors.conductors_file import ConductorSpec
from conductor_core.conductors.grammar import PlanShape
from conductor_core.conductors.local import (
    ANSWER_BEGINS,
    RETRY_TEMPERATURE,
    USUAL_TOKENS,
    LocalConfig,
    configured,
    plan_shape,
)
from conductor_core.conductors.prompts import STATIC_MESSAGES, require_room
from conductor_core.conductors.remote import RemoteConductor, Server
from conductor_core.errors import ConductorStreamCut, ConductorUnavailable
from conductor_core.inference.generation import InferenceError, PrefixFolder, ProcessEnded
from conductor_core.inference.gguf_digest import known_digest
from conductor_core.inference.llama import REQUEST, URL, checked, shared_llama
from conductor_core.settings import Settings

ANSWER_TIMEOUT_S = 86_400.0
"""A large model on a slow processor may take its time; a run has its own limit."""
SILENCE_S = 3600.0


class GgufConductor(RemoteConductor):
    """Writes plans with a GGUF file. Cheap to make: its process starts at the first ``write``."""

    def __init__(self, name: str, spec: ConductorSpec, settings: Settings, config: LocalConfig) -> None:
        """``spec`` names the file and perhaps an adapter. Raises: UnknownConductor, ModelUnavailable."""
        file, lora = Path(spec.model), None if spec.lora is None else Path(spec.lora)
        self._config = configured(config, spec, name)
        self._header = checked(file, lora)
        self._llama = shared_llama(file, lora)
        self._llama.idle_s = settings.model_idle_s
        if settings.prefix_bytes:
            self._llama.kept = PrefixFolder(settings.prefixes_folder, settings.prefix_bytes)
        self._digests = [
            known_digest(each, settings.data_folder) if each is not None else None for each in (file, lora)
        ]
        served: dict[str, Any] = {
            "model": file.name,
            "base_url": URL,
            "params": {},
            "prompt": self._config.prompt,
            "max_tokens": self._config.max_tokens,
            "timeout_s": SILENCE_S,
        }
        super().__init__(
            name, spec.model_copy(update=served), settings, server=Server("llama.cpp"), socket=self._llama.socket
        )
        self._lora = None if lora is None else lora.name
        self._template = {"chat_template_kwargs": {"enable_thinking": False}}

    @property
    def info(self) -> ConductorInfo:
        return ConductorInfo(
            name=self._name,
            kind="local",
            model=self._spec.model,
            device="cpu",
            dtype=self._header.quantisation,
            constrained=self._constrained,
            seated=self._prompt != "full",
            usd_per_mtok=self._spec.usd_per_mtok,
            prompt_sha256=self._spec.prompt_sha256,
            file_sha256=self._digests[0],
            lora=self._lora,
            lora_sha256=self._digests[1],
        )

    async def write(self, request: PlanRequest) -> AsyncIterator[TextDelta | ReasoningDelta | PlanFinished]:
        """Writes a plan, see ``Conductor.write``."""
        require_room(self._name, self.messages(request), self._spec.context)
        try:
            async with self._llama.turn() as turn:
                messages = await turn.inert(self.messages(request))
                static = 0 if self._prompt == "short" else STATIC_MESSAGES
                self._reuses = await turn.read_static(messages, static, self._template)
                watch = turn.progress(self._max_tokens, USUAL_TOKENS, ANSWER_BEGINS)
                async with aclosing(self._written(request, messages, watch)) as pieces:
                    async for piece in pieces:
                        yield piece
        except ProcessEnded as error:
            raise ConductorStreamCut(f"Conductor {self._name}: {error}") from error
        except (InferenceError, httpx2.TransportError) as error:
            raise ConductorUnavailable(f"Conductor {self._name}: {error}") from error

    def _body(self, request: PlanRequest, messages: Any) -> dict[str, Any]:
        config = self._config
        temperature = config.temperature or request.temperature or (RETRY_TEMPERATURE if request.rejected else 0.0)
        return {
            **super()._body(request, messages),
            **REQUEST,
            **self._template,
            "temperature": temperature,
            "top_p": config.top_p,
            "top_k": config.top_k,
            "seed": request.seed & 0x7FFFFFFF,
            "cache_prompt": self._reuses,
        }

    def _shape(self, request: PlanRequest) -> PlanShape:
        return plan_shape(self.info, request, self._config, self._max_tokens, bounded=True)
