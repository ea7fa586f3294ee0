"""The tasks offered on the Run page."""

import pytest

from conductor_core.rehearsal import EXAMPLES, Example, recognise
from conductor_core.rehearsal.families import grade


def test_they_cover_the_common_shapes() -> None:
    assert {example.shape for example in EXAMPLES} >= {"one shot", "chain", "fan-out", "mixed"}
    assert len({example.title for example in EXAMPLES}) == len(EXAMPLES)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: str(example.title))
def test_each_is_a_question_of_the_rehearsal_world_in_whole(example: Example) -> None:
    task = recognise(example.task)
    assert task is not None
    assert task.question == example.task
    marked = f"```python\n{task.answer}\n```" if task.solution.kind == "code" else f"**Answer: {task.answer}**"
    assert grade(example.task, marked)
