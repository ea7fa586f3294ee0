"""The words and signs of the Context page. Every state has a sign beside its colour."""

from conductor_core.engine.estimates import Lists
from conductor_core.run.context_flow import CellState, Part, PartKind, ServerContext
from conductor_core.run.values import Path, label

STATES: dict[CellState, tuple[str, str]] = {
    "granted": ("●", "granted"),
    "passed_on": ("◐", "in an instruction that it reads"),
    "withheld": ("✕", "withheld"),
    "absent": ("◌", "not there yet"),
    "planned": ("◇", "would be granted"),
    "unplanned": ("–", "would not be granted"),
}
PARTS: dict[PartKind, str] = {
    "conversation": "turns before the task",
    "task": "the task",
    "images": "images",
    "instruction": "instruction",
    "output": "output",
    "own": "its own instruction",
    "conductor": "the Conductor's prompt and the plan",
}
LISTS: dict[Lists, str] = {"none": "no access", "planned": "as planned", "all": 'every list "all"'}


def part_name(part: Part) -> str:
    """Returns ``output of step 0`` or ``the task``."""
    return PARTS[part.kind] if part.source is None else f"{PARTS[part.kind]} of step {label(part.source)}"


def server_name(server: ServerContext) -> str:
    """Returns ``openai at api.example.com`` or ``rehearsal, in this process``."""
    return f"{server.provider} at {server.host}" if server.host else f"{server.provider}, in this process"


def cell_key(source: Path | None, reader: Path) -> str:
    """Returns the name by which page and browser know a cell: ``question>2``, ``0>2``."""
    return f"{'question' if source is None else label(source)}>{label(reader)}"
