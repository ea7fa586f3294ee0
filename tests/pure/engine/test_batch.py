"""A batch of tasks: what is taken up, what broken calls may have cost, and when the budget lets another task begin."""

import threading
from collections.abc import Callable

import pytest

from conductor_core.chat.messages import ConductorInfo, Message, Price, Usage, WorkerSpec
from conductor_core.engine.batch import BatchTask, Room, request_of, spent_at_most
from conductor_core.engine.budgets import longest_plan, longest_usd
from conductor_core.run import events as ev
from conductor_core.run.events import Event
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import RunTrace, fold
from conductor_core.run.values import BatchRow, PoolInfo
from tests.support.run_events import TWO_STEPS, created, planned, step_completed, step_started

PRICE = Price(input=1.0, output=10.0)
OWN = WorkerSpec(name="solver", provider="openai", model="m", usd_per_mtok=PRICE, params={"max_tokens": 1000})
OTHER = WorkerSpec(
    name="checker", provider="openai", model="m", usd_per_mtok=Price(input=2.0, output=20.0), params={"max_tokens": 500}
)
POOL = PoolInfo(name="paid", workers=(OWN, OTHER))
PLACE = BatchRow(id="b", name="tasks.jsonl", row="1", size=2)
ASKED = (Message(role="user", content="step 0"),)
GUESSED = Usage(input_tokens=10, output_tokens=7, estimated=True)


def trace(*events: Event, price: Price | None = None) -> RunTrace:
    conductor = ConductorInfo(name="planner", kind="remote", model="m", usd_per_mtok=price)
    return fold([created("r", pool=POOL, conductor=conductor, simulated=False), *events])


def retried(**fields: object) -> ev.StepRetried:
    values: dict[str, object] = {
        "run_id": "r", "at_ms": 32, "path": (0,), "attempt": 1, "error_code": "WorkerCut", "error": "cut", "wait_ms": 0,
    }  # fmt: skip
    return ev.StepRetried.model_validate(values | {"usage": GUESSED, "cost_usd": 0.002} | fields)


def usd_of(*events: Event, plan_max_tokens: int = 100) -> float:
    return spent_at_most([trace(*planned("r"), *events)], plan_max_tokens).usd


def test_what_came_to_an_end_costs_what_the_record_says() -> None:
    done = trace(*planned("r"), step_started("r", 0, 30), step_completed("r", 0, "42", 40, cost_usd=0.5))
    spent = spent_at_most([done, done], 100)
    assert spent.usd == pytest.approx(1.0)
    assert spent.tokens == 2 * done.usage.total_tokens > 0


def test_a_call_that_is_on_counts_at_its_most() -> None:
    assert usd_of(step_started("r", 0, 30)) == pytest.approx(longest_usd(PRICE, OWN, ASKED))


def test_a_call_that_broke_off_counts_at_its_most_and_not_twice() -> None:
    most = longest_usd(PRICE, OWN, ASKED)
    broken = (step_started("r", 0, 30), retried(), step_completed("r", 0, "42", 50, cost_usd=0.5))
    assert usd_of(*broken) == pytest.approx(0.5 + most)


@pytest.mark.parametrize(
    "told", [{"usage": Usage(input_tokens=10, output_tokens=7)}, {"usage": Usage(), "cost_usd": 0.0}]
)
def test_a_call_of_known_tokens_or_of_none_counts_as_told(told: dict[str, object]) -> None:
    said = 0.5 + float(str(told.get("cost_usd", 0.002)))
    assert usd_of(
        step_started("r", 0, 30), retried(**told), step_completed("r", 0, "42", 50, cost_usd=0.5)
    ) == pytest.approx(said)


def test_the_call_that_is_on_is_that_of_the_worker_which_is_asked_now_with_the_tokens_that_it_has_now() -> None:
    fallback = retried(usage=Usage(), cost_usd=0.0, then="fallback", then_agent="checker")
    assert OTHER.price is not None
    assert usd_of(step_started("r", 0, 30), fallback) == pytest.approx(longest_usd(OTHER.price, OTHER, ASKED))
    longer = retried(usage=Usage(), cost_usd=0.0, then="more_tokens", then_max_tokens=4000)
    most = OWN.model_copy(update={"params": {"max_tokens": 4000}})
    assert usd_of(step_started("r", 0, 30), longer) == pytest.approx(longest_usd(PRICE, most, ASKED))


def test_a_step_that_failed_after_some_text_counts_at_its_most() -> None:
    failed = ev.StepFailed(
        run_id="r", at_ms=50, path=(0,), error_code="WorkerCut", error="cut", usage=GUESSED, cost_usd=0.002
    )
    assert usd_of(step_started("r", 0, 30), failed) == pytest.approx(longest_usd(PRICE, OWN, ASKED))
    silent = failed.model_copy(update={"usage": Usage(), "cost_usd": 0.0})
    assert usd_of(step_started("r", 0, 30), silent) == 0


def test_a_plan_that_was_never_whole_counts_at_its_most_where_it_has_a_price() -> None:
    started = planned("r")[0]
    assert isinstance(started, ev.PlanStarted)
    price = Price(input=1.0, output=4.0)
    most = price.cost_usd(longest_plan(started.messages, 100))
    assert spent_at_most([trace(started, price=price)], 100).usd == pytest.approx(most)
    assert spent_at_most([trace(started)], 100).usd == 0
    retry = ev.PlanRetried(
        run_id="r", at_ms=8, error_code="X", error="cut", wait_ms=0, usage=GUESSED, cost_usd=most / 4
    )
    assert spent_at_most([trace(started, retry, price=price)], 100).usd == pytest.approx(2 * most)


def test_the_first_run_of_a_task_is_the_task_and_has_its_place() -> None:
    each = RunRequest(task="", door="cli", seed=7)
    request = request_of(BatchTask("1", "What?", TWO_STEPS), PLACE, each, [])
    assert (request.task, request.workflow, request.batch, request.seed) == ("What?", TWO_STEPS, PLACE, 7)
    assert (request.parent_run_id, request.taken_up, request.resumed) == (None, (), False)
    assert request.run_id
    assert request.run_id != request_of(BatchTask("1", "What?"), PLACE, each, []).run_id


def test_a_task_that_was_stopped_is_taken_up_from_its_latest_run() -> None:
    first, last = trace(*planned("r")), trace()
    first.status, last.status = "failed", "interrupted"
    request = request_of(BatchTask("1", "What?"), PLACE, RunRequest(task="", door="cli"), [first, last])
    assert request.parent_run_id == last.run_id
    assert request.taken_up == (first.run_id,)
    assert request.workflow == TWO_STEPS, "the plan of the earlier run: the later one has none"
    assert (request.task, request.batch, request.resumed) == ("What?", PLACE, True)


@pytest.mark.parametrize(("status", "resumed"), [("cancelled", True), ("failed", False), ("cut", False)])
def test_a_task_that_failed_is_run_again_and_one_that_was_stopped_goes_on(status: str, resumed: bool) -> None:
    earlier = trace(*planned("r"))
    earlier.status = status  # type: ignore[assignment] # each is one
    assert request_of(BatchTask("1", "What?"), PLACE, RunRequest(task="", door="cli"), [earlier]).resumed is resumed


def waits(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(0.2)
    assert thread.is_alive(), "it did not wait"
    return thread


def test_while_no_cost_is_known_one_task_runs_alone() -> None:
    room = Room(1.0, 0.0, [])
    assert room.begin()
    thread = waits(room.begin)
    room.end(0.4, completed=True)
    thread.join(5)
    assert not thread.is_alive()
    assert room.refused is None


def test_tasks_begin_as_long_as_their_average_fits_beside_those_that_run() -> None:
    room = Room(1.0, 0.0, [0.2, 0.4])
    assert [room.begin() for _ in range(3)] == [True] * 3
    thread = waits(room.begin)  # a fourth would need 1.2
    room.end(0.1, completed=True)  # 0.1 spent, two run, the average is 0.233
    thread.join(5)
    assert not thread.is_alive()


def test_a_budget_that_is_used_is_told_once_and_no_further_task_begins() -> None:
    room = Room(1.0, 0.9, [0.2])
    assert not room.begin()
    said = room.refused
    assert said is not None
    assert said.startswith("the budget is used: 0.100000 of 1 USD are left and a task costs 0.200000 on average.")
    assert not room.begin()
    assert room.refused == said


def test_a_task_that_did_not_complete_is_paid_and_says_nothing_of_what_tasks_cost() -> None:
    room = Room(1.0, 0.0, [0.2])
    assert room.begin()
    room.end(0.9, completed=False)
    assert not room.begin()
    assert "a task costs 0.200000 on average" in str(room.refused)


def test_a_room_that_is_closed_lets_nobody_in_and_wakes_who_waits() -> None:
    room = Room(1.0, 0.0, [])
    assert room.begin()
    answers: list[bool] = []
    thread = waits(lambda: answers.append(room.begin()))
    room.close()
    thread.join(5)
    assert answers == [False]
    assert room.refused is None
