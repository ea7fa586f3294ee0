"""What a model takes on this machine: from few layers to all of them, once for each machine and model."""

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from conductor_core.inference import model as trial
from conductor_core.inference import pace
from conductor_core.inference.generation import InferenceError
from conductor_core.inference.hardware import needs, place
from conductor_core.inference.pace import (
    CONDUCTORS,
    MOST_KEPT,
    READ_TOKENS,
    SMALL_WORKERS,
    WRITTEN_TOKENS,
    Kept,
    Pace,
    Paces,
    Shape,
    key_of,
    shape_of,
)

TOY = Shape(
    "qwen2",
    10_000,
    {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 12,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "vocab_size": 64,
    },
)
PACES = TypeAdapter(dict[str, Pace])
Seconds = Callable[[int], tuple[float, float]]


def _taking(monkeypatch: pytest.MonkeyPatch, seconds: Seconds) -> None:
    monkeypatch.setattr(trial, "_timed", lambda model, _device, _passed: seconds(model.config.num_hidden_layers))


def test_layers_count_each_and_the_vocabulary_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Reading: 0.5 s for the vocabulary, 0.1 s a layer. Writing a token: 2 ms, and 1 ms a layer."""
    _taking(monkeypatch, lambda layers: (0.5 + 0.1 * layers, 0.002 + 0.001 * layers))
    pace = Paces(tmp_path / "paces").measure(TOY)
    assert pace.answer_s == pytest.approx(0.5 + 1.2 + WRITTEN_TOKENS * 0.014)
    assert pace.first_plan_s - pace.plan_s == pytest.approx(1344 * 1.7 / READ_TOKENS)


def test_a_busy_moment_makes_no_answer_take_less_than_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _taking(monkeypatch, lambda layers: (1.0 / layers, 0.01 / layers))
    assert Paces(tmp_path / "paces").measure(TOY).answer_s == pytest.approx(1.0 + WRITTEN_TOKENS * 0.01)


def test_a_model_of_that_shape_is_really_run_and_known_to_the_next_process(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    file = tmp_path / "data" / "paces"
    pace = Paces(file).measure(TOY, lambda done, whole: told.append((done, whole)))
    assert 0 < pace.plan_s < 600
    assert told == [(done, 6) for done in range(7)]
    assert Paces(file).known(TOY) == pace
    more = Shape("qwen2", 10_000, {**TOY.config, "max_position_embeddings": 77, "rope_theta": 1e6})
    assert Paces(file).known(more) == pace, "what does not decide the pace is no part of the model's name"
    assert Paces(file).known(Shape("qwen2", 10_000, {**TOY.config, "num_hidden_layers": 13})) is None


def test_it_is_measured_once_in_the_background(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    go_on, asked = threading.Event(), []

    def measured(*given: object) -> tuple[float, float, str]:
        asked.append(given)
        go_on.wait(60)
        return 0.5, 7.0, "int8"

    monkeypatch.setattr(trial, "trial", measured)
    paces = Paces(tmp_path / "paces")
    assert (paces.known(TOY), paces.is_measured(TOY)) == (None, False)
    paces.measure_soon(TOY)
    paces.measure_soon(TOY)
    assert (paces.known(TOY), paces.is_measured(TOY)) == (None, True)
    go_on.set()
    (running,) = paces._running.values()
    assert running.result(60) == Pace(0.5, 7.0, "int8")
    paces.measure_soon(TOY)
    assert (paces.known(TOY), paces.is_measured(TOY), len(asked)) == (Pace(0.5, 7.0, "int8"), False, 1)


def test_what_cannot_be_measured_is_logged_and_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    def fails(*_: object) -> tuple[float, float]:
        raise MemoryError("no room")

    monkeypatch.setattr(trial, "trial", fails)
    paces = Paces(tmp_path / "paces")
    paces.measure_soon(TOY)
    (running,) = paces._running.values()
    assert isinstance(running.exception(60), MemoryError)
    assert (paces.known(TOY), paces.is_measured(TOY), paces.fault(TOY)) == (None, False, "no room")
    assert "what a model of qwen2 takes here could not be measured" in caplog.text


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"num_hidden_layers": 2, "model_type": "no_such_model"}, "it cannot be timed: "),
        ({"model_type": "qwen2"}, "does not say how many layers"),
        ({"num_hidden_layers": 2, "model_type": "qwen2", "hidden_size": -4}, "it cannot be timed: "),
        ({"num_hidden_layers": 2, "model_type": "qwen2", "vocab_size": 10**9}, "the measurement needs "),
    ],
)
def test_a_configuration_that_cannot_be_is_refused_in_one_line(
    tmp_path: Path, config: dict[str, object], says: str
) -> None:
    with pytest.raises(InferenceError, match=says) as caught:
        Paces(tmp_path / "paces").measure(shape_of(config, 10**9))
    assert "\n" not in str(caught.value)


def test_a_shape_is_of_the_text_part_and_of_numbers_alone() -> None:
    text = {"model_type": "some_text", "num_hidden_layers": 3, "layer_types": ["a"], "auto_map": {"x": "y"}}
    assert shape_of({"model_type": "sees", "text_config": text}, 9) == Shape("some_text", 9, {"num_hidden_layers": 3})


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", "{", "[" * 10_000, "\x00", '{"a": [0.1, 0.2]}', '{"a": {"read_token_s": 1, "write_token_s": -1}}'),
        '{"a": {"read_token_s": 1e999, "write_token_s": 1}}',
        '{"a": {"read_token_s": 1, "write_token_s": 1, "precision": "<b>"}}',
    ],
)
def test_a_damaged_file_is_as_if_it_were_not_there(tmp_path: Path, content: str) -> None:
    file = tmp_path / "paces"
    file.write_text(content)
    assert Kept(file, PACES).get("a") is None
    Kept(file, PACES).keep("b", Pace(0.5, 0.25, "int8"))
    assert Kept(file, PACES).get("b") == Pace(0.5, 0.25, "int8")


def test_the_file_has_a_bound_and_a_disk_that_refuses_it_costs_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "paces"
    file.write_bytes(PACES.dump_json({str(number): Pace(1.0, 1.0) for number in range(MOST_KEPT)}))
    Kept(file, PACES).keep("new", Pace(1.0, 1.0))
    assert len(json.loads(file.read_text())) == MOST_KEPT
    refused = Kept(file / "below a file", PACES)
    refused.keep("a", Pace(1.0, 2.0))
    assert refused.get("a") == Pace(1.0, 2.0)
    assert "a measured pace is not kept" in caplog.text


def test_another_processor_has_paces_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    here = key_of(TOY)
    monkeypatch.setattr(pace, "_machine", lambda: ["another"])
    assert key_of(TOY) != here


def test_the_published_shapes_have_the_parameters_that_are_told() -> None:
    """Counted by transformers, on no device."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    for published in {**CONDUCTORS, **SMALL_WORKERS}.values():
        shape = published.shape
        with torch.device("meta"):
            config = AutoConfig.for_model(shape.kind, **shape.config)
            model = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
        assert sum(each.numel() for each in model.parameters()) == shape.parameters, shape


def test_what_a_model_needs_is_of_the_memory_that_it_would_run_in() -> None:
    (need,), memory = needs(7_615_616_512)
    assert memory == place(7_615_616_512).memory
    assert need.needed_bytes == place(7_615_616_512).needed_bytes
    assert [each.precision for each in needs(3_000_000)[0]] == ["float32"]
