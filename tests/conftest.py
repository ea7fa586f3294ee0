"""Shared by all layers: no test reaches anything but loopback, and none touches the user's own data or keys."""

import os
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, settings

from conductor_core.inference import found
from conductor_core.privacy import masking
from conductor_core.providers import client
from tests.support.only_loopback import allow_only_loopback

# Also for the processes that tests start: quick, and the same where the model of ``small`` is here and where it is not.
os.environ["CONDUCTOR_CONDUCTOR"] = "tiny"

# The same cases in every run, on a quiet machine and on a busy one; what `make fuzz` finds becomes an @example.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", _PATIENT, max_examples=50, derandomize=True, database=None)
settings.register_profile("search", _PATIENT, max_examples=2000, print_blob=True)
settings.load_profile("same")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="files, and the tests in each, in an order by chance")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = config.getoption("--shuffle")
    if seed is not None:
        places = [(Random(f"{seed} {item.path}").random(), Random(f"{seed} {item.nodeid}").random()) for item in items]
        items[:] = [item for _, item in sorted(zip(places, items, strict=True), key=lambda pair: pair[0])]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Keeps how a session ended, for ``.ci/run``. Processes that a session starts to share its tests keep nothing."""
    cache = getattr(session.config, "cache", None)
    if cache is not None and not hasattr(session.config, "workerinput"):
        cache.set("ci/exit_status", int(exitstatus))


@pytest.fixture(autouse=True)
def _only_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    allow_only_loopback(monkeypatch)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(autouse=True)
def _own_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that one test sends is not masked in the next."""
    monkeypatch.setattr(masking, "_known", masking._Known())


@pytest.fixture(autouse=True)
def _own_servers() -> None:
    """What one test's server refuses is not remembered of the next server on its port."""
    client.refusals_of.cache_clear()


@pytest.fixture(autouse=True)
def _no_models_of_other_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever runs the tests may have Ollama or LM Studio."""
    monkeypatch.setattr(found, "home_folder", lambda: tmp_path / "home")
    monkeypatch.setattr(found, "OLLAMA_SERVICE", tmp_path / "ollama")
    for name in ("OLLAMA_MODELS", "LLAMA_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each test has a data folder of its own, without recorded runs; simulated workers answer at once."""
    monkeypatch.setenv("CONDUCTOR_DATA_FOLDER", str(tmp_path / "data"))
    monkeypatch.setenv("CONDUCTOR_REHEARSAL_TOKENS_PER_S", "0")
    monkeypatch.setenv("CONDUCTOR_WARM_UP", "0")
    monkeypatch.setenv("CONDUCTOR_RECORDED_RUNS", "0")
    for name in ("DATABASE_URL", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
