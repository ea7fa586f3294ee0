"""The product's endpoint, started once for all tests of this folder, and the scripted workers behind it.

``make test-clients`` runs these tests in .venv-clients. The endpoint runs from the product's own environment, whose
Python ``PRODUCT_PYTHON`` names.
"""

import os
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from tests.clients.endpoint import Endpoint, started
from tests.support.only_loopback import allow_only_loopback
from tests.support.provider import ScriptedProvider
from tests.support.scripted_workers import Obedient

if find_spec("anthropic") is None:
    # A session in the product's environment leaves these tests out.
    collect_ignore_glob = ["test_*.py"]
else:
    # No client asks the network: LiteLLM for prices, the Agents SDK and LangSmith to send traces.
    os.environ |= {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_TELEMETRY": "False",
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "LANGSMITH_TRACING": "false",
        "NO_PROXY": "*",
    }
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        os.environ.pop(name, None)


@pytest.fixture(autouse=True)
def _only_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    allow_only_loopback(monkeypatch)


@pytest.fixture(scope="session")
def workers() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(("alpha", "beta")) as provider:
        yield provider.always(Obedient())


@pytest.fixture(scope="session")
def endpoint(workers: ScriptedProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    with started(workers, tmp_path_factory.mktemp("endpoint")) as running:
        yield running
