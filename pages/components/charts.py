"""The timeline of a run: when each step ran, and which steps made the run as long as it was."""

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from conductor_core.trace import RunTrace, StepTrace
from conductor_core.workflow.topology import critical_path
from pages.components.palette import agent_colour

ROW_HEIGHT_PX = 34
MARGIN_HEIGHT_PX = 64


@dataclass(frozen=True)
class Bar:
    """One row of the timeline. ``critical``: the run could not have ended sooner without this step being faster."""

    label: str
    agent: str
    start_s: float
    duration_s: float
    critical: bool
    note: str


def timeline_bars(trace: RunTrace) -> list[Bar]:
    """The Conductor's planning, then the first round's steps that were called, in the order of their numbers."""
    bars: list[Bar] = []
    root = trace.root
    if root.source == "conductor" and root.duration_ms:
        start_ms = root.started_ms or 0.0
        bars.append(Bar("plan", "conductor", start_ms / 1000, root.duration_ms / 1000, True, "the Conductor writes"))
    critical = set(critical_steps(trace.steps, trace))
    for step in trace.steps:
        if step.started_ms is None:
            continue
        duration_ms = 0.0 if step.status == "reused" else _duration_ms(step, trace)
        label = f"{step.index} · {step.agent}"
        bars.append(
            Bar(label, step.agent, step.started_ms / 1000, duration_ms / 1000, step.index in critical, step.status)
        )
    return bars


def critical_steps(steps: Sequence[StepTrace], trace: RunTrace) -> tuple[int, ...]:
    """Indices of the first round's steps on the critical path, first to last; reused steps take no time."""
    workflow = trace.root.workflow
    if workflow is None or not steps:
        return ()
    durations_ms = [
        0.0 if step.status == "reused" or step.started_ms is None else _duration_ms(step, trace) for step in steps
    ]
    return tuple(index for index in critical_path(workflow, durations_ms) if durations_ms[index] > 0)


def critical_path_s(trace: RunTrace) -> float:
    """Seconds of the critical path, planning included: the shortest time this run could have taken."""
    return sum(bar.duration_s for bar in timeline_bars(trace) if bar.critical)


def timeline(trace: RunTrace, *, dark: bool) -> go.Figure:
    """A bar for each step; the critical path is solid, the rest is pale, and the hover says which is which."""
    bars = timeline_bars(trace)
    names = tuple(spec.name for spec in trace.pool.workers)
    rows = [bar.label for bar in bars]
    figure = go.Figure(
        go.Bar(
            orientation="h",
            y=rows,
            base=[bar.start_s for bar in bars],
            x=[max(bar.duration_s, 0.001) for bar in bars],
            marker={
                "color": [agent_colour(bar.agent, names, dark=dark) for bar in bars],
                "opacity": [1.0 if bar.critical else 0.45 for bar in bars],
                "cornerradius": 4,
            },
            text=[_bar_text(bar) for bar in bars],
            textposition="outside",
            cliponaxis=False,
            hovertemplate=[f"{_plain(bar.label)}<br>starts at {bar.start_s:.2f} s<br>{_bar_text(bar)}" for bar in bars],
            name="",
        )
    )
    end_s = max((bar.start_s + bar.duration_s for bar in bars), default=1.0)
    figure.update_layout(
        height=MARGIN_HEIGHT_PX + ROW_HEIGHT_PX * max(len(bars), 1),
        margin={"l": 0, "r": 12, "t": 8, "b": 0},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        showlegend=False,
        bargap=0.35,
    )
    figure.update_xaxes(range=[0, end_s * 1.18 or 1], title_text="seconds since the run began", zeroline=False)
    figure.update_yaxes(autorange="reversed", title_text="", ticksuffix="  ")
    return figure


def _duration_ms(step: StepTrace, trace: RunTrace) -> float:
    if step.duration_ms is not None:
        return step.duration_ms
    return max(trace.last_at_ms - (step.started_ms or 0.0), 0.0)


def _bar_text(bar: Bar) -> str:
    if bar.note == "reused":
        return "reused"
    return f"{bar.duration_s:.1f} s" + (" · critical path" if bar.critical else "")


def _plain(text: str) -> str:
    """Plotly reads a small HTML dialect in hover texts: an agent's name must not be part of it."""
    return text.replace("<", "‹").replace(">", "›")
