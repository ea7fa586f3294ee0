"""What a command leaves on stdout."""

import json
from typing import Any

from conductor_core.cli import documents
from conductor_core.cli.live import LiveView
from conductor_core.cli.text import plain
from conductor_core.trace import RunTrace


def print_json(document: Any) -> None:
    """One document, in ASCII: escapes keep what models wrote from a terminal, and any encoding carries it."""
    print(json.dumps(document, indent=2))


def print_outcome(trace: RunTrace, view: LiveView, *, as_json: bool) -> None:
    """What a run that has been watched leaves."""
    if as_json:
        print_json(documents.run_document(trace))
    elif trace.answer is not None and view.answer_shown != trace.answer:
        print(plain(trace.answer))
