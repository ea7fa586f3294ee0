import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.analysis.answers import fenced_blocks
from conductor_core.grading.code import defines, extract_code

ADD = "def add(a, b):\n    return a + b"


@pytest.mark.parametrize(
    "answer",
    [
        f"```python\n{ADD}\n```",
        f"Sure:\n\n```py\n{ADD}\n```\n\nThat is all.",
        f"```\n{ADD}\n```",
        f"~~~python\n{ADD}\n~~~",
        f"First try:\n```python\ndef add(a, b):\n    return a - b\n```\nBetter:\n```python\n{ADD}\n```\n"
        "Try it:\n```python\nprint(add(1, 2))\n```",
        f"```python\n{ADD}\n```\n```bash\npython add.py\n```",
        ADD,
        f"1. Like so:\n   ```python\n   {ADD.replace(chr(10), chr(10) + '   ')}\n   ```",
        f"It was cut:\n```python\n{ADD}",
        f"```python\r\n{ADD.replace(chr(10), chr(13) + chr(10))}\r\n```",
    ],
)
def test_the_last_block_that_defines_the_function(answer: str) -> None:
    assert extract_code(answer, "add") == ADD


def test_a_method_counts_as_defined() -> None:
    code = "class Solution:\n    def twoSum(self, nums, target):\n        return []"
    assert defines(code, "twoSum")
    assert extract_code(f"```python\n{code}\n```", "twoSum") == code


def test_without_an_entry_point_the_last_block_that_is_python() -> None:
    answer = "```python\nprint(input())\n```\nInput:\n```\n3 4\n1 2\n```"
    assert extract_code(answer, None) == "print(input())"
    assert extract_code("print(1)", None) == "print(1)"


@pytest.mark.parametrize("language", ["", "text", "plaintext"])
@pytest.mark.parametrize("output", ["24", "YES", "x = 3", "print(24)", "1, 2", "-1"])
def test_a_sample_of_the_output_is_not_the_program(language: str, output: str) -> None:
    answer = f"```python\nprint(input())\n```\nOutput for the sample:\n```{language}\n{output}\n```"
    assert extract_code(answer, None) == "print(input())"


@pytest.mark.parametrize("output", ["24", "YES", "1, 2", ""])
def test_an_unmarked_program_is_told_from_its_output(output: str) -> None:
    assert extract_code(f"```\nprint(input())\n```\nOutput:\n```\n{output}\n```", None) == "print(input())"


def test_a_broken_program_is_given_rather_than_none() -> None:
    assert extract_code("```python\nprint(\n```\nOutput:\n```\n24\n```", None) == "print("


@pytest.mark.parametrize("answer", ["I cannot do this.", "42", "", "```rust\nfn main() {}\n```"])
def test_no_code_is_none(answer: str) -> None:
    assert extract_code(answer, None) is None


def test_longer_fences_hold_shorter_ones() -> None:
    (block,) = fenced_blocks("````python\nx = '''\n```\n'''\n````")
    assert block.code == "x = '''\n```\n'''"


@given(st.text(max_size=400), st.sampled_from([None, "add"]))
def test_any_text_is_searched_without_an_exception(text: str, entry_point: str | None) -> None:
    found = extract_code(text, entry_point)
    assert found is None or isinstance(found, str)
