"""Plan and run with a Conductor and workers behind real HTTP."""

import json
from pathlib import Path

from tests.support.command_line import PLAN, CommandLine, conductor_and_workers
from tests.support.provider import Answer, ScriptedProvider, error


def test_a_task_is_planned_and_run(cli: CommandLine, provider: ScriptedProvider, where: list[str]) -> None:
    outcome = cli("run", "Two things.", "--json", *where)
    assert outcome.code == 0
    document = outcome.document
    assert (document["status"], document["simulated"], document["topology"]) == ("completed", False, "fan-out")
    assert document["conductor"]["name"] == f"{provider.url}#planner"
    assert document["conductor"]["raw"] == PLAN
    assert [(step["agent"], step["reads"]) for step in document["steps"]] == [
        ("alpha", []),
        ("beta", []),
        ("gamma", [0, 1]),
    ]
    assert document["answer"] == document["steps"][2]["output"]
    assert document["answer"].startswith("gamma answers ")
    usage = document["steps"][0]["usage"]
    assert {name: value for name, value in usage.items() if value is not None} == {
        "input_tokens": 7,
        "output_tokens": 3,
        "estimated": False,
    }
    assert abs(document["steps"][0]["cost_usd"] - 37e-6) < 1e-12
    assert "model_id = [0, 1, 2]" in outcome.err, "the plan is shown as it is written"


def test_a_plan_alone_calls_no_worker(cli: CommandLine, provider: ScriptedProvider, where: list[str]) -> None:
    [plan] = cli("plan", "Two things.", "--json", *where).document["plans"]
    assert plan.keys() >= {"task", "steps", "faults", "warnings", "topology", "raw", "duration_ms"}
    assert (plan["task"], plan["topology"], plan["raw"], plan["faults"]) == ("Two things.", "fan-out", PLAN, [])
    assert plan["steps"][2] == {"instruction": "Combine both.", "agent": "gamma", "access_list": [0, 1]}
    assert plan["duration_ms"] > 0
    assert {call.model for call in provider.completions} == {"planner"}
    text = cli("plan", "Two things.", *where)
    assert text.out.startswith("Two things. · fan-out\n  0  alpha  reads none")


def test_what_plan_prints_can_be_run(cli: CommandLine, where: list[str], tmp_path: Path) -> None:
    [plan] = cli("plan", "Two things.", "--json", *where).document["plans"]
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"task": plan["task"], "steps": plan["steps"]}))
    assert cli("run", "--workflow", file, "--json", *where).document["status"] == "completed"


def test_many_tasks_are_planned_in_order(
    cli: CommandLine, provider: ScriptedProvider, where: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text('{"task": "one"}\n"two"\n{"question": "three"}\n')
    outcome = cli("plan", "--tasks", file, "--json", *where)
    assert (outcome.code, [plan["task"] for plan in outcome.document["plans"]]) == (0, ["one", "two", "three"])
    assert outcome.err.splitlines()[-1] == "3 of 3 · 3 steps · fan-out"


def test_a_conductor_that_writes_no_plan(cli: CommandLine, provider: ScriptedProvider, where: list[str]) -> None:
    provider.always(Answer("model_id = [9]\nsubtasks = ['x']\naccess_list = [[]]"))
    outcome = cli("plan", "Two things.", "--json", *where)
    [plan] = outcome.document["plans"]
    assert (outcome.code, plan["steps"], plan["topology"]) == (1, [], None)
    assert plan["raw"].startswith("model_id = [9]")
    assert [fault["code"] for fault in plan["faults"]] == ["unknown_agent"]
    assert plan["error"]["code"] == "PlanRejected"
    run = cli("run", "Two things.", "--json", *where)
    assert (run.code, run.document["status"], len(run.document["conductor"]["rejected"])) == (1, "failed", 2)
    text = cli("plan", "Two things.", *where)
    assert "no plan: " in text.out


def test_a_failed_run_keeps_what_was_answered(cli: CommandLine, provider: ScriptedProvider, where: list[str]) -> None:
    provider.always(lambda call: error(401) if call.model == "beta" else conductor_and_workers(call))
    outcome = cli("run", "Two things.", "--json", *where)
    document = outcome.document
    assert (outcome.code, document["status"], document["answer"]) == (1, "failed", None)
    assert [step["status"] for step in document["steps"]] == ["completed", "failed", "skipped"]
    assert document["steps"][1]["error"]["code"] == "WorkerKeyRefused"
    assert document["steps"][2]["skipped_because"] == [[1]]
    assert "Traceback" not in outcome.err

    provider.always(lambda call: Answer(f"{call.model} again"))
    again = cli("rerun", document["run_id"], "--json").document
    assert [step["status"] for step in again["steps"]] == ["reused", "completed", "completed"]
    assert again["answer"] == "gamma again"


def test_a_dead_conductor_is_one_line(cli: CommandLine, where: list[str]) -> None:
    outcome = cli("run", "Two things.", "--conductor", "http://127.0.0.1:9/v1#none", *where[:2], "-q")
    assert (outcome.code, outcome.out, len(outcome.err.splitlines())) == (1, "", 1)
    shown = cli("runs", "--json").document["runs"][0]
    assert (shown["status"], shown["steps"]) == ("failed", 0)
    assert "127.0.0.1:9" in shown["error"]


def test_a_budget_stops_the_run(cli: CommandLine, where: list[str]) -> None:
    outcome = cli("run", "Two things.", "--json", "--max-tokens", 15, *where)
    assert (outcome.code, outcome.document["error"]["code"]) == (1, "LimitReached")


def test_an_excluded_worker_is_not_offered(cli: CommandLine, provider: ScriptedProvider, where: list[str]) -> None:
    provider.always(lambda call: Answer("model_id = [1]\nsubtasks = ['x']\naccess_list = [[]]"))
    document = cli("run", "Two things.", "--json", "--exclude", "alpha", *where).document
    assert document["steps"][0]["agent"] == "gamma"
    assert "alpha" not in json.dumps(provider.completions[0].body)
