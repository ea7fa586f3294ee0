"""Graders decide whether an answer is right: one for each kind of task. Each gives its reason in one sentence."""

from conductor_core.evaluation.graders.grade import grade, require_gradable
from conductor_core.evaluation.tasks import Graded

__all__ = ["Graded", "grade", "require_gradable"]
