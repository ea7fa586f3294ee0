"""A run is created by one process and carried out by another, which has the database and the run's id alone."""

import json
import subprocess
import sys
import threading
import time

import pytest

from conductor_core.engine.estimates import edit_step
from conductor_core.engine.host import EngineHost
from conductor_core.engine.request import rerun_of
from conductor_core.errors import BadInput, EventOutOfOrder, InspectorError
from conductor_core.run.request import RunRequest
from conductor_core.run.values import Limits
from conductor_core.settings import Settings
from storage import Store, open_store
from tests.support.fakes import workflow_of

CHAIN = workflow_of(("planner", "Plan: {question}", ()), ("reasoner", "Solve it.", (0,)))
TAKES_UP = """
import sys
from conductor_core.engine.host import EngineHost
from conductor_core.settings import Settings
from storage import open_store
store = open_store(sys.argv[1])
store.mark_interrupted()
host = EngineHost(store.log, Settings(rehearsal_tokens_per_s=0, warm_up=False), store)
host.resume(sys.argv[2])
print(host.wait(sys.argv[2], 60).model_dump_json())
host.close()
store.close()
"""


def taken_up_elsewhere(url: str, run_id: str) -> dict[str, object]:
    done = subprocess.run([sys.executable, "-c", TAKES_UP, url, run_id], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document: dict[str, object] = json.loads(done.stdout)
    return document


@pytest.mark.parametrize("conductor", ["tiny", None])
def test_another_process_carries_out_what_was_asked(
    host: EngineHost, store: Store, url: str, conductor: str | None
) -> None:
    asked = RunRequest(
        task="What is the chemical symbol of tungsten?",
        conductor=conductor,
        workflow=None if conductor else CHAIN,
        limits=Limits(max_steps=4),
        seed=3,
        excluded=("writer",),
        give_question=True,
        door="page",
    )
    run_id = host.queue(asked)
    assert (store.read(run_id).status, store.created(run_id).request) == ("queued", asked)
    there = taken_up_elsewhere(url, run_id)
    here = host.wait(host.start(asked.model_copy(update={"run_id": RunRequest(task="").run_id})), 60)
    trace = store.read(run_id)
    assert json.loads(trace.model_dump_json()) == there
    assert trace.status == here.status == "completed"
    assert [step.identity for step in trace.walk()] == [step.identity for step in here.walk()]
    assert (trace.answer, trace.usage, trace.pool, trace.caller) == (here.answer, here.usage, here.pool, asked.caller)


def test_a_queued_rerun_reads_its_parent_by_id(host: EngineHost, store: Store, url: str) -> None:
    parent = host.wait(host.start(RunRequest(task="What is 6 times 7?", workflow=CHAIN)), 60)
    run_id = host.queue(rerun_of(parent, edit_step(CHAIN, 1, instruction="Solve it twice."), door="cli"))
    taken_up_elsewhere(url, run_id)
    assert [step.status for step in store.read(run_id).steps] == ["reused", "completed"]


def test_a_queued_run_outlives_the_process_that_created_it(url: str) -> None:
    store = open_store(url)
    host = EngineHost(store.log, Settings(warm_up=False), store)
    run_id = host.queue(RunRequest(task="What is 6 times 7?", workflow=CHAIN))
    host.close()
    store.close()
    again = open_store(url)
    assert again.mark_interrupted() == []
    assert [run.status for run in again.runs()] == ["queued"]
    again.close()
    assert taken_up_elsewhere(url, run_id)["status"] == "completed"


def test_of_many_that_take_a_run_up_one_does(url: str) -> None:
    stores = [open_store(url) for _ in range(4)]
    hosts = [EngineHost(each.log, Settings(rehearsal_tokens_per_s=0, warm_up=False), each) for each in stores]
    errors: list[InspectorError] = []

    def take(host: EngineHost, run_id: str) -> None:
        try:
            host.resume(run_id)
        except InspectorError as error:
            errors.append(error)

    for _ in range(10):
        errors.clear()
        run_id = hosts[0].queue(RunRequest(task="What is 6 times 7?", workflow=CHAIN))
        threads = [threading.Thread(target=take, args=(host, run_id)) for host in hosts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert [type(error) for error in errors] == [EventOutOfOrder] * 3
        while not stores[0].read(run_id).ended:
            time.sleep(0.02)
        kinds = [stored.event.kind for stored in stores[0].events(run_id)]
        assert (kinds.count("run.taken"), kinds.count("plan.completed")) == (1, 1)
    for host, store in zip(hosts, stores, strict=True):
        host.close()
        store.close()


def test_a_run_that_is_not_queued_cannot_be_taken_up(host: EngineHost) -> None:
    run_id = host.start(RunRequest(task="What is 6 times 7?", workflow=CHAIN))
    host.wait(run_id, 60)
    with pytest.raises(EventOutOfOrder):
        host.resume(run_id)


def test_what_cannot_be_carried_out_is_not_queued(host: EngineHost, store: Store) -> None:
    with pytest.raises(BadInput):
        host.queue(RunRequest(task=""))
    assert store.runs() == []
