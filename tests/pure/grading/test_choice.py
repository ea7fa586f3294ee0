import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.errors import BadInput
from conductor_core.grading.grade import grade
from conductor_core.grading.tasks import Task
from conductor_core.grading.text import find_choice

CHOICES = ["mitochondria", "nucleus", "ribosome", "the nucleus of a cell"]


@pytest.mark.parametrize(
    ("answer", "letter"),
    [
        ("C", "C"),
        ("(C)", "C"),
        ("**C**", "C"),
        ("c.\n\nThe answer is c.", "C"),
        ("\\boxed{C}", "C"),
        ("\\boxed{\\text{(B)}}", "B"),
        ("The final answer is: $\\boxed{D}$", "D"),
        ("The answer is (C).", "C"),
        ("The correct answer is C. ribosome", "C"),
        ("**Answer:** B", "B"),
        ("**Answer: B**", "B"),
        ("Answer: (c)", "C"),
        ("**B. nucleus**", "B"),
        ("The correct option is **(A)**", "A"),
        ("the correct statement is (B)\n\nThe answer is B", "B"),
        ("So I would go with option D, since it is the only one left.", "D"),
        ("Option B is correct.", "B"),
        ("The answer is A because it is.", "A"),
        ("Answer: C\n\n**A** is wrong: it makes energy.", "C"),
        ("I first thought the answer is B. No: the answer is (D).", "D"),
        ("The answer is not A, the answer is B", "B"),
        ("The correct option is B.", "B"),
        ("Thus, B is correct.", "B"),
        ("so (D) is the correct choice", "D"),
        ("Hence C.", "C"),
        ("It must be C since RNA is made there.", "C"),
        ("<answer>C</answer>", "C"),
        ('{"answer": "C"}', "C"),
        ("[[B]]", "B"),
        ("The best answer is (A), not (B).", "A"),
        ("Vitamins aside, B is not correct. The answer: C", "C"),
        ("ribosome", "C"),
        ("It is the nucleus of a cell.", "D"),
    ],
)
def test_finds_the_letter_that_prose_settles_on(answer: str, letter: str) -> None:
    assert find_choice(answer, CHOICES) == letter


@pytest.mark.parametrize(
    ("answer", "letters"),
    [
        ("The answer is A or C", "AC"),
        ("The answer is either (A) or (B).", "AB"),
        ("**Answer: B, D**", "BD"),
        ("A) mitochondria\nB) nucleus\nC) ribosome\nD) cell", "ABCD"),
        ("Both (A) and (B) hold some of it.", "AB"),
    ],
)
def test_an_answer_that_leaves_it_open_names_all_that_it_names(answer: str, letters: str) -> None:
    assert find_choice(answer, CHOICES) == letters


@pytest.mark.parametrize(
    "answer",
    [
        "The answer is a matter of debate.",
        "The answer is not B.",
        "I do not know.",
        "The answer is A good question.",
        "E",
        "\\boxed{7}",
    ],
)
def test_no_letter_is_none(answer: str) -> None:
    assert find_choice(answer, CHOICES) == ""


def test_a_choice_of_one_character_is_known_by_its_words_alone() -> None:
    assert find_choice("Let us count them.\n\n7", ["5", "7", "17"]) == "B"


def task(reference: str, choices: object = tuple(CHOICES)) -> Task:
    return Task("t", "Which?", "f", "", reference, "choice", {"choices": choices})


@pytest.mark.parametrize(
    ("answer", "score", "reason"),
    [
        ("The answer is (C).", 1, "The choice is C."),
        ("The answer is (B).", 0, "The choice is B, not C."),
        ("The answer is B or C.", 0, "The answer leaves it between B and C."),
        ("Hard to say.", 0, "The answer settles on no choice."),
    ],
)
def test_grades_with_a_reason(answer: str, score: int, reason: str) -> None:
    graded = grade(task("C"), answer)
    assert (graded.score, graded.reason) == (score, reason)


@pytest.mark.parametrize(
    ("reference", "choices"), [("E", CHOICES), ("", CHOICES), ("AB", CHOICES), ("A", ["one"]), ("A", "text")]
)
def test_a_task_that_cannot_be_graded_is_bad_input(reference: str, choices: object) -> None:
    with pytest.raises(BadInput):
        grade(task(reference, choices), "A")


PHRASES = (
    "The answer is ({}).", "The correct answer is {}.", "**{}**", "**Answer: {}**", "\\boxed{{{}}}", "Answer: {}",
    "Therefore, the correct choice is **({})**.", "I choose {}.", "Final answer: {}) as above", "{}",
    "$\\boxed{{\\textbf{{({})}}}}$",
)  # fmt: skip


@given(st.sampled_from("ABCD"), st.sampled_from(PHRASES), st.text(alphabet=st.characters(codec="ascii"), max_size=200))
def test_the_last_statement_counts_whatever_stands_before_it(letter: str, phrase: str, noise: str) -> None:
    # Noise that itself states an answer, in this rank or a higher one, is another matter.
    lowered = noise.lower()
    if any(word in lowered for word in ("answer", "choice", "boxed", "choose", "option", "**")) or "(" in noise:
        noise = ""
    assert find_choice(f"{noise}\n\n{phrase.format(letter)}", CHOICES) == letter


@given(st.text(max_size=300))
def test_any_text_gives_known_letters_in_order(text: str) -> None:
    found = find_choice(text, CHOICES)
    assert set(found) <= set("ABCD")
    assert list(found) == sorted(set(found))


def test_words_that_name_two_choices_name_both() -> None:
    assert find_choice("It is either mitochondria or ribosome.", CHOICES) == "AC"
    assert find_choice("The nucleus of a cell, not the ribosome.", CHOICES) == "CD"


@pytest.mark.parametrize("choices", [None, "ABC", ["one"], ["x"] * 27, 5])
def test_a_task_without_a_list_of_choices_says_what_it_needs(choices: object) -> None:
    task = Task("t9", "Which?", "f", "", "A", "choice", {"choices": choices})
    with pytest.raises(BadInput, match="task t9: choices must be a list of 2 to 26 texts"):
        grade(task, "A")
