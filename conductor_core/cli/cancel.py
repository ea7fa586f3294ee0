"""``cancel``: ends a run, whichever process carries it out."""

import sys
import time
from typing import Annotated

import typer

from conductor_core.analysis import documents
from conductor_core.cli import inputs, options
from conductor_core.cli.live import summary
from conductor_core.cli.output import print_json
from conductor_core.cli.wiring import opened_store
from conductor_core.engine.approvals import cancel
from conductor_core.errors import NotHeard
from conductor_core.run.actor import local_caller

_ANSWER_WITHIN_S = 10.0


def cancel_command(
    run_id: Annotated[str, typer.Argument(metavar="RUN_ID", help="The run's id, or its beginning.")],
    db: options.Db = None,
    as_json: options.AsJson = False,
) -> int:
    settings = inputs.read_settings()
    with opened_store(db, settings, of_a_run=True) as store:
        run_id = store.resolve(run_id)
        cancel(store, store.log, run_id, local_caller("cli"))
        deadline_s = time.monotonic() + _ANSWER_WITHIN_S
        while not (trace := store.read(run_id)).ended:
            if time.monotonic() > deadline_s:
                raise NotHeard(f"the process that carries out run {run_id} has not answered for {_ANSWER_WITHIN_S:g} s")
            time.sleep(0.05)
    if as_json:
        print_json(documents.run_document(trace))
    else:
        print(summary(trace), file=sys.stderr)
    return 0
