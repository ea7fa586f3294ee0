"""Answers as they stand in a text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.rehearsal.families import code_blocks, marked_answer, read_answer, same_answer
from conductor_core.rehearsal.families.family import AnswerKind


@pytest.mark.parametrize(
    ("first", "second", "kind", "same"),
    [
        ("1,250", "1250", "number", True),
        ("1 250.50 euros", "1250.5", "number", True),
        ("−3", "-3", "number", True),
        ("3", "30", "number", False),
        ("9:05", "09:05", "time", True),
        ("arrives at 13:37.", "13:37", "time", True),
        ("The printer A", "printer a", "text", True),
        ("A;B", "A; B", "exact", False),
        ("def f(x):\n    return x", "def f(x): return x  # same", "code", True),
        ("def f(x): return x", "def f(x): return -x", "code", False),
        ("no number", "no number", "number", False),
    ],
)
def test_when_two_answers_say_the_same(first: str, second: str, kind: AnswerKind, same: bool) -> None:
    assert same_answer(first, second, kind) is same


def test_only_python_blocks_are_code() -> None:
    quoted, kept = "```text\ndef quoted(): pass\n```", "````python\ndef kept():\n    return '```'\n````"
    text = f"{quoted}\n\n{kept}\n\n```js\nx\n```\n```\nplain\n```"
    assert code_blocks(text) == ["def kept():\n    return '```'", "plain"]


def test_an_unclosed_block_is_no_code() -> None:
    assert code_blocks("```python\ndef f(): pass") == []


def test_an_answer_that_is_not_of_the_kind_is_passed_over() -> None:
    assert read_answer("**Answer: 12:30**\n**Answer: soon**", "time") == "12:30"
    assert marked_answer("**Plan.** nothing", "text") is None


def test_huge_or_absurd_code_is_no_answer() -> None:
    assert read_answer(f"```python\ndef f(): return {'(' * 900}1{')' * 900}\n```", "code") is None
    assert read_answer(f"```python\ndef f(): return '{'x' * 5000}'\n```", "code") is None


@given(st.text(max_size=300), st.sampled_from(["number", "time", "text", "exact", "code"]))
def test_reading_never_fails_on_any_text(text: str, kind: AnswerKind) -> None:
    read_answer(text, kind)
    read_answer(f"**Answer: {text}**\n```python\ndef {text}\n```", kind)
