"""What a log says of itself: where its evidence begins, what is published, who reads its key, how it is checked."""

import ast
import json
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import cryptography
import pytest

from benchmarks import tampering
from benchmarks.tampering import Laboratory
from conductor_core.errors import StoreError
from storage import Privacy, Store, open_store
from storage.bundles import verifier_source
from storage.evidence import anchoring, verifier
from storage.evidence.anchoring import FileAnchor, places_of
from storage.evidence.database_audit import OwnEvidence, read_own_evidence
from storage.evidence.history import CLASSES, Report
from storage.evidence.keys import load_key
from storage.evidence.verifier import verify
from tests.support.command_line import log as main
from tests.support.damaging import doctor
from tests.support.run_events import PAGE, whole_run

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    return tampering.laboratory(tmp_path_factory.mktemp("laboratory"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.sqlite3"


def checked(path: Path) -> Report:
    """Verifies a database with its own key and anchor."""
    with closing(sqlite3.connect(path)) as connection:
        ((origin,),) = connection.execute("SELECT origin FROM evidence_log")
    places = places_of(path)
    anchors = [places.anchor.file] if places.anchor.file.exists() else []
    return verify(path, [load_key(places.key, origin).public], anchors, lambda what, count: None)


def url(path: Path) -> str:
    return f"sqlite:///{path}"


def written(path: Path, *run_ids: str, anchor: str | None = None) -> None:
    store = open_store(url(path), anchor=anchor)
    for run_id in run_ids:
        store.log.append_and_wait(*whole_run(run_id))
    store.close()


def until_published(store: Store) -> None:
    deadline_s = time.monotonic() + 20
    while store.evidence().unanchored_events:
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def test_what_is_published_while_a_check_reads_is_no_sign_of_an_older_state(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(url(path))
    store.log.append_and_wait(*whole_run("before"))
    store.publish()
    read = read_own_evidence

    def slow(connection: sqlite3.Connection) -> OwnEvidence:
        own = read(connection)
        store.log.append_and_wait(*whole_run("meanwhile"))
        store.publish()
        return own

    monkeypatch.setattr(verifier, "read_own_evidence", slow)
    found = checked(path)
    store.close()
    assert (found.findings, found.notes, found.verified_events) == ([], [], 12)


def test_what_is_written_is_published_while_the_store_is_open(path: Path) -> None:
    store = open_store(url(path))
    assert (store.evidence().unanchored_events, store.evidence().unanchored_since_utc) == (0, None)
    store.log.append_and_wait(*whole_run("r"))
    until_published(store)
    found = store.evidence()
    assert (found.entries, found.anchored, found.fault) == (14, 14, None)  # log.began, twelve events, the seal
    assert found.anchored_at_utc is not None
    assert datetime.now(UTC) - found.anchored_at_utc < timedelta(seconds=60)
    store.close()
    assert checked(path).verified_events == 12


def test_only_its_owner_may_read_the_key(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(path, "r")
    key = places_of(path).key
    assert key.stat().st_mode & 0o777 == 0o600
    assert key.read_bytes() not in path.read_bytes()
    assert main(["key", "--db", str(path)]) == 0
    line, fingerprint = capsys.readouterr().out.splitlines()
    assert line.startswith("conductor-inspector/")
    assert fingerprint.startswith("fingerprint: ")
    key.chmod(0o644)
    assert main(["key", "--db", str(path)]) == 2
    assert "run chmod 600 on it" in capsys.readouterr().err


def test_a_place_that_cannot_be_reached_stops_no_run_and_gets_all_later(path: Path, tmp_path: Path) -> None:
    place = tmp_path / "elsewhere" / "anchor.jsonl"
    written(path, "first", anchor=str(place))
    store = open_store(url(path), anchor=str(place))
    assert store.evidence().unanchored_events == 12
    since = store.evidence().unanchored_since_utc
    assert since == store.created("first").at_utc
    place.parent.mkdir()
    store.log.append_and_wait(*whole_run("second"))
    until_published(store)
    store.close()
    assert [json.loads(line)["from"] for line in place.read_text().splitlines()] == [0]


@pytest.mark.parametrize("line", ['{"from":1e999,"of":[]}', "[" * 100_000])
def test_a_strange_last_line_of_the_anchor_stops_no_publishing(path: Path, line: str) -> None:
    anchor = places_of(path).anchor.file
    anchor.parent.mkdir()
    anchor.write_text(f"{line}\n")
    store = open_store(url(path))
    store.log.append_and_wait(*whole_run("r"))
    until_published(store)
    store.close()


def test_a_fault_of_the_program_is_said_and_what_is_left_is_published_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: FileAnchor, line: str) -> None:
        raise ArithmeticError("of its own")

    monkeypatch.setattr(anchoring, "_AGAIN_S", 0.0)
    store = open_store(url(path))
    with monkeypatch.context() as doctored:
        doctored.setattr(FileAnchor, "publish", broken)
        store.log.append_and_wait(*whole_run("r"))
        deadline_s = time.monotonic() + 20
        while store.evidence().fault is None:
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        assert store.evidence().fault == "ArithmeticError: of its own"
    until_published(store)
    store.close()


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True)
    return done.stdout


def test_a_git_repository_gets_a_commit_and_its_remote_all_that_it_missed(path: Path, tmp_path: Path) -> None:
    clone, remote = tmp_path / "clone", tmp_path / "remote.git"
    subprocess.run(["git", "init", "--quiet", "-b", "main", str(clone)], check=True)
    for name, value in (("user.name", "log"), ("user.email", "log@localhost"), ("push.autoSetupRemote", "true")):
        git(clone, "config", name, value)
    git(clone, "remote", "add", "origin", str(remote))
    written(path, "first", anchor=f"git:{clone}")
    store = open_store(url(path), anchor=f"git:{clone}")
    assert store.evidence().unanchored_events == 12, "the remote does not have them"
    with pytest.raises(StoreError, match=r"cannot be published to .+anchor\.jsonl: git push failed: .*remote\.git"):
        store.publish()
    subprocess.run(["git", "init", "--quiet", "--bare", "-b", "main", str(remote)], check=True)
    store.log.append_and_wait(*whole_run("second"))
    store.close()
    lines = git(remote, "show", "main:anchor.jsonl").splitlines()
    assert [json.loads(line)["from"] for line in lines] == [0, 14]
    store = open_store(url(path), anchor=f"git:{clone}")
    assert store.evidence().unanchored_events == 0
    store.close()


def test_what_a_killed_process_left_is_published_by_the_next_that_opens_the_log(path: Path) -> None:
    child = "import os, sys; from storage import open_store; from tests.support.run_events import whole_run\n"
    child += "open_store(sys.argv[1]).log.append_and_wait(*whole_run('r')); os._exit(0)"
    subprocess.run([sys.executable, "-c", child, url(path)], cwd=ROOT, check=True, timeout=60)
    store = open_store(url(path))
    until_published(store)
    store.close()
    assert checked(path).unanchored_events == 0


def test_a_new_key_takes_over_on_record(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(path, "r1")
    old = places_of(path).key.read_bytes()
    assert main(["key", "--rotate", "--db", str(path)]) == 0
    assert places_of(path).key.read_bytes() != old
    written(path, "r2")
    report = checked(path)
    assert (report.findings, report.verified_events, report.unanchored_events) == ([], 24, 0)


def test_a_torn_last_line_of_the_anchor_is_passed_over_and_written_again(path: Path) -> None:
    written(path, "r1")
    anchor = places_of(path).anchor.file
    whole = anchor.read_bytes()
    anchor.write_bytes(whole[: len(whole) // 2])
    written(path, "r2")
    report = checked(path)
    assert (report.findings, report.unanchored_events) == ([], 0)
    assert any("line 1 is passed over" in note for note in report.notes)


def test_two_logs_may_share_an_anchor_and_each_publishes_every_entry_once(path: Path, tmp_path: Path) -> None:
    other, anchor = tmp_path / "other.sqlite3", tmp_path / "anchor.jsonl"
    for number in range(3):
        for each in (path, other):
            written(each, f"r{number}", anchor=str(anchor))
            with closing(open_store(url(each), anchor=str(anchor))) as store:
                store.publish()
                assert (store.evidence().doubt, store.evidence().unanchored_events) == (None, 0)
    published = [len(json.loads(line)["of"]) for line in anchor.read_text().splitlines()]
    sizes = []
    for each in (path, other):
        places = places_of(each, str(anchor))
        with closing(sqlite3.connect(each)) as connection:
            ((origin,),) = connection.execute("SELECT origin FROM evidence_log")
            sizes += [size for (size,) in connection.execute("SELECT count(*) FROM leaves")]
        report = verify(each, [load_key(places.key, origin).public], [anchor], lambda what, count: None)
        assert (report.findings, report.unanchored_events) == ([], 0)
    assert sum(published) == sum(sizes)


def test_an_older_copy_in_the_place_of_the_database_is_reported(path: Path, tmp_path: Path) -> None:
    written(path, "r1")
    older = tmp_path / "older.sqlite3"
    shutil.copy(path, older)
    written(path, "r2")
    shutil.copy(older, path)
    (finding,) = checked(path).findings
    assert (finding.kind, finding.run_id, finding.sequence) == ("rolled_back", "r2", 13)
    written(path, "r3")  # it goes on from there: what was published of it before cannot be unsaid
    assert {each.kind for each in checked(path).findings} >= {"fork"}


def test_a_restored_copy_that_goes_on_is_one_fork_however_often_it_publishes(path: Path, tmp_path: Path) -> None:
    written(path, "r1")
    older = tmp_path / "older.sqlite3"
    shutil.copy(path, older)
    anchor = path.with_name(f"{path.name}.evidence") / "anchor.jsonl"
    before = anchor.read_bytes()
    written(path, "r2", "r3")
    shutil.copy(older, path)
    published = anchor.read_bytes()
    anchor.write_bytes(before)  # where it holds more than the log, nothing more is published
    for run_id in ("r4", "r5", "r6"):
        written(path, run_id)
    anchor.write_bytes(published + anchor.read_bytes().removeprefix(before))
    report = checked(path)
    assert len([each for each in report.findings if "two different histories are signed" in each.what]) == 1
    assert not [each for each in report.findings if "its leaves are not those" in each.what]


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE runs SET cost_usd = 0.01", "the row of the run differs from its events: cost_usd"),
        ("DELETE FROM runs", "the run has events, and no row: lists do not show it"),
        ("UPDATE snapshots SET sha256 = ''", "the snapshot of the run was changed; readers pass over it"),
    ],
)
def test_a_list_that_lies_is_a_finding(
    path: Path, capsys: pytest.CaptureFixture[str], statement: str, said: str
) -> None:
    written(path, "r1", "r2")
    doctor(path, f"{statement} WHERE run_id = 'r2'")
    assert main(["verify", "--db", str(path), "--json"]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert [(each["class"], each["run_id"], each["what"]) for each in shown["findings"]] == [("derived", "r2", said)]
    assert main(["verify", "r1", "--db", str(path)]) == 0, "another run"
    assert main(["verify", "--db", str(path)]) == CLASSES["derived"]
    assert main(["verify", "r7", "--db", str(path)]) == 2
    assert "no run and no bundle begins with 'r7'" in capsys.readouterr().err


def test_a_bundle_glued_to_the_database_is_not_checked_in_its_place(lab: Laboratory, tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite3"
    shutil.copy(lab.path, path)
    doctor(path, "UPDATE events SET payload = payload || ' ' WHERE sequence = 20")
    tampering.glue_bundle(lab, path)
    given = ["--public-key", lab.public.line, "--anchor", str(lab.anchor)]
    assert main(["verify", "--db", str(path), *given]) == CLASSES["edited"]
    assert verifier.main([str(path), *given]) == CLASSES["edited"]


def test_an_event_that_an_index_hides_from_readers_is_found(path: Path) -> None:
    written(path, "r")
    with closing(sqlite3.connect(path)) as connection:
        read = "SELECT sql FROM sqlite_master WHERE name = 'ix_events_run_id_sequence'"
        ((whole,),) = connection.execute(read)
        connection.executescript(
            f"DROP INDEX ix_events_run_id_sequence; {whole} WHERE sequence <> 5; PRAGMA writable_schema = ON;"
            f"UPDATE sqlite_master SET sql = '{whole}' WHERE name = 'ix_events_run_id_sequence';"
        )
    with closing(sqlite3.connect(path)) as connection:
        ((seen,),) = connection.execute("SELECT count(payload) FROM events WHERE run_id = 'r'")
        assert seen == 11, "the program does not see it"
    assert {each.kind for each in checked(path).findings} == {"evidence"}


def test_the_one_file_needs_nothing_of_this_program(path: Path, tmp_path: Path) -> None:
    written(path, "r1")
    file = tmp_path / "verify.py"
    file.write_text(verifier_source())
    with closing(sqlite3.connect(path)) as connection:
        (origin,) = connection.execute("SELECT origin FROM evidence_log").fetchone()
    key = load_key(places_of(path).key, origin)
    command = [sys.executable, "-I", "-S", "-c", _WITHOUT_US, str(file), str(path), "--public-key", key.public.line]
    command += ["--anchor", str(places_of(path).anchor.file), "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["verified_events"] == 12
    doctor(path, "UPDATE events SET payload = payload || ' ' WHERE sequence = 5")
    done = subprocess.run(command[:-1], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == CLASSES["edited"]
    assert done.stdout.startswith("EDITED run r1 event 5: ")


def test_no_two_modules_of_the_one_file_give_a_name_twice() -> None:
    body = ast.parse(verifier_source()).body
    names = [each.name for each in body if isinstance(each, ast.FunctionDef | ast.ClassDef)]
    assert len(names) == len(set(names)) > 50


_WITHOUT_US = f"""
import runpy, sys
sys.path.append({str(Path(cryptography.__file__).parents[1])!r})
sys.meta_path.insert(0, type("No", (), {{"find_spec": staticmethod(lambda name, *_: refuse(name))}}))
def refuse(name):
    if name.partition(".")[0] in ("storage", "conductor_core", "pydantic", "sqlalchemy"):
        raise ImportError(name)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("encrypt", [False, True], ids=["plain", "encrypted"])
def test_erased_and_encrypted_runs_still_verify(path: Path, encrypt: bool, capsys: pytest.CaptureFixture[str]) -> None:
    store = open_store(url(path), Privacy(encrypt=encrypt))
    for run_id in ("r1", "r2"):
        store.log.append_and_wait(*whole_run(run_id))
    store.erase(["r1"], PAGE)
    store.close()
    report = checked(path)
    assert (report.findings, report.verified_events) == ([], 24 if encrypt else 12)
    assert main(["verify", "--json", "--db", str(path)]) == 0
    assert not any("keys" in note for note in json.loads(capsys.readouterr().out)["notes"])
    with closing(sqlite3.connect(path)) as connection:
        ((record,),) = connection.execute("SELECT record FROM leaves WHERE record LIKE '%run.deleted%'")
    assert (json.loads(record)["run"], json.loads(record)["erased"]) == ("r1", True)
    if encrypt:
        path.with_name(f"{path.name}.keys").unlink()
        assert main(["verify", "--json", "--db", str(path)]) == 0
        (note,) = [note for note in json.loads(capsys.readouterr().out)["notes"] if "key is away" in note]
        assert note == (
            "1 run is encrypted, and its key is away, so lists were not compared to that: "
            f"the file of keys {path}.keys is not there: put that file beside the database again"
        )


@pytest.mark.parametrize("encrypt", [False, True], ids=["plain", "encrypted"])
def test_a_run_made_to_look_erased_is_found(path: Path, encrypt: bool, capsys: pytest.CaptureFixture[str]) -> None:
    store = open_store(url(path), Privacy(encrypt=encrypt))
    for run_id in ("r1", "r2"):
        store.log.append_and_wait(*whole_run(run_id))
    store.erase(["r2"], PAGE)
    store.close()
    doctor(path, "UPDATE runs SET status = 'erased', task = '' WHERE run_id = 'r1'")
    doctor(path, "UPDATE runs SET task = 'another' WHERE run_id = 'r2'")
    assert main(["verify", "--json", "--db", str(path)]) == 1
    found = {each["run_id"]: each["what"] for each in json.loads(capsys.readouterr().out)["findings"]}
    assert found == {
        "r1": "lists say that the run was erased, and no record in the log does",
        "r2": "the run was erased, and its row or a snapshot holds a text",
    }


def test_an_anchor_of_which_no_line_can_be_trusted_is_a_finding(path: Path) -> None:
    written(path, "r1")
    anchor = path.with_name(f"{path.name}.evidence") / "anchor.jsonl"
    whole = anchor.read_text()
    anchor.write_text(whole[:-40])
    assert [each.kind for each in checked(path).findings] == ["anchor"], "a lost machine can have cut the first line"
    anchor.write_text("{}\n{}\n")
    assert [each.kind for each in checked(path).findings] == ["unsigned", "anchor"]
    anchor.write_text(whole.replace("conductor-inspector/", "conductor-inspector/of-another-"))
    assert [each.kind for each in checked(path).findings] == ["unsigned", "anchor"]
