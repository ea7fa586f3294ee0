import pytest

from conductor_core.chat import Message, Usage
from conductor_core.engine.limits import Budget, estimate_input_tokens, estimate_tokens
from conductor_core.errors import LimitReached
from conductor_core.events import Limits, PoolInfo, now_utc
from conductor_core.trace import RunTrace


def budget_of(**limits: float | None) -> tuple[Budget, RunTrace]:
    asked = Limits.model_validate(limits)
    trace = RunTrace(
        run_id="r",
        task="t",
        by="cli",
        simulated=False,
        pool=PoolInfo(name="p", workers=()),
        limits=asked,
        app_version="0",
        created_at_utc=now_utc(),
    )
    return Budget(asked, trace), trace


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2)])
def test_tokens_are_estimated_by_four_characters(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


def test_each_message_adds_its_frame() -> None:
    assert estimate_input_tokens((Message(role="user", content="abcd"), Message(role="user", content=""))) == 9


def test_live_estimates_count_until_they_are_settled() -> None:
    budget, trace = budget_of(max_tokens=100)
    budget.streaming((0,), 30, 20, None)
    budget.streaming((1,), 20, 29, None)
    with pytest.raises(LimitReached, match="100 of 100 tokens") as caught:
        budget.streaming((1,), 20, 30, None)
    assert caught.value.limit == "tokens"
    budget.settle((1,))
    budget.check()
    trace.usage = Usage(input_tokens=49)
    budget.check()
    trace.usage = Usage(input_tokens=50)
    with pytest.raises(LimitReached):
        budget.check()


def test_totals_hold_what_is_still_streaming_and_say_that_it_is_estimated() -> None:
    budget, trace = budget_of()
    trace.usage, trace.cost_usd = Usage(input_tokens=1, output_tokens=2), 0.5
    assert budget.total() == (trace.usage, 0.5)
    budget.streaming((0,), 10, 20, 0.25)
    assert budget.total() == (Usage(input_tokens=11, output_tokens=22, estimated=True), 0.75)
    budget.streaming((1,), 1, 1, None)
    assert budget.total()[1] is None


def test_settled_costs_add_up() -> None:
    budget, _ = budget_of(max_usd=1.0)
    budget.streaming((0,), 1, 1, 0.9)
    budget.settle((0,), 0.4)
    budget.streaming((1,), 1, 1, 0.5)
    budget.settle((1,), 0.5)
    budget.check()
    with pytest.raises(LimitReached, match=r"1\.0000 of 1\.0000 USD"):
        budget.streaming((2,), 1, 1, 0.1)


def test_calls_are_bounded_by_steps_and_depth() -> None:
    budget, _ = budget_of(max_steps=2, max_depth=1)
    for _ in range(4):
        budget.start_call()
    with pytest.raises(LimitReached, match="4 of 4 calls") as caught:
        budget.start_call()
    assert caught.value.limit == "steps"


def test_time_is_told_in_seconds() -> None:
    budget, _ = budget_of(max_seconds=2.5)
    assert str(budget.out_of_time()) == "the time limit of this run is reached: 2.5 s, planning included"
