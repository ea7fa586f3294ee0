"""What a command leaves on stdout."""

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from conductor_core import documents
from conductor_core.cli.text import one_line, plain
from conductor_core.trace import RunTrace

if TYPE_CHECKING:
    from conductor_core.cli.live import ProgressView
    from storage import RunSummary, Store

_MOST_NOTES = 5


def print_json(document: Any) -> None:
    """One document, in ASCII: escapes keep what models wrote from a terminal, and any encoding carries it."""
    print(json.dumps(document, indent=2))


def print_notes(store: "Store", runs: "Sequence[RunSummary]" = ()) -> None:
    """What is wrong with the database or with runs that were listed, on stderr."""
    notes = [] if store.refusal is None else [f"note: {store.refusal}"]
    if store.fault is not None:
        notes.append(f"warning: {store.fault}; what could be read is listed")
    unreadable = [run.damage for run in runs if run.damage is not None]
    notes += [f"warning: {damage}" for damage in unreadable[:_MOST_NOTES]]
    if len(unreadable) > _MOST_NOTES:
        notes.append(f"warning: {len(unreadable) - _MOST_NOTES} more of these runs cannot be read completely")
    for note in notes:
        print(one_line(note, 2000), file=sys.stderr)


def print_outcome(trace: RunTrace, view: "ProgressView", *, as_json: bool) -> None:
    """What a run that has been watched leaves."""
    if as_json:
        print_json(documents.run_document(trace))
    elif trace.answer is not None and view.answer_shown != trace.answer:
        print(plain(trace.answer))
