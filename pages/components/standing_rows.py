"""The table of an evaluation, and its heat table by difficulty and family, as HTML; every text is escaped."""

from collections.abc import Sequence
from html import escape

from pages.components.standings import Standing, difficulties, families, signed
from pages.components.words import seconds

HEADS = (
    "Score", "95 % interval", "", "Against the first", "Worker tokens", "Conductor tokens", "USD", "Latency", "Steps",
    "Faults",
)  # fmt: skip


def head_html() -> str:
    # In two lines where a head is of two words of tokens: the column is as wide as its figures.
    cells = "".join(
        f'<span class="{"number" if name else ""}">{name.replace(" tokens", "<br>tokens")}</span>' for name in HEADS
    )
    return f'<div class="cells head standings">{cells}</div>'


def row_html(row: Standing, *, chosen: bool, simulated: bool) -> str:
    interval = "—" if row.score_low is None or row.score_high is None else (
        f"{100 * row.score_low:.1f} – {100 * row.score_high:.1f}"
    )  # fmt: skip
    faults = f"✕ {row.faults}" if row.faults else "0"
    cells = (
        f"<b>{100 * row.score:.1f} %</b>",
        interval,
        bar_html(row),
        difference_html(row),
        f"{row.tokens:,.0f}",
        f"{row.conductor_tokens:,.0f}",
        usd_html(row, simulated),
        seconds(row.latency_ms),
        f"{row.steps:.1f}",
        faults,
    )
    inner = "".join(
        f'<span class="{"number" if name else "bar-cell"}">{cell}</span>'
        for name, cell in zip(HEADS, cells, strict=True)
    )
    return f'<div class="cells standings{" chosen" if chosen else ""}">{inner}</div>'


def bar_html(row: Standing) -> str:
    """From 0 to 100 %, with the interval as a whisker."""
    whisker = ""
    if row.score_low is not None and row.score_high is not None:
        left, width = 100 * row.score_low, 100 * (row.score_high - row.score_low)
        whisker = f'<i class="whisker" style="left: {left:.2f}%; width: {width:.2f}%"></i>'
    return f'<span class="score-bar"><i class="filled" style="width: {100 * row.score:.2f}%"></i>{whisker}</span>'


def difference_html(row: Standing) -> str:
    """In points of a hundred; an interval that holds 0 says that no difference was shown."""
    if row.difference is None:
        return '<span class="muted">—</span>'
    if row.difference_low is None or row.difference_high is None:
        return signed(row.difference)
    unclear = row.difference_low <= 0 <= row.difference_high
    title = ' title="The interval holds 0: no difference was shown."' if unclear else ""
    return (
        f'<span{title}>{"≈ " if unclear else ""}{signed(row.difference)} <span class="muted">'
        f"[{signed(row.difference_low)}, {signed(row.difference_high)}]</span></span>"
    )


def usd_html(row: Standing, simulated: bool) -> str:
    if simulated:
        return '<span class="muted" title="No real model answered: nothing was paid.">simulated</span>'
    return "unknown" if row.usd is None else f"{row.usd:.4f}"


def heat_html(rows: Sequence[Standing]) -> str:
    """Score in percent, darker for higher; difficulties first, then families."""
    hard, kinds = difficulties(rows), families(rows)
    heads = "".join(f"<th>{escape(_words(name))}</th>" for name in hard)
    heads += "".join(
        f'<th class="{"first" if not at else ""}">{escape(_words(name))}</th>' for at, name in enumerate(kinds)
    )
    lines = []
    for row in rows:
        cells = "".join(_heat_cell(row.by_difficulty.get(name)) for name in hard)
        cells += "".join(_heat_cell(row.by_family.get(name), first=not at) for at, name in enumerate(kinds))
        lines.append(
            f'<tr><th scope="row" title="{escape(row.orchestrator)}">{escape(row.orchestrator)}</th>{cells}</tr>'
        )
    group = f'<tr class="groups"><th></th><th colspan="{len(hard)}">by difficulty</th>'
    group += f'<th class="first" colspan="{max(len(kinds), 1)}">by family</th></tr>'
    return f'<table class="heat"><thead>{group}<tr><th></th>{heads}</tr></thead><tbody>{"".join(lines)}</tbody></table>'


def _words(name: str) -> str:
    return name.replace("_", " ")


def _heat_cell(score: float | None, *, first: bool = False) -> str:
    kind = ' class="first"' if first else ""
    if score is None:
        return f"<td{kind}>—</td>"
    return f'<td{kind} style="--heat: {38 * score:.0f}%">{100 * score:.0f}</td>'
