import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_core.chat.messages import Message, Price, Usage, WorkerSpec
from conductor_core.engine.budgets import CostCap, CostCapReached, longest_answer, longest_question
from conductor_core.engine.runner import Engine, check
from conductor_core.errors import BadInput, LimitReached
from conductor_core.lab.training.worker_reward import Spent
from conductor_core.run.request import RunRequest
from tests.support.fakes import (
    MemorySink,
    Reply,
    ScriptedConductor,
    ScriptedWorker,
    pool_of,
    quick_settings,
    workflow_of,
)

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
