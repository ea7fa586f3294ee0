"""A database that an earlier revision wrote opens, lists, folds, compares and re-runs as it did then."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from conductor_core.analysis.compare import compare_runs
from conductor_core.engine.host import EngineHost
from conductor_core.engine.request import rerun_of
from conductor_core.engine.rerun import edit_step, preview
from conductor_core.run.actor import Caller
from conductor_core.settings import Settings
from storage import Store, open_store

WRITTEN = Path(__file__).with_name("schema_0005.sql")
"""Runs of every kind, written by the last revision before actors and doors were recorded."""
STATUSES = ["completed", "cancelled", "completed", "completed", "failed", "planned", "completed", "completed"]


@pytest.fixture
def old(path: Path, url: str) -> Iterator[Store]:
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.executescript(WRITTEN.read_text())
    connection.close()
    store = open_store(url)
    yield store
    store.close()


def test_each_run_is_listed_and_folds_to_what_is_listed(old: Store) -> None:
    listed = old.runs()
    assert sorted(run.status for run in listed) == sorted([*STATUSES, "interrupted", "completed"])
    for run in listed:
        trace, _ = old.trace(run.run_id)
        assert (trace.status, trace.task, trace.parent_run_id) == (run.status, run.task, run.parent_run_id)
        assert (trace.usage.total_tokens, trace.caller, trace.purpose) == (
            run.usage.total_tokens,
            run.caller,
            run.purpose,
        )
        assert trace.actor is None, "no actor was recorded then"


def test_doors_and_purposes_are_told_apart(old: Store) -> None:
    doors = {(run.caller.door, run.purpose) for run in old.runs()}
    assert doors == {("page", ""), ("cli", ""), ("cli", "evaluate: recursion")}
    cancelled = next(run for run in old.runs() if run.status == "cancelled")
    assert old.trace(cancelled.run_id)[0].ended_by == Caller(door="page")
    (deleted,), _ = old.deletions()
    assert deleted.caller == Caller(door="page")


def test_an_old_run_is_compared_and_run_again_without_a_call(old: Store, tmp_path: Path) -> None:
    source = next(
        trace
        for trace in (old.trace(run.run_id)[0] for run in old.runs())
        if trace.root.source == "file" and trace.status == "completed" and len(trace.steps) == 3
    )
    workflow = source.root.workflow
    assert workflow is not None
    edited = edit_step(workflow, 2, instruction="Check it once more.")
    forecast = preview(source, edited, source.pool.workers)
    assert [step.index for step in forecast.will_reuse] == [0, 1]
    host = EngineHost(old.log, Settings(data_folder=tmp_path, rehearsal_tokens_per_s=0, warm_up=False), old)
    again = host.wait(host.start(rerun_of(source, workflow, door="page")), 30)
    host.close()
    assert [step.status for step in again.steps] == ["reused"] * 3
    assert again.answer == source.answer
    compared = compare_runs(source, again)
    assert compared.first_difference is None
    assert not compared.answer_changed
