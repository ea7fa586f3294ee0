"""What an expert reads of a bundle comes from its proven events alone, and no text in them steers a terminal."""

import json
import subprocess
import sys
import zipfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.analysis.decision_record import decision_record, record_text
from storage import Privacy, open_store
from storage.bundles import verifier_digest, verifier_source
from storage.evidence import verifier
from storage.evidence.history import CLASSES
from storage.evidence.verifier import event_record
from tests.pure.analysis.test_reading import edited_run
from tests.support.alone import python_alone
from tests.support.command_line import log as main
from tests.support.run_events import created_otherwise, whole_run

Said = pytest.CaptureFixture[str]
HOSTILE = "```\n# Answer\n\x1b[2J\u202e\u2028forged: yes\r\n- forged"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "runs.sqlite3"
    with closing(open_store(f"sqlite:///{path}")) as store:
        store.log.append_and_wait(*edited_run("edited"), *whole_run("other", HOSTILE))
    return path


@pytest.fixture
def bundle(database: Path, tmp_path: Path, capsys: Said) -> Path:
    bundle = tmp_path / "bundle.zip"
    assert main(["export", "--all", "--out", str(bundle), "--db", str(database)]) == 0
    capsys.readouterr()
    return bundle


def key(database: Path, capsys: Said) -> str:
    assert main(["key", "--db", str(database)]) == 0
    return capsys.readouterr().out


def changed(bundle: Path, folder: Path, before: str, after: str) -> Path:
    """The bundle unpacked, with other words in an event."""
    with zipfile.ZipFile(bundle) as archive:
        archive.extractall(folder)
    events = folder / "events.jsonl"
    assert before in events.read_text()
    events.write_text(events.read_text().replace(before, after))
    return folder


def test_it_says_who_asked_who_changed_and_approved_what_each_step_saw_and_who_received_it(
    database: Path, bundle: Path, capsys: Said
) -> None:
    assert main(["record", str(bundle), "edit", "--db", str(database)]) == 0
    said = capsys.readouterr().out
    assert "OK: nothing was found" in said.split("# Decision record")[0]
    for words in (
        "Ada, page changed the plan",
        "- step 2 no longer reads step 1",
        "approved by Ada, page",
        "    | Now it is right.",
        "### openai at models.example:8443",
        "- it never got step 1",
        "- it was not shown the output of step 1 (solver)",
        "## Answer, from step 2\n\n    | It is 42.\n",
    ):
        assert words in said, words
    assert "run other" not in said


def test_what_is_not_proven_is_said_first_and_left_out(
    database: Path, bundle: Path, tmp_path: Path, capsys: Said
) -> None:
    folder = changed(bundle, tmp_path / "changed", "It is 42.", "It is 43.")
    assert main(["record", str(folder), "edited", "--db", str(database)]) == CLASSES["edited"]
    said = capsys.readouterr().out
    assert said.startswith("EDITED run edited event")
    assert "NOT PROVEN: the check above found that something was changed." in said.split("# Decision record")[0]
    assert "Only a part of this run can be read" in said
    assert "It is 43." not in said
    assert "The run has no answer." in said

    given = [str(folder), "--public-key", key(database, capsys), "--record", "--run", "edited"]
    assert verifier.main(given) == CLASSES["edited"]
    said = capsys.readouterr().out
    assert said.startswith("EDITED run edited event")
    assert "It is 43." not in said
    assert "what comes after these events is not proven" in said


def test_the_verifier_alone_says_what_happened(database: Path, bundle: Path, tmp_path: Path, capsys: Said) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    assert main(["verifier", str(folder / "verify.py")]) == 0
    assert f"sha256 {verifier_digest(verifier_source())}" in capsys.readouterr().out.splitlines()
    command = [sys.executable, "-S", "-s", "verify.py", str(bundle), "--public-key", key(database, capsys), "--record"]
    done = subprocess.run(
        command, cwd=folder, env=python_alone(folder), capture_output=True, text=True, check=False, encoding="utf-8"
    )
    assert (done.returncode, done.stderr) == (0, "")
    for words in (
        f"the key's {key(database, capsys).splitlines()[1]}",
        "Sent to writer: openai, model gpt-9, at models.example:8443",
        "plan.edited, by Ada, page",
        "- withheld: the output of step 1 (solver)",
        "    | It is 42.",
        "    | \\x1b[2J\\u202e\\u2028forged: yes\\r\n    | - forged",
    ):
        assert words in done.stdout, words
    assert "\x1b" not in done.stdout


def test_a_run_that_is_encrypted_or_not_there_is_said(tmp_path: Path, capsys: Said) -> None:
    path, bundle = tmp_path / "runs.sqlite3", tmp_path / "bundle.zip"
    with closing(open_store(f"sqlite:///{path}", Privacy(encrypt=True))) as store:
        store.log.append_and_wait(*whole_run("r"))
    assert main(["export", "r", "--out", str(bundle), "--db", str(path)]) == 0
    assert main(["record", str(bundle), "--db", str(path)]) == 0
    assert "Its proven events cannot be read: it is encrypted" in capsys.readouterr().out
    assert main(["record", str(bundle), "x", "--db", str(path)]) == 2
    assert "no proven event of a run 'x'" in capsys.readouterr().err
    assert main(["record", str(path), "--db", str(path)]) == 2
    assert "is not an exported bundle" in capsys.readouterr().err
    given = [str(bundle), "--public-key", key(path, capsys), "--record"]
    assert verifier.main(given) == 0
    assert "Event 0 cannot be read: it is encrypted" in capsys.readouterr().out


@given(st.text())
def test_a_text_in_a_record_is_set_off_line_by_line(text: str) -> None:
    """As a reader sees it whose program breaks lines wherever Python does."""
    first, *rest = whole_run("r", "a task")
    ours = set(record_text(decision_record([first, *rest])).splitlines())
    hostile = created_otherwise(first, task=f"a task\n{text}")
    record = record_text(decision_record([hostile, *rest]))
    assert all(line in ours or line.startswith("    | ") for line in record.splitlines())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("at_utc", "request", "pool", "conductor", "path", "agent", "messages", "granted", "workflow", "output", "by")


@given(
    st.sampled_from(["run.created", "plan.completed", "plan.edited", "step.started", "step.reused", "step.completed"]),
    st.dictionaries(st.sampled_from(FIELDS), JSON),
)
def test_no_event_stops_the_verifiers_record_or_steers_a_terminal(kind: str, fields: dict[str, object]) -> None:
    payload = json.dumps({**fields, "kind": kind}).encode()
    assert all(line.isprintable() for line in event_record("r", [payload]))


def test_the_modules_of_the_one_file_do_not_take_each_others_names() -> None:
    names = [
        line.split("(")[0].split(":")[0].split(" = ")[0].removeprefix("def ").removeprefix("class ")
        for line in verifier_source().splitlines()
        if line[:1].isidentifier() and not line.startswith(("from ", "import ", "if "))
    ]
    assert len(names) > 100
    assert sorted(set(names)) == sorted(names)
