"""The story of the tour against the real engine: each stop tells what its run did."""

from collections.abc import Iterator

import pytest

from conductor_core.engine.estimates import preview
from conductor_core.engine.host import EngineHost
from conductor_core.engine.pools import pool_info
from conductor_core.engine.request import rerun_of
from conductor_core.rehearsal import grade
from conductor_core.run.request import Overrides, RunRequest
from conductor_core.run.trace import RunTrace
from conductor_core.settings import Settings
from pages.components.tour import drive as story
from pages.components.tour.drive import CHANGED, CHECK, PLAN, RIGHT, STOPS, TASK, WRONG, Kind
from storage import open_store

Runs = dict[Kind, RunTrace]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """The three runs of the tour, carried out as the page does, with other settings than it needs."""
    settings = Settings(data_folder=tmp_path_factory.mktemp("tour"), rehearsal_tokens_per_s=0, seed=5, pool="paper")
    store = open_store(settings.resolved_database_url)
    host = EngineHost(store.log, settings, store)

    def run(request: RunRequest) -> RunTrace:
        return host.wait(host.start(request), 60)

    planned = run(story.first_request())
    first = run(story.request_after(planned))
    yield {"planned": planned, "first": first, "second": run(story.request_after(first))}
    host.close()
    store.close()


def test_each_run_is_known_for_what_it_is_in_the_tour(runs: Runs) -> None:
    assert {kind: story.kind_of(trace) for kind, trace in runs.items()} == {kind: kind for kind in story.KINDS}
    assert [runs[kind].status for kind in story.KINDS] == ["planned", "completed", "completed"]
    assert all(trace.simulated and trace.purpose == "tour" for trace in runs.values())
    assert [runs[kind].parent_run_id for kind in story.KINDS] == [None, runs["planned"].run_id, runs["first"].run_id]


def test_the_check_lets_a_wrong_answer_pass_because_the_right_one_was_withheld(runs: Runs) -> None:
    first = runs["first"]
    assert first.answer is not None
    assert not grade(TASK, first.answer)
    assert grade(TASK, first.steps[1].output)
    assert not grade(TASK, first.steps[2].output)
    assert [part.path for part in first.steps[CHECK].granted] == [(2,)]
    assert {part.path for part in first.steps[CHECK].withheld if part.there} == {(0,), (1,)}
    assert WRONG in first.answer


def test_with_one_access_more_two_steps_run_again_and_the_answer_is_right(runs: Runs) -> None:
    first, second = runs["first"], runs["second"]
    specs = pool_info("rehearsal", Settings()).workers
    forecast = preview(first, CHANGED, specs, origins=tuple(range(len(PLAN.steps))))
    assert [step.index for step in forecast.will_run] == [CHECK, CHECK + 1]
    assert [step.index for step in forecast.will_reuse] == [0, 1, 2]
    assert [step.status for step in second.steps] == ["reused"] * 3 + ["completed"] * 2
    assert [part.path for part in second.steps[CHECK].granted] == [(1,), (2,)]
    assert second.answer is not None
    assert grade(TASK, second.answer)
    assert RIGHT in second.answer


def test_the_stops_are_in_the_order_of_the_runs_and_are_over_in_a_minute(runs: Runs) -> None:
    assert [stop.run for stop in STOPS] == sorted((stop.run for stop in STOPS), key=story.KINDS.index)
    assert len({stop.name for stop in STOPS}) == len(STOPS)
    # At two of them one sees a run first, whose longest path takes as long as its words do at the usual pace.
    longest = [*(runs["first"].steps[at] for at in (0, 2, 3, 4)), *(runs["second"].steps[at] for at in (3, 4))]
    words_s = (
        sum(step.usage.output_tokens for step in longest) / Settings.model_fields["rehearsal_tokens_per_s"].default
    )
    assert sum(stop.seconds for stop in STOPS) + words_s < 60


def test_a_stop_of_another_run_gives_way_to_the_first_stop_of_the_run_on_the_page() -> None:
    assert story.stop_at("change", "first").name == "change"
    assert story.stop_at("change", "second").name == "rerun"
    assert story.stop_at("nowhere", "planned").name == "plan"
    assert story.beside(STOPS[0], -1) is None
    assert story.beside(STOPS[-1], 1) is None
    assert story.beside(STOPS[0], 1) == STOPS[1]


def test_only_the_next_run_of_the_story_is_taken_for_it(runs: Runs) -> None:
    assert story.goes_on(runs["planned"], rerun_of(runs["planned"], PLAN, door="page"))
    assert story.goes_on(runs["first"], rerun_of(runs["first"], CHANGED, door="page"))
    assert not story.goes_on(runs["first"], rerun_of(runs["first"], PLAN, door="page"))
    afresh = Overrides().with_seeds({CHECK: 7})
    assert not story.goes_on(runs["first"], rerun_of(runs["first"], CHANGED, door="page", overrides=afresh))
    assert not story.goes_on(runs["second"], rerun_of(runs["second"], CHANGED, door="page"))


def test_a_run_by_hand_and_one_that_ended_early_are_none_of_the_tour(runs: Runs) -> None:
    first = runs["first"]
    assert story.kind_of(first.model_copy(update={"purpose": ""})) is None
    assert story.kind_of(first.model_copy(update={"status": "cancelled"})) is None
