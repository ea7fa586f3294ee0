"""Where checkpoints and leaves are published: places outside of the database. One is a file, one a git repository."""

import json
import os
import subprocess
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from conductor_core.errors import BadInput

FILE_NAME = "anchor.jsonl"
_TAIL_BYTES = 1 << 16
"""A line of 256 entries has some 15,000."""
_GIT_S = 20


class Anchor(Protocol):
    """A place that keeps what is published. Its file is read by ``storage.evidence.history.read_anchors``.

    Attributes:
        file: the text file of all that was published. every_s: the shortest time between two publications.
    """

    file: Path
    every_s: float

    def size(self, origin: str) -> int:
        """Returns how many entries of the log ``origin`` the place knows; it may hold other logs. Raises: OSError."""
        ...

    def note(self, origin: str) -> str:
        """Returns the checkpoint of that size, or an empty text. Its signature is not checked. Raises: OSError."""
        ...

    def publish(self, line: str) -> None:
        """Keeps a line for good. Raises: OSError; then the line may be there or not, and comes again."""
        ...


class FileAnchor:
    """A file that only grows. Let another user or host own it, or the folder it is in: see docs/audit.md."""

    every_s = 0.0

    def __init__(self, file: Path) -> None:
        self.file = file
        self._known, self._last = (-1, ""), (0, "")

    def size(self, origin: str) -> int:
        return self._newest(origin)[0]

    def note(self, origin: str) -> str:
        return self._newest(origin)[1]

    def _newest(self, origin: str) -> tuple[int, str]:
        try:
            length = self.file.stat().st_size
        except FileNotFoundError:
            return 0, ""
        if self._known != (length, origin):
            self._known, self._last = (length, origin), _newest_line(self.file, origin)
        return self._last

    def publish(self, line: str) -> None:
        with self.file.open("ab+") as file:
            end = file.seek(0, os.SEEK_END)
            if end:
                file.seek(end - 1)
                if file.read(1) != b"\n":  # a line that was cut by a full disk or a lost machine
                    file.write(b"\n")
            file.write(f"{line}\n".encode())
            file.flush()
            os.fsync(file.fileno())


class GitAnchor:
    """The same file in a git repository: each publication is a commit, pushed if the repository has a remote."""

    every_s = 30.0

    def __init__(self, repository: Path) -> None:
        self._repository = repository
        self._inner = FileAnchor(repository / FILE_NAME)
        self._sent = False
        self.file = self._inner.file

    def size(self, origin: str) -> int:
        if not self._sent and self.file.exists():
            self._send()  # what an earlier try, or an earlier process, has left
        return self._inner.size(origin)

    def note(self, origin: str) -> str:
        return self._inner.note(origin)

    def publish(self, line: str) -> None:
        self._sent = False
        self._inner.publish(line)
        self._send()

    def _send(self) -> None:
        if self._git("status", "--porcelain", "--", FILE_NAME).strip():
            self._git("add", "--", FILE_NAME)
            self._git("commit", "--quiet", "-m", "Checkpoint of the log", "--", FILE_NAME)
        if self._git("remote").strip():
            self._git("push", "--quiet")
        self._sent = True

    def _git(self, *arguments: str) -> str:
        command = ["git", "-C", str(self._repository), *arguments]
        try:
            done = subprocess.run(  # noqa: S603  no shell, own arguments
                command,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                check=False,
                timeout=_GIT_S,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired as error:
            raise OSError(f"git {arguments[0]} took more than {_GIT_S} s") from error
        if done.returncode:
            raise OSError(f"git {arguments[0]} failed: {' '.join(done.stderr.split())[:300]}")
        return done.stdout


def anchor_at(place: str) -> Anchor:
    """Returns the anchor that a setting names: a file or folder, or ``git:FOLDER``. Raises: BadInput."""
    if place.startswith("git:"):
        repository = Path(place.removeprefix("git:")).expanduser()
        if not (repository / ".git").exists():
            raise BadInput(f"{repository} is not a git repository; run git init there, or name another anchor")
        return GitAnchor(repository.absolute())
    path = Path(place).expanduser().absolute()
    return FileAnchor(path / FILE_NAME if path.is_dir() else path)


def anchor_line(at_utc: str, note: str, start: int, entries: Sequence[tuple[str | None, bytes]]) -> str:
    """Returns what is published with a checkpoint: the leaves from ``start`` on, each with its run (None: a record)."""
    runs = {run_id: at for at, run_id in enumerate(dict.fromkeys(each for each, _ in entries if each is not None))}
    of = [-1 if run_id is None else runs[run_id] for run_id, _ in entries]
    leaves = b64encode(b"".join(leaf for _, leaf in entries)).decode()
    line = {"at_utc": at_utc, "checkpoint": note, "from": start, "leaves": leaves, "of": of, "runs": list(runs)}
    return json.dumps(line, separators=(",", ":"))


def _newest_line(file: Path, origin: str) -> tuple[int, str]:
    """Returns size and note of the log's last checkpoint in the file that can be read; 0 and no text: there is none."""
    with file.open("rb") as opened:
        end = opened.seek(0, os.SEEK_END)
        length = min(end, _TAIL_BYTES)
        while True:
            opened.seek(end - length)
            for line in reversed(opened.read(length).split(b"\n")):
                try:
                    found = json.loads(line)
                    note, size = str(found["checkpoint"]), int(found["from"]) + len(found["of"])
                except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
                    continue
                if note.partition("\n")[0] == origin:
                    return size, note
            if length == end:
                return 0, ""
            length = min(end, 4 * length)
