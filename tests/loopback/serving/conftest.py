"""The endpoint on a real server, over fake turns."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import httpx2
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware

from conductor_core.serving import admission, app
from conductor_core.serving.app import Gateway, routes
from conductor_core.serving.guard import OwnPagesOnly
from conductor_core.serving.served_models import ServedModel, ServedModels
from conductor_core.settings import Settings
from tests.support.serving import PLAIN_SHAPES, FakeKeys, FakeTurns

MODELS = (ServedModel(id="small", aliases=("claude-small",), max_steps=1), ServedModel(id="owner/big"))


@dataclass
class Endpoint:
    turns: FakeTurns
    keys: FakeKeys
    gateway: Gateway
    port: int
    client: httpx2.AsyncClient

    async def post(self, path: str = "/v1/chat/completions", key: str | None = None, **fields: Any) -> httpx2.Response:
        return await self.client.post(path, json={"model": "fugu", **fields}, headers=bearer(key))

    @asynccontextmanager
    async def stream(
        self, path: str = "/v1/chat/completions", key: str | None = None, **fields: Any
    ) -> "AsyncIterator[Streamed]":
        body = {"model": "fugu", "stream": True, **fields}
        async with self.client.stream("POST", path, json=body, headers=bearer(key)) as response:
            yield Streamed(response)


@dataclass
class Streamed:
    response: httpx2.Response
    kinds: list[str] = field(default_factory=list)
    data: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lines = self.response.aiter_lines()

    async def until(self, kind: str | None) -> list[str]:
        """Reads events up to one of ``kind``, or all. Returns the kinds of all that came."""
        async for line in self._lines:
            if line.startswith("event: "):
                self.kinds.append(line.removeprefix("event: "))
            elif line.startswith("data: "):
                self.data.append(line.removeprefix("data: "))
                if self.kinds[-1] == kind:
                    break
        return self.kinds


def bearer(key: str | None) -> Mapping[str, str]:
    return {} if key is None else {"authorization": f"Bearer {key}"}


@pytest.fixture
async def endpoint(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Endpoint]:
    monkeypatch.setattr(admission, "REVOKED_AFTER_S", 0.02)
    monkeypatch.setattr(app, "HEARTBEAT_S", 0.05)
    settings = Settings(allowed_hosts=("inspector.example",))
    turns, keys = FakeTurns(), FakeKeys()
    gateway = Gateway(cast(Any, turns), ServedModels(settings, MODELS), keys, PLAIN_SHAPES)
    guard = Middleware(OwnPagesOnly, names=lambda: settings.allowed_hosts)
    server = uvicorn.Server(
        uvicorn.Config(
            Starlette(routes=routes(gateway), middleware=[guard]),
            port=0,
            log_level="warning",
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
    )
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn tells it by this flag alone
        await asyncio.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False) as client:
        try:
            yield Endpoint(turns, keys, gateway, port, client)
        finally:
            server.should_exit = True
            await serving
