"""``export --as html``, ``export --as record`` and ``compare --html``: runs as a page that opens without a server."""

from collections.abc import Sequence
from typing import Annotated

import typer

from conductor_core.run.redaction import Redactor, read_patterns
from storage import Store


def html_of(store: Store, run_id: str, redact: Sequence[str]) -> str:
    """Returns the page of a run. ``redact``: regular expressions of what is hidden in it.

    Raises: UnknownRun, RunUnreadable, StoreError; BadInput for a run that goes on and for what is no pattern.
    """
    from pages.components.live_workflow.shared_page import page_of_run  # when used: it brings the page's parts

    return page_of_run(store, run_id, Redactor(read_patterns(redact)))


def record_of(store: Store, run_id: str, redact: Sequence[str]) -> str:
    """Returns the decision record of a run as a page. ``redact``: regular expressions of what is hidden in it.

    Raises: UnknownRun, RunUnreadable, StoreError; BadInput for what is no pattern.
    """
    from storage.decision_records import record_page_of  # when used: it brings the templates

    return record_page_of(store, run_id, Redactor(read_patterns(redact)))


def html_of_comparison(store: Store, run_ids: Sequence[str], redact: Sequence[str]) -> str:
    """Returns the page that compares runs. ``redact``: regular expressions of what is hidden in it.

    Raises: UnknownRun, RunUnreadable, StoreError; BadInput for a run that goes on and for what is no pattern.
    """
    from pages.components.compare.shared_comparison import page_of_runs  # when used, as above

    return page_of_runs(store, run_ids, Redactor(read_patterns(redact)))


Redact = Annotated[
    list[str] | None,
    typer.Option(
        "--redact",
        metavar="PATTERN",
        help="In a page (HTML), a record or otlp: hide what this regular expression matches. Can be repeated.",
    ),
]
