"""Puts a backup in the place of a database: checked before anything is moved, and nothing is overwritten."""

import fcntl
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from conductor_core.errors import BadInput, InspectorError, StoreLocked
from conductor_core.file_lock import FileLock
from conductor_core.settings import Settings
from storage import failures, schema
from storage.backup import contents, copy_database, copy_keys, flush
from storage.evidence.anchoring import Places, evidence_folder, places_of
from storage.evidence.checking import CheckedLog, FoundFault, check_own_log, forget_check
from storage.evidence.database_audit import open_database
from storage.owner import left
from storage.privacy import Privacy
from storage.records import ERASED
from storage.vault import MasterKey, Vault, keys_beside

Progress = Callable[[str, int], None]
OLDER = "rolled_back"
"""The class of what is no surprise: a backup is an older state of the log."""
_LOCK_S = 2.0
_EVIDENCE_SINCE = "0013"
_SHARED_FROM, _SHARED_BYTES = 0x4000_0002, 510
"""The bytes of a database that every connection of SQLite in WAL mode locks as long as it is open."""
_GONE = "SELECT DISTINCT run_id FROM deletions"
_THERE = "SELECT run_id FROM runs WHERE status <> ?"


@dataclass(frozen=True)
class Restored:
    """A database in its place.

    Attributes:
        checked: what its check found, apart from what ``older`` says; None: it is of before the evidence.
        older: why the log is now an older state than was published; None: it is not.
        replaced: the database that was there. keys: the keys of encrypted runs that came with the backup.
        back: runs that were deleted or erased in the replaced database, and are there again.
        keyless: the signing key is not there, so that no checkpoint could be checked.
    """

    path: Path
    runs: int
    events: int
    checked: CheckedLog | None
    older: str | None
    replaced: Path | None
    keys: Path | None
    back: tuple[str, ...]
    places: Places
    keyless: bool


def restore(
    backup: Path, target: Path, settings: Settings, progress: Progress, *, replace: bool = False, anyway: bool = False
) -> Restored:
    """Copies ``backup`` beside ``target``, checks the copy, and then gives it that name.

    ``replace``: a database that is there keeps its content under another name. ``anyway``: also a backup with findings.

    Raises: BadInput, with nothing changed, if the backup is no sound database, or has findings; if ``target`` is there
    and must not be replaced, or is in use. StoreError.
    """
    if not backup.is_file():
        raise BadInput(f"there is no backup {backup}")
    if target.is_symlink() or (target.exists() and not target.is_file()):
        raise BadInput(f"{target} is no plain file: name the file itself")
    if target.exists() and os.path.samefile(backup, target):
        raise BadInput(f"{backup} is the database itself: name the backup, and where to restore it")
    there = _there(target)
    if there and not replace:
        raise BadInput(f"{there[0]} is there already: name another place, or add --replace, which keeps it beside it")
    privacy = Privacy.of(settings)
    places = places_of(target, settings.anchor, settings.signing_key)
    with failures.translated(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with _held(target), tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as folder:
            copy = Path(folder) / target.name
            runs, events = _copied(backup, copy, target)
            keys = _copied_keys(backup, copy)
            own_keys = keys_beside(copy if keys else target)
            vault = Vault(own_keys, MasterKey(privacy.master_key_of(target)), encrypts=False)
            checked, older = _checked(copy, places, vault, progress, anyway=anyway)
            _refuse_in_use(target)
            shutil.copymode(target if target.exists() else backup, copy)
            back = _back(target, copy) if target.exists() else ()
            replaced = _put(copy, target, there, with_keys=keys)
            forget_check(evidence_folder(target))
            flush(target.parent)
    return Restored(
        target,
        runs,
        events,
        checked,
        older,
        replaced,
        keys_beside(target) if keys else None,
        back,
        places,
        not places.key.is_file(),
    )


def _files(database: Path) -> list[Path]:
    return [database.with_name(f"{database.name}{end}") for end in ("", "-wal", "-journal", "-shm")]


def _there(target: Path) -> list[Path]:
    """Returns the files of the database at ``target``, among them a log that was left behind; none: it holds nothing.

    Such a log would be read as part of another database.
    """
    found = [path for path in _files(target) if path.exists()]
    return found if target.exists() or any(path.stat().st_size for path in found if path.name[-4:] != "-shm") else []


@contextmanager
def _held(target: Path) -> Iterator[None]:
    """Keeps other processes from writing the database. Raises: StoreLocked; OSError."""
    with closing(FileLock(target.with_name(f"{target.name}.lock"))) as lock:
        if not lock.acquire(_LOCK_S):
            raise _in_use(target)
        _refuse_in_use(target)
        yield


def _refuse_in_use(target: Path) -> None:
    """Raises: StoreLocked if another process has the database open, or carries out one of its runs; OSError."""
    owners = target.with_name(f"{target.name}.owners")
    if owners.is_dir() and any(not left(owners, each.name) for each in owners.iterdir()):
        raise _in_use(target)
    if not target.exists():
        return
    with target.open("rb+") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, _SHARED_BYTES, _SHARED_FROM)
        except (BlockingIOError, PermissionError) as error:
            raise _in_use(target) from error


def _in_use(target: Path) -> StoreLocked:
    return StoreLocked(f"another program has the database {target} open: close that program, then restore again")


def _copied(backup: Path, copy: Path, target: Path) -> tuple[int, int]:
    """Copies the backup and returns how many runs and events it holds. Raises: BadInput; StoreError."""
    try:
        copy_database(backup, copy)
        with closing(sqlite3.connect(copy)) as connection:
            version = schema.read_version(connection.cursor(), backup)
        runs, events, faults = contents(copy)
    except sqlite3.Error as error:
        if error.sqlite_errorcode & failures.PRIMARY_CODE in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            raise failures.full(target) from error
        raise BadInput(f"{backup} is damaged, or no backup of this program ({error}): nothing is restored") from error
    if version is None or faults:
        why = "; ".join(faults) or "it is empty"
        raise BadInput(f"{backup} is damaged, or no backup of this program ({why}): nothing is restored")
    return runs, events


def _copied_keys(backup: Path, copy: Path) -> bool:
    """Copies the keys of encrypted runs, if there are any beside the backup. Raises: BadInput; OSError."""
    keys = keys_beside(backup)
    if not keys.exists():
        return False
    try:
        copy_keys(keys, keys_beside(copy))
    except sqlite3.Error as error:
        raise BadInput(f"the keys {keys} are damaged ({error}): nothing is restored; move them away first") from error
    return True


def _checked(
    copy: Path, places: Places, vault: Vault, progress: Progress, *, anyway: bool
) -> tuple[CheckedLog | None, str | None]:
    """Returns what was found, and apart from it why the log is an older state. Raises: BadInput for findings."""
    if not has_evidence(copy):
        return None, None
    checked = check_own_log(copy, places, vault, progress)
    older = [each for each in checked.findings if each.kind == OLDER]
    others = tuple(each for each in checked.findings if each.kind != OLDER)
    if others and not anyway:
        raise BadInput(
            f"the backup is not as it was written: {in_words(others[0])}"
            f"{f'; {len(others) + checked.more - 1} findings more' if len(others) + checked.more > 1 else ''}. "
            "Nothing is restored; --anyway restores it as it is"
        )
    return checked.model_copy(update={"findings": others}), older[0].what if older else None


def has_evidence(database: Path) -> bool:
    """Whether the database is of a version that has evidence of its events."""
    with failures.translated(database), closing(sqlite3.connect(database)) as connection:
        version = schema.read_version(connection.cursor(), database)
    return version is not None and version >= _EVIDENCE_SINCE


def in_words(finding: FoundFault) -> str:
    """Returns a finding in one line."""
    run = "" if finding.run_id is None else f" run {finding.run_id}"
    event = "" if finding.sequence is None else f" event {finding.sequence}"
    return f"{finding.kind}{run}{event}: {finding.what}"


def _back(target: Path, copy: Path) -> tuple[str, ...]:
    """Returns the runs that are gone from the database at ``target`` and come back; none if it cannot be read."""
    gone: set[str] = set()
    with suppress(sqlite3.Error, InspectorError), closing(open_database(target)) as connection:
        gone = {str(run_id) for (run_id,) in connection.execute(_GONE)}
    with closing(open_database(copy)) as connection:
        return tuple(sorted(gone & {str(run_id) for (run_id,) in connection.execute(_THERE, (ERASED,))}))


def _put(copy: Path, target: Path, there: list[Path], *, with_keys: bool) -> Path | None:
    """Moves what is there aside and the copy to its place, or leaves all as it was. Raises: OSError.

    Keys that the backup brings take the place of those that are there; else those stay, for the runs that they open.
    """
    aside = target.with_name(f"{target.name}.replaced-{datetime.now(UTC):%Y%m%dT%H%M%SZ}")
    if with_keys and keys_beside(target).exists():
        there = [*there, keys_beside(target)]
    moves = [(path, aside.with_name(aside.name + path.name.removeprefix(target.name))) for path in there]
    if with_keys:
        moves.append((keys_beside(copy), keys_beside(target)))
    moves.append((copy, target))
    done: list[tuple[Path, Path]] = []
    if not there:  # what readers left of a database that is gone
        for path in _files(target):
            path.unlink(missing_ok=True)
    try:
        for here, to in moves:
            os.link(here, to)  # a rename would replace a file that is there
            here.unlink()
            done.append((here, to))
    except BaseException:
        for here, to in reversed(done):
            to.rename(here)
        raise
    flush(target)
    return aside if there else None
