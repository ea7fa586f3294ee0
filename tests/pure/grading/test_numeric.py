from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.errors import BadInput
from conductor_core.grading.grade import grade
from conductor_core.grading.tasks import Task


def task(reference: str, **extra: Any) -> Task:
    return Task("t", "How many?", "f", "", reference, "numeric", extra)


@pytest.mark.parametrize(
    "answer",
    [
        "18",
        "She makes $18 every day.",
        "16 - 3 - 4 = 9 eggs, at $2 each.\n#### 18",
        "9 eggs are sold.\n\n**Answer: 18**",
        "The answer is 9 × 2 = 18 dollars a day.",
        "So she earns \\boxed{18} dollars from 9 eggs.",
        "First 9.\n\nShe makes **18 dollars** from 9 eggs.",
        "The answer is 20. Wait, that is wrong: the final answer is 18.00.",
        "**Final answer:** 18",
    ],
)
def test_the_stated_number_counts(answer: str) -> None:
    assert grade(task("18"), answer).score == 1


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("17", "The number given is 17, not 18."),
        ("#### 180", "The number given is 180, not 18."),
        ("18 eggs were there, so the answer is 9.", "The number given is 9, not 18."),
        ("The answer is 18 or 20.", "The answer names two numbers, 18 and 20."),
        ("I cannot say.", "The answer has no number."),
        ("", "The answer is empty."),
    ],
)
def test_wrong_answers_say_why(answer: str, why: str) -> None:
    graded = grade(task("18"), answer)
    assert (graded.score, graded.reason) == (0, why)


def test_a_whole_reference_must_be_met_exactly_and_a_decimal_one_nearly() -> None:
    assert not grade(task("70000"), "70000.01").right
    assert grade(task("0.33333333"), "1/3").right
    assert not grade(task("0.33"), "1/3").right


def test_a_stated_tolerance_widens_what_counts() -> None:
    assert grade(task("9.81", tolerance=0.05), "9.8").right
    assert not grade(task("9.81", tolerance=0.005), "9.8").right
    assert grade(task("200", relative_tolerance=0.01), "201.9").right
    assert not grade(task("200", relative_tolerance=0.01), "203").right


@pytest.mark.parametrize("extra", [{"tolerance": -1}, {"tolerance": "much"}, {"relative_tolerance": float("inf")}])
def test_a_tolerance_that_is_none_is_bad_input(extra: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="must be a number of at least 0"):
        grade(task("1", **extra), "1")


def test_a_reference_that_is_no_number_is_bad_input() -> None:
    with pytest.raises(BadInput, match="'many' is not one number"):
        grade(task("many"), "1")


@given(st.integers(-(10**9), 10**9), st.integers(1, 1000))
def test_a_number_and_only_it_is_right_in_any_of_the_usual_phrasings(number: int, off: int) -> None:
    for phrase in ("The answer is {}.", "#### {}", "Thus \\boxed{{{}}}", "**{}**", "12 steps later: {}"):
        assert grade(task(str(number)), phrase.format(f"{number:,}")).right
        assert not grade(task(str(number)), phrase.format(number + off)).right
