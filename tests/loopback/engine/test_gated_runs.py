"""A run waits at its gates, from its record alone, and goes on when somebody decides."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from conductor_core.conductors import catalogue
from conductor_core.engine import host as host_module
from conductor_core.engine import recorder, runner
from conductor_core.engine.host import EngineHost
from conductor_core.engine.request import resume_of
from conductor_core.run.actor import Actor, Caller
from conductor_core.run.commands import Approve, Command, Deny, Edit
from conductor_core.run.events import ApprovalGranted
from conductor_core.run.values import Limits
from conductor_core.workflow.model import Workflow
from storage import Store, open_store
from tests.support.fakes import Reply, ScriptedConductor, ScriptedWorker, lists_of, pool_of, workflow_of
from tests.support.gated_runs import ADA, FAN, FAST, at_rest, gated, paths, said, until, waits_for

BOB = Caller(actor=Actor(kind="person", id="8", name="Bob"), door="api")
APPROVES = """
import sys
from conductor_core.cli.main import main
sys.exit(main(["approve", sys.argv[2], "--db", sys.argv[1], "--quiet", "--note", "from afar"]))
"""


def test_before_the_plan_is_carried_out(host: EngineHost, store: Store) -> None:
    run_id = gated(host, "plan")
    trace = store.read(run_id)
    assert (trace.status, waits_for(trace), paths(store, run_id, "step.started")) == ("waiting", ["the plan"], [])
    trace = at_rest(store, run_id, said(store, run_id, note="looks right"))
    assert (trace.status, trace.approvals[0].decided_by, trace.approvals[0].note) == ("completed", ADA, "looks right")
    kinds = [stored.event.kind for stored in store.events(run_id)]
    assert kinds.index("approval.granted") < kinds.index("step.started")


def test_step_by_step(host: EngineHost, store: Store) -> None:
    run_id = gated(host, "steps")
    asked = []
    while (trace := store.read(run_id)).status == "waiting":
        asked.append(waits_for(trace))
        trace = at_rest(store, run_id, said(store, run_id))
    assert (trace.status, asked) == ("completed", [["step 0"], ["step 1", "step 2"], ["step 3"]])
    shown = {approval.path: approval.messages for approval in trace.approvals}
    assert shown == {step.path: step.messages for step in trace.steps}, "what was approved is what was sent"


def test_one_is_approved_and_the_others_wait_on(host: EngineHost, store: Store) -> None:
    run_id = gated(host, "steps")
    at_rest(store, run_id, said(store, run_id))
    trace = at_rest(store, run_id, said(store, run_id, numbers=(3,)))
    assert (trace.status, waits_for(trace)) == ("waiting", ["step 1"])
    assert [step.status for step in trace.steps] == ["completed", "waiting", "completed", "waiting"]
    trace = at_rest(store, run_id, said(store, run_id, rest=True))
    assert (trace.status, len(trace.approvals)) == ("completed", 3), "the rest is not asked about any more"


def test_a_chosen_step_waits_while_others_run_on(host: EngineHost, store: Store) -> None:
    trace = store.read(gated(host, "step:1"))
    assert (trace.status, waits_for(trace), trace.steps[2].status) == ("waiting", ["step 1"], "completed")


@pytest.mark.parametrize(
    ("gate", "waits"),
    [
        ("usd:0.01", ["the plan"]),  # four answers of up to 100 tokens at 10 USD a million, and what is read
        ("usd:1", []),
        ("provider:openai", ["step 0"]),
        ("provider:127.0.0.1:9", ["step 0"]),
        ("provider:127.0.0.1", ["step 0"]),
    ],
)
def test_money_and_providers(
    host: EngineHost, store: Store, monkeypatch: pytest.MonkeyPatch, gate: str, waits: list[str]
) -> None:
    use(monkeypatch, *(ScriptedWorker(step.agent, params={"max_tokens": 1000}) for step in FAN.steps))
    trace = store.read(gated(host, gate))
    assert (waits_for(trace), trace.status) == (waits, "waiting" if waits else "completed")


def test_a_price_that_nobody_knows_is_asked_about(
    host: EngineHost, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, *(ScriptedWorker(step.agent, usd_per_mtok=None) for step in FAN.steps))
    trace = store.read(gated(host, "usd:100"))
    assert (waits_for(trace), trace.approvals[0].most_usd) == (["the plan"], None)


def test_one_decision_about_money_counts(host: EngineHost, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, *(ScriptedWorker(step.agent) for step in FAN.steps))
    run_id = gated(host, "usd:0.00001")
    assert at_rest(store, run_id, said(store, run_id)).status == "completed"


def test_a_fallback_at_the_provider_is_asked_about(
    host: EngineHost, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = [ScriptedWorker(step.agent, base_url="http://127.0.0.1:7/v1") for step in FAN.steps]
    elsewhere = ScriptedWorker("elsewhere", base_url="https://far.example/v1")
    workers[1] = ScriptedWorker("reasoner", base_url="http://127.0.0.1:7/v1", fallback="elsewhere")
    use(monkeypatch, *workers, elsewhere)
    assert waits_for(store.read(gated(host, "provider:far.example"))) == ["step 1"]


def use(monkeypatch: pytest.MonkeyPatch, *workers: ScriptedWorker, conductor: ScriptedConductor | None = None) -> None:
    pool = pool_of(*workers)
    monkeypatch.setattr(host_module, "open_pool", lambda ref, settings, *, seed: pool)
    monkeypatch.setattr(host_module, "reopen_pool", lambda info, settings, *, seed: pool)
    monkeypatch.setattr(catalogue, "open_conductor", lambda *_: conductor)


INNER = lists_of(workflow_of(("a", "Answer: {question}", ()), ("b", "Check it.", (0,))), ["a", "b"])


@pytest.mark.parametrize("gate", ["steps", "provider:openai", "plan"])
def test_rounds_below_wait_and_go_on(
    host: EngineHost, store: Store, monkeypatch: pytest.MonkeyPatch, gate: str
) -> None:
    workers = ScriptedWorker("a"), ScriptedWorker("b")
    conductor = ScriptedConductor(INNER)
    use(monkeypatch, *workers, conductor=conductor)
    plan = workflow_of(("a", "Begin: {question}", ()), ("conductor", "Do it.", (0,)), ("b", "End it.", (1,)))
    run_id = gated(host, gate, workflow=plan, conductor="scripted", limits=Limits(max_depth=1))
    asked = []
    while (trace := store.read(run_id)).status == "waiting":
        asked += waits_for(trace)
        at_rest(store, run_id, said(store, run_id))
    assert trace.status == "completed"
    assert (
        asked
        == {
            "steps": ["step 0", "step 1", "step 1.0", "step 1.1", "step 2"],
            "provider:openai": ["step 0", "the question to the Conductor of step 1", "step 1.0", "step 1.1", "step 2"],
            "plan": ["the plan"],
        }[gate]
    )
    assert [len(worker.calls) for worker in workers] == [2, 2]
    assert len(conductor.requests) == 1
    assert paths(store, run_id, "step.started") == [(0,), (1,), (1, 0), (1, 1), (2,)]


def test_the_conductor_is_a_provider_too(host: EngineHost, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    conductor = ScriptedConductor(lists_of(workflow_of(("a", "Answer: {question}", ())), ["a"]))
    use(monkeypatch, ScriptedWorker("a", provider="anthropic"), conductor=conductor)
    run_id = gated(host, "provider:openai", workflow=None, conductor="scripted")
    assert waits_for(store.read(run_id)) == ["the question to the Conductor"]
    assert conductor.requests == []
    assert at_rest(store, run_id, said(store, run_id)).status == "completed"


def test_denied(host: EngineHost, store: Store) -> None:
    run_id = gated(host, "step:1")
    trace = at_rest(store, run_id, said(store, run_id, BOB, Deny, note="too dear"))
    assert (trace.status, trace.ended_by, trace.error) == ("denied", BOB, "step 1 was denied by Bob, api: too dear")
    assert [step.status for step in trace.steps] == ["completed", "denied", "completed", "skipped"]
    assert [step.because for step in trace.steps] == [(), (), (), ((1,),)]
    assert trace.usage.total_tokens > 0


def test_an_edited_step_is_asked_about_again_and_sent_as_edited(host: EngineHost, store: Store) -> None:
    run_id = gated(host, "steps")
    at_rest(store, run_id, said(store, run_id))
    better = FAN.model_copy(
        update={"steps": (*FAN.steps[:2], workflow_of(("writer", "Count.", ())).steps[0], FAN.steps[3])}
    )
    edit = said(store, run_id, BOB, Edit, workflow=better)
    trace = at_rest(store, run_id, edit)
    assert [(each.number, each.path, each.status) for each in trace.approvals] == [
        (1, (0,), "granted"),
        (2, (1,), "open"),
        (3, (2,), "replaced"),
        (4, (2,), "open"),
    ]
    assert trace.root.edited_by == BOB
    late = said(store, run_id, numbers=(3,))
    trace = at_rest(store, run_id, late)
    assert "the plan was edited since" in trace.refused[-1].reason
    trace = at_rest(store, run_id, said(store, run_id, rest=True))
    assert (trace.status, trace.steps[2].agent, trace.steps[2].instruction) == ("completed", "writer", "Count.")


def test_what_has_run_is_not_in_the_highest_cost_of_an_edited_plan(host: EngineHost, store: Store) -> None:
    run_id = gated(host, "plan", "steps")
    at_rest(store, run_id, said(store, run_id))
    at_rest(store, run_id, said(store, run_id))
    better = FAN.model_copy(update={"steps": (*FAN.steps[:3], workflow_of(("writer", "Count.", ())).steps[0])})
    trace = at_rest(store, run_id, said(store, run_id, BOB, Edit, workflow=better))
    assert [step.status for step in trace.steps] == ["completed", "waiting", "waiting", "waiting"]
    first, *_, again = (each.most.output_tokens for each in trace.approvals if each.of == "plan")
    assert (again, first) == (3 * first // 4, first)


def test_an_edit_and_its_approval_are_one(host: EngineHost, store: Store) -> None:
    run_id = gated(host, "plan")
    shorter = workflow_of(("writer", "Say it: {question}", ()))
    edit = said(store, run_id, kind=Edit, workflow=shorter)
    trace = at_rest(store, run_id, said(store, run_id, after_edit=edit))
    assert (trace.status, [step.agent for step in trace.steps]) == ("completed", ["writer"])
    assert [approval.status for approval in trace.approvals] == ["replaced", "granted"]


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        (workflow_of(("nobody", "Do it.", ())), "nobody"),
        (workflow_of(), "no steps"),
        (workflow_of(*[("writer", "Say it.", ())] * 9), "9 steps"),
    ],
)
def test_a_refused_edit_changes_and_grants_nothing(
    host: EngineHost, store: Store, after: Workflow, reason: str
) -> None:
    run_id = gated(host, "plan")
    edit = said(store, run_id, kind=Edit, workflow=after)
    trace = at_rest(store, run_id, said(store, run_id, after_edit=edit))
    assert (trace.status, trace.root.workflow, len(trace.refused)) == ("waiting", FAN, 2)
    assert reason in trace.refused[0].reason
    assert trace.refused[1].reason == "the edit that it is for was refused"


def test_of_two_edits_of_one_plan_the_second_does_not_overwrite_the_first(host: EngineHost, store: Store) -> None:
    run_id = gated(host, "plan")
    ada, bob = (workflow_of((agent, "Say it: {question}", ())) for agent in ("writer", "planner"))
    at_rest(store, run_id, said(store, run_id, ADA, Edit, workflow=ada, edited=FAN))
    trace = at_rest(store, run_id, said(store, run_id, BOB, Edit, workflow=bob, edited=FAN))
    assert (trace.root.workflow, trace.root.edited_by) == (ada, ADA)
    assert trace.refused[-1].reason == "the plan was edited by somebody else meanwhile"
    trace = at_rest(store, run_id, said(store, run_id, BOB, Edit, workflow=bob, edited=ada))
    assert trace.root.workflow == bob


def test_several_people_look_and_one_decision_counts(host: EngineHost, store: Store) -> None:
    run_id = gated(host, "plan")
    numbers = [0, 0]

    def decide(place: int, by: Caller, kind: type[Command]) -> None:
        numbers[place] = said(store, run_id, by, kind, numbers=(1,))

    people = [
        threading.Thread(target=decide, args=(0, ADA, Approve)),
        threading.Thread(target=decide, args=(1, BOB, Deny)),
    ]
    for person in people:
        person.start()
    for person in people:
        person.join()
    trace = at_rest(store, run_id, max(numbers)) if len(set(numbers)) == 2 else store.read(run_id)
    assert trace.status in ("completed", "denied")
    assert sum(approval.status in ("granted", "denied") for approval in trace.approvals) == 1
    assert trace.last_command == max(numbers) or trace.ended


def test_the_clock_stands_while_a_run_waits(host: EngineHost, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    days = [0]
    pinned = SimpleNamespace(monotonic=lambda: 86_400.0 * days[0])
    for module in (host_module, runner, recorder):
        monkeypatch.setattr(module, "time", pinned)
    run_id = gated(host, "steps", limits=Limits(max_seconds=60))
    while (trace := store.read(run_id)).status == "waiting":
        host.wait(run_id, 20)  # the record says that it waits a moment before the clock stands
        days[0] += 1
        at_rest(store, run_id, said(store, run_id))
    assert (trace.status, days) == ("completed", [3]), trace.error
    assert trace.duration_ms == 0
    assert [(step.started_ms, step.duration_ms) for step in trace.steps] == [(0, 0)] * 4


def test_a_waiting_run_outlives_its_process_and_another_one_goes_on(url: str) -> None:
    store = open_store(url)
    host = EngineHost(store.log, FAST, store)
    run_id = gated(host, "plan")
    host.close()
    store.close()
    again = open_store(url)
    assert (again.mark_interrupted(), again.read(run_id).status) == ([], "waiting")
    done = subprocess.run([sys.executable, "-c", APPROVES, url, run_id], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    trace = again.read(run_id)
    assert (trace.status, trace.approvals[0].note) == ("completed", "from afar")
    assert [stored.event.kind for stored in again.events(run_id)].count("run.taken") == 1
    again.close()


def test_what_was_sent_while_nobody_heard_it_is_heard_at_the_next_start(url: str) -> None:
    store = open_store(url)
    host = EngineHost(store.log, FAST, store)
    run_id = gated(host, "plan")
    host.close()
    number = said(store, run_id)
    host = EngineHost(store.log, FAST, store, carries_on_all=True)
    host.carry_on_all()
    assert at_rest(store, run_id, number).status == "completed"
    host.close()
    store.close()


def test_of_two_that_go_on_one_does(url: str) -> None:
    stores = [open_store(url) for _ in range(3)]
    hosts = [EngineHost(each.log, FAST, each, carries_on_all=True) for each in stores]
    for _ in range(10):
        run_id = gated(hosts[0], "step:1")
        trace = at_rest(stores[0], run_id, said(stores[1], run_id))
        assert trace.status == "completed"
        kinds = [stored.event.kind for stored in stores[0].events(run_id)]
        assert (kinds.count("run.taken"), kinds.count("approval.granted"), kinds.count("step.started")) == (1, 1, 4)
    for host, store in zip(hosts, stores, strict=True):
        host.close()
        store.close()


def test_a_waiting_run_is_cancelled_at_once(host: EngineHost, store: Store) -> None:
    run_id = gated(host, "step:1")
    assert host.cancel(run_id, ADA)
    trace = store.read(run_id)
    assert (trace.status, trace.ended_by) == ("cancelled", ADA)
    assert (trace.duration_ms, trace.usage.total_tokens > 0) == (trace.last_at_ms, True)


def test_what_was_granted_before_an_interruption_need_not_be_granted_again(
    host: EngineHost, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = ScriptedWorker("a").then(Reply("done"), Reply("never", hang=True))
    use(monkeypatch, slow)
    plan = workflow_of(("a", "Begin: {question}", ()), ("a", "Go on.", (0,)), ("a", "End it.", (1,)))
    run_id = gated(host, "steps", workflow=plan)
    at_rest(store, run_id, said(store, run_id))
    said(store, run_id)
    until(store, run_id, lambda trace: trace.steps[1].status == "running")
    host.close()
    source = store.read(run_id).model_copy(update={"status": "interrupted"})
    again = EngineHost(store.log, FAST, store)
    resumed = again.start(resume_of(source, door="cli"))
    trace = again.wait(resumed, 30)
    assert ([step.status for step in trace.steps], waits_for(trace)) == (["reused", "completed", "waiting"], ["step 2"])
    granted = [stored.event for stored in store.events(resumed) if isinstance(stored.event, ApprovalGranted)]
    assert [(event.carried_from, event.caller) for event in granted] == [(run_id, ADA)]
    again.close()


def test_a_run_without_gates_asks_nobody(host: EngineHost, store: Store) -> None:
    trace = store.read(gated(host))
    assert (trace.status, trace.approvals, store.waiting()) == ("completed", [], [])


def test_what_waits_is_listed_the_longest_first(host: EngineHost, store: Store) -> None:
    first, second = gated(host, "steps"), gated(host, "plan")
    assert [trace.run_id for trace in store.waiting()] == [first, second]
    at_rest(store, first, said(store, first))
    assert [trace.run_id for trace in store.waiting()] == [second, first]
    assert [run.status for run in store.runs(status="waiting")] == ["waiting", "waiting"]


def test_a_hundred_runs_wait_for_a_day_and_hold_nothing(
    host: EngineHost, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(5):
        store.read(gated(host, "plan"))  # what is opened once is open now

    def held() -> tuple[int, int, int]:
        tasks = asyncio.run_coroutine_threadsafe(all_tasks(), host._loop).result()
        return threading.active_count(), len(os.listdir("/dev/fd")), tasks

    async def all_tasks() -> int:
        return len(asyncio.all_tasks()) - 1

    before = held()
    run_ids = [gated(host, "plan", limits=Limits(max_seconds=30)) for _ in range(100)]
    (threads, files, tasks), (threads_before, files_before, tasks_before) = held(), before
    # A pool of at most six threads, each with its own connection to the database, serves any number of runs.
    assert threads <= threads_before + 6
    assert files <= files_before + 18
    assert tasks <= tasks_before + 1, "one that looks whether anything came at the last moment"
    assert (host.active(), host._executions, any(store.log.writes(run_id) for run_id in run_ids)) == (set(), {}, False)
    a_day_later = SimpleNamespace(monotonic=lambda: time.monotonic() + 86_400)
    for module in (host_module, runner, recorder):
        monkeypatch.setattr(module, "time", a_day_later)
    trace = at_rest(store, run_ids[0], said(store, run_ids[0]))
    assert (trace.status, len(store.waiting())) == ("completed", 104), "its time limit did not run"
    assert (trace.duration_ms or 0.0) < 86_400_000


def test_a_list_says_for_what_a_run_waits(host: EngineHost, store: Store) -> None:
    run_id = gated(host, "step:1", "step:2")
    (listed,) = store.runs(status="waiting")
    assert (listed.run_id, listed.status) == (run_id, "waiting")
    assert listed.asked_for == "step 1 and 1 more, by the gate step:1"
    assert store.totals().statuses == {"waiting": 1}
    at_rest(store, run_id, said(store, run_id))
    (ended,) = store.runs()
    assert (ended.status, ended.asked_for) == ("completed", None)
    assert store.runs(status="waiting") == []
    assert store.totals().statuses == {"completed": 1}
