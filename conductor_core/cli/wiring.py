"""Opens what a command needs, and closes it whatever happens. Store and engine are imported by whoever opens them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from conductor_core.cli.text import one_line
from conductor_core.errors import BadInput
from conductor_core.files import is_there, keep_private
from conductor_core.settings import Settings

if TYPE_CHECKING:
    from conductor_core.engine.host import EngineHost
    from storage import Store


@contextmanager
def opened_store(
    url: str | None, settings: Settings, *, read: bool = False, of_a_run: bool = False
) -> "Iterator[Store]":
    """Opens the database at ``url``, by default the settings', and marks the runs of dead processes.

    With ``read``, a database that cannot be written will do, too. With ``read`` or ``of_a_run`` it must be there if
    ``url`` names it: runs are looked for in it. Raises: StoreError, BadInput.
    """
    from storage import Privacy, open_store
    from storage.database.connections import path_of

    if url is not None and (read or of_a_run) and not is_there(path := path_of(url)):
        raise BadInput(f"no database at {one_line(str(path), 300)}")

    keep_private(settings.data_folder.resolve(), levels=2)
    store = open_store(
        url or settings.resolved_database_url,
        Privacy.of(settings),
        anchor=settings.anchor,
        signing_key=settings.signing_key,
        machine_key=settings.machine_key,
    )
    try:
        if store.refusal is not None and not read:
            raise store.refusal
        store.mark_interrupted()
        yield store
    finally:
        store.close()


@contextmanager
def opened_engine(store: "Store", settings: Settings) -> "Iterator[EngineHost]":
    """Opens the engine, which writes to ``store``. On closing it cancels what still runs. Raises: StoreError."""
    if store.refusal is not None:
        raise store.refusal
    from conductor_core.engine.host import EngineHost

    traces = None
    if settings.otlp_endpoint is not None:
        from conductor_core.export.otel_live import open_traces, watched

        traces = open_traces(settings, lambda run_id: [stored.event for stored in store.events(run_id)])
        host = EngineHost(watched(store.log, traces), settings, store)
    else:
        host = EngineHost(store.log, settings, store)
    try:
        yield host
    finally:
        host.close()
        if traces is not None and (lost := traces.close()):
            print(f"warning: {one_line(lost, 400)}", file=sys.stderr)
