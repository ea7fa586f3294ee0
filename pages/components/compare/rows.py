"""The table of three and more runs, each against the first, as words. Pure: the page and the shared file draw it."""

from collections.abc import Sequence
from dataclasses import dataclass

from conductor_core.analysis.compare import RunsCompared, compare_runs, letter, plan_change_count
from conductor_core.analysis.concluded import asked, concluded
from conductor_core.analysis.conclusion import Likeness, likeness
from conductor_core.run.costs import cost_so_far
from conductor_core.run.trace import RunTrace
from pages.components.style.formats import plural, run_status, seconds

HEADS = ("Status", "Steps", "Plan", "Parts at", "Tokens", "Cost", "Time")


@dataclass(frozen=True)
class RunRow:
    """A run of the table.

    Attributes:
        said: the conclusion of its answer. mark: whether that is the first run's answer; empty for the first.
    """

    name: str
    run_id: str
    task: str
    said: str
    mark: str
    status: str
    status_words: str
    simulated: bool
    steps: str
    plan: str
    parts: str
    tokens: str
    cost: str
    time: str


def run_rows(traces: Sequence[RunTrace], compared: Sequence[RunsCompared] | None = None) -> list[RunRow]:
    """Returns a row for each run. ``compared``: each after the first with the first; None: compares them."""
    against = [compare_runs(traces[0], trace) for trace in traces[1:]] if compared is None else compared
    return [_row(place, trace, against[place - 1] if place else None) for place, trace in enumerate(traces)]


def _row(place: int, trace: RunTrace, compared: RunsCompared | None) -> RunRow:
    first = None if compared is None else compared.first_difference
    said = concluded(trace)
    return RunRow(
        name=letter(place),
        run_id=trace.run_id,
        task=trace.task,
        said="no answer" if said is None else said.text or "empty",
        mark="" if compared is None else _MARKS[_likeness(compared)],
        status=trace.status,
        status_words=run_status(trace.status),
        simulated=trace.simulated,
        steps=str(len(trace.steps)),
        plan="" if compared is None else plural(plan_change_count(compared), "change"),
        parts="" if compared is None else "nowhere" if first is None else f"step {first.label}",
        tokens=f"{trace.usage.total_tokens:,}",
        cost=str(cost_so_far(trace)),
        time=seconds(trace.duration_ms),
    )


_MARKS: dict[Likeness, str] = {
    "same": "= same answer",
    "same value": "= same value",
    "differ in wording": "≈ differ in wording",
    "differ": "≠ other answer",
}


def _likeness(compared: RunsCompared) -> Likeness:
    a, b = compared.a.answer, compared.b.answer
    if a is None or b is None:
        return "same" if a == b else "differ"
    return likeness(a, b, asked(compared.b))
