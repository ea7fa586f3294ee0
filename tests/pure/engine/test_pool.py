from pathlib import Path

import pytest
from huggingface_hub import constants

from conductor_core.chat.messages import FREE
from conductor_core.conductors.catalogue import list_conductors
from conductor_core.engine import offers
from conductor_core.engine.pools import also_missing, missing_keys, open_pool, pool_info, read_specs, reopen_pool
from conductor_core.engine.runner import Engine
from conductor_core.errors import BadInput, PoolInvalid
from conductor_core.inference import found
from conductor_core.inference.hardware import place
from conductor_core.run.request import RunRequest
from conductor_core.run.values import PoolInfo
from conductor_core.settings import Settings
from conductor_core.workflow.model import Step, Workflow
from tests.support.fakes import MemorySink, ScriptedWorker, pool_of, quick_settings
from tests.support.gguf_models import into_ollama, write_model

FILE = """
[[worker]]
name = "one"
provider = "openai"
model = "m"
base_url = "http://127.0.0.1:9/v1"
usd_per_mtok = { input = 1.25, output = 10.0 }
params = { temperature = 0.2, stop = ["a", "b"] }

[[worker]]
name = "two \\"quoted\\""
provider = "anthropic"
model = "n"
api_key_env = "SOME_KEY"
"""


def test_the_rehearsal_pool_is_simulated() -> None:
    pool = open_pool("rehearsal", Settings(), seed=4)
    assert (pool.name, pool.simulated, pool.seed) == ("rehearsal", True, 4)
    assert len(pool.specs) == 7
    assert pool.info.workers == pool.specs


async def test_the_papers_pool_is_ready() -> None:
    pool = open_pool("paper", Settings())
    assert (pool.name, pool.simulated, len(pool.specs)) == ("paper", False, 7)
    await pool.aclose()


async def test_a_pool_file_is_read_in_its_order(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(FILE)
    pool = open_pool(str(file), Settings())
    assert (pool.name, list(pool.workers)) == ("mine", ["one", 'two "quoted"'])
    await pool.aclose()


def test_a_pool_file_that_is_not_there_is_bad_input() -> None:
    with pytest.raises(PoolInvalid, match=r"nowhere\.toml"):
        read_specs("nowhere.toml")


def test_a_key_may_be_in_a_variable_that_the_settings_name() -> None:
    spec = ScriptedWorker("a", api_key_env="MY_PASS").spec
    info = PoolInfo(name="mine", workers=(spec,))
    assert pool_info(info, Settings(key_variables=("MY_PASS",))) == info
    with pytest.raises(BadInput, match="worker a: api_key_env: MY_PASS does not look like the variable of a key"):
        pool_info(info, Settings())


def test_the_seed_is_the_settings_unless_given() -> None:
    assert open_pool("rehearsal", Settings(seed=9)).seed == 9


async def test_the_pool_of_an_earlier_run_is_opened_as_recorded() -> None:
    info = open_pool("rehearsal", Settings()).without(("coder",)).info
    again = reopen_pool(info, Settings(), seed=2)
    assert (again.info, again.seed) == (info, 2)


def test_workers_can_be_left_out() -> None:
    pool = pool_of(ScriptedWorker("a"), ScriptedWorker("b"), seed=3)
    left = pool.without(("a",))
    assert (list(left.workers), left.seed) == (["b"], 3)
    assert list(pool.workers) == ["a", "b"]
    assert (pool.info.excluded, left.info.excluded) == ((), ("a",))
    with pytest.raises(BadInput, match="the pool scripted has no worker c; it has a, b"):
        pool.without(("c",))
    with pytest.raises(BadInput, match="has no worker c, d; it has a, b"):
        pool.without(("c", "b", "d"))
    with pytest.raises(BadInput, match="no worker of the pool scripted is left"):
        pool.without(("a", "b"))


def test_what_a_pool_offers_is_known_without_opening_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conductor_core.engine.pools.open_worker", lambda *_: pytest.fail("a worker was opened"))
    file, settings = tmp_path / "mine.toml", Settings(api_key_variables="SOME_KEY")
    file.write_text(FILE, encoding="utf-8")
    info = pool_info(str(file), settings, ("one",))
    assert (info.name, [spec.name for spec in info.workers], info.excluded) == ("mine", ['two "quoted"'], ("one",))
    assert pool_info(info, settings) == info
    assert pool_info("rehearsal", settings).workers == read_specs("rehearsal")
    with pytest.raises(BadInput, match="has no worker three"):
        pool_info(info, settings, ("three",))
    monkeypatch.setenv("A_SECRET", "sk-" + "x7Q" * 12)
    told = info.workers[0].model_copy(update={"params": {"user": "sk-" + "x7Q" * 12}})
    with pytest.raises(BadInput, match="worker two"):
        pool_info(info.model_copy(update={"workers": (told,)}), settings)


async def test_parameters_are_laid_over_those_of_the_workers_they_name(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(FILE, encoding="utf-8")
    pool = open_pool(str(file), Settings(api_key_variables="SOME_KEY"), seed=3)
    given = pool.with_params({"one": {"temperature": 0.9, "top_p": 0.5}}, Settings(api_key_variables="SOME_KEY"))
    changed, same = given.specs
    assert dict(changed.params) == {"temperature": 0.9, "top_p": 0.5, "stop": ["a", "b"]}
    assert same == pool.specs[1]
    assert (given.name, given.seed) == ("mine", 3)
    assert dict(pool.specs[0].params) == {"temperature": 0.2, "stop": ["a", "b"]}
    with pytest.raises(BadInput, match="the pool mine has no worker three, four; it has one, two"):
        pool.with_params({"three": {}, "one": {}, "four": {}}, Settings())


# A run whose workers lack their keys names all of them at once.


PAPER = ("GEMINI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY")


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PAPER:
        monkeypatch.delenv(name, raising=False)


def test_the_paper_s_pool_without_keys_lacks_four(monkeypatch: pytest.MonkeyPatch) -> None:
    specs = read_specs("paper")
    found = missing_keys(specs)
    assert set(found) == set(PAPER)
    assert sum(map(len, found.values())) == 7
    monkeypatch.setenv("OPENROUTER_API_KEY", "   ")
    assert "OPENROUTER_API_KEY" in missing_keys(specs)
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-5f0c9a7e1d3b4862")
    assert set(missing_keys(specs)) == set(PAPER[:3])
    assert missing_keys(read_specs("rehearsal")) == {}


def test_a_worker_that_has_its_key_says_nothing_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-5f0c9a7e1d3b4862")
    specs = read_specs("paper")
    assert also_missing("gpt-5", specs) == ""
    assert "OPENAI_API_KEY" not in also_missing("gemini-2.5-pro", specs)


def test_a_worker_that_alone_lacks_its_key_has_no_others_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PAPER[1:]:
        monkeypatch.setenv(name, "set")
    assert also_missing("gemini-2.5-pro", read_specs("paper")) == ""


async def test_the_failure_names_every_missing_variable(tmp_path: Path) -> None:
    settings = quick_settings()
    pool = open_pool("paper", settings)
    workflow = Workflow(steps=(Step(instruction="{question}", agent="gemini-2.5-pro"),))
    trace = await Engine(MemorySink(), settings).run(RunRequest(task="Anything", workflow=workflow), None, pool)
    await pool.aclose()
    assert trace.status == "failed"
    assert trace.error is not None
    assert [name for name in PAPER if name not in trace.error] == []
    assert trace.error.startswith("step 0 (gemini-2.5-pro) failed: ")
    (step,) = trace.steps
    assert step.error is not None
    assert "GEMINI_API_KEY is not set" in step.error


# What a machine has to answer with besides the simulation.


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_folder=tmp_path)


def test_only_workers_whose_key_is_set_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {str(spec.api_key_env) for spec in read_specs("paper")}
    for variable in variables:
        monkeypatch.delenv(variable, raising=False)
    assert offers.keyed_workers() == ()
    monkeypatch.setenv("OPENROUTER_API_KEY", "a-key-of-nobody")
    monkeypatch.setenv("GEMINI_API_KEY", " ")
    offered = offers.keyed_workers()
    assert len(offered) == 4
    assert {spec.api_key_env for spec in offered} == {"OPENROUTER_API_KEY"}


def test_the_small_pool_says_what_each_model_takes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    models = offers.small_models(Settings(data_folder=tmp_path))
    assert [model.spec for model in models] == list(read_specs("small"))
    assert [model.size_bytes for model in models] == [988_065_536, 988_065_536, 1_500_000_000]
    for model in models:
        assert model.needed_bytes == place(model.parameters).needed_bytes
        assert 400_000_000 < model.parameters < 700_000_000
        assert model.download.state == "absent"
        assert model.answer_s is None


def test_a_pool_that_is_saved_opens_with_the_same_workers(settings: Settings) -> None:
    specs = read_specs("small")
    file = offers.save_pool("mine", specs, settings)
    assert file == settings.data_folder / "pools" / "mine.toml"
    pool = open_pool(str(file), settings)
    assert (pool.name, pool.specs) == ("mine", specs)
    assert open_pool("small", settings).name == "small"


def test_a_pool_that_cannot_be_saved_says_where(settings: Settings) -> None:
    (settings.data_folder / "pools").write_text("a file where the folder should be")
    with pytest.raises(BadInput, match=r"^the pool file .*mine\.toml cannot be written: "):
        offers.save_pool("mine", read_specs("small"), settings)


def test_a_model_without_a_chat_template_is_offered_only_where_no_other_is(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    write_model(settings.models_folder / "base.gguf", template=False, name="a")
    offer = offers.from_disk((), list_conductors(settings))
    assert offer is not None
    assert "no chat template" in offer.specs[0].description
    write_model(settings.models_folder / "tuned.gguf", name="b")
    offer = offers.from_disk((), list_conductors(settings))
    assert offer is not None
    assert [spec.name for spec in offer.specs] == ["tuned"]


def test_files_of_other_programs_are_offered_as_workers_and_the_largest_that_is_large_enough_plans(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    content = write_model(tmp_path / "a.gguf").read_bytes()
    into_ollama(found.home_folder() / ".ollama" / "models", "registry.ollama.ai/me/tuned/latest", content)
    write_model(settings.models_folder / "same.gguf", name="b")
    write_model(settings.models_folder / "deeper" / "same.gguf", name="c")
    write_model(settings.models_folder / "lora.gguf", kind="adapter", name="d")
    offer = offers.from_disk((), list_conductors(settings))
    assert offer is not None
    assert sorted(spec.name for spec in offer.specs) == ["same", "tuned:latest"], "each name once, and no adapter"
    [tuned] = [spec for spec in offer.specs if spec.name == "tuned:latest"]
    assert (tuned.provider, tuned.model, tuned.price) == ("gguf", "ollama: me/tuned:latest", FREE)
    assert offer.planner is None, "none is large enough to plan better than the shipped one"
    assert read_specs(offers.saved(offer, None, settings), settings) == offer.specs
