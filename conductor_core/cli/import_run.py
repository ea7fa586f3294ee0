"""``import``: reads runs from a file that somebody handed over."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from conductor_core.analysis import documents
from conductor_core.cli import inputs, options
from conductor_core.cli.output import print_json
from conductor_core.cli.text import one_line
from conductor_core.cli.wiring import opened_store
from conductor_core.errors import BadInput
from conductor_core.files import open_regular
from conductor_core.run.actor import local_caller
from conductor_core.run.share import MOST_FILE_BYTES, as_imported, read_shared
from conductor_core.run.trace import fold


def import_run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A page that export, compare or Share wrote.")],
    db: options.Db = None,
    as_json: options.AsJson = False,
    _conductor: options.UnusedConductor = None,
    _pool: options.UnusedPool = None,
) -> int:
    """It gets an id of its own. The page of a comparison holds all its runs.

    With --json, stdout is the document of the run; of a comparison, one with all of them in "runs".
    """
    settings = inputs.read_settings()
    shared = read_shared(_text(file), f"file {one_line(str(file), 120)}")
    caller = local_caller("cli")
    images = [image for _, _, images in shared for image in images]
    imported_runs = [(shared_run, as_imported(events, shared_run, caller)) for shared_run, events, _ in shared]
    with opened_store(db, settings) as store:
        for shared_run, events in imported_runs:
            if (gone := store.deletion(shared_run.run_id)) is not None:
                print(f"note: in this database {gone.in_words}. It is now here again, as a copy", file=sys.stderr)
            named = {image.sha256 for image in fold(events[:1]).images}
            store.import_run(events, [image for image in images if image.sha256 in named])
            print(f"imported run {shared_run.run_id} of an unsigned file as run {events[0].run_id}", file=sys.stderr)
    if as_json:
        found = [documents.run_document(fold(events)) for _, events in imported_runs]
        print_json(found[0] if len(found) == 1 else {"runs": found})
    else:
        print("\n".join(events[0].run_id for _, events in imported_runs))
    return 0


def _text(file: Path) -> str:
    name = one_line(str(file), 120)
    try:
        with open_regular(file) as opened:
            raw = opened.read(MOST_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise BadInput(f"file {name} cannot be read: {why}") from error
    if len(raw) > MOST_FILE_BYTES:
        raise BadInput(f"file {name} has more than {MOST_FILE_BYTES >> 20} MiB")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"file {name} is not a shared run: it is not UTF-8") from error
