"""What the classifier reads: bounded and finite for any text, the same each time, and blind to which number it is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.chat.messages import AnswerRules, Message, TextPart, ToolCallPart, ToolSpec
from conductor_core.run.request import TIER_REASONS, RunRequest
from conductor_core.tiers.features import COUNT, MOST_TURNS, features, reason_for_conductor

ANY = st.text(st.characters(exclude_categories=()), max_size=300)


@given(ANY, st.integers(0, 3))
def test_any_text_is_read_as_finite_numbers_in_known_places(text: str, earlier: int) -> None:
    before = [Message(role="user", content="earlier")] * earlier
    read = features(text, before)
    assert np.isfinite(read.values).all()
    assert (np.diff(read.columns) > 0).all()
    assert not len(read.columns) or 0 <= read.columns[0] <= read.columns[-1] < COUNT
    again = features(text, before)
    assert (read.columns == again.columns).all()
    assert (read.values == again.values).all()


def test_a_text_of_many_megabytes_is_read_by_its_beginning_and_its_end() -> None:
    start, end = "Summarise this report. " * 200, " What follows from it?" * 60
    one, other = features(start + "x" * 50_000_000 + end), features(start + "y" * 50_000_000 + end)
    assert (one.columns == other.columns).all()
    assert (one.values == other.values).all()


def test_other_figures_of_as_many_digits_read_the_same() -> None:
    one, other = features("Add 417 and 26."), features("Add 958 and 31.")
    assert (one.columns == other.columns).all()
    assert (one.values == other.values).all()
    assert len(features("Add four and two.").columns) != len(one.columns)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({}, ""),
        ({"tools": (ToolSpec(name="weather", parameters={"type": "object"}),)}, "tools"),
        ({"rules": AnswerRules(form="json")}, "format"),
        ({"rules": AnswerRules(max_tokens=5)}, ""),
        ({"turns_before": (Message(role="user", content="a"),) * MOST_TURNS}, ""),
        ({"turns_before": (Message(role="user", content="a"),) * (MOST_TURNS + 1)}, "conversation"),
        ({"turns_before": (Message(role="user", content="a" * 9000),)}, "conversation"),
        ({"turns_before": (Message(role="user", content=(TextPart(text="a"),)),)}, ""),
        (
            {
                "turns_before": (
                    Message(role="assistant", content=(ToolCallPart(call_id="c", name="n", arguments=""),)),
                )
            },
            "tools",
        ),
    ],
)
def test_what_text_cannot_tell_goes_to_the_conductor(asked: dict[str, object], reason: str) -> None:
    assert reason_for_conductor(RunRequest(task="x", **asked)) == reason
    assert not reason or reason in TIER_REASONS
