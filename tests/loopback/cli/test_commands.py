"""Commands against servers on loopback: runs, re-runs of steps, several plans, and what is spent."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import PLAN, CommandLine, conductor_and_workers
from tests.support.provider import Answer, Call, Reply, ScriptedProvider, delta, error, sse


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


# One step many times at workers behind real HTTP: which seeds are sent, and what a budget allows.

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


# Several plans for one task from a Conductor behind real HTTP.

OTHER = "model_id = [1]\nsubtasks = ['Answer {question}']\naccess_list = [[]]"
FAULTY = "model_id = [9]\nsubtasks = ['x']\naccess_list = [[]]"


def by_seed(*plans: str) -> dict[int, str]:
    return dict(enumerate(plans, start=1))


def script(provider: ScriptedProvider, plans: dict[int, str]) -> None:
    def write(call: Call) -> Answer | Reply:
        return Answer(plans[call.body["seed"]])

    provider.always(write)


def test_plans_stand_beside_each_other_and_equal_ones_are_one(
    cli: CommandLine, provider: ScriptedProvider, where: list[str]
) -> None:
    script(provider, by_seed(PLAN, OTHER, PLAN, FAULTY))
    outcome = cli("plan", "Two things.", "--n", 4, "--seed", 1, "--json", *where)
    document = outcome.document
    assert outcome.code == 0
    assert [plan["task"] for plan in document["plans"]] == ["Two things."] * 4
    assert [(each["numbers"], each["topology"], each["steps"]) for each in document["choices"]] == [
        ([0, 2], "fan-out", 3),
        ([1], "one shot", 1),
        ([3], None, 0),
    ]
    assert document["choices"][0]["estimated_usd"] > document["choices"][1]["estimated_usd"] > 0
    assert document["choices"][0]["critical_path_steps"] == 2
    assert "no agent 9" in document["choices"][2]["faults"][0]["message"]
    assert not document["all_equal"]
    assert {call.body["temperature"] for call in provider.completions} == {0.7}
    assert {call.model for call in provider.completions} == {"planner"}, "no worker is called"


def test_where_no_plan_came_out_nothing_is_said_of_running_one(
    cli: CommandLine, provider: ScriptedProvider, where: list[str]
) -> None:
    script(provider, by_seed(FAULTY, FAULTY))
    outcome = cli("plan", "Two things.", "--n", 2, "--seed", 1, *where)
    assert outcome.code == 1
    assert "fault of plan" in outcome.out
    assert "rerun RUN" not in outcome.out
    assert "estimates" not in outcome.out


def test_each_plan_is_a_run_on_record_with_the_mark_of_all(
    cli: CommandLine, provider: ScriptedProvider, where: list[str]
) -> None:
    script(provider, by_seed(PLAN, OTHER))
    document = cli("plan", "Two things.", "--n", 2, "--seed", 1, "--json", *where).document
    for number, plan in enumerate(document["plans"]):
        run = cli("show", plan["run_id"], "--json").document
        assert (run["status"], run["seed"], run["plan_temperature"]) == ("planned", number + 1, 0.7)
        assert (run["batch"]["id"], run["batch"]["row"]) == (document["batch"], str(number))
    again = cli("plan", "Two things.", "--n", 2, "--seed", 1, *where)
    assert "fan-out" in again.out
    assert "one shot" in again.out


def test_equal_plans_of_a_greedy_conductor_say_what_to_do(
    cli: CommandLine, provider: ScriptedProvider, where: list[str]
) -> None:
    outcome = cli("plan", "Two things.", "--n", 3, "--temperature", 0, *where)
    assert "0, 1, 2 (3 times)" in outcome.out
    assert "all 3 plans are equal" in outcome.out
    assert "Give a temperature" in outcome.out
    assert {call.body["temperature"] for call in provider.completions} == {0.0}
    assert len({call.body["seed"] for call in provider.completions}) == 3, "the seeds are fresh"


def test_a_temperature_of_the_conductors_file_stays(
    cli: CommandLine, provider: ScriptedProvider, where: list[str], tmp_path: object
) -> None:
    file = f"{tmp_path}/mine.toml"
    with open(file, "w") as written:
        params = "params = { temperature = 0.3 }"
        written.write(f'[[conductor]]\nname = "mine"\nmodel = "planner"\nbase_url = "{provider.url}"\n{params}\n')
    cli("plan", "Two things.", "--n", 2, *where[:2], "--conductor", f"{file}#mine")
    assert {call.body["temperature"] for call in provider.completions} == {0.3}


def test_no_usable_plan_at_all_is_exit_code_1(cli: CommandLine, provider: ScriptedProvider, where: list[str]) -> None:
    provider.always(Answer(FAULTY))
    outcome = cli("plan", "Two things.", "--n", 2, *where)
    assert outcome.code == 1
    assert outcome.out.count("no agent 9") >= 2


def test_many_tasks_and_many_plans_are_not_asked_for_at_once(cli: CommandLine, tmp_path: object) -> None:
    with open(f"{tmp_path}/tasks.jsonl", "w") as written:
        written.write(json.dumps({"task": "one"}))
    outcome = cli("plan", "--tasks", f"{tmp_path}/tasks.jsonl", "--n", 2)
    assert (outcome.code, outcome.error) == (2, "--n is for one TASK: leave --n or --tasks out")


# What a run costs with a Conductor on a server: counted, or said to be unknown; never nothing.

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
