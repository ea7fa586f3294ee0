"""A log that was begun never begins again in silence: by an upgrade, under another name, or with its key."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from conductor_core.errors import StoreError
from storage import open_store
from storage.evidence import verifier
from storage.evidence.anchoring import places_of
from storage.evidence.history import CLASSES
from storage.evidence.keys import load_key
from tests.support.command_line import log as main
from tests.support.damaging import begun_again, doctor, without_evidence
from tests.support.run_events import whole_run

Said = pytest.CaptureFixture[str]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with two runs, all of it published."""
    path = tmp_path / "runs.sqlite3"
    written(path, "r1", "r2")
    return path


def written(path: Path, *run_ids: str) -> None:
    with closing(open_store(f"sqlite:///{path}")) as store:
        for run_id in run_ids:
            store.log.append_and_wait(*whole_run(run_id))


def test_a_database_without_evidence_is_neither_opened_nor_upgraded(path: Path) -> None:
    without_evidence(path)
    anchor = places_of(path).anchor.file.read_bytes()
    for _ in range(2):
        with pytest.raises(StoreError, match=r"says schema 0012, which had no evidence, so it is not opened.*restore"):
            open_store(f"sqlite:///{path}")
    assert places_of(path).anchor.file.read_bytes() == anchor
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == ("0012",)


def test_the_key_of_a_log_signs_no_other_and_verify_says_why(path: Path, capsys: Said) -> None:
    public = load_key(places_of(path).key, origin(path)).public
    begun_again(path)
    anchor = places_of(path).anchor.file.read_bytes()
    written(path, "r3")
    assert "has signed the log conductor-inspector/" in capsys.readouterr().err
    assert places_of(path).anchor.file.read_bytes() == anchor, "nothing of the second log is published"
    assert main(["verify", "--db", str(path)]) == CLASSES["begun_again"]
    assert "a log never begins again" in capsys.readouterr().out
    given = [str(path), "--public-key", public.line, "--anchor", str(places_of(path).anchor.file)]
    assert verifier.main(given) == CLASSES["fork"]
    assert "UNSIGNED: the database says it is the log conductor-inspector/00000000deadbeef" in capsys.readouterr().out


def origin(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return str(connection.execute("SELECT origin FROM evidence_log").fetchone()[0])


def test_checkpoints_of_another_log_by_the_same_key_are_a_finding(path: Path, tmp_path: Path, capsys: Said) -> None:
    """As whoever can write the file of the key can have them signed."""
    places, first = places_of(path), origin(path)
    public = load_key(places.key, first).public
    begun_again(path)
    places.key.write_bytes(places.key.read_bytes().replace(first.encode(), origin(path).encode()))
    kept = places.anchor.file.read_bytes()
    places.anchor.file.unlink()
    written(path, "r3")  # signs as the second log
    places.anchor.file.write_bytes(kept + places.anchor.file.read_bytes())
    capsys.readouterr()
    for key in (public.line, load_key(places.key, origin(path)).public.line):
        given = [str(path), "--public-key", key, "--anchor", str(places.anchor.file)]
        assert verifier.main(given) == CLASSES["begun_again"]
        assert "has also signed the log" in capsys.readouterr().out


def test_evidence_that_begins_after_events_is_a_finding(path: Path) -> None:
    doctor(path, "UPDATE evidence_log SET covered_from = 13")
    assert main(["verify", "--db", str(path)]) == CLASSES["begun_again"]


def test_a_new_database_in_the_place_of_a_lost_one_says_so_and_takes_a_key_of_its_own(path: Path, capsys: Said) -> None:
    for file in path.parent.glob(f"{path.name}*"):
        if file.is_file():
            file.unlink()
    written(path, "r3")
    assert "keep the key and its anchor under other names" in capsys.readouterr().err
    places = places_of(path)
    for each in (places.key, places.anchor.file):
        each.rename(each.with_name(f"{each.name}.of-before"))
    written(path, "r4")
    assert capsys.readouterr().err == ""
    assert main(["verify", "--db", str(path)]) == 0


def test_a_key_that_does_not_say_which_log_it_signs_is_refused(path: Path, capsys: Said) -> None:
    key = places_of(path).key
    key.write_bytes(key.read_bytes().split(b"log:")[0])
    anchor = places_of(path).anchor.file.read_bytes()
    assert main(["verify", "--db", str(path)]) == 2
    written(path, "r3")
    assert capsys.readouterr().err.count("does not say clearly which log it signs: put its copy there") == 2
    assert places_of(path).anchor.file.read_bytes() == anchor, "nothing is published"
