"""Whether an answer is right: one grader per kind of task, each saying why in one sentence."""

from conductor_core.evaluation.graders.grade import grade, require_gradable
from conductor_core.evaluation.tasks import Graded

__all__ = ["Graded", "grade", "require_gradable"]
