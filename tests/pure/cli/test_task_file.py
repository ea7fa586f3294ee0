"""A file of tasks is checked whole before anything runs, and each fault names its line."""

import json
from pathlib import Path

import pytest

from conductor_core.cli.batch import TaskFile, read_task_file, read_tasks
from conductor_core.errors import BadInput
from conductor_core.run.values import Limits


def test_a_task_file(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text(
        '{"task": "one\u2028line"}\n\n"two"\n{"question": "three", "answer": "4"}\r\n{"prompt": "five"}', "utf-8"
    )
    assert read_tasks(file) == ["one\u2028line", "two", "three", "five"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"task": "one"}\n{"task": ', r"line 2, column \d+: not JSON"),
        (b'{"task": "one"}\n[1]', r'line 2: no task: write \{"task": "..."\} or a JSON string'),
        (b'{"task": 5}', "line 1: no task"),
        (b'{"task": " "}', "line 1: the task is empty"),
        (b'{"task": "\\ud800"}', "line 1: the task is not valid UTF-8"),
        (b"\n\n", "it holds no task"),
        (b'"ok"\n  "\xff"', "line 2, byte 4: it is not UTF-8 text"),
        (b"[" * 100_000, "line 1"),
        (b"1" * 10_000, "line 1"),
    ],
)
def test_a_bad_task_file(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_bytes(content)
    with pytest.raises(BadInput, match=message):
        read_tasks(file)


def rows(path: Path, text: str) -> TaskFile:
    path.write_text(text, "utf-8")
    return read_task_file(path, ("solver", "checker"), Limits())


def test_rows_have_ids_tasks_and_workflows(tmp_path: Path) -> None:
    file = rows(
        tmp_path / "t.jsonl",
        '{"id": "a", "task": "One?", "answer": "1"}\n'
        '{"id": 7, "task": "Two?", "workflow": [{"instruction": "{question}", "agent": "solver", "access_list": []}]}\n'
        '\n"Three?"\n'
        '{"id": "d", "workflow": {"task": "Four?", "steps": [{"instruction": "Go", "agent": 1, "access_list": []}]}}\n',
    )
    assert [(each.id, each.task, each.line) for each in file.tasks] == [
        ("a", "One?", 1),
        ("7", "Two?", 2),
        ("4", "Three?", 4),
        ("d", "Four?", 5),
    ]
    assert file.tasks[0].workflow is None
    assert file.tasks[1].workflow is not None
    assert file.tasks[1].workflow.steps[0].agent == "solver"
    assert file.tasks[3].workflow is not None
    assert file.tasks[3].workflow.steps[0].agent == "checker"
    assert file.unread == ("answer",)


STEP = '{"instruction": "Go.", "agent": "%s", "access_list": []}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"id": "a", "task": "x"}\n{"id": "a", "task": "y"}', r"line 2: the id 'a' is that of line 1"),
        ('{"id": 2, "task": "x"}\n"y"', r"line 2: the id '2' is that of line 1"),
        ('{"id": "a"}', r'line 1: no task: write \{"task": "..."\}'),
        ('{"id": "a", "task": "x"}\n{"id": ', r"line 2, column \d+: not JSON"),
        ('{"id": [1], "task": "x"}', "line 1: the id is neither a text nor a whole number"),
        ('{"id": " ", "task": "x"}', "line 1: the id is empty"),
        ('{"id": "%s", "task": "x"}' % ("i" * 201), "line 1: the id has 201 characters: at most 200"),
        ('"ok"\n{"id": "b", "task": "%s"}' % ("x" * (4 << 20)), "line 2: too large: a row has at most 4 MiB"),
        ('{"id": "b", "task": "x", "workflow": 5}', "line 1: the workflow is neither an object nor a list"),
        (
            '"ok"\n{"id": "b", "task": "x", "workflow": [%s]}' % (STEP % "nobody"),
            "line 2: the workflow cannot be run: .*nobody",
        ),
        (
            json.dumps({"id": "b", "task": "x", "workflow": [json.loads(STEP % "solver")] * 6}),
            "line 1: the workflow cannot be run: .*6 steps",
        ),
    ],
)
def test_a_row_that_cannot_be_run(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        rows(tmp_path / "t.jsonl", text)
