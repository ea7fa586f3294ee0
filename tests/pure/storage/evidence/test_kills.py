"""Processes that are killed while they write, and a WAL whose end is lost; ``benchmarks/killed_logs.py`` does more."""

import random
import shutil
from pathlib import Path

from benchmarks import killed_logs
from storage import open_store
from tests.support.damaging import doctor
from tests.support.run_events import whole_run


def test_a_hundred_killed_processes_lose_no_acknowledged_event_and_break_no_chain(tmp_path: Path) -> None:
    assert list(killed_logs.kills(tmp_path, 100, random.Random(1))) == []


def test_an_event_that_was_acknowledged_and_is_not_there_is_a_fault(tmp_path: Path) -> None:
    path, promised = tmp_path / "log.sqlite3", tmp_path / "log.promised"
    store = open_store(f"sqlite:///{path}")
    store.log.append_and_wait(*whole_run("r"))
    store.close()
    promised.write_text("r\n" * 12)
    assert list(killed_logs.faults(path, promised)) == []
    promised.write_text("r\n" * 13)
    assert list(killed_logs.faults(path, promised)) == ["run r has 12 events, and 13 were acknowledged"]
    doctor(path, "DELETE FROM events WHERE sequence = 4")
    found = list(killed_logs.faults(path, promised))
    assert [each.partition(":")[0] for each in found[:2]] == ["deleted", "run r has other events"]


def test_a_wal_that_is_cut_at_any_commit_is_whole_up_to_there_and_an_anchored_loss_is_named(tmp_path: Path) -> None:
    found = list(killed_logs.cuts(tmp_path, 60))
    assert [wrong for _, _, wrong in found if wrong] == []
    left = [entries for entries, _, _ in found]
    assert left == sorted(left)
    assert sum(known for _, known, _ in found) >= 35, "cuts into what was published"
    assert sum(not known for _, known, _ in found) >= 20, "cuts into what was not"


def test_a_cut_that_loses_an_acknowledged_event_is_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite3"
    store = open_store(f"sqlite:///{path}")
    store.log.append_and_wait(*whole_run("r"))
    wal = path.with_name(f"{path.name}-wal").read_bytes()
    copy = tmp_path / "copy" / path.name
    copy.parent.mkdir()
    shutil.copy(path, copy)
    assert killed_logs._cut(copy, wal, 12, 0)[2] == ""
    assert killed_logs._cut(copy, wal, 13, 0)[2] == "1 acknowledged events are lost"
    assert "14 of 99 anchored entries" in killed_logs._cut(copy, wal, 12, 99)[2]
    store.close()
