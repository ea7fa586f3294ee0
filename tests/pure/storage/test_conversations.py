"""Runs of one conversation, what a run waits for, and responses that a client deleted."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from conductor_core.chat.messages import ToolCall
from conductor_core.errors import UnknownRun
from conductor_core.run import events as ev
from conductor_core.run.actor import Actor, Caller
from storage import Store
from storage.access_log import AccessQuery
from storage.log.queries import Search, condition
from tests.support.command_line import log as main
from tests.support.damaging import doctor
from tests.support.run_events import created, created_otherwise, planned, step_started, whole_run

ADA = Caller(actor=Actor(kind="service", id="key-1", name="app"), door="api")
FIRST, SECOND = "0a1b2c3d4e5f-0123456789abcdef", "0a1b2c3d4e60-0123456789abcdef"
RESPONSE = f"resp_{SECOND.replace('-', '')}_0"


def a_turn(store: Store, run_id: str, conversation_id: str | None = None) -> None:
    first, *rest = whole_run(run_id)
    store.log.append_and_wait(created_otherwise(first, conversation_id=conversation_id), *rest)


def findings(path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    capsys.readouterr()
    main(["verify", "--db", str(path), "--json"])
    return [each["what"] for each in json.loads(capsys.readouterr().out)["findings"] if each["class"] == "derived"]


def test_the_runs_of_a_conversation_are_found_from_each_of_them(store: Store) -> None:
    a_turn(store, FIRST)
    a_turn(store, "other")
    a_turn(store, SECOND, FIRST)
    a_turn(store, "third", FIRST)
    turns = [FIRST, SECOND, "third"]
    for run_id in turns:
        assert [run.run_id for run in store.conversation(run_id)] == turns
    assert [run.run_id for run in store.conversation("other")] == ["other"]
    assert store.conversation("unknown") == []
    assert [run.run_id for run in store.runs(conversation=FIRST, limit=2)] == ["third", SECOND]
    assert store.turn_numbers([SECOND, "other", "unknown"]) == {SECOND: (2, 3)}
    assert all(run.conclusion is not None for run in store.conversation(FIRST))


def test_the_newest_turns_are_listed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.store.MOST_TURNS", 2)
    a_turn(store, FIRST)
    for run_id in ("b", "c", "d"):
        a_turn(store, run_id, FIRST)
    assert [run.run_id for run in store.conversation(FIRST)] == ["c", "d"]


def test_a_turn_that_was_erased_or_deleted(store: Store, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a_turn(store, FIRST)
    for run_id in (SECOND, "c", "d"):
        a_turn(store, run_id, FIRST)
    store.erase([SECOND], ADA)
    store.delete([FIRST], ADA)
    assert [(run.run_id, run.status) for run in store.conversation("d")] == [
        (SECOND, "erased"), ("c", "completed"), ("d", "completed"),
    ]  # fmt: skip
    store.publish()
    assert findings(path, capsys) == []
    doctor(path, f"UPDATE runs SET conversation_id = NULL WHERE run_id = '{SECOND}'")
    assert findings(path, capsys) == ["the row of the erased run is not as it was left"]


def test_a_conversation_changed_by_hand_is_found(store: Store, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a_turn(store, FIRST)
    a_turn(store, SECOND, FIRST)
    store.publish()
    doctor(path, "UPDATE runs SET conversation_id = 'x'")
    assert findings(path, capsys) == ["the row of the run differs from its events: conversation_id"] * 2


def test_turns_are_found_by_an_index(store: Store, path: Path) -> None:
    search = Search(200, conversation=FIRST)
    with closing(sqlite3.connect(path)) as connection:
        query = f"EXPLAIN QUERY PLAN SELECT * FROM runs WHERE {condition(search)}"
        plan = " ".join(row[-1] for row in connection.execute(query, vars(search)).fetchall())
    assert "ix_runs_conversation_id" in plan
    assert "SCAN runs" not in plan


def waits_for_tools(run_id: str) -> list[ev.Event]:
    names = ("weather", "read\u202efile", "weather")
    calls = tuple(ToolCall(call_id=f"call_{place}", name=name, arguments="{}") for place, name in enumerate(names))
    called = ev.ToolCalled(run_id=run_id, path=(0,), calls=calls)
    return [created(run_id), *planned(run_id), step_started(run_id, 0, 30), called]


def test_what_a_run_waits_for_is_in_its_row(store: Store, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store.log.append_and_wait(*waits_for_tools("tools"))
    assert store.runs()[0].asked_for is None, "other steps may still run, and the client is not asked"
    store.log.append_and_wait(ev.RunWaiting(run_id="tools", waits_for="tool_results"))
    asked = ev.ApprovalRequested(run_id="gate", number=1, of="plan", path=(), rules=("plan",), identity="i")
    store.log.append_and_wait(created("gate"), *planned("gate"), asked, ev.RunWaiting(run_id="gate"))
    assert {run.run_id: run.waits for run in store.runs(status="waiting")} == {
        "tools": "Waits for the client's tools: weather, read\\u202efile",
        "gate": "Waits for an approval of the plan, by the gate plan",
    }
    assert store.totals().statuses == {"waiting": 2}
    assert store.waiting_approvals() == 1
    assert [trace.run_id for trace in store.waiting()] == ["gate"]
    store.publish()
    assert findings(path, capsys) == []


def test_a_deleted_response_goes_with_its_run(store: Store, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for run_id in (FIRST, SECOND):
        a_turn(store, run_id)
        response = f"resp_{run_id.replace('-', '')}_0"
        assert not store.deleted_responses.deleted(response)
        for _ in range(2):
            store.deleted_responses.delete(response, ADA)
        assert store.deleted_responses.deleted(response)
    found = store.access_log.read(AccessQuery(run_id=SECOND)).records
    assert [(each.in_words, each.caller) for each in found] == [(f"deleted a response: {RESPONSE}", ADA)]
    store.delete([FIRST], ADA)
    store.erase([SECOND], ADA)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT * FROM deleted_responses").fetchall() == []
    store.publish()
    assert findings(path, capsys) == []
    for unknown in (RESPONSE, "resp_1", "", "\ud800"):
        with pytest.raises(UnknownRun):
            store.deleted_responses.delete(unknown, ADA)


def test_the_database_itself_keeps_deleted_responses(store: Store, path: Path) -> None:
    a_turn(store, SECOND)
    store.deleted_responses.delete(RESPONSE, ADA)
    for statement in ("UPDATE deleted_responses SET door = ''", "DELETE FROM deleted_responses"):
        with (
            closing(sqlite3.connect(path)) as connection,
            pytest.raises(sqlite3.IntegrityError, match="only ever added"),
        ):
            connection.execute(statement)


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("DELETE FROM deleted_responses", "lacks the deleted response resp_"),
        ("UPDATE deleted_responses SET at_utc = '2020-01-01'", "differs from the log"),
        (
            "INSERT INTO deleted_responses SELECT 'resp_1', run_id, at_utc, actor, door FROM deleted_responses",
            "has resp_1, and no record in the log does",
        ),
    ],
)
def test_a_deleted_response_that_was_changed_by_hand_is_found(
    store: Store, path: Path, statement: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    a_turn(store, SECOND)
    store.deleted_responses.delete(RESPONSE, ADA)
    store.publish()
    assert findings(path, capsys) == []
    doctor(path, statement)
    (what,) = findings(path, capsys)
    assert says in what
