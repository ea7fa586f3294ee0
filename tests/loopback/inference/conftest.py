"""A hub on loopback, a cache of its own, and a small model that it serves."""

from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import constants

from tests.support.hub import LoopbackHub
from tests.support.tiny_models import random_model

REF = "someone/small"
CHUNK = 4096


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return random_model(tmp_path / "model")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    return folder


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[[LoopbackHub], None]:
    def ask(server: LoopbackHub) -> None:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)

    return ask


def weights_of(model: Path) -> int:
    return (model / "model.safetensors").stat().st_size
