"""Runs can be deleted, and that they were stays; a running or a held run cannot."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from conductor_core.errors import UnknownRun
from conductor_core.run.events import ApprovalRequested, RunWaiting
from conductor_core.run.values import BatchRow
from storage import open_store
from tests.support.run_events import PAGE, created, whole_run


def test_a_deleted_run_leaves_only_the_record_of_that(path: Path, url: str) -> None:
    store = open_store(url)
    store.log.append_and_wait(*whole_run("kept"), *whole_run("gone"))
    newest = store.trace("gone")[1]
    outcome = store.delete(["gone"], PAGE)
    assert (outcome.run_ids, outcome.refused) == (["gone"], {})
    assert [run.run_id for run in store.runs()] == ["kept"]
    with pytest.raises(UnknownRun, match=r"run gone was deleted on \d{4}-\d\d-\d\d \(by .+, page\)"):
        store.trace("gone")
    (record,), count = store.deletions()
    assert (record.run_id, record.caller, count) == ("gone", PAGE, 1)
    assert record.deleted_at_utc is not None
    assert datetime.now(UTC) - record.deleted_at_utc < timedelta(minutes=1)
    assert store.trace("kept")[0].status == "completed"
    # No later event takes the place of one that was deleted.
    store.log.append_and_wait(*whole_run("later"))
    assert store.runs()[0].sequence > newest
    store.close()
    assert b'"run_id":"gone"' not in path.read_bytes()


def test_a_running_and_a_held_run_are_refused(url: str) -> None:
    store = open_store(url)
    store.log.append_and_wait(*whole_run("held"), *whole_run("free"), created("running"))
    store.hold(["held"], PAGE)
    assert store.held(["held", "free"]) == {"held"}
    outcome = store.delete(["held", "running", "free", "nobody"], PAGE)
    assert outcome.run_ids == ["free"]
    assert outcome.refused == {
        "held": "it is held: release it first",
        "running": "it is running: cancel it first",
        "nobody": "this run no longer exists",
    }
    requested = ApprovalRequested(run_id="running", number=1, of="plan", path=(), rules=("plan",), identity="i")
    store.log.append_and_wait(requested, RunWaiting(run_id="running"))
    waits = {"running": "it waits: deny or cancel it first"}
    assert store.delete(["running"], PAGE).refused == waits
    store.hold(["held"], PAGE, held=False)
    assert store.delete(["held"], PAGE).run_ids == ["held"]
    store.close()


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM events WHERE run_id = 'r'",
        "DELETE FROM deletions",
        "UPDATE deletions SET door = 'x'",
        "DELETE FROM holds",
        "UPDATE holds SET held = 0",
    ],
)
def test_the_database_itself_forbids_what_leaves_no_record(path: Path, url: str, statement: str) -> None:
    store = open_store(url)
    store.log.append_and_wait(*whole_run("r"), *whole_run("other"))
    store.hold(["r"], PAGE)
    store.delete(["other"], PAGE)
    store.close()
    connection = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="only ever added"):
        connection.execute(statement)
    # A deletion on record does not help against a hold.
    connection.execute(
        "INSERT INTO deletions (run_id, deleted_at_utc, door, created_at_utc, status, events, events_sha256) "
        "VALUES ('r', '', '', '', '', 0, '')"
    )
    with pytest.raises(sqlite3.IntegrityError, match="only ever added"):
        connection.execute("DELETE FROM events WHERE run_id = 'r'")
    connection.close()


def test_totals_count_what_a_search_finds_by_status(url: str) -> None:
    store = open_store(url)
    store.log.append_and_wait(*whole_run("a"), *whole_run("b"), created("c"))
    totals = store.totals()
    assert totals.statuses == {"completed": 2, "running": 1}
    assert totals.runs == 3
    assert totals.cost_usd == pytest.approx(sum(run.cost_usd or 0 for run in store.runs()))
    assert totals.tokens == sum(run.usage.total_tokens for run in store.runs())
    assert store.totals(search="no such words").statuses == {}
    store.close()


def test_the_cursor_of_a_date_begins_with_the_last_run_before_it(url: str) -> None:
    store = open_store(url)
    days = [datetime(2026, 1, day, 12, tzinfo=UTC) for day in (1, 2, 3)]
    for number, day in enumerate(days):
        store.log.append_and_wait(created(f"r{number}").model_copy(update={"at_utc": day}))
    cursor = store.cursor_at(datetime(2026, 1, 3, tzinfo=UTC))
    assert [run.run_id for run in store.runs(before=cursor)] == ["r1", "r0"]
    assert store.runs(before=store.cursor_at(datetime(2025, 1, 1, tzinfo=UTC))) == []
    store.close()


def test_a_batch_is_counted_by_its_tasks_latest_runs(url: str) -> None:
    store = open_store(url)

    def of_batch(run_id: str, row: str) -> None:
        _, *rest = whole_run(run_id)
        place = BatchRow(id="b", row=row, name="tasks.jsonl", size=3)
        store.log.append_and_wait(created(run_id, batch=place), *rest)

    store.log.append_and_wait(*whole_run("alone"))
    of_batch("one", "1")
    store.log.append_and_wait(created("two", batch=BatchRow(id="b", row="2", name="tasks.jsonl", size=3)))
    (batch,) = store.batches()
    assert (batch.name, batch.size, batch.statuses) == ("tasks.jsonl", 3, {"completed": 1, "running": 1})
    assert (batch.not_begun, batch.simulated) == (1, True)
    of_batch("one again", "1")
    assert store.batches()[0].statuses == {"completed": 1, "running": 1}
    assert store.batches()[0].runs == 3
    assert [run.run_id for run in store.runs(alone=True)] == ["alone"]
    assert len(store.runs(batch="b")) == 3
    store.delete(["one", "one again"], PAGE)
    assert store.batches()[0].statuses == {"running": 1}
    store.close()


DAMAGES = [
    "UPDATE runs SET created_at_utc = 'not a date'",
    "UPDATE runs SET created_at_utc = '2026-01-01T00:00:00'",
    "UPDATE runs SET created_at_utc = x'ff00'",
    "UPDATE runs SET batch_size = 'many'",
    "UPDATE runs SET batch_size = -5",
    "UPDATE runs SET batch_name = x'ff00'",
    "UPDATE runs SET input_tokens = -5, output_tokens = 'x'",
    "UPDATE runs SET status = 'of_a_later_version'",
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_row_of_a_batch_hides_neither_it_nor_others(path: Path, url: str, damage: str) -> None:
    store = open_store(url)
    for name in ("one", "other"):
        _, *rest = whole_run(name)
        place = BatchRow(id=f"batch of {name}", row="1", name=f"{name}.jsonl", size=1)
        store.log.append_and_wait(created(name, batch=place), *rest)
    store.close()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"{damage} WHERE batch_id = 'batch of one'")
    database.close()
    store = open_store(url)
    other, one = store.batches()
    assert (other.name, other.size, other.statuses) == ("other.jsonl", 1, {"completed": 1})
    assert (one.batch_id, one.size, one.runs) == ("batch of one", 1, 1)
    assert sum(one.statuses.values()) == 1
    assert [run.run_id for run in store.runs(batch="batch of one")] == ["one"]
    store.close()


@pytest.mark.parametrize("when", ["'not a date'", "x'ff'", "7", "'2026-01-01T00:00:00'"])
def test_a_damaged_deletion_is_listed_among_the_others(path: Path, url: str, when: str) -> None:
    store = open_store(url)
    store.log.append_and_wait(*whole_run("gone"))
    store.delete(["gone"], PAGE)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(
            "INSERT INTO deletions (run_id, deleted_at_utc, door, created_at_utc, status, events, events_sha256) "
            f"VALUES ('damaged', {when}, x'ff', '', '', 1, '')"
        )
    database.close()
    found, count = store.deletions()
    assert ([each.run_id for each in found], count) == (["damaged", "gone"], 2)
    assert found[0].deleted_at_utc is None
    assert found[1].deleted_at_utc is not None
    with pytest.raises(UnknownRun, match="run damaged was deleted"):
        store.trace("damaged")
    store.close()
