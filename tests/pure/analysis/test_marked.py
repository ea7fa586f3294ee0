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


WORKING = "We add both of them, and then we look at what is left of it. It takes a while.\n\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{WORKING}Answer: - 5", "- 5"),
        (f"{WORKING}\\boxed{{- 5}}", "- 5"),
        (f"{WORKING}#### - 5", "- 5"),
        (f"{WORKING}<answer>- 5</answer>", "- 5"),
        (f"{WORKING}The answer is - 5.", "- 5"),
        (f"{WORKING}Answer: **- 5**", "- 5"),
        ("- 5", "- 5"),
        ('{"answer":"- 5"}', "- 5"),
        (f"{WORKING}Answer: - 5/3", "- 5/3"),
        (f"{WORKING}\\boxed{{> 5}}", "> 5"),
        (f"{WORKING}Answer: > 5 kg", "> 5 kg"),
        (f"{WORKING}Answer: Mt. Everest", "Mt. Everest"),
        (f"{WORKING}Answer: Sgt. Pepper", "Sgt. Pepper"),
        (f"{WORKING}Answer: Vol. 2", "Vol. 2"),
        (f"{WORKING}Answer: Martin Luther King Jr. and Malcolm X", "Martin Luther King Jr. and Malcolm X"),
        (f"{WORKING}Answer: Jeopardy! (1984)", "Jeopardy! (1984)"),
        (f"{WORKING}Answer: 5! = 120", "5! = 120"),
        (f"{WORKING}Answer: version 2. 5", "version 2. 5"),
        (f"{WORKING}Answer: f[0](x)", "f[0](x)"),
        (f"{WORKING}Answer: a[1](2) + b", "a[1](2) + b"),
        (f"{WORKING}Answer: [1, 2](3)", "[1, 2](3)"),
        (f"{WORKING}Answer: __init__", "__init__"),
        (f"{WORKING}Answer: *args, **kwargs", "*args, **kwargs"),
        (f"{WORKING}**Answer: yes, it is**", "yes, it is"),
        (f"{WORKING}The answer is **__init__**.", "__init__"),
        (f"{WORKING}**Check:** the answer is **42**", "42"),
        (f"{WORKING}So \\boxed{{3}} or \\boxed{{4}}.", "3 or 4"),
        (f"{WORKING}So \\boxed{{x}}, or \\boxed{{d}}.", "x, or d"),
        (f"{WORKING}So $x=\\boxed{{3}}$, $y=\\boxed{{4}}$ and $z=\\boxed{{\\frac12}}$.", "3, 4 and 1/2"),
        (f"{WORKING}So it is $7! \\times 2!=\\boxed{{10080}}$.", "10080"),
        ('{"answer": true}', "true"),
        ('{"answer": NaN}', "NaN"),
        ('{"answer": 1e400}', "1e400"),
        ('{"answer": 0.10}', "0.10"),
        ('{"answer": 12345678901234567890.12345678901234567890}', "12345678901234567890.12345678901234567890"),
    ],
)
def test_a_value_is_all_that_is_marked_in_its_own_signs(text: str, expected: str) -> None:
    found = conclude(text)
    assert (found.kind, found.text) == ("value", expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("We try \\boxed{3}, but that is wrong. Answer: 7", "7"),
        ("\\boxed{3}\n\nThat was wrong.\n\nAnswer: 7", "7"),
        ("Answer: 3\n\nThat was wrong.\n\n<answer>7</answer>", "7"),
        ("\\boxed{3}\n\nThat was wrong.\n\n#### 7", "7"),
        ("It is not \\boxed{3}. It is \\boxed{7}.", "7"),
        (f"{WORKING}Answer: ~~42~~ 43", "43"),
        ("Answer: 42\nModels end their thoughts with </think> tags.", "42"),
        (f"{WORKING}So $x = \\boxed{{3}}$ or $x = \\boxed{{4}}$.\n\nAnswer: 3 or 4", "3 or 4"),
    ],
)
def test_of_several_marks_the_last_that_still_holds_counts(text: str, expected: str) -> None:
    assert conclude(text).headline == expected


@pytest.mark.parametrize(
    "last",
    [
        "Nobody believes the answer is 5.",
        "I doubt the answer is 5.",
        "I doubt, though, the answer is 5.",
        "If so, the answer is 5.",
        "It is false to say the answer is 5.",
        "Do not think the answer is 5.",
        "Only one in ten students says the answer is 5.",
        "The answer was 42 until 2003.",
        "Wrong answer: 3",
        "Previous answer: 3",
        "Answer: ~~42~~",
        "Answer: <s>42</s>",
        "Answer: <del>42</del>",
        "Use `</think>` to end it.",
        "The tag is <think>.",
        "<!-- Answer: 42 -->",
        "<!--\nAnswer: 42",
        "Write it as `\\boxed{42}`. I have not solved it.",
        "Write it as `<answer>42</answer>`. I have not solved it.",
        "`Answer: 42`",
        "    Answer: 42",
        "    \\boxed{42}",
        "\t#### 42",
        "> Answer: 42",
        "> \\boxed{42}",
        "<details>\n<summary>An old try</summary>\n\nAnswer: 42\n\n</details>",
        "The answer is not \\boxed{3}. I could not find it.",
        "So $x \\neq \\boxed{5}$.",
        "So it isn't $\\boxed{5}$.",
        "Here $\\boxed{5}$ is wrong.",
    ],
)
def test_what_is_denied_struck_out_quoted_or_hidden_is_no_mark(last: str) -> None:
    assert conclude(WORKING + last).kind == "text"


@pytest.mark.parametrize(
    "text",
    [
        "Let me check the number again.",
        "I will look at both sides.",
        "Okay, I'll add them first.",
        "Now, add them up.",
        "Sure, here is the answer",
        "Write it as `\\boxed{42}`.",
        "<!-- 42 -->",
        "~~42~~",
        "> 42",
    ],
)
def test_a_line_that_says_nothing_of_its_own_is_no_value(text: str) -> None:
    assert conclude(text).kind == "text"


@pytest.mark.parametrize("left_out", [20_000, 100_000])
def test_what_is_left_out_of_a_long_text_makes_no_mark_of_what_is_none(left_out: int) -> None:
    line = "We look at the next one of them and add it.\n"
    code = f"It prints:\n\n```text\n{line * (left_out // len(line))}"
    after = f"{line * 800}"
    assert conclude(f"{line * 600}{code}Answer: 13\n{after}\n```\n\nThat is all of it.\n{line * 40}").kind != "value"
    middle = f"{line * 1000} that the Answer: 13\n"
    for shift in range(0, 60, 7):
        end = line * 800 + "a" * shift
        assert conclude(f"{line * 600}{middle}{end}").kind == "text"
    for shift in range(0, 60, 7):
        assert conclude(f"{'a' * shift}\n{line * 454}Answer: 13 or 14\n{line * 2000}").headline in ("", "13 or 14")


_WORDS = ("we", "then", "take", "every", "answer", "is", "recorded", "result", "value", "they", "say", "that", "of")
_PROSE = st.lists(st.sampled_from(_WORDS), min_size=20, max_size=40).map(lambda words: f"We {' '.join(words)}.")


@given(st.lists(_PROSE, min_size=2, max_size=4), st.integers(0, 10**6))
def test_prose_marks_nothing_until_a_mark_is_written_below_it(paragraphs: list[str], number: int) -> None:
    prose = "\n\n".join(paragraphs)
    assert conclude(prose).kind == "text"
    for mark in (f"Answer: {number}", f"\\boxed{{{number}}}", f"#### {number}", f"The answer is {number}."):
        found = conclude(f"{prose}\n\n{mark}")
        assert (found.kind, found.text) == ("value", str(number))
