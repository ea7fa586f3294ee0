from conductor_core.engine.request import limits_from, rerun_of, resume_of
from conductor_core.run.request import Overrides, RunRequest, StepSeed
from conductor_core.run.values import Limits
from conductor_core.settings import Settings
from tests.support.fakes import ScriptedWorker, run, workflow_of

PLAN = workflow_of(("a", "x", ()))


def test_budgets_come_from_the_settings() -> None:
    settings = Settings(max_steps=3, max_tokens=10, max_usd=0.5, max_seconds=9, max_depth=2)
    assert limits_from(settings) == Limits(max_steps=3, max_tokens=10, max_usd=0.5, max_seconds=9, max_depth=2)


def test_each_request_is_a_run_of_its_own() -> None:
    assert RunRequest(task="t").run_id != RunRequest(task="t").run_id


async def test_a_rerun_keeps_what_it_does_not_change() -> None:
    source, _ = await run(ScriptedWorker("a"), workflow=PLAN, seed=4, limits=Limits(max_tokens=99))
    edited = workflow_of(("a", "y", ()))
    request = rerun_of(source, edited, door="page")
    assert (request.task, request.seed, request.limits) == (source.task, 4, source.limits)
    assert (request.workflow, request.parent_run_id, request.resumed) == (edited, source.run_id, False)
    assert (request.door, request.run_id != source.run_id) == ("page", True)
    assert rerun_of(source, door="page").workflow == PLAN


async def test_what_holds_for_a_step_moves_with_it() -> None:
    plan = workflow_of(("a", "x", ()), ("a", "y", ()))
    seeds = Overrides(seeds=(StepSeed(step=1, seed=7),))
    source, _ = await run(ScriptedWorker("a"), workflow=plan, overrides=seeds)
    request = rerun_of(source, workflow_of(("a", "y", ())), door="page", origins=(1,))
    assert request.overrides.seeds == (StepSeed(step=0, seed=7),)


async def test_a_resume_is_a_rerun_of_the_unchanged_plan() -> None:
    source, _ = await run(ScriptedWorker("a"), workflow=PLAN, plan_only=True)
    request = resume_of(source, door="cli")
    assert (request.workflow, request.parent_run_id, request.resumed) == (PLAN, source.run_id, True)
    assert request.plan_only


async def test_a_resume_goes_on_with_the_runs_own_settings() -> None:
    source, _ = await run(ScriptedWorker("a"), workflow=PLAN, give_question=True, on_incomplete="stop")
    request = resume_of(source, door="cli")
    assert (request.give_question, request.on_incomplete) == (True, "stop")
