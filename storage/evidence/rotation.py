"""Which keys a log trusts after its key was replaced: the record of a rotation is signed by the old and the new one."""

from collections.abc import Sequence
from typing import Any

from storage.merkle.formats import Invalid, PublicKey, read_key, read_record, unpacked


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
