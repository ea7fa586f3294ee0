"""What somebody changed in a bundle is named with its run, its event and why, and a good bundle raises no alarm."""

import hashlib
import json
import random
import zipfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from benchmarks import mutated_bundles, tampering
from benchmarks.tampering import Laboratory
from conductor_core.run.values import Imported
from storage import Privacy, open_store
from storage.bundles import export_runs
from storage.evidence.bundle_audit import FILES, json_line
from storage.evidence.verifier import verify
from tests.support.command_line import log as main
from tests.support.run_events import PAGE, created, whole_run

Line = dict[str, Any]
Found = tuple[str, str | None, int | None, str]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    return tampering.laboratory(tmp_path_factory.mktemp("laboratory"), runs=4)


def found(lab: Laboratory, bundle: Path) -> list[Found]:
    report = verify(bundle, [lab.public], [lab.anchor], lambda what, count: None)
    return [(each.kind, each.run_id, each.sequence, each.what) for each in report.findings]


def without_the_third(lines: list[Line]) -> list[Found]:
    del lines[2]
    return [("deleted", "run-1", lines[2]["sequence"], "event 2 of the run should come before this one")]


def in_another_order(lines: list[Line]) -> list[Found]:
    lines[2], lines[3] = lines[3], lines[2]
    return [
        ("deleted", "run-1", lines[2]["sequence"], "event 2 of the run should come before this one"),
        ("reordered", "run-1", lines[3]["sequence"], "the events of the run are not in their order"),
    ]


def of_another_key(lines: list[Line]) -> list[Found]:
    lines[0]["key"] = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
    return [("evidence", None, None, "bundle.json names another log or key than the checkpoint's")]


@pytest.mark.parametrize(
    ("name", "change"),
    [("events.jsonl", without_the_third), ("events.jsonl", in_another_order), ("bundle.json", of_another_key)],
)
def test_what_was_changed_is_named(
    lab: Laboratory, tmp_path: Path, name: str, change: Callable[[list[Line]], list[Found]]
) -> None:
    bundle = mutated_bundles.export(lab, tmp_path / "bundle", ["run-1"])
    assert found(lab, bundle) == []
    lines = [json.loads(line) for line in (bundle / name).read_text().splitlines()]
    named = change(lines)
    (bundle / name).write_text("".join(f"{json_line(line)}\n" for line in lines))
    assert found(lab, bundle)[: len(named)] == named


def test_a_file_that_was_changed_added_or_removed_is_named(lab: Laboratory, tmp_path: Path) -> None:
    _, folder = mutated_bundles.export_whole(lab, tmp_path, ["run-1", "run-2"])
    assert found(lab, folder) == []
    digests = (folder / "manifest.sha256").read_text().splitlines()
    assert f"{hashlib.sha256((folder / 'verify.py').read_bytes()).hexdigest()}  verify.py" in digests

    (folder / "records" / "more.html").write_text("<p>no record")
    (folder / "records" / "run-1.html").unlink()
    with (folder / "verify.py").open("a") as file:
        file.write("\n")
    assert set(found(lab, folder)) == {
        ("evidence", None, None, "records/more.html was added to the bundle"),
        ("evidence", None, None, "records/run-1.html was removed from the bundle"),
        ("evidence", None, None, "verify.py is not as it was exported"),
    }


def test_a_manifest_that_the_log_does_not_have_is_named_with_each_run(lab: Laboratory, tmp_path: Path) -> None:
    """As somebody writes it who changes a file, and the manifest to fit."""
    _, folder = mutated_bundles.export_whole(lab, tmp_path, ["run-1", "run-2"])
    page, manifest = folder / "records" / "run-1.html", folder / "manifest.sha256"
    before = hashlib.sha256(page.read_bytes()).hexdigest()
    page.write_text("<p>another record")
    after = hashlib.sha256(page.read_bytes()).hexdigest()
    manifest.write_text(manifest.read_text().replace(before, after))
    what = "manifest.sha256 is not one that the log has of an export of this run"
    assert found(lab, folder) == [("evidence", run_id, None, what) for run_id in ("run-1", "run-2")]


def test_a_run_that_was_taken_out_of_a_bundle_is_missed(lab: Laboratory, tmp_path: Path) -> None:
    _, folder = mutated_bundles.export_whole(lab, tmp_path, ["run-1", "run-2"])
    gone: set[int] = set()
    for name, key in (("events.jsonl", "run_id"), ("records.jsonl", "record"), ("proofs.jsonl", "position")):
        lines = [json.loads(line) for line in (folder / name).read_text().splitlines()]
        kept = [line for line in lines if "run-2" not in str(line[key]) and line["position"] not in gone]
        gone |= {line["position"] for line in lines} - {line["position"] for line in kept}
        (folder / name).write_text("".join(f"{json_line(line)}\n" for line in kept))
    (folder / "bundle.json").write_text((folder / "bundle.json").read_text().replace('"run-1","run-2"', '"run-1"'))
    assert [each[3] for each in found(lab, folder)] == [
        "bundle.json is not as it was exported",
        "events.jsonl is not as it was exported",
    ]


def test_a_bundle_without_a_manifest_has_no_files_for_reading(lab: Laboratory, tmp_path: Path) -> None:
    """Else whoever takes the manifest away could change the decision records of a good bundle."""
    _, folder = mutated_bundles.export_whole(lab, tmp_path, ["run-1"])
    assert found(lab, folder) == []
    (folder / "manifest.sha256").unlink()
    head = folder / "bundle.json"
    head.write_text(head.read_text().replace("bundle 2", "bundle 1"))
    said = [each[3] for each in found(lab, folder)]
    assert "no signature covers README.txt: a bundle of format 1 has no such file" in said
    assert any(each.startswith("no signature covers records/run-1") for each in said)


def test_a_bundle_of_a_run_that_came_with_the_program_is_bound_too(tmp_path: Path) -> None:
    path, bundle = tmp_path / "runs.sqlite3", tmp_path / "bundle.zip"
    now = datetime.now(UTC)
    shipped = Imported(run_id="s", written_by="0", written_at_utc=now, imported_at_utc=now, recorded=True)
    with closing(open_store(f"sqlite:///{path}")) as store:
        store.log.append_and_wait(created("s", imported=shipped), *whole_run("s")[1:])
        done = export_runs(store, ["s"], bundle, lambda *_: None, PAGE)
    assert done.bound
    assert main(["verify", str(bundle), "--db", str(path)]) == 0


def test_an_export_that_the_log_cannot_record_is_of_format_1_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, bundle = tmp_path / "runs.sqlite3", tmp_path / "bundle.zip"
    with closing(open_store(f"sqlite:///{path}")) as store:
        store.log.append_and_wait(*whole_run("r"))
    monkeypatch.setattr("storage.access_log._write", lambda cursor, accesses: 1 / 0)
    assert main(["export", "r", "--out", str(bundle), "--db", str(path)]) == 0
    assert "the bundle holds no files for reading" in capsys.readouterr().err
    assert main(["verify", str(bundle), "--db", str(path)]) == 0
    with zipfile.ZipFile(bundle) as archive:
        assert sorted(archive.namelist()) == sorted(FILES)


def test_a_bundle_of_a_history_that_was_rewritten_with_the_key_is_located_by_the_anchor(
    lab: Laboratory, tmp_path: Path
) -> None:
    path = tmp_path / "changed.sqlite3"
    ((run_id, sequence),) = tampering.attack(lab, path, "edit", "key", random.Random(1)).at
    bundle = mutated_bundles.export(replace(lab, path=path), tmp_path / "bundle", [run_id])
    whole, first, *_ = found(lab, bundle)
    assert whole[3] == "the checkpoint of the bundle is signed for another history than the anchor's"
    assert first == ("fork", run_id, sequence, "the anchor has another entry here")


def test_the_stored_bytes_of_an_encrypted_run_are_proved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, bundle = tmp_path / "runs.sqlite3", tmp_path / "bundle.zip"
    with closing(open_store(f"sqlite:///{path}", Privacy(encrypt=True))) as store:
        store.log.append_and_wait(*whole_run("r"))
    assert main(["export", "r", "--out", str(bundle), "--db", str(path)]) == 0
    capsys.readouterr()
    assert main(["verify", str(bundle), "--db", str(path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["findings"], shown["verified_events"]) == ([], 12)
