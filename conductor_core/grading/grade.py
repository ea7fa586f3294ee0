"""Grades an answer with the grader that its task names, without an exception for any text of a model."""

from conductor_core.grading.code import grade_code, require_tests
from conductor_core.grading.math import grade_math
from conductor_core.grading.numbers import grade_numeric, sought_number
from conductor_core.grading.tasks import Graded, Task
from conductor_core.grading.text import grade_choice, grade_exact, lettered_choices, require_words
from conductor_core.rehearsal import grade as rehearsal_grade


def require_gradable(task: Task) -> None:
    """Checks a task. Raises: BadInput if no answer to it can be graded, for example for lack of a number or tests."""
    match task.grader:
        case "rehearsal":
            return
        case "exact" | "math":
            require_words(task)
        case "numeric":
            sought_number(task)
        case "choice":
            lettered_choices(task)
        case "code":
            require_tests(task)


def grade(task: Task, answer_text: str) -> Graded:
    """Grades ``answer_text``, a model's whole answer to ``task``. Any thread may call it.

    No text of a model makes it raise. Raises: BadInput as ``require_gradable`` does.
    """
    if not answer_text.strip():
        return Graded(0.0, "The answer is empty.")
    match task.grader:
        case "rehearsal":
            return _grade_rehearsal(task, answer_text)
        case "exact":
            return grade_exact(task, answer_text)
        case "numeric":
            return grade_numeric(task, answer_text)
        case "math":
            return grade_math(task, answer_text)
        case "choice":
            return grade_choice(task, answer_text)
        case "code":
            return grade_code(task, answer_text)


def _grade_rehearsal(task: Task, answer_text: str) -> Graded:
    if rehearsal_grade(task.question, answer_text):
        return Graded(1.0, f"The answer given is {task.reference}.")
    return Graded(0.0, f"The answer given is not {task.reference}.")
