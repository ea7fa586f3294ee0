"""Figures and statuses as every page writes them."""

from datetime import UTC, datetime

STATUS_WORDS = {
    "running": "◔ running",
    "planned": "◇ planned",
    "completed": "✓ completed",
    "failed": "✕ failed",
    "cancelled": "■ cancelled",
    "interrupted": "⚡ interrupted",
}


def usd(cost_usd: float | None) -> str:
    return "unknown" if cost_usd is None else f"${cost_usd:.4f}"


def seconds(duration_ms: float | None) -> str:
    return "—" if duration_ms is None else f"{duration_ms / 1000:.1f} s"


def ago(moment_utc: datetime, now_utc: datetime | None = None) -> str:
    """How long ago, in the largest whole unit: ``just now``, ``5 min ago``, ``3 h ago``, ``2 d ago``."""
    passed_s = ((now_utc or datetime.now(UTC)) - moment_utc).total_seconds()
    for unit_s, word in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if passed_s >= unit_s:
            return f"{int(passed_s // unit_s)} {word} ago"
    return "just now"


def inert(text: str) -> str:
    """``text`` so that Streamlit's markdown shows it letter by letter: no markup, no link, no image, no directive."""
    shown = "".join(
        f"\\{character}" if character in "\\`*_{}[]<>#+-.!|:$~()\"'&=@/" else character for character in text
    )
    return " ".join(shown.split())
