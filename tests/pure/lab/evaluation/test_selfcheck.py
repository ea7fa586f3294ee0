import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import graders as selfcheck
from conductor_core.grading.tasks import Task

ROWS: list[dict[str, Any]] = [
    {"question": "2 + 2?", "reference": "4", "grader": "numeric"},
    {"question": "Which?", "reference": "B", "grader": "choice", "extra": {"choices": ["x", "y", "z"]}},
    {"question": "Simplify.", "reference": r"\frac{1}{2}", "grader": "math"},
    {"question": "Who?", "reference": "Ada", "grader": "exact"},
    {
        "question": "Write f.",
        "reference": "def f(x):\n    return x",
        "grader": "code",
        "extra": {"kind": "check", "entry_point": "f", "test": "def check(candidate):\n    assert candidate(3) == 3"},
    },
    {
        "question": "Double the number that you read.",
        "reference": "print(2 * int(input()))",
        "grader": "code",
        "extra": {"kind": "stdio", "tests": [{"input": "3\n", "output": "6\n"}]},
    },
]


def test_references_are_right_and_near_misses_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "own.jsonl"
    file.write_text("\n".join(json.dumps({"task_id": str(n), **row}) for n, row in enumerate(ROWS)))
    assert selfcheck.main([str(file), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert "audit hook" in document["sandbox"]
    (suite,) = document["suites"]
    assert suite["right"] == suite["right_of"] == 12
    assert suite["wrong"] == suite["wrong_of"] == 15
    assert suite["exceptions"] == []


def of(reference: str, grader: Any, **extra: Any) -> Task:
    return Task("t", "q", "f", "", reference, grader, extra)


def test_a_worked_solution_is_a_right_answer_if_it_states_its_answer() -> None:
    for solution in ("2 + 2\n#### 4", r"2 + 2 is \boxed{4}"):
        assert list(selfcheck.right_answers(of("4", "numeric", solution=solution)))[-1] == solution
    assert "it is four" not in selfcheck.right_answers(of("4", "numeric", solution="it is four"))


@pytest.mark.parametrize(
    ("task", "near"),
    [
        (of("def f(x):\n    return x", "code", kind="check"), "def f(*arguments, **named):"),
        (of("def g(x):\n    return x", "rehearsal", kind="code"), "def g(*arguments, **named):"),
        (of(r"\text{even}", "math"), r"\text{none of these}"),
        (of("x^2", "math"), "x^2 + 1"),
        (of("1234", "numeric"), "1,235"),
        (of("1.5", "numeric"), "answer is 5/2 in"),
        (of("13:59", "rehearsal", kind="time"), "13:00"),
        (of("13:07", "rehearsal", kind="time"), "13:08"),
    ],
)
def test_a_near_miss_is_of_the_tasks_kind(task: Task, near: str) -> None:
    assert near in "\n".join(selfcheck.wrong_answers(task))


def test_what_is_graded_otherwise_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "own.jsonl"
    extra = {"kind": "check", "entry_point": "f", "test": "def check(candidate):\n    assert candidate(3) == 4"}
    row = {
        "task_id": "f3",
        "question": "Write f.",
        "reference": "def f(x):\n    return x",
        "grader": "code",
        "extra": extra,
    }
    file.write_text(json.dumps(row))
    assert selfcheck.main([str(file)]) == 1
    assert "f3: The tests do not pass: AssertionError." in capsys.readouterr().out


def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert selfcheck.main(["nothing.jsonl"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
