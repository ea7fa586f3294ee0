"""The store: an append-only event log in a database, and what is read from it."""

from storage.records import BatchSummary, RawEvent, RunSummary, StoredEvent, unreadable_status
from storage.store import Store, open_store

__all__ = ["BatchSummary", "RawEvent", "RunSummary", "Store", "StoredEvent", "open_store", "unreadable_status"]
