"""Somebody else keeps what a log publishes: the choice of a place, the pulling, and what then counts as witnessed."""

import json
import os
import re
import shutil
import subprocess
from base64 import b64decode
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conductor_core.cli.log_evidence import Doubt, pull
from storage import open_store
from storage.evidence import anchoring as anchors
from storage.evidence.anchoring import FileAnchor, places_of
from storage.evidence.history import CLASSES
from storage.evidence.keys import load_key
from storage.merkle.formats import PublicKey, read_key
from tests.support.command_line import log as main
from tests.support.privileges import without_privileges
from tests.support.run_events import whole_run

Said = pytest.CaptureFixture[str]


def written(path: Path, *run_ids: str) -> None:
    with closing(open_store(f"sqlite:///{path}")) as store:
        for run_id in run_ids:
            store.log.append_and_wait(*whole_run(run_id))


def key_of(path: Path, capsys: Said) -> str:
    capsys.readouterr()
    assert main(["key", "--db", str(path)]) == 0
    return capsys.readouterr().out.splitlines()[0]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "runs.sqlite3"
    written(path, "r1")
    written(path, "r2")
    return path


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """The folder of a witness."""
    folder = tmp_path / "witness"
    folder.mkdir()
    return folder


def pulled(path: Path, kept: Path, *more: str) -> int:
    return main(["witness", str(places_of(path).anchor.file), "--to", str(kept), "--once", *more])


def test_a_witness_keeps_what_is_published_and_can_be_the_anchor(path: Path, kept: Path, capsys: Said) -> None:
    key = key_of(path, capsys)
    assert pulled(path, kept) == 2
    assert "give the log's public key with --public-key" in capsys.readouterr().err
    assert pulled(path, kept, "--public-key", key) == 0
    assert "27 entries, 27 new" in capsys.readouterr().out
    written(path, "r3")
    assert pulled(path, kept) == 0, "the key is kept"
    assert "40 entries, 13 new" in capsys.readouterr().out
    assert pulled(path, kept) == 0
    assert "40 entries, 0 new" in capsys.readouterr().out
    assert main(["verify", "--db", str(path), "--public-key", key, "--anchor", str(kept / "anchor.jsonl")]) == 0


def test_a_witness_stops_with_a_finding_when_history_is_cut_or_changed(path: Path, kept: Path, capsys: Said) -> None:
    key, anchor = key_of(path, capsys), places_of(path).anchor.file
    older = path.with_name("older.sqlite3")
    shutil.copy(path, older)
    written(path, "r3")
    assert pulled(path, kept, "--public-key", key) == 0
    before, whole = (kept / "anchor.jsonl").read_bytes(), anchor.read_text()
    anchor.write_text("".join(whole.splitlines(keepends=True)[:2]))
    assert pulled(path, kept) == CLASSES["rolled_back"]
    assert "the log now publishes 27 entries, and 40 are kept" in capsys.readouterr().err
    anchor.write_text("")
    assert pulled(path, kept) == CLASSES["rolled_back"]
    shutil.copy(older, path)
    written(path, "another", "one")
    assert pulled(path, kept) == CLASSES["fork"]
    anchor.write_text(whole.replace('"of":[-1', '"of":[0', 1))
    assert pulled(path, kept) == 0, "whose run an entry is of is not in the root, and what is kept has it right"
    anchor.write_text(whole.splitlines(keepends=True)[0] + whole.splitlines(keepends=True)[2])
    assert pulled(path, kept) == CLASSES["anchor"]
    assert (kept / "anchor.jsonl").read_bytes() == before


def test_a_witness_takes_up_a_log_that_publishes_all_again_and_a_key_that_was_replaced(
    path: Path, kept: Path, capsys: Said
) -> None:
    assert pulled(path, kept, "--public-key", key_of(path, capsys)) == 0
    places_of(path).anchor.file.unlink()
    written(path, "r3")  # one line, from the first entry on
    assert pulled(path, kept) == 0
    assert main(["key", "--rotate", "--db", str(path)]) == 0
    assert pulled(path, kept) == CLASSES["unsigned"]
    assert "let them hand out the new one" in capsys.readouterr().err
    assert pulled(path, kept, "--public-key", key_of(path, capsys)) == 0
    lines = [json.loads(line) for line in (kept / "anchor.jsonl").read_text().splitlines()]
    ends = [line["from"] + len(line["of"]) for line in lines]
    assert [line["from"] for line in lines] == [0, *ends[:-1]]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], PublicKey]:
    """The lines of a log with six runs, and its key."""
    path = tmp_path_factory.mktemp("log") / "runs.sqlite3"
    for number in range(6):
        written(path, f"r{number}")
    with closing(open_store(f"sqlite:///{path}")) as store:
        origin = store.evidence().origin
    return places_of(path).anchor.file.read_text().splitlines(keepends=True), load_key(
        places_of(path).key, origin
    ).public


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_what_a_witness_keeps_only_grows_and_is_always_a_beginning_of_the_log(
    log: tuple[list[str], PublicKey], tmp_path: Path, data: st.DataObject
) -> None:
    lines, key = log
    file = tmp_path / "kept.jsonl"
    file.unlink(missing_ok=True)
    sizes, size = [0], 0
    for _ in range(data.draw(st.integers(1, 4))):
        shown = data.draw(st.lists(st.sampled_from(lines), max_size=8) | st.integers(0, 6).map(lambda n: lines[:n]))
        try:
            size, _new = pull(shown, file, [key])
        except Doubt:
            assert shown != lines
        sizes.append(size)
    assert sizes == sorted(sizes)
    whole, own = (b"".join(leaves(each)) for each in (lines, file.read_text().splitlines() if file.exists() else []))
    assert whole.startswith(own)
    assert len(own) == 32 * size


def leaves(lines: list[str]) -> Iterator[bytes]:
    yield from (b64decode(json.loads(line)["leaves"]) for line in lines)


def test_a_witness_by_another_user_is_told_from_a_file_of_ones_own(
    open_folder: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be two users")
    own, witness = open_folder / "own", open_folder / "witness"
    for folder in (own, witness):
        folder.mkdir()
        folder.chmod(0o755)  # whatever a command has set for this process
    os.chown(own, 65534, 65534)
    monkeypatch.setenv("CONDUCTOR_DATA_FOLDER", str(own / "data"))
    with without_privileges():
        written(own / "runs.sqlite3", "r1")
        assert main(["anchor", "--db", str(own / "runs.sqlite3"), "--to", str(own / "stream.jsonl")]) == 0
        said = capsys.readouterr()
        assert "signed here, not witnessed: the user of this program can rewrite" in said.err
        assert f"conductor log witness {own / 'stream.jsonl'} --to FOLDER --public-key " in said.out
        assert main(["anchor", "--db", str(own / "runs.sqlite3"), "--to", str(witness)]) == 0
        assert "cannot be read (No such file or directory)" in capsys.readouterr().err
    with without_privileges():
        key = key_of(own / "runs.sqlite3", capsys)
    pull_all = ["witness", str(own / "stream.jsonl"), "--to", str(witness), "--once", "--public-key", key]
    assert main(pull_all) == 0
    with without_privileges():
        capsys.readouterr()
        assert main(["anchor", "--db", str(own / "runs.sqlite3")]) == 0
        said = capsys.readouterr()
        assert said.err == ""
        assert "has 14 entries" in said.out
        assert "witnessed: another user keeps" in said.out
        assert f"fingerprint: {read_key(key).fingerprint}" in said.out
        with closing(open_store(f"sqlite:///{own / 'runs.sqlite3'}")) as store:
            assert (store.evidence().witness.witnessed, store.evidence().witness_size) == (True, 14)
        written(own / "runs.sqlite3", "r2")
        (own / "stream.jsonl").unlink()
        assert main(["verify", "--db", str(own / "runs.sqlite3")]) == CLASSES["anchor"], "what the witness has is read"
        assert "12 events are covered by no checkpoint from outside" in capsys.readouterr().out
    witness.chmod(0o777)
    with without_privileges():
        assert not places_of(own / "runs.sqlite3").witnessed().witnessed, "its folder can be written by all"


def test_a_choice_lasts_without_an_environment_variable_and_all_is_published_there(
    path: Path, tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "elsewhere"
    place.mkdir()
    assert main(["anchor", "--db", str(path), "--to", str(place)]) == 0
    written(path, "r3")
    assert FileAnchor(place / "anchor.jsonl").size(key_of(path, capsys).partition("+")[0]) == 40
    assert main(["verify", "--db", str(path)]) == 0
    assert main(["anchor", "--db", str(path), "--to", str(tmp_path / "nowhere" / "anchor.jsonl")]) == 2
    monkeypatch.setenv("CONDUCTOR_ANCHOR", str(tmp_path / "by-setting.jsonl"))
    assert places_of(path, str(tmp_path / "by-setting.jsonl")).anchor.file == tmp_path / "by-setting.jsonl"
    assert main(["anchor", "--db", str(path), "--to", str(place / "x.jsonl")]) == 2
    assert "CONDUCTOR_ANCHOR is set" in capsys.readouterr().err


def test_an_append_only_file_is_a_witness_unless_its_folder_can_be_replaced(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    anchor = places_of(path).anchor
    monkeypatch.setattr(anchors, "_is_append_only", lambda file: True)
    assert "can replace its folder" in anchor.witnessed().why
    monkeypatch.setattr(anchors, "_replaceable", lambda entries: False)
    assert anchor.witnessed().witnessed


def test_what_the_remote_of_a_git_anchor_refuses_is_asked(
    path: Path, tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone, remote = tmp_path / "clone", tmp_path / "remote.git"
    git = ["git", "-C", str(clone)]
    subprocess.run(["git", "init", "--quiet", "-b", "main", str(clone)], check=True)
    for name, value in (("user.name", "log"), ("user.email", "log@localhost"), ("push.autoSetupRemote", "true")):
        subprocess.run([*git, "config", name, value], check=True)

    def chosen(code: int = 0) -> str:
        assert main(["anchor", "--db", str(path), "--to", f"git:{clone}"]) == code
        return capsys.readouterr().err

    assert "has no remote" in chosen()
    subprocess.run(["git", "init", "--quiet", "--bare", "-b", "main", str(remote)], check=True)
    subprocess.run([*git, "remote", "add", "origin", str(remote)], check=True)
    assert "lets history be replaced: protect the branch" in chosen(2)
    published = subprocess.run([*git, "ls-remote", "origin", "main"], check=True, capture_output=True, text=True).stdout
    assert published.split()[0] in (remote / "refs/heads/main").read_text(), "what it let through is put back"
    assert f"git -C {remote} config receive.denyNonFastForwards true" in places_of(path).witnessed().why
    for name in ("receive.denyNonFastForwards", "receive.denyDeletes"):
        subprocess.run(["git", "-C", str(remote), "config", name, "true"], check=True)
    assert "whoever can push to a folder of this machine can rewrite its files" in chosen()
    for spelt in ("../remote.git", f"file://localhost{remote}", f"file://{remote.parent}/remote%2egit"):
        subprocess.run([*git, "remote", "set-url", "origin", spelt], check=True)
        assert "can be a folder of this machine" in chosen()
    subprocess.run([*git, "remote", "set-url", "origin", str(remote)], check=True)
    chosen()
    monkeypatch.setattr(anchors, "_folder_of", lambda url: None)  # as if it were reached over ssh
    monkeypatch.setattr(anchors, "_OVER_A_NETWORK", re.compile(""))
    assert places_of(path).witnessed().witnessed
    written(path, "r3")
    assert subprocess.run([*git, "status", "--porcelain"], check=True, capture_output=True).stdout == b""
    subprocess.run([*git, "remote", "set-url", "origin", "https://ada:secret@git.example.org/log"], check=True)
    said = places_of(path).witnessed()
    assert not said.witnessed, "another remote than the one that was tried"
    assert "whether https://git.example.org/log refuses" in said.why
    assert "secret" not in said.why
