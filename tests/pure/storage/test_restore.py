"""A backup comes back in one command: checked before it takes a place, and nothing that is there is lost."""

import errno
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from conductor_core.errors import StoreError
from conductor_core.run.actor import local_caller
from storage import Privacy, open_store
from storage import backup as restoring
from storage.evidence.anchoring import evidence_folder
from storage.evidence.history import CLASSES
from storage.privacy import keys_beside
from tests.support.command_line import log as main
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
    assert "1 FINDING" in said.out
    assert "edited run one event 3" in said.err
    assert (tmp_path / "edited").exists(), "a copy of a changed record is evidence, too"


def test_a_lost_database_comes_back_in_one_command(database: Path, tmp_path: Path, capsys: Said) -> None:
    database.unlink()
    assert main(["restore", str(tmp_path / "backup.sqlite3"), str(database)]) == 0
    said = capsys.readouterr().out
    assert "verified: nothing was found" in said
    assert "rolled_back" not in said
    assert "what was there before" not in said
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
    published = anchor.read_bytes()
    for run_id in ("x", "y", "z"):
        write(database, run_id)
    assert anchor.read_bytes() == published, "nothing is published there, also once the log is longer"
    anchor.rename(anchor.with_name("before.jsonl"))
    write(database, "four")
    assert main(["verify", "--db", str(database)]) == 0
    assert main(["verify", "--db", str(database), "--anchor", str(anchor.with_name("before.jsonl"))]) == 15
    assert "RUN_REMOVED run three" in capsys.readouterr().out, "what was published before proves what came later"


def test_runs_that_were_deleted_since_the_backup_are_named(database: Path, tmp_path: Path, capsys: Said) -> None:
    store = open_store(f"sqlite:///{database}")
    store.delete(["one"], local_caller("cli"))
    store.close()
    assert main(["restore", str(tmp_path / "backup.sqlite3"), str(database), "--replace"]) == 0
    assert "1 run that was deleted or erased since is there again; erase it again: one" in capsys.readouterr().out


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
    with closing(sqlite3.connect(backup)) as connection, connection:
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
        (_gone, "no backup at"),
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


@pytest.mark.parametrize("step", ["copy_database", "contents", "check_own_log", "link", "replace"])
def test_a_full_disk_loses_nothing(
    database: Path, tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = files(database.parent)
    if step == "link":
        monkeypatch.setattr(os, "link", full)
    elif step == "replace":
        replace = Path.replace

        def fill(here: Path, to: Path) -> Path:
            if to == database and "replaced" not in here.name:
                full()
            return replace(here, to)

        monkeypatch.setattr(Path, "replace", fill)
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


def test_a_backup_that_hides_its_evidence_does_not_replace_a_protected_log(
    database: Path, tmp_path: Path, capsys: Said
) -> None:
    before = files(database.parent)
    doctor(tmp_path / "backup.sqlite3", "UPDATE alembic_version SET version_num = '0012'")
    assert main(["restore", str(tmp_path / "backup.sqlite3"), str(tmp_path / "new.sqlite3")]) == 2
    assert "says schema 0012, which had no evidence, so it is not opened" in capsys.readouterr().err
    assert main(["restore", str(tmp_path / "backup.sqlite3"), str(database), "--replace"]) == 2
    assert files(database.parent) == before


def test_a_backup_of_another_log_needs_insisting(database: Path, tmp_path: Path, capsys: Said) -> None:
    write(tmp_path / "other.sqlite3", "three")
    evidence_folder(database).rename(tmp_path / "key-and-anchor")
    assert main(["restore", str(tmp_path / "other.sqlite3"), str(database), "--replace"]) == 2
    assert "the backup is of the log conductor-inspector/" in capsys.readouterr().err
    assert main(["restore", str(tmp_path / "other.sqlite3"), str(database), "--replace", "--anyway"]) == 20


def test_a_trigger_in_a_backup_is_found(database: Path, tmp_path: Path, capsys: Said) -> None:
    with closing(sqlite3.connect(tmp_path / "backup.sqlite3")) as connection:
        connection.execute("CREATE TRIGGER hide AFTER INSERT ON events BEGIN SELECT 1; END")
    assert main(["restore", str(tmp_path / "backup.sqlite3"), str(tmp_path / "new.sqlite3")]) == 2
    assert "the trigger hide was added" in capsys.readouterr().err


@pytest.mark.parametrize("step", [("os", "link", 1), ("os", "link", 2), ("Path", "replace", 1)])
def test_a_killed_restore_leaves_a_whole_database(database: Path, tmp_path: Path, step: tuple[str, str, int]) -> None:
    late = (
        "import os, sys; from storage import open_store; from tests.support.run_events import whole_run; "
        "store = open_store(sys.argv[1]); store.log.append_and_wait(*whole_run('late')); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", late, f"sqlite:///{database}"], cwd=ROOT, check=False).returncode == 9
    kind, name, number = step
    killed = (
        "import os, sys; from pathlib import Path; from conductor_core.cli.main import main\n"
        "left = [int(sys.argv.pop())]\n"
        f"plain = {kind}.{name}\n"
        "def stop(*given):\n"
        "    left[0] -= 1\n"
        "    return os._exit(9) if not left[0] else plain(*given)\n"
        f"{kind}.{name} = stop\n"
        "main(['log', *sys.argv[1:]])\n"
    )
    arguments = ["restore", str(tmp_path / "backup.sqlite3"), str(database), "--replace", str(number)]
    subprocess.run([sys.executable, "-c", killed, *arguments], cwd=ROOT, check=False)
    assert database.exists(), "a start would make a blank one"
    asides = database.parent.glob("runs.sqlite3.replaced-*Z")
    assert any("late" in runs(each) for each in [database, *asides])
    assert "one" in runs(database)


def test_a_damaged_database_is_replaced_and_what_is_not_known_is_said(
    database: Path, tmp_path: Path, capsys: Said
) -> None:
    database.write_bytes(b"x" * 8192)
    assert main(["restore", str(tmp_path / "backup.sqlite3"), str(database), "--replace"]) == 0
    assert "whether runs that were deleted since are back is not known" in capsys.readouterr().out
    assert runs(database) == ["two", "one"]


def test_runs_that_lose_their_hold_are_named(database: Path, tmp_path: Path, capsys: Said) -> None:
    store = open_store(f"sqlite:///{database}")
    store.hold(["one"], local_caller("cli"))
    store.close()
    assert main(["restore", str(tmp_path / "backup.sqlite3"), str(database), "--replace"]) == 0
    assert "1 run that was held is not held now; hold it again: one" in capsys.readouterr().out


def test_held_runs_that_the_backup_does_not_have_are_named(database: Path, tmp_path: Path, capsys: Said) -> None:
    store = open_store(f"sqlite:///{database}")
    store.log.append_and_wait(*whole_run("late"))
    store.hold(["one", "late"], local_caller("cli"))
    store.close()
    assert main(["restore", str(tmp_path / "backup.sqlite3"), str(database), "--replace"]) == 0
    said = capsys.readouterr().out
    assert "1 run that was held is not held now; hold it again: one" in said
    (aside,) = database.parent.glob("runs.sqlite3.replaced-*Z")
    assert f"1 run that was held is not in the backup; only {aside} has it: late" in said


def test_encrypted_runs_without_their_keys_are_counted(
    tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONDUCTOR_MASTER_KEY", str(tmp_path / "master"))
    write(tmp_path / "here.sqlite3", "secret", privacy=Privacy(encrypt=True, master_key=tmp_path / "master"))
    assert main(["backup", str(tmp_path / "copy"), "--db", str(tmp_path / "here.sqlite3")]) == 0
    assert main(["restore", str(tmp_path / "copy"), str(tmp_path / "with.sqlite3")]) == 0
    assert "cannot be opened" not in capsys.readouterr().out
    (tmp_path / "copy.keys").unlink()
    assert main(["restore", str(tmp_path / "copy"), str(tmp_path / "without.sqlite3")]) == 0
    said = capsys.readouterr().out
    assert f"1 encrypted run cannot be opened now: the file of keys {tmp_path / 'without.sqlite3.keys'} is not" in said


@pytest.mark.parametrize("other", [False, True])
def test_a_master_key_that_is_away_is_no_damage(
    tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch, other: bool
) -> None:
    """The backup was never changed, and the restored database is whole once the right master key is there."""
    there = tmp_path / "there.sqlite3"
    write(tmp_path / "here.sqlite3", "secret", "second", privacy=Privacy(encrypt=True))
    monkeypatch.setenv("CONDUCTOR_SIGNING_KEY", str(evidence_folder(tmp_path / "here.sqlite3") / "signing-key"))
    assert main(["backup", str(tmp_path / "copy"), "--db", str(tmp_path / "here.sqlite3")]) == 0
    if other:
        write(tmp_path / "other.sqlite3", "r", privacy=Privacy(encrypt=True))
        (tmp_path / "other.sqlite3.master-key").rename(tmp_path / "there.sqlite3.master-key")
    capsys.readouterr()
    assert main(["restore", str(tmp_path / "copy"), str(there)]) == 0
    said = capsys.readouterr().out
    why = f"the master key {there}.master-key is {'another one' if other else 'not there: put it there'}"
    advice = "or set CONDUCTOR_MASTER_KEY to where it is"
    assert f"2 encrypted runs cannot be opened now: {why}" in said
    assert advice in said
    assert main(["verify", "--db", str(there)]) == CLASSES["anchor"], "there is none at the new place yet"
    said = capsys.readouterr().out
    assert f"2 runs are encrypted, and their keys are away, so lists were not compared to that: {why}" in said
    assert advice in said
    monkeypatch.setenv("CONDUCTOR_MASTER_KEY", str(tmp_path / "here.sqlite3.master-key"))
    assert main(["verify", "--db", str(there)]) == CLASSES["anchor"]
    assert "encrypted" not in capsys.readouterr().out


def test_names_that_belong_to_a_database_are_refused(database: Path, tmp_path: Path, capsys: Said) -> None:
    for end in (".keys", "-wal", "-journal", ".lock"):
        assert main(["restore", str(tmp_path / "backup.sqlite3"), f"{tmp_path / 'new'}{end}"]) == 2
        assert main(["backup", f"{tmp_path / 'new'}{end}", "--db", str(database)]) == 2
        assert capsys.readouterr().err.count("belongs to a database") == 2


def test_a_refused_restore_leaves_nothing_behind(database: Path, tmp_path: Path, capsys: Said) -> None:
    backup, before = tmp_path / "backup.sqlite3", sorted(tmp_path.rglob("*"))
    assert main(["restore", str(backup), str(tmp_path / "a"), "--db", str(tmp_path / "b")]) == 2
    assert "give only one of them" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before
    os.mkfifo(keys_beside(backup))
    assert main(["restore", str(backup), str(tmp_path / "folder" / "in" / "new.sqlite3")]) == 2
    assert "not a regular file" in capsys.readouterr().err
    keys_beside(backup).unlink()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_stopped_restore_leaves_no_copy(database: Path, tmp_path: Path) -> None:
    slow = (
        "import runpy, sys, time; from storage import backup as restoring\n"
        "def wait(*_): print('here', flush=True); time.sleep(60)\n"
        "restoring.check_own_log = wait\n"
        "sys.argv[0] = 'storage'; runpy.run_module('storage', run_name='__main__')\n"
    )
    command = [sys.executable, "-c", slow, "restore", str(tmp_path / "backup.sqlite3"), str(tmp_path / "new.sqlite3")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
    assert not list(tmp_path.glob("*new.sqlite3*"))


def test_a_database_with_only_a_view_is_another_programs(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "view.sqlite3")) as connection:
        connection.execute("CREATE VIEW events AS SELECT 1")
    with pytest.raises(StoreError, match="belongs to another program"):
        open_store(f"sqlite:///{tmp_path / 'view.sqlite3'}")
