"""What a command prints: JSON, tables, notes, and text in which nothing that a model wrote steers the terminal."""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conductor_core.errors import BadInput
from conductor_core.privacy.masking import Mask, known_and_set
from conductor_core.text import plain

if TYPE_CHECKING:
    from conductor_core.run import values
    from conductor_core.workflow.model import AccessList
    from storage import RunSummary, Store


_MOST_NOTES, _PAGE_RUNS = 5, 500


def print_json(document: Any, indent: int | None = 2, *, ascii_only: bool = True) -> None:
    """Prints one document in ASCII: escapes protect the terminal from models' words, and any encoding can carry it.

    Keys that this process knows are hidden, as they are in the record. ``indent``: None: on one line.
    """
    shown = _without_keys(document, known_and_set())
    print(json.dumps(shown, indent=indent, ensure_ascii=ascii_only), flush=True)


def _without_keys(value: Any, mask: Mask) -> Any:
    if isinstance(value, str):
        return mask.text(value)
    if isinstance(value, dict):
        return {name: _without_keys(each, mask) for name, each in value.items()}
    return [_without_keys(each, mask) for each in value] if isinstance(value, list | tuple) else value


def table(rows: Sequence[Sequence[str]], indent: str = "") -> list[str]:
    """Returns rows, the first of which is the head, with columns as wide as their widest cells."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        f"{indent}{'  '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))}".rstrip()
        for row in rows
    ]


def pages_of_runs(store: "Store", before: int | None = None, **narrowed: Any) -> "Iterator[RunSummary]":
    """Yields all runs that ``Store.runs`` finds, the newest first."""
    while page := store.runs(limit=_PAGE_RUNS, before=before, **narrowed):
        yield from page
        before = page[-1].sequence


def print_notes(store: "Store", runs: "Sequence[RunSummary]" = ()) -> None:
    """Says on stderr what is wrong with the database or with the runs that were listed."""
    notes = [] if store.refusal is None else [f"note: {store.refusal}"]
    if store.fault is not None:
        notes.append(f"warning: {store.fault}; what could be read is listed")
    unreadable = [run.damage for run in runs if run.damage is not None]
    notes += [f"warning: {damage}" for damage in unreadable[:_MOST_NOTES]]
    if len(unreadable) > _MOST_NOTES:
        notes.append(f"warning: {len(unreadable) - _MOST_NOTES} more of these runs cannot be read completely")
    for note in notes:
        print(one_line(note, 2000), file=sys.stderr)


def print_not_on_record(store: "Store") -> None:
    """Waits until the views by this command are logged, and says why if they are not. The command goes on."""
    if store.refusal is None and (why := store.access_log.settle()) is not None:
        print(one_line(f"warning: this view is not in the access log: {why}", 2000), file=sys.stderr)


def write_file(file: Path, content: str | bytes) -> None:
    """Writes a file that the user named. Raises: BadInput if it cannot be written."""
    try:
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise BadInput(f"{one_line(str(file))} cannot be written: {error.strerror or error}") from error


def print_written(files: Sequence[Path]) -> None:
    for file in files:
        print(f"wrote {one_line(str(file))}", file=sys.stderr)


def one_line(text: str, limit: int = 200) -> str:
    """Puts ``plain`` text on one line of at most ``limit`` characters."""
    line = " ".join(plain(text[: 4 * limit + 100]).split())
    return line if len(line) <= limit and len(text) <= 4 * limit + 100 else f"{line[: limit - 3]}..."


def indented(text: str, by: str = "    ") -> str:
    """Puts ``by`` before each line of ``plain`` text."""
    return "\n".join(f"{by}{line}".rstrip() for line in plain(text).split("\n"))


def labels(paths: "tuple[values.Path, ...]") -> str:
    from conductor_core.run.values import label  # it brings in pydantic, which a short command does without

    return ", ".join(map(label, paths)) or "none"


def access_words(access_list: "AccessList | None") -> str:
    return str(list(access_list)) if isinstance(access_list, tuple) else str(access_list)
