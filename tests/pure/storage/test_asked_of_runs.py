"""What the engine and the pages ask a store: which runs wait, what a run took up, how it began, if there was any."""

from pathlib import Path

import pytest

from conductor_core.errors import UnknownRun
from conductor_core.run import events as ev
from conductor_core.run.trace import RunDamaged
from storage import Store, open_store
from tests.support.damaging import doctor
from tests.support.run_events import PAGE, created, planned, whole_run


async def test_newer_runs_that_have_ended_do_not_hide_one_that_waits(store: Store) -> None:
    asked = ev.ApprovalRequested(run_id="waits", number=1, of="plan", path=(), rules=("plan",), identity="i")
    await store.log.append(created("waits"), *planned("waits"), asked, ev.RunWaiting(run_id="waits"))
    await store.log.append(*whole_run("later"), *whole_run("latest"))
    assert [trace.run_id for trace in store.waiting()] == ["waits"]


async def test_the_runs_that_a_run_took_up_are_found_one_after_another_as_far_as_they_are_there(store: Store) -> None:
    await store.log.append(
        created("again", parent_run_id="deleted", resumed=True),
        created("third", parent_run_id="again", resumed=True),
        created("re-run", parent_run_id="third"),
        created("last", parent_run_id="re-run", resumed=True),
    )
    found = {run_id: [each.run_id for each in store.resumed_from(store.read(run_id))] for run_id in ("third", "last")}
    assert found == {"third": ["again"], "last": ["re-run"]}, "a re-run takes nothing up"


async def test_a_database_whose_runs_were_all_deleted_was_used(store: Store) -> None:
    assert not store.was_used()
    await store.log.append(*whole_run("r"))
    assert store.was_used()
    store.delete(["r"], PAGE)
    assert store.runs() == []
    assert store.was_used()


async def test_how_a_run_began_can_be_read_although_its_end_is_damaged(store: Store, path: Path, url: str) -> None:
    await store.log.append(*whole_run("r", "Where does Zoë live?"))
    store.close()
    doctor(path, "UPDATE events SET payload = '{' WHERE kind = 'run.completed'")
    reader = open_store(url)
    with pytest.raises(RunDamaged):
        reader.read("r")
    assert reader.created("r").request.task == "Where does Zoë live?"
    reader.close()


def test_how_an_unknown_run_began_is_a_clear_error(store: Store) -> None:
    with pytest.raises(UnknownRun, match="unknown run 'gone'"):
        store.created("gone")
