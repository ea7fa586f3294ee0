"""The store keeps an append-only event log in a database, and reads runs and lists from it."""

from storage.log.queries import Totals
from storage.privacy import Privacy
from storage.records import BatchSummary, RawEvent, RunSummary, StoredEvent
from storage.store import Deleted, Store, open_store

__all__ = [
    "BatchSummary",
    "Deleted",
    "Privacy",
    "RawEvent",
    "RunSummary",
    "Store",
    "StoredEvent",
    "Totals",
    "open_store",
]
