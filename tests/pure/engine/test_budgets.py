import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_core.chat.messages import Message, Price, Usage, WorkerSpec
from conductor_core.engine.budgets import Budget, CostCap, CostCapReached, longest_answer, longest_question
from conductor_core.engine.runner import Engine, check
from conductor_core.errors import BadInput, LimitReached
from conductor_core.lab.training.worker_reward import Spent
from conductor_core.run.costs import Cost
from conductor_core.run.events import now_utc
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import RunTrace, fold
from conductor_core.run.values import Limits, PoolInfo
from tests.support.fakes import (
    MemorySink,
    Reply,
    ScriptedConductor,
    ScriptedWorker,
    pool_of,
    quick_settings,
    workflow_of,
)
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


MESSAGES = (Message(role="user", content="x" * 24),)  # at the most 24 tokens and 16 for the turn
DEAR = WorkerSpec(
    name="dear",
    provider="openai",
    model="m",
    usd_per_mtok=Price(input=25_000.0, output=1_000_000.0),
    params={"max_tokens": 2},
)
"""One call costs 1 USD for the question and at the most 2 for the answer."""


async def call(cap: CostCap, output_tokens: int, *, spec: WorkerSpec = DEAR) -> None:
    async with cap.call(spec, MESSAGES) as one:
        await asyncio.sleep(0)
        usage = Usage(input_tokens=40, output_tokens=output_tokens)
        cap.add(usage, one.cost_usd(usage, None))


async def test_a_step_costs_a_shared_cap_what_its_usage_costs_if_the_provider_states_no_cost() -> None:
    cap, sink = CostCap(Spent(), max_usd=1.0), MemorySink()
    worker = ScriptedWorker("a", params={"max_tokens": 50})
    pool = pool_of(worker.then(Reply("one"), Reply("two", cost_usd=0.25)))
    request = RunRequest(task="t", workflow=workflow_of(("a", "begin", ()), ("a", "go on", (0,))))
    checked = check(request, None, pool, cap=cap)
    await sink.append(checked.created)
    trace = await Engine(sink, quick_settings()).begin(checked).run()
    assert trace.status == "completed"
    assert cap.usd == pytest.approx((10 * 1.0 + 5 * 10.0) / 1e6 + 0.25)


async def test_a_call_that_may_go_beyond_the_cap_is_not_made() -> None:
    cap = CostCap(Spent(usd=1.5), max_usd=5.0)
    await call(cap, 1)
    assert cap.usd == pytest.approx(3.5)
    with pytest.raises(CostCapReached, match=r"3\.5000 of 5 USD are spent and the next call may cost 3\.0000"):
        await call(cap, 1)
    with pytest.raises(LimitReached) as again:
        await call(cap, 0)
    assert again.value is cap.reached
    assert again.value.limit == "usd"


async def test_tokens_are_capped_too() -> None:
    cap = CostCap(Spent(tokens=90), max_tokens=132)
    await call(cap, 1)
    said = r"131 of 132 tokens are used and the next call may need 42.*max_tokens"
    with pytest.raises(CostCapReached, match=said) as caught:
        await call(cap, 1)
    assert caught.value.limit == "tokens"


def test_a_run_with_a_cap_in_usd_asks_no_conductor_without_a_price() -> None:
    request = RunRequest(task="What is 6 times 7?", conductor="scripted")
    pool = pool_of(ScriptedWorker("w"))
    unpriced = ScriptedConductor("", usd_per_mtok=None)
    with pytest.raises(BadInput, match="a budget of 2 USD cannot be kept: no price is known of the Conductor scripted"):
        check(request, unpriced, pool, cap=CostCap(Spent(), max_usd=2.0))
    assert check(request, unpriced, pool, cap=CostCap(Spent(), max_tokens=10)).cap is not None
    assert check(request, ScriptedConductor(""), pool, cap=CostCap(Spent(), max_usd=2.0)).cap is not None


async def test_a_call_waits_for_those_under_way_to_turn_out_cheaper() -> None:
    cap = CostCap(Spent(), max_usd=4.5)
    await asyncio.gather(call(cap, 0), call(cap, 0))  # at their most 6 USD, in fact 2
    assert cap.usd == pytest.approx(2.0)
    assert cap.reached is None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=30), st.floats(0, 40), st.integers(0, 10))
def test_the_cap_holds_however_many_calls_are_under_way(outputs: list[int], max_usd: float, spent: int) -> None:
    async def all_at_once() -> CostCap:
        cap = CostCap(Spent(usd=float(spent)), max_usd=max_usd)
        await asyncio.gather(*(call(cap, each) for each in outputs), return_exceptions=True)
        return cap

    cap = asyncio.run(all_at_once())
    assert cap.usd <= max(max_usd, spent) + 1e-6
    everything = spent + sum(1 + each for each in outputs)
    assert cap.reached is not None or cap.usd == pytest.approx(everything)
    assert cap.reached is None or cap.usd > max_usd - 3


def test_a_cap_in_usd_needs_prices() -> None:
    free = WorkerSpec(name="unknown", provider="openai", model="m", params={"max_tokens": 2})
    local = WorkerSpec(name="ours", provider="local", model="m")
    with pytest.raises(BadInput, match=r"no price is known of unknown; give usd_per_mtok"):
        CostCap(Spent(), max_usd=1.0).check_workers([DEAR, free, local])
    CostCap(Spent(), max_tokens=1).check_workers([free])
    CostCap(Spent(), max_usd=1.0, assumed_price=Price(input=1, output=1)).check_workers([free])


@pytest.mark.parametrize("most", ["9", True, 0, -1, 9.5])
def test_a_cap_needs_answers_that_are_limited(most: object) -> None:
    unlimited = DEAR.model_copy(update={"name": "unlimited", "params": {"max_output_tokens": 9, "max_tokens": most}})
    anthropic = unlimited.model_copy(update={"provider": "anthropic"})  # the interface demands a limit
    for cap in (CostCap(Spent(), max_usd=1.0), CostCap(Spent(), max_tokens=10)):
        with pytest.raises(BadInput, match=r"the answers of unlimited; give params = \{ max_tokens = 4096"):
            cap.check_workers([DEAR, unlimited, anthropic])
        cap.check_workers([DEAR, anthropic])
    CostCap(Spent()).check_workers([unlimited])


def test_a_question_is_never_longer_than_what_is_reserved_for_it() -> None:
    two = (Message(role="user", content="数学"), Message(role="user", content="x{y}"))
    assert longest_question(two) == 6 + 4 + 2 * 16


async def test_what_the_provider_says_counts_before_the_price() -> None:
    cap = CostCap(Spent(), max_usd=10.0)
    async with cap.call(DEAR, MESSAGES) as one:
        assert one.cost_usd(Usage(input_tokens=40), 0.125) == 0.125
        assert one.cost_usd(Usage(input_tokens=40), None) == pytest.approx(1.0)


def test_the_longest_answer_is_what_the_worker_is_asked_for() -> None:
    assert longest_answer(DEAR) == 2
    assert longest_answer(DEAR.model_copy(update={"params": {"max_completion_tokens": 7}})) == 7
    assert longest_answer(DEAR.model_copy(update={"params": {"max_tokens": 5, "max_completion_tokens": 7}})) == 7
    assert longest_answer(DEAR.model_copy(update={"params": {}})) == 4096
