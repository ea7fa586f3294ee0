"""A row that somebody writes into the table of commands by hand is refused, on record, and found by a check."""

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from conductor_core.engine.host import EngineHost
from conductor_core.engine.request import resume_of
from conductor_core.errors import BadInput
from conductor_core.run.actor import local_caller
from conductor_core.run.commands import Approve, Cancel, Deny
from conductor_core.run.events import ApprovalGranted, CommandRefused, RunCancelled
from conductor_core.run.trace import RunTrace
from storage import Privacy, Store, open_store
from storage.evidence.anchoring import places_of
from storage.evidence.checking import check_log
from storage.evidence.history import Finding
from storage.evidence.keys import load_key
from storage.log import commands
from storage.merkle.chain import Entries, add_record, read_chain
from tests.support.gated_runs import ADA, FAST, at_rest, gated, paths, said, until
from tests.support.run_events import whole_run

_INSERT = "INSERT INTO commands (run_id, kind, at_utc, payload) VALUES (?, ?, ?, ?)"


def file_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


def by_hand(url: str, run_id: str, kind: str, payload: str, at_utc: str = "2026-01-01T00:00:00+00:00") -> int:
    with closing(sqlite3.connect(file_of(url))) as connection, connection:
        return int(connection.execute(_INSERT, (run_id, kind, at_utc, payload)).lastrowid or 0)


def without_guard(url: str, statement: str, *bound: object) -> None:
    """Changes commands as somebody does who can write the file: the triggers are dropped for it."""
    with closing(sqlite3.connect(file_of(url))) as connection, connection:
        guards = connection.execute("SELECT name, sql FROM sqlite_master WHERE name LIKE 'commands_no_%'").fetchall()
        for name, _ in guards:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(statement, bound)
        for _, sql in guards:
            connection.execute(sql)


def rows(url: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file_of(url))) as connection:
        return connection.execute("SELECT id, run_id, kind, at_utc, payload FROM commands ORDER BY id").fetchall()


def findings(url: str, store: Store) -> list[Finding]:
    store.publish()
    places = places_of(file_of(url))
    key = load_key(places.key, store.evidence().origin).public
    return check_log(file_of(url), [key], [places.anchor.file], store.vault, lambda what, count: None).findings


def refusals(store: Store, run_id: str) -> list[CommandRefused]:
    return [stored.event for stored in store.events(run_id) if isinstance(stored.event, CommandRefused)]


def granted(trace: RunTrace) -> list[int]:
    return [approval.number for approval in trace.approvals if approval.status == "granted"]


def told(found: Iterable[Finding]) -> str:
    return "\n".join(each.what for each in found)


def test_a_row_written_by_hand_is_no_approval(
    host: EngineHost, store: Store, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    run_id = gated(host, "plan")
    boss = {"kind": "local", "id": "boss", "name": "boss", "uid": 0}
    forged = {"kind": "approve", "run_id": run_id, "actor": boss, "door": "cli", "rest": True}
    number = by_hand(url, run_id, "approve", json.dumps(forged))
    trace = at_rest(store, run_id, number)
    assert trace.status == "waiting"
    assert granted(trace) == []
    (refused,) = refusals(store, run_id)
    assert (refused.command, refused.asked, refused.unproven) == (number, "approve", True)
    assert (refused.actor, refused.door) == (None, None), "nobody knows who it was: what it says is not repeated"
    assert "no machine that may act has sent it" in refused.reason
    assert f"command {number} to run {run_id} is refused" in caplog.text
    assert f"command {number} (approve) was not sent by a machine" in told(findings(url, store))
    # Somebody who may decide still can.
    assert at_rest(store, run_id, said(store, run_id)).status == "completed"


@pytest.mark.parametrize("command", [Approve, Deny, Cancel])
def test_what_a_machine_sends_is_heard_and_no_finding(
    host: EngineHost, store: Store, url: str, command: type[Approve | Deny | Cancel]
) -> None:
    run_id = gated(host, "plan")
    if command is Cancel:
        assert host.cancel(run_id, ADA)
    else:
        said(store, run_id, kind=command)
    trace = until(store, run_id, lambda trace: trace.ended)
    assert trace.status == {Approve: "completed", Deny: "denied", Cancel: "cancelled"}[command]
    assert not refusals(store, run_id)
    assert findings(url, store) == []


def test_a_command_by_hand_ends_no_run_that_is_carried_out(host: EngineHost, store: Store, url: str) -> None:
    run_id = gated(host, "plan")
    number = by_hand(url, run_id, "cancel", json.dumps({"kind": "cancel", "run_id": run_id}))
    assert at_rest(store, run_id, number).status == "waiting"


def test_a_command_that_is_written_a_second_time_is_refused(host: EngineHost, store: Store, url: str) -> None:
    run_id = gated(host, "steps")
    first = said(store, run_id)
    waiting = at_rest(store, run_id, first)
    ((_, _, kind, at_utc, payload),) = rows(url)
    number = by_hand(url, run_id, kind, payload, at_utc)
    trace = at_rest(store, run_id, number)
    assert granted(trace) == granted(waiting) == [1]
    assert [each.command for each in refusals(store, run_id)] == [number]
    assert "written a second time" in told(findings(url, store))


def test_a_command_that_is_gone_before_its_run_answered_is_found(host: EngineHost, store: Store, url: str) -> None:
    run_id = gated(host, "plan")
    at_rest(store, run_id, said(store, run_id))
    store.log.append_and_wait(*whole_run("other")[:-1])
    number = store.send(Cancel(run_id="other", actor=ADA.actor, door=ADA.door))
    assert findings(url, store) == []
    without_guard(url, "DELETE FROM commands WHERE run_id = 'other'")
    assert told(findings(url, store)) == f"command {number} to the run is on record, and it is gone"
    store.log.append_and_wait(RunCancelled(run_id="other"))
    store.delete(["other"], ADA)
    assert findings(url, store) == []


def test_a_command_that_is_moved_to_another_id_is_refused_although_the_first_is_gone(
    host: EngineHost, store: Store, url: str
) -> None:
    run_id = gated(host, "steps")
    at_rest(store, run_id, said(store, run_id))
    ((first, _, kind, at_utc, payload),) = rows(url)
    without_guard(url, "DELETE FROM commands")
    number = by_hand(url, run_id, kind, payload, at_utc)
    assert number > first
    assert granted(at_rest(store, run_id, number)) == [1]
    assert f"answers command {first}, which is gone" in told(findings(url, store))


@pytest.mark.parametrize("changed", ["run_id", "kind", "at_utc", "command", "nonce", "machine", "proof"])
def test_a_proof_covers_all_of_a_command(host: EngineHost, store: Store, url: str, changed: str) -> None:
    """One byte of each is changed in a row that was sent and not heard yet."""
    run_id, other = gated(host, "plan"), gated(host, "plan")
    host.close()  # so that nobody hears it
    number = said(store, run_id)
    ((_, _, kind, at_utc, payload),) = rows(url)
    row = {"run_id": run_id, "kind": kind, "at_utc": at_utc}
    if changed in row:
        row[changed] = {"run_id": other, "kind": "deny", "at_utc": at_utc.replace("T", " ")}[changed]
    else:
        envelope = json.loads(payload)
        before = envelope[changed]
        envelope[changed] = before.replace('"rest":false', '"rest":true') if changed == "command" else before[::-1]
        assert envelope[changed] != before
        payload = json.dumps(envelope)
    update = "UPDATE commands SET run_id = ?, kind = ?, at_utc = ?, payload = ?"
    without_guard(url, update, *row.values(), payload)
    (sent,) = store.commands(row["run_id"])
    assert sent.id == number
    assert sent.command.kind == row["kind"]
    assert not isinstance(sent.command, Approve | Deny)
    assert findings(url, store)


def test_a_machine_that_somebody_registers_by_hand_does_not_count(
    host: EngineHost, store: Store, url: str, tmp_path: Path
) -> None:
    """The record has the right form and a leaf, as whoever can write the database can make it, and no signature."""
    run_id = gated(host, "plan")
    origin = store.evidence().origin
    forger = load_key(tmp_path / "forgers-machine", origin)
    log_key = load_key(tmp_path / "forgers-log", origin)
    signed = commands.Signer(log_key.public, log_key.private.sign)
    machine = commands.Signer(forger.public, forger.private.sign)
    with closing(sqlite3.connect(file_of(url))) as connection, connection:
        cursor = connection.cursor()
        commands.register(cursor, machine.public, signed)
        add_record(cursor, commands.REGISTERED, None, machine=machine.public.line, uid=0, account="boss", host="h")
        command = Approve(run_id=run_id, actor=ADA.actor, door="cli").model_dump_json()
        at_utc = "2026-01-01T00:00:00+00:00"
        payload = commands.prove(machine, 1, run_id, "approve", at_utc, command)
        cursor.execute(_INSERT, (run_id, "approve", at_utc, payload))
    trace = at_rest(store, run_id, 1)
    assert granted(trace) == []
    assert "not registered" in refusals(store, run_id)[0].reason


def test_two_machines_act_and_a_new_key_of_the_log_changes_nothing(
    host: EngineHost, store: Store, url: str, tmp_path: Path
) -> None:
    """The second machine is the same host with another data folder, so with another key."""
    run_id = gated(host, "steps")
    at_rest(store, run_id, said(store, run_id))
    store.rotate_key(local_caller("cli"))
    second = open_store(url, machine_key=tmp_path / "second" / "machine-key")
    try:
        trace = at_rest(store, run_id, said(second, run_id, rest=True))
    finally:
        second.close()
    assert trace.status == "completed"
    assert findings(url, store) == []
    assert (tmp_path / "second" / "machine-key").stat().st_mode & 0o777 == 0o600


def test_the_proof_of_an_encrypted_run_is_encrypted_too(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/sealed.sqlite3"
    store = open_store(url, Privacy(encrypt=True))
    host = EngineHost(store.log, FAST, store, carries_on_all=True)
    try:
        run_id = gated(host, "plan")
        at_rest(store, run_id, said(store, run_id, note="only for us"))
        ((*_, payload),) = rows(url)
        assert isinstance(payload, bytes)
        by_hand(url, run_id, "approve", json.dumps({"kind": "approve", "run_id": run_id}))
        assert len(findings(url, store)) == 1, "the run has ended, so nobody hears it: the check does"
        (event,) = [each.event for each in store.events(run_id) if isinstance(each.event, ApprovalGranted)]
        assert event.actor == ADA.actor
    finally:
        host.close()
        store.close()


def test_an_event_that_obeys_a_command_of_nobody_is_found(host: EngineHost, store: Store, url: str) -> None:
    """As of a process that was told to obey: the command was changed once it had been heard."""
    run_id = gated(host, "plan")
    at_rest(store, run_id, said(store, run_id))
    without_guard(url, "UPDATE commands SET payload = replace(payload, '7', '8')")
    found = told(findings(url, store))
    assert "the event approval.granted obeys command 1, which no machine has sent" in found


def append_by_hand(url: str, run_id: str, event: dict[str, object]) -> None:
    """Adds an event with its leaf, and clears what the row says of waiting, as whoever writes the database can."""
    kind, at_utc, payload = str(event["kind"]), str(event["at_utc"]), json.dumps(event)
    with closing(sqlite3.connect(file_of(url))) as connection, connection:
        cursor = connection.cursor()
        ((newest,),) = cursor.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'")
        entries = Entries(cursor)
        chain = read_chain(cursor, run_id)
        position = entries.add_event(chain, run_id, newest + 1, kind.encode(), at_utc.encode(), payload.encode())
        entries.save()
        cursor.execute(
            "INSERT INTO events (sequence, run_id, kind, at_utc, payload, position) VALUES (?, ?, ?, ?, ?, ?)",
            (newest + 1, run_id, kind, at_utc, payload, position),
        )
        cursor.execute("UPDATE runs SET asked_for = NULL WHERE run_id = ?", (run_id,))


def decision(store: Store, run_id: str, **fields: object) -> dict[str, object]:
    last = store.events(run_id)[-1].event
    boss = {"kind": "local", "id": "boss", "name": "boss", "uid": 0}
    event = {"kind": "approval.granted", "run_id": run_id, "at_ms": last.at_ms, "at_utc": last.at_utc.isoformat()}
    rest = {} if fields.get("kind") == "approval.denied" else {"rest": True}
    return event | {"numbers": [1], "actor": boss, "door": "cli"} | rest | fields


@pytest.mark.parametrize("registered", [False, True])
@pytest.mark.parametrize(
    ("fields", "told_of"),
    [
        ({}, "answers no command"),
        ({"kind": "approval.denied"}, "answers no command"),
        ({"command": 77}, "answers command 77, which is gone"),
        ({"command": 77.0}, "a command of a number that no command has"),
        ({"command": True}, "a command of a number that no command has"),
        ({"carried_from": "another"}, "answers no command"),
    ],
)
def test_a_decision_that_is_added_as_an_event_is_found(
    host: EngineHost, store: Store, url: str, fields: dict[str, object], told_of: str, registered: bool
) -> None:
    """Also where no machine was ever registered, because nobody has decided anything yet."""
    other, run_id = gated(host, "plan"), gated(host, "plan")
    if registered:
        at_rest(store, other, said(store, other))
    host.close()
    fields = {name: other if value == "another" else value for name, value in fields.items()}
    append_by_hand(url, run_id, decision(store, run_id, **fields))
    decided = "denied" if "kind" in fields else "granted"
    assert [each.status for each in store.read(run_id).approvals] == [decided], "readers believe it"
    assert told_of in told(findings(url, store))


def test_a_command_without_a_proof_that_an_added_event_answers_is_found(
    host: EngineHost, store: Store, url: str
) -> None:
    run_id = gated(host, "plan")
    host.close()
    number = by_hand(url, run_id, "approve", json.dumps({"kind": "approve", "run_id": run_id}))
    append_by_hand(url, run_id, decision(store, run_id, command=number))
    assert f"obeys command {number}, which no machine has sent" in told(findings(url, store))


def test_an_added_event_that_grants_more_than_its_command_is_found(host: EngineHost, store: Store, url: str) -> None:
    run_id = gated(host, "plan")
    host.close()
    number = said(store, run_id, numbers=(1,))
    actor = None if ADA.actor is None else ADA.actor.model_dump(mode="json")
    append_by_hand(url, run_id, decision(store, run_id, command=number, actor=actor, door=ADA.door))
    assert f"decides more or less than command {number} asked for" in told(findings(url, store))


def test_a_run_whose_decision_was_added_as_an_event_is_not_carried_on(store: Store, url: str) -> None:
    with closing(EngineHost(store.log, FAST, store)) as host:
        run_id = gated(host, "plan")
        append_by_hand(url, run_id, decision(store, run_id))
        with pytest.raises(BadInput, match="answers no command"):
            host.resume(run_id)
    assert store.read(run_id).status == "waiting"
    assert not paths(store, run_id, "step.started")


def test_a_decision_that_was_added_as_an_event_is_not_carried_over(store: Store, url: str) -> None:
    with closing(EngineHost(store.log, FAST, store)) as host:
        run_id = gated(host, "plan")
        append_by_hand(url, run_id, decision(store, run_id))
        host.cancel(run_id, ADA)
        until(store, run_id, lambda trace: trace.ended)
        with pytest.raises(BadInput, match="answers no command"):
            host.start(resume_of(store.read(run_id), door="cli"))


def test_a_decision_that_was_sent_is_carried_over(store: Store) -> None:
    with closing(EngineHost(store.log, FAST, store, carries_on_all=True)) as host:
        run_id = gated(host, "plan", "step:3")
        at_rest(store, run_id, said(store, run_id))
        host.cancel(run_id, ADA)
        until(store, run_id, lambda trace: trace.ended)
        again = host.start(resume_of(store.read(run_id), door="cli"))
        until(store, again, lambda trace: trace.status == "waiting")
        assert [each.status for each in store.read(again).approvals] == ["granted", "open"]
        trace = at_rest(store, again, said(store, again))
        assert trace.status == "completed", [each.reason for each in refusals(store, again)]


def test_two_databases_of_one_folder_each_have_a_key(tmp_path: Path) -> None:
    for name in ("one", "two"):
        store = open_store(f"sqlite:///{tmp_path / name}.sqlite3", machine_key=tmp_path / "machine-key")
        host = EngineHost(store.log, FAST, store)
        run_id = gated(host, "plan")
        trace = at_rest(store, run_id, said(store, run_id))
        assert (trace.status, store.unproven(run_id)) == ("completed", [])
        host.close()
        store.close()
    keys = sorted(file.name for file in tmp_path.iterdir() if file.name.startswith("machine-key"))
    assert len(keys) == 2
