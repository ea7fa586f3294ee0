"""The model that a team uses today: where its clients' requests are forwarded to, with which headers and which key.

Of a request all headers go on but those of one connection (RFC 9110, 7.6.1), cookies, what reverse proxies say of the
client's address, and the client's key, under whatever name: the upstream's own is sent in its place, as the upstream
takes it. Encodings of answers that the record could not be read from are not asked for. Of an answer all headers go
back but those of one connection, cookies, and what would bind browsers to another host.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2
from starlette.datastructures import Headers

from conductor_core.chat.messages import WorkerSpec
from conductor_core.chat.servers import ANTHROPIC_URL, OPENAI_URL, host_of
from conductor_core.providers.client import CONNECT_TIMEOUT_S, read_key
from conductor_core.providers.transport import AiohttpTransport, async_stream
from conductor_core.serving.admission import holds_service_key
from conductor_core.serving.errors import Api
from conductor_core.serving.replies import ROOT
from conductor_core.workflow.model import CONDUCTOR_AGENT

SILENCE_S = 3600.0
"""So long an upstream may say nothing. A client that waits less leaves, and its call is closed."""
_LIST_S = 5.0
_MOST_LISTED_BYTES = 4 << 20
_OF_A_CONNECTION = frozenset(
    {
        "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
        "transfer-encoding", "upgrade",
    }
)  # fmt: skip
_NOT_SENT = _OF_A_CONNECTION | {
    "host", "content-length", "authorization", "x-api-key", "api-key", "cookie", "expect", "forwarded", "via",
    "x-forwarded-for", "x-forwarded-host", "x-forwarded-port", "x-forwarded-proto", "x-real-ip", "cf-connecting-ip",
    "true-client-ip",
}  # fmt: skip
_NOT_RETURNED = _OF_A_CONNECTION | {
    "date", "set-cookie", "alt-svc", "strict-transport-security", "x-conductor-trace-id",
}  # fmt: skip
"""The server adds the date itself, and the run."""
_READABLE = frozenset({"gzip", "deflate", "identity"})
"""Encodings that the record is read from."""


@dataclass
class Upstream:
    """Belongs to the event loop that first used it.

    Attributes:
        spec: the model, with address, key variable and price.
        any_api: whether it was named by address, so that it may speak any of the APIs.
    """

    spec: WorkerSpec
    any_api: bool
    _transport: AiohttpTransport = field(default_factory=AiohttpTransport)

    @property
    def base_url(self) -> str:
        usual = ANTHROPIC_URL if self.spec.provider == "anthropic" else OPENAI_URL
        return (self.spec.base_url or usual).rstrip("/")

    @property
    def where(self) -> str:
        return f"{self.spec.name}: {host_of(self.base_url)}"

    def check_key(self) -> None:
        """Raises: ServerFault if the variable of its key is not set."""
        read_key(self.spec, self.spec.name)

    def spec_for(self, model: str, api: Api | None, params: Mapping[str, Any]) -> WorkerSpec:
        """Returns the worker that the record names for a model that a client asks for.

        Only the model that this upstream was named with has its price. ``params``: what the request says beside its
        messages.
        """
        shown = " ".join(model.split())[:80] or self.spec.name
        anthropic = (api == "messages") if self.any_api else self.spec.provider == "anthropic"
        return WorkerSpec(
            name=f"{shown} (upstream)"[-80:] if shown == CONDUCTOR_AGENT else shown,
            provider="anthropic" if anthropic else "openai",
            model=model or self.spec.model,
            base_url=self.base_url,
            api_key_env=self.spec.api_key_env,
            usd_per_mtok=self.spec.usd_per_mtok if model in ("", self.spec.model) else None,
            params=params,
            accepts=("text", "image"),
        )

    def headers(self, given: Headers, api: Api | None) -> list[tuple[str, str]]:
        """Returns the headers of a forwarded request. Raises: ServerFault if the upstream's key is not there."""
        named = {name.strip().lower() for value in given.getlist("connection") for name in value.split(",")}
        sent = [
            (name, value)
            for name, value in given.items()
            if name not in _NOT_SENT and name not in named and not holds_service_key(value)
        ]
        sent = [(name, _readable(value) if name == "accept-encoding" else value) for name, value in sent]
        if (key := read_key(self.spec, self.spec.name)) is not None:
            anthropic = api == "messages" or "anthropic-version" in given
            if anthropic:
                sent.append(("x-api-key", key))
            if not anthropic or (self.any_api and not self.base_url.startswith(ANTHROPIC_URL)):
                sent.append(("authorization", f"Bearer {key}"))
        return sent

    async def send(
        self, method: str, path: str, query: str, headers: Iterable[tuple[str, str]], body: bytes
    ) -> httpx2.Response:
        """Sends a request, and returns as soon as the head of the answer is there. Raises: httpx2.TransportError.

        Args:
            path: below the root of the API, such as ``/chat/completions``. query: as it came.
        """
        url = f"{self.base_url}{path}{'?' if query else ''}{query}"
        timeouts = {"connect": CONNECT_TIMEOUT_S, "read": SILENCE_S, "write": SILENCE_S, "pool": None}
        # As bytes: texts beyond ASCII would not be taken.
        sent = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        request = httpx2.Request(method, url, headers=sent, content=body or None, extensions={"timeout": timeouts})
        return await self._transport.handle_async_request(request)

    async def models(self, given: Headers, query: str) -> list[dict[str, Any]]:
        """Returns the upstream's own list of models, each as it says it; empty: it told none in time."""
        try:
            async with asyncio.timeout(_LIST_S):
                response = await self.send("GET", "/models", query, self.headers(given, None), b"")
                body = bytearray()
                try:
                    async for part in async_stream(response):
                        body += part
                        if len(body) > _MOST_LISTED_BYTES:
                            return []
                finally:
                    await response.aclose()
            listed = json.loads(bytes(body)).get("data") if response.status_code == 200 else None
        except (TimeoutError, httpx2.TransportError, ValueError, AttributeError, RecursionError):
            return []
        return [each for each in listed or () if isinstance(each, dict) and isinstance(each.get("id"), str)]

    async def aclose(self) -> None:
        await self._transport.aclose()


def _readable(accepted: str) -> str:
    kept = [each.strip() for each in accepted.split(",") if each.partition(";")[0].strip().lower() in _READABLE]
    return ", ".join(kept) or "identity"


def returned(response: httpx2.Response) -> list[tuple[bytes, bytes]]:
    """Returns the headers of an answer as its client gets them, in their order."""
    named = {name.strip().lower() for name in response.headers.get("connection", "").split(",")}
    return [
        (name.lower(), value)
        for name, value in response.headers.raw
        if (shown := name.decode("latin-1").lower()) not in _NOT_RETURNED and shown not in named
    ]


def path_below_root(path: str) -> str:
    """Returns ``/chat/completions`` for ``/v1/chat/completions``."""
    return path.removeprefix(ROOT)
