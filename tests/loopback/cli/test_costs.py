"""What a run costs with a Conductor on a server: counted, or said to be unknown; never nothing."""

import dataclasses

import pytest

from tests.support.command_line import CommandLine, conductor_and_workers
from tests.support.provider import Answer, Call, Reply, ScriptedProvider

STEPS_USD = 3 * (7 * 1.0 + 3 * 10.0) / 1e6
"""Of the three steps, by the provider's count and the pool's price."""


def test_a_conductor_on_a_server_without_a_price_is_of_unknown_cost(
    cli: CommandLine, provider: ScriptedProvider, where: list[str]
) -> None:
    ended = cli("run", "Two things.", "--json", *where).document
    assert (ended["cost_usd"], ended["conductor"]["cost_usd"], ended["cost_basis"]) == (None, None, "unknown")
    assert ended["known_usd"] == pytest.approx(STEPS_USD, abs=1e-12)
    assert [step["cost_basis"] for step in ended["steps"]] == ["list_price"] * 3, "exact tokens are no estimate"
    assert not any(step["cost_estimated"] for step in ended["steps"])


def test_the_command_line_says_what_it_knows_of_a_cost(cli: CommandLine, where: list[str]) -> None:
    said = cli("run", "Two things.", *where).err
    assert "at least $0.000111, the rest has no price" in said.splitlines()[-1]
    assert "10 tokens · price unknown" in said, "of the plan"


def test_a_provider_that_says_what_it_cost_is_believed(
    cli: CommandLine, provider: ScriptedProvider, where: list[str]
) -> None:
    def priced(call: Call) -> Reply | Answer:
        answer = conductor_and_workers(call)
        assert isinstance(answer, Answer)
        return dataclasses.replace(answer, cost_usd=0.125)

    provider.always(priced)
    ended = cli("run", "Two things.", "--json", *where).document
    assert (ended["conductor"]["cost_usd"], ended["conductor"]["cost_basis"]) == (0.125, "provider")
    assert (ended["cost_usd"], ended["cost_basis"]) == (0.5, "provider")
    assert "$0.5000 as the provider says" in cli("run", "Two things.", *where).err


def test_a_failed_plan_is_not_free(cli: CommandLine, provider: ScriptedProvider, where: list[str]) -> None:
    provider.always(Answer("no plan at all", usage=(1200, 86)))
    ended = cli("run", "Two things.", "--json", *where)
    assert ended.code == 1
    assert (ended.document["usage"]["input_tokens"], ended.document["cost_usd"]) == (2400, None)


def test_tokens_that_nobody_counted_are_estimated_and_said_to_be(
    cli: CommandLine, provider: ScriptedProvider, where: list[str]
) -> None:
    def uncounted(call: Call) -> Reply | Answer:
        answer = conductor_and_workers(call)
        assert isinstance(answer, Answer)
        return dataclasses.replace(answer, usage=None)

    provider.always(uncounted)
    ended = cli("run", "Two things.", "--json", *where).document
    assert ended["conductor"]["usage"]["input_tokens"] > 500, "of the whole prompt, not none"
    assert {step["cost_basis"] for step in ended["steps"]} == {"estimated"}
