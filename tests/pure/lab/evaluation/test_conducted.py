"""The Conductor as an orchestrator, and what is taken away from its workflows."""

import asyncio

import pytest

from conductor_core.chat.messages import PlanRequest, TextDelta
from conductor_core.engine.runner import Engine
from conductor_core.lab.evaluation.orchestrators import (
    ABLATIONS,
    UNIFORM,
    GivenTask,
    Remembered,
    ablated,
    conducted,
)
from conductor_core.lab.evaluation.runner import outcome
from conductor_core.run.values import Limits
from conductor_core.workflow.model import CONDUCTOR_AGENT
from tests.support.evaluations import task
from tests.support.fakes import (
    MemorySink,
    ScriptedConductor,
    ScriptedWorker,
    lists_of,
    pool_of,
    quick_settings,
    workflow_of,
)

AGENTS = ("alpha", "beta")
PLAN = workflow_of(
    ("alpha", "Work on: {question}", ()), ("beta", "Start anew.", ()), ("alpha", "Check.", (0,)), ("beta", "End.", (1,))
)


def asked(excluded: tuple[str, ...] = ()) -> GivenTask:
    return GivenTask(task(7), pool_of(*map(ScriptedWorker, AGENTS)), Limits(), 0, excluded)


def engine() -> Engine:
    sink = MemorySink()
    return Engine(sink, quick_settings(), sink.read)


async def test_without_recursion_the_conductor_is_not_offered_itself() -> None:
    conductor = ScriptedConductor(lists_of(PLAN, AGENTS))
    attempt = await conducted("conductor", conductor).attempt(asked(), engine().run)
    assert attempt.trace.root.workflow == PLAN
    assert [request.allow_recursion for request in conductor.requests] == [False]


async def test_rounds_and_stops_of_a_recursion_are_counted() -> None:
    outer = workflow_of(("alpha", "Work on: {question}", ()), (CONDUCTOR_AGENT, "Go on.", (0,)))
    inner = workflow_of(("beta", "Again: {question}", ()), ("alpha", "Both.", "all"))
    went_on = ScriptedConductor(*(lists_of(each, (*AGENTS, CONDUCTOR_AGENT)) for each in (outer, inner)))
    attempt = await conducted("recursion", went_on, depth=1).attempt(asked(), engine().run)
    row = outcome("recursion", asked(), attempt, 1.0, subset=False)
    assert (row.rounds, row.stops, row.steps) == (2, 0, 3)
    stopped = ScriptedConductor(
        lists_of(outer, (*AGENTS, CONDUCTOR_AGENT)), "Done.\nmodel_id = []\nsubtasks = []\naccess_list = []"
    )
    attempt = await conducted("recursion", stopped, depth=1).attempt(asked(), engine().run)
    row = outcome("recursion", asked(), attempt, 1.0, subset=False)
    assert (row.rounds, row.stops, row.steps) == (1, 1, 1)
    assert row.tokens == 15
    assert row.conductor_tokens == attempt.trace.usage.total_tokens - 15


@pytest.mark.parametrize("name", list(ABLATIONS))
async def test_an_ablation_is_an_edit_that_the_trace_shows(name: str) -> None:
    conductor = ScriptedConductor(lists_of(PLAN, AGENTS))
    attempt = await ablated(name, conductor, ABLATIONS[name]).attempt(asked(), engine().run)
    trace, (planned,) = attempt.trace, attempt.also
    assert trace.parent_run_id == planned.run_id
    assert trace.root.before_edit == PLAN
    assert trace.purpose == f"evaluate: {name}"
    assert trace.root.edited_by == trace.caller
    steps = trace.steps
    match name:
        case "uniform-subtask":
            assert [step.instruction for step in steps] == [UNIFORM] * 4
            assert [step.access_list for step in steps] == [(), (), (0,), (1,)]
        case "access-all":
            assert [step.reads for step in steps] == [(), (0,), (0, 1), (0, 1, 2)]
        case "access-none":
            assert [step.reads for step in steps] == [(), (), (), ()]
    assert [step.agent for step in steps] == [step.agent for step in PLAN.steps]
    row = outcome(name, asked(), attempt, 1.0, subset=False)
    assert (row.steps, row.tokens) == (4, 60)
    assert row.conductor_tokens == planned.usage.total_tokens


async def test_a_plan_is_written_once_for_all_that_edit_it() -> None:
    conductor = ScriptedConductor(lists_of(PLAN, AGENTS))
    remembered, run = Remembered(conductor), engine().run
    orchestrators = [ablated(name, remembered, edit) for name, edit in ABLATIONS.items()]
    attempts = await asyncio.gather(*(each.attempt(asked(), run) for each in orchestrators))
    assert len(conductor.requests) == 1
    assert [attempt.trace.root.before_edit for attempt in attempts] == [PLAN] * len(ABLATIONS)


async def test_without_a_plan_there_is_nothing_to_edit() -> None:
    conductor = ScriptedConductor("I would rather not.")
    attempt = await ablated("access-all", conductor, ABLATIONS["access-all"]).attempt(asked(), engine().run)
    row = outcome("access-all", asked(), attempt, 0.0, subset=False)
    assert row.fault is not None
    assert row.fault.startswith("PlanRejected: ")
    assert row.rejected_plans == 2


async def test_a_plan_that_names_an_absent_worker_is_counted() -> None:
    conductor = ScriptedConductor(lists_of(PLAN, AGENTS), lists_of(workflow_of(("alpha", "Do it.", ())), AGENTS))
    asking = asked(excluded=("beta",))
    attempt = await conducted("conductor", conductor).attempt(asking, engine().run)
    row = outcome("conductor", asking, attempt, 1.0, subset=True)
    assert (row.rejected_plans, row.absent_named, row.present) == (1, 1, ("alpha",))


async def test_a_completion_is_written_once_and_a_broken_one_again() -> None:
    within = ScriptedConductor(RuntimeError("broke"), "the plan")
    conductor = Remembered(within)
    request = PlanRequest(task="the task", agents=pool_of(ScriptedWorker("alpha")).specs)
    with pytest.raises(RuntimeError):
        [_ async for _ in conductor.write(request)]

    async def text() -> str:
        return "".join([item.text async for item in conductor.write(request) if isinstance(item, TextDelta)])

    assert list(await asyncio.gather(text(), text(), text())) == ["the plan"] * 3
    assert len(within.requests) == 2
