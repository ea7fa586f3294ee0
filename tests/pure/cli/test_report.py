"""The record of a run as text."""

from conductor_core import events as ev
from conductor_core.cli.report import run_lines
from conductor_core.events import SharedOutput
from conductor_core.trace import fold
from conductor_core.workflow.model import CONDUCTOR_AGENT, Step, Workflow
from tests.support.run_events import created, planned, step_completed, step_started


def test_a_round_below_is_indented_below_its_step() -> None:
    recursive = Workflow(steps=(Step(instruction="Begin.", agent=CONDUCTOR_AGENT),))
    inner = Workflow(steps=(Step(instruction="Deeper.", agent="checker"),))
    trace = fold(
        [
            created("r1"),
            *planned("r1", recursive),
            step_started("r1", 0, 30).model_copy(update={"messages": ()}),
            ev.RecursionEntered(run_id="r1", path=(0,), depth=1),
            ev.PlanCompleted(run_id="r1", round=(0,), source="conductor", raw="a\nb", workflow=inner, topology="chain"),
            step_started("r1", 0, 40).model_copy(update={"path": (0, 0)}),
            step_completed("r1", 0, "deep", 50).model_copy(update={"path": (0, 0)}),
            ev.StepFailed(run_id="r1", path=(0,), error_code="X", error="why", attempts=1),
        ]
    )
    lines = "\n".join(run_lines(trace)).split("\n")
    begin, end = lines.index("  saw: no earlier output"), lines.index("  failed (X): why")
    below = lines[begin + 2 : end]
    assert "    step 0.0 · checker (simulated) · completed" in "\n".join(below)
    assert all(line == "" or line.startswith("    ") for line in below)
    assert "        | b" in below


def test_what_was_withheld_and_what_was_not_there_yet_are_told_apart() -> None:
    kept = SharedOutput(path=(0,), agent="planner", sha256="ab" * 32, characters=7, tokens=2)
    absent = SharedOutput(path=(1,), agent="scientist", sha256="", characters=0, tokens=0)
    begun = step_started("r1", 1, 30)

    def said(*withheld: SharedOutput) -> list[str]:
        trace = fold([created("r1"), *planned("r1"), begun.model_copy(update={"withheld": withheld})])
        return [line.strip() for line in run_lines(trace) if "was not" in line]

    assert said(kept, absent) == [
        "was not shown: step 0 of planner (7 characters)",
        "was not there yet when it started: step 1 of scientist",
    ]
    assert said(absent) == ["was not there yet when it started: step 1 of scientist"]
    assert said() == ["was not shown: no earlier output"]
