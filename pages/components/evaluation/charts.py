"""The figures of an evaluation: score against tokens with its frontier, and steps by difficulty."""

import math
from collections.abc import Sequence

from pages.components.evaluation.standings import Standing, difficulties, frontier, interval
from pages.components.style.figures import Figure, layout, marks, plain, scatter

LEAST_HEIGHT_PX = 440
ROW_PX, FRAME_PX = 22, 62


def pareto(rows: Sequence[Standing]) -> Figure:
    """Draws each orchestrator at its tokens (logarithmic) and score. A line joins the filled marks of the frontier."""
    front = frontier(rows)
    on_front = {row.orchestrator for row in front}
    colours = ["@ink" if row.orchestrator in on_front else "@muted" for row in rows]
    least, most = min(row.tokens_per_task for row in rows), max(row.tokens_per_task for row in rows)
    low = math.floor(min(_ends(row)[0] for row in rows) * 10 - 0.3) / 10
    path = [[_tokens(row), 100 * row.score] for row in front]
    dotted = {"color": "@soft", "width": 1.4, "dash": "dot", "shape": "linear"}
    line = scatter("lines", [x for x, _ in path], [y for _, y in path], line=dotted, hoverinfo="skip")
    symbols = ["circle" if row.orchestrator in on_front else "circle-open" for row in rows]
    points = scatter(
        "markers",
        [_tokens(row) for row in rows],
        [100 * row.score for row in rows],
        marker={"size": 9, "symbol": symbols, "color": colours, "line": {"width": 1.6}},
        hovertemplate=[_hover(row) for row in rows],
    )
    if any(row.score_low is not None for row in rows):
        points["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [100 * (_ends(row)[1] - row.score) for row in rows],
            "arrayminus": [100 * (row.score - _ends(row)[0]) for row in rows],
            "color": "@faint",
            "thickness": 1.2,
            "width": 3,
        }
    ticks = [size * factor for size in (1, 10, 100, 1000, 10_000, 100_000, 1_000_000) for factor in (1, 2, 5)]
    shape = layout(
        _height(rows),
        hovermode="closest",
        xaxis={
            "type": "log",
            "range": [math.log10(max(least, 1) * 0.45), math.log10(max(most, 1) * 1.6)],
            "tickvals": ticks,
            "ticktext": [f"{tick:,}" for tick in ticks],
            "showgrid": True,
            "gridcolor": "@line",
            "title": {"text": "worker tokens per task (logarithmic)", "standoff": 6},
        },
        yaxis={"range": [max(100 * low, 0), 101], "title": {"text": "score, %", "standoff": 4}},
        margin={"l": 48, "r": 18, "t": 10, "b": 44},
    )
    labels = [
        {
            "name": plain(row.orchestrator),
            "x": _tokens(row),
            "y": 100 * row.score,
            "low": 100 * _ends(row)[0],
            "high": 100 * _ends(row)[1],
            "colour": colour,
        }
        for row, colour in zip(rows, colours, strict=True)
    ]
    return {"data": [line, points], "layout": shape, "labels": labels, "path": path}


def _height(rows: Sequence[Standing]) -> int:
    """Returns the height in pixels of both figures, which stand side by side. Each row has a line in that of steps."""
    return max(FRAME_PX + ROW_PX * len(rows), LEAST_HEIGHT_PX)


def _ends(row: Standing) -> tuple[float, float]:
    """Returns the ends of the score's interval; the score itself where there is none."""
    low, high = row.score_low, row.score_high
    return (row.score if low is None else low, row.score if high is None else high)


def _tokens(row: Standing) -> float:
    """Returns the tokens, at least 1: a logarithmic axis has no 0."""
    return max(row.tokens_per_task, 1.0)


def _hover(row: Standing) -> str:
    return (
        f"{plain(row.orchestrator)}<br>{100 * row.score:.1f} %{interval(row.score_low, row.score_high)}<br>"
        f"{row.tokens_per_task:,.0f} worker tokens, {row.steps_per_task:.1f} steps<extra></extra>"
    )


def pareto_in_words(rows: Sequence[Standing]) -> str:
    front = ", ".join(
        f"{row.orchestrator} ({100 * row.score:.1f} % at {row.tokens_per_task:,.0f} tokens)" for row in frontier(rows)
    )
    return f"Score against worker tokens per task. On the frontier: {front}."


def steps_by_difficulty(rows: Sequence[Standing]) -> Figure:
    """Draws a row per orchestrator. A line joins the marks of its difficulties: a long one shows that it adapts."""
    traces = [
        scatter("lines", [min(found), max(found)], [at, at], line={"color": "@faint", "width": 2}, hoverinfo="skip")
        for at, row in enumerate(rows)
        if (found := row.steps_by_difficulty.values())
    ]
    for name, mark in marks(difficulties(rows)).items():
        shown = [
            (at, row, row.steps_by_difficulty[name]) for at, row in enumerate(rows) if name in row.steps_by_difficulty
        ]
        said = [
            f"{plain(row.orchestrator)}<br>{plain(name)}: {steps:.2f} steps<extra></extra>" for _, row, steps in shown
        ]
        marker = {"symbol": mark.symbol, "size": 8, "color": "@ink", "line": {"width": 1.5}}
        xs, ys = [steps for _, _, steps in shown], [at for at, _, _ in shown]
        traces.append(scatter("markers", xs, ys, marker=marker, hovertemplate=said))
    longest = max(len(row.orchestrator) for row in rows)
    title = {"text": "steps per task", "standoff": 6}
    shape = layout(
        _height(rows),
        hovermode="closest",
        margin={"l": min(24 + 6.4 * longest, 190), "r": 14, "t": 10, "b": 44},
        xaxis={"rangemode": "tozero", "title": title, "showgrid": True, "gridcolor": "@line"},
        yaxis={
            "range": [len(rows) - 0.4, -0.6],
            "tickvals": list(range(len(rows))),
            "ticktext": [plain(row.orchestrator[:28]) for row in rows],
            "showgrid": False,
        },
    )
    return {"data": traces, "layout": shape}


def steps_in_words(rows: Sequence[Standing]) -> str:
    parts = [
        f"{row.orchestrator}: " + ", ".join(f"{name} {value:.1f}" for name, value in row.steps_by_difficulty.items())
        for row in rows
    ]
    return "Steps per task by difficulty. " + "; ".join(parts)
