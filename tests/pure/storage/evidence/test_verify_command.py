"""What a stranger types at the verifier: keys as they were printed, files that are not there, an anchor."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from storage import open_store
from storage.evidence import verifier
from storage.evidence.anchoring import places_of
from storage.evidence.history import CLASSES
from tests.support.command_line import log as main
from tests.support.run_events import PAGE, whole_run

Said = pytest.CaptureFixture[str]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with two runs, all of it published."""
    path = tmp_path / "runs.sqlite3"
    store = open_store(f"sqlite:///{path}")
    for run_id in ("r1", "r2"):
        store.log.append_and_wait(*whole_run(run_id))
    store.close()
    return path


@pytest.fixture
def printed(path: Path, capsys: Said) -> str:
    """What ``conductor log key`` prints."""
    assert main(["key", "--db", str(path)]) == 0
    return capsys.readouterr().out


def check(path: Path, key: object) -> list[str]:
    return [str(path), "--public-key", str(key), "--anchor", str(places_of(path).anchor.file)]


def test_a_key_is_read_as_it_was_printed(path: Path, printed: str, tmp_path: Path, capsys: Said) -> None:
    file = tmp_path / "key.txt"
    file.write_text(printed)
    assert verifier.main(check(path, file)) == 0
    assert verifier.main(check(path, printed)) == 0
    assert main(["verify", "--db", str(path), "--public-key", str(file)]) == 0
    file.write_text(printed.replace("fingerprint: ", "fingerprint: 0"))
    capsys.readouterr()
    assert verifier.main(check(path, file)) == 2
    assert f"the fingerprint in {file} is not that of the key" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("nonsense", "'nonsense' is neither a file nor a public key: a key is the line NAME+ID+KEY that `conductor"),
        ("name+id+key", "what was given is not a public key (no Base64"),
        ("FILE", "holds 0 lines that could be a public key"),
        ("FOLDER", "folder is not a regular file"),
    ],
)
def test_what_is_no_key_is_told_in_one_line(path: Path, tmp_path: Path, capsys: Said, given: str, said: str) -> None:
    (tmp_path / "FILE").write_text("fingerprint: 00\n")
    (tmp_path / "folder").mkdir()
    key = {"FILE": str(tmp_path / "FILE"), "FOLDER": str(tmp_path / "folder")}.get(given, given)
    for verify, arguments in (
        (verifier.main, check(path, key)),
        (main, ["verify", "--db", str(path), "--public-key", key]),
    ):
        assert verify(arguments) == 2
        error = capsys.readouterr().err
        assert said in error
        assert "Errno" not in error
        assert len(error.splitlines()) == 1


def test_a_file_that_is_not_there_is_named(path: Path, printed: str, tmp_path: Path, capsys: Said) -> None:
    assert verifier.main(check(tmp_path / "nothere.zip", printed)[:3]) == 2
    assert capsys.readouterr().err == f"error: no such file: {tmp_path / 'nothere.zip'}\n"
    assert verifier.main([*check(path, printed)[:3], "--anchor", str(tmp_path / "no.jsonl")]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path / 'no.jsonl'}: No such file or directory\n"


def test_an_anchor_that_is_gone_is_said_with_what_was_published(
    path: Path, tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    anchor = places_of(path).anchor.file
    anchor.unlink()
    assert main(["verify", "--db", str(path)]) == CLASSES["anchor"]
    published = "is not there; the database says that 27 entries were published"
    assert f"ANCHOR: the anchor {anchor} {published}" in capsys.readouterr().out
    monkeypatch.setenv("CONDUCTOR_ANCHOR", str(tmp_path / "runs.sqlite3" / "anchor.jsonl"))
    assert main(["verify", "--db", str(path)]) == CLASSES["anchor"]
    out = capsys.readouterr().out
    assert f"ANCHOR: the anchor {path / 'anchor.jsonl'} cannot be read (Not a directory); the database" in out
    assert "Errno" not in out


def test_one_entry_that_was_published_is_one(tmp_path: Path, capsys: Said) -> None:
    path = tmp_path / "new.sqlite3"
    with closing(open_store(f"sqlite:///{path}")) as store:
        store.publish()
    places_of(path).anchor.file.unlink()
    assert main(["verify", "--db", str(path)]) == CLASSES["anchor"]
    assert "is not there; the database says that 1 entry was published" in capsys.readouterr().out


def test_a_checkpoint_alone_can_be_the_anchor(path: Path, printed: str, tmp_path: Path, capsys: Said) -> None:
    published = [json.loads(line) for line in places_of(path).anchor.file.read_text().splitlines()]
    note = tmp_path / "note"
    note.write_text(published[-1]["checkpoint"])
    given = [str(path), "--public-key", printed, "--anchor", str(note)]
    assert verifier.main([*given, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["verified_events"], shown["unanchored_events"], shown["notes"]) == (24, 0, [])
    note.write_text(note.read_text().replace("\n27\n", "\n26\n"))
    assert verifier.main(given) == CLASSES["unsigned"]


def test_why_nothing_is_published_is_said_without_a_number_of_the_system(tmp_path: Path) -> None:
    place = tmp_path / "nowhere" / "anchor.jsonl"
    store = open_store(f"sqlite:///{tmp_path / 'runs.sqlite3'}", anchor=str(place))
    store.log.append_and_wait(*whole_run("r"))
    store.close()
    assert store._anchoring.fault == f"{place}: No such file or directory"


def test_deleted_and_erased_runs_are_told_apart_and_one_is_one(path: Path, capsys: Said) -> None:
    store = open_store(f"sqlite:///{path}")
    store.delete(["r1"], PAGE)
    store.erase(["r2"], PAGE)
    store.close()
    assert main(["verify", "--db", str(path)]) == 0
    out = capsys.readouterr().out
    assert "1 run was deleted by the program, on record" in out
    assert "1 run was erased by the program, on record" in out
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE runs SET task = 'x' WHERE run_id = 'r2'")
    assert main(["verify", "--db", str(path)]) == 21
    assert capsys.readouterr().out.endswith("\n1 FINDING\n")


def test_the_end_of_a_run_is_no_end_of_the_log(path: Path, capsys: Said) -> None:
    """Why the end of a run is `deleted` when others come after it, and `truncated` when none does."""
    for run_id, code in (("r1", 11), ("r2", 14)):
        with closing(sqlite3.connect(path)) as connection, connection:
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
                connection.execute(f"DROP TRIGGER {name}")
            connection.execute("CREATE TEMP TABLE kept AS SELECT * FROM events")
            connection.execute(
                "DELETE FROM events WHERE sequence IN "
                "(SELECT sequence FROM events WHERE run_id = ? ORDER BY sequence DESC LIMIT 3)",
                (run_id,),
            )
            connection.commit()
            assert main(["verify", "--db", str(path)]) == code
            connection.execute("INSERT OR IGNORE INTO events SELECT * FROM kept")
    assert "TRUNCATED run r2 event 22: the log was cut here" in capsys.readouterr().out


def test_a_bundle_of_another_log_asks_for_that_logs_key(path: Path, tmp_path: Path, capsys: Said) -> None:
    bundle, other = tmp_path / "bundle.zip", tmp_path / "other.sqlite3"
    assert main(["export", "r1", "--out", str(bundle), "--db", str(path)]) == 0
    with closing(open_store(f"sqlite:///{other}")) as store:
        store.publish()
    capsys.readouterr()
    assert main(["verify", str(bundle), "--db", str(other)]) == CLASSES["unsigned"]
    assert "if another log wrote the bundle, give its public key with --public-key" in capsys.readouterr().out
