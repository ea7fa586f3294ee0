import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from conductor_core.errors import BadInput
from conductor_core.grading.grade import grade
from conductor_core.grading.tasks import Task
from conductor_core.lab.evaluation.suites import load_suite

ROWS: Mapping[str, dict[str, Any]] = {
    "gsm8k": {"question": "Two bags of 3 nuts?", "answer": "2 * 3 = <<2*3=6>>6 nuts\n#### 1,006", "idx": 7},
    "math": {
        "problem": "Halve 1.",
        "solution": r"It is $\boxed{\frac{1}{2}}$.",
        "answer": r"\frac{1}{2}",
        "subject": "Algebra",
        "level": 2,
        "unique_id": "test/algebra/1.json",
    },
    "math without answer": {"problem": "Halve 1.", "solution": r"It is $\boxed{\frac{1}{2}}$.", "level": "Level 1"},
    "aime": {"id": 60, "problem": "How many?", "answer": "033", "solution": r"\boxed{033}", "url": "x", "year": 1},
    "aime with a number": {"problem": "How many?", "answer": 204},
    "mmlu": {"question": "Which?", "type": "biology", "choices": ["a", "b", "c", "d"], "answer": 2},
    "humaneval": {
        "task_id": "Own/0",
        "prompt": "def f(x):\n",
        "entry_point": "f",
        "canonical_solution": "    return x\n",
        "test": "def check(candidate):\n    assert candidate(1) == 1\n",
    },
    "own": {"question": "Who?", "reference": "Ada", "grader": "exact", "family": "people", "difficulty": "easy"},
}


def write(path: Path, *rows: object) -> str:
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
    return str(path)


def first(path: Path, row: Mapping[str, Any]) -> Task:
    (task,) = load_suite(write(path, row)).tasks
    return task


@pytest.mark.parametrize(
    ("name", "task_id", "family", "difficulty", "reference", "grader"),
    [
        ("gsm8k", "gsm8k/7", "word problems", "", "1006", "numeric"),
        ("math", "math/test/algebra/1.json", "Algebra", "level 2", r"\frac{1}{2}", "math"),
        ("math without answer", "math/0", "mathematics", "Level 1", r"\frac{1}{2}", "math"),
        ("aime", "aime/60", "competition", "", "33", "numeric"),
        ("aime with a number", "aime/0", "competition", "", "204", "numeric"),
        ("mmlu", "mmlu/0", "biology", "", "C", "choice"),
        ("humaneval", "Own/0", "code", "", "def f(x):\n    return x\n", "code"),
        ("own", "0", "people", "easy", "Ada", "exact"),
    ],
)
def test_formats_are_recognised_by_their_keys(
    name: str, task_id: str, family: str, difficulty: str, reference: str, grader: str, tmp_path: Path
) -> None:
    task = first(tmp_path / "rows.jsonl", ROWS[name])
    assert (task.task_id, task.family, task.difficulty) == (task_id, family, difficulty)
    assert (task.reference, task.grader) == (reference, grader)


def test_references_are_graded_right(tmp_path: Path) -> None:
    for row in ROWS.values():
        task = first(tmp_path / "rows.jsonl", row)
        answer = f"```python\n{task.reference}\n```" if task.grader == "code" else f"The answer is {task.reference}"
        assert grade(task, answer).right, task


def test_a_choice_question_shows_its_letters(tmp_path: Path) -> None:
    question = first(tmp_path / "rows.jsonl", ROWS["mmlu"]).question
    assert question == "Which?\n\n(A) a\n(B) b\n(C) c\n(D) d\n\nAnswer with the letter of the right choice."


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [ROWS["gsm8k"], {"question": "x", "answer": "six"}],
            "line 2: field 'answer' must end in '#### ' and one number",
        ),
        ([ROWS["gsm8k"], {"question": " ", "answer": "#### 6"}], "line 2: field 'question' must be a text"),
        ([ROWS["gsm8k"], {"answer": "#### 6"}], "line 2: field 'question' is missing"),
        ([ROWS["gsm8k"], ROWS["gsm8k"]], "line 2: the task id 'gsm8k/7' is used twice"),
        ([{**ROWS["mmlu"], "answer": 4}], "line 1: field 'answer' must be an index from 0 to 3, not 4"),
        ([{**ROWS["mmlu"], "answer": True}], "line 1: field 'answer' must be an index"),
        ([{**ROWS["mmlu"], "choices": "abcd"}], "line 1: field 'choices' must be a list of 2 to 26 texts"),
        ([ROWS["aime"], {**ROWS["aime"], "answer": "many"}], "line 2: field 'answer' must be a whole number"),
        ([{"problem": "x", "solution": "no box"}], r"line 1: field 'solution' has no \\boxed\{\} answer"),
        ([{**ROWS["humaneval"], "test": None}], "line 1: field 'test' must be a text, not missing"),
        ([{**ROWS["own"], "grader": "guess"}], "line 1: field 'grader' must be one of exact, numeric"),
        ([{**ROWS["own"], "extra": 3}], "line 1: field 'extra' must be an object, not int 3"),
        ([ROWS["own"], {**ROWS["own"], "reference": " ", "task_id": "2"}], "line 2: task 2: the reference is empty"),
        ([{**ROWS["own"], "extra": {"accept": "Ida"}}], "line 1: task 0: accept must be a list of texts"),
        ([{**ROWS["own"], "grader": "numeric"}], "line 1: task 0: the reference 'Ada' is not one number"),
        (
            [{**ROWS["own"], "grader": "numeric", "reference": "5", "extra": {"tolerance": "1"}}],
            "line 1: task 0: tolerance must be a number of at least 0, not '1'",
        ),
        ([{**ROWS["own"], "grader": "choice", "reference": "A"}], "line 1: task 0: choices must be a list of 2 to 26"),
        ([{**ROWS["own"], "grader": "math", "reference": ""}], "line 1: task 0: the reference is empty"),
        ([{**ROWS["own"], "grader": "code"}], r"line 1: task 0: extra\['kind'\] must be one of check, unittest"),
        ([{"text": "x"}], "line 1: no known format has the fields text"),
        (["{", ""], "line 1, is not JSON"),
        (["[1]"], "line 1, is not a JSON object"),
        ([""], "is empty"),
    ],
)
def test_what_is_wrong_is_named_with_its_line_and_field(rows: list[object], message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=message):
        load_suite(write(tmp_path / "rows.jsonl", *rows))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        load_suite(str(tmp_path / "nothing.jsonl"))


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b"\xff\xfe{}")
    with pytest.raises(BadInput, match="cannot be read"):
        load_suite(str(tmp_path / "rows.jsonl"))


@pytest.fixture
def many(tmp_path: Path) -> str:
    return write(tmp_path / "many.jsonl", *({**ROWS["gsm8k"], "idx": n} for n in range(200)))


def test_samples_are_drawn_by_seed(many: str) -> None:
    ten = load_suite(many, limit=10, seed=1).tasks
    assert ten == load_suite(many, limit=20, seed=1).tasks[:10]
    assert ten != load_suite(many, limit=10, seed=2).tasks
    assert len(load_suite(many).tasks) == 200


def test_fit_and_held_out_are_disjoint_and_whole(many: str) -> None:
    everything, fit, held_out = (
        {task.task_id for task in load_suite(many, split).tasks} for split in ("test", "fit", "held-out")
    )
    assert not fit & held_out
    assert fit | held_out == everything
    assert 20 < len(fit) < 60


def test_a_file_has_no_training_split(many: str) -> None:
    with pytest.raises(BadInput, match="no split 'train'"):
        load_suite(many, "train")
