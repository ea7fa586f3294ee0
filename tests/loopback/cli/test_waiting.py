"""A run that waits, in the terminal: ``run --gate``, ``waiting``, ``approve``, ``deny``."""

import json
from pathlib import Path
from typing import Any

import pytest

from conductor_core.cli.main import main

WORKFLOW = {
    "task": "What is 6 times 7?",
    "steps": [
        {"instruction": "Solve it: {question}", "agent": "reasoner", "access_list": []},
        {"instruction": "Check it.", "agent": "verifier", "access_list": [0]},
    ],
}


@pytest.fixture
def db(tmp_path: Path) -> str:
    return str(tmp_path / "runs.sqlite3")


@pytest.fixture
def plan(tmp_path: Path) -> str:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(WORKFLOW))
    return str(file)


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDUCTOR_REHEARSAL_TOKENS_PER_S", "0")


def document(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*arguments, "--json"]) == code
    parsed: dict[str, Any] = json.loads(capsys.readouterr().out)
    return parsed


def waiting_run(capsys: pytest.CaptureFixture[str], db: str, plan: str, gate: str = "steps") -> str:
    run = document(capsys, "run", "--workflow", plan, "--gate", gate, "--no-wait", "--db", db, code=3)
    assert (run["status"], run["gates"]) == ("waiting", [gate])
    return str(run["run_id"])


def test_a_run_waits_is_listed_approved_step_by_step_and_done(
    capsys: pytest.CaptureFixture[str], db: str, plan: str
) -> None:
    run_id = waiting_run(capsys, db, plan)
    (listed,) = document(capsys, "waiting", "--db", db)["waiting"]
    assert {name: listed[name] for name in ("run_id", "for", "rule", "step")} == {
        "run_id": run_id,
        "for": "approval",
        "rule": "steps",
        "step": "0",
    }
    assert listed["requests"][0]["most"]["output_tokens"] > 0
    run = document(capsys, "approve", run_id, "--step", "0", "--note", "go", "--db", db, code=3)
    assert (run["waiting"]["step"], run["approvals"][0]["note"]) == ("1", "go")
    run = document(capsys, "approve", run_id[:12], "--all", "--db", db)
    assert (run["status"], run["waiting"], [step["status"] for step in run["steps"]]) == (
        "completed",
        None,
        ["completed", "completed"],
    )
    shown = document(capsys, "show", run_id, "--db", db)
    assert [each["what"] for each in shown["approvals"]] == ["step 0", "step 1"]
    assert shown["approvals"][0]["messages"][0]["content"] == "Solve it: What is 6 times 7?"


def test_people_read_what_waits_and_who_decided(capsys: pytest.CaptureFixture[str], db: str, plan: str) -> None:
    assert main(["run", "--workflow", plan, "--gate", "plan", "--no-wait", "--db", db]) == 3
    said = capsys.readouterr().err
    assert "gate plan · the plan, at most" in said
    run_id = said.split()[1]
    assert f"run {run_id} waits for an approval of the plan: conductor approve {run_id} --db {db}, or deny" in said
    assert main(["waiting", "--db", db]) == 0
    listed = capsys.readouterr().out
    assert run_id in listed
    assert "the plan, at most" in listed
    assert main(["approve", run_id, "--note", "fine", "--db", db]) == 0
    printed = capsys.readouterr()
    assert "the plan approved by" in printed.err
    assert ": fine" in printed.err
    assert "plan · " not in printed.err, "what was shown before the wait is not shown again"
    assert "verifier" in printed.out
    assert main(["waiting", "--db", db]) == 0
    assert "no run waits" in capsys.readouterr().out
    assert main(["show", run_id, "--db", db]) == 0
    assert "approved by" in capsys.readouterr().out


def test_denied(capsys: pytest.CaptureFixture[str], db: str, plan: str) -> None:
    run_id = waiting_run(capsys, db, plan)
    run = document(capsys, "deny", run_id, "--note", "too dear", "--db", db)
    assert (run["status"], run["error"]["code"], run["ended_by"]["door"]) == ("denied", "Denied", "cli")
    assert run["error"]["message"].startswith("step 0 was denied by ")
    assert run["error"]["message"].endswith(": too dear")
    assert main(["approve", run_id, "--db", db]) == 2
    assert "has already ended: denied" in capsys.readouterr().err
    assert [run["status"] for run in document(capsys, "runs", "--status", "denied", "--db", db)["runs"]] == ["denied"]


def test_a_re_run_of_a_run_that_waits_says_for_what(capsys: pytest.CaptureFixture[str], db: str, plan: str) -> None:
    run_id = waiting_run(capsys, db, plan)
    assert main(["rerun", run_id, "--db", db]) == 2
    assert f"run {run_id} waits for an approval: approve, deny or cancel it first" in capsys.readouterr().err


def test_an_edited_workflow_is_carried_out_instead(
    capsys: pytest.CaptureFixture[str], db: str, plan: str, tmp_path: Path
) -> None:
    run_id = waiting_run(capsys, db, plan)
    document(capsys, "approve", run_id, "--db", db, code=3)
    edited = tmp_path / "edited.json"
    steps = [WORKFLOW["steps"][0], {"instruction": "Count again.", "agent": "writer", "access_list": [0]}]
    edited.write_text(json.dumps({"steps": steps}))
    run = document(capsys, "approve", run_id, "--workflow", str(edited), "--db", db)
    assert [(step["agent"], step["status"]) for step in run["steps"]] == [
        ("reasoner", "completed"),
        ("writer", "completed"),
    ]
    assert [each["status"] for each in run["approvals"]] == ["granted", "replaced", "granted"]


def test_an_edit_of_a_step_that_has_run_is_refused_and_nothing_goes_on(
    capsys: pytest.CaptureFixture[str], db: str, plan: str, tmp_path: Path
) -> None:
    run_id = waiting_run(capsys, db, plan)
    document(capsys, "approve", run_id, "--db", db, code=3)
    edited = tmp_path / "edited.json"
    steps = [{"instruction": "Otherwise.", "agent": "reasoner", "access_list": []}, WORKFLOW["steps"][1]]
    edited.write_text(json.dumps({"steps": steps}))
    assert main(["approve", run_id, "--workflow", str(edited), "--db", db, "-q"]) == 2
    assert "refused: step 0 has begun: change only steps that have not run" in capsys.readouterr().err
    (listed,) = document(capsys, "waiting", "--db", db)["waiting"]
    assert listed["step"] == "1"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["run", "x", "--gate", "sometimes"],
            "unknown gate 'sometimes'; choose plan, steps, step:N, usd:X, provider:NAME or tools",
        ),
        (["run", "--tasks", "f.jsonl", "--gate", "plan"], "--gate is for one TASK"),
        (["approve", "nobody"], "unknown run 'nobody'"),
        (["approve", "RUN", "--step", "7"], "--step 7: that does not wait for an approval; step 0 of run"),
        (["approve", "RUN", "--step", "0", "--all"], "give --step, or --all or --workflow, not both"),
        (["deny", "RUN", "--step", "1"], "--step 1: that does not wait"),
    ],
)
def test_bad_input_is_one_clear_line(
    capsys: pytest.CaptureFixture[str], db: str, plan: str, arguments: list[str], said: str
) -> None:
    run_id = waiting_run(capsys, db, plan) if arguments[0] != "run" else ""
    assert main([*(run_id if each == "RUN" else each for each in arguments), "--db", db]) == 2
    errors = capsys.readouterr().err.strip().splitlines()
    assert len(errors) == 1
    assert said in errors[0]
