"""``export --as html``: one run as a page that opens without a server."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from conductor_core.cli import inputs, options
from conductor_core.cli.output import print_json
from conductor_core.cli.text import one_line
from conductor_core.cli.wiring import opened_store
from conductor_core.errors import BadInput
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
    typer.Option("--redact", metavar="PATTERN", help="Hide what this regular expression matches. Can be repeated."),
]


def export(
    run_id: Annotated[str, typer.Argument(metavar="RUN_ID", help="The run's id, or its beginning.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The file to write.")],
    form: Annotated[Literal["html"], typer.Option("--as", help="The form.")] = "html",
    redact: Redact = None,
    db: options.Db = None,
    as_json: options.AsJson = False,
    _conductor: options.UnusedConductor = None,
    _pool: options.UnusedPool = None,
) -> int:
    """Write RUN_ID as a page that opens without a server, with its replay inside. Keys are always hidden."""
    settings = inputs.read_settings()
    with opened_store(db, settings, read=True) as store:
        text = html_of(store, store.resolve(run_id), redact or ())
    try:
        out.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise BadInput(f"{one_line(str(out))} cannot be written: {error.strerror or error}") from error
    if as_json:
        print_json({"form": form, "files": [str(out)]})
    print(f"wrote {one_line(str(out))}", file=sys.stderr)
    return 0
