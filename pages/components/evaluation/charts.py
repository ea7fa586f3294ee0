"""The figures of an evaluation: score against tokens with its frontier, and steps by difficulty."""

import math
from collections.abc import Sequence
from typing import Any

from pages.components.evaluation.standings import Standing, difficulties, frontier
from pages.components.look.difficulty_marks import marks
from pages.components.look.drawing import Figure, content, layout, plain

LEAST_HEIGHT_PX = 440
ROW_PX, FRAME_PX = 22, 62


def pareto(rows: Sequence[Standing]) -> Figure:
    """Each orchestrator at its tokens (logarithmic) and score; filled: on the frontier, which a line joins."""
    front = frontier(rows)
    on_front = {row.orchestrator for row in front}
    least, most = min(row.tokens for row in rows), max(row.tokens for row in rows)
    low = math.floor(min(_ends(row)[0] for row in rows) * 10 - 0.3) / 10
    line = {
        "type": "scatter",
        "mode": "lines",
        "x": [_tokens(row) for row in front],
        "y": [100 * row.score for row in front],
        "line": {"color": "@soft", "width": 1.4, "dash": "dot", "shape": "linear"},
        "hoverinfo": "skip",
    }
    points = {
        "type": "scatter",
        "mode": "markers",
        "x": [_tokens(row) for row in rows],
        "y": [100 * row.score for row in rows],
        "marker": {
            "size": 9,
            "symbol": ["circle" if row.orchestrator in on_front else "circle-open" for row in rows],
            "color": ["@ink" if row.orchestrator in on_front else "@muted" for row in rows],
            "line": {"width": 1.6},
        },
        "hovertemplate": [_hover(row) for row in rows],
    }
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
        right=18,
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
    names = [
        {
            "name": plain(row.orchestrator),
            "x": _tokens(row),
            "y": 100 * row.score,
            "low": 100 * _ends(row)[0],
            "high": 100 * _ends(row)[1],
            "colour": "@ink" if row.orchestrator in on_front else "@muted",
        }
        for row in rows
    ]
    path = [[_tokens(row), 100 * row.score] for row in front]
    return {**content([line, points], shape), "labels": names, "path": path}


def _height(rows: Sequence[Standing]) -> int:
    """The height of both figures, which stand side by side; that of steps has a line for each row."""
    return max(FRAME_PX + ROW_PX * len(rows), LEAST_HEIGHT_PX)


def _ends(row: Standing) -> tuple[float, float]:
    """Returns the ends of the score's interval; the score itself where there is none."""
    low, high = row.score_low, row.score_high
    return (row.score if low is None else low, row.score if high is None else high)


def _tokens(row: Standing) -> float:
    """A logarithm needs something."""
    return max(row.tokens, 1.0)


def _hover(row: Standing) -> str:
    interval = "" if row.score_low is None or row.score_high is None else (
        f" [{100 * row.score_low:.1f}, {100 * row.score_high:.1f}]"
    )  # fmt: skip
    return (
        f"{plain(row.orchestrator)}<br>{100 * row.score:.1f} %{interval}<br>{row.tokens:,.0f} worker tokens, "
        f"{row.steps:.1f} steps<extra></extra>"
    )


def pareto_in_words(rows: Sequence[Standing]) -> str:
    front = ", ".join(
        f"{row.orchestrator} ({100 * row.score:.1f} % at {row.tokens:,.0f} tokens)" for row in frontier(rows)
    )
    return f"Score against worker tokens per task. On the frontier: {front}."


def steps_by_difficulty(rows: Sequence[Standing]) -> Figure:
    """A row per orchestrator; the marks of its difficulties are joined, so that adaptive ones stand out by length."""
    by_name = marks(difficulties(rows))
    traces: list[dict[str, Any]] = []
    for at, row in enumerate(rows):
        values = list(row.steps_by_difficulty.values())
        if values:
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "x": [min(values), max(values)],
                    "y": [at, at],
                    "line": {"color": "@faint", "width": 2},
                    "hoverinfo": "skip",
                }
            )
    for name, mark in by_name.items():
        shown = [(at, row) for at, row in enumerate(rows) if name in row.steps_by_difficulty]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [row.steps_by_difficulty[name] for _, row in shown],
                "y": [at for at, _ in shown],
                "marker": {"symbol": mark.symbol, "size": 8, "color": "@ink", "line": {"width": 1.5}},
                "hovertemplate": [
                    f"{plain(row.orchestrator)}<br>{plain(name)}: {row.steps_by_difficulty[name]:.2f} steps"
                    "<extra></extra>"
                    for _, row in shown
                ],
            }
        )
    longest = max(len(row.orchestrator) for row in rows)
    shape = layout(
        _height(rows),
        hovermode="closest",
        margin={"l": min(24 + 6.4 * longest, 190), "r": 14, "t": 10, "b": 44},
        xaxis={
            "rangemode": "tozero",
            "title": {"text": "steps per task", "standoff": 6},
            "showgrid": True,
            "gridcolor": "@line",
        },
        yaxis={
            "range": [len(rows) - 0.4, -0.6],
            "tickvals": list(range(len(rows))),
            "ticktext": [plain(row.orchestrator[:28]) for row in rows],
            "showgrid": False,
        },
    )
    return content(traces, shape)


def steps_in_words(rows: Sequence[Standing]) -> str:
    parts = [
        f"{row.orchestrator}: " + ", ".join(f"{name} {value:.1f}" for name, value in row.steps_by_difficulty.items())
        for row in rows
    ]
    return "Steps per task by difficulty. " + "; ".join(parts)
