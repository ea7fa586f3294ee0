"""Locks between processes, files for their owner alone, and questions about paths that never raise.

The locks say who may write, and which writers of runs and of folders of records are alive. All are ``flock`` locks on
small files. The kernel drops them when a process dies. So they are right across containers, reused process ids and
moved clocks, where a recorded process id is not.

Paths come from people, records and kept choices, and may be any text. ``Path`` raises if a name is too long, a folder
may not be entered, or ``~NAME`` names nobody.
"""

import errno
import fcntl
import io
import os
import stat
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

_FIRST_WAIT_S = 0.0005
_LONGEST_WAIT_S = 0.02


class FileLock:
    """An exclusive lock on a file. One open file at a time holds it among all processes of this machine."""

    def __init__(self, path: Path) -> None:
        """Opens ``path``, creating it if need be. Raises: OSError."""
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        keep_private(path)
        self._identity = os.fstat(self._file)

    def is_of(self, path: Path) -> bool:
        try:
            return os.path.samestat(self._identity, os.stat(path))
        except FileNotFoundError:
            return False

    def try_acquire(self, *, shared: bool = False) -> bool:
        """Takes the lock if nobody holds it. A ``shared`` one only fails if somebody holds it exclusively."""
        try:
            fcntl.flock(self._file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        return True

    def acquire(self, timeout_s: float) -> bool:
        """Waits for the lock at most ``timeout_s``. Returns False if somebody else held it all the time."""
        deadline = time.monotonic() + timeout_s
        wait_s = _FIRST_WAIT_S
        while not self.try_acquire():
            if time.monotonic() >= deadline:
                return False
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
        return True

    def release(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Releases the lock and the file; the lock cannot be used afterwards."""
        os.close(self._file)


def is_locked(path: Path) -> bool:
    """Tells whether somebody holds the lock of a file that is there. Raises nothing."""
    try:
        lock = FileLock(path)
    except OSError:
        return False
    try:
        return not lock.try_acquire()
    finally:
        lock.close()


# Files for their owner alone.


def only_for_owner() -> None:
    """Has all that this process and its children make from now on be for their owner alone: 0600, folders 0700."""
    os.umask(0o077)


def keep_private(*paths: Path, levels: int = 0) -> None:
    """Takes from others what they may do with files and folders that are there. Raises nothing.

    What belongs to another user, a link, and a folder that all may write with care (as ``/tmp``) stay as they are.
    ``levels``: of folders inside these folders whose entries are treated the same.
    """
    for path in paths:
        with suppress(OSError):
            found = path.lstat()
            if stat.S_ISLNK(found.st_mode) or found.st_mode & stat.S_ISVTX:
                continue
            # Not by a handle of its own: closing one would drop the locks that SQLite holds on the file.
            if found.st_uid == os.geteuid() and found.st_mode & 0o077:
                path.chmod(stat.S_IMODE(found.st_mode) & ~0o077)
            if levels and stat.S_ISDIR(found.st_mode):
                keep_private(*path.iterdir(), levels=levels - 1)


def private_folder(path: Path) -> None:
    """Makes a folder for its owner alone, if there is none. Raises: OSError."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    keep_private(path)


UNFINISHED = ".unfinished"


def write_whole(path: Path, data: bytes, *, replace: bool = True) -> None:
    """Writes ``data`` under a name that nobody reads, and gives it ``path``'s once it is on the disk.

    ``replace``: False: not if another process was quicker. Raises: OSError; then ``path`` is as it was before.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=UNFINISHED)  # with mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            os.replace(name, path)
        else:
            with suppress(FileExistsError):
                os.link(name, path)
    finally:
        with suppress(OSError):
            os.unlink(name)
    flush(path.parent)


def flush(path: Path) -> None:
    """Makes a file, or the names in a folder, durable. Raises: OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def expand_path(text: str) -> Path:
    """Returns ``text`` as a path. ``~`` and ``~NAME`` become home folders if there are such."""
    return Path(os.path.expanduser(text))


def is_folder(path: str | Path) -> bool:
    return os.path.isdir(path)


def is_file(path: str | Path) -> bool:
    return os.path.isfile(path)


def is_there(path: str | Path) -> bool:
    return os.path.exists(path)


# What a person names.


class NotRegular(OSError):
    """What should be read is a pipe, a device or a socket."""


def open_regular(path: str | Path) -> io.BufferedReader:
    """Opens a file for reading. A pipe would make its reader wait, and a device may never end.

    Raises: NotRegular, IsADirectoryError or another OSError, whose ``strerror`` says why; ValueError for no path.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    kind = os.fstat(handle).st_mode
    if stat.S_ISREG(kind):
        return open(handle, "rb")
    os.close(handle)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
    raise NotRegular(errno.EINVAL, "not a regular file", str(path))


class Unread(Exception):
    """What a person named cannot be used as a file. The message says why in a few words, without its name."""


def read_named(path: str | Path, most_bytes: int) -> bytes:
    """Reads a whole file that a person named. Raises: Unread."""
    try:
        with open_regular(path) as file:
            raw = file.read(most_bytes + 1)
    except FileNotFoundError:
        raise Unread("no such file") from None
    except (NotRegular, IsADirectoryError) as error:
        raise Unread(error.strerror) from None
    except (OSError, ValueError) as error:
        raise Unread(f"it cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if len(raw) > most_bytes:
        most = f"{most_bytes >> 20} MiB" if most_bytes >> 20 else f"{most_bytes:,} bytes"
        raise Unread(f"it has more than {most}")
    return raw


def text_of(raw: bytes) -> str:
    """Returns the text of a file. Raises: Unread, which names the place that is not UTF-8."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - raw.rfind(b"\n", 0, error.start)
        raise Unread(f"line {line}, byte {column}: it is not UTF-8 text") from error


# What a command prints.


def give_stdout_up() -> None:
    """Leads stdout nowhere once whoever read it has left, so that the interpreter says nothing of it at its end."""
    with suppress(io.UnsupportedOperation):  # a stream that is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
