"""A value stands large only where the text itself marks it: on answers of real models, on samples, and on any prose."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.analysis.conclusion import conclude
from tests.support.answers import LabelledAnswer, labelled_answers, of_second_reader, score

ANSWERS = labelled_answers()
KEPT = [each for each in ANSWERS if each.half == "kept"]


def test_the_labelled_set_is_large_enough_on_both_sides() -> None:
    assert len(ANSWERS) >= 200
    assert sum(bool(each.want) for each in KEPT) >= 40
    assert sum(each.tempting for each in KEPT) >= 40
    assert len({each.language for each in ANSWERS}) >= 6
    assert not any(each.tempting and each.want for each in ANSWERS)


def test_no_prompt_is_in_both_halves() -> None:
    def numbers(half: str) -> set[str]:
        return {each.id[1:] for each in ANSWERS if each.half == half}

    assert not numbers("kept") & numbers("developing")


@pytest.mark.parametrize("half", ["developing", "kept"])
@pytest.mark.parametrize("answers", [ANSWERS, of_second_reader(ANSWERS)], ids=["first reader", "second reader"])
def test_a_value_is_nearly_always_right_and_seldom_missed(answers: list[LabelledAnswer], half: str) -> None:
    found = score(each for each in answers if each.half == half)
    assert found.precision >= 0.98
    assert found.recall >= 0.8


@pytest.mark.parametrize("half", ["developing", "kept"])
def test_marks_other_than_a_short_text_are_found_as_well(half: str) -> None:
    def more_than_short(each: LabelledAnswer) -> bool:
        return each.half == half and each.text.strip() not in each.want

    found = score(filter(more_than_short, ANSWERS))
    assert found.precision >= 0.95
    assert found.recall >= 0.8


@pytest.mark.parametrize(
    ("text", "task"),
    [
        ("Somebody can stop it, and every answer is recorded with what it was based on.\n\nRecommendation: begin.", ""),
        ("Use a queue.\n\n- Make sure that every answer is logged.\n- Start small.", ""),
        ("Yes. If the answer is unclear, pass the chat to a person.", ""),
        ("Check each number, and end with the answer: how high is the building?", ""),
        ("1. First, count.\n2. 12 x 2 = 24.\n3. So, 12 apples cost 24 dollars.", ""),
        ("The larger number is 9.9. This is because 9 tenths are more than 1 tenth.", ""),
        ("The primary colours are:\n\nRed\nBlue\nYellow", ""),
        ("The answer is based on the number of weeks.", ""),
        ("Both count.\n\nMake sure that the answer is clear and polite.", ""),
        ("Take your time.\n\nThe answer is not known yet.", ""),
        ("Take your time.\n\nThe answer is N.", "Explain, and finish with the sentence 'The answer is N.'"),
        ("Summarise the letter in three sentences.", "Summarise the letter in three sentences. Dear Sam, ..."),
        ("Correct the mistake and state the final number: ", ""),
        ("What is 14 + 9?", ""),
        ("Please provide the text that you want me to read.", ""),
        ("**Answer:**\n\n- one\n- two", ""),
        ("Q: Who may borrow?\nAnswer: Everybody.\n\nQ: For how long?\nAnswer: Four weeks.", ""),
        ("- **Answer:** what the customer gets\n- **Question:** what the customer writes", ""),
        ("Intro.\n\n#### Flexibility\n\nIt is good.\n\n#### Costs", ""),
        ("Put it in a box.\n\n\\boxed{}", ""),
        ("Use a tag.\n\n<answer>result</answer>", ""),
        ("Verify: 12 = 4\nVerify: 12 = 4", ""),
    ],
)
def test_what_only_looks_like_a_mark_is_none(text: str, task: str) -> None:
    assert conclude(text, task).kind == "text"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Two trains leave at the same time.\n\nThe answer is 170.", "170"),
        ("48 / 2 = 24 in May.\n48 + 24 = 72\n#### 72", "72"),
        ("Final answer: yes, because it is short.\n\nDetails: seven days.", "yes, because it is short"),
        ("Half of 86 is 43. Answer: 43", "43"),
        ("7乘以8等于56。答案：56。", "56"),
        ("Both are primary colours, so the answer is 120.", "120"),
        ("The answer is 4, but I can simplify it. 1. The answer is 4.", "4"),
        ("We add them.\n\nThe answer to this question is 'Spain'.", "'Spain'"),
        ("We add them.\n\nThe answer is option B.", "option B"),
        ("2^6 is 64.", "2^6 is 64"),
    ],
)  # fmt: skip
def test_a_mark_is_read_where_models_write_it(text: str, expected: str) -> None:
    found = conclude(text)
    assert (found.kind, found.text, found.formula) == ("value", expected, "")


_WORDS = ("we", "then", "take", "every", "answer", "is", "recorded", "result", "value", "they", "say", "that", "of")
_PROSE = st.lists(st.sampled_from(_WORDS), min_size=20, max_size=40).map(lambda words: f"We {' '.join(words)}.")


@given(st.lists(_PROSE, min_size=2, max_size=4), st.integers(0, 10**6))
def test_prose_marks_nothing_until_a_mark_is_written_below_it(paragraphs: list[str], number: int) -> None:
    prose = "\n\n".join(paragraphs)
    assert conclude(prose).kind == "text"
    for mark in (f"Answer: {number}", f"\\boxed{{{number}}}", f"#### {number}", f"The answer is {number}."):
        found = conclude(f"{prose}\n\n{mark}")
        assert (found.kind, found.text) == ("value", str(number))
