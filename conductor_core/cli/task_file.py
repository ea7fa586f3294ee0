"""Reads a file of tasks, one on each line (JSONL), and checks it whole before anything runs. Faults name their line."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conductor_core.cli.inputs import check, given_text, read_file
from conductor_core.cli.output import one_line
from conductor_core.engine.batch import BatchTask
from conductor_core.errors import BadInput
from conductor_core.run.values import Limits
from conductor_core.workflow.model import Workflow
from conductor_core.workflow.parser import parse_workflow_file

MOST_LINE_BYTES = 4 << 20
_LONGEST_ID = 200
_TASK_KEYS = ("task", "prompt", "question", "problem", "instruction")
_KEYS = frozenset({"id", "workflow", *_TASK_KEYS})


@dataclass(frozen=True)
class TaskFile:
    """Holds the tasks in the file's order. ``unread``: names of further fields of rows, which nothing here reads."""

    tasks: tuple[BatchTask, ...]
    unread: tuple[str, ...]


def read_tasks(path: Path) -> list[str]:
    """Reads the tasks alone. Each line is a JSON string, or an object with ``task`` (or ``prompt``, ...)."""
    return [_task(value, place) for value, place, _ in _rows(path)]


def read_task_file(path: Path, agents: Sequence[str], limits: Limits) -> TaskFile:
    """Reads rows ``{id, task, workflow?}``. A row without an id is named by its line, and may be a JSON string.

    A row's workflow may name only ``agents``, and must keep ``limits``.
    """
    tasks: dict[str, BatchTask] = {}
    unread: dict[str, None] = {}
    for value, place, number in _rows(path):
        row = value if isinstance(value, dict) else {"task": value}
        unread.update(dict.fromkeys(one_line(key, 40) for key in row if key not in _KEYS))
        id_ = _id(row, place, number)
        if (other := tasks.get(id_)) is not None:
            raise BadInput(f"{place}: the id {one_line(id_, 60)!r} is that of line {other.line}: each needs its own")
        given = row.get("workflow")
        workflow = None if given is None else _workflow(given, place, agents, limits)
        if isinstance(given, dict) and not any(key in row for key in _TASK_KEYS) and "task" in given:
            row = row | {"task": given["task"]}
        tasks[id_] = BatchTask(id=id_, task=_task(row, place), workflow=workflow, line=number)
    return TaskFile(tuple(tasks.values()), tuple(unread))


def _rows(path: Path) -> list[tuple[Any, str, int]]:
    """Returns for each line its value, its place for messages, and its number."""
    name = f"task file {one_line(str(path))}"
    rows = []
    # splitlines would break a JSON string that holds another line separator as it is.
    for number, line in enumerate(read_file(path, "task file").split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{name}: line {number}"
        if len(line.encode()) > MOST_LINE_BYTES:
            raise BadInput(f"{place}: too large: a row has at most {MOST_LINE_BYTES >> 20} MiB")
        try:
            value: Any = json.loads(line)
        except json.JSONDecodeError as error:
            raise BadInput(f"{place}, column {error.colno}: not JSON: {error.msg}") from error
        except (RecursionError, ValueError) as error:
            raise BadInput(f"{place}: not JSON that can be read: too deeply nested, or a number too long") from error
        rows.append((value, place, number))
    if not rows:
        raise BadInput(f"{name}: it holds no task")
    return rows


def _task(value: Any, place: str) -> str:
    if isinstance(value, dict):
        value = next((value[key] for key in _TASK_KEYS if key in value), None)
    if not isinstance(value, str):
        raise BadInput(f'{place}: no task: write {{"task": "..."}} or a JSON string')
    return _whole(lambda: given_text(value, "task"), place)


def _id(row: dict[str, Any], place: str, number: int) -> str:
    id_ = row.get("id", number)
    if isinstance(id_, int) and not isinstance(id_, bool):
        id_ = str(id_)
    if not isinstance(id_, str):
        raise BadInput(f"{place}: the id is neither a text nor a whole number")
    if len(id_) > _LONGEST_ID:
        raise BadInput(f"{place}: the id has {len(id_)} characters: at most {_LONGEST_ID}")
    return _whole(lambda: given_text(id_, "id"), place)


def _whole(read: Callable[[], str], place: str) -> str:
    try:
        return read()
    except BadInput as error:
        raise BadInput(f"{place}: {error}") from None


def _workflow(given: Any, place: str, agents: Sequence[str], limits: Limits) -> Workflow:
    """Reads a workflow as in a workflow file: an object, the list of its steps, or the file's text."""
    if isinstance(given, list):
        given = {"steps": given}
    if not isinstance(given, dict | str):
        raise BadInput(f"{place}: the workflow is neither an object nor a list of steps")
    parsed = parse_workflow_file(given if isinstance(given, str) else json.dumps(given))
    checked = check(parsed, agents, limits)
    if checked.workflow is None:
        more = checked.fault_count - 1
        rest = f" ({more:,} more fault{'s' if more > 1 else ''})" if more else ""
        raise BadInput(f"{place}: the workflow cannot be run: {one_line(checked.faults[0].message, 400)}{rest}")
    return checked.workflow
