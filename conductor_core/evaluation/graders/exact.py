"""Grades answers that must be the reference's words."""

import re
from collections.abc import Sequence

from conductor_core.answers.final_answer import bold, last_line, last_paragraph, stated, tail
from conductor_core.answers.sameness import normal
from conductor_core.errors import BadInput
from conductor_core.evaluation.tasks import Graded, Task


def grade_exact(task: Task, text: str) -> Graded:
    """Grades an answer as right if it, or the whole text, is the reference or one of ``extra["accept"]``.

    The comparison ignores case (unless ``extra["case_sensitive"]``), white space, quotation marks, emphasis and the end
    mark. Raises: BadInput as ``require_words`` does.
    """
    require_words(task)
    fold = not task.extra.get("case_sensitive", False)
    accepted = {normal(form, fold=fold) for form in (task.reference, *task.extra.get("accept", ()))}
    text = tail(text)
    candidates = [mark for _, mark in reversed(stated(text))][:1]
    if not candidates:
        candidates = [mark for _, mark in reversed(bold(last_paragraph(text)))][:1]
        candidates.append(last_line(text))
    candidates.append(text)
    if any(normal(candidate, fold=fold) in accepted for candidate in candidates):
        return Graded(1.0, f"The answer given is {task.reference!r}.")
    return Graded(0.0, f"The answer given is {_short(candidates[0])!r}, not {_short(task.reference)!r}.")


def require_words(task: Task) -> None:
    """Raises: BadInput if there is no reference, or ``extra["accept"]`` is no list of texts."""
    if not task.reference.strip():
        raise BadInput(f"task {task.task_id}: the reference is empty")
    accept = task.extra.get("accept", ())
    if not isinstance(accept, Sequence) or isinstance(accept, str) or not all(isinstance(form, str) for form in accept):
        raise BadInput(f"task {task.task_id}: accept must be a list of texts")


def _short(text: str) -> str:
    text = re.sub(r"\s+", " ", text).strip()
    return text if len(text) <= 60 else text[:57] + "..."
