"""The master key of a database: a file outside of it that only its owner can read."""

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from conductor_core.errors import StoreError
from storage import failures

_BYTES = 32
_BEGINS = "conductor-master-key-1 "


def place_beside(database: Path) -> Path:
    """Returns where the key is if no setting names another place."""
    return database.with_name(f"{database.name}.master-key")


def read(path: Path) -> bytes | None:
    """Returns the key, or None if there is no such file. Raises: StoreError if it is none, or if others can read it."""
    with failures.translated(path):
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
    with failures.translated(path):
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")  # with mode 0600
        try:
            with os.fdopen(handle, "w") as file:
                file.write(_BEGINS + base64.b64encode(secrets.token_bytes(_BYTES)).decode() + "\n")
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):  # another process was quicker
                os.link(name, path)
        finally:
            Path(name).unlink(missing_ok=True)
        flush_folder(path.parent)
    key = read(path)
    if key is None:
        raise StoreError(f"the master key {path} was deleted while it was made")
    return key


def derived(key: bytes, purpose: str) -> bytes:
    """Returns a key for one purpose, from which the master key cannot be found."""
    return hmac.new(key, f"conductor {purpose}".encode(), hashlib.sha256).digest()


def flush_folder(folder: Path) -> None:
    """Makes a new name in the folder durable. Raises: OSError."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
