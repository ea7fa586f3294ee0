"""Opens what a command needs, and closes it whatever happens. Store and engine are imported by whoever opens them."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from conductor_core.cli.inputs import read_settings
from conductor_core.cli.output import one_line
from conductor_core.errors import BadInput
from conductor_core.files import is_there
from conductor_core.settings import Settings

if TYPE_CHECKING:
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


# Extras of the distribution.

EXTRAS = {
    "train": ("accelerate", "datasets", "peft", "trl"),
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
            f"Run: pip install 'conductor-inspector[{extra}]'"
        )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a package above it is missing
        return False
