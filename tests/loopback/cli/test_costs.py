"""What a run costs with a Conductor on a server: counted, or said to be unknown; never nothing."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine, conductor_and_workers
from tests.support.provider import Answer, Call, Reply, ScriptedProvider, delta, sse

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
    assert "· at least $0.000111" in said.splitlines()[-1]
    assert "10 tokens · cost unknown" in said, "of the plan"


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


def test_lists_and_records_tell_a_cost_as_the_run_did(cli: CommandLine, where: list[str]) -> None:
    run_id = cli("run", "Two things.", "--json", *where).document["run_id"]
    assert "  at least $0.000111  " in cli("runs").out
    (row,) = cli("runs", "--json").document["runs"]
    assert (row["cost_usd"], row["cost_at_least"]) == (None, True)
    assert row["known_usd"] == pytest.approx(STEPS_USD, abs=1e-12)
    assert "cost unknown" in cli("show", run_id).out, "of the plan"
    assert [step["cost_at_least"] for step in cli("show", run_id, "--json").document["steps"]] == [False] * 3


def test_a_batch_says_what_is_known_of_its_cost(cli: CommandLine, where: list[str], tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text('{"id": "one", "task": "Two things."}\n{"id": "two", "task": "Two things."}\n')
    said = cli("run", "--tasks", str(file), *where)
    assert "· at least $0.000222" in said.err.splitlines()[-1]
    assert "at least $0.000111" in said.out.splitlines()[0], "a task of it"


def test_a_budget_in_usd_is_exceeded_by_no_more_than_one_calls_most(
    cli: CommandLine, provider: ScriptedProvider, where: list[str], tmp_path: Path
) -> None:
    """Four steps that could all begin at once; each of their calls may cost 0.02 USD, and does."""
    pool = Path(where[1])
    pool.write_text(pool.read_text().replace("timeout_s = 30", "timeout_s = 30\nparams = { max_tokens = 2000 }"))
    plan, db = tmp_path / "wide.json", ["--db", tmp_path / "runs.sqlite3"]
    steps = [{"agent": "alpha", "instruction": f"Write {number}.", "access_list": []} for number in range(4)]
    plan.write_text(json.dumps({"steps": steps}))
    provider.always(Answer("long", (10, 2000)))
    most = 0.021
    ran = cli("run", "x", "--workflow", plan, "--max-usd", 0.03, *where[:2], "--json", *db)
    assert (ran.code, ran.document["error"]["code"]) == (1, "LimitReached")
    assert 0.03 <= ran.document["cost_usd"] < 0.03 + most
    assert len(provider.completions) == 2, "two calls at their most are all that begins within 0.03 USD"
    assert re.search(r"0\.040020 USD spent, and the next call would cost up to 0\.02\d{4} USD", ran.err), ran.err
    dry = cli("rerun", ran.document["run_id"], "--dry-run", "--max-usd", 0.05, *db)
    assert re.search(r"--max-usd 0\.05 may be exceeded by one call at most: 0\.02\d{4} USD", dry.out), dry.out


def test_what_a_cache_without_a_price_saved_is_not_known_so_a_cost_is_the_most(
    cli: CommandLine, provider: ScriptedProvider, where: list[str], tmp_path: Path
) -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 90}}
    provider.always(Reply([sse(delta("42", finish="stop")), sse({"choices": [], "usage": usage}), sse("[DONE]")]))
    plan = tmp_path / "one.json"
    plan.write_text(json.dumps({"steps": [{"instruction": "{question}", "agent": "alpha", "access_list": []}]}))
    step, run = cli("run", "What?", "--workflow", plan, *where).err.splitlines()[-2:]
    assert step.endswith("5 tokens out · at most $0.000150")
    assert "at most $0.000150 at list price; what the provider's cache saved is not known" in run
    ended = cli("run", "What?", "--json", "--workflow", plan, *where).document
    assert (ended["cost_basis"], ended["at_most"]) == ("at_most", True)
