"""Where checkpoints and leaves are published: places outside of the database. One is a file, one a git repository."""

import fcntl
import json
import os
import re
import stat
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from conductor_core.errors import BadInput
from conductor_core.files import open_regular

FILE_NAME = "anchor.jsonl"
_TAIL_BYTES = 1 << 16
"""A line of 256 entries has some 15,000."""
_GIT_S = 20
_OVER_A_NETWORK = re.compile(r"(ssh|git\+ssh|https)://[^/]|[^/:]+:(?![:/]{2}|:)", re.IGNORECASE)
"""``ssh://HOST/...``, ``https://HOST/...`` and ``HOST:...``. Git takes all else for a folder, or lets a program of this
user answer."""
_TOLD_S = 60.0
"""How long what a remote refuses is taken as known."""
_GET_FLAGS, _APPEND_ONLY = 0x80086601, 0x20
"""Linux: FS_IOC_GETFLAGS and FS_APPEND_FL."""


@dataclass(frozen=True)
class Witness:
    """Whether the user of this program, who can write the database, cannot rewrite what was published, and why."""

    witnessed: bool
    why: str


def kept_by_another(file: Path) -> Witness:
    """Returns whether a file is kept by somebody whom the user of this program cannot overrule."""
    try:
        owner = file.stat().st_uid
    except OSError as error:
        return Witness(False, f"the witness's file {file} cannot be read ({error.strerror})")
    if owner == os.geteuid() or may_write(file) or _replaceable([file, *file.parents]):
        return Witness(False, f"the user of this program can write the witness's file {file}")
    return Witness(True, f"another user keeps {file}, which the user of this program cannot write")


def is_readable_file(path: Path) -> bool:
    """Whether it is a regular file that can be read: a pipe would hold whoever reads it."""
    try:
        open_regular(path).close()
    except OSError:
        return False
    return True


def _replaceable(entries: Sequence[Path]) -> bool:
    """Whether this user can put something else in the place of one of these files and folders."""
    if os.geteuid() == 0:
        return True
    for entry in {*entries, *(each.resolve() for each in entries)}:
        folder = entry.parent.stat()
        if entry == entry.parent:
            continue
        if folder.st_uid == os.geteuid():
            return True
        own = folder.st_mode & stat.S_ISVTX == 0 or entry.stat().st_uid == os.geteuid()
        if own and may_write(entry.parent):
            return True
    return False


def may_write(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _is_append_only(file: Path) -> bool:
    """Whether the system lets nobody but root change what is in the file (``chattr +a``); Linux alone can tell."""
    try:
        with file.open("rb") as opened:
            flags = fcntl.ioctl(opened, _GET_FLAGS, bytes(8))
    except OSError:
        return False
    return bool(int.from_bytes(flags[:4], sys.byteorder) & _APPEND_ONLY)


class FileAnchor:
    """A file that only grows. Let another user or host own it, or the folder it is in: see docs/audit.md.

    ``storage.evidence.history.read_anchors`` reads it.

    Attributes:
        file: the text file of all that was published. every_s: the shortest time between two publications.
    """

    every_s = 0.0

    def __init__(self, file: Path) -> None:
        self.file = file
        self._known, self._last = (-1, ""), (0, "")

    def size(self, origin: str) -> int:
        """Returns how many entries of the log ``origin`` the place knows; it may hold other logs. Raises: OSError."""
        return self._newest(origin)[0]

    def note(self, origin: str) -> str:
        """Returns the checkpoint of that size, or an empty text. Its signature is not checked. Raises: OSError."""
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
        """Keeps a line for good. Raises: OSError; then the line may be there or not, and comes again."""
        with self.file.open("ab+") as file:
            end = file.seek(0, os.SEEK_END)
            if end:
                file.seek(end - 1)
                if file.read(1) != b"\n":  # a line that was cut by a full disk or a lost machine
                    file.write(b"\n")
            file.write(f"{line}\n".encode())
            file.flush()
            os.fsync(file.fileno())

    def witnessed(self) -> Witness:
        """Returns whether the user of this program cannot rewrite what is published here."""
        if not _is_append_only(self.file):
            return Witness(False, f"the user of this program can rewrite {self.file}")
        try:
            replaceable = _replaceable([*self.file.parents])
        except OSError:
            replaceable = True
        if replaceable:
            return Witness(False, f"{self.file} is append-only, but the user of this program can replace its folder")
        return Witness(True, f"the system makes {self.file} append-only")


class GitAnchor(FileAnchor):
    """The same file in a git repository: each publication is a commit, pushed if the repository has a remote.

    Attributes:
        refused: the remote of which ``refuses`` was found true.
    """

    every_s = 30.0

    def __init__(self, repository: Path) -> None:
        super().__init__(repository / FILE_NAME)
        self._repository = repository
        self._sent = False
        self.refused: str | None = None
        self._witness: Witness | None = None
        self._told_s = 0.0

    def size(self, origin: str) -> int:
        if not self._sent and self.file.exists():
            self._send()  # what an earlier try, or an earlier process, has left
        return super().size(origin)

    def publish(self, line: str) -> None:
        self._sent = False
        super().publish(line)
        self._send()

    def witnessed(self) -> Witness:
        now_s = time.monotonic()
        if self._witness is None or now_s - self._told_s > _TOLD_S:
            try:
                self._witness = self._ask()
            except OSError as error:
                self._witness = Witness(False, f"what its remote refuses cannot be told: {error}")
            self._told_s = now_s
        return self._witness

    def _ask(self) -> Witness:
        url = self.push_url()
        if url is None:
            return Witness(False, f"{self._repository} has no remote, and the user of this program can rewrite it")
        place, shown = _folder_of(url), re.sub(r"//[^/@]*@", "//", url)  # without a password
        if place is None:
            if not _OVER_A_NETWORK.match(url):
                return Witness(
                    False, f"{shown} is not reached over ssh or https, so it can be a folder of this machine"
                )
            if self.refused == url:
                return Witness(True, f"{shown} refused to have history replaced when it was chosen")
            return Witness(False, f"whether {shown} refuses to have history replaced is not known: choose it again")
        for name in ("receive.denyNonFastForwards", "receive.denyDeletes"):
            said = self._git("-C", str(place), "config", "--type=bool", "--default=false", "--get", name).strip()
            if said != "true":
                why = f"{place} lets history be replaced: its owner runs git -C {place} config {name} true"
                return Witness(False, why)
        why = f"{place} refuses to have history replaced, but whoever can push to a folder of this machine can rewrite "
        return Witness(False, f"{why}its files: name it as another user's over ssh, or take another host")

    def push_url(self) -> str | None:
        """Returns where the repository pushes to; None: it has no remote. It can hold a password. Raises: OSError."""
        remotes = self._git("remote").split()
        return self._git("remote", "get-url", "--push", remotes[0]).strip() if remotes else None

    def refuses(self) -> bool:
        """Returns whether the remote refuses to have history replaced. Raises: OSError if that cannot be told.

        It is asked to take the branch back by one commit, and to delete it. What it lets through is put back at once.
        """
        remote = self._git("remote").split()[0]
        branch = f"refs/heads/{self._git('symbolic-ref', '--short', 'HEAD').strip()}"
        if int(self._git("rev-list", "--count", "HEAD")) < 2:
            self._git("commit", "--quiet", "--allow-empty", "-m", "To see whether history can be replaced")
        self._git("push", "--quiet", remote, f"HEAD:{branch}")
        for refspec in (f"+HEAD~1:{branch}", f":{branch}"):
            with suppress(OSError):
                self._git("push", "--quiet", remote, refspec)
            there = self._git("ls-remote", remote, branch).split()[:1]
            if there != [self._git("rev-parse", "HEAD").strip()]:
                self._git("push", "--quiet", remote, f"HEAD:{branch}")
                return False
        return True

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


def _folder_of(url: str) -> Path | None:
    """Returns the folder of this machine that a remote is; None: it is reached in another way."""
    place = Path(url.removeprefix("file://"))
    return place if place.is_absolute() and place.is_dir() else None


def anchor_at(place: str) -> FileAnchor:
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
