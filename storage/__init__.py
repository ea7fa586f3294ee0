"""The store: an append-only event log in a database, and what is read from it."""

from storage.records import RunSummary, StoredEvent
from storage.store import Store, open_store

__all__ = ["RunSummary", "Store", "StoredEvent", "open_store"]
