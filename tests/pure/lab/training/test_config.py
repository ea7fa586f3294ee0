"""Configs of a training: the checked-in one, and one clear line for one that cannot be used."""

from pathlib import Path

import pytest

from conductor_core.errors import BadInput
from conductor_core.lab.training.config import TrainingConfig, read_config
from tests.support.trainings import toy_config


def test_the_checked_in_config_has_all_three_stages() -> None:
    config = read_config("tiny")
    assert config.stages == ("cold_start", "grpo", "recursion")
    assert config.cold_start is not None
    assert config.cold_start.model.hidden_size % config.cold_start.model.num_attention_heads == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name = 'a'\nseed = 'x'", "seed: "),
        ("seed = [", "is not TOML"),
        ("seed = 1\nx = " + "[" * 300, "is not TOML: line 2, column 21: brackets are nested more than 16 deep"),
        ("a." * 3000 + "a = 1", "is not TOML: line 1, column 32: a key has more than 16 parts"),
        ("seed = " + "9" * 5000, "is not TOML: line 1, column 8: a number of more than 300 digits"),
        ('name = "a"', "no stage given"),
        ('name = "a"\n[grpo]\niterations = 0', "grpo.iterations: "),
        ('name = "a"\n[grpo]\nspeed = 3', "grpo."),
    ],
)
def test_a_config_that_cannot_be_used_is_one_line_with_file_and_field(tmp_path: Path, text: str, said: str) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text(text)
    with pytest.raises(BadInput) as caught:
        read_config(str(bad))
    assert str(bad) in str(caught.value)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(BadInput, match=r"no-such\.toml.*checked-in configs: .*tiny"):
        read_config("no-such")


def test_a_cold_start_and_a_base_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="leave out one of the two"):
        TrainingConfig.model_validate(toy_config().model_dump() | {"base": "somewhere"})
