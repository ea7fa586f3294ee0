"""What a plan is expected to cost before anything has run."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.chat.messages import Price, Usage, WorkerSpec
from conductor_core.engine.estimates import ANSWER_TOKENS, Rounds, forecast, usual_answer_tokens
from conductor_core.engine.prompts import Asked
from conductor_core.workflow.model import CONDUCTOR_AGENT, QUESTION, Step, Workflow

PAID = WorkerSpec(name="paid", provider="openai", model="m", usd_per_mtok=Price(input=1, output=10))
SHORT = PAID.model_copy(update={"name": "short", "params": {"max_tokens": 50}})
UNPRICED = WorkerSpec(name="unpriced", provider="openai", model="m")
SPECS = (PAID, SHORT, UNPRICED)


def chain(*agents: str) -> Workflow:
    return Workflow(
        steps=tuple(
            Step(instruction=f"Solve {QUESTION}", agent=agent, access_list=(index - 1,) if index else ())
            for index, agent in enumerate(agents)
        )
    )


def test_a_step_pays_for_the_answers_that_it_reads() -> None:
    first, second = forecast(chain("paid", "paid"), SPECS, Asked("task"), answer_tokens=400).will_run
    assert second.estimated_tokens - first.estimated_tokens >= 400
    assert first.estimated_usd is not None
    assert first.estimated_usd == pytest.approx((first.estimated_tokens - 400 + 400 * 10) / 1e6)


def test_a_worker_writes_no_more_than_it_may() -> None:
    long, short = (forecast(chain(agent), SPECS, Asked("task"), answer_tokens=400) for agent in ("paid", "short"))
    assert long.estimated_tokens - short.estimated_tokens == 350


@pytest.mark.parametrize("agent", ["unpriced", CONDUCTOR_AGENT])
def test_an_unknown_cost_stays_unknown_and_what_is_known_is_said(agent: str) -> None:
    found = forecast(chain("paid", agent), SPECS, Asked("task"))
    assert found.estimated_usd is None
    assert found.cost.usd is None
    assert found.cost.known_usd > 0


def test_a_round_of_the_conductor_comes_on_top_with_a_range_from_recorded_ones() -> None:
    assert forecast(chain("paid"), SPECS, Asked("task")).on_top == ""
    one = forecast(chain("paid", CONDUCTOR_AGENT), SPECS, Asked("task"))
    assert one.on_top == "a round of the Conductor comes on top: none is recorded"
    rounds = Rounds(tokens=(800, 2100), usd=(0.5, 2.0))
    two = forecast(chain(CONDUCTOR_AGENT, "paid", CONDUCTOR_AGENT), SPECS, Asked("task"), rounds=rounds)
    assert two.on_top == (
        "2 rounds of the Conductor come on top, by the recorded ones 800 to 2,100 tokens, $0.5000 to $2.00 each"
    )


@given(st.lists(st.sampled_from(["paid", "short", "unpriced"]), max_size=6))
def test_every_step_runs_and_the_sums_are_those_of_the_steps(agents: list[str]) -> None:
    found = forecast(chain(*agents), SPECS, Asked("task"))
    assert [step.index for step in found.will_run] == list(range(len(agents)))
    assert found.will_reuse == ()
    assert found.estimated_tokens == sum(step.estimated_tokens for step in found.will_run)


@dataclass(frozen=True)
class Earlier:
    pool: str
    steps_completed: int
    usage: Usage


def test_answers_are_expected_to_be_as_long_as_they_were_in_this_pool() -> None:
    runs = [
        Earlier("mine", 2, Usage(output_tokens=300)),
        Earlier("mine", 1, Usage(output_tokens=300)),
        Earlier("mine", 0, Usage(output_tokens=900)),
        Earlier("other", 1, Usage(output_tokens=5000)),
    ]
    assert usual_answer_tokens("mine", runs) == 200
    assert usual_answer_tokens("new", runs) == ANSWER_TOKENS
