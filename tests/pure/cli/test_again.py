"""``rerun`` of single steps on the rehearsal pool: asked afresh, once or many times, or given by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from conductor_core.rehearsal import EXAMPLES
from tests.support.command_line import CommandLine

TASK = EXAMPLES[2].task
STEPS = [
    {"instruction": "Plan how to solve this. {question}", "agent": "planner", "access_list": []},
    {"instruction": "Solve it: {question}", "agent": "calculator", "access_list": [0]},
    {"instruction": "Give the final answer. {question}", "agent": "writer", "access_list": [1]},
]


@pytest.fixture
def ran(cli: CommandLine, tmp_path: Path) -> Any:
    file = tmp_path / "workflow.json"
    file.write_text(json.dumps({"task": TASK, "steps": STEPS}))
    return cli("run", "--workflow", file, "--json", "-q").document


def statuses(document: Any) -> list[str]:
    return [step["status"] for step in document["steps"]]


def test_one_step_alone_then_the_rest_of_that_run(cli: CommandLine, ran: Any) -> None:
    dry = cli("rerun", ran["run_id"], "--only", 1, "--dry-run", "--json").document
    assert ([each["index"] for each in dry["will_run"]], dry["will_skip"]) == ([1], [2])
    document = cli("rerun", ran["run_id"], "--only", 1, "--seed", 7, "--json", "-q").document
    assert statuses(document) == ["reused", "completed", "skipped"]
    assert document["answer"] == document["steps"][1]["output"] != ran["steps"][1]["output"]
    given = {"seeds": [{"step": 1, "seed": 7}], "outputs": [], "turns": [], "last_step": 1, "again": 1}
    assert document["overrides"] == given
    assert "ends with step 1" in cli("show", document["run_id"]).out
    rest = cli("rerun", document["run_id"], "--json", "-q").document
    assert statuses(rest) == ["reused", "reused", "completed"]


def test_a_step_many_times_by_two_workers_with_the_same_seeds(cli: CommandLine, ran: Any) -> None:
    asked = ["--only", "1", "--times", "3", "--agent", "calculator", "--agent", "scientist", "--seed", "5"]
    dry = cli("rerun", ran["run_id"], *asked, "--dry-run", "--json").document
    assert dry["runs"] == 6
    outcome = cli("rerun", ran["run_id"], *asked, "--json")
    document = outcome.document
    assert outcome.code == 0
    assert "6 of 6 runs" in outcome.err
    assert "about" in outcome.err.splitlines()[2], "the estimate comes first"
    assert [(each["agent"], len(each["run_ids"])) for each in document["tallies"]] == [
        ("calculator", 3),
        ("scientist", 3),
    ]
    assert [each["seed"] for each in document["runs"]] == [5, 6, 7] * 2
    assert document["simulated"]
    for each in document["tallies"]:
        assert sum(len(group["run_ids"]) for group in each["groups"]) + len(each["unanswered"]) == 3
        assert each["groups"][0]["share"]["low"] < each["groups"][0]["share"]["share"]
    run = cli("show", document["runs"][4]["run_id"], "--json").document
    assert (run["purpose"], run["parent_run_id"]) == ("one step again", ran["run_id"])
    assert (run["batch"]["id"], run["steps"][1]["agent"]) == (document["batch"], "scientist")
    again = cli("rerun", ran["run_id"], *asked, "-q")
    assert "step 1 alone, 6 runs, simulated workers" in again.out
    assert "agree by value (" in again.out
    assert {each["answer"] for each in document["runs"][:3]} == {
        cli("show", run_id, "--json").document["answer"] for run_id in document["tallies"][0]["run_ids"]
    }


def test_the_same_seeds_draw_the_same_answers(cli: CommandLine, ran: Any) -> None:
    asked = ["--from", "1", "--times", "2", "--seed", "3", "--json", "-q"]
    first, second = (cli("rerun", ran["run_id"], *asked).document for _ in range(2))
    assert [run["answer"] for run in first["runs"]] == [run["answer"] for run in second["runs"]]
    assert first["runs"][0]["answer"] != first["runs"][1]["answer"], "what varies with the seed is the whole text"


def test_a_written_output_is_marked_wherever_it_is_shown(cli: CommandLine, ran: Any, tmp_path: Path) -> None:
    file = tmp_path / "solution.txt"
    file.write_text("The answer is 7.")
    dry = cli("rerun", ran["run_id"], "--output", f"1=@{file}", "--dry-run")
    assert "its output is written by" in dry.out
    outcome = cli("rerun", ran["run_id"], "--output", f"1=@{file}", "--json")
    document = outcome.document
    assert statuses(document) == ["reused", "written", "completed"]
    assert (document["steps"][1]["output"], document["steps"][1]["given"]["how"]) == ("The answer is 7.", "written")
    assert "not asked: written by" in outcome.err
    shown = cli("show", document["run_id"]).out
    assert "no model was asked: written by" in shown
    assert "step 1 of calculator, written by a person (" in shown
    assert "by a person" in cli("show", document["run_id"], "--context").out
    compared = cli("compare", ran["run_id"], document["run_id"]).out
    assert "written by a person in B" in compared
    kept = cli("rerun", document["run_id"], "--json", "-q").document
    assert statuses(kept) == ["reused", "written", "reused"], "it stays"
    freed = cli("rerun", document["run_id"], "--release", 1, "--json", "-q").document
    assert statuses(freed) == ["reused", "completed", "completed"]


def test_a_pinned_output_stands_although_the_step_above_it_changes(cli: CommandLine, ran: Any) -> None:
    edit = ["--step", "0", "--instruction", "Plan it otherwise. {question}"]
    document = cli("rerun", ran["run_id"], *edit, "--pin", 1, "--json", "-q").document
    assert statuses(document) == ["completed", "reused", "reused"]
    step = document["steps"][1]
    assert (step["output"], step["given"]["how"]) == (ran["steps"][1]["output"], "pinned")
    assert (step["given"]["source_run_id"], step["reused_from"]) == (ran["run_id"], ran["run_id"])
    assert "pinned by" in cli("show", document["run_id"]).out


def test_what_a_worker_answered_to_the_letter_is_no_persons_text(cli: CommandLine, ran: Any, tmp_path: Path) -> None:
    answer = tmp_path / "answer.txt"
    answer.write_text(ran["steps"][1]["output"], encoding="utf-8")
    document = cli("rerun", ran["run_id"], "--output", f"1=@{answer}", "--json", "-q").document
    step = document["steps"][1]
    assert (step["status"], step["given"]["how"], step["reused_from"]) == ("reused", "pinned", ran["run_id"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "3"], "unknown step 3: the steps of run RUN are 0 to 2"),
        (["--only", "1", "--from", "1"], "give --only or --from, not both"),
        (["--times", "3"], "Give --only N or --from N with it"),
        (["--only", "1", "--step", "0", "--instruction", "x"], "give them without --step and --workflow"),
        (["--only", "1", "--agent", "nobody"], "has no worker nobody"),
        (["--step", "1", "--agent", "planner", "--agent", "writer"], "several --agent go with --only or --from"),
        (["--output", "1"], "write N=TEXT, or N=@FILE"),
        (["--output", "1="], "the output of step 1 is empty"),
        (["--output", "9=x"], "--output 9: the steps of run RUN are 0 to 2"),
        (["--output", "1=@missing.txt"], "output file missing.txt: no such file"),
        (["--output", "1=x", "--pin", "1"], "give each step one output"),
        (["--release", "1"], "no output was written or pinned there"),
    ],
)
def test_what_is_no_use_is_said(cli: CommandLine, ran: Any, arguments: list[str], message: str) -> None:
    outcome = cli("rerun", ran["run_id"], *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert message.replace("RUN", ran["run_id"]) in outcome.error
