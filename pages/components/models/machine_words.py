"""The words of the Models page: HTML of the cells of a Conductor. Every text in it is escaped."""

from html import escape

from conductor_core.engine.models import MachineModel, Pace

HEADS = ("Conductor", "Size", "Memory it needs", "A plan here", "On this machine")


def gb(size_bytes: float) -> str:
    if size_bytes >= 1e8:
        return f"{size_bytes / 1e9:.1f} GB"
    return f"{size_bytes / 1e6:.1f} MB" if size_bytes >= 1e6 else f"{size_bytes / 1e3:.0f} kB"


def parameters(count: int) -> str:
    if count >= 1e8:
        return f"{count / 1e9:.1f} billion"
    return f"{count / 1e6:.1f} million" if count >= 1e5 else f"{count:,}"


def seconds(value: float) -> str:
    """Writes an estimate: ``under 1 s``, ``about 39 s``, ``about 4 min``."""
    if value < 1:
        return "under 1 s"
    return f"about {value:.0f} s" if value < 100 else f"about {value / 60:.0f} min"


def head() -> str:
    cells = "".join(f"<div>{escape(each)}</div>" for each in HEADS)
    return f'<div class="cells machine-model head" aria-hidden="true">{cells}</div>'


def cells(model: MachineModel) -> str:
    """Draws what is known of a Conductor: who, size, memory, seconds, state."""
    drawn = (_who(model), _size(model), _memory(model), _plan(model), _state(model))
    inner = "".join(
        f'<div data-name="{escape(name)}">{first}<div class="second muted">{second}</div></div>'
        for name, (first, second) in zip(HEADS, drawn, strict=True)
    )
    fault = f'<div class="model-fault">✕ {escape(_fault(model))}</div>' if _fault(model) else ""
    return f'<div class="cells machine-model">{inner}{fault}</div>'


def _fault(model: MachineModel) -> str:
    if model.fault:
        return model.fault
    return model.download.reason if model.download.state == "failed" else model.timing_fault


def _who(model: MachineModel) -> tuple[str, str]:
    whence = {
        "shipped": "comes with the program",
        "hub": "" if model.model == model.name else model.model,
        "folder": model.model,
        "server": f"on {model.server}",
    }[model.where]
    licence = model.licence or ("" if model.where == "server" else "licence unknown")
    said = " · ".join(filter(None, (licence, whence)))
    return (
        f'<b class="ellipsis" title="{escape(model.ref)}">{escape(model.name)}</b>',
        f'<span title="{escape(said)}">{escape(said)}</span>',
    )


def _size(model: MachineModel) -> tuple[str, str]:
    count = parameters(model.parameters) if model.parameters else "—"
    return count, gb(model.size_bytes) if model.size_bytes else ""


def _memory(model: MachineModel) -> tuple[str, str]:
    if not model.needs or model.memory is None:
        return ("the server's", "") if model.where == "server" else ("—", "")
    each = " · ".join(
        f'<span class="{"" if need.fits else "too-large"}">{"" if need.fits else "✕ "}{need.precision} '
        f"{gb(need.needed_bytes).removesuffix(' GB')}</span>"
        for need in model.needs
    )
    unit = " GB" if model.needs[0].needed_bytes >= 1e8 else ""
    some = "" if model.fits else ": too large"
    return f"{each}{unit}", f"of {gb(model.memory.total_bytes)} {escape(model.memory.label)}{some}"


def _plan(model: MachineModel) -> tuple[str, str]:
    if model.where == "server":
        return "the server's pace", ""
    if model.pace is not None:
        return f"<b>{seconds(model.pace.plan_s)}</b> {model.pace.precision}", _first(model.pace)
    if model.timing:
        return "measuring …", "some seconds"
    if model.can_be_timed:
        return "not timed", ""
    return "—", "" if model.fault else "once it is here"


def _first(pace: Pace) -> str:
    return f"the first {seconds(pace.first_plan_s)}"


def _state(model: MachineModel) -> tuple[str, str]:
    download = model.download
    if model.fault:
        return "✕ cannot be used", ""
    if download.state == "here":
        return "✓ ready", {"server": "its server answers", "shipped": "", "folder": "a folder of yours"}.get(
            model.where, "downloaded"
        )
    if not model.fits and not download.here_bytes:
        return "✕ too large", "for any precision"
    if download.moving or download.here_bytes:
        return _progress(model)
    if download.state == "failed":
        return "✕ failed", "nothing is here"
    return "↓ not here", ""


def _progress(model: MachineModel) -> tuple[str, str]:
    """Draws a bar between two lines: how much is here, and how fast it goes on."""
    download = model.download
    whole = download.all_bytes or model.size_bytes
    share = min(1.0, download.here_bytes / whole) if whole else 0.0
    amount = f"{gb(download.here_bytes)} of {gb(whole)}" if whole else gb(download.here_bytes)
    width = f'<i style="width: {share:.2%}"></i>'
    bar = (
        f'<div class="download-bar {download.state}" role="progressbar" aria-label="Download of {escape(model.name)}" '
        f'aria-valuemin="0" aria-valuemax="100" aria-valuenow="{share * 100:.0f}">{width}</div>'
    )
    return f"{amount}{bar}", escape(_how_fast(model, whole))


def _how_fast(model: MachineModel, whole: int) -> str:
    download = model.download
    if download.elsewhere:
        return "another program downloads it"
    if download.bytes_per_s and whole:
        left_s = (whole - download.here_bytes) / download.bytes_per_s
        wait = f"{left_s / 60:.0f} min" if left_s >= 90 else f"{left_s:.0f} s"
        return f"{gb(download.bytes_per_s)}/s · {wait} left"
    return {"waiting": "waits for its turn", "running": "↓ begins", "paused": "‖ paused", "failed": "✕ failed"}.get(
        download.state, ""
    )
