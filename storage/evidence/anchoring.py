"""Signs checkpoints of the log and publishes them, in a thread of its own, off the path on which events are written."""

import fcntl
import json
import logging
import os
import re
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import AwareDatetime, BaseModel, RootModel, ValidationError

from conductor_core.errors import BadInput, StoreError
from conductor_core.files import FileLock, open_regular, write_whole
from conductor_core.settings import Settings, setting_fault
from conductor_core.workflow.model import Frozen
from storage.database.connections import Database
from storage.encoding import read_time
from storage.evidence.history import has_root
from storage.evidence.keys import SigningKey, load_key, other_log_error, own_public_key
from storage.merkle.chain import read_origin, read_size
from storage.merkle.formats import Checkpoint, Invalid, PublicKey, Tree, error_text, open_note, text_of

log = logging.getLogger(__name__)

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

    def size(self, origin: str) -> int:
        """Returns how many entries of the log ``origin`` the place knows; it may hold other logs. Raises: OSError."""
        return self.newest(origin)[0]

    def newest(self, origin: str) -> tuple[int, str]:
        """Returns size and note of the log's last checkpoint that can be read; 0 and no text: there is none.

        The signature is not checked. Raises: OSError.
        """
        if not self.file.exists():
            return 0, ""
        with self.file.open("rb") as opened:
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


EVERY_S = 1.0
EVERY_ENTRIES = 256
_AGAIN_S = 5.0
"""The time before a place that could not be reached is tried again."""
_LOCK_S = 5.0
_STOPPED, _CHOICES = "publishing-stopped.json", "anchors.json"
_MOST_BYTES = 4 << 20
_Kept = TypeVar("_Kept", bound=BaseModel)
_MOST_ENTRIES = 50_000
"""The most entries of one checkpoint: a database of before that was copied in is published in parts."""
_NEWEST = "SELECT size, peaks, note FROM checkpoints WHERE size <= ? ORDER BY size DESC LIMIT 1"
_LEAVES = (
    "SELECT CASE WHEN record IS NULL THEN run_id END, hash FROM leaves "
    "WHERE position >= ? AND position < ? ORDER BY position"
)
_ANCHORED = "SELECT size, at_utc, note FROM checkpoints ORDER BY size DESC LIMIT 1"
_ROTATED = "SELECT 1 FROM leaves WHERE position >= ? AND record LIKE '%\"key.rotated\"%' LIMIT 1"
_OLDEST = "SELECT position, run_id FROM leaves WHERE position >= ? AND record IS NULL ORDER BY position LIMIT 1"
_WHEN = "SELECT at_utc FROM events WHERE run_id = ? AND position = ?"


_UNKNOWN = Witness(False, "")


@dataclass(frozen=True)
class Places:
    """Where a log's key is, where its checkpoints are published, and which file a witness keeps of them."""

    key: Path
    anchor: FileAnchor
    witness: Path | None = None

    def witnessed(self) -> Witness:
        """Returns whether the user of this program, who can write the database, cannot rewrite what was published."""
        return self.anchor.witnessed() if self.witness is None else kept_by_another(self.witness)

    def kept(self) -> list[Path]:
        """Returns the file that a witness keeps, if there is one that can be read."""
        return [self.witness] if self.witness is not None and is_readable_file(self.witness) else []


class Chosen(Frozen):
    """What ``conductor log anchor --to`` chose for a database. None: nothing.

    Attributes:
        publish: where checkpoints are published, as the setting would name it. witness: the file that a witness keeps.
        refused: the remote of a git repository that was seen to refuse to have history replaced.
    """

    publish: str | None = None
    witness: str | None = None
    refused: str | None = None


class _Choices(RootModel[dict[str, Chosen]]):
    """The choices of this user, by the path of the database."""


def evidence_folder(database: Path) -> Path:
    """Returns the folder beside a database that holds its key and its anchor, unless the settings name others."""
    return database.with_name(f"{database.name}.evidence")


def chosen_places(database: Path) -> Chosen:
    """Returns what was chosen for this database. Raises: BadInput if that cannot be read."""
    return _choices(_choices_file()).get(str(database), Chosen())


def keep_chosen(database: Path, chosen: Chosen) -> None:
    """Keeps a choice for every later start of the program. Raises: BadInput; OSError."""
    path = _choices_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    keep_file(path, _Choices(_choices(path) | {str(database): chosen}))


def _choices_file() -> Path:
    """The data folder has it, and not the folder beside the database: a database from elsewhere must choose nothing."""
    try:
        return Settings().data_folder / _CHOICES
    except ValidationError as error:
        raise BadInput(setting_fault(error)) from error


def _choices(path: Path) -> dict[str, Chosen]:
    try:
        return _Choices.model_validate_json(path.read_bytes()).root
    except ValidationError as error:
        raise BadInput(f"{path} is damaged: remove it, and run `conductor log anchor --to` again") from error
    except OSError:  # none was ever made, or this is not the user who made it
        return {}


def places_of(database: Path, anchor: str | None = None, signing_key: Path | None = None) -> Places:
    """Returns the places that the settings name, else those that were chosen, else those beside the database.

    The folder beside it is apart from the database, but whoever can write the database can write there, too.
    Raises: BadInput.
    """
    folder, chosen = evidence_folder(database), chosen_places(database)
    key = folder / "signing-key" if signing_key is None else signing_key.expanduser().absolute()
    publish = chosen.publish if anchor is None else anchor
    witness = None if chosen.witness is None else Path(chosen.witness)
    place = FileAnchor(folder / FILE_NAME) if publish is None else anchor_at(publish)
    if isinstance(place, GitAnchor):
        place.refused = chosen.refused
    return Places(key, place, witness)


@dataclass(frozen=True)
class Evidence:
    """What of a log is protected.

    Attributes:
        entries: of the log in all. anchored: how many of them were published.
        unanchored_events: how many events were not. unanchored_since_utc: when the first of these happened.
        anchored_at_utc: when the last checkpoint was published. fault: why the last try failed; None: it did not.
        doubt: why what the database says of its publication cannot be believed; None: nothing speaks against it.
        begun_again: why the log is not the one that its key signs; None: it is.
        witness: whether this program's user cannot rewrite what was published. witness_size: how many entries the
            witness keeps; None: the anchor itself is the witness, or there is none.
    """

    origin: str
    entries: int
    anchored: int
    unanchored_events: int
    unanchored_since_utc: datetime | None
    anchored_at_utc: datetime | None
    anchor: str
    fault: str | None
    doubt: str | None = None
    begun_again: str | None = None
    witness: Witness = _UNKNOWN
    witness_size: int | None = None


def _doubt(
    connection: sqlite3.Connection, origin: str, note: object, size: int, entries: int, places: Places
) -> str | None:
    """Returns why the newest checkpoint of the database cannot be believed. Key and anchor are outside of it."""
    if size > entries:
        return f"a checkpoint says {size:,} entries, and the log has {entries:,}"
    try:
        if not places.key.is_file():
            return f"no signing key at {places.key}"
        if (published := FileAnchor(places.anchor.file).size(origin)) < size:
            return f"the database says that {size:,} entries are published, and the anchor has {published:,}"
        signed = open_note(text_of(note), [load_key(places.key, origin).public])
    except Invalid as error:
        # Until the next publication, the newest checkpoint is signed by the key that was replaced.
        return None if connection.execute(_ROTATED, (size,)).fetchone() else str(error)
    except (BadInput, OSError) as error:
        return error_text(error)
    return None if signed.size == size else f"the checkpoint has {signed.size:,} entries instead of {size:,}"


def read_evidence(connection: sqlite3.Connection, places: Places, fault: str | None) -> Evidence:
    """Reads how far the log is published. Raises: sqlite3.Error."""
    origin = read_origin(connection)
    published = 0  # as anchor and witness know, before the database is read: nothing is published that it lacks then
    for file in (places.anchor.file, *places.kept()):
        with suppress(OSError):
            published = max(published, FileAnchor(file).size(origin))
    entries = read_size(connection)
    size, at_utc, note = connection.execute(_ANCHORED).fetchone() or (0, None, "")
    ((unanchored,),) = connection.execute("SELECT count(*) FROM leaves WHERE position >= ? AND record IS NULL", (size,))
    first = connection.execute(_OLDEST, (size,)).fetchone()
    since = None if first is None else connection.execute(_WHEN, (first[1], first[0])).fetchone()
    doubt = _doubt(connection, origin, note, size, entries, places) if size else None
    key, witness_size = None, None if places.witness is None else 0
    with suppress(BadInput, OSError):  # what hinders the key is said where it is used
        key = own_public_key(places.key) if places.key.is_file() and origin else None
    if places.witness is not None:
        with suppress(OSError):
            witness_size = FileAnchor(places.witness).size(origin)
    if published > entries:
        doubt = f"{published:,} entries are published, and the log has {entries:,}: an older copy, or its end was cut"
    return Evidence(
        origin=origin,
        entries=entries,
        anchored=size,
        unanchored_events=unanchored,
        unanchored_since_utc=None if since is None else read_time(since[0]),
        anchored_at_utc=read_time(at_utc),
        anchor=str(places.anchor.file),
        fault=fault,
        doubt=doubt,
        begun_again=None if key is None or key.name == origin else str(other_log_error(places.key, key.name, origin)),
        witness=places.witnessed(),
        witness_size=witness_size,
    )


class _Stopped(Frozen):
    """Why nothing is published, as it is kept beside the database, so that it is known after a restart."""

    since_utc: AwareDatetime
    fault: str


def _read_stopped(database: Path) -> _Stopped | None:
    return read_file(evidence_folder(database) / _STOPPED, _Stopped)


def kept_fault(database: Path) -> str | None:
    """Returns since when and why nothing is published, as the last process that tried has noted; None: all was well."""
    stopped = _read_stopped(database)
    return None if stopped is None else f"{stopped.fault} (since {stopped.since_utc:%Y-%m-%d %H:%M} UTC)"


def _keep_fault(database: Path, fault: str | None) -> None:
    """Keeps why nothing is published. A folder that cannot be written is logged."""
    path, before = evidence_folder(database) / _STOPPED, _read_stopped(database)
    try:
        if fault is None:
            path.unlink(missing_ok=True)
            return
        keep_file(path, _Stopped(since_utc=datetime.now(UTC) if before is None else before.since_utc, fault=fault))
    except OSError as error:
        log.warning("why nothing is published is not kept in %s: %s", path, error)


def keep_file(path: Path, kept: BaseModel) -> None:
    """Writes a file beside the database, whole or not at all. Raises: OSError."""
    path.parent.mkdir(exist_ok=True, mode=0o700)
    write_whole(path, kept.model_dump_json().encode())


def read_file(path: Path, kept: type[_Kept]) -> _Kept | None:
    """Reads what ``keep_file`` wrote; None: nothing that can be read is there."""
    try:
        with open_regular(path) as file:
            return kept.model_validate_json(file.read(_MOST_BYTES))
    except (OSError, ValidationError):
        return None


class Anchoring:
    """Publishes what one process writes, at the latest a second or 256 entries after it was written.

    Attributes:
        fault: why the last try to publish failed, also one of an earlier process; None: it did not.
    """

    def __init__(
        self, database: Database, change: Callable[[Callable[[sqlite3.Cursor], Any]], Any], places: Places
    ) -> None:
        """``change`` runs work in a transaction of the writer, and returns when it is durable."""
        self._database, self._change, self._places = database, change, places
        self._lock = threading.Lock()
        self._news, self._due = threading.Event(), threading.Event()
        self._pending = 0
        self._closing = False
        self._thread: threading.Thread | None = None
        stopped = _read_stopped(database.path)
        self.fault: str | None = None if stopped is None else stopped.fault

    def written(self, entries: int) -> None:
        """Says that so many entries are durable. Any thread may call it; it returns at once."""
        with self._lock:
            if self._closing:
                return
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="anchoring", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # the interpreter is ending: the next process publishes what is left
                    return
                self._thread = thread
            self._pending += entries
            if self._pending >= EVERY_ENTRIES:
                self._due.set()
            self._news.set()

    def resume(self) -> None:
        """Publishes what an earlier process has left, as it does what was written. Raises: StoreError."""
        with self._database.reading() as connection:
            size = read_size(connection)
            stored = connection.execute(_NEWEST, (size,)).fetchone()
        # The one record with which a log begins can wait for the first event.
        if size > max(1, stored[0] if stored else 0):
            self.written(0)

    def close(self) -> None:
        """Publishes what was written, then stops. A place that cannot be reached is tried once more, and left."""
        with self._lock:
            self._closing = True
            self._due.set()
            self._news.set()
        if self._thread is not None:
            self._thread.join()
        elif self.fault is not None:  # of an earlier process: whether it is still so
            self._try()

    def _run(self) -> None:
        published_s = 0.0
        while True:
            self._news.wait()
            self._due.wait(EVERY_S)
            if not self._closing:
                due_s = published_s + (_AGAIN_S if self.fault else self._places.anchor.every_s)
                while not self._closing and (left_s := due_s - time.monotonic()) > 0:
                    time.sleep(min(left_s, 0.2))
            with self._lock:
                closing_now, self._pending = self._closing, 0
                self._news.clear()
                self._due.clear()
            more = self._try()
            published_s = time.monotonic()
            if closing_now:
                return
            if more or self.fault:
                self._news.set()

    def _try(self) -> bool:
        """Publishes once. Returns whether more waits. What fails is kept in ``fault`` and does not stop anybody."""
        more, where = False, self._places.anchor.file
        try:
            more, fault = self.publish(), None
        except (OSError, sqlite3.Error, StoreError, BadInput) as error:
            fault = error_text(error) or type(error).__name__
            if fault != self.fault:
                log.warning("checkpoints are not published to %s: %s", where, fault)
        except Exception as error:  # a fault of ours: the thread must live to say so, and to try again
            fault = f"{type(error).__name__}: {' '.join(str(error).split())}"
            if fault != self.fault:
                log.exception("checkpoints are not published to %s", where)
        if fault is None or fault != self.fault:  # what another program noted is over, too
            _keep_fault(self._database.path, fault)
        self.fault = fault
        return more

    def publish_all(self) -> None:
        """Publishes until no entry is left. Raises: StoreError, BadInput, sqlite3.Error."""
        try:
            while self.publish():
                pass
        except OSError as error:
            where = self._places.anchor.file
            raise StoreError(f"checkpoints cannot be published to {where}: {error.strerror or error}") from error

    def publish(self) -> bool:
        """Signs a checkpoint and publishes it with the leaves that the place does not know yet.

        Returns whether entries are left. Raises: StoreError, BadInput, OSError, sqlite3.Error.
        """
        if not self._database.in_place():
            return False  # whoever writes says so
        folder = self._places.key.parent
        folder.mkdir(exist_ok=True, mode=0o700)
        if self._places.anchor.file.parent == evidence_folder(self._database.path):
            self._places.anchor.file.touch(0o600)  # elsewhere others are meant to read it
        # Another process that writes this log has the same key and place.
        with closing(FileLock(folder / "lock")) as lock:
            if not lock.acquire(_LOCK_S):
                raise OSError(f"another process holds {folder / 'lock'}")
            with self._database.reading() as connection:
                try:
                    return self._publish(connection)
                except OSError as error:  # of the place: else it would be told as one of the database
                    fault = error
            raise fault

    def _publish(self, connection: sqlite3.Connection) -> bool:
        """Publishes from where the place ends, unless that holds what this log does not."""
        size, origin = read_size(connection), read_origin(connection)
        kept = connection.execute(_NEWEST, (size,)).fetchone() or (0, b"", "")
        known = self._places.anchor.size(origin)
        if known == size == kept[0] or not size:
            return False
        key = load_key(self._places.key, origin)
        if known > size:
            raise BadInput(
                _another(f"the anchor holds {known} entries, and the database {size}", self._places.anchor.file)
            )
        tree = self._agreeing(connection, kept, key, known)
        end = min(size, known + _MOST_ENTRIES)
        leaves = _leaves(connection, known, end)
        tree.extend(leaf for _, leaf in leaves)
        note = key.note(Checkpoint(origin, end, tree.root()))
        at_utc = datetime.now(UTC).isoformat()
        if end > known:
            self._places.anchor.publish(anchor_line(at_utc, note, known, leaves))
        if end > kept[0]:
            keep = "INSERT OR IGNORE INTO checkpoints (size, at_utc, note, peaks) VALUES (?, ?, ?, ?)"
            self._change(lambda cursor: cursor.execute(keep, (end, at_utc, note, tree.peaks)))
        return bool(end < size)

    def _agreeing(
        self, connection: sqlite3.Connection, kept: tuple[int, bytes, str], key: SigningKey, known: int
    ) -> Tree:
        """Returns the tree of the log's first ``known`` entries, whose root the place has.

        It begins with the tree that the database keeps, if the key has signed it. If that does not lead there, all
        leaves are read. Raises: BadInput if they do not lead there either.
        """
        root = self._places.anchor.newest(key.public.name)[1].split("\n")[2:3]
        for tree in (_signed_tree(kept, key.public), Tree()):
            if tree.size > known:
                continue
            while tree.size < known:
                end = min(known, tree.size + _MOST_ENTRIES)
                tree.extend(leaf for _, leaf in _leaves(connection, tree.size, end))
            if not known or root == [b64encode(tree.root()).decode()]:
                return tree
        raise BadInput(
            _another(f"the anchor's first {known} entries are not those of the database", self._places.anchor.file)
        )


def _another(what: str, anchor: Path) -> str:
    return (
        f"{what}: an older copy was put in its place, or entries were changed. Verify the log: that "
        f"names what differs. A backup that you restored yourself goes on once {anchor} has another name: keep it"
    )


def _signed_tree(kept: tuple[int, bytes, str], key: PublicKey) -> Tree:
    """Returns the tree of a checkpoint in the database if the key has signed its root, else an empty one."""
    size, peaks, note = kept
    try:
        signed = open_note(text_of(note), [key])
    except Invalid:
        return Tree()
    fits = signed.size == size and has_root(text_of(note), size, peaks)
    return Tree(size, peaks) if fits else Tree()


def _leaves(connection: sqlite3.Connection, start: int, end: int) -> list[tuple[str | None, bytes]]:
    """Returns run and leaf of these entries. Raises: BadInput if the database lacks one of them."""
    found = connection.execute(_LEAVES, (start, end)).fetchall()
    if len(found) != end - start or not all(isinstance(leaf, bytes) and len(leaf) == 32 for _, leaf in found):
        raise BadInput(
            f"leaves of the database are missing or damaged among the entries {start} to {end - 1}: verify the "
            "log, which names them, and restore a backup"
        )
    return found
