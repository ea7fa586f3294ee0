"""Opens what a command needs, and closes it whatever happens. Store and engine are imported by whoever opens them."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from conductor_core.cli.inputs import read_settings
from conductor_core.cli.text import one_line
from conductor_core.errors import BadInput
from conductor_core.files import is_there
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
    from storage.store import store_of

    if url is not None and (read or of_a_run) and not is_there(path := database_path(url, settings)):
        raise BadInput(f"no database at {one_line(str(path), 300)}")
    store = store_of(database_path(url, settings), settings)
    try:
        if store.refusal is not None and not read:
            raise store.refusal
        store.mark_interrupted()
        yield store
    finally:
        store.close()


def database_path(db: str | None, settings: Settings) -> Path:
    """Returns the file of the database that ``db`` names; None: the settings' own. Raises: StoreError."""
    from storage.database.connections import path_of

    return path_of(db or settings.resolved_database_url)


def existing_database(db: str | None, settings: Settings) -> Path:
    """Returns the file of a database that is there. Raises: BadInput, StoreError."""
    path = database_path(db, settings)
    if not path.is_file():
        raise BadInput(f"no database at {one_line(str(path), 300)}")
    return path


@contextmanager
def existing_store(db: str | None) -> "Iterator[Store]":
    """Opens a database that is there as it is: no run of a dead process is marked. Raises: BadInput, StoreError."""
    from storage.store import store_of

    settings = read_settings()
    with closing(store_of(existing_database(db, settings), settings)) as store:
        yield store


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


# Extras of the distribution.

EXTRAS = {
    "train": ("accelerate", "datasets", "trl"),
    "evaluate": ("datasets", "math_verify", "sklearn", "scipy"),
    "otlp": (
        "opentelemetry.trace",
        "opentelemetry.sdk",
        "opentelemetry.exporter.otlp.proto.http",
        "opentelemetry.exporter.otlp.json.common",
        "requests",
    ),
}
"""By extra: the modules that it brings, as they are imported."""


def needs_extra(extra: str) -> None:
    """Raises: BadInput if a module of ``extra`` is not installed."""
    missing = [module for module in EXTRAS[extra] if not _is_installed(module)]
    if missing:
        raise BadInput(
            f'this command needs the extra "{extra}" ({", ".join(missing)} not installed). '
            f"In the folder of the source, run: pip install '.[{extra}]'"
        )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a package above it is missing
        return False


# Signals.

_EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


@contextmanager
def stopping(stop: Callable[[], object]) -> Iterator[list[int]]:
    """Calls ``stop`` at the first SIGINT or SIGTERM; a second one ends the program. Needs a running event loop.

    Yields a list: empty at first, it holds the exit code from the first signal on.
    """
    import asyncio  # when used: the short commands run nothing

    loop = asyncio.get_running_loop()
    codes: list[int] = []

    def on_signal(number: signal.Signals) -> None:
        if codes:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        codes.append(_EXIT_CODES[number])
        stop()

    for number in _EXIT_CODES:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield codes
    finally:
        for number in _EXIT_CODES:
            loop.remove_signal_handler(number)
