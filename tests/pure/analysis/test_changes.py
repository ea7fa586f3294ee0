"""What a list calls a run: by who planned it, or by what was changed."""

import asyncio

import pytest

from conductor_core.analysis.concluded import name_of
from conductor_core.engine.estimates import edit_step
from conductor_core.run.request import TOUR_PURPOSE
from conductor_core.run.trace import RunTrace
from conductor_core.workflow.edits import add_step, remove_step
from conductor_core.workflow.model import Step, Workflow
from tests.support.fakes import ScriptedWorker, run, workflow_of

PLAN = workflow_of(("writer", "plan {question}", ()), ("coder", "solve", (0,)), ("coder", "check", (1,)))


def rerun(workflow: Workflow) -> RunTrace:
    async def both() -> RunTrace:
        workers = ScriptedWorker("writer"), ScriptedWorker("coder")
        first, _ = await run(*workers, workflow=PLAN)
        return (await run(*workers, workflow=workflow, reuse_from=first))[0]

    return asyncio.run(both())


@pytest.mark.parametrize(
    ("edited", "named"),
    [
        (PLAN, "again"),
        (edit_step(PLAN, 0, agent="coder"), "step 0: writer → coder"),
        (edit_step(PLAN, 2, access=(0, 1)), "step 2 also reads step 0"),
        (edit_step(PLAN, 2, access=()), "step 2 no longer reads step 1"),
        (edit_step(PLAN, 1, instruction="solve it"), "instruction of step 1 edited"),
        (
            edit_step(PLAN, 1, instruction="solve it", agent="writer"),
            "step 1: coder → writer, instruction edited",
        ),
        (add_step(PLAN, 3, Step(instruction="end", agent="coder")), "step 3 (coder) added"),
        (remove_step(PLAN, 2)[0], "step 2 (coder) removed"),
    ],
)
def test_a_rerun_is_named_by_its_change(edited: Workflow, named: str) -> None:
    assert name_of(rerun(edited)) == named


def test_a_run_that_resumes_another_is_named_by_what_was_missing() -> None:
    resumed = rerun(edit_step(PLAN, 1, instruction="solve it")).model_copy(update={"resumed": True})
    assert name_of(resumed) == "the 2 missing steps"


def test_a_first_run_is_named_by_who_wrote_its_plan() -> None:
    first = rerun(PLAN).model_copy(update={"parent_run_id": None})
    assert name_of(first) == "Plan by hand"
    assert name_of(first.model_copy(update={"purpose": TOUR_PURPOSE})) == "Plan of the tour"
