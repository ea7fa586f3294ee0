"""A run whose record is damaged, or of a newer version: it alone is, it says where and what to do, all others go on."""

import asyncio
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from conductor_core.errors import StoreDamaged, StoreError, UnknownRun
from conductor_core.run.events import VOCABULARY, Event
from conductor_core.run.trace import RunDamaged, RunTooNew, RunUnreadable, fold
from storage import Store, open_store
from storage.encoding import fold_digest
from storage.log import queries
from tests.support import damaging
from tests.support.run_events import answered, created, planned, step_started, whole_run

Doctor = Callable[..., None]
Runs = dict[str, list[Event]]


@pytest.fixture
def doctor(path: Path) -> Doctor:
    return partial(damaging.doctor, path)


@pytest.fixture
def runs(url: str) -> Runs:
    """A finished run (events 1 to 12), one broken off (13 to 20), another (21 to 24) and a whole one (25 to 36)."""
    runs = {
        "ended": whole_run("ended"),
        "open": [created("open"), *planned("open"), *answered("open", 0)],
        "open-too": [created("open-too"), *planned("open-too")[:3]],
        "whole": whole_run("whole"),
    }
    store = open_store(url)
    for events in runs.values():
        store.log.append_and_wait(*events)
    store.close()
    return runs


def statuses(store: Store) -> dict[str, str]:
    return {run.run_id: run.status for run in store.runs()}


PAYLOADS = {
    "no JSON": (b'{"kind": "step.delta"', "is not JSON"),
    "nothing": (b"", "is not JSON"),
    "no UTF-8": (b'{"kind": "step.delta", "run_id": "RUN", "text": "\xff"}', "is not JSON"),
    "too deep": (b"[" * 100_000, "is not JSON"),
    "no object": (b"[1, 2]", "is not the event that it is filed as"),
    "another kind": (b'{"kind": "run.interrupted", "run_id": "RUN"}', "is not the event that it is filed as"),
    "another run": (b'{"kind": "step.delta", "run_id": "other", "path": [0], "text": ""}', "is not the event"),
    "a field missing": (
        b'{"kind": "step.delta", "run_id": "RUN", "text": ""}',
        "does not say what it should, path: Field required",
    ),
    "a field too many": (
        b'{"kind": "step.delta", "run_id": "RUN", "path": [0], "text": "", "more": 1}',
        "does not say what it should, more: Extra inputs are not permitted",
    ),
    "no such step": (
        b'{"kind": "step.delta", "run_id": "RUN", "at_utc": AT, "path": [9], "text": ""}',
        "cannot follow",
    ),
    "a path without end": (
        b'{"kind": "step.delta", "run_id": "RUN", "at_utc": AT, "path": [' + b"0, " * 50_000 + b'0], "text": ""}',
        "cannot follow",
    ),
}


@pytest.mark.parametrize("run_id", ["ended", "open"])
@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_damaged_event(url: str, doctor: Doctor, runs: Runs, run_id: str, payload: str) -> None:
    bad = {"ended": 7, "open": 19}[run_id]
    text, what = PAYLOADS[payload]
    at_utc = json.dumps(runs[run_id][6].at_utc.isoformat())
    text = text.replace(b"RUN", run_id.encode()).replace(b"AT", at_utc.encode())
    doctor("UPDATE events SET payload = CAST(:text AS TEXT) WHERE sequence = :bad", text=text, bad=bad)

    store = open_store(url)
    assert store.mark_interrupted() == [other for other in ("open", "open-too") if other != run_id]
    with pytest.raises(RunDamaged) as caught:
        store.trace(run_id)
    assert (caught.value.run_id, caught.value.sequence) == (run_id, bad)
    assert caught.value.trace == fold(runs[run_id][:6]), "what stands before it is still there"
    message = str(caught.value)
    assert message.startswith(f"run {run_id} is damaged: its event {bad} ('step.delta') {what}")
    assert "What comes before that can be read; restore a copy of the database" in message
    assert "\n" not in message
    assert len(message) < 700

    listed = {run.run_id: run for run in store.runs()}
    assert (listed[run_id].status, listed[run_id].damage) == ("damaged", message)
    assert (listed[run_id].task, listed[run_id].agents) == ("What is 6 times 7?", ("solver", "checker"))
    assert (listed["whole"].status, listed["whole"].damage) == ("completed", None)
    assert store.trace("whole")[0] == fold(runs["whole"])
    if "cannot follow" not in what:
        with pytest.raises(RunDamaged):
            store.events(run_id)
    [raw] = store.raw_events(run_id, after=bad - 1, limit=1)
    assert (raw.sequence, raw.kind, raw.payload) == (bad, "step.delta", text)
    with pytest.raises(RunDamaged):
        store.log.append_and_wait(step_started(run_id, 1, 60))
    store.log.append_and_wait(*whole_run("new"))
    assert store.trace("new")[0].status == "completed"
    store.close()


NEWER = {
    "a kind of event": ("step.paused", '{"kind": "step.paused", "run_id": "RUN", "until": "tomorrow"}', VOCABULARY),
    "a field": ("step.delta", '{"kind": "step.delta", "run_id": "RUN", "path": [0], "text": "", "to": 1}', 99),
    "an order": ("step.delta", '{"kind": "step.delta", "run_id": "RUN", "at_utc": AT, "path": [9], "text": ""}', 99),
}


@pytest.mark.parametrize("run_id", ["ended", "open"])
@pytest.mark.parametrize("newer", NEWER)
def test_an_event_of_a_newer_version(url: str, doctor: Doctor, runs: Runs, run_id: str, newer: str) -> None:
    kind, payload, vocabulary = NEWER[newer]
    at_utc = "2026-11-20T21:44:56.043920+00:00"
    payload = payload.replace("RUN", run_id).replace("AT", json.dumps(at_utc))
    doctor(
        "INSERT INTO events (run_id, kind, at_utc, payload) VALUES (:run_id, :kind, :at_utc, :payload)",
        run_id=run_id,
        kind=kind,
        at_utc=at_utc,
        payload=payload,
    )
    doctor("UPDATE runs SET vocabulary = :vocabulary WHERE run_id = :run_id", vocabulary=vocabulary, run_id=run_id)

    store = open_store(url)
    assert store.mark_interrupted() == [other for other in ("open", "open-too") if other != run_id]
    with pytest.raises(RunTooNew, match=r"newer version of this program.*[Uu]pgrade this program") as caught:
        store.trace(run_id)
    assert caught.value.sequence == 37
    assert caught.value.trace == fold(runs[run_id])
    assert statuses(store)[run_id] == "too_new"
    assert statuses(store)["whole"] == "completed"
    store.close()


def test_a_run_of_a_newer_program_that_says_nothing_new_is_read(url: str, doctor: Doctor, runs: Runs) -> None:
    doctor("UPDATE runs SET vocabulary = 99")
    store = open_store(url)
    assert store.trace("ended")[0] == fold(runs["ended"])
    assert statuses(store)["ended"] == "completed"
    store.close()


def test_a_run_says_by_which_vocabulary_it_was_written(path: Path, runs: Runs) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT DISTINCT vocabulary FROM runs").fetchall() == [(VOCABULARY,)]


CHANGES = {
    "a word of an answer": "UPDATE events SET payload = replace(payload, '42, checked', '43, checked')",
    "a cost": "UPDATE events SET payload = replace(payload, '\"cost_usd\":0.5', '\"cost_usd\":0.4')",
    "an event less": "DELETE FROM events WHERE sequence = 10",
    "a kind in its column": "UPDATE events SET kind = 'step.started' WHERE sequence = 12",
    "a time in its column": "UPDATE events SET at_utc = '2001-01-01' WHERE sequence = 12",
}


@pytest.mark.parametrize("change", CHANGES)
def test_an_event_that_was_changed_and_still_makes_sense(url: str, doctor: Doctor, runs: Runs, change: str) -> None:
    """The snapshot, which is right, must not hide it, nor may the changed event pass for what was written."""
    doctor(f"{CHANGES[change]}{' AND ' if 'WHERE' in CHANGES[change] else ' WHERE '} run_id = 'ended'")
    store = open_store(url)
    with pytest.raises(RunDamaged) as caught:
        store.trace("ended")
    assert caught.value.trace is not None
    assert statuses(store) == {"whole": "completed", "open-too": "running", "open": "running", "ended": "damaged"}
    store.close()


def test_an_event_whose_kind_is_no_text_any_more(url: str, doctor: Doctor, runs: Runs) -> None:
    doctor("UPDATE events SET kind = CAST(x'ff' AS TEXT) WHERE sequence = 3")
    store = open_store(url)
    with pytest.raises(RunDamaged, match=r"its event 3 \('\ufffd'\) is not the event that it is filed as"):
        store.trace("ended")
    assert statuses(store)["ended"] == "damaged"
    store.close()


SNAPSHOTS = {
    "gone": "DELETE FROM snapshots",
    "no JSON": "UPDATE snapshots SET trace = 'x'",
    "another text": "UPDATE snapshots SET trace = replace(trace, '42', '43')",
    "no UTF-8": "UPDATE snapshots SET trace = CAST(x'7bff' AS TEXT)",
    "another sequence": "UPDATE snapshots SET sequence = sequence - 1",
    "another digest": "UPDATE snapshots SET events_sha256 = 'ab'",
    "of other code": "UPDATE snapshots SET fold_digest = 'other'",
    "nothing": "UPDATE snapshots SET trace = ''",
}


@pytest.mark.parametrize("change", SNAPSHOTS)
def test_a_bad_snapshot_is_made_again_from_its_events(url: str, doctor: Doctor, runs: Runs, change: str) -> None:
    doctor(SNAPSHOTS[change])
    store = open_store(url)
    assert statuses(store)["ended"] == "completed"
    assert store.trace("ended") == (fold(runs["ended"]), 12)
    store.close()
    store = open_store(url)
    with store._database.reading() as connection:
        digests = connection.execute("SELECT fold_digest FROM snapshots WHERE run_id = 'ended'").fetchall()
    assert digests == [(fold_digest(),)]
    assert store.trace("ended") == (fold(runs["ended"]), 12)
    store.close()


ROWS = {
    "created_at_utc": "'yesterday'",
    "agents": "'[1'",
    "status": "'compleued'",
    "task": "CAST(x'57ff' AS TEXT)",
    "cost_usd": "'dear'",
    "steps": "7",
    "error": "'what?'",
    "simulated": "0",
    "input_tokens": "-1",
}


@pytest.mark.parametrize("column", ROWS)
def test_a_row_of_the_list_that_was_changed_is_read_from_the_run(
    url: str, doctor: Doctor, runs: Runs, column: str
) -> None:
    store = open_store(url)
    store.mark_interrupted()
    before = store.runs()
    store.close()
    doctor(f"UPDATE runs SET {column} = {ROWS[column]}")
    store = open_store(url)
    assert store.mark_interrupted() == []
    assert store.runs() == before
    assert store.runs() == before, "a row that was found changed is not believed the next time"
    store.close()


def test_a_run_without_its_row_is_found_by_its_id(url: str, doctor: Doctor, runs: Runs) -> None:
    doctor("DELETE FROM runs WHERE run_id = 'ended'")
    store = open_store(url)
    assert store.resolve("end") == "ended"
    assert store.trace("ended")[0] == fold(runs["ended"])
    store.close()


def test_a_run_without_its_events_is_damaged(url: str, doctor: Doctor, runs: Runs) -> None:
    doctor("DELETE FROM events WHERE run_id = 'ended'")
    store = open_store(url)
    with pytest.raises(RunDamaged, match="none of its events is there"):
        store.trace("ended")
    assert statuses(store)["ended"] == "damaged"
    with pytest.raises(UnknownRun):
        store.trace("never was")
    store.close()


def test_runs_of_a_file_in_which_rows_cannot_be_read_are_listed_newest_first(
    url: str, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(url)
    whole = store.runs()

    def unreadable(*_: object, **__: object) -> None:
        error = sqlite3.DatabaseError("database disk image is malformed")
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error

    monkeypatch.setattr(queries, "read_rows", unreadable)
    assert store.runs() == whole == sorted(whole, key=lambda run: -run.sequence)
    assert store.runs(limit=2, before=whole[0].sequence) == whole[1:3]
    assert store.runs(search="6 TIMES", status="completed") == [run for run in whole if run.status == "completed"]
    store.close()


def test_a_run_of_which_nothing_can_be_read_is_listed(url: str, doctor: Doctor, runs: Runs) -> None:
    doctor("UPDATE events SET payload = 'x' WHERE sequence = 1")
    doctor("UPDATE runs SET created_at_utc = 'x' WHERE run_id = 'ended'")
    store = open_store(url)
    [listed] = [run for run in store.runs() if run.run_id == "ended"]
    assert (listed.status, listed.created_at_utc, listed.task) == ("damaged", None, "")
    with pytest.raises(RunDamaged, match="Nothing of it can be read") as caught:
        store.trace("ended")
    assert caught.value.trace is None
    store.close()


def test_runs_are_found_by_being_damaged_or_too_new(url: str, doctor: Doctor, runs: Runs) -> None:
    doctor("UPDATE events SET payload = 'x' WHERE sequence = 3")
    doctor("UPDATE events SET kind = 'x.y', payload = '{\"kind\": \"x.y\"}' WHERE sequence = 15")
    store = open_store(url)
    assert [run.run_id for run in store.runs(status="damaged")] == ["ended"]
    assert [run.run_id for run in store.runs(status="too_new")] == ["open"]
    assert [run.run_id for run in store.runs(status="completed")] == ["whole", "ended"], "marked, where it stood"
    store.close()


def test_a_run_found_whole_is_checked_again_once_it_is_opened(url: str, doctor: Doctor, runs: Runs) -> None:
    store = open_store(url)
    assert statuses(store)["ended"] == "completed"
    doctor("UPDATE events SET payload = 'x' WHERE sequence = 3")
    with pytest.raises(RunDamaged):
        store.trace("ended")
    assert statuses(store)["ended"] == "damaged"
    store.close()


async def followed(
    store: Store, run_id: str, after: int = 0, begun: asyncio.Event | None = None
) -> tuple[list[int], StoreError | None]:
    """``begun``: set once the first events were read."""
    seen: list[int] = []
    try:
        async for group in store.follow(run_id, after):
            seen += [stored.sequence for stored in group]
            if begun is not None:
                begun.set()
    except RunUnreadable as error:
        return seen, error
    return seen, None


@pytest.mark.parametrize(("run_id", "bad", "seen"), [("ended", 7, [1, 2, 3, 4, 5, 6]), ("open", 13, [])])
async def test_a_follower_is_given_what_can_be_read_and_then_told(
    url: str, doctor: Doctor, runs: Runs, run_id: str, bad: int, seen: list[int]
) -> None:
    doctor("UPDATE events SET payload = 'x' WHERE sequence = :bad", bad=bad)
    store = open_store(url)
    found, error = await followed(store, run_id)
    assert found == seen
    assert isinstance(error, RunDamaged)
    assert (await followed(store, run_id, after=bad - 1))[0] == []
    assert await followed(store, "whole") == (list(range(25, 37)), None)
    store.close()


async def test_a_follower_meets_an_event_that_a_newer_program_writes_meanwhile(
    store: Store, doctor: Doctor, url: str
) -> None:
    other = open_store(url)
    await other.log.append(created("r1"))
    begun = asyncio.Event()
    following = asyncio.create_task(followed(store, "r1", begun=begun))
    await begun.wait()
    doctor("INSERT INTO events (run_id, kind, at_utc, payload) VALUES ('r1', 'x.y', '', '{\"kind\": \"x.y\"}')")
    seen, error = await following
    assert seen == [1]
    assert isinstance(error, RunTooNew)
    other.close()


@pytest.mark.parametrize("column", ["agents", "created_at_utc", "steps", "input_tokens"])
@pytest.mark.parametrize("value", [5.5, "{", b"\xff", "[1"])
def test_a_damaged_row_of_a_whole_run_is_told_from_its_events(
    url: str, doctor: Doctor, runs: Runs, column: str, value: object
) -> None:
    store = open_store(url)
    whole = {run.run_id: run for run in store.runs()}
    store.close()
    doctor(f"UPDATE runs SET {column} = :value WHERE run_id = 'ended'", value=value)
    store = open_store(url)
    assert {run.run_id: run for run in store.runs()} == whole
    store.close()


def test_a_database_in_which_interrupted_runs_cannot_be_found_says_so_in_the_log(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def damaged(*_: object) -> None:
        raise StoreDamaged("a page is broken")

    monkeypatch.setattr(store._database, "rows", damaged)
    assert store.mark_interrupted() == []
    assert caplog.messages == ["interrupted runs cannot be determined: a page is broken"]
