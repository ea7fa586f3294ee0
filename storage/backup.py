"""Copies a database into one file while programs go on writing to it, and puts such a backup in its place.

The main file alone is no copy, because the newest writes are in the log beside it (``-wal``). A backup is checked
before anything is moved, and nothing is overwritten. It is compared with the database whose place it is to take:
another log must not replace a protected one.
"""

import fcntl
import os
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from conductor_core.errors import BadInput, StoreDamaged, StoreError, StoreLocked
from conductor_core.files import FileLock, flush, keep_private
from conductor_core.settings import Settings
from storage import errors
from storage.database import schema
from storage.evidence.anchoring import Places, evidence_folder, places_of
from storage.evidence.checking import CheckedLog, check_own_log, forget_check
from storage.evidence.database_audit import NoEvidence, open_database
from storage.evidence.history import Finding, counted
from storage.log.owner import left
from storage.merkle.chain import read_origin, read_size
from storage.privacy import MasterKey, Privacy, Vault, keys_beside
from storage.records import ERASED

_RESERVED = ("-wal", "-shm", "-journal", ".keys", ".lock", ".owners", ".evidence", "master-key", "signing-key")


@dataclass(frozen=True)
class Backup:
    """A checked copy. ``size`` is in bytes. ``keys``: the copy of the keys of encrypted runs; None: there are none."""

    path: Path
    runs: int
    events: int
    size: int
    keys: Path | None


def backup(source: Path, target: Path) -> Backup:
    """Copies the database at ``source`` into a new file, checks the copy, and then names it ``target``.

    The keys of encrypted runs go into a file of their own beside it. The master key is not copied.

    Raises: BadInput if there is no such database or if ``target`` exists already; StoreError.
    """
    if not source.is_file():
        raise BadInput(f"no database at {source}")
    own_keys, keys = keys_beside(source), keys_beside(target)
    for each in (target, keys) if own_keys.exists() else (target,):
        if each.exists() or each.is_symlink():
            raise BadInput(f"{each} is there already: a backup overwrites nothing, name another file")
    refuse_reserved(target)
    if not target.parent.is_dir():
        raise BadInput(f"{target.parent} is not a folder")
    with errors.translated(target):
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-")
        os.close(handle)
        copy, copy_of_keys = Path(name), Path(f"{name}.keys")
        try:
            with errors.translated(source):
                copy_database(source, copy)
            runs, events, faults = contents(copy)
            if faults:
                raise StoreDamaged(f"no backup is made: the database {source} is damaged: {'; '.join(faults)}")
            # After the runs: each that is in the copy has its key there. Before the copy has its name: it comes whole.
            if own_keys.exists():
                copy_keys(own_keys, copy_of_keys)
                os.link(copy_of_keys, keys)
            # A link fails if somebody else has made the file meanwhile. A rename would replace it.
            os.link(copy, target)
        finally:
            copy.unlink(missing_ok=True)
            copy_of_keys.unlink(missing_ok=True)
        flush(target)
        flush(target.parent)
    return Backup(target, runs, events, target.stat().st_size, keys if own_keys.exists() else None)


def refuse_reserved(target: Path) -> None:
    """Raises: BadInput if the name is that of a file which the program keeps beside a database."""
    if target.name.endswith(_RESERVED):
        raise BadInput(f"{target} is the name of a file that belongs to a database: name another one")


def _to_read(database: Path, mode: str = "mode=ro") -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(database))}?{mode}", uri=True)


def copy_keys(source: Path, target: Path) -> None:
    """Copies the keys of runs into a new file that its owner alone may read. Raises: OSError, sqlite3.Error."""
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with closing(_to_read(source)) as here, closing(sqlite3.connect(target)) as there:
        here.backup(there)
    flush(target)


def copy_database(source: Path, copy: Path) -> None:
    """Copies a database of this program over ``copy``, as it is at one moment. Raises: sqlite3.Error."""
    os.close(os.open(copy, os.O_CREAT | os.O_RDWR, 0o600))
    with closing(_to_read(source)) as here, closing(sqlite3.connect(copy)) as there:
        here.execute("SELECT version_num FROM alembic_version")
        here.backup(there)  # all pages in one step: the copy shows one moment, and no writer waits
        # Without this, reading the copy would create a log beside it.
        there.execute("PRAGMA journal_mode=DELETE")


def contents(copy: Path) -> tuple[int, int, list[str]]:
    """Returns how many runs and events a copy holds, and what SQLite finds wrong with it. Raises: sqlite3.Error."""
    with closing(_to_read(copy)) as connection:
        faults = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(3)") if row[0] != "ok"]
        if faults:
            return 0, 0, faults
        ((runs, events),) = connection.execute("SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM events)")
    return runs, events, []


# Comparing.

_HELD = "SELECT run_id FROM holds WHERE id IN (SELECT max(id) FROM holds GROUP BY run_id) AND held"


def entries(database: Path) -> int:
    """Returns how many entries the log has. Raises: NoEvidence, sqlite3.Error."""
    with closing(open_database(database)) as connection:
        return read_size(connection)


def _origin(database: Path) -> str:
    try:
        with closing(_reading(database)) as connection:
            return read_origin(connection)
    except (NoEvidence, sqlite3.Error):  # none is there, or it is damaged or older
        return ""


def _reading(database: Path) -> sqlite3.Connection:
    """Opens a database that nobody has open. Without a log to read, no file appears beside it."""
    wal = database.with_name(f"{database.name}-wal")
    if wal.exists() and wal.stat().st_size:
        return open_database(database)
    return _to_read(database, "mode=ro&immutable=1")


_Runs = tuple[str, ...] | None


def _lost_and_back(target: Path, copy: Path) -> tuple[_Runs, _Runs, _Runs]:
    """Returns runs that are gone at ``target`` and come back; that are held there and not in the copy; and that are
    held there and missing in the copy. None: the database at ``target`` cannot be read."""
    if not target.exists():
        return (), (), ()
    try:
        with closing(_reading(target)) as connection:
            gone, held = _ids(connection, "SELECT DISTINCT run_id FROM deletions"), _ids(connection, _HELD)
    except (NoEvidence, sqlite3.Error):
        return None, None, None
    with closing(open_database(copy)) as connection:
        there = _ids(connection, "SELECT run_id FROM runs WHERE status <> ?", ERASED)
        held_there = _ids(connection, _HELD)
    return tuple(sorted(gone & there)), tuple(sorted((held & there) - held_there)), tuple(sorted(held - there))


def _ids(connection: sqlite3.Connection, query: str, *bound: str) -> set[str]:
    return {str(run_id) for (run_id,) in connection.execute(query, bound)}


def sealed_runs(database: Path, vault: Vault) -> Counter[str]:
    """Returns why encrypted runs cannot be opened with the keys that are there, each with the number of runs."""
    sealed: Counter[str] = Counter()
    encrypted = "SELECT run_id, task FROM runs WHERE typeof(task) = 'blob' AND status <> ?"
    with closing(open_database(database)) as connection:
        for run_id, task in connection.execute(encrypted, (ERASED,)):
            try:
                vault.open(run_id, "runs task", task)
            except StoreError as error:
                sealed[str(error)] += 1
    return sealed


Progress = Callable[[str, int], None]
OLDER = "rolled_back"
"""The class of what is no surprise: a backup is an older state of the log."""
_LOCK_S = 2.0
_SHARED_FROM, _SHARED_BYTES = 0x4000_0002, 510
"""The bytes of a database that every connection of SQLite in WAL mode locks as long as it is open."""


@dataclass(frozen=True)
class Restored:
    """A database in its place.

    Attributes:
        checked: what its check found. findings: all but what ``older`` says.
        older: why the log is now an older state than was published; None: it is not.
        replaced: the database that was there. keys: the keys of encrypted runs that came with the backup.
        back: runs that were deleted or erased in the replaced database, and are there again. unheld: runs that were
            held there, and are not now. lost_runs: those that were held and are not in the backup at all. The three
            are None if the replaced database cannot be read.
        sealed: why encrypted runs cannot be opened, each with the number of runs.
        keyless: the signing key is not there, so that no checkpoint could be checked.
    """

    path: Path
    runs: int
    events: int
    checked: CheckedLog
    findings: tuple[Finding, ...]
    older: str | None
    replaced: Path | None
    keys: Path | None
    back: tuple[str, ...] | None
    unheld: tuple[str, ...] | None
    lost_runs: tuple[str, ...] | None
    sealed: dict[str, int]
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
        raise BadInput(f"no backup at {backup}")
    if target.is_symlink() or (target.exists() and not target.is_file()):
        raise BadInput(f"{target} is not a regular file: name the file itself")
    if target.exists() and os.path.samefile(backup, target):
        raise BadInput(f"{backup} is the database itself: name the backup, and where to restore it")
    refuse_reserved(target)
    _refuse_what_is_there(target, replace)
    privacy = Privacy.of(settings)
    places = places_of(target, settings.anchor, settings.signing_key)
    with (
        errors.translated(target),
        _held(target),
        tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as folder,
    ):
        _refuse_what_is_there(target, replace)  # another restore was quicker
        copy = Path(folder) / target.name
        runs, events = _copied(backup, copy, target)
        keys = _copied_keys(backup, copy)
        master = MasterKey(privacy.master_key_of(target))
        vault = Vault(keys_beside(copy if keys else target), master, encrypts=False)
        checked, findings, older = _checked(copy, target, places, vault, progress, anyway=anyway)
        _refuse_in_use(target)
        lost_and_back = _lost_and_back(target, copy)
        replaced = _put(copy, target, with_keys=keys)
        forget_check(evidence_folder(target))
        flush(target.parent)
        there = Vault(keys_beside(target), master, encrypts=False)  # what it says names the files that stay
        sealed = sealed_runs(target, there)
    restored_keys, keyless = keys_beside(target) if keys else None, not places.key.is_file()
    what = (checked, findings, older, replaced, restored_keys)
    return Restored(target, runs, events, *what, *lost_and_back, sealed, places, keyless)


def _files(database: Path) -> list[Path]:
    return [database.with_name(f"{database.name}{end}") for end in ("", "-wal", "-journal", "-shm")]


def _there(target: Path) -> list[Path]:
    """Returns the files of the database at ``target``, among them a log that was left behind; none: it holds nothing.

    Such a log would be read as part of another database.
    """
    found = [path for path in _files(target) if path.exists()]
    return found if target.exists() or any(path.stat().st_size for path in found if path.name[-4:] != "-shm") else []


def _refuse_what_is_there(target: Path, replace: bool) -> None:
    if not replace and (there := _there(target)):
        raise BadInput(f"{there[0]} is there already: name another place, or add --replace, which keeps it beside it")


@contextmanager
def _held(target: Path) -> Iterator[None]:
    """Keeps other processes from writing the database. What it made goes if the block fails.

    Raises: StoreLocked; OSError.
    """
    path = target.with_name(f"{target.name}.lock")
    made = [each for each in (path, *target.parents) if not each.exists()]
    target.parent.mkdir(parents=True, exist_ok=True)
    with closing(FileLock(path)) as lock:
        if not lock.acquire(_LOCK_S) or not lock.is_of(path):
            raise _in_use(target)
        try:
            _refuse_in_use(target)
            yield
        except BaseException:
            with suppress(OSError):  # somebody uses the folder meanwhile
                for each in made:
                    each.unlink() if each == path else each.rmdir()
            raise


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
        if error.sqlite_errorcode & errors.PRIMARY_CODE in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            raise errors.full(target) from error
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
    if not keys.is_file():
        raise BadInput(f"the keys {keys} are not a regular file: nothing is restored; move them away first")
    try:
        copy_keys(keys, keys_beside(copy))
    except sqlite3.Error as error:
        raise BadInput(f"the keys {keys} are damaged ({error}): nothing is restored; move them away first") from error
    return True


def _checked(
    copy: Path, target: Path, places: Places, vault: Vault, progress: Progress, *, anyway: bool
) -> tuple[CheckedLog, tuple[Finding, ...], str | None]:
    """Returns the check, what was found, and apart from it why the log is older. Raises: BadInput for findings."""
    checked = check_own_log(copy, places, vault, progress)
    found: list[Finding] = []
    older = None
    for each in checked.findings:
        if each.kind == OLDER:
            older = older or each.what
        elif each.kind != "anchor" or checked.anchor is not None:  # where a backup is put there may be no anchor
            found.append(each)
    try:
        with closing(open_database(copy)) as connection:
            origin = read_origin(connection)
        if origin and (here := _origin(target)) not in ("", origin):
            what = f"the backup is of the log {origin}, and the database of the log {here}"
            found.append(Finding(kind="evidence", run_id=None, sequence=None, what=what))
    except (NoEvidence, sqlite3.Error) as error:
        raise BadInput(f"the file is not a backup of this program ({error}): nothing is restored") from error
    if found and not anyway:
        many = len(found) - 1 + checked.more
        more = f"; {counted(many, 'finding')} more" if many else ""
        raise BadInput(
            f"the backup is not as it was written: {in_words(found[0])}{more}. Nothing is restored; "
            "--anyway restores it as it is"
        )
    return checked, tuple(found), older


def in_words(finding: Finding) -> str:
    """Returns a finding in one line."""
    run = "" if finding.run_id is None else f" run {finding.run_id}"
    event = "" if finding.sequence is None else f" event {finding.sequence}"
    return f"{finding.kind}{run}{event}: {finding.what}"


def _put(copy: Path, target: Path, *, with_keys: bool) -> Path | None:
    """Keeps what is there under another name and gives the copy its place, or leaves all as it was. Raises: OSError.

    Whenever the process is killed, a whole database is at ``target``: what is there stays until the copy replaces it
    in one step. Keys that the backup brings take the place of those that are there; else those stay, for the runs that
    they open.
    """
    if target.exists() and any(each.exists() and each.stat().st_size for each in _files(target)[1:3]):
        # Moves what is in the log into the main file, which then is the whole. What cannot be written stays as it is.
        with suppress(sqlite3.Error), closing(sqlite3.connect(target)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    there, keys = _there(target), keys_beside(target)
    keep_private(*there)
    replaced = target.with_name(f"{target.name}.replaced-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")
    kept = {path: replaced.with_name(replaced.name + path.name.removeprefix(target.name)) for path in there}
    if with_keys and keys.exists():
        kept[keys] = replaced.with_name(f"{replaced.name}.keys")
    done: list[Path] = []
    try:
        for path, to in kept.items():
            os.link(path, to)
            done.append(path)
        flush(target.parent)
        if with_keys:
            keys_beside(copy).replace(keys)
        for path in _files(target)[1:]:  # the log of the one database would be read as part of the other
            path.unlink(missing_ok=True)
        if target in kept:
            copy.replace(target)
        else:
            os.link(copy, target)  # a rename would replace a file that somebody made meanwhile
    except BaseException:
        if with_keys and keys not in kept:
            keys.unlink(missing_ok=True)
        for path in done:
            kept[path].replace(path)
            kept[path].unlink(missing_ok=True)  # both are one file: then a rename does nothing
        raise
    flush(target)
    return replaced if there else None
