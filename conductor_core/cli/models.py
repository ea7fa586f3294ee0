"""``models``: the Conductors of this machine: what they need, how fast they plan here; to get and delete them."""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from conductor_core.cli import inputs, models_report, options
from conductor_core.cli.models_progress import bar
from conductor_core.cli.output import print_json
from conductor_core.cli.text import one_line
from conductor_core.engine import machine_models as core
from conductor_core.errors import BadInput

models = typer.Typer(
    help="List, download, delete and time the Conductors of this machine: list, pull, remove, time.",
    rich_markup_mode=None,
)

Ref = Annotated[
    str, typer.Argument(metavar="REF", help="A Conductor, as --conductor takes it: for instance a hub id (owner/name).")
]
_SIGNALLED = 128


class _Signalled(Exception):
    """Ends what is being done after a signal. Attributes: code: the exit code."""

    def __init__(self, code: int) -> None:
        self.code = code


@contextmanager
def _ending_at_a_signal() -> Iterator[list[int]]:
    """Yields a list that holds the exit code from the first SIGINT or SIGTERM on; a second one ends the program."""
    codes: list[int] = []

    def on_signal(number: int, _frame: object) -> None:
        if codes:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        codes.append(_SIGNALLED + number)

    before = {each: signal.signal(each, on_signal) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield codes
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@models.command("list")
def list_models(
    as_json: options.AsJson = False,
    conductor: options.UnusedConductor = None,
    pool: options.UnusedPool = None,
    db: options.UnusedDb = None,
) -> int:
    """List every Conductor that this machine has or could have: size, licence, memory, seconds a plan takes here."""
    settings = inputs.read_settings()
    from conductor_core.engine.catalogue import discover_local_servers

    found = core.machine_models(settings, discover_local_servers(settings))
    folder, free_bytes = core.room()
    if as_json:
        room = {"folder": str(folder), "free_bytes": free_bytes}
        print_json({"models": [models_report.document(each) for each in found], "room": room})
    else:
        print("\n".join(models_report.lines(found, settings.models_folder, folder, free_bytes)))
    return 0


@models.command()
def pull(
    ref: Ref,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    conductor: options.UnusedConductor = None,
    pool: options.UnusedPool = None,
    db: options.UnusedDb = None,
) -> int:
    """Download a model of the hub. It goes on where it stopped, however that was; digests are checked."""
    model = core.machine_model(ref, inputs.read_settings())
    hub_id = core.downloadable(model, "is downloaded")
    # Imported when used: it brings in the hub's client.
    from conductor_core.inference import hub

    was_here, began_s, last = model.here, time.monotonic(), [0, 0]
    with _ending_at_a_signal() as codes, bar(f"downloading {one_line(hub_id, 60)}", quiet=quiet) as show:

        def told(here_bytes: int, all_bytes: int) -> None:
            last[:] = here_bytes, all_bytes
            show(here_bytes, all_bytes)
            if codes:
                raise _Signalled(codes[0])

        try:
            folder = hub.download(hub_id, told)
        except _Signalled as stopped:
            code = stopped.code
        else:
            code = 0
    if code:
        here = models_report.size(last[0])
        print(f"stopped: {here} of {models_report.size(last[1])} are here; the same command goes on", file=sys.stderr)
        return code
    if as_json:
        took_ms = round(1000 * (time.monotonic() - began_s))
        told_so = {"ref": ref, "folder": str(folder), "size_bytes": last[1], "was_here": was_here}
        print_json(told_so | {"duration_ms": took_ms})
    else:
        print(f"{hub_id} is {'already ' if was_here else ''}on this machine, in {one_line(str(folder), 400)}")
    return 0


@models.command()
def remove(
    ref: Ref,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: options.AsJson = False,
    conductor: options.UnusedConductor = None,
    pool: options.UnusedPool = None,
    db: options.UnusedDb = None,
) -> int:
    """Delete what the hub's cache has of a model, also an unfinished download. A model in use stays."""
    settings = inputs.read_settings()
    model = core.machine_model(ref, settings)
    hub_id = core.downloadable(model, "can be deleted here")
    if model.download.state == "absent":
        raise BadInput(f"the hub's cache has nothing of {hub_id}")
    if not yes and not _agreed(f"Delete {hub_id} ({models_report.size(models_report.on_disk(model))})?"):
        return 0
    freed = core.remove(model, settings)
    if as_json:
        print_json({"ref": ref, "freed_bytes": freed})
    else:
        print(f"{hub_id} was deleted: {models_report.size(freed)} are free again")
    return 0


def _agreed(question: str) -> bool:
    """Asks on stderr. Raises: BadInput where nobody can answer."""
    if not sys.stdin.isatty():
        raise BadInput(f"{question} Nobody can answer here: give --yes")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().casefold() in ("y", "yes")


@models.command("time")
def time_model(
    ref: Annotated[str | None, typer.Argument(metavar="[REF]", help="Default: the Conductor of the settings.")] = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    conductor: options.UnusedConductor = None,
    pool: options.UnusedPool = None,
    db: options.UnusedDb = None,
) -> int:
    """Measure how many seconds a plan takes on this machine. The model need not be downloaded."""
    settings = inputs.read_settings()
    ref = settings.conductor if ref is None else ref
    model = core.machine_model(ref, settings)
    with bar(f"timing {one_line(model.name, 60)}", quiet=quiet, of_bytes=False) as show:
        pace = core.time_now(model, settings, show)
    if as_json:
        print_json({"ref": ref, **(models_report.pace_document(pace) or {})})
    else:
        print("\n".join(models_report.pace_lines(pace)))
    return 0
