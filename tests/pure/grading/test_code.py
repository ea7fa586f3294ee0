from typing import Any

import pytest

from conductor_core.errors import BadInput
from conductor_core.grading.code import same_output, same_value
from conductor_core.grading.grade import grade
from conductor_core.grading.tasks import Graded, Task


def mark(answer: str, **extra: Any) -> Graded:
    return grade(Task("t", "q", "code", "", "", "code", extra), answer)


PROMPT = (
    "from typing import List\n\n\ndef halved(x: int) -> int:\n    return x // 2\n\n\n"
    'def half_all(numbers: List[int]) -> List[int]:\n    """ Halves every number. """\n'
)
CHECK = {
    "kind": "check",
    "prompt": PROMPT,
    "entry_point": "half_all",
    "test": "def check(candidate):\n    assert candidate([4, 6]) == [2, 3]\n    assert candidate([]) == []\n"
    "    assert halved(2) == 1\n",
}


@pytest.mark.parametrize(
    "answer",
    [
        f"```python\n{PROMPT}    return [halved(x) for x in numbers]\n```",
        "Only the function:\n```python\ndef half_all(numbers: List[int]) -> List[int]:\n"
        "    return [halved(x) for x in numbers]\n```",
        "Only its body:\n```python\n    return [x // 2 for x in numbers]\n```",
        "Only its body, unindented:\n```python\nreturn [x // 2 for x in numbers]\n```",
        "```python\nfrom __future__ import annotations\ndef half_all(xs):\n    return [x // 2 for x in xs]\n```",
    ],
)
def test_check_takes_the_function_with_or_without_what_the_prompt_gave(answer: str) -> None:
    assert mark(answer, **CHECK) == Graded(1.0, "The tests pass.")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("```python\ndef half_all(numbers):\n    return numbers\n```", "The tests do not pass: AssertionError."),
        ("```python\ndef half_all(numbers):\n    return missing\n```", "NameError"),
        ("I would halve each number.", "The answer has no code."),
        ("```python\ndef other(: pass\n```", "The code does not define half_all."),
    ],
)
def test_check_says_what_fails(answer: str, reason: str) -> None:
    graded = mark(answer, **CHECK)
    assert graded.score == 0
    assert reason in graded.reason


UNITTEST = {
    "kind": "unittest",
    "entry_point": "task_func",
    "test": "import unittest\nclass TestCases(unittest.TestCase):\n    def test_one(self):\n"
    "        self.assertEqual(task_func([1, 2, 3]), 2)\n",
}


def test_unittest_with_a_library() -> None:
    right = "```python\nimport numpy as np\ndef task_func(values):\n    return np.mean(values)\n```"
    assert mark(right, **UNITTEST).right
    wrong = mark(right.replace("mean", "sum"), **UNITTEST)
    assert wrong.score == 0
    assert wrong.reason.startswith("The tests do not pass: 1 of 1 tests fail, first test_one: AssertionError")
    assert mark("```python\nx = 1\n```", **UNITTEST) == Graded(0.0, "The code does not define task_func.")


STDIO = {"kind": "stdio", "tests": [{"input": "2\n3 4\n", "output": "7\n"}, {"input": "1\n5\n", "output": "5\n"}]}


def test_stdio_compares_each_output() -> None:
    right = "```python\nn = int(input())\nprint(sum(map(int, input().split())))\n```"
    assert mark(right, **STDIO) == Graded(1.0, "All 2 tests pass.")
    wrong = mark(right.replace("sum(", "max("), **STDIO)
    assert wrong == Graded(0.0, "Test 1 of 2 fails: the output is '4'.")
    broken = mark("```python\nraise ValueError('no')\n```", **STDIO)
    assert broken == Graded(0.0, "Test 1 of 2 fails: ValueError: no.")


def test_what_contest_sites_import_is_there() -> None:
    assert mark("```python\nn = int(input())\nprint(reduce(add, map(int, input().split())))\n```", **STDIO).right


@pytest.mark.parametrize("end", ["", "exit()", "quit()", "exit(0)", "sys.exit()", "raise SystemExit"])
def test_what_contest_programs_do_is_right(end: str) -> None:
    program = f"n = int(input())\nprint(pow(sum(map(int, input().split())), 1, 1000))\n{end}"
    assert mark(f"```python\n{program}\n```\nFor the sample:\n```\n7\n```", **STDIO).right


CALLS = {
    "kind": "calls",
    "entry_point": "pairs",
    "tests": [{"input": [[1, 2], 3], "output": [[1, 2]]}, {"input": [[], 3], "output": []}],
}


@pytest.mark.parametrize(
    "code",
    [
        "def pairs(xs, t):\n    return [(a, b) for a in xs for b in xs if a < b and a + b == t]",
        "class Solution:\n    def pairs(self, xs: List[int], t: int) -> List[List[int]]:\n"
        "        return [[a, b] for a in xs for b in xs if a < b and a + b == t]",
    ],
)
def test_calls_compare_each_value(code: str) -> None:
    assert mark(f"```python\n{code}\n```", **CALLS) == Graded(1.0, "All 2 tests pass.")


def test_a_method_is_called_though_the_prelude_has_its_name() -> None:
    code = "class Solution:\n    def countOf(self, xs, x):\n        return pow(20, 1, 1000)"
    tests = [{"input": [[1, 1, 2], 1], "output": 20}]
    assert mark(f"```python\n{code}\n```", kind="calls", entry_point="countOf", tests=tests).right


def test_calls_say_which_fails() -> None:
    wrong = mark("```python\ndef pairs(xs, t):\n    return [[1, 2]]\n```", **CALLS)
    assert wrong.reason == "Test 2 of 2 fails: the value is '[[1, 2]]'."
    late = mark("```python\ndef pairs(xs, t):\n    return xs[0] and [[1, 2]]\n```", **CALLS)
    assert late.reason == "Test 2 of 2 fails: IndexError: list index out of range."


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return [0] * 400_000", "it wrote too much."),
        ("xs = []\n    for _ in range(3000): xs = [xs]\n    return xs", "a value is nested too deeply or too long."),
        ("import sys\n    sys.set_int_max_str_digits(0)\n    return 10 ** 5000", "nested too deeply or too long."),
        ("return 10 ** 400", "the value is '1000"),
        ("raise ValueError('\\ud800')", "ValueError: ?."),
        (
            "import sys\n    f = sys._getframe(3)\n    f.f_locals['report']({'call': [], 'value': 1})",
            "the value is 'None'.",
        ),
        ("import sys\n    f = sys._getframe(3)\n    f.f_locals['report']([])", "the value is 'None'."),
    ],
    ids=["much", "deep", "many digits", "no float", "surrogate", "forged", "forged list"],
)
def test_no_value_raises_in_the_grader(body: str, reason: str) -> None:
    tests = [{"input": [], "output": 0.5}]
    graded = mark(f"```python\ndef f():\n    {body}\n```", kind="calls", entry_point="f", tests=tests)
    assert graded.score == 0
    assert reason in graded.reason
    assert graded.reason.isascii()


def test_what_is_right_may_be_long() -> None:
    calls = [{"input": [n], "output": [n] * 100_000} for n in range(6)]
    assert mark("```python\ndef f(n):\n    return [n] * 100_000\n```", kind="calls", entry_point="f", tests=calls).right
    outputs = [{"input": "", "output": "7777777\n" * 200_000}]
    assert mark("```python\nprint('7777777\\n' * 200_000)\n```", kind="stdio", tests=outputs).right


@pytest.mark.parametrize(
    ("given", "right", "same"),
    [
        ("1 2\n3\n", "1 2 \n3", True),
        ("0.3333333", "0.33333333", True),
        ("0.34", "0.33", False),
        ("9007199254740993", "9007199254740992", False),
        ("YES", "yes", False),
        ("1\n2", "1 2", False),
        ("nan", "1.0", False),
    ],
)
def test_outputs(given: str, right: str, same: bool) -> None:
    assert same_output(given, right) is same


@pytest.mark.parametrize(
    ("given", "right", "same"),
    [
        (1, 1.0, True),
        (True, 1, False),
        (1, True, False),
        ([1, [0.1 + 0.2]], [1, [0.3]], True),
        ([1], [1, 2], False),
        ({"a": 1.0}, {"a": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": 1}, {"a": 2}, False),
        ("1", 1, False),
        (None, None, True),
    ],
)
def test_values(given: object, right: object, same: bool) -> None:
    assert same_value(given, right) is same


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"kind": "other"},
        {"kind": "check", "test": "x"},
        {"kind": "stdio"},
        {"kind": "stdio", "tests": []},
        {"kind": "stdio", "tests": [{"input": "1"}]},
        {"kind": "calls", "entry_point": "f", "tests": [{"input": "1", "output": 1}]},
    ],
)
def test_a_task_without_its_tests_is_bad_input(extra: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="task t"):
        mark("```python\nf = print\n```", **extra)


@pytest.mark.parametrize("right", ["1e-7", "1E-7"])
def test_a_number_with_an_exponent_is_compared_as_a_number(right: str) -> None:
    assert same_output("0.0000001", right)
    assert same_output("0.0000001", right.replace("7", "8")), "within 1e-6"
    assert not same_output("0.1", right)
