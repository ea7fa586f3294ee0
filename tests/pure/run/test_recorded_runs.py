"""The runs that come with the program show what they promise, and are put into a database that never held one."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from conductor_core.rehearsal import grade
from conductor_core.run.actor import local_caller
from conductor_core.run.share import FOLDER, recorded_runs
from conductor_core.run.trace import RunTrace, fold
from conductor_core.settings import Settings
from pages.components.app import session as runtime
from pages.components.app.session import Session
from storage import RunSummary, Store, open_store
from tests.support.command_line import CommandLine
from tests.support.run_events import whole_run

MOST_BYTES = 40_000


@pytest.fixture(scope="module")
def traces() -> list[RunTrace]:
    return [fold(events) for events in recorded_runs()]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys)


@contextmanager
def _started(**settings: bool) -> Iterator[Session]:
    """The inspector, as its server starts it."""
    session = runtime.open_session(Settings(**{"recorded_runs": True, **settings}))  # type: ignore[arg-type]
    try:
        yield session
    finally:
        session.host.close()
        session.store.close()


def _started_runs(**settings: bool) -> list[RunSummary]:
    with _started(**settings) as session:
        return session.store.runs()


def _store() -> Store:
    return open_store(Settings().resolved_database_url)


def test_they_show_an_answer_that_lacked_an_output_and_the_same_put_right(traces: list[RunTrace]) -> None:
    withheld, granted, _ = traces
    assert [trace.status for trace in traces] == ["completed"] * 3
    assert [grade(trace.task, trace.answer or "") for trace in (withheld, granted)] == [False, True]
    assert granted.parent_run_id == withheld.run_id
    assert granted.task == withheld.task
    assert granted.root.edits, "what was changed"
    statuses = [step.status for step in granted.steps]
    assert statuses.count("reused") >= 2
    assert statuses[-1] == "completed"
    assert any(step.withheld for step in withheld.steps)


def test_one_was_planned_by_small_and_answered_by_models_that_it_names_with_size_and_digest(
    traces: list[RunTrace],
) -> None:
    real = traces[-1]
    assert not real.simulated
    assert real.conductor is not None
    assert real.conductor.name == "small"
    for step in real.steps:
        assert step.model is not None
        assert step.model.endswith(".gguf")
        assert step.weights is not None
        assert step.weights.parameters > 10**8
        assert step.weights.sha256 is not None


def test_they_say_that_they_are_recorded_and_whether_simulated_name_nobody_and_are_small(
    traces: list[RunTrace],
) -> None:
    assert [trace.simulated for trace in traces] == [True, True, False]
    for trace in traces:
        assert trace.imported is not None
        assert trace.imported.recorded
        assert trace.caller.in_words == "the inspector"
    files = sorted(FOLDER.glob("*"))
    assert len(files) == len(traces)
    assert max(file.stat().st_size for file in files) < MOST_BYTES


def test_a_text_streamed_at_a_pace_that_can_be_read(traces: list[RunTrace]) -> None:
    for trace, events in zip(traces, recorded_runs(), strict=True):
        assert trace.duration_ms is not None
        assert 3_000 < trace.duration_ms < 120_000
        written = [event.at_ms for event in events if event.kind == "step.delta"]
        assert len(written) > 20


def test_the_first_start_puts_them_into_a_new_database_and_every_list_marks_them(cli: CommandLine) -> None:
    with _started() as session:
        listed = session.store.runs()
        assert [run.recorded and run.imported for run in listed] == [True] * 3
        assert [run.simulated for run in listed] == [False, True, True]
        newest = listed[0].run_id
        assert [run.run_id for run in session.store.runs(limit=1, recorded=True)] == [newest]
        mine = whole_run("mine")
        session.store.log.append_and_wait(*mine)
        assert [run.run_id for run in session.store.runs(limit=9, recorded=True)] == [run.run_id for run in listed]
    assert "completed (recorded)" in cli("runs").out
    document = cli("show", newest, "--json").document
    assert (document["imported"]["recorded"], document["simulated"]) == (True, False)
    shown = cli("show", listed[1].run_id).out
    assert "recorded: it came with conductor-inspector" in shown
    assert "(simulated)" in shown
    assert [run["recorded"] for run in cli("runs", "--json").document["runs"]] == [False, True, True, True]


def test_what_a_person_deleted_does_not_come_back() -> None:
    with _started() as session:
        session.store.delete([run.run_id for run in session.store.runs()], local_caller("page"))
    assert _started_runs() == []


def test_a_database_that_holds_a_run_or_held_one_gets_none() -> None:
    store = _store()
    store.log.append_and_wait(*whole_run("mine"))
    store.close()
    assert [run.run_id for run in _started_runs()] == ["mine"]


def test_the_command_line_puts_none_anywhere_and_the_first_start_after_it_does(cli: CommandLine) -> None:
    assert "no runs" in cli("runs").out
    assert len(_started_runs()) == 3


def test_a_setting_keeps_them_out_and_a_second_start_adds_none() -> None:
    assert _started_runs(recorded_runs=False) == []
    first = _started_runs()
    assert len(first) == 3
    assert _started_runs() == first


def test_of_two_servers_that_start_at_once_one_puts_them_in(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert len(_started_runs()) == 3
    monkeypatch.setattr(Store, "was_used", lambda _: False)  # as the other one saw it a moment ago
    with caplog.at_level(logging.WARNING):
        assert len(_started_runs()) == 3
    assert "the recorded runs were not put into the database" in caplog.text
