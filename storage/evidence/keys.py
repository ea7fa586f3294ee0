"""The key that signs the checkpoints of a log: a file outside of the database, which only its owner may read.

The file holds the private key in PEM, and below it ``log: ORIGIN``, the one log that the key signs.
"""

import base64
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from conductor_core.errors import BadInput
from conductor_core.files import flush, write_whole
from storage.merkle.formats import Checkpoint, PublicKey, note_of, rotation_message

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


_ORIGIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,199}")
_OF_LOG = re.compile(rb"^log: (.*)$", re.MULTILINE)


class OtherLog(BadInput):
    """The key signs another log than the one that the database says it is: a log began again."""


@dataclass(frozen=True)
class SigningKey:
    """``public.name`` is the origin of the log."""

    public: PublicKey
    private: "Ed25519PrivateKey"

    def note(self, checkpoint: Checkpoint) -> str:
        return note_of(checkpoint, self.public, self.private.sign(checkpoint.text.encode()))


def load_key(path: Path, origin: str) -> SigningKey:
    """Returns the key at ``path`` for the log ``origin``, and makes it if there is none.

    Raises: OtherLog; BadInput, which names the file; OSError.
    """
    if not _ORIGIN.fullmatch(origin):  # it comes from the database, and goes into commands and lines of text
        raise BadInput(
            f"the database says it is the log {origin[:60]!r}, which this program never names so: verify it with the "
            "public key that you kept"
        )
    while True:
        try:
            private, log = _read(path)
        except FileNotFoundError:
            _write_new(path, origin)
            continue
        if log != origin:
            raise other_log_error(path, log, origin)
        return SigningKey(PublicKey(origin, private.public_key().public_bytes_raw()), private)


def file_of_log(path: Path, origin: str) -> Path:
    """Returns the file of a machine's key for the log ``origin``: the first log has the file itself, others their own.

    Raises: BadInput, which names the file; OSError.
    """
    try:
        log = _read(path)[1]
    except FileNotFoundError:
        return path
    is_other = log != origin and _ORIGIN.fullmatch(origin)
    return path.with_name(f"{path.name}-{origin.rpartition('/')[2]}") if is_other else path


def own_public_key(path: Path) -> PublicKey:
    """Returns the public half of the key at ``path``, named after its log. Raises: BadInput, which names the file;
    OSError."""
    private, log = _read(path)
    return PublicKey(log, private.public_key().public_bytes_raw())


def other_log_error(path: Path, log: str, origin: str) -> OtherLog:
    said = origin if _ORIGIN.fullmatch(origin) else repr(origin[:60])  # it comes from the database
    return OtherLog(
        f"the key {path} has signed the log {log}, and the database says that it is the log {said}: a log never "
        "begins again. If another database was put in the place of the log, restore its backup; if this database is "
        "new, keep the key and its anchor under other names, so that it gets a key of its own"
    )


def _read(path: Path) -> "tuple[Ed25519PrivateKey, str]":
    """Returns the key, and the log that it signs. Raises: BadInput; OSError."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    pem = path.read_bytes()
    try:
        private = load_pem_private_key(pem, None)
    except (ValueError, TypeError) as error:
        raise BadInput(f"{path} holds no key in PEM that can be read without a password: {error}") from error
    if not isinstance(private, Ed25519PrivateKey):
        raise BadInput(f"{path} holds a key of another kind: only Ed25519 keys sign checkpoints")
    if path.stat().st_mode & 0o077:
        raise BadInput(f"others than its owner may read the key {path}: run chmod 600 on it, or take a new key")
    logs = [each.decode(errors="replace") for each in _OF_LOG.findall(pem)]
    if len(logs) != 1 or not _ORIGIN.fullmatch(logs[0]):
        raise BadInput(f"the key {path} does not say clearly which log it signs: put its copy there")
    return private, logs[0]


def _write_new(path: Path, origin: str) -> None:
    """Writes a new key, unless another process was quicker."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    if not path.parent.is_dir():
        path.parent.mkdir(exist_ok=True, mode=0o700)
        flush(path.parent.parent)
    pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_whole(path, pem + f"log: {origin}\n".encode(), replace=False)


def new_key(path: Path, origin: str) -> tuple[SigningKey, dict[str, object]]:
    """Makes a new key beside the one at ``path``. Call ``new_key_in_place`` once the record is durable.

    Returns it, and the fields of the record ``key.rotated``. Raises: BadInput, OSError.
    """
    old = load_key(path, origin)
    fresh = _beside(path)
    fresh.unlink(missing_ok=True)  # of a rotation that was broken off before its record
    new = load_key(fresh, origin)
    message = rotation_message(old.public, new.public)
    by_old, by_new = (base64.b64encode(key.private.sign(message)).decode() for key in (old, new))
    return new, {"old": old.public.line, "new": new.public.line, "by_old": by_old, "by_new": by_new}


def new_key_in_place(path: Path) -> None:
    """Lets the new key take the place of the old one, which is gone then. Raises: OSError."""
    _beside(path).replace(path)
    flush(path.parent)


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.new")
