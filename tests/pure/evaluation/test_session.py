"""What an evaluation's plan says of it, before anything is run."""

from pathlib import Path
from typing import Any

import pytest

from conductor_core.evaluation.session import Choices, prepare
from tests.support.fakes import quick_settings

SIMULATED = '[[worker]]\nname = "coder"\nprovider = "rehearsal"\nmodel = "rehearsal/coder"\n'
REAL = '[[worker]]\nname = "real"\nprovider = "openai"\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\n'


@pytest.mark.parametrize(
    ("pool", "parts"),
    [(SIMULATED, ["workers", "tasks"]), (SIMULATED + REAL, ["some workers", "tasks"]), (REAL, ["tasks"])],
)
async def test_a_plan_says_which_parts_are_simulated(tmp_path: Path, pool: str, parts: list[str]) -> None:
    file = tmp_path / "pool.toml"
    file.write_text(pool)
    choices = Choices(suite="rehearsal", limit=2, orchestrators="single", pool=str(file), name="trial")
    prepared = prepare(choices, quick_settings(data_folder=tmp_path))
    await prepared.pool.aclose()
    assert prepared.plan.simulated
    assert prepared.plan.settings["simulated"] == parts


async def test_a_plan_keeps_what_was_asked_for_beyond_the_usual(tmp_path: Path) -> None:
    async def settings_of(**asked: Any) -> dict[str, Any]:
        choices = Choices(suite="rehearsal", limit=2, orchestrators="router-dc", **asked)
        prepared = prepare(choices, quick_settings(data_folder=tmp_path))
        await prepared.pool.aclose()
        return dict(prepared.plan.settings)

    usual = await settings_of(name="usual")
    assert {"excluded", "fit_tasks", "fit_suite"}.isdisjoint(usual)
    other = await settings_of(name="other", excluded=("writer", "coder"), fit_tasks=9, fit_suite="rehearsal")
    assert (other["excluded"], other["fit_tasks"], other["fit_suite"]) == (["coder", "writer"], 9, "rehearsal")
