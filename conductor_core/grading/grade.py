"""Grades an answer with the grader that its task names, without an exception for any text of a model."""

from collections.abc import Callable

from conductor_core.grading.code import grade_code, require_tests
from conductor_core.grading.math import grade_math
from conductor_core.grading.numbers import grade_numeric, sought_number
from conductor_core.grading.tasks import Graded, GraderName, Task
from conductor_core.grading.text import grade_choice, grade_exact, lettered_choices, require_words
from conductor_core.rehearsal import grade as rehearsal_grade


def _grade_rehearsal(task: Task, answer_text: str) -> Graded:
    if rehearsal_grade(task.question, answer_text):
        return Graded(1.0, f"The answer given is {task.reference}.")
    return Graded(0.0, f"The answer given is not {task.reference}.")


_GRADERS: dict[GraderName, tuple[Callable[[Task], object], Callable[[Task, str], Graded]]] = {
    "rehearsal": (lambda task: None, _grade_rehearsal),
    "exact": (require_words, grade_exact),
    "numeric": (sought_number, grade_numeric),
    "math": (require_words, grade_math),
    "choice": (lettered_choices, grade_choice),
    "code": (require_tests, grade_code),
}


def require_gradable(task: Task) -> None:
    """Checks a task. Raises: BadInput if no answer to it can be graded, for example for lack of a number or tests."""
    _GRADERS[task.grader][0](task)


def grade(task: Task, answer_text: str) -> Graded:
    """Grades ``answer_text``, a model's whole answer to ``task``. Any thread may call it.

    No text of a model makes it raise. Raises: BadInput as ``require_gradable`` does.
    """
    if not answer_text.strip():
        return Graded(0.0, "The answer is empty.")
    return _GRADERS[task.grader][1](task, answer_text)
