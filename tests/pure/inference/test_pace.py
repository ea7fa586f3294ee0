"""What an answer takes: from few layers to all of them, and once a process."""

import threading

import pytest

from conductor_core.inference import pace
from conductor_core.inference.pace import WRITTEN_TOKENS, Shape

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


def test_layers_count_each_and_the_vocabulary_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading: 0.5 s for the vocabulary, 0.1 s a layer. Writing a token: 2 ms, and 1 ms a layer."""
    monkeypatch.setattr(
        pace, "_timed", lambda _kind, _parameters, _config, layers: (0.5 + 0.1 * layers, 0.002 + 0.001 * layers)
    )
    assert pace.answer_seconds(TOY) == pytest.approx(0.5 + 1.2 + WRITTEN_TOKENS * 0.014)


def test_a_busy_moment_makes_no_answer_take_less_than_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "_timed", lambda _kind, _parameters, _config, layers: (1.0 / layers, 0.01 / layers))
    assert pace.answer_seconds(TOY) == pytest.approx(1.0 + WRITTEN_TOKENS * 0.01)


def test_a_model_of_that_shape_is_really_run() -> None:
    assert 0 < pace.answer_seconds(TOY) < 600


def test_it_is_measured_once_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, asked = threading.Event(), []

    def measured(shape: Shape) -> float:
        asked.append(shape)
        go_on.wait(60)
        return 7.0

    monkeypatch.setattr(pace, "answer_seconds", measured)
    monkeypatch.setattr(pace, "_measured", {})
    assert (pace.known_s("toy"), pace.is_measured("toy")) == (None, False)
    pace.measure_soon("toy", TOY)
    pace.measure_soon("toy", TOY)
    assert (pace.known_s("toy"), pace.is_measured("toy")) == (None, True)
    go_on.set()
    assert pace._measured["toy"].result(60) == 7.0
    assert (pace.known_s("toy"), pace.is_measured("toy"), asked) == (7.0, False, [TOY])


def test_what_cannot_be_measured_is_logged_and_not_known(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_: Shape) -> float:
        raise MemoryError("no room")

    monkeypatch.setattr(pace, "answer_seconds", fails)
    monkeypatch.setattr(pace, "_measured", {})
    pace.measure_soon("toy", TOY)
    assert isinstance(pace._measured["toy"].exception(60), MemoryError)
    assert (pace.known_s("toy"), pace.is_measured("toy")) == (None, False)
    assert "an answer of toy takes here could not be measured" in caplog.text
