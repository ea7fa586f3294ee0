from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from conductor_core.lab.records.training import Started, TrainingRecord
from pages.components.training.charts import grammar_in_words, most_steps


def record(**config: Any) -> TrainingRecord:
    row = Started(name="t", at="", seed=0, config=config, simulated=True, machine="m")
    return TrainingRecord(Path("r"), (row,))


HELD: Mapping[str, Any] = {"constrained": True, "rollout": "fast", "pool": {"most_steps": 4}}
FREE: Mapping[str, Any] = {"constrained": False, "rollout": "fast"}


def test_the_grammar_is_named_with_the_stages_that_it_holds() -> None:
    assert grammar_in_words(record(grpo=HELD, recursion=HELD), ["grpo", "grpo", "recursion"]) == "held by the grammar"
    assert grammar_in_words(record(grpo=HELD, recursion=FREE), ["grpo"]) == "held by the grammar"
    assert grammar_in_words(record(grpo=HELD, recursion=FREE), ["grpo", "recursion"]) == "held by the grammar in GRPO"
    assert grammar_in_words(record(grpo=FREE), ["grpo"]) == ""
    assert grammar_in_words(record(grpo={**HELD, "rollout": "trl"}), ["grpo"]) == ""


def test_the_most_steps_are_those_of_the_stage() -> None:
    assert most_steps(record(grpo=HELD), "grpo") == 4
    assert most_steps(record(grpo=HELD), "recursion") is None


@pytest.mark.parametrize("odd", [None, 1, "text", [1], {"pool": 3}, {"pool": {"most_steps": "many"}}])
def test_settings_that_are_none_say_nothing(odd: object) -> None:
    for each in (record(grpo=odd), TrainingRecord(Path("r"), ())):
        assert grammar_in_words(each, ["grpo"]) == ""
        assert most_steps(each, "grpo") is None
