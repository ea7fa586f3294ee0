"""Checks the table of commands against the machines that may act, and against the events that answer commands."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from storage.encoding import StoredRow, stored_rows
from storage.evidence.history import Report, counted
from storage.log.commands import SENT, NoProof, proven, records_of_no_run, registered
from storage.log.reading import BadRecord, opened
from storage.merkle.chain import read_origin
from storage.merkle.formats import PublicKey, read_record, rotated_keys, text_of
from storage.privacy import KeyAway, Vault

_ANSWERED_BY = {
    "approval.granted": "approve",
    "approval.denied": "deny",
    "plan.edited": "edit",
    "run.cancelled": "cancel",
    "tool.returned": "tool_results",
    "command.refused": "",
}
"""The events that answer commands, and which kind each answers; an empty one: all kinds."""
_ANSWERS = (
    "SELECT e.run_id, e.sequence, CAST(e.kind AS BLOB), CAST(e.at_utc AS BLOB), CAST(e.payload AS BLOB) FROM events e "  # noqa: S608  own names
    "LEFT JOIN runs r ON r.run_id = e.run_id WHERE NOT coalesce(r.imported, 0) "
    f"AND e.kind IN ({', '.join(repr(kind) for kind in sorted(_ANSWERED_BY))}) "
    "{} ORDER BY e.sequence"
)
_ASKED = ("approval.granted", "approval.denied", "tool.returned")
"""The answers that only a command brings about, or, if granted, the run that is resumed."""
_DECIDED = ("approval.granted", "approval.denied")
_RECORDS = (
    "SELECT CAST(record AS BLOB) FROM leaves WHERE record IS NOT NULL AND run_id IS NOT NULL "
    "AND run_id NOT IN (SELECT run_id FROM deletions) AND instr(CAST(record AS BLOB), CAST(? AS BLOB)) "
    "{} ORDER BY position"
)
"""Commands go with their run. That the deletions are those on record, another check says."""


@dataclass(frozen=True)
class _Answer:
    """An event that answers a command.

    Attributes:
        number: of the command; None: the event names none. A number that no command can have is -1.
        event: what it says.
    """

    run_id: str
    sequence: int
    kind: str
    number: int | None
    event: dict[str, Any]


def check(
    connection: sqlite3.Connection, keys: Sequence[PublicKey], report: Report, vault: Vault, run_id: str | None = None
) -> None:
    """Adds a finding for each command that no machine has sent, and for each answer to a command that is not there.

    ``keys``: those of the log that are trusted. ``run_id``: looks only at this run and those that it resumes. Raises:
    sqlite3.Error; StoreError.
    """
    records, origin = records_of_no_run(connection), read_origin(connection)
    machines = registered(records, origin, rotated_keys(records, keys))
    if not keys:
        report.notes.append("without the log's public key, nobody can say which machines may send commands to runs")
        return
    carried = _Carried(connection, vault)
    of = None if run_id is None else (run_id, *carried.before(run_id))
    given = [answer for row in _rows(connection, _ANSWERS, of) if (answer := _answer(vault, *row)) is not None]
    answers = {(each.run_id, each.number): each for each in given if each.number is not None}
    for each in given:
        if each.number is None and each.kind in _ASKED and not carried.is_proven(each):
            what = f"the event {each.kind} answers no command, and no run that was resumed had the same granted"
            report.add("derived", what, each.run_id, each.sequence)
    said: set[tuple[str, int]] = set()
    away = 0
    for stored in _rows(connection, "SELECT id, payload, run_id, kind, at_utc FROM commands {} ORDER BY id", of):
        number, run_id, kind = stored[0], text_of(stored[2]), text_of(stored[3])[:20]
        answer = answers.get((run_id, number))
        said.add((run_id, number))
        try:
            command = read_record(proven(stored, vault, machines).encode())
            if answer is not None and (wrong := _contradiction(command, answer)):
                report.add("derived", f"{wrong} than command {number} asked for", run_id, answer.sequence)
        except KeyAway:
            away += 1
        except NoProof as error:
            report.add("derived", f"command {number} ({kind}) was not sent by a machine: {error}", run_id)
            if answer is not None and answer.kind != "command.refused":
                what = f"the event {answer.kind} obeys command {number}, which no machine has sent"
                report.add("derived", what, run_id, answer.sequence)
    for (run_id, number), answer in answers.items():
        if (run_id, number) not in said:
            which = f"command {number}, which is gone" if number > 0 else "a command of a number that no command has"
            report.add("derived", f"the event {answer.kind} answers {which}", run_id, answer.sequence)
    for run_id, number in _recorded(connection, of):
        if (run_id, number) not in said and (run_id, number) not in answers:
            report.add("derived", f"command {number} to the run is on record, and it is gone", run_id)
    if away:
        are = counted(away, "command is", "commands are")
        report.notes.append(f"{are} encrypted, and the key is away: not checked")


def _rows(
    connection: sqlite3.Connection, query: str, of: Sequence[str] | None, *values: str
) -> Iterable[tuple[Any, ...]]:
    """Returns the rows of the runs ``of``; None: of all. ``query`` has a place for that."""
    if of is None:
        return connection.execute(query.format(""), values)
    only = f"{'AND' if 'WHERE' in query else 'WHERE'} run_id IN ({', '.join('?' * len(of))})"
    return connection.execute(
        query.format(only.replace("run_id", "e.run_id") if " e " in query else only), (*values, *of)
    )


def _recorded(connection: sqlite3.Connection, of: Sequence[str] | None) -> Iterator[tuple[str, int]]:
    for (raw,) in _rows(connection, _RECORDS, of, SENT):
        record = read_record(raw)
        if record.get("kind") == SENT and isinstance(number := record.get("command"), int):
            yield str(record.get("run")), number


class _Carried:
    """Approvals that a run took over from the interrupted run that it resumes."""

    def __init__(self, connection: sqlite3.Connection, vault: Vault) -> None:
        self._connection, self._vault = connection, vault

    def is_proven(self, answer: _Answer) -> bool:
        """Whether a run that this one resumes had the same granted by a command, which is compared elsewhere.

        A run that is gone, or whose key is away, can show nothing: then it is.
        """
        source = answer.event.get("carried_from")
        if answer.kind != "approval.granted" or not isinstance(source, str) or source not in self.before(answer.run_id):
            return False
        there = self._requests(source)
        if not there:
            return True
        here = self._requests(answer.run_id)
        asked = [here.get(_as_number(number), answer) for number in _as_list(answer.event.get("numbers"))]
        for grant in self._events(source, "approval.granted"):
            if grant.get("command") is None:
                continue
            granted = [there.get(_as_number(number)) for number in _as_list(grant.get("numbers"))]
            covers = not answer.event.get("rest") and all(each in granted for each in asked)
            same = all(grant.get(name) == answer.event.get(name) for name in ("actor", "door", "note"))
            if same and (covers or grant.get("rest") is True):
                return True
        return False

    def before(self, run_id: str) -> set[str]:
        """Returns the runs that this one re-runs or resumes, and those that these do."""
        found: set[str] = set()
        new = {run_id}
        while new:
            one = new.pop()
            found.add(one)
            for event in self._events(one, "run.created"):
                asked = event["request"] if isinstance(event.get("request"), dict) else {}
                before = [asked.get("parent_run_id"), *_as_list(asked.get("taken_up"))]
                new |= {each for each in before if isinstance(each, str)} - found
        return found - {run_id}

    def _requests(self, run_id: str) -> dict[int, tuple[Any, Any]]:
        """Returns what the run has asked an approval for, by number."""
        requests = self._events(run_id, "approval.requested")
        return {_as_number(event.get("number")): (event.get("of"), event.get("identity")) for event in requests}

    def _events(self, run_id: str, kind: str) -> Iterator[dict[str, Any]]:
        for row in stored_rows(self._connection, run_id, only=f"kind = '{kind}'"):
            if event := _event(self._vault, run_id, row):
                yield event


def _event(vault: Vault, run_id: str, row: StoredRow) -> dict[str, Any]:
    """Returns what an event says; nothing if its run's key is away or it cannot be read, as other checks say."""
    try:
        return read_record(opened(row, run_id, vault).payload)
    except BadRecord:
        return {}


def _answer(vault: Vault, run_id: object, sequence: int, kind: bytes, at_utc: bytes, payload: bytes) -> _Answer | None:
    """Reads an event that answers a command; None if its run's key is away."""
    if not (event := _event(vault, text_of(run_id), (sequence, kind, at_utc, payload))):
        return None
    number = None if event.get("command") is None else _as_number(event["command"])
    return _Answer(text_of(run_id), sequence, text_of(kind), number, event)


def _as_number(value: Any) -> int:
    """Returns a number; -1 for what the program never writes as one, although readers take 7.0 and true for numbers."""
    return value if type(value) is int and value > 0 else -1


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _contradiction(command: dict[str, Any], answer: _Answer) -> str:
    if _ANSWERED_BY[answer.kind] not in ("", command.get("kind")):
        return f"the event {answer.kind} says other"
    if command.get("actor") != answer.event.get("actor"):
        return f"the event {answer.kind} names somebody else"
    numbers, rest = (answer.event.get(name) for name in ("numbers", "rest"))
    if answer.kind == "tool.returned" and any(
        command.get(name) != answer.event.get(name) for name in ("results", "said", "anew", "client")
    ):
        return "the event tool.returned brings other results"
    if answer.kind in _DECIDED and (command.get("numbers") or numbers, command.get("rest")) != (numbers, rest):
        return f"the event {answer.kind} decides more or less"
    return ""
