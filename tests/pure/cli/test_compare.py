"""``conductor compare``: two runs in detail, more as a table, and every fault in one line."""

import json
from pathlib import Path
from typing import Any

import pytest

from conductor_core.rehearsal import EXAMPLES
from tests.support.command_line import CommandLine

TASK = EXAMPLES[3].task
STEPS: list[dict[str, Any]] = [
    {"instruction": "Plan the work. {question}", "agent": "planner", "access_list": []},
    {"instruction": "{question}", "agent": "calculator", "access_list": [0]},
    {"instruction": "Check the results. {question}", "agent": "verifier", "access_list": [1]},
]


@pytest.fixture
def runs(cli: CommandLine, tmp_path: Path) -> list[str]:
    """A run and a re-run in which the last step sees one more."""
    path = tmp_path / "workflow.json"
    path.write_text(json.dumps({"task": TASK, "steps": STEPS}))
    first = cli("run", "--workflow", path, "--json", "-q").document["run_id"]
    again = cli("rerun", first, "--step", "2", "--access", "0,1", "--json", "-q").document["run_id"]
    return [first, again]


def test_two_runs_are_compared_in_detail(cli: CommandLine, runs: list[str]) -> None:
    outcome = cli("compare", *runs)
    assert (outcome.code, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert lines[0].startswith(f"A  {runs[0]} · completed")
    assert "re-run of the other" in lines[1]
    assert "One change of the plan: step 2 also reads step 0." in lines[3]
    assert "  0  planner · plan same · output identical, reused" in lines
    assert any(line.startswith("  2  verifier · plan changed · output changed: the step was edited") for line in lines)
    assert "      access list: [{+0, +}1]" in lines
    assert lines[-1] == "first difference: step 2"


def test_the_document_says_the_same(cli: CommandLine, runs: list[str]) -> None:
    document = cli("compare", *runs, "--json").document
    assert [(each["change"], each["a"], each["b"], each["fields"]) for each in document["plan"]] == [
        ("changed", 2, 2, ["access_list"])
    ]
    assert [(step["a"], step["b"], step["because"]) for step in document["steps"]] == [
        (0, 0, "none"),
        (1, 1, "none"),
        (2, 2, "edited"),
    ]
    assert document["runs"][1]["parent_run_id"] == runs[0]


def test_the_rounds_of_one_run_are_compared(cli: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "recursive.json"
    again = {"instruction": "Go on.", "agent": "conductor", "access_list": [0]}
    recursive = [STEPS[1] | {"access_list": []}, again]
    path.write_text(json.dumps({"task": TASK, "steps": recursive}))
    run_id = cli("run", "--workflow", path, "--conductor", "tiny", "--max-depth", "1", "--json", "-q").document[
        "run_id"
    ]
    outcome = cli("compare", run_id)
    assert (outcome.code, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert lines[0] == "round 2, opened by step 1, beside round 1"
    assert lines[1].startswith(f"round 1  {run_id}")
    assert any(line.startswith("answer round 2") for line in lines)
    (told,) = cli("compare", run_id, "--json").document["rounds"]
    assert (told["a"], told["b"], told["kept_answer"]) == (None, "1", False)
    assert len(told["steps"]) >= 1


def test_three_runs_are_a_table(cli: CommandLine, runs: list[str]) -> None:
    third = cli("rerun", runs[0], "--json", "-q").document["run_id"]
    outcome = cli("compare", runs[0], runs[1], third)
    assert outcome.code == 0
    head, *rows = outcome.out.splitlines()
    assert head.split()[:3] == ["RUN", "STATUS", "STEPS"]
    assert [row.split()[:2] for row in rows] == [["A", runs[0]], ["B", runs[1]], ["C", third]]
    assert "one change" in rows[1]
    assert "no changes" in rows[2]
    document = cli("compare", runs[0], runs[1], third, "--json").document
    assert [each["run_id"] for each in document["with_first"]] == [runs[1], third]


def test_a_comparison_as_a_page_is_imported_with_all_its_runs(
    cli: CommandLine, runs: list[str], tmp_path: Path
) -> None:
    page, other = tmp_path / "both.html", f"sqlite:///{tmp_path / 'other.sqlite3'}"
    outcome = cli("compare", *runs, "--html", page, "--redact", "(?i)harbour")
    assert (outcome.code, outcome.err) == (0, f"wrote {page}\n")
    assert "One change of the plan" in outcome.out
    imported = cli("import", page, "--db", other)
    ids = imported.out.split()
    assert (imported.code, len(ids), imported.err.count("imported run")) == (0, 2, 2)
    again = cli("compare", *ids, "--db", other, "--json").document
    document = cli("compare", *runs, "--html", page, "--json").document
    assert [step["because"] for step in again["steps"]] == [step["because"] for step in document["steps"]]
    assert len(cli("import", page, "--db", other, "--json").document["runs"]) == 2
    assert "use it with --html FILE" in cli("compare", *runs, "--redact", "x").error
    assert "cannot be written" in cli("compare", *runs, "--html", tmp_path).err


def test_what_cannot_be_compared_is_one_line(cli: CommandLine, runs: list[str]) -> None:
    for arguments, says in (
        ([runs[0]], "give two or more runs to compare"),
        ([runs[0], runs[0]], f"run {runs[0]} is named twice"),
        ([runs[0], "nothere"], "nothere"),
    ):
        outcome = cli("compare", *arguments)
        assert outcome.code == 2
        assert outcome.out == ""
        assert says in outcome.err
        assert outcome.err.count("\n") == 1
