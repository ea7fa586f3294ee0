import asyncio

import pytest

from conductor_core.chat.messages import Message, Price, Usage
from conductor_core.chat.usage import estimate_input_tokens, estimate_tokens
from conductor_core.engine.budgets import Budget
from conductor_core.errors import LimitReached
from conductor_core.run.costs import Cost
from conductor_core.run.events import now_utc
from conductor_core.run.trace import RunTrace, fold
from conductor_core.run.values import Limits, PoolInfo
from tests.support.run_events import created, planned, step_started


def budget_of(**limits: float | None) -> tuple[Budget, RunTrace]:
    asked = Limits.model_validate(limits)
    trace = RunTrace(
        run_id="r",
        task="t",
        door="cli",
        simulated=False,
        pool=PoolInfo(name="p", workers=()),
        limits=asked,
        app_version="0",
        created_at_utc=now_utc(),
        clock_zero_utc=now_utc(),
    )
    return Budget(asked, trace), trace


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2)])
def test_tokens_are_estimated_by_four_characters(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


def test_each_message_adds_its_frame() -> None:
    assert estimate_input_tokens((Message(role="user", content="abcd"), Message(role="user", content=""))) == 9


PRICE = Price(input=1e6, output=1e6)
"""One USD a token."""


def test_live_estimates_count_until_they_are_settled() -> None:
    budget, trace = budget_of(max_tokens=100)
    budget.begin_call((0,), 30, None).output_tokens = 20
    second = budget.begin_call((1,), 20, None)
    second.output_tokens = 29
    budget.check()
    second.output_tokens = 30
    with pytest.raises(LimitReached, match="100 of 100 tokens") as caught:
        budget.check()
    assert caught.value.limit == "tokens"
    budget.settle((1,))
    budget.check()
    trace.usage = Usage(input_tokens=49)
    budget.check()
    trace.usage = Usage(input_tokens=50)
    with pytest.raises(LimitReached):
        budget.check()


def test_a_run_that_goes_on_counts_the_calls_that_it_made() -> None:
    trace = fold([created("r"), *planned("r"), step_started("r", 0, 20), step_started("r", 1, 20)])
    budget = Budget(Limits(max_steps=3, max_depth=0), trace)
    budget.start_step()
    with pytest.raises(LimitReached, match="3 of 3 calls to workers"):
        budget.start_step()


def test_totals_hold_what_is_still_streaming_and_say_that_it_is_estimated() -> None:
    budget, trace = budget_of()
    trace.usage, trace.cost_usd = Usage(input_tokens=1, output_tokens=2), 0.5
    trace.known_usd = 0.5
    assert budget.total() == (trace.usage, Cost(0.5, 0.5))
    budget.begin_call((0,), 10, PRICE).output_tokens = 20
    assert budget.total() == (Usage(input_tokens=11, output_tokens=22, estimated=True), Cost(30.5, 30.5))
    budget.begin_call((1,), 1, None)
    assert budget.total()[1] == Cost(None, 30.5)


def test_settled_costs_add_up() -> None:
    budget, _ = budget_of(max_usd=10.0)
    budget.begin_call((0,), 9, PRICE)
    budget.settle((0,), 4)
    budget.begin_call((1,), 5, PRICE)
    budget.settle((1,), 5)
    budget.check()
    with pytest.raises(LimitReached, match=r"10\.000000 USD spent, the limit is 10 USD"):
        budget.begin_call((2,), 1, PRICE)


def test_calls_are_bounded_by_steps_and_depth() -> None:
    budget, _ = budget_of(max_steps=2, max_depth=1)
    for _ in range(4):
        budget.start_step()
    with pytest.raises(LimitReached, match="4 of 4 calls") as caught:
        budget.start_step()
    assert caught.value.limit == "steps"


def test_time_is_told_in_seconds() -> None:
    budget, _ = budget_of(max_seconds=2.5)
    assert str(budget.out_of_time()) == "the time limit of this run is reached: 2.5 s, planning included"


async def test_a_call_begins_once_all_under_way_stays_within_the_budget_at_its_most() -> None:
    budget, _ = budget_of(max_usd=10.0)
    await budget.room((0,), 8.0)
    budget.begin_call((0,), 1, PRICE, 8.0)
    await budget.room((1,), 9.0)
    third = asyncio.create_task(budget.room((2,), 1.0))
    await asyncio.sleep(0)
    assert not third.done(), "8 and 9 USD may be spent already, of 10"
    budget.begin_call((1,), 1, PRICE, 9.0)
    await budget.room((3,), 0.0)  # what is free waits for nothing
    budget.settle((0,), 2.0)
    await asyncio.sleep(0)
    assert not third.done()
    budget.settle((1,), 3.0)
    await third
    budget.settle((9,), 5.0)
    with pytest.raises(LimitReached, match=r"10\.000000 USD spent, and the next call would cost up to 7\.500000 USD"):
        budget.begin_call((2,), 0, PRICE, 7.5)
