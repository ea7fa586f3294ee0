"""The endpoint on a real server, over fake turns."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import httpx2
import pytest
import uvicorn
from cryptography.fernet import Fernet
from starlette.types import ASGIApp

from conductor_core.run.actor import Caller
from conductor_core.serving import admission, app
from conductor_core.serving.app import endpoint as endpoint_of
from conductor_core.serving.gateway import Gateway
from conductor_core.serving.guard import OwnPagesOnly
from conductor_core.serving.served_models import ServedModel, ServedModels
from conductor_core.settings import Settings
from tests.support.eventually import eventually_async
from tests.support.serving import REQUESTS, FakeKeys, FakeTurns

CHAT = "/v1/chat/completions"
MODELS = (ServedModel(id="small", aliases=("claude-small",), max_steps=1), ServedModel(id="owner/big"))


@dataclass
class Endpoint:
    turns: FakeTurns
    keys: FakeKeys
    gateway: Gateway
    app: ASGIApp
    port: int
    client: httpx2.AsyncClient

    async def post(self, path: str = CHAT, key: str | None = None, **fields: Any) -> httpx2.Response:
        body = {**REQUESTS[path.partition("?")[0]], **fields}
        return await self.client.post(path, json=body, headers=bearer(key))

    @asynccontextmanager
    async def stream(self, path: str = CHAT, key: str | None = None, **fields: Any) -> "AsyncIterator[Streamed]":
        body = {**REQUESTS[path], "stream": True, **fields}
        async with self.client.stream("POST", path, json=body, headers=bearer(key)) as response:
            yield Streamed(response)


@dataclass
class Streamed:
    response: httpx2.Response
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._coming = self.response.aiter_lines()

    async def until(self, text: str, times: int = 1) -> None:
        """Reads until ``text`` was in so many lines."""
        async for line in self._coming:
            self.lines.append(line)
            times -= text in line
            if not times:
                return
        raise AssertionError(f"{text} did not come: {self.lines}")

    async def rest(self) -> str:
        """All that came, once it has ended."""
        self.lines += [line async for line in self._coming]
        return "\n".join(self.lines)


def bearer(key: str | None) -> Mapping[str, str]:
    return {} if key is None else {"authorization": f"Bearer {key}"}


class Deletions:
    """Remembers what was deleted."""

    def __init__(self) -> None:
        self._ids: set[str] = set()

    def deleted(self, response_id: str) -> bool:
        return response_id in self._ids

    def delete(self, response_id: str, _caller: Caller) -> None:
        self._ids.add(response_id)


@pytest.fixture
async def endpoint(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Endpoint]:
    monkeypatch.setattr(admission, "REVOKED_AFTER_S", 0.02)
    monkeypatch.setattr(app, "HEARTBEAT_S", 0.05)
    settings = Settings(allowed_hosts=("inspector.example",))
    turns, keys = FakeTurns(), FakeKeys()
    seal, none = Fernet.generate_key(), cast(Any, None)  # a test that judges has judgements of its own
    gateway = Gateway(cast(Any, turns), ServedModels(settings, MODELS), keys, seal, Deletions(), none)
    app_ = OwnPagesOnly(endpoint_of(lambda: gateway), names=lambda: settings.allowed_hosts)
    server = uvicorn.Server(uvicorn.Config(app_, port=0, log_level="warning", lifespan="off"))
    serving = asyncio.create_task(server.serve())
    await eventually_async(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False) as client:
        try:
            yield Endpoint(turns, keys, gateway, app_, port, client)
        finally:
            server.should_exit = True
            await serving
