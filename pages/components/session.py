"""The page's only wiring point: settings, store and engine, made once when the app starts."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from conductor_core.engine.host import EngineHost
from conductor_core.settings import Settings
from storage import Store, open_store

WARM_UP_AFTER_S = 2.0
"""Loading a model takes the processor: the first page's own files go first."""


@dataclass(frozen=True)
class Session:
    settings: Settings
    store: Store
    host: EngineHost

    def warm_up(self) -> None:
        """Has the default Conductor ready before the first run, if it is one of this process. Returns at once."""
        if self.settings.warm_up:
            self.host.warm_up(self.settings.conductor, self.settings.pool, WARM_UP_AFTER_S)


_session: Session | None = None


def current() -> Session:
    """What the app was started with. Raises: RuntimeError before it has started."""
    if _session is None:
        raise RuntimeError("the app has not started: its lifespan makes the session")
    return _session


def open_session(settings: Settings) -> Session:
    """Opens the store, marks the runs of a dead process as interrupted, and starts the engine. Raises: StoreError."""
    store = open_store(settings.resolved_database_url)
    store.mark_interrupted()
    return Session(settings, store, EngineHost(store.log, settings))


@asynccontextmanager
async def lifespan(_app: Any) -> AsyncIterator[dict[str, Any]]:
    """One session for the life of the server process."""
    global _session
    _session = open_session(Settings())
    try:
        yield {}
    finally:
        _session.host.close()
        _session.store.close()
        _session = None
