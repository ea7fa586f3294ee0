"""The engine on a thread of its own, as pages and the command line use it."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conductor_core.chat.messages import ConductorInfo
from conductor_core.conductors import catalogue
from conductor_core.engine import host as host_module
from conductor_core.engine.host import EngineHost
from conductor_core.engine.request import rerun_of
from conductor_core.errors import BadInput, PoolInvalid, StoreError, StoreFull, UnknownConductor, UnknownRun
from conductor_core.rehearsal import rehearsal_specs
from conductor_core.run.actor import local_caller
from conductor_core.run.events import Event
from conductor_core.run.request import RunRequest
from conductor_core.settings import Settings
from conductor_core.workflow.validation import WorkflowInvalid
from tests.support.eventually import eventually
from tests.support.fakes import MemorySink, Reply, ScriptedConductor, ScriptedWorker, lists_of, pool_of, workflow_of

TASK = "What is the chemical symbol of tungsten?"


@pytest.fixture
def sink() -> MemorySink:
    return MemorySink()


@pytest.fixture
def host(sink: MemorySink) -> Iterator[EngineHost]:
    host = EngineHost(sink, Settings(), sink)
    yield host
    host.close()


def agent() -> str:
    return rehearsal_specs()[0].name


PLAN = workflow_of((agent(), "Answer: {question}", ()), (agent(), "Check it: {question}", (0,)))


def use_pool(monkeypatch: pytest.MonkeyPatch, *workers: ScriptedWorker) -> None:
    monkeypatch.setattr(host_module, "open_pool", lambda ref, settings, *, seed: pool_of(*workers, name=ref, seed=seed))


def test_a_run_begins_when_start_returns_and_wait_gives_its_trace(host: EngineHost, sink: MemorySink) -> None:
    run_id = host.start(RunRequest(task=TASK, workflow=PLAN))
    assert sink.events[0].kind == "run.created"
    assert sink.events[0].run_id == run_id
    trace = host.wait(run_id, 10)
    assert (trace.run_id, trace.status, trace.simulated) == (run_id, "completed", True)
    assert host.active() == set()
    assert host.error(run_id) is None


def test_any_number_of_runs_go_on_at_once(host: EngineHost) -> None:
    ids = [host.start(RunRequest(task=f"{TASK} ({n})", workflow=PLAN)) for n in range(30)]
    assert {host.wait(run_id, 10).status for run_id in ids} == {"completed"}
    assert len(set(ids)) == 30


def test_a_run_can_be_started_from_many_threads(host: EngineHost) -> None:
    statuses: list[str] = []

    def one() -> None:
        run_id = host.start(RunRequest(task=TASK, workflow=PLAN))
        statuses.append(host.wait(run_id, 10).status)

    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert statuses == ["completed"] * 8


def test_cancelling_from_another_thread(host: EngineHost, sink: MemorySink, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = ScriptedWorker("a", lambda _: Reply(text="half", hang=True))
    use_pool(monkeypatch, worker)
    run_id = host.start(RunRequest(task=TASK, workflow=workflow_of(("a", "x", ()))))
    assert host.active() == {run_id}
    assert host.cancel(run_id, local_caller("page"))
    trace = host.wait(run_id, 10)
    assert (trace.status, trace.ended_by) == ("cancelled", local_caller("page"))
    assert sink.kinds()[-1] == "run.cancelled"
    assert not host.cancel(run_id, local_caller("page"))
    assert not host.cancel("no such run", local_caller("page"))


def test_waiting_has_a_time_limit(host: EngineHost, monkeypatch: pytest.MonkeyPatch) -> None:
    use_pool(monkeypatch, ScriptedWorker("a", lambda _: Reply(hang=True)))
    run_id = host.start(RunRequest(task=TASK, workflow=workflow_of(("a", "x", ()))))
    with pytest.raises(TimeoutError):
        host.wait(run_id, 0.01)
    assert host.error(run_id) is None


def test_closing_cancels_what_runs_and_releases_the_workers(sink: MemorySink, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = ScriptedWorker("a", lambda _: Reply(text="half", hang=True))
    use_pool(monkeypatch, worker)
    before = set(threading.enumerate())
    host = EngineHost(sink, Settings(), sink)
    host.start(RunRequest(task=TASK, workflow=workflow_of(("a", "x", ()))))
    host.close()
    assert sink.kinds()[-1] == "run.cancelled"
    assert worker.released
    host.close()
    with pytest.raises(RuntimeError, match="closed"):
        host.start(RunRequest(task=TASK, workflow=PLAN))
    assert set(threading.enumerate()) <= before


def test_a_run_that_is_being_started_while_the_host_closes_gets_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = MemorySink(delay_s=0.1)
    use_pool(monkeypatch, ScriptedWorker("a", lambda _: Reply(hang=True)))
    host = EngineHost(sink, Settings(), sink)
    request = RunRequest(task=TASK, workflow=workflow_of(("a", "x", ())))
    starting = threading.Thread(target=host.start, args=(request,))
    starting.start()
    while not sink.events:
        time.sleep(0.001)
    host.close()
    starting.join(10)
    assert (sink.kinds()[0], sink.kinds()[-1]) == ("run.created", "run.cancelled")


class BusyLoop:
    """Keeps the loop of a host from doing anything until it is left."""

    def __init__(self, host: EngineHost) -> None:
        self._loop, self._busy, self._go_on = host._loop, threading.Event(), threading.Event()

    def __enter__(self) -> None:
        self._loop.call_soon_threadsafe(self._wait)
        assert self._busy.wait(10)

    def __exit__(self, *_: object) -> None:
        self._go_on.set()

    def _wait(self) -> None:
        self._busy.set()
        self._go_on.wait(10)


def test_a_busy_loop_is_not_waited_for_to_begin_a_run(host: EngineHost, sink: MemorySink) -> None:
    with BusyLoop(host):
        ids = [host.start(RunRequest(task=TASK, workflow=PLAN)) for _ in range(3)]
        assert [event.run_id for event in sink.events] == ids
        assert sink.kinds() == ["run.created"] * 3
        assert host.active() == set(ids)
    assert {host.wait(run_id, 10).status for run_id in ids} == {"completed"}


def test_a_run_that_is_cancelled_before_its_first_turn_gets_its_end(host: EngineHost, sink: MemorySink) -> None:
    with BusyLoop(host):
        run_id = host.start(RunRequest(task=TASK, workflow=PLAN))
        assert host.cancel(run_id, local_caller("page"))
    assert (host.wait(run_id, 10).status, host.wait(run_id, 10).ended_by) == ("cancelled", local_caller("page"))
    assert (sink.kinds()[0], sink.kinds()[-1]) == ("run.created", "run.cancelled")


def test_a_host_that_is_closed_before_a_run_has_its_first_turn_writes_its_end(sink: MemorySink) -> None:
    host = EngineHost(sink, Settings(), sink)
    with BusyLoop(host):
        host.start(RunRequest(task=TASK, workflow=PLAN))
        closing = threading.Thread(target=host.close)
        closing.start()
    closing.join(10)
    assert (sink.kinds()[0], sink.kinds()[-1]) == ("run.created", "run.cancelled")


def test_a_caller_who_is_interrupted_while_its_run_is_written_leaves_no_run_without_an_end() -> None:
    class Interrupted(MemorySink):
        def append_and_wait(self, *events: Event) -> None:
            super().append_and_wait(*events)
            raise KeyboardInterrupt

    sink = Interrupted()
    host = EngineHost(sink, Settings(), sink)
    with pytest.raises(KeyboardInterrupt):
        host.start(RunRequest(task=TASK, workflow=PLAN))
    host.close()
    assert sink.kinds()[-1] in ("run.cancelled", "run.completed")


def test_a_run_whose_first_event_cannot_be_written_is_none(host: EngineHost, sink: MemorySink) -> None:
    sink.error = StoreFull("the disk is full")
    with pytest.raises(StoreFull):
        host.start(RunRequest(task=TASK, workflow=PLAN))
    assert (sink.events, host.active()) == ([], set())


def test_bad_input_makes_no_run(host: EngineHost, sink: MemorySink) -> None:
    with pytest.raises(WorkflowInvalid):
        host.start(RunRequest(task=TASK, workflow=workflow_of(("nobody", "x", ()))))
    with pytest.raises(PoolInvalid):
        host.start(RunRequest(task=TASK, workflow=PLAN, pool="no-such-file.toml"))
    with pytest.raises(BadInput):
        host.start(RunRequest(task=TASK))
    with pytest.raises(BadInput):
        host.start(RunRequest(task=TASK, workflow=PLAN, excluded=("nobody",)))
    with pytest.raises(UnknownConductor):
        host.start(RunRequest(task=TASK, conductor="./no/such/folder"))
    assert (sink.events, host.active()) == ([], set())


def test_a_run_of_another_process_is_not_known(host: EngineHost) -> None:
    with pytest.raises(UnknownRun):
        host.wait("another")
    with pytest.raises(UnknownRun):
        host.error("another")


def test_a_log_that_fails_is_told_to_whoever_waits(
    host: EngineHost, sink: MemorySink, caplog: pytest.LogCaptureFixture
) -> None:
    sink.error, sink.failing = StoreFull("the disk is full"), frozenset({"step.completed"})
    run_id = host.start(RunRequest(task=TASK, workflow=PLAN))
    with pytest.raises(StoreError, match="the disk is full"):
        host.wait(run_id, 10)
    assert str(host.error(run_id)) == "the disk is full"
    assert "the disk is full" in caplog.text
    sink.error = None
    assert host.wait(host.start(RunRequest(task=TASK, workflow=PLAN)), 10).status == "completed"


def test_conductors_and_pools_are_opened_once(host: EngineHost, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    conductor = ScriptedConductor(lists_of(PLAN, [agent()]))

    def open_conductor(ref: str, settings: Settings, keys: object) -> ScriptedConductor:
        opened.append(ref)
        return conductor

    monkeypatch.setattr(catalogue, "open_conductor", open_conductor)
    ids = [host.start(RunRequest(task=TASK, conductor="mine")) for _ in range(3)]
    assert {host.wait(run_id, 10).status for run_id in ids} == {"completed"}
    assert opened == ["mine"]
    host.close()
    assert conductor.released


def test_a_conductor_that_could_not_be_opened_is_tried_again(host: EngineHost, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[str] = []

    def open_conductor(ref: str, settings: Settings, keys: object) -> ScriptedConductor:
        tries.append(ref)
        if len(tries) == 1:
            raise UnknownConductor("not yet there")
        return ScriptedConductor(lists_of(PLAN, [agent()]))

    monkeypatch.setattr(catalogue, "open_conductor", open_conductor)
    with pytest.raises(UnknownConductor):
        host.start(RunRequest(task=TASK, conductor="mine"))
    assert host.wait(host.start(RunRequest(task=TASK, conductor="mine")), 10).status == "completed"


def test_a_conductor_that_broke_while_it_was_opened_does_not_keep_the_host_from_closing(
    sink: MemorySink, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_conductor(ref: str, settings: Settings, keys: object) -> ScriptedConductor:
        raise ZeroDivisionError

    monkeypatch.setattr(catalogue, "open_conductor", open_conductor)
    host = EngineHost(sink, Settings(), sink)
    with pytest.raises(ZeroDivisionError):
        host.start(RunRequest(task=TASK, conductor="broken"))
    host.close()
    assert sink.events == []


def test_a_changed_pool_file_is_read_again(host: EngineHost, sink: MemorySink, tmp_path: Path) -> None:
    file = tmp_path / "pool.toml"
    written = '[[worker]]\nname = "{}"\nprovider = "openai"\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\n'
    seen = []
    for number, name in enumerate(("one", "two")):
        file.write_text(written.format(name))
        os.utime(file, ns=(number, number))
        request = RunRequest(task=TASK, workflow=workflow_of((name, "x", ())), plan_only=True, pool=str(file))
        seen += [spec.name for spec in host.wait(host.start(request), 10).pool.workers]
    assert seen == ["one", "two"]


def test_a_rerun_takes_the_pool_as_recorded(host: EngineHost) -> None:
    first = host.wait(host.start(RunRequest(task=TASK, workflow=PLAN, seed=5)), 10)
    again = host.wait(host.start(rerun_of(first, door="page")), 10)
    assert (again.status, again.seed, again.pool) == ("completed", 5, first.pool)
    assert {step.status for step in again.steps} == {"reused"}
    assert again.answer == first.answer


def test_a_result_is_kept_until_it_has_been_waited_for(host: EngineHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "REMEMBERED_RUNS", 2)
    ids = [host.start(RunRequest(task=TASK, workflow=PLAN)) for _ in range(6)]
    eventually(lambda: not host.active())
    ids.append(host.start(RunRequest(task=TASK, workflow=PLAN)))
    assert [host.wait(run_id, 10).run_id for run_id in ids] == ids


def test_where_nobody_waits_only_the_last_results_are_kept(sink: MemorySink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "REMEMBERED_RUNS", 2)
    host = EngineHost(sink, Settings(), sink, awaited=False)
    ids = [host.start(RunRequest(task=TASK, workflow=PLAN)) for _ in range(4)]
    eventually(lambda: not host.active())
    remembered = [run_id for run_id in ids if run_id in host._results]
    assert len(remembered) == 2
    assert host.error(remembered[0]) is None
    host.close()


def test_only_so_many_ended_runs_are_remembered(host: EngineHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "REMEMBERED_RUNS", 2)
    ids = []
    for _ in range(4):
        ids.append(host.start(RunRequest(task=TASK, workflow=PLAN)))
        host.wait(ids[-1], 10)
    with pytest.raises(UnknownRun):
        host.wait(ids[0])
    assert host.wait(ids[-1], 1).status == "completed"


async def test_a_log_that_is_slow_holds_up_no_other_thread() -> None:
    sink = MemorySink(delay_s=0.02)
    host = EngineHost(sink, Settings(), sink)
    run_id = await asyncio.to_thread(host.start, RunRequest(task=TASK, workflow=PLAN))
    assert (await asyncio.to_thread(host.wait, run_id, 10)).status == "completed"
    await asyncio.to_thread(host.close)


class LocalScriptedConductor(ScriptedConductor):
    @property
    def info(self) -> ConductorInfo:
        return super().info.model_copy(update={"kind": "local"})


def test_warming_up_begins_one_plan_of_a_local_conductor_and_leaves_it(
    host: EngineHost, sink: MemorySink, monkeypatch: pytest.MonkeyPatch
) -> None:
    conductor = LocalScriptedConductor("model_id = [0]")
    monkeypatch.setattr(catalogue, "open_conductor", lambda *_: conductor)
    host.warm_up("some", "rehearsal")
    host.warm_up("some", "rehearsal")
    eventually(lambda: conductor.closed == 1)
    assert len(conductor.requests) == 1
    assert sink.events == []


def test_closing_while_a_conductor_warms_up_releases_it(sink: MemorySink, monkeypatch: pytest.MonkeyPatch) -> None:
    conductor = LocalScriptedConductor("model_id = [0]", pause_s=600)
    monkeypatch.setattr(catalogue, "open_conductor", lambda *_: conductor)
    host = EngineHost(sink, Settings(max_steps=3), sink)
    host.warm_up("some", "rehearsal")
    eventually(lambda: len(conductor.requests) == 1)
    host.close()
    assert conductor.released
    assert conductor.requests[0].max_steps == 3, "it was asked as a first run would ask"


def test_warming_up_never_asks_a_remote_conductor(host: EngineHost, monkeypatch: pytest.MonkeyPatch) -> None:
    conductor = ScriptedConductor(lists_of(PLAN, [spec.name for spec in rehearsal_specs()]))
    monkeypatch.setattr(catalogue, "open_conductor", lambda *_: conductor)
    host.warm_up("some", "rehearsal")
    host.wait(host.start(RunRequest(task=TASK, conductor="some")), 10)
    assert len(conductor.requests) == 1


def test_a_conductor_that_cannot_warm_up_says_so_in_the_log(host: EngineHost, caplog: pytest.LogCaptureFixture) -> None:
    host.warm_up("no/such/folder/or/id", "rehearsal")
    eventually(lambda: "Conductor no/such/folder/or/id is not warm: no Conductor 'no/such" in caplog.text)


def test_nothing_is_left_frozen_at_the_end_of_the_process() -> None:
    """Else bindings that were loaded before the first host report all they hold as leaked."""
    code = (
        "import atexit, gc; from conductor_core.engine.host import EngineHost; "
        "from conductor_core.settings import Settings; from tests.support.fakes import MemorySink; "
        "atexit.register(lambda: print(gc.get_freeze_count())); "
        "EngineHost(sink := MemorySink(), Settings(), sink).close(); print(gc.get_freeze_count() > 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "0"]


def test_a_program_that_forgets_to_close_its_host_ends_all_the_same() -> None:
    code = (
        "from conductor_core.engine.host import EngineHost; from conductor_core.settings import Settings; "
        "from tests.support.fakes import MemorySink; "
        "host = EngineHost(sink := MemorySink(), Settings(), sink); print('end')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "end\n"
