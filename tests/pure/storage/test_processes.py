"""Two processes on one database: both write, a killed one loses nothing it was promised, and its runs are marked."""

import subprocess
import sys
from pathlib import Path

from conductor_core.run import events as ev
from conductor_core.run.trace import RunTrace
from storage import Store, open_store
from storage.log.owner import Owner, gone, left
from tests.support.run_events import created, planned, run_completed, step_started

CHILD = """
import sys
from conductor_core.run import events as ev
from storage import open_store
from tests.support.run_events import created, planned, step_started, whole_run
store = open_store(sys.argv[1])
store.log.append_and_wait(*whole_run("finished"))
store.log.append_and_wait(created("child"), *planned("child"), step_started("child", 0, 30))
count = 0
while True:
    store.log.append_and_wait(ev.StepDelta(run_id="child", path=(0,), text=f"{count} "))
    count += 1
    print(count, flush=True)
"""


def output(trace: RunTrace) -> list[str]:
    return trace.steps[0].output.split()


def test_a_killed_process(store: Store, url: str) -> None:
    root = Path(__file__).parents[3]
    child = subprocess.Popen([sys.executable, "-c", CHILD, url], cwd=root, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        child.stdout.readline()
        store.log.append_and_wait(created("ours"), *planned("ours"), step_started("ours", 0, 30))
        for index in range(200):
            store.log.append_and_wait(ev.StepDelta(run_id="ours", path=(0,), text=f"{index} "))
        assert store.mark_interrupted() == [], "a living process keeps its runs"
        promised = 200
        while int(child.stdout.readline()) < promised:
            pass
    finally:
        child.kill()
        last = child.stdout.read().split()
        child.stdout.close()
        child.wait()
    promised = max([promised, *map(int, last)])

    assert store.mark_interrupted() == ["child"]
    assert store.mark_interrupted() == []
    trace, _ = store.trace("child")
    assert trace.status == "interrupted"
    kept = output(trace)
    assert kept == [str(index) for index in range(len(kept))]
    assert len(kept) >= promised
    assert trace.steps[0].status == "cancelled"
    assert output(store.trace("ours")[0]) == [str(index) for index in range(200)]
    statuses = {run.run_id: run.status for run in store.runs()}
    assert statuses == {"ours": "running", "finished": "completed", "child": "interrupted"}


def test_a_closed_store_gives_up_its_unfinished_runs(store: Store, url: str) -> None:
    other = open_store(url)
    other.log.append_and_wait(created("r1"), created("r2"), run_completed("r2"))
    assert store.mark_interrupted() == []
    other.close()
    assert store.mark_interrupted() == ["r1"]
    assert [(run.run_id, run.status) for run in store.runs()] == [("r2", "completed"), ("r1", "interrupted")]


def test_two_who_clean_up_at_once_mark_a_run_once(store: Store, url: str) -> None:
    dead = open_store(url)
    dead.log.append_and_wait(created("r1"))
    dead.close()
    other = open_store(url)
    assert sorted(store.mark_interrupted() + other.mark_interrupted()) == ["r1"]
    assert [item.event.kind for item in store.events("r1")] == ["run.created", "run.interrupted"]
    other.close()


def test_an_owner_is_gone_once_its_lock_is_free(tmp_path: Path) -> None:
    owner = Owner(tmp_path / "owners")
    with gone(tmp_path / "owners", owner.id) as is_gone:
        assert is_gone, "it has never owned anything"
    owner.hold()
    with gone(tmp_path / "owners", owner.id) as is_gone:
        assert not is_gone
        assert not left(tmp_path / "owners", owner.id)
    owner.close()
    with gone(tmp_path / "owners", owner.id) as is_gone:
        assert is_gone
    assert list((tmp_path / "owners").iterdir()) == []


def test_an_owner_has_left_once_its_process_has_ended_as_one_who_cannot_write_sees_it(tmp_path: Path) -> None:
    folder = tmp_path / "owners"
    owner = Owner(folder)
    assert left(folder, owner.id), "it has never owned anything"
    owner.hold()
    assert not left(folder, owner.id)
    owner.close()
    (folder / owner.id).touch()
    assert left(folder, owner.id), "the file of a killed process"
    assert (folder / owner.id).exists()


def test_an_owner_in_a_doctored_database_is_no_path(tmp_path: Path) -> None:
    (tmp_path / "owners").mkdir()
    precious = tmp_path / "precious"
    precious.touch()
    with gone(tmp_path / "owners", "../precious") as is_gone:
        assert is_gone
    assert precious.exists()


FORGETFUL = """
import sys
from storage import open_store
from tests.support.run_events import whole_run
store = open_store(sys.argv[1])
store.log.append_and_wait(*whole_run("kept"))
"""


def test_a_program_that_forgets_to_close_its_store_ends_all_the_same(store: Store, url: str) -> None:
    root = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", FORGETFUL, url], cwd=root, check=True, timeout=60)
    assert store.trace("kept")[0].status == "completed"
