"""How quick models are on this machine, measured and of late; what the machine offers."""

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from conductor_core.chat.progress import Progress
from conductor_core.inference import hardware, pace
from conductor_core.inference import model as trial
from conductor_core.inference.generation import InferenceError, Meter, WritingMeter, mean_of_late
from conductor_core.inference.hardware import Memory, lacking, needs, place
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


def test_a_pace_is_measured_from_the_first_report_on(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Progress] = []
    now_s = 100.0
    monkeypatch.setattr(Meter, "_clock", staticmethod(lambda: now_s))
    meter = Meter("reading", 1000, told.append, known_per_s=50)
    meter.at(600)
    assert told[-1] == Progress(phase="reading", done=600, total=1000, per_s=50, left_s=8)
    now_s += 0.1
    meter.at(610)
    assert told[-1].per_s == 50, "a tenth of a second says nothing yet"
    now_s += 1.9
    meter.at(700.7)
    assert told[-1].done == 700
    assert told[-1].per_s == pytest.approx(50.35)
    assert told[-1].left_s == pytest.approx((1000 - 700.7) / 50.35)
    meter.at(1000)
    assert told[-1].left_s == 0
    told.clear()
    Meter("loading", 0, told.append).at(0)
    assert told == [Progress(phase="loading", done=0, total=0)]


def test_a_text_longer_than_usual_has_no_estimate() -> None:
    told: list[Progress] = []
    meter = WritingMeter(1024, 10, told.append)
    for written in (1, 5, 10):
        meter.at(written, thinking=written < 10)
    assert [each.phase for each in told] == ["thinking", "thinking", "writing"]
    assert [each.left_s is None for each in told] == [True, False, True]
    WritingMeter(6, 100, told.append).at(5, thinking=False)
    assert told[-1].left_s is not None
    assert told[-1].left_s < 0.1, "the limit comes first"


def test_the_first_tokens_of_a_text_do_not_tell_how_long_it_takes() -> None:
    told: list[Progress] = []
    WritingMeter(1024, 150, told.append).at(2, thinking=True)
    WritingMeter(1024, 150, told.append, known_per_s=2).at(2, thinking=True)
    assert [each.left_s for each in told] == [None, 74]


def test_a_mean_forgets() -> None:
    assert (mean_of_late(None, 9), mean_of_late(9, 12)) == (9, 10)


GIB = 2**30
SEVEN_B = 7_615_616_512


@pytest.fixture
def plain_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "ram_bytes", lambda: 24 * GIB)
    monkeypatch.setattr(hardware, "accelerator_memory", lambda: None)
    monkeypatch.setattr(hardware, "has_fast_bfloat16", lambda: True)


@pytest.mark.usefixtures("plain_machine")
def test_a_7b_model_fits_24_gib_in_bfloat16() -> None:
    placement = place(SEVEN_B)
    assert (placement.device, placement.dtype, placement.fits) == ("cpu", "bfloat16", True)
    assert 15.2e9 < placement.needed_bytes < 17e9


@pytest.mark.usefixtures("plain_machine")
def test_a_14b_model_does_not() -> None:
    assert not place(14_000_000_000).fits


@pytest.mark.usefixtures("plain_machine")
def test_a_small_model_stays_in_float32_on_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "accelerator_memory", lambda: Memory("cuda", 80 * GIB, "a card"))
    placement = place(2_000_000)
    assert (placement.device, placement.dtype) == ("cpu", "float32")


@pytest.mark.usefixtures("plain_machine")
def test_without_native_bfloat16_float32_is_chosen_where_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "has_fast_bfloat16", lambda: False)
    assert place(500_000_000).dtype == "float32"
    assert place(SEVEN_B).dtype == "bfloat16"


@pytest.mark.usefixtures("plain_machine")
def test_a_card_is_used_only_if_it_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "accelerator_memory", lambda: Memory("cuda", 80 * GIB, "a card"))
    assert (place(SEVEN_B).device, place(SEVEN_B).dtype) == ("cuda", "bfloat16")
    monkeypatch.setattr(hardware, "accelerator_memory", lambda: Memory("cuda", 8 * GIB, "a card"))
    assert place(SEVEN_B).device == "cpu"


def test_reads_this_machine() -> None:
    assert hardware.ram_bytes() > GIB // 2
    free = hardware.free_ram_bytes()
    assert free is None or 0 < free <= hardware.ram_bytes() * 2


@pytest.mark.usefixtures("plain_machine")
def test_what_does_not_fit_names_need_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "ram_bytes", lambda: 5 * GIB)
    said = lacking(place(SEVEN_B))
    assert said == (
        "needs 16.5 GB, this machine has 5.4 GB of RAM, of which a model may take 90%: a GGUF file of it needs less"
    )


def test_threads_are_bounded_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert hardware.idle_threads() == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    assert 1 <= hardware.idle_threads() <= 64
