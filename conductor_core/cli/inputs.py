"""Reads and checks what the user gave, and opens what a command needs. All here raises BadInput with one clear line."""

import shlex
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import typer
from pydantic import TypeAdapter, ValidationError

from conductor_core.chat.messages import Message
from conductor_core.cli.output import one_line
from conductor_core.errors import BadInput
from conductor_core.files import Unread, expand_path, is_there, read_named, text_of
from conductor_core.run.values import Limits
from conductor_core.settings import Settings, setting_fault, sqlite_url
from conductor_core.workflow.model import AccessList, Fault, Workflow
from conductor_core.workflow.parser import parse_workflow_file
from conductor_core.workflow.source import Parsed
from conductor_core.workflow.validation import Checked, ImagesGiven, WorkflowInvalid, validate


class _Turn(Message):
    """A turn as a file may give it: an image would need its bytes."""

    role: Literal["user", "assistant"]
    content: str


_MOST_BYTES = 32 << 20
_TURNS = TypeAdapter(tuple[_Turn, ...])


def read_settings() -> Settings:
    try:
        return Settings()
    except ValidationError as error:
        raise BadInput(setting_fault(error)) from error


def agreed(question: str) -> bool:
    """Asks on stderr. Raises: BadInput where nobody can answer."""
    if not sys.stdin.isatty():
        raise BadInput(f"{question} Nobody can answer here: give --yes")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().casefold() in ("y", "yes")


def given_text(text: str, what: str) -> str:
    """Returns ``text`` that was given. Refuses one that is empty, or has bytes that are not UTF-8.

    ``what`` names it, after its place: ``task`` or ``line 3: the task``.
    """
    name = what if ": " in what else f"the {what}"
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadInput(f"{name} is not valid UTF-8 text") from None
    if not text.strip():
        raise BadInput(f"{name} is empty")
    return text


def task_text(task: str) -> str:
    """Returns the task, read from stdin where it is ``-``. Raises: BadInput."""
    if task == "-":
        raw = sys.stdin.buffer.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            raise BadInput(f"the task on stdin is longer than {_MOST_BYTES >> 20} MB")
        task = raw.decode(errors="surrogateescape")
    return given_text(task, "task")


def named(option: typer.CallbackParam, given: str | None) -> str | None:
    """Returns the name that was given. Refuses an empty one, as an unset variable leaves it: it is not the default."""
    if given is not None and not given.strip():
        raise BadInput(f"{option.opts[0]} is empty: name one, or leave it out")
    return given


def with_lora(conductor: str | None, lora: Path | None) -> str | None:
    if lora is None:
        return conductor
    if conductor is None or "://" in conductor or conductor.casefold() == "tiny":
        raise BadInput("--lora is for a Conductor of a GGUF file: give --conductor FILE.gguf, too")
    return f"{conductor}#{lora}"


def database_url(given: str | None) -> str | None:
    """Returns what ``--db`` names as a URL: a URL as it is, or a file's path, whether or not the file exists.

    Refuses a bare word: it would become a database in whatever folder the command was typed in.
    """
    if given is None or "://" in given:
        return given
    shown = one_line(given, 120)
    if not given.strip():
        raise BadInput("--db is empty: give a file's path or sqlite:///FOLDER/FILE.sqlite3")
    path = expand_path(given)
    if path.parts[:1] and path.parts[0].startswith("~"):
        raise BadInput(f"--db {shown!r}: unknown user; for a file of that name, write ./{shown}")
    if path.name == given and not path.suffix and not is_there(path):
        raise BadInput(f"{shown!r} is not a database URL; if a file of that name is meant, write ./{shown}")
    return sqlite_url(path.absolute())


def named_again(run_id: str, db: str | None) -> str:
    """Returns what names the run to the next command: its id, and its database unless that is the settings' own."""
    return run_id if db is None else f"{run_id} --db {shlex.quote(db.removeprefix('sqlite:///'))}"


def read_file(path: Path, what: str, most_bytes: int = _MOST_BYTES) -> str:
    """Returns the text of a file. ``what`` names it in messages, e.g. ``workflow file``."""
    try:
        return text_of(read_named(path, most_bytes))
    except Unread as error:
        raise BadInput(f"{what} {one_line(str(path))}: {error}") from error


def read_conversation(path: Path | None, task: str | None) -> tuple[tuple[Message, ...], str | None]:
    """Returns the turns before the task, and the task: ``task``, or the text of the last turn without one.

    Raises: BadInput.
    """
    if path is None:
        return (), task
    name = f"conversation {one_line(str(path))}"
    try:
        turns = _TURNS.validate_json(read_file(path, "conversation"))
    except ValidationError as error:
        first = error.errors()[0]
        where = ", ".join(f"turn {part}" if isinstance(part, int) else str(part) for part in first["loc"])
        place = f"{where}: " if where else ""
        raise BadInput(f"{name}: {place}{first['msg']}; write a JSON list of role and content") from error
    if task is not None:
        return turns, task
    if not turns or turns[-1].role != "user":
        raise BadInput(f"{name}: the last turn is not from the user; pass TASK as well")
    return turns[:-1], turns[-1].text


def read_workflow(path: Path) -> Parsed:
    """Parses a workflow file; its faults are in the result."""
    return parse_workflow_file(read_file(path, "workflow file"))


def valid_workflow(
    subject: Parsed | Workflow, agents: Sequence[str], limits: Limits, what: str, images: ImagesGiven | None = None
) -> Workflow:
    """Returns the workflow. Raises: WorkflowInvalid, whose line is ``what``, then the first fault and its place.

    ``images``: those that come with the task.
    """
    checked = check(subject, agents, limits, images=images)
    if checked.workflow is None:
        more = checked.fault_count - 1
        rest = f" ({more:,} more fault{'s' if more > 1 else ''})" if more else ""
        if checked.faults[0].code == "too_many_steps":
            rest += "; --max-steps sets how many"
        raise WorkflowInvalid(f"{what}{fault_line(checked.faults[0])}{rest}", checked.faults)
    return checked.workflow


def check(
    subject: Parsed | Workflow,
    agents: Sequence[str],
    limits: Limits,
    *,
    give_question: bool = False,
    images: ImagesGiven | None = None,
) -> Checked:
    """Validates a workflow. ``give_question``: every step receives the task anyway, so none lacks it."""
    task = (subject.task or "") if isinstance(subject, Parsed) else ""
    return validate(
        subject,
        agents,
        max_steps=limits.max_steps,
        allow_recursion=limits.max_depth > 0,
        allow_stop=False,
        task=None if give_question else task,
        images=images,
    )


def fault_line(fault: Fault) -> str:
    place = "" if fault.line is None else f"line {fault.line}, column {fault.column}: "
    return f"{place}{one_line(fault.message, 400)}"


def parse_access(text: str) -> AccessList:
    """Reads an access list from the command line: ``all``, ``none`` or ``0,2``."""
    match text.strip().lower():
        case "all":
            return "all"
        case "none" | "":
            return ()
    parts = [part.strip() for part in text.strip().strip("[]").split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 6 for part in parts):
        raise BadInput(
            f"--access {one_line(text, 60)!r}: write all, none, or the numbers of earlier steps with commas, as in 0,2"
        )
    return tuple(int(part) for part in parts)


# Extras of the distribution.

EXTRAS = {
    "train": ("accelerate", "datasets", "peft", "trl"),
    "evaluate": ("datasets", "math_verify", "sklearn", "scipy"),
    "otlp": (
        "opentelemetry.trace",
        "opentelemetry.sdk",
        "opentelemetry.exporter.otlp.proto.http",
        "opentelemetry.exporter.otlp.json.common",
        "requests",
    ),
}
"""By extra: the modules that it brings, as they are imported."""


def needs_extra(extra: str) -> None:
    """Raises: BadInput if a module of ``extra`` is not installed."""
    missing = [module for module in EXTRAS[extra] if not _is_installed(module)]
    if missing:
        raise BadInput(
            f'this command needs the extra "{extra}" ({", ".join(missing)} not installed). '
            f"Run: pip install 'conductor-inspector[{extra}]'"
        )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a package above it is missing
        return False
