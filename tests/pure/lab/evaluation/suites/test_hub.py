import base64
import csv
import json
import os
import pickle
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest
from huggingface_hub import errors

from conductor_core.errors import BadInput
from conductor_core.grading.grade import grade
from conductor_core.lab.evaluation import suites
from conductor_core.lab.evaluation.suites import RowFault, contest_problem, load_suite

STDIO: Mapping[str, Any] = {
    "question_content": "Add two numbers.",
    "platform": "atcoder",
    "question_id": "abc_a",
    "difficulty": "easy",
    "starter_code": "",
    "metadata": "{}",
    "public_test_cases": json.dumps([{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}]),
    "private_test_cases": json.dumps([{"input": "5 6\n", "output": "11\n", "testtype": "stdin"}]),
}


def packed(value: object) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, list[dict[str, Any]]], None]:
    """Puts rows where a benchmark's file would be downloaded to."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")

    def put(suffix: str, rows: list[dict[str, Any]]) -> None:
        path = tmp_path / f"rows{suffix}"
        if suffix == ".jsonl":
            path.write_text("\n".join(map(json.dumps, rows)))
        elif suffix == ".csv":
            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
        else:
            from datasets import Dataset

            Dataset.from_list(rows).to_parquet(path)
        monkeypatch.setattr(suites, "_download", lambda name, source: path)

    return put


ROWS: Mapping[str, tuple[str, list[dict[str, Any]], str]] = {
    "math500": (".jsonl", [{"problem": "p", "solution": "s", "answer": "2", "subject": "Algebra", "level": 1}], "2"),
    "mmlu": (".parquet", [{"question": "q", "subject": "law", "choices": ["a", "b", "c", "d"], "answer": 1}], "B"),
    "rlpr": (
        ".parquet",
        [{"prompt": [{"role": "user", "content": "Of?"}], "ability": "x", "reward_model": {"ground_truth": "iron"}}],
        "iron",
    ),
    "aime25": (".jsonl", [{"id": "1", "problem": "p", "answer": "70"}], "70"),
    "bigcodebench": (
        ".parquet",
        [
            {
                "task_id": "Own/1", "instruct_prompt": "Write task_func.", "code_prompt": "def task_func():\n",
                "canonical_solution": "    return 1\n", "entry_point": "task_func",
                "test": "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n"
                "        self.assertEqual(task_func(), 1)\n",
            }
        ],
        "def task_func():\n    return 1\n",
    ),
    "gpqa-diamond": (
        ".csv",
        [
            {
                "Question": "Why?", "Correct Answer": "so", "Incorrect Answer 1": "x", "Incorrect Answer 2": "y",
                "Incorrect Answer 3": "z", "Record ID": "rec1", "High-level domain": "Physics",
            }
        ],
        "",
    ),
    "livecodebench": (".jsonl", [dict(STDIO)], ""),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_each_benchmark_becomes_tasks(name: str, serve: Callable[[str, list[dict[str, Any]]], None]) -> None:
    suffix, rows, reference = ROWS[name]
    serve(suffix, rows)
    suite = load_suite(name)
    assert (suite.name, suite.split, suite.simulated, len(suite.tasks)) == (name, "test", False, 1)
    (task,) = suite.tasks
    if reference:
        assert task.reference == reference
        answer = f"```python\n{reference}\n```" if task.grader == "code" else f"\\boxed{{{reference}}}"
        assert grade(task, answer).right


def test_every_benchmark_is_covered_and_pinned() -> None:
    assert set(ROWS) == set(suites.BENCHMARKS)
    for benchmark in suites.BENCHMARKS.values():
        assert "test" in benchmark.splits
        assert all(len(source.revision) == 40 for source in benchmark.splits.values())


def test_gpqa_orders_its_choices_by_the_question(serve: Callable[[str, list[dict[str, Any]]], None]) -> None:
    suffix, (row,), _ = ROWS["gpqa-diamond"]
    serve(suffix, [{**row, "Question": f"Why {n}?", "Record ID": str(n)} for n in range(20)])
    tasks = load_suite("gpqa-diamond").tasks
    assert all(task.extra["choices"]["ABCD".index(task.reference)] == "so" for task in tasks)
    assert len({task.reference for task in tasks}) > 1
    assert {task.task_id: task.reference for task in load_suite("gpqa-diamond", seed=5).tasks} == {
        task.task_id: task.reference for task in tasks
    }


def test_samples_of_a_benchmark_are_drawn_by_seed(serve: Callable[[str, list[dict[str, Any]]], None]) -> None:
    serve(".jsonl", [{"id": str(n), "problem": "p", "answer": "1"} for n in range(30)])
    assert load_suite("aime25", limit=5, seed=1).tasks == load_suite("aime25", limit=9, seed=1).tasks[:5]
    assert load_suite("aime25", limit=5, seed=1).tasks != load_suite("aime25", limit=5, seed=2).tasks


def test_a_bad_row_is_named(serve: Callable[[str, list[dict[str, Any]]], None]) -> None:
    serve(".jsonl", [{"id": "1", "problem": "p", "answer": "many"}])
    with pytest.raises(BadInput, match=r"math-ai/aime25, test.jsonl, row 0: field 'answer'"):
        load_suite("aime25")


def test_a_damaged_file_is_bad_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"not parquet")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(suites, "_download", lambda name, source: path)
    with pytest.raises(BadInput, match=r"rows\.parquet cannot be read"):
        load_suite("mmlu")


def test_contest_programs_are_graded_on_public_and_private_tests() -> None:
    task = contest_problem(STDIO, 0)
    assert (task.task_id, task.family, task.difficulty) == ("livecodebench/abc_a", "atcoder", "easy")
    assert grade(task, "```python\nprint(sum(map(int, input().split())))\n```").reason == "All 2 tests pass."


def test_contest_functions_take_json_arguments() -> None:
    cases = [{"input": "[1, 2]\n3", "output": "6", "testtype": "functional"}]
    row = {
        **STDIO,
        "starter_code": "class Solution:\n    def total(self, xs: List[int], y: int) -> int:\n        ",
        "metadata": json.dumps({"func_name": "total"}),
        "public_test_cases": json.dumps(cases),
        "private_test_cases": packed(json.dumps(cases)),
    }
    task = contest_problem(row, 0)
    answer = f"```python\n{row['starter_code']}return sum(xs) + y\n```"
    assert grade(task, answer).reason == "All 2 tests pass."
    with pytest.raises(RowFault, match="func_name"):
        contest_problem({**row, "metadata": "{}"}, 0)


class _Hostile:
    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("echo taken",)


@pytest.mark.parametrize("content", [packed(_Hostile()), packed(3), "!!", base64.b64encode(b"x").decode()])
def test_packed_tests_are_read_as_text_and_nothing_else(content: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RowFault, match="cannot be unpacked"):
        contest_problem({**STDIO, "private_test_cases": content}, 0)
    assert capfd.readouterr().out == ""


def _response(status: int) -> httpx2.Response:
    return httpx2.Response(status, request=httpx2.Request("GET", "https://huggingface.co/x"))


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (errors.GatedRepoError("gated", response=_response(403)), "accept its terms: do so at https://"),
        (errors.LocalEntryNotFoundError("offline"), "is not in the local cache and the hub cannot be reached"),
        (errors.OfflineModeIsEnabled("offline"), "is not in the local cache"),
        (errors.RepositoryNotFoundError("gone", response=_response(404)), "no longer has"),
        (errors.HfHubHTTPError("boom\nmore", response=_response(500)), "cannot be downloaded from .*: boom$"),
        (PermissionError("cache is read-only"), "cache is read-only"),
    ],
)
def test_why_a_benchmark_cannot_be_had(error: Exception, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **named: object) -> str:
        raise error

    monkeypatch.setattr("huggingface_hub.hf_hub_download", fail)
    with pytest.raises(BadInput, match=message) as raised:
        load_suite("gpqa-diamond")
    assert "\n" not in str(raised.value)


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(BadInput, match="choose rehearsal, math500, mmlu"):
        load_suite("mmlu-pro")
    with pytest.raises(BadInput, match="aime25 has the split test, not 'train'"):
        load_suite("aime25", "train")
