"""A plan whose steps are not told the task is warned of, at the steps where it could be."""

import pytest

from conductor_core.workflow.model import AccessList
from conductor_core.workflow.parser import parse_completion
from conductor_core.workflow.validation import UNTOLD, validate
from tests.support.fakes import workflow_of

TASK = "What is  17 * 24?"


def warned(*steps: tuple[str, str, AccessList], task: str | None = TASK) -> list[int | None]:
    checked = validate(workflow_of(*steps), ["a", "b"], max_steps=5, allow_recursion=True, task=task)
    assert checked.workflow is not None
    return [warning.step for warning in checked.warnings if warning.code == UNTOLD]


@pytest.mark.parametrize(
    ("steps", "at"),
    [
        ([("a", "Solve it.", ())], [0]),
        ([("a", "Solve: {question}", ())], []),
        ([("a", "Solve: What is 17 * 24?", ())], []),
        ([("a", "Solve it.", ()), ("b", "Check it.", (0,))], [0]),
        ([("a", "Solve it.", ()), ("b", "Check the answer to {question}", (0,))], []),
        ([("a", "One.", ()), ("a", "Two.", ()), ("b", "Best of both.", "all")], [0, 1]),
        ([("a", "See {question}", ()), ("a", "Solve it.", ()), ("b", "Check it.", (1,))], [1]),
        ([("conductor", "Plan it.", ())], []),
        ([("a", "One.", ()), ("conductor", "Plan it.", (0,))], []),
    ],
)
def test_where_nothing_that_counts_is_told_the_task(steps: list[tuple[str, str, AccessList]], at: list[int]) -> None:
    assert warned(*steps) == at


def test_no_word_is_said_where_every_step_is_told_anyway() -> None:
    assert warned(("a", "Solve it.", ()), task=None) == []


def test_an_empty_task_is_in_no_instruction() -> None:
    assert warned(("a", "Solve it.", ()), task="") == [0]


def test_the_place_is_the_instruction() -> None:
    parsed = parse_completion('model_id = [0]\nsubtasks = ["Solve it."]\naccess_list = [[]]')
    (warning,) = validate(parsed, ["a"], max_steps=5, task=TASK).warnings
    assert (warning.code, warning.field, warning.line, warning.column) == (UNTOLD, "instruction", 2, 13)
    assert warning.message == (
        "Step 0 does not receive the task, nor does any step that leads to the answer: no instruction says {question}."
    )
