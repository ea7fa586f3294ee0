"""``export --as html``: one run as a page that opens without a server."""

from collections.abc import Sequence
from typing import Annotated

import typer

from conductor_core.redaction import Redactor, read_patterns
from storage import Store


def html_of(store: Store, run_id: str, redact: Sequence[str]) -> str:
    """Returns the page of a run. ``redact``: regular expressions of what is hidden in it.

    Raises: UnknownRun, RunUnreadable, StoreError; BadInput for a run that goes on and for what is no pattern.
    """
    from pages.components.live_workflow.shared_page import page_of_run  # when used: it brings the page's parts

    return page_of_run(store, run_id, Redactor(read_patterns(redact)))


Redact = Annotated[
    list[str] | None,
    typer.Option(
        "--redact",
        metavar="PATTERN",
        help="With --as html: hide what this regular expression matches. Can be repeated.",
    ),
]
