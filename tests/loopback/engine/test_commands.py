"""A command reaches a run from any process, once, and is answered by an event with its actor."""

import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from conductor_core.engine.host import EngineHost
from conductor_core.errors import EventOutOfOrder, RunHasEnded, StoreFull, UnknownRun
from conductor_core.rehearsal import EXAMPLES
from conductor_core.run.actor import Actor, Caller, local_caller
from conductor_core.run.commands import Cancel, SentCommand
from conductor_core.run.events import RunCancelled
from conductor_core.run.request import RunRequest
from conductor_core.settings import Settings
from storage import Store, open_store
from tests.support.eventually import eventually
from tests.support.fakes import workflow_of
from tests.support.run_events import created, whole_run

ADA = Caller(actor=Actor(kind="person", id="7", name="Ada"), door="api")
CHAIN = workflow_of(("planner", "Plan: {question}", ()), ("reasoner", "Solve it.", (0,)))
SENDS = """
import sys
from conductor_core.run.actor import Actor
from conductor_core.run.commands import Cancel
from storage import open_store
from tests.support.eventually import eventually
store = open_store(sys.argv[1])
store.send(Cancel(run_id=sys.argv[2], actor=Actor(kind="person", id="7", name="Ada"), door="api"))
store.close()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.sqlite3"


@pytest.fixture
def slow(store: Store) -> Iterator[EngineHost]:
    """Its simulated workers take long."""
    host = EngineHost(store.log, Settings(rehearsal_tokens_per_s=1, warm_up=False), store)
    yield host
    host.close()


def begun(host: EngineHost) -> str:
    # A task that they know: of another one they say at once that they cannot answer it.
    return host.start(RunRequest(task=EXAMPLES[0].task, workflow=CHAIN))


def end_of(store: Store, run_id: str) -> RunCancelled:
    event = store.events(run_id)[-1].event
    assert isinstance(event, RunCancelled)
    return event


def test_a_command_of_this_process_ends_the_run_and_is_named_in_its_end(slow: EngineHost, store: Store) -> None:
    run_id = begun(slow)
    assert slow.cancel(run_id, ADA)
    assert slow.wait(run_id, 10).ended_by == ADA
    assert end_of(store, run_id).command == 1
    assert not slow.cancel(run_id, ADA), "it has ended"
    assert not slow.cancel("nobody", ADA)


def test_a_command_of_another_process_ends_the_run(slow: EngineHost, store: Store, path: Path) -> None:
    run_id = begun(slow)
    subprocess.run([sys.executable, "-c", SENDS, f"sqlite:///{path}", run_id], check=True)
    assert slow.wait(run_id, 10).ended_by == ADA
    assert end_of(store, run_id).command == 1


def test_the_same_command_twice_ends_the_run_once(slow: EngineHost, store: Store) -> None:
    run_id = begun(slow)
    first = store.send(Cancel(run_id=run_id, actor=ADA.actor, door="api"))
    with suppress(RunHasEnded):
        while True:
            store.send(Cancel(run_id=run_id, door="cli"))
            time.sleep(0.01)
    kinds = [stored.event.kind for stored in store.events(run_id)]
    assert kinds.count("run.cancelled") == 1
    assert end_of(store, run_id).command == first


def test_a_run_that_does_not_wait_cannot_be_taken_up(host: EngineHost) -> None:
    run_id = host.start(RunRequest(task="What is 6 times 7?", workflow=CHAIN))
    host.wait(run_id, 60)
    with pytest.raises(EventOutOfOrder):
        host.resume(run_id)


def test_a_run_is_cancelled_although_the_command_cannot_be_kept(
    slow: EngineHost, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(command: Cancel) -> int:
        raise StoreFull("the disk is full")

    run_id = begun(slow)
    monkeypatch.setattr(store, "send", full)
    assert slow.cancel(run_id, ADA)
    assert slow.wait(run_id, 10).ended_by == ADA
    assert end_of(store, run_id).command is None


def test_who_watches_is_told_each_command_once_and_none_from_before(store: Store, path: Path) -> None:
    store.log.append_and_wait(created("one"), created("two"))
    store.send(Cancel(run_id="one"))
    heard: list[SentCommand] = []
    watch = store.watch(heard.append)
    other = open_store(f"sqlite:///{path}")
    sent = [
        other.send(Cancel(run_id="two", door="cli")) if number % 2 else store.send(Cancel(run_id="one"))
        for number in range(20)
    ]
    eventually(lambda: len(heard) == 20)
    assert [each.id for each in heard] == sent == list(range(2, 22))
    watch.close()
    heard_on: list[SentCommand] = []
    still_open = store.watch(heard_on.append)
    store.send(Cancel(run_id="one"))
    eventually(lambda: len(heard_on) == 1)
    assert len(heard) == 20
    still_open.close()
    other.close()


def test_a_run_that_is_not_there_or_has_ended_takes_no_command(store: Store) -> None:
    store.log.append_and_wait(*whole_run("done"))
    with pytest.raises(RunHasEnded, match="completed"):
        store.send(Cancel(run_id="done"))
    with pytest.raises(UnknownRun):
        store.send(Cancel(run_id="nobody"))


def test_commands_are_only_ever_added_and_go_with_their_run(store: Store, path: Path) -> None:
    first, *rest = whole_run("r")
    store.log.append_and_wait(first)
    store.send(Cancel(run_id="r"))
    store.log.append_and_wait(*rest)
    connection = sqlite3.connect(path)
    for statement in ("UPDATE commands SET kind = 'x'", "DELETE FROM commands"):
        with pytest.raises(sqlite3.IntegrityError, match="only ever added"):
            connection.execute(statement)
    connection.close()
    assert store.delete(["r"], local_caller("cli")).run_ids == ["r"]
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM commands").fetchone() == (0,)
    connection.close()
