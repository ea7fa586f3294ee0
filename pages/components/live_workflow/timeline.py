"""The timeline of a run: when each step ran, and which steps determined the run's length."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from conductor_core.run.trace import RoundTrace, RunTrace, StepTrace
from conductor_core.run.values import Path, label
from conductor_core.workflow.topology import critical_path
from pages.components.style.formats import seconds, step_status


@dataclass(frozen=True)
class Bar:
    """One row of the timeline, as the page draws it. Times are milliseconds since the run began.

    Attributes:
        path: the step; of a planning, the step that opened its round, () for the first round.
        depth: 0 for the first round, 1 for a round that one of its steps opened, and so on.
        start_ms: None for a step that never began.
        critical: the run could not have ended sooner without this being faster.
        text: what stands beside the bar.
    """

    path: Path
    label: str
    agent: str
    depth: int
    start_ms: float | None
    duration_ms: float
    critical: bool
    text: str


def timeline(trace: RunTrace) -> dict[str, Any] | None:
    """Returns what the page draws of a run that is over: its bars, their critical path, its end; None: nothing."""
    if not trace.ended or not trace.steps or trace.plan_only:
        return None
    bars = timeline_bars(trace)
    ends_ms = [bar.start_ms + bar.duration_ms for bar in bars if bar.start_ms is not None]
    return {
        "bars": [{**asdict(bar), "path": list(bar.path)} for bar in bars],
        "end_ms": max(ends_ms, default=0.0),
        "summary": f"critical path {seconds(critical_path_ms(trace))} of {seconds(trace.duration_ms)}",
    }


def timeline_bars(trace: RunTrace) -> list[Bar]:
    """Returns each round's planning and its steps by number, with the rounds that steps opened below them."""
    return list(_round_bars(trace.root, trace, critical=True))


def _round_bars(round_: RoundTrace, trace: RunTrace, *, critical: bool) -> Iterator[Bar]:
    depth = len(round_.path)
    if round_.source == "conductor" and round_.duration_ms:
        start_ms, named = round_.started_ms or 0.0, f"{label(round_.path)} · plan" if round_.path else "plan"
        text = _text("", seconds(round_.duration_ms), critical)
        yield Bar(round_.path, named, "conductor", depth, start_ms, round_.duration_ms, critical, text)
    on_path = critical_steps(round_, trace) if critical else ()
    for step in round_.steps:
        duration_ms, on_it = _duration_ms(step, trace), step.index in on_path
        mark = "" if step.status == "completed" else step_status(step.status)
        took = "" if step.started_ms is None or step.status in ("reused", "written") else seconds(duration_ms)
        named, text = f"{label(step.path)} · {step.agent}", _text(mark, took, on_it)
        yield Bar(step.path, named, step.agent, depth, step.started_ms, duration_ms, on_it, text)
        if step.round is not None:
            yield from _round_bars(step.round, trace, critical=step.index in on_path)


def _text(mark: str, took: str, critical: bool) -> str:
    return " · ".join(filter(None, (mark, took, "critical path" if critical else "")))


def critical_steps(round_: RoundTrace, trace: RunTrace) -> tuple[int, ...]:
    """Returns the indices of a round's steps on its critical path, first to last. Reused steps take no time."""
    if round_.workflow is None or not round_.steps:
        return ()
    durations_ms = [_duration_ms(step, trace) for step in round_.steps]
    return tuple(index for index in critical_path(round_.workflow, durations_ms) if durations_ms[index] > 0)


def critical_path_ms(trace: RunTrace) -> float:
    """Returns the milliseconds of the critical path with planning: the shortest time this run could have taken."""
    return sum(bar.duration_ms for bar in timeline_bars(trace) if bar.critical and bar.depth == 0)


def _duration_ms(step: StepTrace, trace: RunTrace) -> float:
    if step.reused_from is not None or step.started_ms is None:
        return 0.0
    if step.duration_ms is not None:
        return step.duration_ms
    return max(trace.last_at_ms - step.started_ms, 0.0)
