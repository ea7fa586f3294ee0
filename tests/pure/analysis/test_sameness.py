"""Two answers are one if they conclude the same, whatever their words."""

import pytest

from conductor_core.analysis.conclusion import Likeness, answer_key, likeness


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("We add them. The answer is **42**.", "Hence \\boxed{42}"),
        ("The answer is Paris.", "the answer is  “paris”"),
        ("The answer is $1,250.50.", "Answer: $1250.5"),
        ("The answer is 3.0.", "#### 3"),
        ("We add them. The answer is -5.", "We halve it.\n\nAnswer: - 5"),
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
        ("The answer is 1,25.", "The answer is 125."),
        ("The answer is 5%.", "The answer is 5."),
        ("We add them.\n\nAnswer: - 5", "We add them.\n\nAnswer: 5"),
        ("```python\ndef f():\n    return 1\n```", "```python\ndef f():\n    return 2\n```"),
        ("", "The answer is 42."),
    ],
)
def test_another_conclusion(one: str, other: str) -> None:
    assert answer_key(one) != answer_key(other)


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ("Take a coat. It rains.", "Take a coat. It rains.", "same"),
        ("Half of it. The answer is 42.", "We add them up.\n\nAnswer: 42", "same value"),
        ("Half of it. The answer is 42.", "We add them up.\n\nAnswer: 41", "differ"),
        ("Take a coat. It rains.", "It rains. Take a coat.", "differ in wording"),
        ("Take a coat. It rains.", "Take a coat.  It rains!", "differ in wording"),
        ("Take a coat. It rains.", "It rains.\n\nAnswer: a coat", "differ in wording"),
        ("Take a coat. It rains.", "I cannot help with that.", "differ"),
        ("```python\ndef f():\n    return 1\n```", "```python\ndef f():\n    return 2\n```", "differ"),
    ],
)
def test_answers_differ_by_value_where_both_mark_one_else_in_wording(one: str, other: str, said: Likeness) -> None:
    assert likeness(one, other) == likeness(other, one) == said
