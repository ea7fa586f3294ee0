"""Which machines may act on runs, and the proof that one of them sent a command.

Whoever can write the database can write a row into ``commands``, too. So each machine has a key outside of the
database, and signs what it sends. The log's own key puts the machine's on record, as ``machine.registered``: a record
without its signature counts for nothing.

A proof covers the log, the number of the command, its run, kind and time, a nonce, and the command itself. Its number
is given once, so that a command that is written a second time has no proof. The proof lies with the command in its
payload, which is encrypted as a whole if its run is.
"""

import base64
import json
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from conductor_core.run.actor import local_actor
from storage.merkle.chain import add_record
from storage.merkle.formats import Invalid, PublicKey, read_key, read_record, text_of, unpacked

REGISTERED = "machine.registered"
_RECORDS = "SELECT position, CAST(record AS BLOB) FROM leaves WHERE record IS NOT NULL AND run_id IS NULL"
_ORIGIN = "SELECT CAST(origin AS BLOB) FROM evidence_log"


class NoProof(Exception):
    """Nothing proves who sent a command; the message says why."""


@dataclass(frozen=True)
class Signer:
    """A key that this process may sign with."""

    public: PublicKey
    sign: Callable[[bytes], bytes]


@dataclass(frozen=True)
class Row:
    """A row of ``commands``, with its payload decrypted."""

    number: int
    run_id: str
    kind: str
    at_utc: str
    payload: str


def read_origin(connection: sqlite3.Connection | sqlite3.Cursor) -> str:
    """Returns the name of the log. Raises: sqlite3.Error."""
    row = connection.execute(_ORIGIN).fetchone()
    return "" if row is None else text_of(row[0])


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
    said = _registration(machine.name, machine, actor.uid, actor.name, host)
    add_record(
        cursor,
        REGISTERED,
        None,
        machine=machine.line,
        uid=actor.uid,
        account=actor.name,
        host=host,
        by_log=base64.b64encode(log_key.sign(said)).decode(),
    )


def prove(machine: Signer, number: int, run_id: str, kind: str, at_utc: str, command: str) -> str:
    """Returns the payload of a command: itself and its proof."""
    nonce = os.urandom(16).hex()
    said = _sent(machine.public, number, run_id, kind, at_utc, nonce, command)
    proof = base64.b64encode(machine.sign(said)).decode()
    return json.dumps({"command": command, "machine": machine.public.line, "nonce": nonce, "proof": proof})


def proven(row: Row, machines: Mapping[str, int]) -> str:
    """Returns the command of a row, as JSON. ``machines``: as ``registered`` has them. Raises: NoProof."""
    envelope = read_record(row.payload.encode(errors="replace"))
    command, line, nonce = envelope.get("command"), envelope.get("machine"), envelope.get("nonce")
    if not (isinstance(command, str) and isinstance(line, str) and isinstance(nonce, str)):
        raise NoProof("it has no proof")
    if line not in machines:
        raise NoProof("the machine that it names is not registered in the log")
    try:
        machine, signature = read_key(line), unpacked(envelope.get("proof"), 64)
    except Invalid:
        raise NoProof("its proof is malformed") from None
    if not machine.signed(_sent(machine, row.number, row.run_id, row.kind, row.at_utc, nonce, command), signature):
        raise NoProof("its proof is of another command: it was changed, or written a second time")
    return command


def _registration(origin: str, machine: PublicKey, uid: object, account: object, host: object) -> bytes:
    return json.dumps([REGISTERED, origin, machine.line, uid, account, host]).encode()


def _sent(machine: PublicKey, number: int, run_id: str, kind: str, at_utc: str, nonce: str, command: str) -> bytes:
    return json.dumps(["command", machine.name, number, run_id, kind, at_utc, nonce, command]).encode()
