"""How entries of the log are hashed, the Merkle tree over them (RFC 9162), and signed checkpoints (C2SP signed notes).

An entry is an event or a record. Its leaf is SHA-256 over a zero byte and the entry's bytes:

    event   "event", origin, place in its run, sequence, SHA-256 of the payload, previous leaf of its run,
            time, kind, run id: nine lines, joined by line feeds
    record  "record", origin, the record's JSON as stored: three lines

Digests are in lower-case hexadecimal, numbers in decimal. The previous leaf of a run's first event is 64 zeros. Neither
time nor kind holds a line feed.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

NO_LEAF = bytes(32)
_DASH = "\N{EM DASH} "
_ED25519 = b"\x01"
WRONG_SIGNATURE = "the signature of the note is wrong"
_MOST_SIGNATURES = 64
"""Of one note. C2SP's form wants 16 at least."""


class Invalid(Exception):
    """What was read is not what it claims to be; the message says why."""


def event_leaf(
    origin: bytes, place: int, sequence: int, digest: bytes, previous: bytes, at_utc: bytes, kind: bytes, run_id: bytes
) -> bytes:
    """Returns the leaf of an event. ``digest``: of its payload, as 64 hexadecimal characters.

    ``place`` counts the covered events of its run from 0.
    """
    lines = (origin, place, sequence, digest, previous.hex().encode(), at_utc, kind, run_id)
    return hashlib.sha256(b"\0event\n%b\n%d\n%d\n%b\n%b\n%b\n%b\n%b" % lines).digest()


def record_leaf(origin: bytes, text: bytes) -> bytes:
    return hashlib.sha256(b"\0record\n%b\n%b" % (origin, text)).digest()


def node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


class Tree:
    """A Merkle tree of RFC 9162 that only grows, as the roots of its perfect subtrees, the largest first."""

    def __init__(self, size: int = 0, peaks: bytes = b"") -> None:
        """Takes up a tree where ``peaks`` of it says that it stands. Raises: Invalid if both do not fit."""
        if size < 0 or len(peaks) != 32 * size.bit_count():
            raise Invalid(f"{len(peaks)} bytes are not the subtrees of a tree of {size} leaves")
        self.size = size
        self._peaks = [peaks[at : at + 32] for at in range(0, len(peaks), 32)]

    def append(self, leaf: bytes) -> None:
        self.extend((leaf,))

    def extend(self, leaves: Iterable[bytes]) -> None:
        size, peaks, sha256 = self.size, self._peaks, hashlib.sha256
        for leaf in leaves:
            rest = size
            while rest & 1:
                leaf = sha256(b"\x01" + peaks.pop() + leaf).digest()
                rest >>= 1
            peaks.append(leaf)
            size += 1
        self.size = size

    def root(self) -> bytes:
        if not self._peaks:
            return hashlib.sha256(b"").digest()
        root = self._peaks[-1]
        for peak in reversed(self._peaks[:-1]):
            root = node(peak, root)
        return root

    @property
    def peaks(self) -> bytes:
        return b"".join(self._peaks)

    def copy(self) -> "Tree":
        return Tree(self.size, self.peaks)


def included(leaf: bytes, position: int, size: int, path: Sequence[bytes], root: bytes) -> bool:
    """Whether ``path`` proves that ``leaf`` is at ``position`` of the tree (RFC 9162, 2.1.3.2)."""
    if not 0 <= position < size:
        return False
    at, last = position, size - 1
    for sibling in path:
        if last == 0:
            return False
        if at & 1 or at == last:
            leaf = node(sibling, leaf)
            while not at & 1 and at:
                at >>= 1
                last >>= 1
        else:
            leaf = node(leaf, sibling)
        at >>= 1
        last >>= 1
    return last == 0 and leaf == root


@dataclass(frozen=True)
class PublicKey:
    """An Ed25519 key that signs the checkpoints of the log ``name``."""

    name: str
    key: bytes

    @property
    def id(self) -> bytes:
        return hashlib.sha256(self.name.encode() + b"\n" + _ED25519 + self.key).digest()[:4]

    @property
    def line(self) -> str:
        """The key as C2SP's signed notes write a verifier key."""
        return f"{self.name}+{self.id.hex()}+{base64.b64encode(_ED25519 + self.key).decode()}"

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(self.key).hexdigest()

    def signed(self, message: bytes, signature: bytes) -> bool:
        """Whether this key made ``signature`` of ``message``."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.key).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True


def read_key(line: str) -> PublicKey:
    """Reads a verifier key. Raises: Invalid."""
    parts = line.strip().split("+", 2)
    raw = unpacked(parts[2]) if len(parts) == 3 else b""
    if len(raw) != 33 or raw[:1] != _ED25519:
        raise Invalid("no Ed25519 key of the form NAME+ID+KEY")
    key = PublicKey(parts[0], raw[1:])
    if key.line != line.strip() or not key.name or any(char.isspace() for char in key.name):
        raise Invalid("the name or the id of the key does not fit the key")
    return key


def unpacked(text: object, size: int | None = None) -> bytes:
    """Reads Base64 in its one standard form. Raises: Invalid, also if it holds other than ``size`` bytes."""
    try:
        raw = base64.b64decode(str(text), validate=True)
    except (binascii.Error, ValueError):
        raise Invalid("no Base64") from None
    if not isinstance(text, str) or base64.b64encode(raw).decode() != text or size not in (None, len(raw)):
        raise Invalid("no Base64 of the right form and length")
    return raw


def text_of(stored: object) -> str:
    """Returns a stored value as text, whatever it is: bytes that are not UTF-8 are replaced."""
    return stored.decode(errors="replace") if isinstance(stored, bytes) else str(stored)


def read_record(text: bytes) -> dict[str, Any]:
    """Returns what a record says; nothing if it is damaged."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def error_text(error: Exception) -> str:
    """Returns what an error says in one line, without the number that the system gives it."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(str(error).split())


@dataclass(frozen=True)
class Checkpoint:
    """A signed statement: the log ``origin`` has ``size`` entries, whose tree has this ``root``."""

    origin: str
    size: int
    root: bytes

    @property
    def text(self) -> str:
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"


def note_of(checkpoint: Checkpoint, key: PublicKey, signature: bytes) -> str:
    """Returns the signed note. ``signature``: of ``checkpoint.text``."""
    return f"{checkpoint.text}\n{_DASH}{key.name} {base64.b64encode(key.id + signature).decode()}\n"


def open_note(note: str, keys: Iterable[PublicKey]) -> Checkpoint:
    """Returns the checkpoint of a note that one of ``keys`` signed. Raises: Invalid.

    Signatures of other keys are passed over, as C2SP's form wants it; a wrong one of ``keys`` is refused.
    """
    text, separator, rest = note.rpartition("\n\n")
    signatures = rest.split("\n")
    if not separator or signatures.pop() != "" or not signatures or len(set(signatures)) < len(signatures):
        raise Invalid("no signed note, or one that is signed twice the same")
    if len(signatures) > _MOST_SIGNATURES or any(sign < " " and sign != "\n" for sign in note):
        raise Invalid(f"a note with control characters, or with more than {_MOST_SIGNATURES} signatures")
    checkpoint = _read_checkpoint(f"{text}\n")
    good = False
    for line in signatures:
        parts = line.split(" ")
        if len(parts) != 3 or f"{parts[0]} " != _DASH:
            raise Invalid("a signature line of the note is malformed")
        _, name, packed = parts
        raw = unpacked(packed)
        for key in keys:
            if key.name == name and raw[:4] == key.id:
                if not key.signed(f"{text}\n".encode(), raw[4:]):
                    raise Invalid(WRONG_SIGNATURE)
                good = checkpoint.origin == key.name
    if not good:
        raise Invalid("no key that is trusted signed the note for this log")
    return checkpoint


def _read_checkpoint(text: str) -> Checkpoint:
    origin, size, root, *others = [*text.split("\n"), "", "", ""]
    if "" in others[: text.count("\n") - 3]:
        raise Invalid("the note is not a checkpoint: it has an empty line")
    if not origin or not size.isascii() or not size.isdecimal() or (size[0] == "0" and size != "0") or len(size) > 18:
        raise Invalid("the note is not a checkpoint")
    return Checkpoint(origin, int(size), unpacked(root, 32))


def rotated_keys(own_records: dict[int, bytes], keys: Sequence[PublicKey]) -> list[PublicKey]:
    """Returns ``keys`` and those that they vouch for: old and new key both sign the record of a rotation."""
    trusted = {key.line: key for key in keys}
    for _ in own_records:
        grown = len(trusted)
        for text in own_records.values():
            record = read_record(text)
            if record.get("kind") == "key.rotated":
                _trust(record, trusted)
        if len(trusted) == grown:
            break
    return list(trusted.values())


def _trust(record: dict[str, Any], trusted: dict[str, PublicKey]) -> None:
    try:
        old, new = read_key(str(record.get("old"))), read_key(str(record.get("new")))
        message = rotation_message(old, new)
        signed = old.signed(message, unpacked(record.get("by_old"), 64)) and new.signed(
            message, unpacked(record.get("by_new"), 64)
        )
    except Invalid:
        return
    if signed and old.name == new.name and (old.line in trusted or new.line in trusted):
        trusted |= {old.line: old, new.line: new}


def rotation_message(old: PublicKey, new: PublicKey) -> bytes:
    """Returns what both keys sign when ``new`` takes the place of ``old``."""
    return f"key.rotated\n{old.line}\n{new.line}\n".encode()
