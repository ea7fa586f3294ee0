"""What is made to mislead, stall or exhaust the verifier, and faults of its own, which must not look like its input."""

import json
import os
import random
import shutil
import sqlite3
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import cryptography
import pytest

from benchmarks import mutated_bundles, tampering
from benchmarks.tampering import Laboratory
from conductor_core.errors import BadInput
from storage import Privacy
from storage.bundles import verifier_source
from storage.evidence import bundle_audit, database_audit, history, verifier
from storage.evidence.bundle_audit import FILES
from storage.evidence.checking import check_log
from storage.evidence.database_audit import Aligner, Row
from storage.evidence.history import CLASSES, Events, History, Report
from storage.evidence.verifier import verify
from storage.merkle.formats import NO_LEAF, event_leaf
from tests.support.command_line import log as verify_command
from tests.support.damaging import doctor


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    return tampering.laboratory(tmp_path_factory.mktemp("laboratory"), runs=4)


@pytest.fixture
def path(lab: Laboratory, tmp_path: Path) -> Path:
    """A copy of the laboratory's database."""
    return Path(shutil.copy(lab.path, tmp_path / "log.sqlite3"))


def quiet(what: str, count: int) -> None:
    pass


def told(lab: Laboratory, target: Path) -> Report:
    return verify(target, [lab.public], [lab.anchor], quiet)


def broken(*_: object) -> Any:
    raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "a fault of the verifier's own")


@pytest.mark.parametrize(
    ("module", "name"), [(verifier, "audit_database"), (history, "open_note"), (database_audit, "read_record")]
)
def test_a_fault_of_the_verifier_looks_like_no_bad_input_and_no_finding(
    lab: Laboratory, path: Path, monkeypatch: pytest.MonkeyPatch, module: object, name: str
) -> None:
    monkeypatch.setattr(module, name, broken)
    with pytest.raises(UnicodeDecodeError, match="of the verifier's own"):
        verifier.main([str(path), "--public-key", lab.public.line, "--anchor", str(lab.anchor)])
    with pytest.raises(UnicodeDecodeError, match="of the verifier's own"):
        check_log(path, [lab.public], [lab.anchor], Privacy().vault(path), quiet)


@pytest.mark.parametrize("edited", [2, 1], ids=["every second", "all"])
def test_the_time_for_many_edits_grows_with_the_log_alone(monkeypatch: pytest.MonkeyPatch, edited: int) -> None:
    monkeypatch.setattr(database_audit, "_TRIES", 1000)
    written, rows = History(), []
    head = NO_LEAF
    for number in range(3000):
        head = event_leaf(b"log", number, number + 1, b"0" * 64, head, b"now", b"kind", b"run")
        written.append(head, "run")
        digest = b"0" * 64 if number % edited else b"1" * 64
        rows.append(Row(number + 1, b"run", b"kind", b"now", digest))
    aligner, tries = Aligner(b"log", Events(written)), 0
    fits = aligner.fits

    def counted(index: int, row: Row) -> bool:
        nonlocal tries
        tries += 1
        return fits(index, row)

    monkeypatch.setattr(aligner, "fits", counted)
    found = aligner.align(rows, lambda seen: None)
    assert len(found.missing) == len(found.extra) == 3000 // edited
    assert tries < 40 * 3000 + 5 * 3000


def zipped(folder: Path, target: Path, method: int = zipfile.ZIP_DEFLATED, more: int = 0) -> Path:
    with zipfile.ZipFile(target, "w", method) as archive:
        for name in FILES:
            archive.write(folder / name, name)
        for number in range(more):
            archive.writestr(f"records/{number}", b"")
    return target


def test_a_bundle_that_would_exhaust_the_machine_is_refused(
    lab: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = mutated_bundles.export(lab, tmp_path / "bundle", ["run-1"])
    size = sum((folder / name).stat().st_size for name in FILES)
    file = zipped(folder, tmp_path / "bundle.zip", more=3)
    assert len(told(lab, file).findings) == 3, "it is read, and its further files are covered by nothing"

    def refused(target: Path, name: str, most: int) -> str:
        with monkeypatch.context() as bounded:
            bounded.setattr(bundle_audit, name, most)
            (finding,) = told(lab, target).findings
        return finding.what

    for target in (file, folder):
        assert f"say that they hold {size:,} bytes" in refused(target, "MOST_BYTES", size - 1)
        assert "more files than the 4 that" in refused(target, "MOST_FILES", 4)
        assert ".jsonl is too long" in refused(target, "MOST_LINE_BYTES", 300)
    with monkeypatch.context() as bounded:  # a folder in which a file grows while it is read
        bounded.setattr(bundle_audit, "sum", lambda sizes: 0, raising=False)
        assert "is too long" in refused(folder, "MOST_BYTES", size - 1)
    packed = zipped(folder, tmp_path / "lzma.zip", zipfile.ZIP_LZMA)
    assert "unpack the zip file, and check the folder" in told(lab, packed).findings[0].what


def test_a_zip_file_that_holds_more_than_it_says_is_refused(lab: Laboratory, tmp_path: Path) -> None:
    folder = mutated_bundles.export(lab, tmp_path / "bundle", ["run-1"])
    file = zipped(folder, tmp_path / "bundle.zip")
    with zipfile.ZipFile(file) as archive:
        size = archive.getinfo("events.jsonl").file_size
    raw = file.read_bytes()
    assert raw.count(size.to_bytes(4, "little")) == 2, "in the file's own head, and in the directory"
    file.write_bytes(raw.replace(size.to_bytes(4, "little"), (size // 2).to_bytes(4, "little")))
    assert {each.kind for each in told(lab, file).findings} == {"evidence"}


def test_a_bundle_that_nobody_would_read_is_not_written(
    lab: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, said in (("MOST_BYTES", "export fewer runs at once"), ("MOST_LINE_BYTES", "in one line of a bundle")):
        with monkeypatch.context() as bounded:
            bounded.setattr(bundle_audit, name, 400)
            with pytest.raises(BadInput, match=said):
                mutated_bundles.export(lab, tmp_path / name, ["run-1"])
    whole = mutated_bundles.export(lab, tmp_path / "whole", ["run-1"])
    monkeypatch.setattr(bundle_audit, "MOST_BYTES", sum((whole / name).stat().st_size for name in FILES))
    mutated_bundles.export(lab, tmp_path / "as long as is read", ["run-1"])


def test_a_changed_zip_file_is_never_accepted(lab: Laboratory, tmp_path: Path) -> None:
    file, folder = mutated_bundles.export_whole(lab, tmp_path, ["run-1", "run-2"])
    assert told(lab, file).ok
    assert told(lab, folder).ok
    assert list(mutated_bundles.accepted_archives(lab, file, 300, random.Random(5))) == []
    assert list(mutated_bundles.accepted_mutants(lab, folder, 300, random.Random(6))) == []


@pytest.mark.parametrize("strange", ["a link", "a pipe", "another name"])
def test_a_folder_with_anything_but_plain_files_is_refused(lab: Laboratory, tmp_path: Path, strange: str) -> None:
    folder = mutated_bundles.export(lab, tmp_path / "bundle", ["run-1"])
    if strange == "a link":
        (folder / "events.jsonl").rename(tmp_path / "events.jsonl")
        (folder / "events.jsonl").symlink_to(tmp_path / "events.jsonl")
    elif strange == "a pipe":
        os.mkfifo(folder / "pipe")
    else:
        (folder / "Events.jsonl").write_bytes(b"")
    (finding,) = told(lab, folder).findings
    assert "not a plain file" in finding.what or "differ in case alone" in finding.what


@pytest.mark.parametrize(
    ("statement", "kinds"),
    [
        ("UPDATE leaves SET run_id = CAST(x'ff' AS TEXT) WHERE position = 20", {"evidence"}),
        ("UPDATE leaves SET hash = x'00' WHERE position = 20", {"evidence"}),
        ("UPDATE checkpoints SET note = CAST(x'ff' AS TEXT)", {"unsigned"}),
        ("UPDATE evidence_log SET origin = CAST(x'ff' AS TEXT)", {"unsigned"}),
        ("UPDATE events SET run_id = CAST(x'ff' AS TEXT) WHERE sequence = 20", {"swapped"}),
    ],
)
def test_bytes_that_are_no_text_are_findings(lab: Laboratory, path: Path, statement: str, kinds: set[str]) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        tampering._drop_triggers(connection)
        connection.execute(statement)
    report = told(lab, path)
    assert {each.kind for each in report.findings} == kinds


@pytest.mark.parametrize(
    "change",
    [
        lambda line: line | {"runs": ["\ud800"] * len(line["runs"])},
        lambda line: line | {"checkpoint": "\ud800"},
        lambda line: line | {"checkpoint": 1},
        lambda line: line | {"of": [True] * len(line["of"])},
        lambda line: line | {"from": "0"},
        lambda line: [line],
    ],
)
def test_an_odd_line_of_the_anchor_is_passed_over_with_a_note(
    lab: Laboratory, tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    anchor = tmp_path / "anchor.jsonl"
    first, *others = lab.anchor.read_text().splitlines()
    anchor.write_text("\n".join([first, json.dumps(change(json.loads(first))), *others]) + "\n")
    report = verify(lab.path, [lab.public], [anchor], quiet)
    assert (report.findings, report.unanchored_events) == ([], 0)
    assert [note for note in report.notes if "line 2 is passed over: " in note]


def test_an_unverified_tail_is_said(lab: Laboratory, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    anchor = tmp_path / "anchor.jsonl"
    anchor.write_text(lab.anchor.read_text().splitlines()[0] + "\n")
    given = [str(lab.path), "--public-key", lab.public.line, "--anchor", str(anchor)]
    assert verifier.main([*given, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert 0 < shown["unanchored_events"] < shown["verified_events"], "the database has a checkpoint of its own"
    assert verifier.main(given) == 0
    assert f"{shown['unanchored_events']:,} events are covered by no checkpoint" in capsys.readouterr().out


def test_a_long_check_says_how_far_it_is(
    lab: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(database_audit, "_TICK_ROWS", 1)
    monkeypatch.setattr(verifier, "_PROGRESS_S", 0.0)
    folder = mutated_bundles.export(lab, tmp_path / "bundle", ["run-1"])
    for target in (lab.path, folder):
        assert verifier.main([str(target), "--public-key", lab.public.line, "--anchor", str(lab.anchor)]) == 0
        assert "7 events checked" in capsys.readouterr().err.splitlines()
    assert verifier.main([str(lab.path), "--public-key", lab.public.line]) == CLASSES["anchor"]
    assert "7 entries checked" in capsys.readouterr().err.splitlines()


@pytest.mark.parametrize("output", [[], ["--json"]], ids=["text", "json"])
def test_the_one_file_prints_any_signs_in_a_plain_locale(
    lab: Laboratory, path: Path, tmp_path: Path, output: list[str]
) -> None:
    doctor(path, "UPDATE events SET run_id = 'läuft\u2028' WHERE sequence = 20")
    file = tmp_path / "verify.py"
    file.write_text(verifier_source(), encoding="utf-8")
    packages = str(Path(cryptography.__file__).parents[1])
    program = f"import runpy, sys; sys.path.append({packages!r}); sys.argv = sys.argv[1:]; "
    program += "runpy.run_path(sys.argv[0], run_name='__main__')"
    plain = {"PATH": os.environ["PATH"], "LC_ALL": "POSIX", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    command = [sys.executable, "-S", "-c", program, str(file), str(path), "--public-key", lab.public.line]
    done = subprocess.run(
        [*command, "--anchor", str(lab.anchor), *output], env=plain, cwd=tmp_path, capture_output=True, timeout=60
    )
    assert done.stderr == b""
    said = json.loads(done.stdout)["findings"][0]["what"] if output else done.stdout.decode("ascii")
    assert ("läuft\u2028" if output else r"l\xe4uft\u2028") in said


def test_a_database_that_is_none_of_ours_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "other.sqlite3"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TABLE evidence_log (origin, covered_from)")
    key = tmp_path / "key"
    key.write_bytes(b"\xff")
    assert verifier.main([str(file), "--public-key", str(key)]) == verifier.BAD_INPUT
    assert "no Ed25519 key of the form" in capsys.readouterr().err
    good = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
    assert verifier.main([str(file), "--public-key", good]) == verifier.BAD_INPUT
    assert "the table evidence_log has no valid row" in capsys.readouterr().err


def test_a_database_that_changes_when_it_is_opened_is_not_all_right(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rollback journal lies beside it, whose pages whoever opens it for writing puts in place of the checked ones."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    page = path.read_bytes()[: (size := int.from_bytes(path.read_bytes()[16:18]))]
    pages = path.stat().st_size // size
    head = bytes.fromhex("d9d505f920a163d7") + struct.pack(">5I", 1, 0, pages, 512, size)
    checksum = sum(page[at] for at in range(size - 200, 0, -200))
    journal = path.with_name(f"{path.name}-journal")
    journal.write_bytes(head.ljust(512, b"\0") + struct.pack(">I", 1) + page + struct.pack(">I", checksum))
    assert verify_command(["verify", "--db", str(path)]) == 2
    assert "changes it as soon as it is opened" in capsys.readouterr().err
