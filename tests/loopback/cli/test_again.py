"""One step many times at workers behind real HTTP: which seeds are sent, and what a budget allows."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import CommandLine
from tests.support.provider import ScriptedProvider

STEPS = [
    {"instruction": "Plan: {question}", "agent": "alpha", "access_list": []},
    {"instruction": "Solve: {question}", "agent": "beta", "access_list": [0]},
]


@pytest.fixture
def pool(provider: ScriptedProvider, tmp_path: Path) -> Path:
    """``alpha`` has no seed of its own in the pool file, ``beta`` has."""
    file = tmp_path / "workers.toml"
    file.write_text(
        "\n".join(
            f'[[worker]]\nname = "{name}"\nprovider = "openai"\nmodel = "{name}"\nbase_url = "{provider.url}"\n'
            f"usd_per_mtok = {{ input = 1.0, output = 10.0 }}\nparams = {{ max_tokens = 100{seed} }}\n"
            for name, seed in (("alpha", ""), ("beta", ", seed = 1"))
        )
    )
    return file


@pytest.fixture
def ran(cli: CommandLine, pool: Path, tmp_path: Path) -> Any:
    workflow = tmp_path / "workflow.json"
    workflow.write_text(json.dumps({"task": "What is 6 x 7?", "steps": STEPS}))
    return cli("run", "--workflow", workflow, "--pool", pool, "--json", "-q").document


def test_a_worker_gets_the_seed_of_the_step_if_its_pool_file_has_one(
    cli: CommandLine, provider: ScriptedProvider, ran: Any
) -> None:
    before = len(provider.completions)
    document = cli("rerun", ran["run_id"], "--only", 1, "--times", 3, "--seed", 7, "--json", "-q").document
    assert sorted(call.body["seed"] for call in provider.completions[before:]) == [7, 8, 9]
    assert document["tallies"][0]["groups"][0]["as_before"], "this provider answers by the messages alone"
    document = cli("rerun", ran["run_id"], "--from", 0, "--seed", 4, "--json", "-q").document
    asked = {call.model: call.body for call in provider.completions[before + 3 :]}
    assert "seed" not in asked["alpha"], "not every server knows the field"
    assert asked["beta"]["seed"] == 4
    assert [step["status"] for step in document["steps"]] == ["completed", "completed"]


def test_a_budget_covers_all_runs_together_and_what_it_refuses_is_said(
    cli: CommandLine, provider: ScriptedProvider, ran: Any
) -> None:
    before, budget = len(provider.completions), 0.0016
    outcome = cli("rerun", ran["run_id"], "--only", 1, "--times", 20, "--max-usd", budget, "--json", "-q")
    (tally,) = outcome.document["tallies"]
    made = len(provider.completions) - before
    assert 1 <= made < 20
    assert tally["known_usd"] <= budget
    answered = sum(len(group["run_ids"]) for group in tally["groups"])
    assert (answered, len(tally["unanswered"])) == (made, 20 - made)
    assert "the cost cap is reached" in tally["unanswered"][0]["error"]
    assert "run the command again" in tally["unanswered"][0]["error"]
    assert outcome.code == 0, "some have answered"
