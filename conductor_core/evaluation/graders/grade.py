"""The grader that a task names, and no exception for whatever a model wrote."""

from conductor_core.evaluation.graders.choice import grade_choice, lettered_choices
from conductor_core.evaluation.graders.code import grade_code, require_tests
from conductor_core.evaluation.graders.exact import grade_exact, require_words
from conductor_core.evaluation.graders.mathematics import grade_math
from conductor_core.evaluation.graders.numeric import grade_numeric, sought_number
from conductor_core.evaluation.tasks import Graded, Task
from conductor_core.rehearsal import grade as rehearsal_grade


def require_gradable(task: Task) -> None:
    """Raises: BadInput for a task of which no answer can be graded: its reference is no number, it names no tests."""
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
    """The mark of ``answer_text``, a model's whole answer to ``task``. May be called from any thread.

    Never raises for a model's text. Raises: BadInput as ``require_gradable`` does.
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
