"""Graders decide whether an answer is right: one for each kind of task. Each gives its reason in one sentence."""

from conductor_core.grading.grade import grade, require_gradable
from conductor_core.grading.tasks import Graded

__all__ = ["Graded", "grade", "require_gradable"]
