"""Who deleted, erased and held which run, as the tables say it, against the log."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from conductor_core.run.actor import local_caller
from storage import open_store
from tests.support.command_line import log as main
from tests.support.damaging import doctor, past_triggers
from tests.support.run_events import whole_run

RUNS = ("a", "b", "c", "d")
OTHERWISE = {
    "run_id": "'another'",
    "deleted_at_utc": "'2020-01-01T00:00:00+00:00'",
    "at_utc": "'2020-01-01T00:00:00+00:00'",
    "actor": """'{"kind":"local","id":"eve","name":"eve"}'""",
    "door": "'page'",
    "created_at_utc": "'2020-01-01T00:00:00+00:00'",
    "status": "'failed'",
    "events": "events + 1",
    "events_sha256": f"'{'0' * 64}'",
    "erased": "1 - erased",
    "held": "1 - held",
}
OF_DELETIONS = sorted(OTHERWISE.keys() - {"at_utc", "held"})
OF_HOLDS = ("run_id", "at_utc", "actor", "door", "held")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database in which one run was deleted, one erased, one is held, and one was held and released."""
    path = tmp_path_factory.mktemp("made") / "runs.sqlite3"
    with closing(open_store(f"sqlite:///{path}")) as store:
        for run_id in RUNS:
            store.log.append_and_wait(*whole_run(run_id))
        caller = local_caller("cli")
        store.hold(["c", "d", "a"], caller)
        store.hold(["d", "a"], caller, held=False)
        store.delete(["a"], caller)
        store.erase(["b"], caller)
    return path


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made.parent, tmp_path / "copy")
    return tmp_path / "copy" / made.name


def changed(path: Path, statement: str) -> None:
    with past_triggers(path) as connection:
        assert connection.execute(statement).rowcount == 1


def found(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    capsys.readouterr()
    code = main(["verify", "--db", str(path), "--json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert (code != 0) == bool(findings)
    assert {each["class"] for each in findings} <= {"derived"}
    return {each["run_id"]: each["what"] for each in findings}


def test_what_the_program_wrote_is_found_without_a_fault(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert found(path, capsys) == {}


@pytest.mark.parametrize("run_id", ["a", "b"])
@pytest.mark.parametrize("column", OF_DELETIONS)
def test_a_deletion_that_was_changed_is_found(
    path: Path, column: str, run_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    changed(path, f"UPDATE deletions SET {column} = {OTHERWISE[column]} WHERE run_id = '{run_id}'")
    assert "deletions" in found(path, capsys)[run_id]


@pytest.mark.parametrize("column", ["status", "events", "door", "actor", "deleted_at_utc"])
def test_bytes_in_place_of_a_text_are_a_finding(path: Path, column: str, capsys: pytest.CaptureFixture[str]) -> None:
    changed(path, f"UPDATE deletions SET {column} = x'00ff' WHERE run_id = 'a'")
    assert "deletions" in found(path, capsys)["a"]


@pytest.mark.parametrize("column", OF_HOLDS)
@pytest.mark.parametrize(("number", "run_id"), [(1, "c"), (2, "d"), (4, "d")])
def test_a_hold_that_was_changed_is_found(
    path: Path, column: str, number: int, run_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    changed(path, f"UPDATE holds SET {column} = {OTHERWISE[column]} WHERE id = {number}")
    assert "of holds" in found(path, capsys)[run_id]


@pytest.mark.parametrize(("table", "run_id"), [("deletions", "a"), ("deletions", "b"), ("holds", "c")])
def test_an_entry_that_is_gone_or_was_added_is_found(
    path: Path, table: str, run_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(path)) as connection:
        row = connection.execute(f"SELECT * FROM {table} WHERE run_id = ?", (run_id,)).fetchone()
        names = [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]
    of_another = [
        99 if name == "id" else "z" if name == "run_id" else value for name, value in zip(names, row, strict=True)
    ]
    changed(path, f"DELETE FROM {table} WHERE run_id = '{run_id}'")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})", of_another)
    said = found(path, capsys)
    assert f"the table of {table} does not" in said[run_id]
    assert said["z"] == f"the table of {table} has the run, and no record in the log does"


def test_a_row_for_a_run_that_lives_is_found(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    doctor(
        path,
        "INSERT INTO deletions SELECT -1, 'c', deleted_at_utc, door, created_at_utc, status, events, events_sha256, "
        "actor, erased FROM deletions WHERE run_id = 'a'",
    )
    assert found(path, capsys)["c"] == "the table of deletions has the run, and no record in the log does"


@pytest.mark.parametrize(
    "change",
    [
        "input_tokens = 7",
        "agents = '[]'",
        "created_at_utc = '2020-01-01T00:00:00+00:00'",
        "pool = 'other'",
        "steps = 9",
    ],
)
def test_what_an_erased_run_keeps_in_its_row_is_compared(
    path: Path, change: str, capsys: pytest.CaptureFixture[str]
) -> None:
    doctor(path, f"UPDATE runs SET {change} WHERE run_id = 'b'")
    assert found(path, capsys) == {"b": "the row of the erased run is not as it was left"}
