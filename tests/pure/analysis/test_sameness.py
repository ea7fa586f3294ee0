"""Two answers are one if they conclude the same, whatever their words."""

import pytest

from conductor_core.analysis.conclusion import answer_key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("We add them. The answer is **42**.", "Hence \\boxed{42}"),
        ("The answer is Paris.", "the answer is  “paris”"),
        ("I cannot help with that request.", "I'm sorry, but I can't answer this."),
        ("```python\ndef f():\n    return 1\n```", "Here it is:\n```python\ndef f():\n    return 1\n```\nDone."),
    ],
)
def test_the_same_conclusion(one: str, other: str) -> None:
    assert answer_key(one) == answer_key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The answer is 42.", "The answer is 41."),
        ("```python\ndef f():\n    return 1\n```", "```python\ndef f():\n    return 2\n```"),
        ("", "The answer is 42."),
    ],
)
def test_another_conclusion(one: str, other: str) -> None:
    assert answer_key(one) != answer_key(other)
