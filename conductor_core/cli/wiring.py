"""Opens what a command needs, and closes it whatever happens. Store and engine are imported by whoever opens them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from conductor_core.settings import Settings

if TYPE_CHECKING:
    from conductor_core.engine.host import EngineHost
    from storage import Store


@contextmanager
def opened_store(url: str | None, settings: Settings, *, read: bool = False) -> "Iterator[Store]":
    """The database at ``url``, by default the settings'; runs of dead processes are marked. Raises: StoreError.

    Args:
        read: one that cannot be written will do, too.
    """
    from storage import open_store

    store = open_store(url or settings.resolved_database_url)
    try:
        if store.refusal is not None and not read:
            raise store.refusal
        store.mark_interrupted()
        yield store
    finally:
        store.close()


@contextmanager
def opened_engine(store: "Store", settings: Settings) -> "Iterator[EngineHost]":
    """The engine, writing to ``store``. What still runs when it is closed is cancelled. Raises: StoreError."""
    if store.refusal is not None:
        raise store.refusal
    from conductor_core.engine.host import EngineHost

    host = EngineHost(store.log, settings, store)
    try:
        yield host
    finally:
        host.close()
