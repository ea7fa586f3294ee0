"""Finds out what kind of OpenAI-compatible server is at a URL, and how to ask it to hold a completion to a form.

Sources for the parameters: vLLM's documentation of structured outputs (``guided_grammar`` until 0.11, then
``structured_outputs``), llama.cpp's server README (``grammar``), SGLang's documentation (``ebnf``), OpenAI's
``response_format``, which Ollama and LM Studio understand as well.
"""

import asyncio
import json
import re
from dataclasses import dataclass
from typing import Any, Literal

import httpx2

from conductor_core.conductors.grammar import PlanShape, plan_grammar, plan_schema

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


def names_a_form(complaint: str) -> bool:
    """Tells whether a server complains of what holds a completion to a form."""
    return any(name in complaint for name in ("structured_outputs", "grammar", "ebnf", "response_format", "schema"))


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
