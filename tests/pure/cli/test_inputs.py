"""What the user gives is read, or refused in one line: files, tasks, conversations, access lists, files of tasks."""

import io
import json
import os
import socket
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from conductor_core.cli import inputs
from conductor_core.cli.batch import TaskFile, read_task_file, read_tasks
from conductor_core.cli.main import main as conductor
from conductor_core.errors import BadInput
from conductor_core.run.values import Limits
from conductor_core.settings import Settings
from conductor_core.workflow.model import AccessList
from tests.support.command_line import log as storage


@pytest.mark.parametrize(
    ("text", "access"),
    [("all", "all"), (" ALL ", "all"), ("none", ()), ("", ()), ("0,2", (0, 2)), ("[0, 2]", (0, 2)), ("3", (3,))],
)
def test_an_access_list(text: str, access: AccessList) -> None:
    assert inputs.parse_access(text) == access


@pytest.mark.parametrize("text", ["x", "0,", "0;1", "-1", "1.5", "0 1", "²", "9" * 10, "all,1", "\x1b[2J"])
def test_no_access_list(text: str) -> None:
    with pytest.raises(BadInput, match="write all, none, or the numbers of earlier steps") as caught:
        inputs.parse_access(text)
    assert "\x1b" not in str(caught.value)


def test_a_file_that_is_not_there_or_no_file(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        inputs.read_file(tmp_path / "none", "workflow file")
    with pytest.raises(BadInput, match="it is a folder"):
        inputs.read_file(tmp_path, "workflow file")
    with pytest.raises(BadInput, match="cannot be read"):
        inputs.read_file(Path("a\x00b"), "workflow file")


def _socket(path: Path) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as at:
        at.bind(str(path))


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, _socket, lambda path: path.symlink_to("/dev/zero")])
def test_every_command_that_reads_a_file_refuses_what_is_none_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], make: Callable[[Path], object]
) -> None:
    """A pipe or a device would keep the command waiting, or never end."""
    monkeypatch.chdir(tmp_path)
    here = Path("here.toml")
    make(here)
    named = str(here)
    commands = (
        ["check", named],
        ["run", "task", "--workflow", named],
        ["run", "task", "--pool", named],
        ["run", "task", "--image", named],
        ["run", "task", "--conversation", named],
        ["run", "--tasks", named],
        ["import", named],
        ["export", "--workflow", named, "--as", "crewai"],
        ["evaluate", "--suite", named],
        ["train", named],
    )
    for command in commands:
        code = conductor(command)
        said = capsys.readouterr()
        assert (code, said.out, said.err.count("\n")) == (2, "", 1), command
        assert said.err.startswith("error: "), command
    key = ["--public-key", named]
    for command in (["verify", *key], ["verify", *key, "--anchor", named]):
        code = storage([*command, "--db", str(tmp_path / "none.sqlite3")])
        assert (code, capsys.readouterr().err.count("\n")) == (2, 1), command


def test_a_file_that_is_far_too_large(tmp_path: Path) -> None:
    file = tmp_path / "large"
    with file.open("wb") as sparse:
        sparse.truncate(40 << 20)
    with pytest.raises(BadInput, match="more than 32 MiB"):
        inputs.read_file(file, "workflow file")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("CONDUCTOR_MAX_STEPS", "many"),
        ("CONDUCTOR_MAX_USD", "-1"),
        ("CONDUCTOR_MAX_DEPTH", "99"),
        ("CONDUCTOR_ALLOWED_HOSTS", "https://inspector.example"),
        ("CONDUCTOR_ALLOWED_HOSTS", "inspector.lan, *.example"),
        ("CONDUCTOR_ALLOWED_HOSTS", "inspector.lan:8501"),
    ],
)
def test_a_bad_setting_is_named(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(
        BadInput, match=f"environment variable {variable} cannot be used: .*; correct it or unset it"
    ) as caught:
        inputs.read_settings()
    assert len(str(caught.value)) < 300


def test_host_names_are_read_as_browsers_send_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDUCTOR_ALLOWED_HOSTS", " Inspector.Example, inspector.lan.,,")
    assert inputs.read_settings().allowed_hosts == ("inspector.example", "inspector.lan")
    monkeypatch.setenv("CONDUCTOR_ALLOWED_HOSTS", "https://inspector.example")
    with pytest.raises(BadInput, match=r"cannot be used: 'https://inspector.example' is not a host name"):
        inputs.read_settings()


def test_text_from_the_command_line() -> None:
    assert inputs.given_text("Grüße", "task") == "Grüße"
    with pytest.raises(BadInput, match="the task is not valid UTF-8 text"):
        inputs.given_text("caf\udce9", "task")
    with pytest.raises(BadInput, match="the instruction is empty"):
        inputs.given_text(" \n", "instruction")


def test_a_task_may_come_on_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("Grüße".encode())))
    assert inputs.task_text("-") == "Grüße"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff")))
    with pytest.raises(BadInput, match="the task is not valid UTF-8 text"):
        inputs.task_text("-")


@pytest.mark.parametrize("url", ["sqlite:////tmp/a.sqlite3", "sqlite:///a.sqlite3", "postgresql://host/name"])
def test_a_database_url_is_taken_as_it_is(url: str) -> None:
    assert inputs.database_url(url) == url
    assert inputs.database_url(None) is None


@pytest.mark.parametrize("name", ["runs.sqlite3", "./runs", "a folder/runs.db", "a@b:c#d%20?.db", "/runs", "~/runs"])
def test_a_databases_path_becomes_its_url(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    expected = {"/runs": Path("/runs"), "~/runs": tmp_path / "home" / "runs"}.get(name, tmp_path / name)
    url = inputs.database_url(name)
    assert url is not None
    assert url.startswith("sqlite:///")
    assert make_url(url).database == str(expected)


def test_a_bare_word_is_a_database_only_if_there_is_such_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="'nonsense' is not a database URL; if a file of that name is meant, write"):
        inputs.database_url("nonsense")
    (tmp_path / "nonsense").touch()
    assert inputs.database_url("nonsense") == f"sqlite:///{tmp_path}/nonsense"


@pytest.mark.parametrize(("given", "told"), [("", "--db is empty"), (" ", "--db is empty")])
def test_no_path_of_a_database(given: str, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        inputs.database_url(given)


def test_a_data_folder_of_any_name_holds_the_database(tmp_path: Path) -> None:
    folder = tmp_path / "100% mine?"
    assert (
        make_url(Settings(data_folder=folder).resolved_database_url).database == f"{folder}/conductor-inspector.sqlite3"
    )


# A file of tasks is checked whole before anything runs, and each fault names its line.


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
