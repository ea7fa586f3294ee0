"""What a machine has to answer with besides the simulation."""

from pathlib import Path

import pytest
from huggingface_hub import constants

from conductor_core.chat.messages import FREE
from conductor_core.conductors.catalogue import list_conductors
from conductor_core.engine import offers
from conductor_core.engine.pools import open_pool, read_specs
from conductor_core.errors import BadInput
from conductor_core.inference import found
from conductor_core.inference.hardware import place
from conductor_core.settings import Settings
from tests.support.gguf_models import into_ollama, write_model


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
