"""The layer inside the interpreter: an audit hook that refuses what a graded program has no business doing.

It needs nothing of the kernel, so it is there on every system; but it is in the program's own process, and code that
sets out to break an interpreter from within can get past it. It is the second line, not the wall. Loaded by ``child``
from its file.
"""

import os
import sys
from typing import Any

_PROCESS_EVENTS = frozenset(
    ("os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "os.startfile", "subprocess.Popen",
     "pty.spawn", "os.kill", "os.killpg")
)  # fmt: skip
_INSIDE_EVENTS = frozenset(
    ("gc.get_objects", "gc.get_referrers", "gc.get_referents", "resource.setrlimit", "resource.prlimit")
)  # fmt: skip
_CHANGING_EVENTS = {
    "os.chmod": 1, "os.chown": 1, "os.link": 2, "os.mkdir": 1, "os.remove": 1, "os.rename": 2, "os.rmdir": 1,
    "os.symlink": 2, "os.truncate": 1, "os.utime": 1, "os.setxattr": 1, "os.removexattr": 1, "os.chflags": 1,
    "shutil.rmtree": 1, "shutil.move": 2, "sqlite3.connect": 1,
}  # fmt: skip
"""Event: how many of its arguments are paths that it may change."""
_READING_EVENTS = frozenset(("os.listdir", "os.scandir", "os.walk", "glob.glob"))
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")


class _Guard:
    """The hook. What it compares with, and what it calls for that, is fixed when it is made."""

    def __init__(self, readable: list[str], folder: str, *, processes: bool, native: bool) -> None:
        self._realpath, self._fsdecode = os.path.realpath, os.fsdecode
        self._folder, self._inside = folder, folder.rstrip("/") + "/"
        self._exactly, self._below = tuple(readable), tuple(path.rstrip("/") + "/" for path in readable)
        self._processes, self._native = processes, native

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            self._check_open(*arguments)
        elif event.startswith("socket."):
            # A pair of connected sockets, such as asyncio makes, leads nowhere else.
            if event != "socket.__new__" or arguments[1] not in (1, -1):
                raise PermissionError("a graded program has no network")
        elif event in _CHANGING_EVENTS:
            if not all(self._may_write(path) for path in arguments[: _CHANGING_EVENTS[event]]):
                raise PermissionError(f"a graded program may not change files outside of its folder ({event})")
        elif event in _READING_EVENTS:
            if arguments and isinstance(arguments[0], str | bytes) and not self._may_read(arguments[0]):
                raise PermissionError(f"a graded program may not look into {arguments[0]!r}")
        else:
            self._check_reach(event)

    def _check_open(self, path: Any, _: Any, flags: Any) -> None:
        writes = isinstance(flags, int) and flags & _WRITING
        if not (self._may_write(path) if writes else self._may_read(path)):
            raise PermissionError(f"a graded program may not open {path!r}")

    def _check_reach(self, event: str) -> None:
        if not self._processes and event in _PROCESS_EVENTS:
            raise PermissionError("a graded program may not start or signal processes")
        if not self._native and (event.startswith("ctypes.") or event in _INSIDE_EVENTS):
            raise PermissionError(f"a graded program may not reach below the interpreter ({event})")

    def _may_write(self, path: Any) -> bool:
        if isinstance(path, int):
            return True
        real = self._realpath(self._fsdecode(path))
        return real == self._folder or real.startswith(self._inside) or real in _DEVICES

    def _may_read(self, path: Any) -> bool:
        if path is None or self._may_write(path):
            return True
        real = self._realpath(self._fsdecode(path))
        return real in self._exactly or real.startswith(self._below)


def install(readable: list[str], folder: str, *, processes: bool, native: bool) -> str:
    """From here on, for good: no sockets, no processes, files only as the kernel's layer has them.

    Args:
        processes: new processes are let through. native: so are ctypes (libraries of site-packages load through it).
    """
    sys.addaudithook(_Guard(readable, folder, processes=processes, native=native))
    return "audit hook"
