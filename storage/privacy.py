"""Encrypts what is stored of a run with a key of the run's own (AES-256-GCM), so that the run can be erased for good.

The keys of runs lie wrapped in a file beside the database (``.keys``), not in it: whoever copies the database has no
key. The master key that wraps them is a third file, which only its owner can read. What is bound to a place (run,
sequence, kind) opens only there.
"""

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from conductor_core.errors import StoreError
from conductor_core.files import write_whole
from conductor_core.privacy.detectors import PersonNames, Sensitive
from conductor_core.settings import Settings
from storage import errors

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM


# The master key.

_BYTES = 32
_BEGINS = "conductor-master-key-1 "


def read(path: Path) -> bytes | None:
    """Returns the key, or None if no such file. Raises: StoreError if it is none, or if others can read it."""
    with errors.translated(path):
        try:
            mode, text = path.stat().st_mode, path.read_text("ascii", "replace")
        except FileNotFoundError:
            return None
        except PermissionError:
            raise StoreError(f"this user may not read the master key {path}: give it to its owner, mode 0600") from None
    if stat.S_IMODE(mode) & 0o077:
        raise StoreError(f"the master key {path} can be read by others: run chmod 600 {path}")
    try:
        key = base64.b64decode(text.removeprefix(_BEGINS).strip(), validate=True)
    except binascii.Error:
        key = b""
    if not text.startswith(_BEGINS) or len(key) != _BYTES:
        raise StoreError(f"{path} holds no master key: put the right file there, or name it in CONDUCTOR_MASTER_KEY")
    return key


def read_or_make(path: Path) -> bytes:
    """Returns the key, and makes it if there is none. Two processes at once get the same. Raises: StoreError."""
    if (key := read(path)) is not None:
        return key
    with errors.translated(path):
        made = base64.b64encode(secrets.token_bytes(_BYTES)).decode()
        write_whole(path, f"{_BEGINS}{made}\n".encode(), replace=False)
    key = read(path)
    if key is None:
        raise StoreError(f"the master key {path} was deleted while it was made")
    return key


def derived(key: bytes, purpose: str) -> bytes:
    """Returns a key for one purpose, from which the master key cannot be found."""
    return hmac.new(key, f"conductor {purpose}".encode(), hashlib.sha256).digest()


SEALED = b"\x01"
"""The first byte of what is encrypted. No JSON and no text of ours begins with it."""
_NONCE_BYTES = 12
_WRAPPED_BYTES = _NONCE_BYTES + 32 + 16
_MOST_OPEN = 4096
_NAME_IT = "set CONDUCTOR_MASTER_KEY to where it is"
_TIMEOUT_S = 2.0
"""Others write to the file of the keys for milliseconds. Whoever waits keeps the events of all runs waiting."""
_TABLE = (
    "CREATE TABLE IF NOT EXISTS run_keys (run_id TEXT PRIMARY KEY NOT NULL, wrapped BLOB NOT NULL, "
    "made_at_utc TEXT NOT NULL)"
)
_KEEP = "INSERT OR IGNORE INTO run_keys (run_id, wrapped, made_at_utc) VALUES (?, ?, ?)"
_READ = "SELECT wrapped FROM run_keys WHERE run_id = ?"


class Sealed(StoreError):
    """What is stored is encrypted, and cannot be opened."""


class KeyAway(Sealed):
    """The key of a run is not here: neither the run nor the database is at fault. The message says what to do."""


class KeysUnavailable(KeyAway):
    """The file of the keys, or the master key, cannot be used now, for no run."""


class MasterKey:
    """Wraps the keys of runs. A service for keys (a KMS) takes its place by these two methods."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._cipher: AESGCM | None = None

    def wrap(self, run_id: str, key: bytes) -> bytes:
        """Returns the key as it may lie in a file. Makes the master key if there is none. Raises: StoreError."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + self._open(read_or_make).encrypt(nonce, key, run_id.encode())

    def unwrap(self, run_id: str, wrapped: bytes) -> bytes:
        """Returns the key. Raises: KeyAway if there is no master key, or another one; Sealed; StoreError."""
        from cryptography.exceptions import InvalidTag

        if len(wrapped) != _WRAPPED_BYTES:
            raise Sealed("it is encrypted, and its key was changed: its length is wrong")
        cipher = self._open(read)
        try:
            return cipher.decrypt(wrapped[:_NONCE_BYTES], wrapped[_NONCE_BYTES:], run_id.encode())
        except InvalidTag:
            raise KeyAway(
                f"the master key {self._path} is another one (or the key that it wraps was changed): put the right "
                f"one there, or {_NAME_IT}"
            ) from None

    def _open(self, read: Callable[[Path], bytes | None]) -> "AESGCM":
        if self._cipher is None:
            key = read(self._path)
            if key is None:
                raise KeysUnavailable(f"the master key {self._path} is not there: put it there, or {_NAME_IT}")
            self._cipher = _cipher_of(derived(key, "keys of runs"))
        return self._cipher


class Vault:
    """The keys of the runs of one database. Any thread may use it; only the writing thread makes keys.

    Whether a run is encrypted is decided by what is stored of it, never by whether its key is there: a run that began
    encrypted is not written at all without its key.

    Attributes:
        encrypts: whether new runs get a key. path: the file of the keys.
    """

    def __init__(
        self, path: Path, master: MasterKey, *, encrypts: bool, is_stored: Callable[[str], bool | None] = lambda _: None
    ) -> None:
        """``is_stored``: whether what the database holds of a run is encrypted; None: it holds nothing of it."""
        self.path, self.encrypts = path, encrypts
        self._master, self._is_stored = master, is_stored
        self._was_there = path.exists()
        self._lock = threading.Lock()
        self._ciphers: dict[str, AESGCM | None] = {}
        self._begun: dict[str, AESGCM | None] = {}

    def make_ready(self, new: Iterable[str], others: Iterable[str]) -> dict[str, StoreError]:
        """Makes the keys of ``new`` runs, durably, if it encrypts, and finds those of ``others``.

        Call it before the transaction that writes them, in the writing thread. Returns why, by run, of the runs that
        cannot be encrypted as they have to be.
        """
        self._begun = {}
        begun = [run_id for run_id in new if self._is_stored(run_id) is None]
        faults: dict[str, StoreError] = {}
        try:
            self._begun = self._make(begun) if self.encrypts else dict.fromkeys(begun)
        except StoreError as error:
            faults = dict.fromkeys(begun, error)
        found = [run_id for run_id in dict.fromkeys(others) if run_id not in self._ciphers]
        for at, run_id in enumerate(found):
            try:
                self._kept(run_id)
            except KeysUnavailable as error:  # waited for once, not once for each run
                return faults | {each: error for each in found[at:] if self._is_stored(each)}
            except StoreError as error:
                faults[run_id] = error
        return faults

    def keep_begun(self) -> None:
        """Keeps what the new runs of the last ``make_ready`` have: they are stored now. Call it in the same thread."""
        begun, self._begun = self._begun, {}
        for run_id, cipher in begun.items():
            self._remember(run_id, cipher)

    def _make(self, run_ids: list[str]) -> "dict[str, AESGCM | None]":
        if not run_ids:
            return {}
        now = datetime.now(UTC).isoformat()
        with self._using(make=True) as connection:
            rows = [(run_id, self._master.wrap(run_id, secrets.token_bytes(32)), now) for run_id in run_ids]
            connection.execute(_TABLE)
            connection.executemany(_KEEP, rows)
            made = {run_id: connection.execute(_READ, (run_id,)).fetchone()[0] for run_id in run_ids}
        return {run_id: self._opened(run_id, wrapped) for run_id, wrapped in made.items()}

    def seal(self, run_id: str, place: str, plain: str) -> str | bytes:
        """Returns a text as it is stored at ``place``: unchanged if the run is not encrypted.

        Raises: Sealed if the run began encrypted and its key is not there; StoreError.
        """
        cipher = self._kept(run_id)
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
            raise self._no_key()
        nonce, sealed = stored[1 : 1 + _NONCE_BYTES], stored[1 + _NONCE_BYTES :]
        try:
            return cipher.decrypt(nonce, sealed, _bound(run_id, place))
        except (InvalidTag, ValueError):
            raise Sealed("it was changed or moved since it was encrypted") from None

    def away(self, run_id: str) -> KeyAway | None:
        """Returns why the key of an encrypted run is not here, or is not opened by the master key; None: it is here."""
        try:
            return self._no_key() if self._cipher(run_id) is None else None
        except KeyAway as error:
            return error
        except Sealed:  # what is here is no key: whoever reads the run says so
            return None

    def _no_key(self) -> KeyAway:
        if self.path.exists():
            return KeyAway(f"no such key is in {self.path}: put back the file .keys that belongs to this database")
        return KeyAway(f"the file of keys {self.path} is not there: put that file beside the database again")

    def all_of(self, run_ids: Iterable[str]) -> list[str]:
        """Returns the runs among these of which there is a key. Raises: StoreError."""
        if not self.path.exists():
            return []
        with self._using() as connection:
            return [run_id for run_id in run_ids if connection.execute(_READ, (run_id,)).fetchone() is not None]

    def destroy(self, run_ids: Iterable[str]) -> None:
        """Destroys the keys of these runs, durably: all or, if it fails, none. Raises: StoreError."""
        gone = list(run_ids)
        if self.path.exists() or (self._was_there and gone):
            with self._using() as connection:
                connection.executemany("DELETE FROM run_keys WHERE run_id = ?", [(run_id,) for run_id in gone])
        # Only now: a reader could have taken up a key again that was dropped before.
        with self._lock:
            for run_id in gone:
                self._ciphers.pop(run_id, None)

    def _kept(self, run_id: str) -> "AESGCM | None":
        """Returns what the run is encrypted with; None if it is not encrypted. Raises: Sealed, StoreError."""
        with self._lock:
            if run_id in self._ciphers:
                return self._ciphers[run_id]
        begun = self._begun
        if run_id in begun:  # in the transaction that begins it
            return begun[run_id]
        stored = self._is_stored(run_id)
        if stored is None:
            return None
        if stored:
            if (cipher := self._cipher(run_id)) is not None:
                return cipher
            raise KeyAway(f"run {run_id} is encrypted, and nothing of it is kept without its key: {self._no_key()}")
        self._remember(run_id, None)
        return None

    def _cipher(self, run_id: str) -> "AESGCM | None":
        with self._lock:
            if (known := self._ciphers.get(run_id)) is not None:
                return known
        if not self.path.exists():  # not remembered: somebody may put the file back
            return None
        with self._using() as connection:
            row = connection.execute(_READ, (run_id,)).fetchone()
        if row is None:
            return None
        cipher = self._opened(run_id, row[0] if isinstance(row[0], bytes) else b"")
        self._remember(run_id, cipher)
        return cipher

    def _opened(self, run_id: str, wrapped: bytes) -> "AESGCM":
        try:
            return _cipher_of(self._master.unwrap(run_id, wrapped))
        except Sealed:
            raise
        except StoreError as error:
            raise KeysUnavailable(str(error)) from error

    def _remember(self, run_id: str, cipher: "AESGCM | None") -> None:
        with self._lock:
            if len(self._ciphers) >= _MOST_OPEN:
                self._ciphers.pop(next(iter(self._ciphers)))
            self._ciphers[run_id] = cipher

    @contextmanager
    def _using(self, *, make: bool = False) -> Iterator[sqlite3.Connection]:
        """Gives a connection whose changes are durable after the block. Raises: KeysUnavailable."""
        try:
            with errors.translated(self.path):
                if not self.path.exists():
                    if self._was_there or not make:  # a new file would take the place of the old one
                        raise StoreError(
                            f"{self.path} was moved or deleted while this program had it in use: put it back"
                        )
                    os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
                self._was_there = True
                file = f"file:{quote(str(self.path))}?mode=rw"  # never a new file: one was there a moment ago
                with closing(sqlite3.connect(file, uri=True, timeout=_TIMEOUT_S)) as connection, connection:
                    connection.execute("PRAGMA secure_delete=ON")  # what is deleted is overwritten
                    # The journal's end is durable, too: a power cut takes back neither a new key nor a destroyed one.
                    connection.execute("PRAGMA synchronous=EXTRA")
                    yield connection
        except StoreError as error:
            raise KeysUnavailable(f"the keys of encrypted runs cannot be used: {error}") from error


def _cipher_of(key: bytes) -> "AESGCM":
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # few commands need it, and it takes time to load

    return AESGCM(key)


def _bound(run_id: str, place: str) -> bytes:
    return f"{run_id}\n{place}".encode()


def event_place(sequence: int, kind: str, at_utc: str) -> str:
    """Names the place of an event, for what is bound to it."""
    return f"event {sequence} {kind} {at_utc}"


def keys_beside(database: Path) -> Path:
    return database.with_name(f"{database.name}.keys")


@dataclass(frozen=True)
class Privacy:
    """
    Attributes:
        redact: what is hidden before it is stored, besides configured keys.
        region: whose national phone numbers are found.
        names_model: what finds names of people, if they are hidden.
        digests: whether a keyed digest of each hidden passage is noted.
        encrypt: whether new runs are encrypted.
        master_key: the file of the master key; None: beside the database.
    """

    redact: frozenset[Sensitive] = frozenset()
    region: str | None = None
    names_model: str = ""
    digests: bool = False
    master_key: Path | None = None
    encrypt: bool = False

    @classmethod
    def of(cls, settings: Settings) -> Self:
        return cls(
            redact=frozenset(settings.redact),
            region=settings.redact_region,
            names_model=settings.redact_names_model,
            digests=settings.redact_digests,
            master_key=settings.master_key,
            encrypt=settings.encrypt,
        )

    def master_key_of(self, database: Path) -> Path:
        return self.master_key or database.with_name(f"{database.name}.master-key")

    def vault(self, database: Path, is_stored: Callable[[str], bool | None] = lambda run_id: None) -> Vault:
        """Returns the keys of the runs of the database at this path. ``is_stored``: as ``Vault`` has it."""
        master = MasterKey(self.master_key_of(database))
        return Vault(keys_beside(database), master, encrypts=self.encrypt, is_stored=is_stored)

    def digest_key(self, database: Path) -> bytes | None:
        """Returns the key of the digests of what is hidden; None if none is noted. Raises: StoreError."""
        return derived(read_or_make(self.master_key_of(database)), "digests") if self.digests else None

    def people(self) -> PersonNames | None:
        """Returns what finds names of people; None if they are not hidden. Raises: BadInput, which says what to do."""
        return PersonNames(self.names_model) if "names" in self.redact else None

    def search_key(self, database: Path, *, make: bool) -> bytes | None:
        """Returns the key of the digests of words that were searched for. Raises: StoreError.

        ``make``: makes a master key if there is none; else the key is then None.
        """
        key = (read_or_make if make else read)(self.master_key_of(database))
        return None if key is None else derived(key, "searches")
