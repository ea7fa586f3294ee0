"""Runs that wait at gates, and stand on other runs or hear a command twice."""

import asyncio

import pytest

from conductor_core.engine import host as opened
from conductor_core.engine.host import EngineHost
from conductor_core.engine.request import resume_of
from conductor_core.engine.runner import Engine
from conductor_core.run.commands import Approve, Edit, SentCommand
from conductor_core.run.events import ApprovalGranted, RunInterrupted
from conductor_core.run.request import RunRequest, read_gate
from conductor_core.run.share import SharedRun, as_imported
from conductor_core.workflow.model import Workflow
from storage import Store
from tests.support.fakes import MemorySink, Reply, ScriptedWorker, pool_of, quick_settings, workflow_of
from tests.support.gated_runs import ADA, FAN, FAST, TASK, at_rest, gated, said, until, waits_for


def with_second(instruction: str) -> Workflow:
    return FAN.model_copy(
        update={"steps": (FAN.steps[0], *workflow_of(("reasoner", instruction, (0,))).steps, *FAN.steps[2:])}
    )


def test_an_edit_asks_about_no_step_whose_answer_is_reused(host: EngineHost, store: Store) -> None:
    parent = host.wait(host.start(RunRequest(task=TASK, workflow=FAN)), 30)
    run_id = gated(host, "steps", workflow=with_second("Solve it otherwise."), parent_run_id=parent.run_id)
    assert waits_for(store.read(run_id)) == ["step 1"]
    trace = at_rest(store, run_id, said(store, run_id, kind=Edit, workflow=with_second("Solve it twice.")))
    assert [step.status for step in trace.steps] == ["reused", "waiting", "reused", "waiting"]
    assert waits_for(trace) == ["step 1"]


def test_who_granted_all_the_rest_is_not_asked_again_after_an_interruption(
    host: EngineHost, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pool_of(ScriptedWorker("a").then(Reply("done"), Reply("never", hang=True)))
    for name in ("open_pool", "reopen_pool"):
        monkeypatch.setattr(opened, name, lambda ref, settings, *, seed: pool)
    plan = workflow_of(("a", "Begin: {question}", ()), ("a", "Go on.", (0,)), ("a", "End it.", (1,)))
    run_id = gated(host, "steps", workflow=plan)
    said(store, run_id, rest=True)
    until(store, run_id, lambda trace: trace.steps[1].status == "running")
    host.close()
    source = store.read(run_id).model_copy(update={"status": "interrupted"})
    again = EngineHost(store.log, FAST, store)
    resumed = again.start(resume_of(source, door="cli"))
    trace = again.wait(resumed, 30)
    again.close()
    assert [step.status for step in trace.steps] == ["reused", "completed", "completed"]
    granted = [stored.event for stored in store.events(resumed) if isinstance(stored.event, ApprovalGranted)]
    assert [(event.carried_from, event.caller, event.rest) for event in granted] == [(run_id, ADA, True)]


def test_what_a_file_says_was_granted_grants_nothing(host: EngineHost, store: Store) -> None:
    source_id = gated(host, "steps")
    said(store, source_id, rest=True)
    until(store, source_id, lambda trace: trace.ended)
    events = [stored.event for stored in store.events(source_id)]
    granted = next(at for at, event in enumerate(events) if isinstance(event, ApprovalGranted))
    ended = RunInterrupted(run_id=source_id, at_ms=events[granted].at_ms)
    said_of = {"run_id": source_id, "written_by": "x", "written_at_utc": events[0].at_utc, "task": TASK}
    shared = SharedRun.model_validate(said_of | {"simulated": True, "record": "", "view": ""})
    imported = as_imported([*events[: granted + 1], ended], shared, ADA)
    store.log.append_and_wait(*imported)
    resumed = host.start(resume_of(store.read(imported[0].run_id), door="cli"))
    trace = host.wait(resumed, 30)
    assert (trace.status, trace.imported) == ("waiting", None)
    assert {approval.status for approval in trace.approvals} == {"open"}


async def test_a_command_that_is_told_twice_is_answered_once() -> None:
    plan, sink = workflow_of(("a", "one", ()), ("b", "two", ())), MemorySink()
    run = RunRequest(task=TASK, workflow=plan, gates=(read_gate("step:1"),))
    pool = pool_of(ScriptedWorker("a").then(Reply("late", wait_s=0.05)), ScriptedWorker("b"))
    execution = await Engine(sink, quick_settings()).create(run, None, pool)
    going = asyncio.create_task(execution.run())
    while not execution.trace.asked_for:  # noqa: ASYNC110 - the run itself has no event to wait for
        await asyncio.sleep(0)
    sent = SentCommand(1, Approve(run_id=run.run_id, actor=ADA.actor, door=ADA.door))
    execution.apply_command(sent)
    execution.apply_command(sent)
    trace = await going
    assert (trace.status, trace.refused) == ("completed", [])
    assert sink.kinds().count("approval.granted") == 1
