"""The timeline of a run: when each step ran, and which steps made the run as long as it was."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from conductor_core.run_facts import Path, label
from conductor_core.trace import RoundTrace, RunTrace, StepTrace
from conductor_core.workflow.topology import critical_path
from pages.components.look.statuses import step_status
from pages.components.look.words import seconds


@dataclass(frozen=True)
class Bar:
    """One row of the timeline. Times are milliseconds since the run began.

    Attributes:
        path: the step; of a planning, the step that opened its round, () for the first round.
        depth: 0 for the first round, 1 for a round that one of its steps opened, and so on.
        start_ms: None for a step that never began.
        critical: the run could not have ended sooner without this being faster.
        mark: a glyph and a word for a step that did not simply complete.
    """

    path: Path
    label: str
    agent: str
    depth: int
    start_ms: float | None
    duration_ms: float
    critical: bool
    mark: str = ""

    @property
    def text(self) -> str:
        """What stands beside the bar."""
        time = "" if self.start_ms is None or self.mark == step_status("reused") else seconds(self.duration_ms)
        parts = [self.mark, time, "critical path" if self.critical else ""]
        return " · ".join(part for part in parts if part)


def timeline(trace: RunTrace) -> dict[str, Any] | None:
    """What the page draws of a run that is over: its bars, their critical path, its end; None: nothing to draw."""
    if not trace.ended or not trace.steps or trace.plan_only:
        return None
    bars = timeline_bars(trace)
    ends_ms = [bar.start_ms + bar.duration_ms for bar in bars if bar.start_ms is not None]
    return {
        "bars": [
            {
                "path": list(bar.path),
                "label": bar.label,
                "agent": bar.agent,
                "depth": bar.depth,
                "start_ms": bar.start_ms,
                "duration_ms": bar.duration_ms,
                "critical": bar.critical,
                "text": bar.text,
            }
            for bar in bars
        ],
        "end_ms": max(ends_ms, default=0.0),
        "summary": f"critical path {seconds(critical_path_ms(trace))} of {seconds(trace.duration_ms)}",
    }


def timeline_bars(trace: RunTrace) -> list[Bar]:
    """Each round's planning and its steps by number; the rounds that steps opened stand below them."""
    return list(_round_bars(trace.root, trace, critical=True))


def _round_bars(round_: RoundTrace, trace: RunTrace, *, critical: bool) -> Iterator[Bar]:
    depth = len(round_.path)
    if round_.source == "conductor" and round_.duration_ms:
        start_ms, named = round_.started_ms or 0.0, f"{label(round_.path)} · plan" if round_.path else "plan"
        yield Bar(round_.path, named, "conductor", depth, start_ms, round_.duration_ms, critical)
    on_path = critical_steps(round_, trace) if critical else ()
    for step in round_.steps:
        yield Bar(
            path=step.path,
            label=f"{label(step.path)} · {step.agent}",
            agent=step.agent,
            depth=depth,
            start_ms=step.started_ms,
            duration_ms=_duration_ms(step, trace),
            critical=step.index in on_path,
            mark="" if step.status == "completed" else step_status(step.status),
        )
        if step.round is not None:
            yield from _round_bars(step.round, trace, critical=step.index in on_path)


def critical_steps(round_: RoundTrace, trace: RunTrace) -> tuple[int, ...]:
    """Indices of a round's steps on its critical path, first to last; reused steps take no time."""
    if round_.workflow is None or not round_.steps:
        return ()
    durations_ms = [_duration_ms(step, trace) for step in round_.steps]
    return tuple(index for index in critical_path(round_.workflow, durations_ms) if durations_ms[index] > 0)


def critical_path_ms(trace: RunTrace) -> float:
    """Milliseconds of the critical path, planning included: the shortest time this run could have taken."""
    return sum(bar.duration_ms for bar in timeline_bars(trace) if bar.critical and bar.depth == 0)


def _duration_ms(step: StepTrace, trace: RunTrace) -> float:
    if step.reused_from is not None or step.started_ms is None:
        return 0.0
    if step.duration_ms is not None:
        return step.duration_ms
    return max(trace.last_at_ms - step.started_ms, 0.0)
