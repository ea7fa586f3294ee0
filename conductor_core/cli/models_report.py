"""What ``models`` prints of Conductors: as lines for people, and as JSON."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from conductor_core.cli.text import one_line
from conductor_core.engine.machine_models import MachineModel, Pace

_STATES = {"absent": "to download", "waiting": "to download", "paused": "partly here", "failed": "partly here"}


def size(size_bytes: float) -> str:
    return f"{size_bytes / 1e9:.1f} GB" if size_bytes >= 1e8 else f"{size_bytes / 1e6:.0f} MB"


def parameters(count: int) -> str:
    return f"{count / 1e9:.1f} B" if count >= 1e8 else f"{count / 1e6:.1f} M"


def on_disk(model: MachineModel) -> int:
    return model.size_bytes if model.download.state == "here" else model.download.here_bytes


def seconds(value: float) -> str:
    return "under 1 s" if value < 1 else f"about {value:.0f} s"


def lines(found: Sequence[MachineModel], own: Path, folder: Path, free_bytes: int) -> list[str]:
    """Returns a table of Conductors, and where further ones go."""
    heads = ("CONDUCTOR", "HERE", "SIZE", "PARAMETERS", "LICENCE", "MEMORY NEEDED", "A PLAN HERE")
    rows = [heads, *(_row(each) for each in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    memories = dict.fromkeys(f"{size(each.memory.total_bytes)} of {each.memory.label}" for each in found if each.memory)
    there = f"Memory: {', '.join(memories)}. " if memories else ""
    return [
        *table,
        *(f"{one_line(each.name, 80)}: {one_line(each.fault, 400)}" for each in found if each.fault),
        "",
        f"{there}Downloads go to {one_line(str(folder), 300)} ({size(free_bytes)} free).",
        f"Without a network: copy a model folder into {one_line(str(own), 300)}, or name it with --conductor FOLDER.",
    ]


def _row(model: MachineModel) -> tuple[str, ...]:
    return (
        one_line(model.name, 60),
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
    return f"{seconds(model.pace.plan_s)} (first {seconds(model.pace.first_plan_s)})"


def document(model: MachineModel) -> dict[str, Any]:
    """Returns a Conductor as JSON. What nobody told is null."""
    memory = model.memory
    return {
        "ref": model.ref,
        "name": model.name,
        "where": model.where,
        "model": model.model,
        "server": model.server or None,
        "here": model.here,
        "state": model.download.state,
        "here_bytes": on_disk(model),
        "size_bytes": model.size_bytes or None,
        "parameters": model.parameters or None,
        "licence": model.licence or None,
        "memory": None
        if memory is None
        else {
            "label": memory.label,
            "there_bytes": memory.total_bytes,
            "needed": [
                {"precision": each.precision, "bytes": each.needed_bytes, "fits": each.fits} for each in model.needs
            ],
        },
        "pace": pace_document(model.pace),
        "fault": model.fault or None,
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


def pace_lines(pace: Pace) -> list[str]:
    return [
        f"A plan takes {seconds(pace.plan_s)} here, the first one {seconds(pace.first_plan_s)}: it also reads the "
        "prompt that all plans share.",
        f"{1 / pace.read_token_s:,.1f} tokens/s read, {1 / pace.write_token_s:,.1f} tokens/s written, with weights in "
        f"{pace.precision}.",
    ]
