"""Who looked at what is on record in the log: each look once, with its actor, and no word of a run or a search."""

import json
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from conductor_core.files import FileLock
from conductor_core.run.actor import Actor, Caller
from conductor_core.run.values import Imported
from storage import Store, access_log, open_store
from storage.access_log import AccessQuery, AccessRecord, digests
from storage.evidence.anchoring import places_of
from storage.evidence.history import Report
from storage.evidence.keys import load_key
from storage.evidence.verifier import verify
from tests.support.command_line import CommandLine
from tests.support.command_line import log as main
from tests.support.privileges import without_privileges
from tests.support.run_events import PAGE, created, whole_run

ADA = Caller(actor=Actor(kind="local", id="ada", name="Ada"), door="page")
GRACE = Caller(actor=Actor(kind="local", id="grace", name="Grace"), door="cli")
NOW = "2026-01-01T00:00:00+00:00"


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys)


def kept(store: Store, asked: AccessQuery | None = None) -> list[AccessRecord]:
    assert store.access_log.settle() is None
    return list(store.access_log.read(asked or AccessQuery()).records)


@pytest.fixture
def database(store: Store, path: Path) -> Path:
    """Two runs, at which Ada and Grace looked."""
    store.log.append_and_wait(*whole_run("first", "Where does Zoë live?"), *whole_run("second"))
    store.access_log.viewed(["first"], "run page", ADA, "b1")
    store.access_log.searched("Zoë Lovelace", ["actor"], "texts", ADA, "b1")
    store.access_log.exported(["first", "second"], "json", GRACE)
    assert store.access_log.settle() is None
    store.close()
    return path


def test_a_look_says_who_saw_what_and_through_which_door(store: Store) -> None:
    store.log.append_and_wait(*whole_run("r"))
    store.access_log.viewed(["r"], "run page", ADA, "b1")
    (look,) = kept(store)
    assert (look.kind, look.run_id, look.what, look.session, look.caller) == ("viewed", "r", "run page", "b1", ADA)
    assert look.at_utc is not None
    assert look.in_words == "viewed: run page"


def test_a_page_that_stays_open_is_one_look_an_hour_and_a_file_is_one_each(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.log.append_and_wait(*whole_run("r"), *whole_run("other"))
    clock_s = [1000.0]
    monkeypatch.setattr(access_log, "_now_s", lambda: clock_s[0])
    for _ in range(3):
        store.access_log.viewed(["r"], "run page", ADA, "b1")
        clock_s[0] += 1
    assert len(kept(store)) == 1
    store.access_log.viewed(["r"], "run page", ADA, "b2")
    store.access_log.viewed(["r", "other"], "context page", ADA, "b1")
    store.access_log.viewed(["r"], "run page", GRACE, "b1")
    assert len(kept(store)) == 5
    clock_s[0] += access_log.AGAIN_S
    store.access_log.viewed(["r"], "run page", ADA, "b1")
    for _ in range(2):
        store.access_log.exported(["r"], "html", ADA, "b1")
    assert len(kept(store)) == 8


def test_runs_that_came_with_the_program_are_left_out(store: Store) -> None:
    shipped = Imported(run_id="s", written_by="0", written_at_utc=NOW, imported_at_utc=NOW, recorded=True)
    store.log.append_and_wait(created("s", imported=shipped))
    store.access_log.viewed(["s"], "run page", ADA)
    assert kept(store) == []


def test_words_of_a_search_are_found_by_their_digests_and_stand_nowhere(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in database.parent.rglob("*"):
        if file.is_file():
            assert b"lovelace" not in file.read_bytes().lower(), file
    assert [look["what"] for look in printed(capsys, database, "--searched", "LOVELACE zoe")] == ["texts"]
    assert printed(capsys, database, "--searched", "byron") == []
    assert digests(b"key", "ada \ud800") == digests(b"key", "Ada"), "half a character is no word"
    (search,) = printed(capsys, database, "--kind", "searched")
    assert (len(search["words"]), search["filters"], search["run_id"]) == (2, ["actor"], None)
    (database.parent / f"{database.name}.master-key").unlink()
    assert main(["access", "--searched", "lovelace", "--db", str(database)]) == 2
    assert "the master key is missing" in capsys.readouterr().err
    assert main(["search", "zoe", "--db", str(database)]) == 0  # makes another key, with other digests
    capsys.readouterr()
    assert printed(capsys, database, "--searched", "lovelace") == []


def printed(capsys: pytest.CaptureFixture[str], database: Path, *arguments: str) -> list[dict[str, Any]]:
    assert main(["access", *arguments, "--db", str(database), "--json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["looks"]
    return found


def test_the_command_filters_and_pages_and_takes_the_beginning_of_an_id(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of_run = [(look["kind"], look["actor"]["id"], look["door"]) for look in printed(capsys, database, "fir")]
    assert of_run == [("exported", "grace", "cli"), ("viewed", "ada", "page")]
    assert [look["session"] for look in printed(capsys, database, "fir")] == ["", "b1"]
    assert [look["run_id"] for look in printed(capsys, database, "--actor", "Grace")] == ["second", "first"]
    assert printed(capsys, database, "--until", "2020-01-01") == []
    assert len(printed(capsys, database, "--since", "2020-01-01")) == 4
    assert main(["access", "--db", str(database), "--limit", "2"]) == 0
    *lines, more = capsys.readouterr().out.splitlines()
    assert lines[1].endswith("run first: exported: json; by Grace (claimed, not verified), cli")
    rest = printed(capsys, database, "--before", more.split()[-1])
    assert [look["kind"] for look in rest] == ["searched", "viewed"]
    assert main(["access", "nobody", "--db", str(database)]) == 2
    assert "no record of a run" in capsys.readouterr().err


def test_looks_stay_when_a_run_is_erased_or_deleted_with_who_did_it(database: Path) -> None:
    store = open_store(f"sqlite:///{database}")
    store.erase(["first"], GRACE)
    store.delete(["second"], ADA)
    store.rotate_key(GRACE)
    try:
        found = [(look.kind, look.run_id, look.caller) for look in kept(store)][:3]
        assert found == [("key", None, GRACE), ("deleted", "second", ADA), ("erased", "first", GRACE)]
        assert [look.kind for look in kept(store, AccessQuery(run_id="first"))] == ["erased", "exported", "viewed"]
    finally:
        store.close()


def test_a_look_that_cannot_be_kept_stops_nobody_and_is_told_and_tried_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(f"sqlite:///{path}", busy_timeout_s=0.1)
    store.log.append_and_wait(*whole_run("r"))
    monkeypatch.setattr(access_log, "_RETRY_S", 0.0)
    with closing(FileLock(path.with_name(f"{path.name}.lock"))) as lock:
        assert lock.try_acquire()
        store.access_log.viewed(["r"], "run page", ADA)
        assert "another program" in (store.access_log.settle() or "")
    assert (store.access_log.lost, store.access_log.fault is None) == (1, False)
    store.access_log.viewed(["r"], "run page", ADA)
    assert len(kept(store)) == 1
    assert store.access_log.fault is None
    store.close()


def test_a_search_without_a_usable_master_key_is_told(store: Store, path: Path) -> None:
    key = path.with_name(f"{path.name}.master-key")
    key.write_text("no key")
    key.chmod(0o600)
    store.access_log.searched("ada", [], "texts", ADA)
    assert "holds no master key" in (store.access_log.settle() or "")


def test_a_database_that_can_only_be_read_says_that_no_look_is_kept(
    open_folder: Path,
) -> None:
    database = open_folder / "media" / "runs.sqlite3"
    store = open_store(f"sqlite:///{database}")
    store.log.append_and_wait(*whole_run("r"))
    store.access_log.viewed(["r"], "run page", ADA)
    store.close()
    for file in [*database.parent.iterdir(), database.parent]:
        file.chmod(0o555)
    with without_privileges():
        store = open_store(f"sqlite:///{database}")
        store.access_log.viewed(["r"], "context page", ADA)
        store.access_log.searched("ada", [], "texts", ADA)
        assert store.access_log.settle() == "the database can only be read"
        assert [look.what for look in store.access_log.read(AccessQuery()).records] == ["run page"]
        store.close()


def test_the_commands_that_show_and_export_runs_are_on_record(
    database: Path, tmp_path: Path, cli: CommandLine, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"sqlite:///{database}"
    for arguments in (
        ["show", "first"],
        ["show", "first", "--event", "1"],
        ["export", "first", "--as", "record", "--out", str(tmp_path / "record.html")],
        ["compare", "first", "second", "--html", str(tmp_path / "both.html")],
    ):
        assert cli(*arguments, "--db", address).code == 0, arguments
    assert main(["search", "where", "--db", str(database)]) == 0
    assert main(["ledger", "where", "--db", str(database)]) == 0
    assert main(["received", "openai", "Ada", "--db", str(database)]) == 0
    assert main(["backup", str(tmp_path / "copy"), "--db", str(database)]) == 0
    capsys.readouterr()
    said = [(look["run_id"], look["kind"], look["what"]) for look in printed(capsys, database)][:-4]
    assert said == [
        (None, "exported", "backup"),
        (None, "searched", "received"),
        (None, "searched", "ledger"),
        ("first", "viewed", "hits"),
        (None, "searched", "texts"),
        ("second", "exported", "comparison"),
        ("first", "exported", "comparison"),
        ("second", "viewed", "compare"),
        ("first", "viewed", "compare"),
        ("first", "exported", "record"),
        ("first", "viewed", "show --event"),
        ("first", "viewed", "show"),
    ]
    assert main(["verify", "--db", str(database)]) == 0


def test_a_backup_without_a_usable_master_key_says_why_it_is_not_on_record(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = database.with_name(f"{database.name}.master-key")
    key.chmod(0o644)
    monkeypatch.setenv("CONDUCTOR_REDACT_DIGESTS", "true")
    assert main(["backup", str(tmp_path / "copy"), "--db", str(database)]) == 0
    assert capsys.readouterr().err == (
        f"warning: this backup is not in the access log: the master key {key} can be read by others: "
        f"run chmod 600 {key}\n"
    )


def test_a_bundle_holds_the_looks_at_its_runs_and_the_record_of_itself(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = tmp_path / "second.zip"
    assert main(["export", "second", "--out", str(bundle), "--db", str(database)]) == 0
    with zipfile.ZipFile(bundle) as archive:
        lines = archive.read("records.jsonl").decode().splitlines()
    records = [json.loads(json.loads(line)["record"]) for line in lines]
    assert [(each["what"], each["run"]) for each in records if each["kind"].startswith("content.")] == [
        ("json", "second"),
        ("bundle", "second"),
    ]
    assert main(["verify", str(bundle), "--db", str(database)]) == 0


def test_commands_publish_looks_where_the_settings_say(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    anchor = tmp_path / "anchor.jsonl"
    store = open_store(f"sqlite:///{path}", anchor=str(anchor))
    store.log.append_and_wait(*whole_run("r"))
    store.close()
    monkeypatch.setenv("CONDUCTOR_ANCHOR", str(anchor))
    assert main(["search", "answer", "--db", str(path)]) == 0
    assert main(["erase", "r", "--db", str(path)]) == 0
    assert not places_of(path).anchor.file.exists()
    assert checked(path, anchor).findings == []
    assert len(anchor.read_text().splitlines()) > 1


def checked(path: Path, anchor: Path | None = None) -> Report:
    with closing(sqlite3.connect(path)) as connection:
        ((origin,),) = connection.execute("SELECT origin FROM evidence_log")
    places = places_of(path)
    return verify(path, [load_key(places.key, origin).public], [anchor or places.anchor.file], lambda what, count: None)


def doctor_leaves(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for action in ("update", "delete"):
            connection.execute(f"DROP TRIGGER IF EXISTS leaves_no_{action}")
        connection.execute(statement)


@pytest.mark.parametrize(
    ("statement", "run_id", "says"),
    [
        (
            """UPDATE leaves SET record = replace(record, '"Ada"', '"Eve"') WHERE position = {entry}""",
            None,
            "the record at entry {entry} is not as it was written; it now reads content.viewed of run first",
        ),
        ("DELETE FROM leaves WHERE position = {entry}", None, "the record at entry {entry} is missing"),
        (
            "UPDATE leaves SET run_id = 'second' WHERE position = {entry}",
            "first",
            "the record at entry {entry} (content.viewed) is filed under run second",
        ),
    ],
    ids=["edited", "deleted", "hidden under another run"],
)
def test_what_somebody_did_to_a_look_is_found_and_located(
    database: Path, statement: str, run_id: str | None, says: str
) -> None:
    assert checked(database).findings == []
    with closing(sqlite3.connect(database)) as connection:
        ((entry,),) = connection.execute("SELECT position FROM leaves WHERE record LIKE '%content.viewed%'")
    doctor_leaves(database, statement.format(entry=entry))
    found = [(each.kind, each.run_id, each.what) for each in checked(database).findings]
    assert ("evidence", run_id, says.format(entry=entry)) in found
    assert {kind for kind, *_ in found} == {"evidence"}


def test_a_damaged_record_hides_no_other(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    doctor_leaves(database, "UPDATE leaves SET record = '{' WHERE record LIKE '%content.searched%'")
    assert main(["access", "--db", str(database)]) == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 3
    assert "1 record is damaged" in said.err
    doctor_leaves(database, "UPDATE leaves SET record = '{' WHERE record LIKE '%content.viewed%'")
    assert main(["access", "--db", str(database)]) == 0
    assert "2 records are damaged: conductor log verify says which" in capsys.readouterr().err


def test_a_look_of_which_the_time_is_damaged_is_listed_without_one(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    doctor_leaves(database, "UPDATE leaves SET record = json_set(record, '$.at_utc', 'once') WHERE run_id = 'second'")
    assert main(["access", "second", "--db", str(database)]) == 0
    assert capsys.readouterr().out == "— run second: exported: json; by Grace (claimed, not verified), cli\n"


def test_the_record_of_a_new_key_says_who_made_it(store: Store, path: Path) -> None:
    store.log.append_and_wait(*whole_run("r"))
    store.rotate_key(PAGE)
    (look,) = kept(store, AccessQuery(kind="key"))
    assert look.caller == PAGE
    store.close()
    assert checked(path).findings == []


def test_a_hold_and_its_release_are_on_record(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hold", "first", "second", "--db", str(database)]) == 0
    assert main(["hold", "first", "--release", "--db", str(database), "--json"]) == 0
    assert main(["hold", "fir", "--db", str(database)]) == 2
    assert "hold needs whole ids" in capsys.readouterr().err
    with closing(open_store(f"sqlite:///{database}")) as store:
        holds = [
            (look.kind, look.run_id, look.caller.door) for look in kept(store) if look.kind in ("held", "released")
        ]
        assert holds == [("released", "first", "cli"), ("held", "second", "cli"), ("held", "first", "cli")]
        assert store.delete(["first", "second"], ADA).run_ids == ["first"]
    assert checked(database).findings == []


def test_a_hold_that_was_lifted_past_the_program_is_found_also_when_the_run_is_gone(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(open_store(f"sqlite:///{database}")) as store:
        store.hold(["first", "second"], ADA)
    with closing(sqlite3.connect(database)) as connection, connection:
        for run_id in ("first", "second"):
            connection.execute(
                "INSERT INTO holds (run_id, held, at_utc, actor, door) VALUES (?, 0, '', NULL, '')", (run_id,)
            )
    with closing(open_store(f"sqlite:///{database}")) as store:
        assert store.erase(["second"], ADA, lambda run_id: None).run_ids == ["second"]
    assert main(["verify", "--db", str(database), "--json"]) != 0
    found = {each["run_id"]: each["what"] for each in json.loads(capsys.readouterr().out)["findings"]}
    assert found == {
        "first": "the log says that the run is held, and the table of holds does not",
        "second": "the run was held when it was deleted or erased",
    }
