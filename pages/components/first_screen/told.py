"""The story as data: what two recorded runs show, computed from their events. Nothing of it is typed in. Pure.

The runs are those that come with the program: one whose answer is wrong because a step did not read an output, and the
same run after that step's access list was changed.
"""

import json
from functools import cache
from typing import Any

from conductor_core.analysis.conclusion import conclude
from conductor_core.engine.models import grade
from conductor_core.run.share import recorded_runs
from conductor_core.run.trace import RunTrace, StepTrace, fold
from pages.components.live_workflow.messages import LiveView
from pages.components.live_workflow.shared_page import recording
from pages.components.style.formats import plural
from storage import StoredEvent


@cache
def story() -> dict[str, Any]:
    """Returns what the component plays and says.

    ``step`` is the step whose access list changed, ``before`` and ``after`` are its lists, ``gained`` is what only the
    later one has. ``layout`` is that of the later plan, ``values`` has for each run the value of each step's output,
    ``answers`` what each run's answer comes to and whether it is right.
    """
    recorded = recorded_runs()[:2]
    first, second = (fold(events) for events in recorded)
    pairs = zip(first.steps, second.steps, strict=True)
    (before, after) = next(pair for pair in pairs if pair[0].reads != pair[1].reads)
    ran = sum(step.status == "completed" for step in second.steps)
    return {
        "run_ids": [first.run_id, second.run_id],
        "task": first.task,
        "simulated": first.simulated and second.simulated,
        "agents": [worker.name for worker in first.pool.workers],
        "steps": [{"agent": step.agent, "instruction": step.instruction} for step in second.steps],
        "step": after.index,
        "before": list(before.reads),
        "after": list(after.reads),
        "gained": [index for index in after.reads if index not in before.reads],
        "layout": LiveView(second, 0).snapshot()["layout"],
        "values": [[_value(trace, step.output) for step in trace.steps] for trace in (first, second)],
        "answers": [{"text": _value(trace, trace.answer or ""), "right": _right(trace)} for trace in (first, second)],
        "why": _why(first, before),
        "rerun": f"{plural(ran, 'step')} ran again, {len(second.steps) - ran} were reused.",
        "recordings": [recording([StoredEvent(at, event) for at, event in enumerate(run, 1)]) for run in recorded],
    }


@cache
def story_json() -> str:
    return json.dumps(story(), ensure_ascii=False, separators=(",", ":"))


def _value(trace: RunTrace, text: str) -> str | None:
    """Returns the value that an output comes to; None: it comes to none."""
    found = conclude(text, trace.task)
    return found.text if found is not None and found.kind == "value" else None


def _right(trace: RunTrace) -> bool:
    return grade(trace.task, trace.answer or "")


def _why(trace: RunTrace, step: StepTrace) -> str:
    """Says what the step had read when it let a wrong answer pass."""
    wrong = all(not grade(trace.task, trace.steps[index].output) for index in step.reads)
    read = " and ".join(f"step {index}" for index in step.reads)
    return f"Step {step.index} read only {read}{', which was wrong' if wrong else ''}."
