"""Several plans for one task from a Conductor behind real HTTP."""

import json

from tests.support.command_line import PLAN, CommandLine
from tests.support.provider import Answer, Call, Reply, ScriptedProvider

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
