"""Opens the store as the settings say, with its log's key and anchor."""

from pathlib import Path

from conductor_core.settings import Settings, sqlite_url
from storage.privacy import Privacy
from storage.store import Store, open_store


def store_of(file: Path, settings: Settings) -> Store:
    """Returns the store of a database file. Raises: StoreError; BadInput about the anchor."""
    privacy = Privacy.of(settings)
    return open_store(sqlite_url(file), privacy, anchor=settings.anchor, signing_key=settings.signing_key)
