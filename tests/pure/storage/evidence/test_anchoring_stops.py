"""Publishing that stopped is said by every command and after a restart; an anchor that is not whole is a finding."""

import json
from base64 import b64decode
from contextlib import closing
from pathlib import Path

import pytest

from storage import open_store
from storage.evidence import verifier
from storage.evidence.anchoring import kept_fault, places_of
from storage.evidence.history import CLASSES
from storage.evidence.keys import load_key
from storage.merkle.formats import Checkpoint
from tests.support.command_line import log as main
from tests.support.damaging import doctor
from tests.support.eventually import eventually
from tests.support.run_events import whole_run

Said = pytest.CaptureFixture[str]


def written(path: Path, *run_ids: str) -> None:
    with closing(open_store(f"sqlite:///{path}")) as store:
        for run_id in run_ids:
            store.log.append_and_wait(*whole_run(run_id))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with four runs, published in four lines."""
    path = tmp_path / "runs.sqlite3"
    for run_id in ("r1", "r2", "r3", "r4"):
        written(path, run_id)
    return path


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE checkpoints SET peaks = zeroblob(length(peaks))",
        "UPDATE checkpoints SET peaks = 'x'",
        "UPDATE checkpoints SET note = 'junk'",
        "INSERT INTO checkpoints SELECT 1 << 40, at_utc, note, peaks FROM checkpoints LIMIT 1",
        "DELETE FROM checkpoints",
    ],
)
def test_a_changed_row_of_checkpoints_stops_no_publishing_and_is_found(path: Path, change: str, capsys: Said) -> None:
    doctor(path, change)
    if "DELETE" not in change:
        assert main(["verify", "--db", str(path)]) in (CLASSES["evidence"], CLASSES["unsigned"])
    capsys.readouterr()
    written(path, "r5")
    assert capsys.readouterr().err == ""
    assert kept_fault(path) is None
    lines = [json.loads(line) for line in places_of(path).anchor.file.read_text().splitlines()]
    assert lines[-1]["from"] + len(lines[-1]["of"]) == 66  # log.began, five runs of twelve events, five seals
    doctor(path, "DELETE FROM checkpoints")
    assert main(["verify", "--db", str(path)]) == 0


def test_each_command_and_the_next_start_say_that_nothing_is_published_and_why(path: Path, capsys: Said) -> None:
    anchor = places_of(path).anchor.file
    lines = anchor.read_text().splitlines(keepends=True)
    first = json.loads(lines[0])
    forged = json.loads(lines[-1])
    forged["checkpoint"] = first["checkpoint"].replace("\n15\n".replace("15", str(len(first["of"]))), "\n53\n", 1)
    anchor.write_text("".join(lines[:-1]) + json.dumps(forged) + "\n")
    written(path, "r5")
    said = capsys.readouterr().err
    assert f"warning: checkpoints are not published to {anchor}: " in said
    assert "conductor log verify" in said
    assert kept_fault(path) is not None
    assert main(["verify", "--db", str(path)]) == CLASSES["anchor"]
    assert "1 line not as published, the first is line 4" in capsys.readouterr().out
    for command in (["hold", "r1", "--db", str(path)], ["retain", "--days", "400", "--db", str(path)]):
        main(command)
        assert "checkpoints are not published to" in capsys.readouterr().err
    with closing(open_store(f"sqlite:///{path}")) as store:
        assert "are not those of the database" in (store.evidence().fault or "")
    anchor.write_text("".join(lines))
    written(path, "r6")
    capsys.readouterr()
    assert kept_fault(path) is None
    main(["hold", "r2", "--db", str(path)])
    assert capsys.readouterr().err == ""


def test_a_leaf_that_is_gone_stops_publishing_with_that_cause(path: Path, capsys: Said) -> None:
    doctor(path, "INSERT INTO leaves SELECT position + 9, run_id, hash, record FROM leaves WHERE position = 52")
    written(path, "r5")
    assert "leaves of the database are missing or damaged" in capsys.readouterr().err


def test_a_device_is_no_anchor(path: Path, capsys: Said) -> None:
    assert main(["verify", "--db", str(path), "--anchor", "/dev/null"]) == 2
    assert "/dev/null is not a regular file" in capsys.readouterr().err


@pytest.mark.parametrize("anchor", ["EMPTY", "GONE"])
def test_a_check_without_what_was_published_is_never_all_right(
    path: Path, tmp_path: Path, anchor: str, capsys: Said
) -> None:
    assert main(["key", "--db", str(path)]) == 0
    key, own = capsys.readouterr().out, places_of(path).anchor.file
    (tmp_path / "EMPTY").touch()
    given = [] if anchor == "GONE" else ["--anchor", str(tmp_path / anchor)]
    assert verifier.main([str(path), "--public-key", key, *given]) == CLASSES["anchor"]
    if anchor == "GONE":
        own.unlink()
    assert main(["verify", "--db", str(path), *given]) == CLASSES["anchor"]
    assert "53 entries were published" in capsys.readouterr().out
    doctor(path, "DELETE FROM checkpoints")
    if anchor == "GONE":
        assert main(["verify", "--db", str(path)]) == CLASSES["anchor"], "the log has events, so it was to be published"


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ([1, 2, 3], "before line 1 the entries from 0 on are missing"),
        ([0, 2, 3], "before line 2 the entries from 14 on are missing"),
        ([0, 1, 1, 2, 3], "1 line doubled or out of order, the first is line 3"),
        ([0, 2, 1, 3], "before line 2 the entries from 14 on are missing"),
        ([0, 1, 2], "ends at entry 40, 40 of them are signed, and the database says that 53 entries were published"),
    ],
)
def test_a_missing_doubled_or_moved_line_of_the_anchor_is_a_finding(
    path: Path, order: list[int], said: str, capsys: Said
) -> None:
    anchor = places_of(path).anchor.file
    lines = anchor.read_text().splitlines(keepends=True)
    assert main(["verify", "--db", str(path)]) == 0
    anchor.write_text("".join(lines[each] for each in order))
    assert main(["verify", "--db", str(path)]) == CLASSES["anchor"]
    assert said in capsys.readouterr().out


def test_a_last_line_that_another_key_signed_is_a_finding(path: Path, tmp_path: Path, capsys: Said) -> None:
    anchor = places_of(path).anchor.file
    lines = anchor.read_text().splitlines(keepends=True)
    last = json.loads(lines[-1])
    places_of(path).key.rename(tmp_path / "away")
    key = load_key(places_of(path).key, last["checkpoint"].partition("\n")[0])
    last["checkpoint"] = key.note(_checkpoint(last["checkpoint"]))
    places_of(path).key.unlink()
    (tmp_path / "away").rename(places_of(path).key)
    anchor.write_text("".join(lines[:-1]) + json.dumps(last) + "\n")
    assert main(["verify", "--db", str(path)]) == CLASSES["anchor"]
    assert "40 of them are signed" in capsys.readouterr().out


def _checkpoint(note: str) -> Checkpoint:
    origin, size, root = note.split("\n")[:3]
    return Checkpoint(origin, int(size), b64decode(root))


def test_verify_makes_no_key_and_says_with_which_it_checked(path: Path, tmp_path: Path, capsys: Said) -> None:
    assert main(["key", "--db", str(path)]) == 0
    fingerprint = capsys.readouterr().out.splitlines()[1]
    assert main(["verify", "--db", str(path)]) == 0
    assert f"the key's {fingerprint}" in capsys.readouterr().out
    key = places_of(path).key
    key.rename(tmp_path / "away")
    assert main(["verify", "--db", str(path)]) == CLASSES["anchor"]
    assert "no signing key at" in capsys.readouterr().out
    assert not key.exists()


def test_why_another_program_publishes_nothing_is_known_until_all_is_published(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'runs.sqlite3'}"
    with closing(open_store(url)) as page, closing(open_store(url)) as command:
        page.log.append_and_wait(*whole_run("one"))
        page.publish()
        anchor = page.places.anchor.file
        kept = anchor.rename(tmp_path / "kept")
        anchor.mkdir()
        command.log.append_and_wait(*whole_run("two"))
        eventually(lambda: page.evidence().fault is not None)
        assert "Is a directory" in str(page.evidence().fault)
        anchor.rmdir()
        kept.rename(anchor)
        page.log.append_and_wait(*whole_run("three"))
        eventually(lambda: not page.evidence().unanchored_events)
        eventually(lambda: not list(tmp_path.glob("*.evidence/publishing-stopped.json")))
