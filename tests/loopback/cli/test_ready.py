"""Before a run begins: workers that would not answer, keys that are missing, answers that will not be whole."""

import json
from pathlib import Path

import pytest

from conductor_core.settings import Settings
from tests.support.command_line import PLAN, CommandLine, conductor_and_workers
from tests.support.completions import chat
from tests.support.provider import Answer, Call, Reply, ScriptedProvider, delta

NOBODY = "http://127.0.0.1:9/v1"


@pytest.fixture
def pool(where: list[str], provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Of three workers one has no key and one no server."""
    monkeypatch.delenv("UNSET_API_KEY", raising=False)
    file = Path(where[1])
    alpha, beta, gamma = file.read_text().split("\n\n")
    beta = beta.replace(provider.url, "http://127.0.0.1:9/v1")
    file.write_text("\n\n".join([f'{alpha}\napi_key_env = "UNSET_API_KEY"', beta, gamma]))
    return where


def test_who_would_not_answer_is_said_before_the_run(
    cli: CommandLine, pool: list[str], provider: ScriptedProvider
) -> None:
    said = cli("run", "Two things.", *pool).err
    before = said[: said.index("plan · the Conductor writes")]
    assert "warning: worker alpha: " in before
    assert "UNSET_API_KEY" in before
    assert "warning: worker beta " in before or "warning: worker beta:" in before
    assert "gamma" not in before


def test_only_what_answers_is_used(cli: CommandLine, pool: list[str], provider: ScriptedProvider) -> None:
    def plan_for_one(call: Call) -> Answer | Reply:
        one = PLAN.replace("[0, 1, 2]", "[0, 0, 0]")
        return Answer(one) if call.model == "planner" else conductor_and_workers(call)

    provider.always(plan_for_one)
    ended = cli("run", "Two things.", *pool, "--only-what-answers", "--json")
    assert ended.code == 0, ended.err
    assert ended.document["excluded"] == ["alpha", "beta"]
    assert {step["agent"] for step in ended.document["steps"]} == {"gamma"}
    assert "left out: alpha, beta" in ended.err


def test_how_to_leave_them_out_is_said_once(cli: CommandLine, pool: list[str]) -> None:
    assert cli("run", "Two things.", *pool).err.count("--only-what-answers leaves them out") == 1
    assert "--only-what-answers" not in cli("run", "Two things.", *pool, "--only-what-answers").err
    assert "--only-what-answers" not in cli("plan", "Two things.", *pool).err


def test_a_budget_is_not_warned_of_those_that_are_left_out(cli: CommandLine, pool: list[str]) -> None:
    file = Path(pool[1])
    alpha, *others = file.read_text().split("\n\n")
    file.write_text("\n\n".join([alpha.replace("usd_per_mtok = { input = 1.0, output = 10.0 }\n", ""), *others]))
    whole = cli("run", "Two things.", *pool, "--max-usd", "1").err
    assert "cannot see what Conductor" in whole
    assert ", alpha will cost" in whole
    assert ", alpha will cost" not in cli("run", "Two things.", *pool, "--max-usd", "1", "--only-what-answers").err


def test_nobody_answering_is_no_pool(cli: CommandLine, pool: list[str]) -> None:
    file = Path(pool[1])
    file.write_text("\n\n".join(file.read_text().split("\n\n")[:2]))
    ended = cli("run", "Two things.", *pool, "--only-what-answers")
    assert ended.code == 2
    assert "no worker answers" in ended.err.splitlines()[-1]


def test_a_conductor_without_its_key_is_refused_before_anything_is_written(
    cli: CommandLine, where: list[str], provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UNSET_API_KEY", raising=False)
    folder = Settings().conductors_folder
    folder.mkdir(parents=True)
    (folder / "c.toml").write_text(
        f'[[conductor]]\nname = "mine"\nmodel = "planner"\nbase_url = "{provider.url}"\napi_key_env = "UNSET_API_KEY"\n'
    )
    ended = cli("run", "Two things.", *where[:2], "--conductor", "mine")
    assert (ended.code, "UNSET_API_KEY" in ended.error) == (2, True)
    assert provider.completions == []
    assert cli("runs", "--json").document["runs"] == []


def test_a_budget_that_cannot_see_the_conductor_says_so_once(cli: CommandLine, where: list[str]) -> None:
    said = cli("run", "Two things.", *where, "--max-usd", "1").err
    assert said.count("cannot see what Conductor") == 1
    assert "warning" not in cli("run", "Two things.", *where).err


def test_quiet_is_quiet(cli: CommandLine, pool: list[str]) -> None:
    assert "warning" not in cli("run", "Two things.", *pool, "--quiet").err


@pytest.fixture
def keyed(provider: ScriptedProvider) -> Path:
    """A conductors file whose Conductor ``mine`` has a key of its own."""
    folder = Settings().conductors_folder
    folder.mkdir(parents=True)
    file = folder / "c.toml"
    file.write_text(
        f'[[conductor]]\nname = "mine"\nmodel = "planner"\nbase_url = "{provider.url}"\napi_key_env = "UNSET_API_KEY"\n'
    )
    return file


def test_a_plan_checks_its_conductor_and_nobody_else(
    cli: CommandLine, pool: list[str], keyed: Path, provider: ScriptedProvider
) -> None:
    refused = cli("plan", "Two things.", *pool[:2], "--conductor", "mine")
    assert (refused.code, "UNSET_API_KEY" in refused.error) == (2, True)
    assert (provider.completions, cli("runs", "--json").document["runs"]) == ([], [])
    away = f"{NOBODY}#planner"
    assert "warning: Conductor " in cli("plan", "Two things.", *pool[:2], "--conductor", away).err
    assert "warning" not in cli("plan", "Two things.", *pool).err, "no worker is asked for a plan"


def test_a_rerun_says_before_who_of_those_it_calls_would_not_answer(
    cli: CommandLine, where: list[str], provider: ScriptedProvider
) -> None:
    run_id = cli("run", "Two things.", *where, "--json").document["run_id"]
    file, away = Path(where[1]), Path(where[1]).with_name("away.toml")
    spare = f'[[worker]]\nname = "spare"\nprovider = "openai"\nmodel = "m"\nbase_url = "{NOBODY}"\n'
    beta = f'model = "beta"\nbase_url = "{provider.url}"'
    away.write_text(file.read_text().replace(beta, f'model = "beta"\nbase_url = "{NOBODY}"') + f"\n{spare}")
    given = ["rerun", run_id, "--step", "1", "--instruction", "Do it."]
    said = cli(*given, "--pool", str(away)).err
    before = said[: said.index("pool away")]
    assert "warning: worker beta: 127.0.0.1:9 refuses" in before
    assert "spare" not in before, "no step calls it"
    assert "warning" not in cli(*given, "--pool", str(away), "--quiet").err
    assert "warning" not in cli(*given).err, "the recorded pool answers"


def test_a_rerun_whose_conductor_has_no_key_is_refused_before_anything_is_written(
    cli: CommandLine, where: list[str], keyed: Path, provider: ScriptedProvider
) -> None:
    run_id = cli("run", "Two things.", *where, "--json").document["run_id"]
    asked = len(provider.completions)
    given = ["rerun", run_id, "--step", "1", "--agent", "conductor", "--conductor", "mine"]
    refused = cli(*given)
    assert (refused.code, "UNSET_API_KEY" in refused.error) == (2, True)
    assert (len(provider.completions), len(cli("runs", "--json").document["runs"])) == (asked, 1)


# A run on the paper's pool without any key, from the command line: one failure that names all that is to be set.

PAPER = ("GEMINI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY")


def test_every_missing_variable_is_named_at_once(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in PAPER:
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "plan.json"
    step = {"instruction": "{question}", "agent": "gemini-2.5-pro", "access_list": []}
    file.write_text(json.dumps({"task": "Anything", "steps": [step]}))
    outcome = cli("run", "--workflow", file, "--pool", "paper")
    assert outcome.code == 1
    said = outcome.out + outcome.err
    assert [name for name in PAPER if name not in said] == []
    document = cli("run", "--workflow", file, "--pool", "paper", "--json").document
    assert [name for name in PAPER if name not in document["error"]["message"]] == []


# A run without a whole answer, from the command line: its status, its exit code, and what is said of it.

REFUSAL = chat(delta(refusal="I cannot help with that."), delta(finish="stop"))


@pytest.fixture
def one_step(tmp_path: Path, provider: ScriptedProvider) -> list[str]:
    pool = tmp_path / "pool.toml"
    pool.write_text(
        "\n".join(
            f'[[worker]]\nname = "{name}"\nprovider = "openai"\nmodel = "{name}"\nbase_url = "{provider.url}"\n{more}\n'
            for name, more in (("fast", 'fallback = "careful"'), ("careful", ""))
        )
    )
    workflow = tmp_path / "workflow.json"
    steps = [{"agent": "fast", "instruction": "Answer: {question}", "access_list": []}]
    workflow.write_text(json.dumps({"task": "Which?", "steps": steps}))
    return ["--workflow", str(workflow), "--pool", str(pool)]


@pytest.mark.parametrize(
    ("reply", "status", "said"),
    [
        (REFUSAL, "refused", "refused: the model refused to answer: I cannot help with that."),
        (Answer(""), "empty", "empty: the answer is empty"),
        (Answer("The legs", finish_reason="length"), "cut", "cut off: the answer was cut off before its end"),
        (Answer("The", finish_reason="content_filter"), "filtered", "filtered: a filter of the provider"),
    ],
)
def test_a_run_without_a_whole_answer_exits_with_1(
    cli: CommandLine, provider: ScriptedProvider, one_step: list[str], reply: Reply | Answer, status: str, said: str
) -> None:
    provider.always(reply)
    ended = cli("run", "--json", *one_step)
    (step,) = ended.document["steps"]
    assert (ended.code, ended.document["status"], step["status"]) == (1, status, status)
    assert said in ended.err
    assert (step["refusal"] != "") == (status == "refused")
    shown = cli("show", ended.document["run_id"])
    assert (shown.code, said.partition(": ")[2] in shown.out) == (0, True)
    assert status in cli("runs", "--status", status).out


def test_another_worker_is_asked_if_the_run_says_so(
    cli: CommandLine, provider: ScriptedProvider, one_step: list[str]
) -> None:
    provider.then(REFUSAL)
    ended = cli("run", "--json", "--on-incomplete", "fallback", *one_step)
    (step,) = ended.document["steps"]
    assert (ended.code, step["status"], step["answered_by"]) == (0, "completed", "careful")
    assert [retry["refusal"] for retry in step["retries"]] == ["I cannot help with that."]
    assert "attempt 1: the model refused to answer (I cannot help with that.); careful is asked instead" in ended.err
    assert [call.model for call in provider.completions] == ["fast", "careful"]


def test_a_policy_that_is_none_is_refused(cli: CommandLine, one_step: list[str]) -> None:
    ended = cli("run", "--on-incomplete", "retry", *one_step)
    assert ended.code == 2
    assert "--on-incomplete" in ended.err
