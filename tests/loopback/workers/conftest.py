"""One scripted provider for all tests of a module, as new for each."""

from collections.abc import Iterator

import pytest

from tests.support.provider import ScriptedProvider


@pytest.fixture(scope="module")
def running() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as provider:
        yield provider


@pytest.fixture
def provider(running: ScriptedProvider) -> ScriptedProvider:
    running.reset()
    return running
