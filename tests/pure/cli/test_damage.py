"""What the commands say of a run that cannot be read to its end, and of a database that cannot be written."""

import asyncio
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from conductor_core.run.events import Event
from storage import Privacy, open_store
from storage.log.event_log import EventLog
from tests.support import damaging
from tests.support.command_line import CommandLine
from tests.support.run_events import answered, created, planned, whole_run

Doctor = Callable[..., None]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A finished run (events 1 to 12), one broken off (13 to 20) and a whole one."""
    path = tmp_path / "runs.sqlite3"
    store = open_store(f"sqlite:///{path}")
    store.log.append_and_wait(*whole_run("ended"))
    store.log.append_and_wait(created("open"), *planned("open"), *answered("open", 0))
    store.log.append_and_wait(*whole_run("whole"))
    store.close()
    return path


@pytest.fixture
def doctor(database: Path) -> Doctor:
    return partial(damaging.doctor, database)


DAMAGE = "UPDATE events SET payload = '{' WHERE sequence = "
NEWER = """UPDATE events SET kind = 'x.y', payload = '{"kind": "x.y"}' WHERE sequence = """


@pytest.mark.parametrize(("change", "status"), [(DAMAGE, "damaged"), (NEWER, "too_new")])
@pytest.mark.parametrize(("run_id", "sequence"), [("ended", 7), ("open", 19)])
def test_every_command_goes_on(
    cli: CommandLine, database: Path, doctor: Doctor, change: str, status: str, run_id: str, sequence: int
) -> None:
    doctor(f"{change}{sequence}")

    listed = cli("runs", "--db", database)
    assert listed.code == 0
    [warning] = listed.err.splitlines()
    assert warning.startswith(f"warning: run {run_id} ")
    assert f"event {sequence} " in warning
    rows = {line.split()[0]: line for line in listed.out.splitlines()[1:]}
    assert status.replace("_", " ") in rows[run_id]
    assert "completed" in rows["whole"]
    document = {run["run_id"]: run for run in cli("runs", "--db", database, "--json").document["runs"]}
    assert (document[run_id]["status"], document["whole"]["status"]) == (status, "completed")
    assert f"event {sequence} " in document[run_id]["damage"]
    assert document["whole"]["damage"] is None
    found = cli("runs", "--db", database, "--status", status, "--json").document["runs"]
    assert [run["run_id"] for run in found] == [run_id]

    shown = cli("show", run_id, "--db", database)
    assert shown.code == 2
    assert f"event {sequence} " in shown.error
    assert f"--event {sequence} prints" in shown.error
    assert f"run {run_id} · {status.replace('_', ' ')}, as far as it can be read:" in shown.out
    assert "step 0 · solver" in shown.out, "what stands before the damage"
    whole = cli("show", run_id, "--db", database, "--json")
    assert (whole.code, whole.document["status"], whole.document["damage"]["sequence"]) == (2, status, sequence)
    assert whole.document["task"] == "What is 6 times 7?"

    rerun = cli("rerun", run_id, "--db", database, "--dry-run")
    assert (rerun.code, rerun.out) == (2, "")
    assert f"event {sequence} " in rerun.error

    assert cli("show", "whole", "--db", database).code == 0
    assert cli("show", "whole", "--db", database, "--json").document["damage"] is None


def test_a_record_is_printed_as_it_lies_there(cli: CommandLine, database: Path, doctor: Doctor) -> None:
    doctor("UPDATE events SET payload = CAST(x'7b1b5b33316dff' AS TEXT) WHERE sequence = 7")
    shown = cli("show", "ended", "--event", 7, "--db", database)
    assert shown.code == 0
    assert shown.out.startswith("event 7, step.delta, 20")
    assert shown.out.endswith(": {\\x1b[31m\\xff\n"), "a terminal would obey it"
    document = cli("show", "ended", "--event", 6, "--db", database, "--json").document
    assert (document["sequence"], document["kind"]) == (6, "step.started")
    assert json.loads(document["payload"])["kind"] == "step.started"
    assert cli("show", "ended", "--event", 13, "--db", database).error == "run ended has no event 13"


def test_a_run_of_which_nothing_can_be_read(cli: CommandLine, database: Path, doctor: Doctor) -> None:
    doctor(f"{DAMAGE}1")
    shown = cli("show", "ended", "--db", database)
    assert (shown.code, shown.out) == (2, "")
    assert "Nothing of it can be read" in shown.error
    assert cli("show", "ended", "--db", database, "--json").document["error"]["code"] == "RunDamaged"
    assert "damaged" in cli("runs", "--db", database).out


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        ("", "the run stopped: the database DB was deleted, moved or replaced while this program had it open"),
        (".owners", "failed: what says that this program is alive was deleted from DB.owners"),
    ],
)
def test_a_run_under_which_files_are_deleted_ends_and_says_why(
    cli: CommandLine, database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str, said: str
) -> None:
    append = EventLog.append

    def append_and_delete(self: EventLog, *events: Event) -> "asyncio.Future[None]":
        if any(event.kind == "step.started" for event in events):
            file = Path(f"{database}{gone}")
            (shutil.rmtree if gone else Path.unlink)(file)
        return append(self, *events)

    file = tmp_path / "workflow.json"
    file.write_text(json.dumps({"steps": [{"instruction": "x", "agent": "planner", "access_list": []}]}))
    with monkeypatch.context() as patched:
        patched.setattr(EventLog, "append", append_and_delete)
        outcome = cli("run", "a task", "--workflow", file, "--db", database, "--json", "-q")
    assert outcome.code == 1
    last = outcome.err.splitlines()[-1]
    assert said.replace("DB", str(database)) in last
    if gone:
        assert outcome.document["error"]["code"] == "OwnerGone"
        assert cli("runs", "--db", database, "--json").document["runs"][0]["status"] == "failed"
    else:
        assert outcome.document["error"]["code"] == "StoreGone"


def test_a_run_whose_key_is_away_is_not_called_damaged_and_has_one_advice(cli: CommandLine, database: Path) -> None:
    store = open_store(f"sqlite:///{database}", Privacy(encrypt=True))
    store.log.append_and_wait(*whole_run("sealed"))
    store.close()
    keys = database.with_name(f"{database.name}.keys")
    keys.unlink()
    advice = f"the file of keys {keys} is not there: put that file beside the database again"
    listed, shown = cli("runs", "--db", database), cli("show", "sealed", "--db", database)
    assert [listed.code, shown.code] == [0, 2]
    assert listed.err == f"warning: run sealed is encrypted, and its key is away: {advice}\n"
    assert shown.err == f"error: run sealed is encrypted, and its key is away: {advice}\n"
    assert "  key away  " in listed.out
    assert "damaged" not in listed.out
    found = cli("runs", "--db", database, "--status", "key_away", "--json").document["runs"]
    assert [run["run_id"] for run in found] == ["sealed"]
