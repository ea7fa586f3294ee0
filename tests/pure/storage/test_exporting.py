"""A bundle of runs: what is in it, and that its own verifier accepts it with nothing of ours beside it."""

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from conductor_core.chat.messages import ImagePart
from storage import Privacy, open_store
from storage.bundles import export_runs
from storage.evidence.keys import load_key
from storage.merkle.formats import read_key
from tests.support.alone import python_alone
from tests.support.command_line import log as main
from tests.support.pictures import picture
from tests.support.run_events import PAGE, created_otherwise, whole_run

HOSTILE = "<script>window.pwned=1</script>\u202e"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    file = tmp_path / "runs.sqlite3"
    store = open_store(f"sqlite:///{file}")
    try:
        for run_id in ("a1", "b2", "c3"):
            store.log.append_and_wait(*whole_run(run_id, f"task of {run_id} {HOSTILE}"))
    finally:
        store.close()
    return file


def _public_key(database: Path) -> str:
    store = open_store(f"sqlite:///{database}")
    try:
        return load_key(store.places.key, store.evidence().origin).public.line
    finally:
        store.close()


def _anchor(database: Path) -> Path:
    store = open_store(f"sqlite:///{database}")
    try:
        return store.places.anchor.file
    finally:
        store.close()


def _verify(folder: Path, bundle: Path, database: Path) -> subprocess.CompletedProcess[str]:
    with zipfile.ZipFile(bundle) as archive:
        (folder / "verify.py").write_bytes(archive.read("verify.py"))
    key, anchor = _public_key(database), _anchor(database)
    command = [sys.executable, "-S", "-s", "verify.py", str(bundle), "--public-key", str(key), "--anchor", str(anchor)]
    environment = python_alone(folder)
    gone = "import storage"
    assert subprocess.run([sys.executable, "-S", "-c", gone], cwd=folder, env=environment, check=False).returncode
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_shipped_verifier_accepts_the_bundle_alone_and_refuses_a_changed_one(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle, folder = tmp_path / "two.zip", tmp_path / "elsewhere"
    folder.mkdir()
    assert main(["export", "a1", "c", "--out", str(bundle), "--db", str(database)]) == 0
    assert "2 runs" in capsys.readouterr().out
    done = _verify(folder, bundle, database)
    assert done.returncode == 0, done.stdout + done.stderr

    changed = tmp_path / "changed.zip"
    with zipfile.ZipFile(bundle) as before, zipfile.ZipFile(changed, "w") as after:
        for name in before.namelist():
            data = before.read(name)
            after.writestr(name, data.replace(b"task of c3", b"task of d4") if name == "events.jsonl" else data)
    (folder / "again").mkdir()
    refused = _verify(folder / "again", changed, database)
    assert refused.returncode not in (0, 2)
    assert "c3" in refused.stdout


def test_the_bundle_holds_exact_events_records_and_how_to_check_them(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = tmp_path / "all.zip"
    assert main(["export", "--all", "--out", str(bundle), "--db", str(database)]) == 0
    fingerprint = read_key(_public_key(database)).fingerprint
    size = f"{bundle.stat().st_size:,} bytes"
    assert capsys.readouterr().out == f"{bundle}: 3 runs, {size}; key fingerprint {fingerprint}\n"
    store = open_store(f"sqlite:///{database}")
    try:
        stored = {event.sequence: event.payload.decode() for event in store.raw_events("b2")}
    finally:
        store.close()
    with zipfile.ZipFile(bundle) as archive:
        lines = [json.loads(line) for line in archive.read("events.jsonl").decode().splitlines()]
        record, read_me = archive.read("records/b2.html").decode(), archive.read("README.txt").decode()
    assert {line["sequence"]: line["payload"] for line in lines if line["run_id"] == "b2"} == stored
    assert "task of b2" in record
    assert "<script" not in record
    assert "\u202e" not in record
    key = _public_key(database)
    assert key in read_me
    assert "all.zip --public-key" in read_me


def test_the_images_of_a_task_are_in_it_under_their_digest(tmp_path: Path) -> None:
    database, bundle = tmp_path / "runs.sqlite3", tmp_path / "image.zip"
    image = picture()
    store = open_store(f"sqlite:///{database}")
    try:
        store.keep_images([image])
        first, *rest = whole_run("a1")
        store.log.append_and_wait(created_otherwise(first, images=(ImagePart.of(image),)), *rest)
    finally:
        store.close()
    assert main(["export", "a1", "--out", str(bundle), "--db", str(database)]) == 0
    with zipfile.ZipFile(bundle) as archive:
        (name,) = [name for name in archive.namelist() if name.startswith("contents/")]
        assert hashlib.sha256(archive.read(name)).hexdigest() == Path(name).stem == image.sha256
        assert "data:image/" in archive.read("records/a1.html").decode()


def test_what_was_held_of_the_runs_is_in_it(database: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "judged.zip"
    store = open_store(f"sqlite:///{database}")
    try:
        store.judgements.add("a1", PAGE, mark="wrong", note=HOSTILE)
        store.judgements.add("b2", PAGE, mark="right")
    finally:
        store.close()
    assert main(["export", "a1", "c3", "--out", str(bundle), "--db", str(database)]) == 0
    with zipfile.ZipFile(bundle) as archive:
        (line,) = archive.read("judgements.jsonl").splitlines()
    assert json.loads(line).items() >= {"run_id": "a1", "mark": "wrong", "note": HOSTILE}.items()
    (tmp_path / "elsewhere").mkdir()
    done = _verify(tmp_path / "elsewhere", bundle, database)
    assert done.returncode == 0, done.stdout + done.stderr


def test_filters_choose_the_runs(database: Path, tmp_path: Path) -> None:
    def ids(*filters: str) -> set[str]:
        bundle = tmp_path / f"{len(list(tmp_path.glob('*.zip')))}.zip"
        assert main(["export", *filters, "--out", str(bundle), "--db", str(database)]) == 0
        with zipfile.ZipFile(bundle) as archive:
            return set(json.loads(archive.read("bundle.json"))["runs"])

    assert ids("--search", "task of b2") == {"b2"}
    assert ids("--status", "completed", "--since", "2020-01-01") == {"a1", "b2", "c3"}
    assert ids("--until", "2999-01-01", "--search", "TASK OF a") == {"a1"}


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ((), "give RUN_IDs, or filters"),
        (("a1", "--all"), "give RUN_IDs, or filters"),
        (("zz",), "unknown run 'zz'"),
        (("--search", "nothing like it"), "no run fits"),
        (("--since", "yesterday"), "'yesterday' is not a date"),
    ],
)
def test_what_cannot_be_exported_is_said_in_one_line(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], fault: str
) -> None:
    target = tmp_path / "x.zip"
    assert main(["export", *arguments, "--out", str(target), "--db", str(database)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {fault}")
    assert said.count("\n") == 1
    assert not target.exists()
    assert not list(tmp_path.glob(".x.zip-*"))


def test_nothing_is_overwritten(database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "x.zip"
    target.write_text("mine")
    assert main(["export", "--all", "--out", str(target), "--db", str(database)]) == 2
    assert "overwrites nothing" in capsys.readouterr().err
    assert target.read_text() == "mine"


def test_a_bundle_of_encrypted_runs_proves_their_stored_bytes_and_says_so(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_store(f"sqlite:///{database}", Privacy(encrypt=True))
    store.log.append_and_wait(*whole_run("d4", "a secret task"))
    store.erase(["a1"], PAGE)
    store.close()
    bundle, folder = tmp_path / "all.zip", tmp_path / "elsewhere"
    folder.mkdir()
    assert main(["export", "--all", "--out", str(bundle), "--db", str(database)]) == 0
    said = capsys.readouterr()
    assert "3 runs" in said.out, "an erased run is passed over"
    assert "note: 1 run is encrypted: the bundle proves their stored bytes, and nobody can read" in said.err
    with zipfile.ZipFile(bundle) as archive:
        assert not [name for name in archive.namelist() if b"a secret task" in archive.read(name)]
        assert [name for name in archive.namelist() if name.startswith("records/")] == [
            "records/b2.html",
            "records/c3.html",
        ]
        assert "d4  (encrypted)" in archive.read("README.txt").decode()
    done = _verify(folder, bundle, database)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_erased_run_is_not_exported(database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = open_store(f"sqlite:///{database}")
    store.erase(["a1"], PAGE)
    store.close()
    assert main(["export", "a1", "--out", str(tmp_path / "one.zip"), "--db", str(database)]) == 2
    assert capsys.readouterr().err == "error: run a1 was erased: there is nothing of it to export\n"


def test_a_run_that_has_not_ended_is_exported_as_far_as_it_is(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_store(f"sqlite:///{database}")
    store.log.append_and_wait(*whole_run("d4")[:4])
    store.close()
    bundle, folder = tmp_path / "all.zip", tmp_path / "elsewhere"
    folder.mkdir()
    assert main(["export", "d4", "--out", str(bundle), "--db", str(database)]) == 0
    assert "note: 1 run had not ended" in capsys.readouterr().err
    done = _verify(folder, bundle, database)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_run_that_goes_on_while_it_is_exported_comes_as_it_was(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(f"sqlite:///{database}")
    publish, events = store.publish, iter(whole_run("d4"))
    store.log.append_and_wait(next(events))

    def late() -> None:
        """Before the events are written, and once more before the proofs are."""
        store.log.append_and_wait(next(events))
        publish()

    monkeypatch.setattr(store, "publish", late)
    try:
        done = export_runs(store, ["d4"], tmp_path / "one.zip", lambda *_: None, PAGE)
    finally:
        store.close()
    assert (done.runs, done.unfinished, done.bound, next(events).kind) == (1, 1, True, "plan.delta")
    with zipfile.ZipFile(done.path) as archive:
        assert archive.read("events.jsonl").count(b"\n") == 2
    assert main(["verify", str(done.path), "--db", str(database)]) == 0


def test_a_place_that_cannot_be_reached_is_named(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONDUCTOR_ANCHOR", str(tmp_path / "gone" / "anchor.jsonl"))
    assert main(["export", "a1", "--out", str(tmp_path / "x.zip"), "--db", str(database)]) == 2
    assert f"checkpoints cannot be published to {tmp_path / 'gone' / 'anchor.jsonl'}" in capsys.readouterr().err


def test_an_id_from_elsewhere_becomes_no_path_and_no_line_and_the_file_is_its_owners(tmp_path: Path) -> None:
    hostile = "../../../../tmp/evil\nfingerprint: 00"
    store = open_store(f"sqlite:///{tmp_path / 'runs.sqlite3'}")
    try:
        store.log.append_and_wait(*whole_run(hostile), *whole_run("one"))
        done = export_runs(store, [hostile, "one"], tmp_path / "two.zip", lambda *_: None, PAGE)
    finally:
        store.close()
    with zipfile.ZipFile(done.path) as archive:
        names = {name for name in archive.namelist() if name.startswith("records/")}
        read_me = archive.read("README.txt").decode()
    assert names == {"records/_1.html", "records/one.html"}
    assert "\nfingerprint: 00" not in read_me
    assert done.path.stat().st_mode & 0o777 == 0o600


def test_ids_that_differ_in_case_alone_or_name_a_device_have_pages_of_their_own(tmp_path: Path) -> None:
    database = tmp_path / "runs.sqlite3"
    store = open_store(f"sqlite:///{database}")
    try:
        store.log.append_and_wait(*whole_run("one"), *whole_run("ONE"), *whole_run("nul"))
        done = export_runs(store, ["one", "ONE", "nul"], tmp_path / "three.zip", lambda *_: None, PAGE)
    finally:
        store.close()
    with zipfile.ZipFile(done.path) as archive:
        names = {name for name in archive.namelist() if name.startswith("records/")}
    assert names == {"records/one.html", "records/_2.html", "records/_3.html"}
    assert main(["verify", str(done.path), "--db", str(database)]) == 0
