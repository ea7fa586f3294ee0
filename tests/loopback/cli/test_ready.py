"""Before a run starts: what would fail is said, what certainly fails is refused, and what answers can be chosen."""

from pathlib import Path

import pytest

from conductor_core.settings import Settings
from tests.support.command_line import PLAN, CommandLine, conductor_and_workers
from tests.support.provider import Answer, Call, Reply, ScriptedProvider


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
