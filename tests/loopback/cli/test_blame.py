"""``blame`` on workers behind real HTTP: what it calls, what it costs, what it says."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import CommandLine
from tests.support.provider import Answer, Call, Reply, ScriptedProvider, error

PLAN = {
    "task": "How many are there?",
    "steps": [
        {"agent": "alpha", "instruction": "Count them: {question}", "access_list": []},
        {"agent": "beta", "instruction": "Say what kind they are.", "access_list": []},
        {"agent": "gamma", "instruction": "State the answer.", "access_list": [1]},
    ],
}


def say_what_is_seen(call: Call) -> Answer | Reply:
    """``gamma`` knows the number only if it sees what ``alpha`` said."""
    seen = json.dumps(call.messages)
    text = {"alpha": "The answer is 42.", "beta": "They are round."}.get(call.model)
    return Answer(text or ("The answer is 42." if "42" in seen else "The answer is 7."))


@pytest.fixture
def told(cli: CommandLine, provider: ScriptedProvider, where: list[str], tmp_path: Path) -> dict[str, Any]:
    """A finished run in which the last step did not see the first, and where its record is."""
    provider.always(say_what_is_seen)
    pool = Path(where[1])
    pool.write_text(pool.read_text().replace("timeout_s = 30", "timeout_s = 30\nparams = { max_tokens = 20 }"))
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(PLAN))
    db = ["--db", str(tmp_path / "runs.sqlite3")]
    run = cli("run", "--workflow", plan, "--json", *where, *db).document
    assert run["answer"] == "The answer is 7."
    return {"run_id": run["run_id"], "db": db}


def test_a_step_that_did_not_see_another_is_a_measured_sentence(
    cli: CommandLine, provider: ScriptedProvider, told: dict[str, Any]
) -> None:
    before = len(provider.completions)
    outcome = cli("blame", told["run_id"], "--truth", "42", "--json", *told["db"])
    document, first = outcome.document, outcome.document["ranking"][0]
    assert outcome.code == 0
    assert len(provider.completions) - before == document["estimate"]["calls"] == document["calls_made"]
    assert first["change"] == {"kind": "granted", "step": 2, "source": 0}
    assert first["finding"] == "decides"
    assert first["sentence"].startswith("Step 2 did not see step 0. Had it, the final answer flips in 10 of 10 replays")
    assert (first["with"]["flipped"], first["without"]["flipped"]) == (10, 0)
    assert document["recorded_right"] is False
    for run_id in (*first["with"]["run_ids"], *first["without"]["run_ids"]):
        shown = cli("show", run_id, "--json", *told["db"]).document
        assert (shown["parent_run_id"], shown["purpose"]) == (told["run_id"], "blame")
    listed = cli("runs", "--json", *told["db"]).document["runs"]
    assert [run["run_id"] for run in listed] == [told["run_id"]]
    assert len(cli("runs", "--replays", "--limit", 500, "--json", *told["db"]).document["runs"]) == 1 + 50
    said = cli("blame", told["run_id"], "--truth", "42", "--quiet", *told["db"]).out
    assert "First: step 2 sees step 0." in said
    assert len(provider.completions) - before == document["calls_made"], "what is recorded is not run again"


def test_a_dry_run_names_the_calls_and_makes_none(
    cli: CommandLine, provider: ScriptedProvider, told: dict[str, Any]
) -> None:
    before = len(provider.completions)
    outcome = cli("blame", told["run_id"], "--dry-run", "--n", 3, *told["db"])
    assert "3 replays of each: 15 replays, 21 calls" in outcome.out
    assert "Nothing is measured yet." in outcome.out
    steps = cli("blame", told["run_id"], "--dry-run", "--n", 3, "--only", "steps", "--json", *told["db"]).document
    assert steps["estimate"]["calls"] < 21
    assert len(provider.completions) == before


def test_a_budget_holds_and_the_rest_can_follow(
    cli: CommandLine, provider: ScriptedProvider, told: dict[str, Any]
) -> None:
    # A call may cost 20 tokens of 10 USD a million and its prompt, and costs 37 of a million USD.
    outcome = cli("blame", told["run_id"], "--max-usd", 0.002, "--json", *told["db"])
    document = outcome.document
    assert outcome.code == 1
    assert 0 < document["replays_completed"] < document["estimate"]["replays"]
    assert document["stopped"].startswith("The budget is used: $0.001")
    assert document["stopped"].endswith("of $0.002000 are spent, and no further replay fits. Raise it to continue.")
    assert 37e-6 * document["calls_made"] <= 0.002
    whole = cli("blame", told["run_id"], "--json", *told["db"]).document
    assert whole["left"]["calls"] == 0
    assert whole["calls_made"] == whole["estimate"]["calls"]


def test_replays_that_fail_are_said_and_tried_again(
    cli: CommandLine, provider: ScriptedProvider, told: dict[str, Any]
) -> None:
    provider.always(lambda call: error(400, "no") if call.model == "beta" else say_what_is_seen(call))
    outcome = cli("blame", told["run_id"], "--n", 2, *told["db"])
    assert outcome.code == 1
    assert "4 replays failed: the same command tries again." in outcome.out
    provider.always(say_what_is_seen)
    assert cli("blame", told["run_id"], "--n", 2, *told["db"]).code == 0


def test_what_cannot_be_blamed_is_one_clear_error(
    cli: CommandLine, provider: ScriptedProvider, told: dict[str, Any], tmp_path: Path, where: list[str]
) -> None:
    provider.always(lambda call: error(400, "no"))
    failed = cli("run", "--workflow", tmp_path / "plan.json", "--json", *where, *told["db"]).document["run_id"]
    outcome = cli("blame", failed, "--quiet", *told["db"])
    assert outcome.code == 2
    assert outcome.error.startswith(f"run {failed} cannot be blamed: it is failed")
    assert "unknown run" in cli("blame", "nothing", *told["db"]).error
    assert "right answer" in cli("blame", told["run_id"], "--truth", " ", *told["db"]).error
