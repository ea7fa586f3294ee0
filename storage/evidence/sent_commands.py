"""Checks the table of commands against the machines that may act, and against the events that answer commands."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from conductor_core.run.events import FINAL_KINDS
from storage.encoding import read_text
from storage.evidence.history import Report, counted
from storage.evidence.rotation import rotated_keys
from storage.log.commands import SENT, opened
from storage.log.machines import NoProof, proven, read_origin, records_of_no_run, registered
from storage.merkle.formats import PublicKey, read_record
from storage.privacy.vault import KeyAway, Sealed, Vault, event_place

_COMMANDS = "SELECT id, payload, run_id, kind, at_utc FROM commands ORDER BY id"
_ANSWERED_BY = {
    "approval.granted": "approve",
    "approval.denied": "deny",
    "plan.edited": "edit",
    "run.cancelled": "cancel",
    "command.refused": "",
}
"""The events that answer commands, and which kind each answers; an empty one: all kinds."""
_ANSWERS = (
    "SELECT e.run_id, e.sequence, e.kind, e.at_utc, CAST(e.payload AS BLOB), e.position FROM events e "  # noqa: S608  own names
    "LEFT JOIN runs r ON r.run_id = e.run_id WHERE NOT coalesce(r.imported, 0) "
    f"AND e.kind IN ({', '.join(repr(kind) for kind in sorted(_ANSWERED_BY))}) ORDER BY e.sequence"
)
_ENDS = (
    "SELECT run_id, min(coalesce(position, -1)) FROM events "  # noqa: S608  own names
    f"WHERE kind IN ({', '.join(map(repr, sorted(FINAL_KINDS)))}) GROUP BY run_id"
)


_RECORDS = (
    "SELECT CAST(record AS BLOB) FROM leaves WHERE record IS NOT NULL AND run_id IS NOT NULL "
    "AND run_id NOT IN (SELECT run_id FROM deletions) AND instr(CAST(record AS BLOB), CAST(? AS BLOB)) "
    "ORDER BY position"
)
"""Commands go with their run. That the deletions are those on record, another check says."""


@dataclass(frozen=True)
class _Answer:
    """An event that answers a command. ``position``: -1 before the log's evidence."""

    sequence: int
    kind: str
    position: int
    actor: Any
    unproven: bool


def check(connection: sqlite3.Connection, keys: Sequence[PublicKey], report: Report, vault: Vault) -> None:
    """Adds a finding for each command that no machine has sent, and for each answer to a command that is not there.

    ``keys``: those of the log that are trusted. A command of a run that had ended before the first machine was
    registered, or that was answered before, is of an older version, and no finding. Raises: sqlite3.Error; StoreError.
    """
    records, origin = records_of_no_run(connection), read_origin(connection)
    machines = registered(records, origin, rotated_keys(records, keys))
    if not keys:
        report.notes.append("without the log's public key, nobody can say which machines may send commands to runs")
        return
    first = min(machines.values(), default=None)
    ends: dict[str, int] = {read_text(run_id): position for run_id, position in connection.execute(_ENDS)}
    answers = dict(_answers(connection, vault))
    said: set[tuple[str, int]] = set()
    away = 0
    for stored in connection.execute(_COMMANDS):
        number, run_id, kind = stored[0], read_text(stored[2]), read_text(stored[3])[:20]
        answer = answers.get((run_id, number))
        try:
            command = read_record(proven(opened(stored, vault), machines).encode())
            said.add((run_id, number))
            if answer is not None and (wrong := _contradiction(command, answer)):
                report.add("derived", run_id, answer.sequence, f"{wrong} than command {number} asked for")
        except KeyAway:
            said.add((run_id, number))
            away += 1
        except NoProof as error:
            said.add((run_id, number))
            if not _is_older(first, ends.get(run_id), answer):
                report.add("derived", run_id, None, f"command {number} ({kind}) was not sent by a machine: {error}")
                if answer is not None and answer.kind != "command.refused":
                    what = f"the event {answer.kind} obeys command {number}, which no machine has sent"
                    report.add("derived", run_id, answer.sequence, what)
    for (run_id, number), answer in answers.items():
        if first is not None and answer.position > first and (run_id, number) not in said:
            what = f"the event {answer.kind} answers command {number}, which is gone"
            report.add("derived", run_id, answer.sequence, what)
    for run_id, number in _recorded(connection):
        if (run_id, number) not in said and (run_id, number) not in answers:
            report.add("derived", run_id, None, f"command {number} to the run is on record, and it is gone")
    if away:
        are = "is" if away == 1 else "are"
        report.notes.append(f"{counted(away, 'command')} {are} encrypted, and the key is away: not checked")


def _recorded(connection: sqlite3.Connection) -> Iterator[tuple[str, int]]:
    """Yields run and number of the commands that the log says were sent."""
    for (raw,) in connection.execute(_RECORDS, (SENT,)):
        record = read_record(raw)
        if record.get("kind") == SENT and isinstance(number := record.get("command"), int):
            yield str(record.get("run")), number


def _answers(connection: sqlite3.Connection, vault: Vault) -> Iterator[tuple[tuple[str, int], _Answer]]:
    """Yields the events that answer commands, by run and command. Leaves out those whose run's key is away."""
    for run_id, sequence, kind, at_utc, payload, position in connection.execute(_ANSWERS):
        try:
            event = json.loads(vault.open(read_text(run_id), event_place(sequence, kind, read_text(at_utc)), payload))
        except (Sealed, ValueError, RecursionError):  # the check of the events says so
            continue
        number = event.get("command") if isinstance(event, dict) else None
        if isinstance(number, int) and number:
            at = -1 if position is None else position
            yield (
                (read_text(run_id), number),
                _Answer(sequence, kind, at, event.get("actor"), bool(event.get("unproven"))),
            )


def _is_older(first: int | None, end: int | None, answer: _Answer | None) -> bool:
    """Whether a command without a proof was dealt with before any machine was registered, at ``first``."""
    dealt_with = [end] if end is not None else []
    if answer is not None:
        if answer.unproven:
            return False
        dealt_with.append(answer.position)
    return any(first is None or position < first for position in dealt_with)


def _contradiction(command: dict[str, Any], answer: _Answer) -> str:
    if _ANSWERED_BY[answer.kind] not in ("", command.get("kind")):
        return f"the event {answer.kind} says other"
    if command.get("actor") != answer.actor:
        return f"the event {answer.kind} names somebody else"
    return ""
