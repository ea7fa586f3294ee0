"""What somebody changed in a database is found, named and located; what only the program wrote raises no alarm."""

import json
import random
import shutil
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks import mutated_bundles, tampered_tables, tampering
from benchmarks.changed_cells import write_bundle
from benchmarks.tampered_tables import ATTACKERS
from benchmarks.tampering import CLASSES, LOCATED, Laboratory
from storage.evidence.bundle_audit import json_line
from storage.evidence.history import Finding
from storage.evidence.verifier import verify
from storage.merkle.formats import record_leaf


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    return tampering.laboratory(tmp_path_factory.mktemp("laboratory"))


@pytest.mark.parametrize("attacker", ATTACKERS)
@pytest.mark.parametrize("how", CLASSES)
def test_a_change_of_each_class_by_each_attacker(lab: Laboratory, tmp_path: Path, how: str, attacker: str) -> None:
    path = tmp_path / "changed.sqlite3"
    change = tampering.attack(lab, path, how, attacker, random.Random(f"{how} {attacker}"))
    report = tampering.check(lab, path)
    assert tampering.missed(change, report, located=change.classes[0] in LOCATED) == "", report.findings


def test_a_skilled_change_is_found_by_nobody_without_the_anchor(lab: Laboratory, tmp_path: Path) -> None:
    """Why checkpoints are published elsewhere: with the key, all that is in the database can be made to fit."""
    path = tmp_path / "changed.sqlite3"
    tampering.attack(lab, path, "edit", "key", random.Random(1))
    report = verify(path, [lab.public], [], lambda what, count: None)
    assert [each.kind for each in report.findings] == ["anchor"], "all that it says is that the anchor is missing"
    assert report.unanchored_events == 96
    assert any("no anchor was given" in note for note in report.notes)


@pytest.mark.parametrize(
    ("statement", "kinds"),
    [
        ("UPDATE events SET run_id = 'run-5' WHERE sequence = :move", {"swapped"}),
        ("UPDATE events SET payload = payload || ' ' WHERE sequence = :move", {"edited"}),
        ("DELETE FROM events WHERE sequence = :move", {"deleted"}),
        ("DELETE FROM events WHERE sequence = :last", {"truncated"}),
        (
            "INSERT INTO events (run_id, kind, at_utc, payload) "
            "SELECT run_id, kind, at_utc, payload || ' ' FROM events WHERE sequence = :move",
            {"inserted"},
        ),
        ("UPDATE leaves SET record = '{}' WHERE record LIKE '%content.exported%'", {"evidence"}),
    ],
)
def test_an_older_copy_is_named_whatever_else_was_done_to_it(
    lab: Laboratory, tmp_path: Path, statement: str, kinds: set[str]
) -> None:
    for source, kind in ((lab.older, "rolled_back"), (lab.forked, "fork")):
        path = tmp_path / f"{kind}.sqlite3"
        shutil.copy(source, path)
        with closing(sqlite3.connect(lab.older)) as connection:
            ((last, move),) = connection.execute(
                "SELECT max(sequence), (SELECT sequence FROM events WHERE run_id = 'run-1' LIMIT 1) FROM events"
            )
        if kind == "fork" and ("INSERT" in statement or ":last" in statement):
            continue  # in a history that goes on, neither can be told from the fork itself
        with closing(sqlite3.connect(path)) as connection, connection:
            tampering._drop_triggers(connection)
            connection.execute(statement, {"move": move, "last": last})
        report = tampering.check(lab, path)
        found = [each.kind for each in report.findings if "checkpoints in the database" not in each.what]
        assert set(found) == {kind, *kinds}
        assert found.count(kind) == 1
        many = sum(each in found for each in kinds) if kinds != {"evidence"} else found.count("evidence")
        assert len(found) == 1 + many, report.findings


def test_databases_that_only_the_program_wrote(tmp_path: Path) -> None:
    rng = random.Random(3)
    for _ in range(5):
        report = tampering.clean(tmp_path, rng)
        assert report.findings == []
        assert report.unanchored_events == 0


@pytest.mark.parametrize("sequence", [-999, 0, 1])
def test_an_invented_run_from_before_the_evidence_is_found_in_a_bundle(
    lab: Laboratory, tmp_path: Path, sequence: int
) -> None:
    bundle = mutated_bundles.export(lab, tmp_path / "bundle", ["run-1"])
    manifest = json.loads((bundle / "bundle.json").read_text())
    invented = json.loads((bundle / "events.jsonl").read_text().splitlines()[0])
    invented |= {"run_id": "invented", "sequence": sequence, "place": None, "position": None}
    manifest["runs"].append("invented")
    (bundle / "bundle.json").write_text(json_line(manifest) + "\n")
    with (bundle / "events.jsonl").open("a") as file:
        file.write(json_line(invented) + "\n")
    report = verify(bundle, [lab.public], [lab.anchor], lambda what, count: None)
    assert [(each.kind, each.what) for each in report.findings] == [
        ("evidence", "the bundle cannot be read: events.jsonl has a line that is not an event")
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE leaves SET hash = 12 WHERE position = 5",
        """UPDATE leaves SET record = '{"kind":"run.deleted"}' WHERE position = 0""",
        """UPDATE leaves SET record = '{"kind":"run.deleted"}' WHERE record LIKE '%run.sealed%'""",
        "UPDATE leaves SET record = CAST(x'ff' AS TEXT) WHERE record LIKE '%run.sealed%'",
    ],
)
def test_odd_evidence_is_a_finding_and_stops_neither_check_nor_export(
    lab: Laboratory, tmp_path: Path, statement: str
) -> None:
    path = tmp_path / "changed.sqlite3"
    shutil.copy(lab.path, path)
    with closing(sqlite3.connect(path)) as connection, connection:
        tampering._drop_triggers(connection)
        connection.execute(statement)
    assert "evidence" in {each.kind for each in verify(path, [lab.public], [], lambda what, count: None).findings}
    if "hash" not in statement:
        (tmp_path / "bundle").mkdir()
        with closing(sqlite3.connect(path)) as connection:
            write_bundle(connection, ["run-1"], lab.public, tmp_path / "bundle")


def test_a_seal_that_does_not_fit_its_events_is_found(lab: Laboratory, tmp_path: Path) -> None:
    path = tmp_path / "changed.sqlite3"
    shutil.copy(lab.path, path)
    with closing(sqlite3.connect(path)) as connection, connection:
        tampering._drop_triggers(connection)
        query = "SELECT position, record FROM leaves WHERE run_id = 'run-1' AND record LIKE '%run.sealed%'"
        ((position, record),) = connection.execute(query).fetchall()
        record = record.replace('"events":12', '"events":11')
        leaf = record_leaf(lab.public.name.encode(), record.encode())
        connection.execute("UPDATE leaves SET record = ?, hash = ? WHERE position = ?", (record, leaf, position))
    findings = verify(path, [lab.public], [], lambda what, count: None).findings
    wrong = Finding("evidence", "run-1", None, "the seal of the run does not fit its events")
    assert wrong in findings
    assert {each.kind for each in findings if each != wrong} == {"fork", "anchor"}, "no checkpoint is signed for it"


def test_a_damaged_lzma_bundle_is_a_finding(lab: Laboratory, tmp_path: Path) -> None:
    bundle = mutated_bundles.export(lab, tmp_path / "bundle", ["run-1"])
    file = tmp_path / "bundle.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_LZMA) as archive:
        for each in bundle.iterdir():
            archive.write(each, each.name)
    raw = bytearray(file.read_bytes())
    raw[80:200] = bytes([255]) * 120
    file.write_bytes(raw)
    report = verify(file, [lab.public], [lab.anchor], lambda what, count: None)
    assert [each.kind for each in report.findings] == ["evidence"]


def test_a_changed_bundle_is_never_accepted(lab: Laboratory, tmp_path: Path) -> None:
    bundle = mutated_bundles.export(lab, tmp_path / "bundle", ["run-1", "run-4"])
    report = verify(bundle, [lab.public], [lab.anchor], lambda what, count: None)
    assert (report.findings, report.verified_events, report.unanchored_events) == ([], 24, 0)
    rng = random.Random(4)
    assert list(mutated_bundles.accepted_mutants(lab, bundle, 1000, rng)) == []


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tampered_tables.Laboratory:
    return tampered_tables.laboratory(tmp_path_factory.mktemp("tables") / "kept")


@pytest.mark.parametrize("attacker", ATTACKERS)
@pytest.mark.parametrize("how", tampered_tables.CLASSES)
def test_a_change_beside_the_events_of_each_class_by_each_attacker(
    tables: tampered_tables.Laboratory, tmp_path: Path, how: str, attacker: str
) -> None:
    rng = random.Random(f"{how} {attacker}")
    assert tampered_tables.trial(tables, tmp_path / "changed", how, attacker, rng) == ""
