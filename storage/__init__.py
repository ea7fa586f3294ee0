"""The store keeps an append-only event log in a database, and reads runs and lists from it."""

from storage.deleting import Deleted
from storage.privacy import Privacy
from storage.records import BatchSummary, RawEvent, RunSummary, StoredEvent, unreadable_status
from storage.store import Store, open_store
from storage.totals import Totals

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
    "unreadable_status",
]
