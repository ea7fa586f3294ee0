"""Scripts for CrewAI, run in an environment of its own (.venv-export-crewai). `make test-exports` runs this file."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import exported
from tests.support.exported import Ran
from tests.support.provider import ScriptedProvider

pytestmark = pytest.mark.timeout(600)  # the first test of a framework runs all its scripts


@pytest.mark.parametrize("case", list(exported.cases()))
async def test_each_step_is_sent_exactly_what_our_engine_sends(
    ran: Callable[[str], Ran], provider: ScriptedProvider, case: str
) -> None:
    await exported.check_same(ran("crewai"), provider, "crewai", case)


def test_nothing_goes_anywhere_but_to_the_workers(ran: Callable[[str], Ran]) -> None:
    assert ran("crewai").elsewhere == []


def test_independent_steps_run_at_once(tmp_path: Path) -> None:
    exported.check_at_once(tmp_path, "crewai")


def test_a_missing_key_is_one_line(tmp_path: Path) -> None:
    exported.check_missing_key(tmp_path, "crewai")
