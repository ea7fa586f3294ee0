"""Conductors by the names that files of the data folder give them; pools by the names of their files."""

import hashlib
from pathlib import Path

import pytest

from conductor_core.settings import Settings
from tests.support.command_line import CommandLine
from tests.support.provider import ScriptedProvider

FILE = """
[[conductor]]
name = "planner"
base_url = "{url}"
model = "planner"
api_key_env = "PLANNER_API_KEY"
usd_per_mtok = {{ input = 2.0, output = 20.0 }}
params = {{ temperature = 0.3, top_p = 0.9 }}
constrained = false
max_tokens = 200
timeout_s = 30
context = 32000

[[conductor]]
name = "other"
base_url = "{url}"
model = "planner"
"""


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANNER_API_KEY", "planners-own")
    monkeypatch.setenv("CONDUCTOR_API_KEY", "of-addresses")


@pytest.fixture
def folder(provider: ScriptedProvider) -> Path:
    """The data folder's conductors, with one file of two."""
    folder = Settings().conductors_folder
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text(FILE.format(url=provider.url))
    return folder


@pytest.fixture
def fast(where: list[str]) -> str:
    """The name of the pool, which lies in the data folder."""
    pools = Settings().pools_folder
    pools.mkdir(parents=True)
    (pools / "fast.toml").write_text(Path(where[1]).read_text())
    return "fast"


def test_a_conductor_is_named_and_is_asked_as_its_file_says(
    cli: CommandLine, provider: ScriptedProvider, folder: Path, fast: str
) -> None:
    ended = cli("run", "Two things.", "--conductor", "planner", "--pool", fast, "--json")
    assert ended.code == 0, ended.err
    document = ended.document
    assert (document["conductor"]["name"], document["pool"]) == ("planner", "fast")
    assert document["conductor"]["cost_usd"] == pytest.approx((7 * 2.0 + 3 * 20.0) / 1e6, abs=1e-12)
    assert document["cost_usd"] == pytest.approx(document["conductor"]["cost_usd"] + 3 * 37e-6, abs=1e-12)
    [call] = [call for call in provider.completions if call.model == "planner"]
    assert (call.body["temperature"], call.body["top_p"], call.body["max_tokens"]) == (0.3, 0.9, 200)
    assert not call.body.keys() & {"response_format", "grammar", "structured_outputs"}, "it is not held to a form"
    assert call.headers["authorization"] == "Bearer planners-own"


def test_a_conductor_without_a_key_variable_is_sent_none(
    cli: CommandLine, provider: ScriptedProvider, folder: Path, fast: str
) -> None:
    assert cli("run", "Two things.", "--conductor", "other", "--pool", fast, "--json").code == 0
    [call] = [call for call in provider.completions if call.model == "planner"]
    assert "authorization" not in call.headers, "CONDUCTOR_API_KEY is for addresses"


def test_what_a_plan_may_cost_is_kept_by_the_price_of_the_file(
    cli: CommandLine, folder: Path, fast: str, provider: ScriptedProvider
) -> None:
    ended = cli("run", "Two things.", "--conductor", "planner", "--pool", fast, "--max-usd", "0.00001", "--json")
    assert (ended.code, ended.document["error"]["code"]) == (1, "LimitReached")


@pytest.mark.parametrize("written", ["{folder}/mine.toml#planner", "mine.toml#planner"])
def test_a_file_and_a_name_in_it_can_be_given(cli: CommandLine, folder: Path, fast: str, written: str) -> None:
    ref = written.format(folder=folder)
    ended = cli("run", "Two things.", "--conductor", ref, "--pool", fast, "--json")
    assert (ended.code, ended.document["conductor"]["name"]) == (0, ref)


def test_a_file_of_one_conductor_is_enough(
    cli: CommandLine, folder: Path, fast: str, provider: ScriptedProvider
) -> None:
    (folder / "single.toml").write_text(
        f'[[conductor]]\nname = "one"\nmodel = "planner"\nbase_url = "{provider.url}"\n'
    )
    for ref in ("single", "single.toml", str(folder / "single.toml"), "one"):
        assert cli("plan", "Two things.", "--conductor", ref, "--pool", fast, "--json").code == 0


@pytest.mark.parametrize(
    ("ref", "told"),
    [
        ("nobody", "no Conductor 'nobody': name tiny, small, one of your conductors files (planner, other), a model"),
        ("mine.toml", "which Conductor of {folder}/mine.toml? It holds planner, other: write mine.toml#NAME"),
        ("mine.toml#third", "no Conductor 'third' in {folder}/mine.toml, which holds planner, other"),
        ("gone.toml", "conductors file gone.toml: no such file"),
    ],
)
def test_what_cannot_be_found_is_said_in_one_line(
    cli: CommandLine, folder: Path, fast: str, ref: str, told: str
) -> None:
    ended = cli("run", "x", "--conductor", ref, "--pool", fast)
    assert ended.code == 2
    assert told.format(folder=folder) in ended.error


def test_a_name_that_two_files_give_is_not_guessed(cli: CommandLine, folder: Path, fast: str) -> None:
    (folder / "second.toml").write_text((folder / "mine.toml").read_text())
    error = cli("run", "x", "--conductor", "planner", "--pool", fast).error
    assert "2 Conductors are called 'planner': write mine.toml#planner or second.toml#planner" in error


def test_a_file_with_a_fault_is_told_with_its_place_where_it_may_be_meant(
    cli: CommandLine, folder: Path, fast: str
) -> None:
    (folder / "broken.toml").write_text('[[conductor]]\nname = "third"\nmodel = 3\n')
    error = cli("run", "x", "--conductor", "third", "--pool", fast).error
    assert "broken.toml: line 3, conductor[0].model: must be text in quotes" in error
    assert cli("plan", "x", "--conductor", "planner", "--pool", fast).code == 0, "others are there all the same"


def test_an_unset_key_is_named(cli: CommandLine, folder: Path, fast: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLANNER_API_KEY")
    ended = cli("run", "x", "--conductor", "planner", "--pool", fast)
    assert "PLANNER_API_KEY is not set" in ended.err


def test_a_pool_that_no_file_has_is_said_with_those_there_are(cli: CommandLine, fast: str) -> None:
    error = cli("run", "x", "--pool", "slow").error
    assert error.endswith(
        f"no pool 'slow': name rehearsal, paper, small, a pool file, or one of {Settings().pools_folder} (fast)"
    )
    assert cli("check", "gone.json", "--pool", "slow").code == 2


def test_a_changed_file_is_read_again_by_a_rerun(
    cli: CommandLine, provider: ScriptedProvider, folder: Path, fast: str
) -> None:
    first = cli("plan", "Two things.", "--conductor", "planner", "--pool", fast, "--json").document["plans"][0]
    text = (folder / "mine.toml").read_text()
    (folder / "mine.toml").write_text(text.replace('name = "planner"', 'name = "renamed"'))
    assert cli("rerun", first["run_id"], "--json").code == 0, "a given plan needs no Conductor"
    assert cli("plan", "Two things.", "--conductor", "renamed", "--pool", fast).code == 0


def test_a_prompt_of_ones_own_is_what_is_sent_and_its_digest_is_in_the_record(
    cli: CommandLine, provider: ScriptedProvider, folder: Path, fast: str
) -> None:
    file, prompt = folder / "mine.toml", folder / "house.txt"
    prompt.write_text("Plan as this house does.")
    file.write_text(file.read_text() + 'prompt_file = "house.txt"\n')
    ended = cli("run", "Two things.", "--conductor", "other", "--pool", fast, "--json").document
    sent = next(call.messages[0]["content"] for call in provider.completions if call.model == "planner")
    assert sent.startswith("Plan as this house does.\n\nHOW TO WRITE A WORKFLOW")
    digest = hashlib.sha256(prompt.read_bytes()).hexdigest()
    assert ended["conductor"]["prompt_sha256"] == digest
    assert f"a prompt of its own ({digest[:12]})" in cli("show", ended["run_id"]).out
    prompt.unlink()
    refused = cli("run", "Two things.", "--conductor", "other", "--pool", fast)
    assert (refused.code, "prompt_file: house.txt: no such file" in refused.error) == (2, True)
