"""What somebody changed in a bundle is named with its run, its event and why, and a good bundle raises no alarm."""

import json
import random
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import mutated_bundles, tampering
from benchmarks.tampering import Laboratory
from storage import Privacy, open_store
from storage.__main__ import main
from storage.evidence.bundle_files import json_line
from storage.evidence.verifier import verify
from tests.support.run_events import whole_run

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
