"""An erased run leaves no byte of its text in any file, stays in lists, and opens as erased."""

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from conductor_core.cli.log_lifecycle import remove_edits
from conductor_core.errors import StoreError, StoreLocked, UnknownRun
from conductor_core.run.commands import Edit
from conductor_core.run.request import file_part
from conductor_core.run.values import Imported
from conductor_core.workflow.model import Step, Workflow
from storage import Privacy, Store, open_store
from storage.evidence.history import CLASSES
from storage.privacy import Vault
from tests.support.command_line import log as main
from tests.support.pictures import part, picture
from tests.support.run_events import PAGE, answered, created, planned, run_completed, step_started, whole_run

CANARIES = [f"canary{number}of the {where}" for number, where in enumerate(("task", "plan", "step", "output", "edit"))]

NOW = datetime(2026, 1, 31, tzinfo=UTC)


def text_of(run_id: str, store: Store) -> None:
    """Writes a run with a canary in every kind of text, and reads it so that a snapshot of it is kept."""
    task, plan, step, output, edit = CANARIES
    workflow = Workflow(steps=(Step(instruction=plan, agent="solver"),))
    store.log.append_and_wait(created(run_id, task), *planned(run_id, workflow), step_started(run_id, 0, 25))
    store.send(Edit(run_id=run_id, workflow=Workflow(steps=(Step(instruction=edit, agent="solver"),))))
    store.log.append_and_wait(*answered(run_id, 0, f"{output} {step}")[1:], run_completed(run_id, output))
    store.read(run_id)
    store.search.catch_up()


def holding(folder: Path, texts: Sequence[str]) -> list[tuple[str, str]]:
    files = [file for file in folder.rglob("*") if file.is_file()]
    return [(file.name, text) for file in files for text in texts if text.encode() in file.read_bytes()]


@pytest.fixture
def data(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CONDUCTOR_DATA_FOLDER", str(path.parent))
    return path.parent


@pytest.mark.parametrize("encrypt", [False, True], ids=["plain", "encrypted"])
def test_a_list_says_the_answer_from_the_events_alone_and_forgets_it_with_them(
    url: str, data: Path, encrypt: bool
) -> None:
    store = open_store(url, Privacy(encrypt=encrypt))
    text_of("r", store)
    (run,) = store.runs(answers=True)
    assert run.conclusion is not None
    assert (run.named, run.conclusion.text) == ("Plan by tiny", CANARIES[3])
    assert store.runs(answers=True) == [run], "from memory, too"
    assert store.runs()[0].conclusion is None, "only where a list asks for it"
    with closing(sqlite3.connect(store._database.path)) as connection, connection:
        rows = repr(connection.execute("SELECT * FROM runs").fetchall())
    assert CANARIES[3] not in rows
    assert main(["erase", "r", "--db", str(url)]) == 0  # another process
    assert [each.conclusion for each in store.runs(answers=True)] == [None]
    assert store._listing._told == {}


@pytest.mark.parametrize("encrypt", [False, True], ids=["plain", "encrypted"])
def test_no_byte_of_an_erased_run_is_left_in_any_file(url: str, data: Path, encrypt: bool) -> None:
    store = open_store(url, Privacy(encrypt=encrypt))
    text_of("r", store)
    store.log.append_and_wait(*whole_run("kept", "the task that stays"))
    edits = data / "edits"
    edits.mkdir()
    (edits / f"browser.{file_part('r')}.0123456789ab.json").write_text(CANARIES[4])
    # The store stays open: another process erases, as beside a running inspector.
    assert bool(holding(data, CANARIES[:1])) is not encrypt
    assert bool(store.search.texts(CANARIES[0].split()[0]).hits) is not encrypt, "an index is in plain sight"
    assert store.search.lag().encrypted == (2 if encrypt else 0)
    assert main(["erase", "r", "--db", str(url)]) == 0
    assert holding(data, CANARIES) == []
    listed = {run.run_id: run for run in store.runs()}
    assert (listed["r"].status, listed["r"].task, listed["kept"].task) == ("erased", "", "the task that stays")
    assert "run r was erased on" in (listed["r"].damage or "")
    assert store.runs(status="erased") == [listed["r"]]
    with pytest.raises(UnknownRun, match=r"run r was erased on \d{4}-\d\d-\d\d \(by .+, cli\): its text is gone"):
        store.read("r")
    assert store.events("r") == []
    with closing(sqlite3.connect(store._database.path)) as connection, connection:
        ((events,),) = connection.execute("SELECT count(*) FROM events WHERE run_id = 'r'")
    assert bool(events) is encrypt, "the events of an encrypted run stay, and nobody can read them"
    assert store.search.rebuild() == (0 if encrypt else 1)
    assert store.search.texts(CANARIES[0].split()[0]).hits == ()
    # What was erased stays so, and erasing it again ends what was interrupted.
    assert store.delete(["r"], PAGE).refused == {"r": "it was erased: its place in the record stays"}
    assert store.erase(["r"], PAGE).run_ids == ["r"]
    assert store.deletions()[1] == 1
    store.close()
    assert holding(data, CANARIES) == []


def test_a_reader_in_the_way_of_an_erasure_is_told_and_the_erasure_is_repeated_later(
    url: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(url)
    text_of("r", store)
    monkeypatch.setattr(
        "storage.database.connections.Database.rewrite", lambda _: False
    )  # what it says while somebody reads
    with pytest.raises(StoreLocked, match=r"another program reads .*: close that program and erase again"):
        store.erase(["r"], PAGE)
    monkeypatch.undo()
    assert store.erase(["r"], PAGE).run_ids == ["r"]
    store.close()
    assert holding(path.parent, CANARIES) == []


def test_a_copy_of_the_database_of_before_opens_no_encrypted_run_once_it_is_erased(
    url: str, path: Path, tmp_path: Path
) -> None:
    store = open_store(url, Privacy(encrypt=True))
    text_of("r", store)
    store.close()
    before = path.read_bytes()
    store = open_store(url)
    store.erase(["r"], PAGE)
    store.close()
    path.write_bytes(before)
    store = open_store(url)
    assert [(run.status, run.task) for run in store.runs()] == [("key_away", "")]
    store.close()


def test_a_backup_with_its_keys_opens_what_was_encrypted(
    url: str, path: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_store(url, Privacy(encrypt=True))
    text_of("r", store)
    copy = tmp_path / "copy.sqlite3"
    assert main(["backup", str(copy), "--db", url]) == 0
    assert "copy.sqlite3.keys: the keys of its encrypted runs" in capsys.readouterr().out
    store.close()
    assert (tmp_path / "copy.sqlite3.keys").stat().st_mode & 0o777 == 0o600
    assert holding(tmp_path, CANARIES) == []
    opened = open_store(f"sqlite:///{copy}", Privacy(master_key=path.with_name(f"{path.name}.master-key")))
    assert opened.read("r").task == CANARIES[0]
    opened.close()


def test_an_erasure_without_the_key_says_what_is_left_to_do(
    url: str, path: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_store(url, Privacy(encrypt=True))
    for run_id in ("r", "other"):
        text_of(run_id, store)
    store.close()
    assert main(["erase", "other", "--db", url]) == 0
    assert "its key was not there" not in capsys.readouterr().out
    keys = path.with_name(f"{path.name}.keys").rename(tmp_path / "away")
    assert main(["erase", "r", "--db", url]) == 0
    assert "r: erased\n  its key was not there to be destroyed" in capsys.readouterr().out
    keys.rename(path.with_name(f"{path.name}.keys"))
    assert main(["verify", "--db", url]) == CLASSES["derived"]
    assert main(["erase", "r", "--db", url]) == 0
    assert main(["verify", "--db", url]) == 0


def test_a_backup_whose_keys_cannot_be_copied_leaves_nothing(
    url: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(url, Privacy(encrypt=True))
    text_of("r", store)
    store.close()
    target = tmp_path / "backup"
    target.mkdir()

    def full(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("storage.backup.copy_keys", full)
    assert main(["backup", str(target / "copy.sqlite3"), "--db", url]) == 2
    assert list(target.iterdir()) == []


def test_a_setting_that_cannot_be_is_one_line(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    open_store(url).close()
    monkeypatch.setenv("CONDUCTOR_REDACT", "faces")
    assert main(["erase", "r", "--db", url]) == 2
    assert "'faces' is none of keys, cards, mail, phones" in capsys.readouterr().err


def test_an_image_goes_with_the_last_run_that_names_it(url: str, data: Path) -> None:
    store = open_store(url)
    image = picture()
    store.keep_images([image])
    for run_id in ("a", "b"):
        store.log.append_and_wait(created(run_id, images=(part(image),)), run_completed(run_id))
    store.erase(["a"], PAGE)
    assert store.content(image.sha256)[1] == image.data
    store.erase(["b"], PAGE)
    assert [file.name for file in data.rglob("*") if file.is_file() and image.data in file.read_bytes()] == []
    store.close()


@pytest.mark.parametrize("age_days", [400, 0])
def test_an_erasure_that_was_broken_off_is_told_and_finished(
    url: str, path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], age_days: int
) -> None:
    store = open_store(url, Privacy(encrypt=True))
    for run_id in ("a", "b"):
        first, *rest = whole_run(run_id)
        old = datetime.now(UTC) - timedelta(days=age_days)
        store.log.append_and_wait(first.model_copy(update={"at_utc": old}), *rest)
    edits = data / "edits"
    edits.mkdir()
    (edits / f"browser.{file_part('a')}.0123456789ab.json").write_text(CANARIES[4])

    def forget(run_id: str) -> None:
        remove_edits(data, run_id)

    with monkeypatch.context() as broken:
        broken.setattr(Vault, "destroy", failing)
        with pytest.raises(StoreError, match="locked"):
            store.erase(["a", "b"], PAGE, forget)
    assert list(edits.iterdir()) == [], "what does not need the keys is done all the same"
    store.close()
    assert main(["verify", "--db", url]) == CLASSES["derived"]
    assert "the run was erased, and its key is still there: erase it again" in capsys.readouterr().out
    assert main(["retain", "--days", "365", "--db", url]) == 0
    assert "erased  its key is still there" in capsys.readouterr().out
    assert main(["retain", "--days", "365", "--db", url, "--erase"]) == 0
    assert Privacy().vault(path).all_of(["a", "b"]) == []


def failing(vault: Vault, run_ids: Sequence[str]) -> None:
    raise StoreError("the file of the keys is locked")


def test_a_held_and_a_running_run_are_refused(url: str, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = open_store(url)
    store.log.append_and_wait(*whole_run("held"), created("running"), *whole_run("free"))
    of_file = Imported(run_id="free", written_by="0", written_at_utc=NOW, imported_at_utc=NOW)
    store.log.append_and_wait(created("child", parent_run_id="free"), created("copy", imported=of_file))
    store.hold(["held"], PAGE)
    assert main(["erase", "held", "running", "free", "--db", url]) == 1
    said = capsys.readouterr()
    assert said.err == "erasing 3 runs; the database is then rewritten\n"
    told = said.out
    assert "held: not erased: it is held: release it first" in told
    assert "running: not erased: it is running: cancel it first" in told
    assert "free: erased\n  re-runs and imported copies of it may hold its text: child, copy\n" in told
    assert store.read("held").status == "completed"
    assert main(["erase", "fre", "--db", url]) == 2
    store.close()


def test_what_is_older_is_listed_before_it_goes(url: str, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = open_store(url)
    old = datetime.now(UTC) - timedelta(days=400)
    for run_id in ("old", "old-held"):
        first, *rest = whole_run(run_id)
        store.log.append_and_wait(first.model_copy(update={"at_utc": old}), *rest)
    store.log.append_and_wait(*whole_run("young"))
    store.hold(["old-held"], PAGE)
    assert main(["retain", "--days", "100", "--db", url]) == 2
    assert "less than six months" in capsys.readouterr().err
    assert main(["retain", "--db", url]) == 2
    assert "Missing option '--days'" in capsys.readouterr().err
    assert main(["retain", "--days", "365", "--db", url]) == 0
    day = f"{old:%Y-%m-%d}"
    assert capsys.readouterr().out.splitlines() == [
        f"old-held  {day}  completed  held: stays",
        f"old  {day}  completed",
        "1 run would be erased, 1 is held; --erase does it",
    ]
    assert main(["retain", "--days", "365", "--json", "--db", url]) == 0
    assert json.loads(capsys.readouterr().out) == {"would_erase": ["old"], "held": ["old-held"]}
    store.hold(["old"], PAGE)
    assert main(["retain", "--days", "365", "--db", url]) == 0
    assert "\n0 runs would be erased, 2 are held; --erase does it\n" in capsys.readouterr().out
    store.hold(["old"], PAGE, held=False)
    assert store.read("old").status == "completed", "nothing went"
    assert main(["retain", "--days", "365", "--erase", "--json", "--db", url]) == 1
    assert {run.run_id: run.status for run in store.runs()} == {
        "old": "erased",
        "old-held": "completed",
        "young": "completed",
    }
    capsys.readouterr()
    for more in ([], ["--erase"]):
        assert main(["retain", "--days", "500", *more, "--db", url]) == 0
        assert "no run is older than 500 days" in capsys.readouterr().out
    store.close()
