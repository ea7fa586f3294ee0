"""Scripts for LangGraph, the OpenAI Agents SDK and AutoGen, run in an environment of their own (.venv-export)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import exported
from tests.support.exported import Ran
from tests.support.provider import ScriptedProvider

pytestmark = pytest.mark.timeout(600)  # the first test of a framework runs all its scripts

FRAMEWORKS = ("langgraph", "openai-agents", "autogen")


@pytest.mark.parametrize("case", list(exported.cases()))
@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_each_step_is_sent_exactly_what_our_engine_sends(
    ran: Callable[[str], Ran], provider: ScriptedProvider, framework: str, case: str
) -> None:
    await exported.check_same(ran(framework), provider, framework, case)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_nothing_goes_anywhere_but_to_the_workers(ran: Callable[[str], Ran], framework: str) -> None:
    assert ran(framework).elsewhere == []


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_independent_steps_run_at_once(tmp_path: Path, framework: str) -> None:
    exported.check_at_once(tmp_path, framework)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_missing_key_is_one_line(tmp_path: Path, framework: str) -> None:
    exported.check_missing_key(tmp_path, framework)
