"""What a server reports of a call is reconciled, not believed: each case is what a server sends."""

from typing import Any

import pytest

from conductor_core.chat.messages import Price, Usage
from conductor_core.chat.usage import ReportedUsage

CACHED = {"prompt_tokens_details": {"cached_tokens": 100_000}}
FUGU = {
    "prompt_tokens": 150,
    "completion_tokens": 60,
    "total_tokens": 415,
    "prompt_tokens_details": {
        "cached_tokens": 20,
        "orchestration_input_tokens": 80,
        "orchestration_input_cached_tokens": 10,
    },
    "completion_tokens_details": {"reasoning_tokens": 15, "orchestration_output_tokens": 125},
}


def chat(*reports: dict[str, Any], text: str = "an answer") -> Usage | None:
    usage = ReportedUsage()
    for report in reports:
        usage.read_chat(report)
    return usage.of(text, prompt_tokens=7)


def counts(given: Any, made: Any, total: int | None = None, **more: Any) -> dict[str, Any]:
    found = {"prompt_tokens": given, "completion_tokens": made, **more}
    return found if total is None else found | {"total_tokens": total}


@pytest.mark.parametrize(
    ("reports", "usage"),
    [
        pytest.param([counts(9, 3, 12)], Usage(input_tokens=9, output_tokens=3), id="OpenAI"),
        pytest.param(
            [counts(100_000, 10, 100_010, **CACHED)],
            Usage(input_tokens=100_000, output_tokens=10, cached_input_tokens=100_000),
            id="cached within the prompt",
        ),
        pytest.param(
            [counts(100, 10, 100_110, **CACHED)],
            Usage(input_tokens=100_100, output_tokens=10, cached_input_tokens=100_000),
            id="cached beside the prompt, in the total",
        ),
        pytest.param(
            [{**counts(100, 10), **CACHED}],
            Usage(input_tokens=100_100, output_tokens=10, cached_input_tokens=100_000),
            id="more cached than in the prompt",
        ),
        pytest.param(
            [counts(30, 5, prompt_cache_hit_tokens=20, prompt_cache_miss_tokens=10)],
            Usage(input_tokens=30, output_tokens=5, cached_input_tokens=20),
            id="DeepSeek",
        ),
        pytest.param([counts(9, 3, 105)], Usage(input_tokens=9, output_tokens=96), id="Google: thoughts in the total"),
        pytest.param(
            [counts(9, 3, 105, completion_tokens_details={"reasoning_tokens": 93})],
            Usage(input_tokens=9, output_tokens=96, reasoning_tokens=93),
            id="xAI: reasoning beside the completion",
        ),
        pytest.param(
            [counts(9, 96, 105, completion_tokens_details={"reasoning_tokens": 93})],
            Usage(input_tokens=9, output_tokens=96, reasoning_tokens=93),
            id="reasoning within the completion",
        ),
        pytest.param(
            [counts(5, 1), counts(5, 2), counts(5, 3)], Usage(input_tokens=5, output_tokens=3), id="in every event"
        ),
        pytest.param(
            [counts(100, 150, 250), counts(0, 0, 0)], Usage(input_tokens=100, output_tokens=150), id="zeros at the end"
        ),
        pytest.param([counts(0, 0, 0)], Usage(input_tokens=7, output_tokens=3, estimated=True), id="zeros alone"),
        pytest.param(
            [{"input_tokens": 4, "output_tokens": 2}], Usage(input_tokens=4, output_tokens=2), id="other names"
        ),
        pytest.param([counts("9", "3")], Usage(input_tokens=9, output_tokens=3), id="numbers as text"),
        pytest.param(
            [FUGU],
            Usage(
                input_tokens=230,
                output_tokens=185,
                cached_input_tokens=30,
                reasoning_tokens=15,
                orchestration_input_tokens=80,
                orchestration_cached_input_tokens=10,
                orchestration_output_tokens=125,
            ),
            id="orchestration on top",
        ),
    ],
)
def test_a_chat_completion_counts_what_it_means(reports: list[dict[str, Any]], usage: Usage) -> None:
    assert chat(*reports) == usage


def test_a_call_of_which_nothing_is_said_has_no_usage() -> None:
    assert chat() is None
    assert chat({"cost": 0.1}) is None


def test_anthropics_cached_input_was_read_too_whether_or_not_the_last_event_says_it() -> None:
    for last in ({"output_tokens": 50}, {"input_tokens": 10, "output_tokens": 50}):
        usage = ReportedUsage()
        usage.read_message({"input_tokens": 10, "cache_read_input_tokens": 100_000, "output_tokens": 1})
        usage.read_message(last)
        assert usage.of("42", 7) == Usage(input_tokens=100_010, output_tokens=50, cached_input_tokens=100_000)


def test_a_sum_knows_what_one_of_its_calls_knows() -> None:
    total = Usage(input_tokens=5, cached_input_tokens=2) + Usage(input_tokens=3) + Usage(cached_input_tokens=1)
    assert (total.input_tokens, total.cached_input_tokens, total.reasoning_tokens) == (8, 3, None)


def test_a_cache_has_its_price_or_makes_the_cost_a_bound() -> None:
    usage = Usage(input_tokens=100_000, output_tokens=10, cached_input_tokens=99_000)
    plain, known = Price(input=10, output=100), Price(input=10, output=100, cached_input=1)
    assert plain.cost_usd(usage) == pytest.approx(1.001)
    assert known.cost_usd(usage) == pytest.approx(0.11)
    assert (plain.is_bound(usage), known.is_bound(usage)) == (True, False)
    assert not plain.is_bound(Usage(input_tokens=5))


def test_a_long_prompt_has_its_own_price() -> None:
    long = {"above": 200_000, "input": 4, "output": 40}
    price = Price.model_validate({"input": 2, "output": 20, "long": long})
    assert price.cost_usd(Usage(input_tokens=200_000, output_tokens=10)) == pytest.approx(0.4002)
    assert price.cost_usd(Usage(input_tokens=200_001, output_tokens=10)) == pytest.approx(0.800404)
