"""The connections that read: how many there are, what each sees, and what becomes of them."""

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from storage import Store
from tests.support.run_events import created, whole_run


async def test_more_threads_than_connections_read_at_once_and_wait_for_their_turn(store: Store) -> None:
    await store.log.append(*whole_run("r"))
    threads, inside, most = 80, set[int](), []
    begin = threading.Barrier(threads)

    def read(number: int) -> int:
        begin.wait()
        with store._database.reading() as connection:
            inside.add(number)
            most.append(len(inside))
            ((count,),) = connection.execute("SELECT count(*) FROM events")
            inside.remove(number)
        return int(count)

    with ThreadPoolExecutor(threads) as pool:
        assert set(pool.map(read, range(threads))) == {len(whole_run("r"))}
    assert max(most) <= 32
    assert 1 <= len(store._database._idle) <= 32


async def test_a_reader_that_broke_off_in_the_middle_does_not_keep_the_next_at_its_moment(store: Store) -> None:
    half_read: list[sqlite3.Cursor] = []

    def break_off() -> None:
        with store._database.reading() as connection:
            half_read.append(connection.execute("SELECT sequence FROM events"))
            assert half_read[0].fetchone() == (1,)
            raise ZeroDivisionError

    await store.log.append(*whole_run("r"))
    with pytest.raises(ZeroDivisionError):
        break_off()
    await store.log.append(created("later"))
    assert [run.run_id for run in store.runs()] == ["later", "r"]


async def test_a_connection_that_is_out_when_the_store_is_closed_is_closed_when_it_comes_back(store: Store) -> None:
    with store._database.reading() as connection:
        store.close()
        assert connection.execute("SELECT 1").fetchone() == (1,)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")


async def test_what_a_short_command_asks_is_answered_by_an_index_and_not_by_all_rows(store: Store) -> None:
    await store.log.append(*whole_run("r"), created("s"))
    statements: list[str] = []
    with store._database.reading() as connection:
        connection.set_trace_callback(statements.append)
    store.mark_interrupted()
    assert store.resolve("r") == "r"
    store.cursor_at(datetime.now(UTC))
    store.runs(status="failed")
    store.runs(batch="b", before=9)
    store.runs(parent="r", alone=True)
    store.held(["r"])
    with store._database.reading() as connection:
        connection.set_trace_callback(None)
        plans = {each: connection.execute(f"EXPLAIN QUERY PLAN {each}").fetchall() for each in statements}
    assert len(plans) >= 7
    assert {each for each, plan in plans.items() if any(step.startswith("SCAN") for *_, step in plan)} == set()
