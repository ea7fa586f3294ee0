"""The catalogue of failures: each kind is read once from a run's events, counted, filtered and listed."""

from datetime import UTC, datetime, timedelta

import pytest

from conductor_core.chat.messages import ToolCall
from conductor_core.run import events as ev
from conductor_core.run.request import JUDGE_PURPOSE, PASS_PURPOSE, ClientRequest
from conductor_core.workflow.model import Fault
from storage import Store
from storage.search.failures import MANY_TURNS, SAME_CALLS, Narrowed, hourly
from storage.search.filters import Filters
from tests.support.run_events import created, planned, run_completed, step_completed, step_started

CLIENT = ClientRequest(api="chat", model="fugu")


def failing(run_id: str, *between: ev.Event, end: ev.Event | None = None, **asked: object) -> list[ev.Event]:
    begun = [created(run_id, f"Task of {run_id}", **asked), *planned(run_id), step_started(run_id, 0, 30)]
    return [*begun, *between, end or run_completed(run_id)]


def retried(run_id: str, code: str, **fields: object) -> ev.StepRetried:
    return ev.StepRetried(
        run_id=run_id, path=(0,), attempt=1, error_code=code, error=f"{code} said", wait_ms=0, **fields
    )


def called(run_id: str, number: int, arguments: str = "{}") -> ev.ToolCalled:
    call = ToolCall(call_id=f"c{number}", name="look", arguments=arguments)
    return ev.ToolCalled(run_id=run_id, path=(0,), calls=(call,))


def step_failed(run_id: str, code: str) -> ev.StepFailed:
    return ev.StepFailed(run_id=run_id, path=(0,), error_code=code, error=f"{code} said")


def run_failed(run_id: str, code: str) -> ev.RunFailed:
    return ev.RunFailed(run_id=run_id, error_code=code, error=f"{code} said")


@pytest.fixture
def kinds(store: Store) -> Store:
    fault = Fault(code="unknown_agent", message="no such agent")
    rejected = ev.PlanRejected(run_id="plan", raw="x", faults=(fault,), will_retry=True)
    runs = {
        "down": failing("down", step_failed("down", "WorkerTimedOut"), end=run_failed("down", "WorkerTimedOut")),
        "budget": failing("budget", end=run_failed("budget", "LimitReached"), client=CLIENT),
        "silent": failing("silent", step_completed("silent", 0, "", 40).model_copy(update={"ending": "empty"})),
        "filtered": failing("filtered", retried("filtered", "filtered")),
        "again": failing("again", retried("again", "WorkerFailed")),
        "stopped": failing(
            "stopped", step_failed("stopped", "TooManyToolCalls"), end=run_failed("stopped", "TooManyToolCalls")
        ),
        "form": failing("form", retried("form", "AnswerForm", correction="Write JSON.")),
        "plan": [created("plan", "Task"), rejected, *planned("plan"), run_completed("plan")],
        "judge": failing("judge", step_failed("judge", "WorkerFailed"), purpose=JUDGE_PURPOSE),
        "well": failing("well", step_completed("well", 0, "42", 40)),
    }
    for events in runs.values():
        store.log.append_and_wait(*events)
    store.search.catch_up()
    return store


def test_each_request_is_counted_by_kind_and_those_that_nobody_asked_for_are_left_out(kinds: Store) -> None:
    with kinds.search.catalogue(narrowed=Narrowed()) as catalogue:
        counts = {each.name: each.runs for each in catalogue.counts()}
        rows = {each.run_id: each for each in catalogue.requests(limit=100)}
    assert counts == {"failed": 1, "limited": 1, "empty": 1, "refused": 1, "looping": 2, "corrected": 2}
    assert "judge" not in rows
    assert "well" not in rows
    assert (rows["down"].path, rows["down"].agent, rows["down"].said) == ("0", "solver", "WorkerTimedOut said")
    assert rows["budget"].served == "fugu"
    with kinds.search.catalogue(narrowed=Narrowed(purpose=JUDGE_PURPOSE)) as catalogue:
        assert [each.run_id for each in catalogue.requests()] == ["judge"]
    with kinds.search.catalogue(narrowed=Narrowed(purpose="*")) as catalogue:
        assert {each.name: each.runs for each in catalogue.counts()}["failed"] == 2


def test_they_are_grouped_and_narrowed_by_worker_step_and_model(kinds: Store) -> None:
    with kinds.search.catalogue(narrowed=Narrowed(served="fugu")) as catalogue:
        assert [each.run_id for each in catalogue.requests()] == ["budget"]
    with kinds.search.catalogue(narrowed=Narrowed(kind="corrected")) as catalogue:
        assert {each.name for each in catalogue.counts("worker")} == {"solver", "conductor"}
        assert {each.name for each in catalogue.counts("step")} == {"", "0"}
    with kinds.search.catalogue(narrowed=Narrowed()) as catalogue:
        assert {each.name: each.runs for each in catalogue.counts("model")}["fugu"] == 1


def test_pages_of_requests_have_each_once(kinds: Store) -> None:
    with kinds.search.catalogue() as catalogue:
        everything = catalogue.requests(limit=100)
        before, paged = None, []
        while page := catalogue.requests(before, 3):
            paged += page
            before = page[-1].cursor
    assert paged == everything
    assert len({each.cursor for each in everything}) == len(everything)


def test_a_step_that_calls_the_same_tool_again_and_again_is_looping_once(store: Store) -> None:
    different = [called("many", number, f'{{"n": {number}}}') for number in range(MANY_TURNS + 2)]
    store.log.append_and_wait(*failing("many", *different))
    store.log.append_and_wait(*failing("same", *[called("same", number) for number in range(SAME_CALLS + 2)]))
    store.log.append_and_wait(*failing("few", *[called("few", number) for number in range(SAME_CALLS - 1)]))
    store.search.catch_up()
    with store.search.catalogue(narrowed=Narrowed(kind="looping")) as catalogue:
        found = [(each.run_id, each.code, each.times, each.agent) for each in catalogue.requests()]
    assert found == [("same", "SameToolCall", 1, "solver"), ("many", "ManyToolTurns", 1, "solver")]


def test_the_trend_has_the_requests_of_each_day_and_hour(store: Store) -> None:
    for number, at in enumerate((datetime(2026, 1, 30, 9, tzinfo=UTC), datetime(2026, 1, 31, 9, tzinfo=UTC)) * 2):
        run_id = f"r{number}"
        first, *rest = failing(run_id, end=run_failed(run_id, "LimitReached"), purpose=PASS_PURPOSE)
        store.log.append_and_wait(first.model_copy(update={"at_utc": at}), *rest)
    store.search.catch_up()
    with store.search.catalogue(narrowed=Narrowed()) as catalogue:
        assert [(each.begin, each.kind, each.runs) for each in catalogue.trend(hours=False)] == [
            ("2026-01-30", "limited", 2),
            ("2026-01-31", "limited", 2),
        ]
    since = Filters(since_utc=datetime(2026, 1, 31, tzinfo=UTC))
    with store.search.catalogue(since, Narrowed()) as catalogue:
        assert [(each.begin, each.runs) for each in catalogue.trend(hours=True)] == [("2026-01-31T09", 2)]
    now = datetime(2026, 2, 1, tzinfo=UTC)
    assert hourly(since, lambda: now)
    assert not hourly(since, lambda: now + timedelta(days=9))
    assert not hourly(Filters())
