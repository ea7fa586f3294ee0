from typing import Any

import pytest

from conductor_core.errors import BadInput
from conductor_core.grading.grade import grade
from conductor_core.grading.tasks import Task


def task(reference: str, **extra: Any) -> Task:
    return Task("t", "Who?", "f", "", reference, "exact", extra)


@pytest.mark.parametrize(
    "answer",
    [
        "Ada Lovelace",
        "ada  lovelace.",
        "The answer is **Ada Lovelace**.",
        "She wrote the notes.\n\nAnswer: Ada Lovelace",
        "\\boxed{\\text{Ada Lovelace}}",
        "It was **Ada Lovelace**",
        "After some thought:\n“Ada Lovelace”",
    ],
)
def test_words_are_compared_not_their_dress(answer: str) -> None:
    assert grade(task("Ada Lovelace"), answer).right


@pytest.mark.parametrize("answer", ["Ada", "Ada Lovelace and Babbage", "The answer is Babbage, not Ada Lovelace"])
def test_other_words_are_wrong_and_said(answer: str) -> None:
    graded = grade(task("Ada Lovelace"), answer)
    assert graded.score == 0
    assert "not 'Ada Lovelace'" in graded.reason


def test_other_forms_and_case_where_the_task_says_so() -> None:
    assert grade(task("Netherlands", accept=["Holland"]), "holland").right
    assert not grade(task("pH", case_sensitive=True), "Ph").right
    assert grade(task("pH", case_sensitive=True), "pH").right


def test_what_was_right_is_said() -> None:
    assert grade(task("Ada Lovelace"), "ada lovelace").reason == "The answer given is 'Ada Lovelace'."


def test_a_task_that_accepts_no_list_is_bad_input() -> None:
    with pytest.raises(BadInput, match="task t: accept must be a list of texts"):
        grade(task("Netherlands", accept="Holland"), "holland")
