"""Follows one run: its events as they are committed, by whatever process."""

import asyncio
from collections.abc import AsyncGenerator

from conductor_core.run.events import FINAL_KINDS
from conductor_core.run.trace import ENDED_STATUSES, RunUnreadable
from storage.database.connections import Database
from storage.log import queries, reading
from storage.log.event_log import EventLog, RefusingLog
from storage.records import ERASED, StoredEvent

_POLL_S, _QUIET_S = 0.2, 1.0
_PAGE_EVENTS = 1000


def read_events(
    database: Database, run_id: str, after: int, limit: int | None = None
) -> tuple[list[StoredEvent], RunUnreadable | None]:
    """Returns the events of a run up to the first that cannot be read, and what is wrong with that one."""
    with database.reading() as connection:
        return reading.read_events(connection, run_id, database.vault, after, limit)


def _status(database: Database, run_id: str) -> str:
    with database.reading() as connection:
        return queries.read_status(connection, run_id)


async def follow(
    database: Database, log: EventLog | RefusingLog, run_id: str, after: int
) -> AsyncGenerator[list[StoredEvent], None]:
    """As ``Store.follow``."""
    feed = log.subscribe(run_id)
    try:
        group, fault = await asyncio.to_thread(read_events, database, run_id, after, _PAGE_EVENTS)
        news: list[StoredEvent] = []
        missed = True
        while True:
            # Nothing came: the run may have ended, or its rows may have gone, without an event for this reader.
            silent = missed and not group and fault is None
            if silent and await asyncio.to_thread(_status, database, run_id) in {*ENDED_STATUSES, ERASED}:
                group, fault = await asyncio.to_thread(read_events, database, run_id, after)
                if not group and fault is None:
                    return
            if group:
                yield group
                after = group[-1].sequence
                if group[-1].event.kind in FINAL_KINDS:
                    return
            if fault is not None:
                raise fault
            if len(group) == _PAGE_EVENTS:
                group, fault = await asyncio.to_thread(read_events, database, run_id, after, _PAGE_EVENTS)
                continue
            # Another process may be quicker to resume a run that this one seems to write.
            timeout_s = _QUIET_S if log.writes(run_id) else _POLL_S
            try:
                await asyncio.wait_for(feed.news.wait(), timeout_s)
            except TimeoutError:
                missed = True
            else:
                news, missed = feed.drain()
            if missed:
                group, fault = await asyncio.to_thread(read_events, database, run_id, after, _PAGE_EVENTS)
            else:
                group = [stored for stored in news if stored.sequence > after]
    finally:
        log.unsubscribe(run_id, feed)
