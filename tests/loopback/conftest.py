"""What tests over HTTP share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage import Store, open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """``runs.sqlite3``, open all the time, so that what is in the write-ahead log stays there."""
    store = open_store(f"sqlite:///{tmp_path / 'runs.sqlite3'}")
    yield store
    store.close()
