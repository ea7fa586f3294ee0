"""The timeline of a run: when each step ran, and which steps made the run as long as it was."""

from collections.abc import Iterator
from dataclasses import dataclass

import plotly.graph_objects as go

from conductor_core.events import Path
from conductor_core.trace import RoundTrace, RunTrace, StepTrace
from conductor_core.workflow.topology import critical_path
from pages.components.palette import agent_colour
from pages.components.words import seconds

ROW_HEIGHT_PX = 28
MARGIN_HEIGHT_PX = 56
LABEL_SHARE = 0.28
"""Room to the right of the last bar, for the text of a bar that ends there."""

_MARKS = {
    "failed": "✕ failed",
    "cancelled": "■ cancelled",
    "skipped": "⊘ skipped",
    "reused": "↺ reused",
    "running": "◔ running",
    "waiting": "○ waiting",
}


@dataclass(frozen=True)
class Bar:
    """One row of the timeline.

    Attributes:
        depth: 0 for the first round, 1 for a round that one of its steps opened, and so on.
        start_s: None for a step that never began.
        critical: the run could not have ended sooner without this being faster.
        mark: a glyph and a word for a step that did not simply complete.
    """

    label: str
    agent: str
    depth: int
    start_s: float | None
    duration_s: float
    critical: bool
    mark: str = ""

    @property
    def text(self) -> str:
        """What stands beside the bar."""
        time = "" if self.start_s is None or self.mark == _MARKS["reused"] else seconds(self.duration_s * 1000)
        parts = [self.mark, time, "critical path" if self.critical else ""]
        return " · ".join(part for part in parts if part)


def timeline_bars(trace: RunTrace) -> list[Bar]:
    """Each round's planning and its steps by number; the rounds that steps opened stand below them."""
    return list(_round_bars(trace.root, trace, critical=True))


def _round_bars(round_: RoundTrace, trace: RunTrace, *, critical: bool) -> Iterator[Bar]:
    depth = len(round_.path)
    if round_.source == "conductor" and round_.duration_ms:
        start_s = (round_.started_ms or 0.0) / 1000
        yield Bar(f"{_prefix(round_.path)}plan", "conductor", depth, start_s, round_.duration_ms / 1000, critical)
    on_path = critical_steps(round_, trace) if critical else ()
    for step in round_.steps:
        yield Bar(
            label=f"{'.'.join(map(str, step.path))} · {step.agent}",
            agent=step.agent,
            depth=depth,
            start_s=None if step.started_ms is None else step.started_ms / 1000,
            duration_s=_duration_ms(step, trace) / 1000,
            critical=step.index in on_path,
            mark=_MARKS.get(step.status, ""),
        )
        if step.round is not None:
            yield from _round_bars(step.round, trace, critical=step.index in on_path)


def critical_steps(round_: RoundTrace, trace: RunTrace) -> tuple[int, ...]:
    """Indices of a round's steps on its critical path, first to last; reused steps take no time."""
    if round_.workflow is None or not round_.steps:
        return ()
    durations_ms = [_duration_ms(step, trace) for step in round_.steps]
    return tuple(index for index in critical_path(round_.workflow, durations_ms) if durations_ms[index] > 0)


def critical_path_s(trace: RunTrace) -> float:
    """Seconds of the critical path, planning included: the shortest time this run could have taken."""
    return sum(bar.duration_s for bar in timeline_bars(trace) if bar.critical and bar.depth == 0)


def timeline_in_words(trace: RunTrace) -> str:
    """The same for those who do not see the chart."""
    rows = (
        f"{bar.label}: {'' if bar.start_s is None else f'at {bar.start_s:.1f} s, '}{bar.text}"
        for bar in timeline_bars(trace)
    )
    return "Timeline. " + "; ".join(rows)


def timeline(trace: RunTrace, *, dark: bool) -> go.Figure:
    """A bar for each step; the critical path is solid and says so, the rest is pale."""
    bars = timeline_bars(trace)
    names = tuple(spec.name for spec in trace.pool.workers)
    end_s = max((bar.start_s + bar.duration_s for bar in bars if bar.start_s is not None), default=0.0) or 0.001
    unit, per_s = _unit(end_s)
    figure = go.Figure(
        go.Bar(
            orientation="h",
            y=list(range(len(bars))),
            base=[(bar.start_s or 0.0) * per_s for bar in bars],
            # A step too short to be seen still has its mark.
            x=[0.0 if bar.start_s is None else max(bar.duration_s, end_s / 400) * per_s for bar in bars],
            marker={
                "color": [agent_colour(bar.agent, names, dark=dark) for bar in bars],
                "opacity": [1.0 if bar.critical else 0.4 for bar in bars],
                "cornerradius": 3,
            },
            text=[bar.text for bar in bars],
            textposition="outside",
            textfont={"size": 12},
            cliponaxis=False,
            hovertemplate=[_hover(bar) for bar in bars],
            name="",
        )
    )
    figure.update_layout(
        height=MARGIN_HEIGHT_PX + ROW_HEIGHT_PX * max(len(bars), 1),
        margin={"l": 0, "r": 12, "t": 4, "b": 0},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        showlegend=False,
        bargap=0.42,
    )
    figure.update_xaxes(
        range=[0, end_s * per_s * (1 + LABEL_SHARE)], title_text=f"{unit} since the run began", zeroline=False
    )
    labels = [f"{_indent(bar.depth)}{_plain(bar.label)}  " for bar in bars]
    figure.update_yaxes(
        autorange="reversed", title_text="", tickvals=list(range(len(bars))), ticktext=labels, showgrid=False
    )
    return figure


def _unit(end_s: float) -> tuple[str, float]:
    """The axis' unit and how many of it a second has, for a run of ``end_s``."""
    if end_s < 1:
        return "milliseconds", 1000.0
    return ("seconds", 1.0) if end_s < 180 else ("minutes", 1 / 60)


def _prefix(path: Path) -> str:
    return f"{'.'.join(map(str, path))} · " if path else ""


def _indent(depth: int) -> str:
    return "\N{NO-BREAK SPACE}" * (4 * depth) + ("↳ " if depth else "")


def _duration_ms(step: StepTrace, trace: RunTrace) -> float:
    if step.status == "reused" or step.started_ms is None:
        return 0.0
    if step.duration_ms is not None:
        return step.duration_ms
    return max(trace.last_at_ms - step.started_ms, 0.0)


def _hover(bar: Bar) -> str:
    began = "did not begin" if bar.start_s is None else f"begins at {seconds(bar.start_s * 1000)}"
    return f"{_plain(bar.label)}<br>{began}<br>{bar.text}"


def _plain(text: str) -> str:
    """Plotly reads a small HTML dialect in texts: an agent's name must not be part of it."""
    return text.replace("<", "‹").replace(">", "›")
