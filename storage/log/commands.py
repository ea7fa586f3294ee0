"""Commands to runs: sent by any process, heard by the one that carries out the run."""

import base64
import json
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import ValidationError

from conductor_core.errors import StoreError
from conductor_core.run.actor import local_actor
from conductor_core.run.commands import COMMAND, COMMAND_KINDS, Command, SentCommand, Unproven
from conductor_core.run.trace import ENDED_STATUSES
from storage.database.connections import Database
from storage.encoding import last_number
from storage.merkle.chain import add_record, read_origin
from storage.merkle.formats import Invalid, PublicKey, read_key, read_record, text_of, unpacked
from storage.privacy import KeyAway, Sealed, Vault
from storage.records import ERASED

log = logging.getLogger(__name__)

REGISTERED = "machine.registered"
SENT = "command.sent"
"""The record that a command was sent: without it, nobody could tell that one which no run has answered is gone."""
_RECORDS = "SELECT position, CAST(record AS BLOB) FROM leaves WHERE record IS NOT NULL AND run_id IS NULL"


Listener = Callable[[SentCommand], None]
Trusted = Callable[[dict[int, bytes], str], Sequence[PublicKey]]
"""Returns the keys of the log of this name that count, with those that its records vouch for. Raises: StoreError."""
Stored = tuple[int, str | bytes, object, object, object]
"""A row of ``commands``: id, payload, run id, kind, time. Somebody may have written it by hand."""


class NoProof(Exception):
    """Nothing proves who sent a command; the message says why."""


@dataclass(frozen=True)
class Signer:
    """A key that this process may sign with."""

    public: PublicKey
    sign: Callable[[bytes], bytes]


def records_of_no_run(connection: sqlite3.Connection | sqlite3.Cursor) -> dict[int, bytes]:
    """Returns the log's records that belong to no run, by position. Raises: sqlite3.Error."""
    return dict(connection.execute(_RECORDS).fetchall())


def registered(records: Mapping[int, bytes], origin: str, trusted: Sequence[PublicKey]) -> dict[str, int]:
    """Returns the public keys of the machines that may act, each with the position at which it was registered.

    ``trusted``: the keys of the log; a registration counts if one of them signed it.
    """
    found: dict[str, int] = {}
    for position in sorted(records):
        record = read_record(records[position])
        if record.get("kind") != REGISTERED:
            continue
        try:
            machine, signature = read_key(str(record.get("machine"))), unpacked(record.get("by_log"), 64)
        except Invalid:
            continue
        said = _registration(origin, machine, record.get("uid"), record.get("account"), record.get("host"))
        if machine.name == origin and any(key.name == origin and key.signed(said, signature) for key in trusted):
            found.setdefault(machine.line, position)
    return found


def register(cursor: sqlite3.Cursor, machine: PublicKey, log_key: Signer) -> None:
    """Puts a machine of this process's account on record. Call it in a transaction of the writer."""
    actor = local_actor()
    host = "" if actor.process is None else actor.process.host
    said = log_key.sign(_registration(machine.name, machine, actor.uid, actor.name, host))
    who = {"uid": actor.uid, "account": actor.name, "host": host}
    add_record(cursor, REGISTERED, None, machine=machine.line, **who, by_log=base64.b64encode(said).decode())


def prove(machine: Signer, number: int, run_id: str, kind: str, at_utc: str, command: str) -> str:
    """Returns the payload of a command: itself and its proof."""
    nonce = os.urandom(16).hex()
    said = _to_sign(machine.public, number, run_id, kind, at_utc, nonce, command)
    proof = base64.b64encode(machine.sign(said)).decode()
    return json.dumps({"command": command, "machine": machine.public.line, "nonce": nonce, "proof": proof})


def proven(stored: Stored, vault: Vault, machines: Mapping[str, int]) -> str:
    """Returns the command of a row, as JSON. ``machines``: as ``registered`` has them.

    Raises: KeyAway; NoProof, also if it was not encrypted here; StoreError.
    """
    number, payload, run_id, kind, at_utc = stored[0], stored[1], *map(text_of, stored[2:])
    if isinstance(payload, bytes):
        try:
            payload = vault.open(run_id, command_place(kind, at_utc), payload).decode(errors="replace")
        except KeyAway:
            raise
        except Sealed as error:
            raise NoProof(str(error)) from None
    envelope = read_record(str(payload).encode(errors="replace"))
    command, line, nonce = envelope.get("command"), envelope.get("machine"), envelope.get("nonce")
    if not (isinstance(command, str) and isinstance(line, str) and isinstance(nonce, str)):
        raise NoProof("it has no proof")
    if line not in machines:
        raise NoProof("the machine that it names is not registered in the log")
    try:
        machine, signature = read_key(line), unpacked(envelope.get("proof"), 64)
    except Invalid:
        raise NoProof("its proof is malformed") from None
    if not machine.signed(_to_sign(machine, number, run_id, kind, at_utc, nonce, command), signature):
        raise NoProof("its proof is of another command: it was changed, or written a second time")
    return command


def _registration(origin: str, machine: PublicKey, uid: object, account: object, host: object) -> bytes:
    return json.dumps([REGISTERED, origin, machine.line, uid, account, host]).encode()


def _to_sign(machine: PublicKey, number: int, run_id: str, kind: str, at_utc: str, nonce: str, command: str) -> bytes:
    return json.dumps(["command", machine.name, number, run_id, kind, at_utc, nonce, command]).encode()


_POLL_S = 0.1
_SEND = "INSERT INTO commands (id, run_id, kind, at_utc, payload) VALUES (?, ?, ?, ?, ?)"
_AFTER = "SELECT id, payload, run_id, kind, at_utc FROM commands WHERE id > ? ORDER BY id"
OF_RUN = "SELECT id, payload, run_id, kind, at_utc FROM commands WHERE run_id = ? AND id > ? ORDER BY id"


def send(
    cursor: sqlite3.Cursor, command: Command, vault: Vault, machine: Signer, log_key: Signer, trusted: Trusted
) -> int | str:
    """Keeps the command and returns its id, or the status of a run that cannot hear it: it has ended, or is not there.

    ``machine`` proves it, and is first registered if it is not yet. Call it in a transaction of the writer.
    """
    row = cursor.execute("SELECT status FROM runs WHERE run_id = ?", (command.run_id,)).fetchone()
    if row is None or row[0] in ENDED_STATUSES or row[0] == ERASED:
        return "unknown" if row is None else str(row[0])
    records, origin = records_of_no_run(cursor), machine.public.name
    if machine.public.line not in registered(records, origin, trusted(records, origin)):
        register(cursor, machine.public, log_key)
    number = last_number(cursor, "commands") + 1
    now = datetime.now(UTC).isoformat()
    payload = prove(machine, number, command.run_id, command.kind, now, command.model_dump_json())
    kept = vault.seal(command.run_id, command_place(command.kind, now), payload)
    cursor.execute(_SEND, (number, command.run_id, command.kind, now, kept))
    add_record(cursor, SENT, command.run_id, command=number)
    return number


def command_place(kind: str, at_utc: str) -> str:
    return f"command {kind} {at_utc}"


def read_sent(
    connection: sqlite3.Connection, rows: Sequence[Stored], vault: Vault, trusted: Trusted
) -> list[SentCommand]:
    """Reads commands. Leaves out those of a newer version of this program, and those whose run's key is away."""
    if not rows:
        return []
    origin, records = read_origin(connection), records_of_no_run(connection)
    machines = registered(records, origin, trusted(records, origin))
    sent: list[SentCommand] = []
    for stored in rows:
        number, run_id, kind = stored[0], text_of(stored[2]), text_of(stored[3])
        try:
            command = COMMAND.validate_json(proven(stored, vault, machines))
            if (command.run_id, command.kind) != (run_id, kind):
                raise NoProof("it is not what it is filed as")
        except KeyAway as error:
            log.warning("command %s is left out: %s", number, error)
        except NoProof as error:
            log.warning("command %s to run %s is refused: %s", number, run_id, error)
            asked = kind if kind in COMMAND_KINDS else "act"
            reason = f"no machine that may act has sent it: {error}"
            sent.append(SentCommand(number, Unproven(kind=asked, run_id=run_id, reason=reason)))
        except ValidationError as error:
            log.warning("command %s cannot be read and is left out: %s", number, error.errors()[0]["msg"])
        else:
            sent.append(SentCommand(number, command))
    return sent


class CommandWatch:
    """Tells a listener each command that any process sends, from the moment that it begins, once and in order.

    One thread asks the database every 0.1 s, and at once when this process has sent one (``wake``).
    """

    def __init__(self, database: Database, listener: Listener, trusted: Trusted) -> None:
        """Raises: StoreError."""
        self._database, self._listener, self._trusted = database, listener, trusted
        with database.reading() as connection:
            ((self._last,),) = connection.execute("SELECT coalesce(max(id), 0) FROM commands")
        self._closed = False
        self._news = threading.Event()
        self._thread = threading.Thread(target=self._run, name="commands", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        self._news.set()

    def close(self) -> None:
        self._closed = True
        self._news.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while not self._closed:
            self._news.wait(_POLL_S)
            self._news.clear()
            try:
                with self._database.reading() as connection:
                    rows = [] if self._closed else connection.execute(_AFTER, (self._last,)).fetchall()
                    commands = read_sent(connection, rows, self._database.vault, self._trusted)
                self._last = rows[-1][0] if rows else self._last
                for sent in commands:
                    self._listener(sent)
            except StoreError as error:
                # The database is gone or locked: whoever writes to it says so.
                log.debug("commands cannot be read: %s", error)
