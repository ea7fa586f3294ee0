"""A reader that takes the trace and follows from there sees every event exactly once, wherever it comes in."""

import asyncio
import threading
from contextlib import aclosing

import pytest

from conductor_core.errors import EventOutOfOrder, UnknownRun
from conductor_core.run import events as ev
from conductor_core.run.trace import RunTrace, apply
from storage import Store, StoredEvent, open_store
from storage.log.event_log import EventLog, Feed, LiveRuns
from tests.support.damaging import doctor
from tests.support.run_events import answered, created, planned, run_completed, step_started, whole_run


async def read_to_end(
    store: Store, run_id: str, after: int = 0, begun: asyncio.Event | None = None
) -> list[StoredEvent]:
    """``begun``: set once the first events were read."""
    found: list[StoredEvent] = []
    async for group in store.follow(run_id, after):
        found += group
        if begun is not None:
            begun.set()
    return found


async def test_an_ended_run_is_read_and_the_following_ends(store: Store) -> None:
    await store.log.append(*whole_run("r1"))
    assert await read_to_end(store, "r1") == store.events("r1")
    assert await read_to_end(store, "r1", after=10) == store.events("r1", after=10)
    assert await read_to_end(store, "r1", after=12) == []


async def test_a_long_run_that_has_ended_comes_in_bounded_groups(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.store._PAGE_EVENTS", 5)
    await store.log.append(*whole_run("r1"))
    assert [len(group) async for group in store.follow("r1")] == [5, 5, 2]


async def test_an_unknown_run_cannot_be_followed(store: Store) -> None:
    with pytest.raises(UnknownRun):
        await read_to_end(store, "nope")


async def test_each_commit_is_announced(store: Store) -> None:
    await store.log.append(created("r1"))
    async with aclosing(store.follow("r1")) as groups:
        assert [item.event.kind for item in await anext(groups)] == ["run.created"]
        for event in planned("r1"):
            pending = asyncio.ensure_future(anext(groups))
            await asyncio.sleep(0)
            await store.log.append(event)
            assert [item.event for item in await pending] == [event]
    assert isinstance(store.log, EventLog)
    assert store.log._feeds == {}


async def produce(store: Store, run_id: str, deltas: int) -> None:
    for _ in range(deltas):
        await store.log.append(ev.StepDelta(run_id=run_id, path=(0,), text="word "))
        await asyncio.sleep(0)
    await store.log.append(run_completed(run_id))


async def join(store: Store, run_id: str, after_events: int) -> RunTrace:
    """Comes in once that many events are there, and folds what follows onto the snapshot."""
    async with aclosing(store.follow(run_id)) as groups:
        async for group in groups:
            if group[-1].sequence >= after_events:
                break
    trace, sequence = store.trace(run_id)
    async for group in store.follow(run_id, sequence):
        for stored in group:
            apply(trace, stored.event)
    return trace


async def test_no_event_is_lost_or_doubled_at_the_border_of_snapshot_and_tail(store: Store) -> None:
    await store.log.append(created("r1"), *planned("r1"), step_started("r1", 0, 30))
    readers = [join(store, "r1", after_events) for after_events in range(6, 206, 20)]
    traces, _ = await asyncio.gather(asyncio.gather(*readers), produce(store, "r1", 200))
    final, _ = store.trace("r1")
    assert len(final.steps[0].output) == 200 * len("word ")
    assert all(trace == final for trace in traces)


async def test_a_follower_that_is_slow_reads_what_it_missed_from_the_database(store: Store) -> None:
    await store.log.append(created("r1"), *planned("r1"), step_started("r1", 0, 30))
    async with aclosing(store.follow("r1")) as groups:
        seen = list(await anext(groups))
        pending = asyncio.ensure_future(anext(groups))
        await asyncio.sleep(0)
        for _ in range(5):
            await store.log.append(*(ev.StepDelta(run_id="r1", path=(0,), text="x") for _ in range(900)))
        await store.log.append(run_completed("r1"))
        seen += await pending
        async for group in groups:
            seen += group
    assert seen == store.events("r1")


async def test_a_feed_that_nobody_reads_holds_a_bounded_number_of_events_and_says_that_some_are_missing() -> None:
    feed = Feed(asyncio.get_running_loop())
    group = [StoredEvent(sequence, step_started("r1", 0, 30)) for sequence in range(1, 1001)]
    feed.push(group)
    feed.push(group)
    assert feed.drain() == ([*group, *group], False)
    assert not feed.news.is_set()
    for _ in range(3):
        feed.push(group)
    # What came is neither kept nor given in part, and what comes now would have a gap before it.
    assert feed.events == []
    feed.push(group[:1])
    assert feed.news.is_set()
    assert feed.drain() == ([], True)
    feed.push(group[:1])
    assert feed.drain() == (group[:1], False)


async def test_a_run_of_another_process_is_followed_too(store: Store, url: str) -> None:
    other = open_store(url)
    await other.log.append(created("r1"))
    reading = asyncio.create_task(read_to_end(store, "r1"))
    for event in whole_run("r1")[1:]:
        await other.log.append(event)
        await asyncio.sleep(0.01)
    assert await reading == other.events("r1")
    other.close()


async def test_a_follower_in_another_thread_than_the_producer(store: Store) -> None:
    await store.log.append(created("r1"))
    seen: list[StoredEvent] = []
    thread = threading.Thread(target=lambda: seen.extend(asyncio.run(read_to_end(store, "r1"))))
    thread.start()
    for event in [*planned("r1"), *answered("r1", 0), run_completed("r1")]:
        await store.log.append(event)
    await asyncio.to_thread(thread.join)
    assert seen == store.events("r1")


async def test_a_follower_whose_loop_is_gone_stops_nobody(store: Store) -> None:
    await store.log.append(created("r1"))

    async def begin_and_leave() -> None:
        store.log.feed("r1").__enter__()

    await asyncio.to_thread(asyncio.run, begin_and_leave())
    await store.log.append(*planned("r1"))
    assert store.trace("r1")[0].root.status == "planned"


def waits(at_ms: float, number: int) -> list[ev.Event]:
    asked = ev.ApprovalRequested(run_id="r1", number=number, of="plan", path=(), rules=("plan",), identity="i")
    return [asked, ev.RunWaiting(run_id="r1", at_ms=at_ms)]


def taken_up(at_ms: float, number: int) -> list[ev.Event]:
    granted = ev.ApprovalGranted(run_id="r1", at_ms=at_ms, numbers=(number,), door="page")
    return [ev.RunTaken(run_id="r1", at_ms=at_ms), granted]


async def test_a_run_that_another_process_was_quicker_to_take_up_is_followed_on(
    store: Store, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While this process tries to take the run up, it seems to write it. Then another one does."""
    monkeypatch.setattr("storage.store._POLL_S", 0.01)
    monkeypatch.setattr("storage.store._QUIET_S", 0.05)
    await store.log.append(created("r1"), *planned("r1"), *waits(20, 1))
    trying, may_fail = threading.Event(), threading.Event()

    def too_late(*_: object) -> None:
        trying.set()
        may_fail.wait()
        raise EventOutOfOrder("another process has taken it up")

    monkeypatch.setattr(LiveRuns, "_claim", too_late)
    asked, writes = threading.Event(), store.log.writes

    def told(run_id: str) -> bool:
        if trying.is_set():
            asked.set()
        return writes(run_id)

    monkeypatch.setattr(store.log, "writes", told)
    reading = asyncio.create_task(read_to_end(store, "r1"))
    late = store.log.append(*taken_up(20, 1))
    await asyncio.to_thread(trying.wait)
    await asyncio.to_thread(asked.wait)  # the follower asks meanwhile whether this process writes the run
    may_fail.set()
    with pytest.raises(EventOutOfOrder):
        await late
    monkeypatch.undo()
    other = open_store(url)
    await other.log.append(*taken_up(20, 1), *answered("r1", 0), *answered("r1", 1), run_completed("r1"))
    assert await reading == other.events("r1")
    other.close()


async def test_what_another_process_wrote_while_the_run_was_there_comes_before_what_this_one_writes(
    store: Store, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.store._POLL_S", 60)  # nothing but its own events wakes the follower
    await store.log.append(created("r1"), *planned("r1"), *waits(20, 1))
    begun = asyncio.Event()
    reading = asyncio.create_task(read_to_end(store, "r1", begun=begun))
    await begun.wait()
    other = open_store(url)
    await other.log.append(*taken_up(20, 1), *answered("r1", 0), *waits(40, 2))
    await store.log.append(*taken_up(40, 2), *answered("r1", 1, at_ms=50), run_completed("r1"))
    assert await reading == other.events("r1")
    other.close()


async def test_the_following_of_a_run_ends_when_its_rows_are_gone(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.store._POLL_S", 0.01)
    monkeypatch.setattr("storage.store._QUIET_S", 0.01)
    await store.log.append(created("r1"))
    begun = asyncio.Event()
    reading = asyncio.create_task(read_to_end(store, "r1", begun=begun))
    await begun.wait()
    for table in ("events", "runs"):
        doctor(store.path, f"DELETE FROM {table}")
    with pytest.raises(UnknownRun):
        await reading
