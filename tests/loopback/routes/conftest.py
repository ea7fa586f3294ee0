"""Our routes on a real server, over a real store."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import uvicorn
from starlette.applications import Starlette

from app import SHARE
from conductor_core.engine.host import EngineHost
from conductor_core.serving.served_models import ServedModels
from conductor_core.settings import Settings
from pages.components.app import session
from pages.components.app.routes import MIDDLEWARE, ROUTES
from storage import Store, open_store


@dataclass(frozen=True)
class Served:
    host: str
    store: Store
    engine: EngineHost

    @property
    def origin(self) -> str:
        return f"http://{self.host}"

    def live(self, run_id: str) -> str:
        return f"ws://{self.host}/api/runs/{run_id}/live"


@pytest.fixture
async def served(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    settings = Settings(rehearsal_tokens_per_s=4)
    store = open_store(settings.resolved_database_url)
    engine = EngineHost(store.log, settings, store)
    monkeypatch.setattr(session, "_session", session.Session(settings, store, engine, ServedModels(settings)))
    app = Starlette(routes=[*ROUTES, SHARE], middleware=MIDDLEWARE)
    config = uvicorn.Config(app, port=0, log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn tells it by this flag alone
        await asyncio.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield Served(f"127.0.0.1:{port}", store, engine)
    finally:
        server.should_exit = True
        await serving
        engine.close()
        store.close()
