"""HTML of an evaluation's table and of its heat table by difficulty and family. Every text is escaped."""

from collections.abc import Sequence
from html import escape

from pages.components.evaluation.simulated import LATENCY
from pages.components.evaluation.standings import SIMULATED, Standing, difficulties, families, signed, usd_words
from pages.components.look.words import seconds

HEADS = (
    "Score", "95 % interval", "", "Against {first}", "Worker tokens", "Conductor tokens", "USD", "Latency", "Steps",
    "Faults",
)  # fmt: skip
HEAD_TITLES = {
    "Against {first}": "Difference to {first} on the tasks that both have done, in points",
    "Latency": "As measured: with many tasks at once it includes waiting.",
}
NO_INTERVAL = "No interval: not done yet, or too few or identical outcomes"
_FIRST = ' class="first"'


def head_html(first: str) -> str:
    """Draws the head of the columns. The others are compared with the orchestrator ``first``."""
    return f'<div class="cells head standings">{"".join(_head_cell(name, first) for name in HEADS)}</div>'


def _head_cell(name: str, first: str) -> str:
    if not name:
        return "<span></span>"
    title = HEAD_TITLES.get(name, "").replace("{first}", escape(first))
    kind = "number ellipsis" if "{first}" in name else "number"  # the name of an orchestrator may be a path
    # A head on tokens takes two lines, so that its column is as wide as the figures.
    said = name.replace(" tokens", "<br>tokens").replace("{first}", escape(first))
    titled = f' title="{title}"' if title else ""
    return f'<span class="{kind}"{titled}>{said}</span>'


def row_html(row: Standing, *, chosen: bool, simulated: bool) -> str:
    """Draws the cells of a row. ``simulated`` says whether all workers are simulated."""
    cells = (
        f"<b>{100 * row.score:.1f} %</b>",
        interval_html(row),
        bar_html(row),
        difference_html(row),
        f"{row.tokens_per_task:,.0f}",
        f"{row.conductor_tokens_per_task:,.0f}",
        usd_html(row, simulated),
        latency_html(row, simulated),
        f"{row.steps_per_task:.1f}",
        f"✕ {row.faults}" if row.faults else "0",
    )
    inner = "".join(
        f'<span class="{"number" if name else "bar-cell"}">{cell}</span>'
        for name, cell in zip(HEADS, cells, strict=True)
    )
    return f'<div class="cells standings{" chosen" if chosen else ""}">{inner}</div>'


def interval_html(row: Standing) -> str:
    if row.score_low is None or row.score_high is None:
        return f'<span class="muted" title="{NO_INTERVAL}">—</span>'
    return f"{100 * row.score_low:.1f} – {100 * row.score_high:.1f}"


def bar_html(row: Standing) -> str:
    """Draws the score from 0 to 100 %, with the interval as a whisker."""
    whisker = ""
    if row.score_low is not None and row.score_high is not None:
        left, width = 100 * row.score_low, 100 * (row.score_high - row.score_low)
        whisker = f'<i class="whisker" style="left: {left:.2f}%; width: {width:.2f}%"></i>'
    return f'<span class="score-bar"><i class="filled" style="width: {100 * row.score:.2f}%"></i>{whisker}</span>'


def difference_html(row: Standing) -> str:
    """Writes the difference in points of a hundred. An interval that holds 0 shows no difference."""
    if row.difference is None:
        return '<span class="muted">—</span>'
    if row.difference_low is None or row.difference_high is None:
        return f'<span title="{NO_INTERVAL}">{signed(row.difference)}</span>'
    unclear = row.difference_low <= 0 <= row.difference_high
    title = ' title="The interval holds 0: no difference was shown."' if unclear else ""
    return (
        f'<span{title}>{"≈ " if unclear else ""}{signed(row.difference)} <span class="muted">'
        f"[{signed(row.difference_low)}, {signed(row.difference_high)}]</span></span>"
    )


def usd_html(row: Standing, simulated: bool) -> str:
    said = usd_words(row, simulated=simulated)
    if said == SIMULATED:
        return f'<span class="muted" title="No real worker answered: nothing was paid.">{said}</span>'
    return said


def latency_html(row: Standing, simulated: bool) -> str:
    shown = seconds(row.latency_ms_per_task)
    return f'<span class="muted" title="{LATENCY}">{shown}</span>' if simulated else shown


def heat_html(rows: Sequence[Standing]) -> str:
    """Draws scores in percent, darker for higher, by difficulty and then by family where the suite has them."""
    hard, kinds = difficulties(rows), families(rows)
    heads = "".join(heat_head(name.replace("_", " ")) for name in hard)
    heads += "".join(heat_head(name.replace("_", " "), first=not at) for at, name in enumerate(kinds))
    lines = ""
    for row in rows:
        cells = "".join(heat_cell(row.by_difficulty.get(name)) for name in hard)
        cells += "".join(heat_cell(row.by_family.get(name), first=not at) for at, name in enumerate(kinds))
        orchestrator = escape(row.orchestrator)
        lines += f'<tr><th scope="row" title="{orchestrator}">{orchestrator}</th>{cells}</tr>'
    groups = f'<th colspan="{len(hard)}">by difficulty</th>' if hard else ""
    groups += f'<th class="first" colspan="{len(kinds)}">by family</th>' if kinds else ""
    return heat_table("heat", groups, heads, lines)


def heat_table(kind: str, groups: str, heads: str, lines: str) -> str:
    """Puts a table of heat cells together, with two lines of heads."""
    return (
        f'<table class="{kind}"><thead><tr class="groups"><th></th>{groups}</tr><tr><th></th>{heads}</tr></thead>'
        f"<tbody>{lines}</tbody></table>"
    )


def heat_head(name: str, *, first: bool = False) -> str:
    return f"<th{_FIRST if first else ''}>{escape(name)}</th>"


def heat_cell(score: float | None, *, first: bool = False) -> str:
    kind = _FIRST if first else ""
    if score is None:
        return f"<td{kind}>—</td>"
    return f'<td{kind} style="--heat: {38 * score:.0f}%">{100 * score:.0f}</td>'
