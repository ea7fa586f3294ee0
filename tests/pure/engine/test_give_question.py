"""A run may tell every step the task: then it stands before an instruction that does not name it."""

import pytest

from conductor_core.engine.estimates import preview
from conductor_core.settings import Settings
from conductor_core.workflow.validation import UNTOLD
from tests.support.fakes import ScriptedWorker, pool_of, quick_settings, run, workflow_of

PLAN = workflow_of(("a", "Find the numbers.", ()), ("b", "Answer {question}", (0,)), ("b", "Check it.", (0, 1)))
UNTOLD_PLAN = workflow_of(("a", "Find the numbers.", ()))


async def test_every_step_is_told_once() -> None:
    a, b = ScriptedWorker("a").then("1"), ScriptedWorker("b").then("2", "3")
    trace, _ = await run(a, b, workflow=PLAN, give_question=True)
    assert trace.give_question
    assert [step.messages[-1].content for step in trace.steps] == [
        "The task:\nthe task\n\nYour part:\nFind the numbers.",
        "Answer the task",
        "The task:\nthe task\n\nYour part:\nCheck it.",
    ]
    assert [message.content for message in trace.steps[2].messages[:4]] == [
        "Find the numbers.",
        "1",
        "Answer the task",
        "2",
    ]


async def test_what_a_step_is_told_is_its_identity() -> None:
    a = ScriptedWorker("a")
    first, _ = await run(a, workflow=UNTOLD_PLAN)
    told, _ = await run(a, workflow=UNTOLD_PLAN, give_question=True, reuse_from=first)
    assert (told.steps[0].status, len(a.calls)) == ("completed", 2)
    assert told.steps[0].identity != first.steps[0].identity
    again, _ = await run(a, workflow=UNTOLD_PLAN, give_question=True, reuse_from=told)
    assert (again.steps[0].status, len(a.calls)) == ("reused", 2)
    forecast = preview(told, UNTOLD_PLAN, pool_of(a).specs)
    assert [each.index for each in forecast.will_reuse] == [0], "the preview asks as the run would"


@pytest.mark.parametrize(("given", "warned"), [(False, [UNTOLD]), (True, [])])
async def test_the_warning_is_on_record_unless_every_step_is_told(given: bool, warned: list[str]) -> None:
    trace, _ = await run(ScriptedWorker("a"), workflow=UNTOLD_PLAN, give_question=given)
    assert [warning.code for warning in trace.root.warnings] == warned


def test_the_setting_is_off_by_default() -> None:
    assert not Settings().give_question
    assert not quick_settings().give_question
