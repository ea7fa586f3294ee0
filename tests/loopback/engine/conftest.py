"""A store on disk, and an engine on it that simulates quickly."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from conductor_core.engine.host import EngineHost
from storage import Store, open_store
from tests.support.gated_runs import FAST


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'runs.sqlite3'}"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = open_store(url)
    yield store
    store.close()


@pytest.fixture
def host(store: Store) -> Iterator[EngineHost]:
    host = EngineHost(store.log, FAST, store)
    yield host
    host.close()
