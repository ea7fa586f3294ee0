"""Runs the exported scripts of a framework once for all tests."""

from collections.abc import Callable, Iterator

import pytest

from tests.support import exported
from tests.support.exported import Ran
from tests.support.provider import ScriptedProvider


@pytest.fixture(scope="session")
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(exported.AGENTS) as provider:
        yield provider.always(exported.answers)


@pytest.fixture(scope="session")
def ran(provider: ScriptedProvider, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Ran]:
    """Returns what came of all scripts of a framework."""
    done: dict[str, Ran] = {}

    def run_all(framework: str) -> Ran:
        if framework not in done:
            done[framework] = exported.run_all(framework, provider, tmp_path_factory.mktemp(framework))
        return done[framework]

    return run_all


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(exported.KEY_VARIABLE, exported.KEY)
