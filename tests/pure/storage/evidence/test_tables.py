"""Every table of a database against events and records; what cannot be read is a finding, and the rest is checked."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.changed_cells import Pristine, pristine, trial
from storage import open_store
from storage.database.schema import HEAD
from storage.encoding import SnapshotRow, _sha256
from storage.evidence.derived import made
from tests.support.command_line import log as main
from tests.support.damaging import doctor, past_triggers

SIDE = sorted(made(HEAD)[1].keys() - {"events", "leaves", "evidence_log"})
TEXTS = [(table, name) for table in SIDE for name, kind, _ in made(HEAD)[1][table] if kind in ("TEXT", "VARCHAR")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Pristine:
    return pristine(tmp_path_factory.mktemp("made") / "kept")


@pytest.fixture
def path(whole: Pristine, tmp_path: Path) -> Path:
    shutil.copytree(whole.path.parent, tmp_path / "copy")
    return tmp_path / "copy" / whole.path.name


def found(path: Path, capsys: pytest.CaptureFixture[str]) -> list[tuple[str, str | None, str]]:
    capsys.readouterr()
    assert main(["verify", "--db", str(path), "--json"]) in (0, 1)
    findings = json.loads(capsys.readouterr().out)["findings"]
    return [(each["class"], each["run_id"], each["what"]) for each in findings]


def test_what_the_program_wrote_is_found_without_a_fault(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert found(path, capsys) == []
    assert main(["verify", "--db", str(path), "--public-key", key_of(path, capsys)]) == 0


def advice(table: str) -> str:
    return "; `python -m storage search --rebuild` mends it" if table.startswith("search_") else ""


def key_of(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(["key", "--db", str(path)]) == 0
    return capsys.readouterr().out.splitlines()[0]


@pytest.mark.parametrize(("table", "column"), TEXTS)
def test_a_bad_byte_in_a_side_table_does_not_end_the_check(
    path: Path, table: str, column: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with past_triggers(path) as connection:
        connection.execute("UPDATE events SET payload = payload || ' ' WHERE run_id = 'late'")
        connection.execute("UPDATE runs SET pool = 'other' WHERE run_id = 'first'")
        rowid = "run" if table == "search_facets" else "rowid"
        connection.execute(
            f"UPDATE OR IGNORE {table} SET {column} = CAST(x'61ff' AS TEXT) "
            f"WHERE {rowid} = (SELECT max({rowid}) FROM {table})"
        )
    said = found(path, capsys)
    assert "edited" in {kind for kind, *_ in said}
    assert (table, column) == ("runs", "run_id") or "pool" in {what.split(": ")[-1] for _, _, what in said}


@pytest.mark.parametrize("table", sorted(made(HEAD)[1]))
def test_a_missing_table_is_a_finding(path: Path, table: str, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"DROP TABLE {table}")
    assert ("schema", None, f"the table {table} is missing{advice(table)}") in found(path, capsys)


@pytest.mark.parametrize(
    ("table", "column"),
    [(table, made(HEAD)[1][table][-1][0]) for table in SIDE if table != "alembic_version"],
)
def test_a_missing_column_is_a_finding(path: Path, table: str, column: str, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA legacy_alter_table=ON")
        connection.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO gone")
    assert ("schema", None, f"the table {table} is not as this program makes it{advice(table)}") in found(path, capsys)


def test_triggers_that_are_gone_or_were_added_are_found(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TRIGGER events_no_delete")
        connection.execute("DROP INDEX ix_runs_created_at_utc")
        connection.execute("CREATE TRIGGER hide AFTER INSERT ON events BEGIN DELETE FROM snapshots; END")
        connection.execute("CREATE VIEW more AS SELECT 1")
        connection.execute("DROP TRIGGER events_no_update")
        connection.execute("CREATE TRIGGER events_no_update BEFORE UPDATE ON events BEGIN SELECT 1; END")
    assert [what for kind, _, what in found(path, capsys) if kind == "schema"] == [
        "the index ix_runs_created_at_utc is missing",
        "the trigger events_no_delete is missing",
        "the trigger events_no_update is not as this program makes it",
        "the trigger hide was added: this program makes none of that name",
        "the view more was added: this program makes none of that name",
    ]


@pytest.mark.parametrize(
    ("statement", "kind", "says"),
    [
        ("UPDATE events SET position = NULL WHERE sequence = 9", "evidence", "names another leaf than its own"),
        ("UPDATE events SET position = position + 1 WHERE sequence = 9", "evidence", "names another leaf"),
        ("UPDATE events SET position = 3 WHERE run_id = 'first'", "evidence", "as 11 other events do"),
        ("DELETE FROM events WHERE run_id = 'secret-erased'", "deleted", "12 events that the erased run kept, 12"),
        (
            "DELETE FROM events WHERE run_id = 'secret-erased' AND kind = 'run.created'",
            "deleted",
            "kept, 1 are missing",
        ),
        ("UPDATE events SET run_id = CAST(run_id AS BLOB) WHERE run_id = 'first'", "edited", "values of other types"),
        ("UPDATE events SET payload = CAST(payload AS BLOB) WHERE sequence = 30", "edited", "values of other types"),
        ("UPDATE leaves SET record = CAST(record AS BLOB) WHERE record LIKE '%held%'", "evidence", "of other types"),
        ("UPDATE leaves SET hash = zeroblob(32) WHERE position = 9", "evidence", "is not as published"),
        ("UPDATE sqlite_sequence SET seq = seq + 5 WHERE name = 'events'", "evidence", "the next would get another"),
        ("UPDATE sqlite_sequence SET seq = 0 WHERE name = 'holds'", "schema", "the last number of the table holds"),
        ("INSERT INTO evidence_log VALUES ('another', 1)", "evidence", "evidence_log has no valid row"),
        ("UPDATE evidence_log SET covered_from = 0", "evidence", "and the log from 1 on"),
        ("UPDATE alembic_version SET version_num = '9999'", "schema", "version '9999', which this program"),
        ("DELETE FROM alembic_version", "schema", "does not say of which version it is"),
        ("UPDATE runs SET owner_id = hex(zeroblob(16)) WHERE run_id = 'first'", "derived", "its events: owner_id"),
        ("UPDATE runs SET owner_id = '' WHERE run_id = 'running'", "derived", "its events: owner_id"),
        ("UPDATE runs SET vocabulary = 'x' WHERE run_id = 'first'", "derived", "its events: vocabulary"),
        ("UPDATE runs SET batch_name = 'x' WHERE run_id = 'row-2'", "derived", "its events: batch_name"),
        ("UPDATE runs SET task = CAST(task AS BLOB) WHERE run_id = 'first'", "derived", "its events: task"),
        ("UPDATE contents SET media_type = 'image/gif'", "derived", "is kept as one of another type"),
        ("UPDATE contents SET data = x'00' WHERE created_at_utc > ''", "derived", "is not as it was kept"),
        ("INSERT INTO run_contents SELECT 'first', sha256 FROM contents", "derived", "an image that it does not name"),
        ("DELETE FROM contents", "derived", "an image of the run is missing"),
        ("UPDATE search_state SET reached = 1000000", "derived", "goes further than the events do"),
        ("UPDATE search_state SET reached = x'00'", "derived", "does not say how far"),
        ("DELETE FROM search_state", "derived", "does not say how far"),
        ("UPDATE search_calls SET id = 1000 WHERE id = 1", "derived", "differs from the events of the run: calls"),
    ],
)
def test_a_value_that_says_otherwise_than_the_log_is_found(
    path: Path, statement: str, kind: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    doctor(path, statement)
    said = found(path, capsys)
    assert [what for each, _, what in said if each == kind and says in what], said


def test_a_snapshot_that_was_forged_with_its_digest_is_found(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = ", ".join(SnapshotRow._fields)
    with past_triggers(path) as connection:
        row = SnapshotRow(*connection.execute(f"SELECT {columns} FROM snapshots WHERE run_id = 'first'").fetchone())
        forged = row._replace(trace=str(row.trace).replace("42, checked", "43, checked"))
        forged = forged._replace(sha256=_sha256(*forged[:-1]))
        connection.execute(f"REPLACE INTO snapshots ({columns}) VALUES (?, ?, ?, ?, ?, ?)", forged)
    with closing(open_store(f"sqlite:///{path}")) as store:
        assert store.read("first").answer == "43, checked", "readers trust it"
    assert found(path, capsys) == [("derived", "first", "the snapshot of the run says other things than its events")]


@pytest.mark.parametrize("part", range(4))
def test_no_change_of_a_single_cell_changes_an_answer_without_a_finding(
    whole: Pristine, tmp_path: Path, part: int
) -> None:
    for seed in range(100 * part, 100 * part + 60):
        result = trial(whole, tmp_path / "changed", seed)
        assert result.good, f"seed {seed}: {result.change}: {result.broken or result.silent}"
