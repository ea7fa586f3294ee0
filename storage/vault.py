"""Encrypts what is stored of a run with a key of the run's own (AES-256-GCM), so that the run can be erased for good.

The keys of runs lie wrapped in a file beside the database (``.keys``), not in it: whoever copies the database has no
key. The master key that wraps them is a third file. What is bound to a place (run, sequence, kind) opens only there.
"""

import os
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from conductor_core.errors import StoreError
from storage import failures, master_key

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SEALED = b"\x01"
"""The first byte of what is encrypted. No JSON and no text of ours begins with it."""
_NONCE_BYTES = 12
_MOST_OPEN = 4096
_TABLE = (
    "CREATE TABLE IF NOT EXISTS run_keys (run_id TEXT PRIMARY KEY NOT NULL, wrapped BLOB NOT NULL, "
    "made_at_utc TEXT NOT NULL)"
)
_KEEP = "INSERT OR IGNORE INTO run_keys (run_id, wrapped, made_at_utc) VALUES (?, ?, ?)"
_READ = "SELECT wrapped FROM run_keys WHERE run_id = ?"
_DESTROY = "DELETE FROM run_keys WHERE run_id = ?"


class Sealed(StoreError):
    """What is stored is encrypted, and cannot be opened."""


class MasterKey:
    """Wraps the keys of runs. A service for keys (a KMS) takes its place by these two methods."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._cipher: AESGCM | None = None

    def wrap(self, run_id: str, key: bytes) -> bytes:
        """Returns the key as it may lie in a file. Makes the master key if there is none. Raises: StoreError."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + self._open(master_key.read_or_make).encrypt(nonce, key, run_id.encode())

    def unwrap(self, run_id: str, wrapped: bytes) -> bytes:
        """Returns the key. Raises: Sealed if another master key wrapped it, or if there is none; StoreError."""
        from cryptography.exceptions import InvalidTag

        try:
            cipher = self._open(master_key.read)
            return cipher.decrypt(wrapped[:_NONCE_BYTES], wrapped[_NONCE_BYTES:], run_id.encode())
        except (InvalidTag, ValueError):  # the latter: what is wrapped was cut
            raise Sealed(
                f"it is encrypted, and the master key {self._path} is another one, or its key was changed"
            ) from None

    def _open(self, read: Callable[[Path], bytes | None]) -> "AESGCM":
        if self._cipher is None:
            key = read(self._path)
            if key is None:
                raise Sealed(f"it is encrypted, and the master key {self._path} is not there")
            self._cipher = _cipher_of(master_key.derived(key, "keys of runs"))
        return self._cipher


class Vault:
    """The keys of the runs of one database. Any thread may use it; only the writing thread makes keys.

    Attributes:
        encrypts: whether new runs get a key. path: the file of the keys.
    """

    def __init__(self, path: Path, master: MasterKey, *, encrypts: bool) -> None:
        self.path, self.encrypts = path, encrypts
        self._master = master
        self._door = threading.Lock()
        self._ciphers: dict[str, AESGCM | None] = {}

    def make_keys(self, run_ids: Iterable[str]) -> None:
        """Makes a key for each of these new runs, durably. Does nothing if it does not encrypt. Raises: StoreError."""
        wanted = list(run_ids)
        if not self.encrypts or not wanted:
            return
        now = datetime.now(UTC).isoformat()
        rows = [(run_id, self._master.wrap(run_id, secrets.token_bytes(32)), now) for run_id in wanted]
        with failures.translated(self.path), closing(self._connect(make=True)) as connection, connection:
            connection.execute(_TABLE)
            connection.executemany(_KEEP, rows)
        with self._door:
            for run_id in wanted:
                self._ciphers.pop(run_id, None)

    def seal(self, run_id: str, place: str, plain: str) -> str | bytes:
        """Returns a text as it is stored at ``place``: unchanged if the run has no key. Raises: StoreError."""
        cipher = self._cipher(run_id)
        if cipher is None:
            return plain
        nonce = os.urandom(_NONCE_BYTES)
        return SEALED + nonce + cipher.encrypt(nonce, plain.encode(), _bound(run_id, place))

    def open(self, run_id: str, place: str, stored: bytes) -> bytes:
        """Returns what was stored at ``place``, also what was stored as it is. Raises: Sealed; StoreError."""
        if not stored.startswith(SEALED):
            return stored
        from cryptography.exceptions import InvalidTag

        cipher = self._cipher(run_id)
        if cipher is None:
            raise Sealed(f"it is encrypted, and its key is not in {self.path}: put that file beside the database again")
        nonce, sealed = stored[1 : 1 + _NONCE_BYTES], stored[1 + _NONCE_BYTES :]
        try:
            return cipher.decrypt(nonce, sealed, _bound(run_id, place))
        except (InvalidTag, ValueError):
            raise Sealed("it was changed since it was encrypted, or stood at another place") from None

    def has(self, run_id: str) -> bool:
        """Whether there is a key of this run. Raises: StoreError."""
        return self._wrapped(run_id) is not None

    def destroy(self, run_ids: Iterable[str]) -> None:
        """Destroys the keys of these runs, durably: all or, if it fails, none. Raises: StoreError."""
        gone = list(run_ids)
        if self.path.exists():
            with failures.translated(self.path), closing(self._connect(make=False)) as connection, connection:
                connection.executemany(_DESTROY, [(run_id,) for run_id in gone])
        # Only now: a reader could have taken up a key again that was dropped before.
        with self._door:
            for run_id in gone:
                self._ciphers.pop(run_id, None)

    def _cipher(self, run_id: str) -> "AESGCM | None":
        with self._door:
            if run_id in self._ciphers:
                return self._ciphers[run_id]
        wrapped = self._wrapped(run_id)
        try:
            cipher = None if wrapped is None else _cipher_of(self._master.unwrap(run_id, wrapped))
        except ValueError:
            raise Sealed(f"it is encrypted, and its key in {self.path} has no length of a key") from None
        with self._door:
            if len(self._ciphers) >= _MOST_OPEN:
                self._ciphers.pop(next(iter(self._ciphers)))
            self._ciphers[run_id] = cipher
        return cipher

    def _wrapped(self, run_id: str) -> bytes | None:
        if not self.path.exists():
            return None
        with failures.translated(self.path), closing(self._connect(make=False)) as connection:
            row = connection.execute(_READ, (run_id,)).fetchone()
        if row is None:
            return None
        return row[0] if isinstance(row[0], bytes) else b""

    def _connect(self, *, make: bool) -> sqlite3.Connection:
        if make and not self.path.exists():
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        connection = sqlite3.connect(self.path, timeout=10)
        # What is deleted is overwritten. The journal is a file that goes with the transaction.
        connection.execute("PRAGMA secure_delete=ON")
        connection.execute("PRAGMA synchronous=FULL")
        return connection


def _cipher_of(key: bytes) -> "AESGCM":
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # few commands need it, and it takes time to load

    return AESGCM(key)


def _bound(run_id: str, place: str) -> bytes:
    return f"{run_id}\n{place}".encode()


def event_place(sequence: int, kind: str, at_utc: str) -> str:
    """Names the place of an event, for what is bound to it."""
    return f"event {sequence} {kind} {at_utc}"


def keys_beside(database: Path) -> Path:
    """Returns the file of the keys of runs."""
    return database.with_name(f"{database.name}.keys")
