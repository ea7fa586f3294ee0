"""The event log of a database that cannot be written."""

import asyncio
import concurrent.futures
import sqlite3
from collections.abc import Callable

from conductor_core.errors import StoreError
from conductor_core.events import Event
from storage.encoding import SnapshotRow
from storage.event_log import Feed


class RefusingLog:
    """Fails each append with the reason why nothing can be kept, so that nothing is run. Its feeds stay empty."""

    def __init__(self, refusal: StoreError) -> None:
        self._refusal = refusal

    def append(self, *events: Event) -> "asyncio.Future[None]":
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_exception(self._again())
        return future

    def append_and_wait(self, *events: Event) -> None:
        raise self._again()

    def change_and_wait(self, work: Callable[[sqlite3.Cursor], None]) -> None:
        raise self._again()

    def change(self, work: Callable[[sqlite3.Cursor], None]) -> "concurrent.futures.Future[None]":
        raise self._again()

    def rewrite_and_wait(self) -> None:
        raise self._again()

    def keep_snapshot(self, snapshot: SnapshotRow) -> None:
        pass

    def writes(self, run_id: str) -> bool:
        return False

    def subscribe(self, run_id: str) -> Feed:
        return Feed(asyncio.get_running_loop())

    def unsubscribe(self, run_id: str, feed: Feed) -> None:
        pass

    def close(self) -> None:
        pass

    def _again(self) -> StoreError:
        """Returns a new exception each time: one that is raised again collects the tracebacks of all callers."""
        return type(self._refusal)(str(self._refusal))
