"""A backup comes back in one command: checked before it takes a place, and nothing that is there is lost."""

import errno
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from conductor_core.actor import local_caller
from storage import Privacy, open_store, restoring
from storage.__main__ import main
from storage.evidence.anchoring import evidence_folder
from storage.vault import keys_beside
from tests.support.damaging import doctor
from tests.support.run_events import whole_run

ROOT = Path(__file__).parents[3]
Said = pytest.CaptureFixture[str]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database with two runs, and a backup of it."""
    folder = tmp_path / "data"
    folder.mkdir()
    write(folder / "runs.sqlite3", "one", "two")
    assert main(["backup", str(tmp_path / "backup.sqlite3"), "--db", str(folder / "runs.sqlite3")]) == 0
    return folder / "runs.sqlite3"


def write(path: Path, *run_ids: str, privacy: Privacy | None = None) -> None:
    store = open_store(f"sqlite:///{path}", privacy)
    for run_id in run_ids:
        store.log.append_and_wait(*whole_run(run_id, f"the task of {run_id}"))
    store.close()


def runs(path: Path, privacy: Privacy | None = None) -> list[str]:
    store = open_store(f"sqlite:///{path}", privacy)
    try:
        found = [run.run_id for run in store.runs()]
        assert all(store.trace(run_id)[0].status == "completed" for run_id in found)
        return found
    finally:
        store.close()


def files(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def test_a_backup_says_that_its_copy_was_verified(database: Path, tmp_path: Path, capsys: Said) -> None:
    assert main(["backup", str(tmp_path / "again"), "--db", str(database)]) == 0
    assert "verified: nothing was found" in capsys.readouterr().out
    doctor(database, "UPDATE events SET kind = 'forged' WHERE sequence = 3")
    assert main(["backup", str(tmp_path / "edited"), "--db", str(database)]) == 10
    said = capsys.readouterr()
    assert "FINDINGS" in said.out
    assert "edited run one event 3" in said.err
    assert (tmp_path / "edited").exists(), "a copy of a changed record is evidence, too"


def test_a_lost_database_comes_back_in_one_command(database: Path, tmp_path: Path, capsys: Said) -> None:
    database.unlink()
    assert main(["restore", str(tmp_path / "backup.sqlite3"), str(database)]) == 0
    said = capsys.readouterr().out
    assert "verified: nothing was found" in said
    assert "rolled_back" not in said
    assert runs(database) == ["two", "one"]
    assert main(["verify", "--db", str(database)]) == 0


def test_a_database_that_is_there_stays_unless_told_and_then_beside_it(
    database: Path, tmp_path: Path, capsys: Said
) -> None:
    write(database, "three")
    before = files(database.parent)
    assert main(["restore", str(tmp_path / "backup.sqlite3"), "--db", str(database)]) == 2
    assert "--replace" in capsys.readouterr().err
    assert files(database.parent) == before
    assert main(["restore", str(tmp_path / "backup.sqlite3"), "--db", str(database), "--replace"]) == 0
    said = capsys.readouterr().out
    (aside,) = database.parent.glob("runs.sqlite3.replaced-*Z")
    assert str(aside) in said
    assert runs(aside) == ["three", "two", "one"]
    assert "older state" in said
    assert "new anchor" in said


def test_what_the_note_on_an_older_state_says_is_what_happens(database: Path, tmp_path: Path, capsys: Said) -> None:
    write(database, "three")
    anchor = evidence_folder(database) / "anchor.jsonl"
    assert main(["restore", str(tmp_path / "backup.sqlite3"), str(database), "--replace"]) == 0
    assert main(["verify", "--db", str(database)]) == 17
    assert "ROLLED_BACK" in capsys.readouterr().out
    store = open_store(f"sqlite:///{database}")
    with pytest.raises(Exception, match="an older copy was put in its place"):
        store.publish()
    store.close()
    anchor.rename(anchor.with_name("before.jsonl"))
    write(database, "four")
    assert main(["verify", "--db", str(database)]) == 0
    assert main(["verify", "--db", str(database), "--anchor", str(anchor.with_name("before.jsonl"))]) == 18


def test_runs_that_were_deleted_since_the_backup_are_named(database: Path, tmp_path: Path, capsys: Said) -> None:
    store = open_store(f"sqlite:///{database}")
    store.delete(["one"], local_caller("cli"))
    store.close()
    assert main(["restore", str(tmp_path / "backup.sqlite3"), str(database), "--replace"]) == 0
    assert "1 runs that were deleted or erased since are there again; erase them again: one" in capsys.readouterr().out


def test_encrypted_runs_come_back_with_their_keys(tmp_path: Path, capsys: Said) -> None:
    privacy = Privacy(encrypt=True, master_key=tmp_path / "master")
    write(tmp_path / "here.sqlite3", "secret", privacy=privacy)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONDUCTOR_MASTER_KEY", str(tmp_path / "master"))
        assert main(["backup", str(tmp_path / "copy"), "--db", str(tmp_path / "here.sqlite3")]) == 0
        assert main(["restore", str(tmp_path / "copy"), str(tmp_path / "elsewhere" / "runs.sqlite3")]) == 0
    said = capsys.readouterr().out
    there = tmp_path / "elsewhere" / "runs.sqlite3"
    assert "verified without a key: nothing was found" in said, "another machine has no signing key yet"
    assert "no checkpoint could be checked" in said
    assert there.stat().st_mode & 0o077 == 0, "as its backup"
    assert keys_beside(there).stat().st_mode & 0o077 == 0
    assert runs(there, privacy) == ["secret"]


def test_a_database_in_use_is_refused(database: Path, tmp_path: Path, capsys: Said) -> None:
    code = (
        "import sys; from storage import open_store; store = open_store(sys.argv[1]); store.runs(); "
        "print('open', flush=True); sys.stdin.read(); store.close()"
    )
    command = [sys.executable, "-c", code, f"sqlite:///{database}"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as user:
        assert user.stdout is not None
        user.stdout.readline()
        assert main(["restore", str(tmp_path / "backup.sqlite3"), str(database), "--replace"]) == 2
        user.communicate(timeout=60)
    assert f"another program has the database {database} open" in capsys.readouterr().err
    assert runs(database) == ["two", "one"]


def _text(backup: Path) -> None:
    backup.write_text("no database at all, and long enough to be read as one" * 20)


def _empty(backup: Path) -> None:
    backup.write_bytes(b"")


def _half(backup: Path) -> None:
    whole = backup.read_bytes()
    backup.write_bytes(whole[: len(whole) // 2] + b"\xff" * (len(whole) // 2))


def _newer(backup: Path) -> None:
    doctor(backup, "UPDATE alembic_version SET version_num = '9999'")


def _another(backup: Path) -> None:
    backup.unlink()
    with sqlite3.connect(backup) as connection:
        connection.execute("CREATE TABLE recipes (name)")


def _edited(backup: Path) -> None:
    doctor(backup, "UPDATE events SET kind = 'forged' WHERE sequence = 3")


def _gone(backup: Path) -> None:
    backup.unlink()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_text, "damaged, or no backup"),
        (_empty, "damaged, or no backup"),
        (_half, "damaged, or no backup"),
        (_newer, "newer version"),
        (_another, "damaged, or no backup"),
        (_edited, "edited run one event 3"),
        (_gone, "there is no backup"),
    ],
)
def test_what_is_no_sound_backup_changes_nothing(
    database: Path, tmp_path: Path, capsys: Said, spoil: Callable[[Path], None], message: str
) -> None:
    backup = tmp_path / "backup.sqlite3"
    spoil(backup)
    before = files(database.parent)
    assert main(["restore", str(backup), str(database), "--replace"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert files(database.parent) == before


def test_a_changed_backup_is_restored_if_one_insists(database: Path, tmp_path: Path, capsys: Said) -> None:
    _edited(tmp_path / "backup.sqlite3")
    assert main(["restore", str(tmp_path / "backup.sqlite3"), str(database), "--replace", "--anyway"]) == 10
    assert "edited run one event 3" in capsys.readouterr().err


@pytest.mark.parametrize("step", ["copy_database", "contents", "check_own_log", "link"])
def test_a_full_disk_loses_nothing(
    database: Path, tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = files(database.parent)
    if step == "link":
        moved: list[Path] = []
        link = os.link

        def fill(here: Path, to: Path) -> None:
            if len(moved) == 1:
                full()
            moved.append(to)
            link(here, to)

        monkeypatch.setattr(os, "link", fill)
    else:
        monkeypatch.setattr(restoring, step, full)
    assert main(["restore", str(tmp_path / "backup.sqlite3"), str(database), "--replace"]) == 2
    error = capsys.readouterr().err
    assert "no space left" in error
    assert len(error.splitlines()) == 1
    monkeypatch.undo()
    assert files(database.parent) == before


def test_a_log_that_was_left_behind_is_not_read_as_part_of_the_backup(
    database: Path, tmp_path: Path, capsys: Said
) -> None:
    database.unlink()
    database.with_name("runs.sqlite3-wal").write_bytes(b"of another database")
    assert main(["restore", str(tmp_path / "backup.sqlite3"), str(database)]) == 2
    assert "runs.sqlite3-wal is there already" in capsys.readouterr().err
    assert main(["restore", str(tmp_path / "backup.sqlite3"), str(database), "--replace"]) == 0
    assert runs(database) == ["two", "one"]
