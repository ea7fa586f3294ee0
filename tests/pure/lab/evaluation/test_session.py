"""What an evaluation's plan says of it, before anything is run."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conductor_core.errors import BadInput, StoreFull
from conductor_core.lab.evaluation import report
from conductor_core.lab.evaluation.session import EVALUATIONS, EvaluationChoices, prepare, run_evaluation
from conductor_core.run.trace import RunTrace
from tests.support.fakes import MemorySink, quick_settings

SIMULATED = '[[worker]]\nname = "coder"\nprovider = "rehearsal"\nmodel = "rehearsal/coder"\n'
REAL = '[[worker]]\nname = "real"\nprovider = "openai"\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\n'


@pytest.mark.parametrize(
    ("pool", "parts"),
    [(SIMULATED, ["workers", "tasks"]), (SIMULATED + REAL, ["some workers", "tasks"]), (REAL, ["tasks"])],
)
async def test_a_plan_says_which_parts_are_simulated(tmp_path: Path, pool: str, parts: list[str]) -> None:
    file = tmp_path / "pool.toml"
    file.write_text(pool)
    choices = EvaluationChoices(suite="rehearsal", limit=2, orchestrators="single", pool=str(file), name="trial")
    prepared = prepare(choices, quick_settings(data_folder=tmp_path))
    await prepared.pool.aclose()
    assert prepared.plan.simulated
    assert prepared.plan.settings["simulated"] == parts


async def test_a_plan_keeps_what_was_asked_for_beyond_the_usual(tmp_path: Path) -> None:
    async def settings_of(**asked: Any) -> dict[str, Any]:
        choices = EvaluationChoices(suite="rehearsal", limit=2, orchestrators="router-dc", **asked)
        prepared = prepare(choices, quick_settings(data_folder=tmp_path))
        await prepared.pool.aclose()
        return dict(prepared.plan.settings)

    usual = await settings_of(name="usual")
    assert (usual["excluded"], usual["fit_tasks"], usual["fit_suite"]) == ([], 300, None)
    other = await settings_of(name="other", excluded=("writer", "coder"), fit_tasks=9, fit_suite="rehearsal")
    assert (other["excluded"], other["fit_tasks"], other["fit_suite"]) == (["coder", "writer"], 9, "rehearsal")


UNWATCHED: dict[str, Any] = {"on_outcome": [].append, "on_fitting": lambda *_: None}
SMALL = EvaluationChoices(suite="rehearsal", limit=2, orchestrators="single", name="trial")


def no_trace(run_id: str) -> RunTrace:
    raise AssertionError(f"{run_id} is not read")


async def test_only_an_evaluation_that_is_there_is_gone_on_with(tmp_path: Path) -> None:
    """A mistyped name must not begin another one, which is paid for."""
    settings = quick_settings(data_folder=tmp_path)
    with pytest.raises(BadInput, match=f"unknown evaluation trail in {tmp_path}.*; the folder holds no evaluation"):
        prepare(replace(SMALL, name="trail", resume=True), settings)
    await prepare(SMALL, settings).pool.aclose()
    with pytest.raises(BadInput, match=r"unknown evaluation trail in .*; there are trial$"):
        prepare(replace(SMALL, name="trail", resume=True), settings)
    assert [each.name for each in (tmp_path / EVALUATIONS).iterdir()] == ["trial"]
    await prepare(replace(SMALL, resume=True), settings).pool.aclose()


def test_a_place_that_cannot_be_written_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / EVALUATIONS).write_text("a file where the folder should be")
    with pytest.raises(BadInput, match="set CONDUCTOR_DATA_FOLDER"):
        prepare(SMALL, quick_settings(data_folder=tmp_path))


async def test_a_database_that_fails_is_an_end_that_can_be_gone_on_with(tmp_path: Path) -> None:
    settings, sink = quick_settings(data_folder=tmp_path), MemorySink()
    sink.error, sink.failing = StoreFull("no space left for the database: free some"), frozenset({"run.completed"})
    ended = await run_evaluation(prepare(SMALL, settings), sink, no_trace, **UNWATCHED)
    assert (ended.stopped, ended.outcomes) == ("no space left for the database: free some", ())


async def test_a_disk_that_is_full_at_the_very_end_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(report, "write_whole", full)
    ended = await run_evaluation(
        prepare(SMALL, quick_settings(data_folder=tmp_path)), MemorySink(), no_trace, **UNWATCHED
    )
    assert len(ended.outcomes) == 14
    assert ended.stopped is not None
    assert "No space left on device" in ended.stopped
