"""A Conductor behind an OpenAI-compatible server: vLLM, Ollama, llama.cpp, LM Studio or a provider.

identify                 what the server is, and how to ask it to hold a completion to a form
RemoteConductor.write    one call through ``providers.client``
GgufConductor.write      the same over the socket of a process of ours (``inference.llama``)

Sources for the parameters of forms: vLLM's documentation of structured outputs (``guided_grammar`` until 0.11, then
``structured_outputs``), llama.cpp's server README (``grammar``), SGLang's documentation (``ebnf``), OpenAI's
``response_format``, which Ollama and LM Studio understand as well.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import httpx2

from conductor_core.chat.messages import (
    ConductorInfo,
    Finished,
    Message,
    PlanFinished,
    PlanRequest,
    ReasoningDelta,
    TextDelta,
    Usage,
    WorkerSpec,
)
from conductor_core.chat.usage import tokens_of
from conductor_core.conductors.alternatives import ASKED, BYTES_PER_TOKEN, TokenLog
from conductor_core.conductors.conductors_file import API_KEY_VARIABLE, ConductorSpec
from conductor_core.conductors.grammar import PlanShape, plan_grammar, plan_schema
from conductor_core.conductors.local import (
    ANSWER_BEGINS,
    RETRY_TEMPERATURE,
    USUAL_TOKENS,
    LocalConfig,
    configured,
    plan_shape,
)
from conductor_core.conductors.prompts import STATIC_MESSAGES, asked, require_room
from conductor_core.errors import (
    ConductorCertificate,
    ConductorError,
    ConductorFailed,
    ConductorKeyRefused,
    ConductorLoading,
    ConductorModelUnknown,
    ConductorRateLimited,
    ConductorStreamCut,
    ConductorTimedOut,
    ConductorUnavailable,
    ConductorUnpaid,
    PromptOverflows,
)
from conductor_core.inference.generation import InferenceError, ProcessEnded
from conductor_core.inference.gguf_file import known_digest
from conductor_core.inference.llama import REQUEST, URL, PrefixFolder, checked, shared_llama
from conductor_core.privacy import masking
from conductor_core.privacy.masking import TypedKeys, one_line
from conductor_core.providers.client import ModelClient, open_client
from conductor_core.providers.errors import FaultKind, ServerFault
from conductor_core.providers.openai import OpenAIDialect
from conductor_core.settings import Settings

MOST_THOUGHT_BYTES = 4_000_000
"""The limit of all that a Conductor writes, thoughts included; ``plan_max_bytes`` limits the plan itself."""
_ERRORS: Mapping[FaultKind, type[ConductorError]] = MappingProxyType(
    {
        "unpaid": ConductorUnpaid,
        "key": ConductorKeyRefused,
        "too_long": PromptOverflows,
        "model": ConductorModelUnknown,
        "rate": ConductorRateLimited,
        "timeout": ConductorTimedOut,
        "loading": ConductorLoading,
        "failed": ConductorFailed,
        "certificate": ConductorCertificate,
        "cut": ConductorStreamCut,
    }
)


def error_of(fault: ServerFault) -> ConductorError:
    """Returns the Conductor's error for what went wrong at its server."""
    error = _ERRORS.get(fault.kind, ConductorUnavailable)(str(fault))
    error.retry_after_s = fault.retry_after_s
    return error


# Kinds of servers.

Kind = Literal["vllm", "llama.cpp", "sglang", "ollama", "other"]
_OWNERS: dict[str, Kind] = {
    "vllm": "vllm",
    "llamacpp": "llama.cpp",
    "me": "llama.cpp",  # llama-cpp-python
    "sglang": "sglang",
    "library": "ollama",
}
PROBE_TIMEOUT_S = 3.0
PROBE_MOST_BYTES = 1_000_000


@dataclass(frozen=True)
class Server:
    """A server. ``version`` is major and minor; None where the server does not tell."""

    kind: Kind
    version: tuple[int, int] | None = None

    def structured(self, shape: PlanShape) -> dict[str, Any]:
        """Returns the parameters of a request that hold the completion to ``shape``."""
        match self.kind:
            case "vllm" if self.version is None or self.version >= (0, 11):
                return {"structured_outputs": {"grammar": plan_grammar(shape)}}
            case "vllm":
                return {"guided_grammar": plan_grammar(shape)}
            case "llama.cpp":
                return {"grammar": plan_grammar(shape)}
            case "sglang":
                return {"ebnf": plan_grammar(shape)}
            case "ollama" | "other":
                schema = {"name": "workflow", "strict": True, "schema": plan_schema(shape)}
                return {"response_format": {"type": "json_schema", "json_schema": schema}}


async def identify(client: httpx2.AsyncClient, base_url: str) -> Server:
    """Asks the server what it is; ``other`` where it does not tell. ``base_url`` ends in ``/v1`` or the like.

    Raises: httpx2.TransportError if nothing answers there.
    """
    root = re.sub(r"/v\d+$", "", base_url)
    models = await _json(client, f"{base_url}/models")
    listed = models.get("data") if isinstance(models, dict) else None
    models_there = [model for model in listed if isinstance(model, dict)] if isinstance(listed, list) else []
    owners = [owner for model in models_there if isinstance(owner := model.get("owned_by"), str)]
    kind: Kind = next((_OWNERS[owner] for owner in owners if owner in _OWNERS), "other")
    if kind == "vllm":
        return Server(kind, _version(await _json(client, f"{root}/version")))
    if kind == "other" and not models_there:
        # A server without a model list says what it is by the addresses that only it has.
        if isinstance(props := await _json(client, f"{root}/props"), dict) and "default_generation_settings" in props:
            return Server("llama.cpp")
        if _version(await _json(client, f"{root}/api/version")) is not None:
            return Server("ollama")
    return Server(kind)


def _version(answer: Any) -> tuple[int, int] | None:
    version = answer.get("version") if isinstance(answer, dict) else None
    found = re.match(r"v?([0-9]{1,4})\.([0-9]{1,4})(?![0-9])", version) if isinstance(version, str) else None
    return (int(found[1]), int(found[2])) if found else None


async def _json(client: httpx2.AsyncClient, url: str) -> Any:
    """Returns the JSON document at ``url``; None if there is none or it is over ``PROBE_MOST_BYTES``."""
    body = bytearray()
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S), client.stream("GET", url, timeout=PROBE_TIMEOUT_S) as response:
            async for part in response.aiter_bytes():
                body += part
                if len(body) > PROBE_MOST_BYTES:
                    return None
            return json.loads(body) if response.status_code == 200 else None
    except (ValueError, RecursionError, TimeoutError, httpx2.ReadTimeout, httpx2.DecodingError):
        return None


ANSWER_TIMEOUT_S = 600.0
"""Seconds for a whole plan, from its first byte on: as long as a run may take by default."""
READ_TIMEOUT_S = 120.0
"""Seconds between two pieces; the first may take long on a processor."""
_FORMS = ("structured_outputs", "guided_grammar", "grammar", "ebnf", "response_format")
"""Parameters that hold a completion to a form (``Server.structured``)."""
_UNNAMED = (tuple(ASKED), _FORMS, ("stream_options",))
"""What is left out, in this order, where a server refuses a request without saying why."""
_MOST_NAME = 80


class RemoteConductor:
    """Writes plans with a model of a server. Opens connections at the first ``write``."""

    def __init__(
        self,
        name: str,
        spec: ConductorSpec,
        settings: Settings,
        keys: TypedKeys | None = None,
        *,
        config: LocalConfig | None = None,
        server: Server | None = None,
        socket: str | None = None,
    ) -> None:
        """``spec`` has a ``base_url``. ``keys``: where a typed key is found.

        Args:
            config: how the model is asked; None: as ``spec`` says. server: what answers; None: it is asked.
            socket: see ``ModelClient``.
        """
        self._name = name
        self._spec = spec
        self._base_url = spec.base_url or ""
        self._max_tokens = min(settings.plan_max_tokens, spec.max_tokens or settings.plan_max_tokens)
        self._config = config or LocalConfig(prompt=spec.prompt or "full")
        self._wants_form = settings.constrained if spec.constrained is None else spec.constrained
        self._server = server
        variable = spec.api_key_env or (API_KEY_VARIABLE if "://" in name else None)
        asked = WorkerSpec(
            name="conductor",
            provider="openai",
            model=spec.model,
            base_url=spec.base_url,
            api_key_env=spec.api_key_env,
            timeout_s=spec.timeout_s or READ_TIMEOUT_S,
            # Thoughts may be longer than a plan.
            max_output_bytes=max(MOST_THOUGHT_BYTES, 2 * settings.plan_max_bytes),
        )
        self._client = ModelClient(
            asked,
            OpenAIDialect(),
            f"Conductor {one_line(spec.model if '://' in name else name, limit=_MOST_NAME)}",
            key_hint=f"set {variable} to its key" if variable else "name the variable of its key in api_key_env",
            size_hint="no plan needs that: choose another Conductor, or lower its max_tokens",
            limit_s=spec.timeout_s or ANSWER_TIMEOUT_S,
            # One event may hold the whole answer, each character of it escaped, and all that is told of its tokens.
            most_event_bytes=6 * settings.plan_max_bytes + 65_536 + self._max_tokens * BYTES_PER_TOKEN,
            keys=keys,
            socket=socket,
        )
        masking.remember_variable(spec.api_key_env)

    @property
    def info(self) -> ConductorInfo:
        """``constrained`` becomes False when the server refuses its structured-output parameter."""
        return ConductorInfo(
            name=self._name,
            kind="remote",
            model=self._spec.model,
            constrained=self._constrained,
            seated=self._config.prompt != "full",
            usd_per_mtok=self._spec.usd_per_mtok,
            prompt_sha256=self._spec.prompt_sha256,
            base_url=self._base_url,
            params=self._spec.params,
        )

    @property
    def _constrained(self) -> bool:
        return self._wants_form and set(_FORMS).isdisjoint(self._client.refusals.left_out)

    def messages(self, request: PlanRequest) -> tuple[Message, ...]:
        return asked(request, self._config.prompt, self._spec.prompt_text)

    async def write(self, request: PlanRequest) -> AsyncIterator[TextDelta | ReasoningDelta | PlanFinished]:
        """Writes a plan, see ``Conductor.write``. All that it gives or raises has the keys hidden that we know."""
        messages = self.messages(request)
        require_room(self._name, messages, self._spec.context)
        async with aclosing(self._written(request, messages)) as pieces:
            async for piece in pieces:
                yield piece

    async def _written(
        self,
        request: PlanRequest,
        messages: Sequence[Message],
        watch: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> AsyncGenerator[TextDelta | ReasoningDelta | PlanFinished]:
        """Yields what the server answers to ``messages``. ``watch`` gets each event."""
        text: list[str] = []
        thoughts: list[str] = []
        logprobs: list[Any] = []
        try:
            if self._constrained and self._server is None:
                self._server = await self._identified()
            asked = self._client.ask(
                messages,
                self._body(request, messages),
                unnamed=_UNNAMED,
                retracts=False,
                logprobs=logprobs,
                watch=watch,
            )
            async with aclosing(asked) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, TextDelta):
                        text.append(chunk.text)
                        yield chunk
                    elif isinstance(chunk, ReasoningDelta):
                        thoughts.append(chunk.text)
                        yield chunk
                    elif isinstance(chunk, Finished):
                        yield self._finished(chunk, "".join(text), "".join(thoughts), logprobs)
        except ServerFault as fault:
            if fault.kind == "filtered" and not text:
                refusal = fault.reply.text or str(fault)
                yield PlanFinished(finish_reason="content_filter", usage=Usage(), refusal=refusal)
                return
            raise error_of(fault) from fault

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _identified(self) -> Server:
        """Asks the server what it is. Raises: ServerFault if nothing answers there."""
        client = self._client
        key = client.key()
        headers = client.dialect.headers(key)
        async with open_client(client.spec) as prober:
            prober.headers.update(headers)
            try:
                return await identify(prober, self._base_url)
            except httpx2.TransportError as error:
                raise client.fault_of_connection(error) from error

    def _body(self, request: PlanRequest, messages: Sequence[Message]) -> dict[str, Any]:
        body: dict[str, Any] = {
            "temperature": request.temperature or (RETRY_TEMPERATURE if request.rejected else 0.0),
            **({} if "logprobs" in self._spec.params else ASKED),
            **self._spec.params,
            **self._client.dialect.body(self._client.spec, messages),
            "seed": request.seed,
        }
        if "max_completion_tokens" not in body:  # as some models want it called
            body["max_tokens"] = self._max_tokens
        if self._constrained and self._server is not None:
            body |= self._server.structured(plan_shape(self.info, request, self._config))
        return body

    def _finished(self, end: Finished, text: str, thoughts: str, logprobs: Sequence[Any]) -> PlanFinished:
        log = TokenLog()
        for each in logprobs:
            log.feed(each)
        choices = log.choices(text)
        guess = Usage(input_tokens=0, output_tokens=tokens_of(len(text) + len(thoughts)), estimated=True)
        return PlanFinished(
            finish_reason=end.finish_reason,
            usage=end.usage or guess,
            cost_usd=end.cost_usd,
            refusal=end.refusal,
            tool_calls=end.tool_calls,
            reasoning=thoughts,
            choices=choices,
            told_by_server=bool(choices),
            departures=end.departures,
        )


# A Conductor of a GGUF file of this machine.

SILENCE_S = 3600.0


class GgufConductor(RemoteConductor):
    """Writes plans with a GGUF file. Cheap to make: its process starts at the first ``write``."""

    def __init__(self, name: str, spec: ConductorSpec, settings: Settings, config: LocalConfig) -> None:
        """``spec`` names the file and perhaps an adapter. Raises: UnknownConductor, ModelUnavailable."""
        file, lora = Path(spec.model), None if spec.lora is None else Path(spec.lora)
        config = configured(config, spec, name)
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
            "max_tokens": config.max_tokens,
            "timeout_s": SILENCE_S,
        }
        super().__init__(
            name,
            spec.model_copy(update=served),
            settings,
            config=config,
            server=Server("llama.cpp"),
            socket=self._llama.socket,
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
            seated=self._config.prompt != "full",
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
                static = 0 if self._config.prompt == "short" else STATIC_MESSAGES
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
