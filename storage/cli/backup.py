"""``python -m storage backup`` and ``restore``: each copies a whole database in one command, and checks the copy."""

import argparse
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from conductor_core.errors import BadInput, StoreError
from conductor_core.files import expand_path
from conductor_core.run.actor import local_caller
from conductor_core.settings import Settings
from storage.database.connections import BUSY_TIMEOUT_S, connect
from storage.database.schema import HEAD, read_version
from storage.errors import translated
from storage.evidence.anchoring import Places, places_of
from storage.evidence.anchors import FileAnchor
from storage.evidence.checking import CheckedLog, check_own_log
from storage.evidence.event_record import printable
from storage.evidence.history import CLASSES, Finding, counted
from storage.evidence.verifier import Ticker
from storage.lifecycle.backup import OLDER, Restored, backup, entries, in_words, restore
from storage.privacy import Privacy
from storage.store import store_of

Source = Callable[[str | None], Path]
_MOST_NAMED = 5


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the commands to a parser."""
    codes = "Exit codes: 0 nothing was found, 2 bad input, 10 to 23 as of verify."
    copying = commands.add_parser(
        "backup", help="Copy the database to a new file, while it is in use, and verify the copy.", epilog=codes
    )
    copying.add_argument("path", metavar="PATH", type=Path, help="The new file; nothing is overwritten.")
    restoring = commands.add_parser(
        "restore", help="Put a backup in the place of a database, once it is verified.", epilog=codes
    )
    restoring.add_argument("backup", metavar="BACKUP", type=Path, help="What backup wrote, with .keys beside it.")
    restoring.add_argument("to", metavar="TO", nargs="?", help="The database; else that of --db or the settings.")
    restoring.add_argument("--replace", action="store_true", help="Keep a database that is there under another name.")
    restoring.add_argument("--anyway", action="store_true", help="Restore also a backup that has findings.")
    for parser in (copying, restoring):
        parser.add_argument("--db", metavar="FILE|URL", help="Else DATABASE_URL, else your data folder's.")


def backup_database(given: argparse.Namespace, source: Source) -> int:
    """Returns 0, or the code of the first finding in the copy, which stays. Raises: BadInput, StoreError."""
    database, settings = source(given.db), Settings()
    target = expand_path(str(given.path)).absolute()
    off_record = _record_backup(database, settings) if database.is_file() and not target.exists() else None
    places = places_of(database, settings.anchor, settings.signing_key)
    published = _published(database, places)
    done = backup(database, target)
    checked = check_own_log(done.path, places, Privacy.of(settings).vault(database), Ticker())
    if entries(done.path) >= published:  # what was published while the copy was made is not a finding about it
        others = tuple(each for each in checked.findings if each.kind != OLDER)
        checked = checked.model_copy(update={"findings": others})
    findings = checked.findings
    verdict = _verdict(checked, findings)
    print(f"{_sized(done.path, done.runs, done.events)}, {done.size:,} bytes; {verdict}")
    if done.keys is not None:
        print(f"{done.keys}: the keys of its encrypted runs; keep a copy of the master key, too, at another place")
    if off_record is not None:
        print(f"warning: this backup is not in the access log: {off_record}", file=sys.stderr)
    return _print_findings(findings)


def _published(database: Path, places: Places) -> int:
    """Returns how many entries of the log the anchor knows. Raises: StoreError."""
    if not database.is_file():
        return 0
    with translated(database), closing(connect(database, "mode=ro", BUSY_TIMEOUT_S)) as connection:
        read_version(connection, database)
        origins = connection.execute("SELECT origin FROM evidence_log").fetchall()
    with translated(places.anchor.file):
        return max((FileAnchor(places.anchor.file).size(str(origin)) for (origin,) in origins), default=0)


def _record_backup(database: Path, settings: Settings) -> str | None:
    """Puts on record that somebody copies all runs, and publishes it. Returns why it cannot; None: it could.

    It comes before the copy, which would else be an older state of the log from the beginning.
    """
    try:
        with closing(connect(database, "mode=ro", BUSY_TIMEOUT_S)) as connection:
            version = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        if version != (HEAD,):  # no backup upgrades an older database
            return "the database is of another version"
        with closing(store_of(database, settings)) as store:
            store.access_log.exported_all("backup", local_caller("cli"))
            return store.access_log.settle()
    except (StoreError, sqlite3.Error) as error:
        return " ".join(str(error).split())


def restore_database(given: argparse.Namespace, source: Source) -> int:
    """Returns 0, or the code of the first finding in what was restored. Raises: BadInput, StoreError."""
    if given.to and given.db:
        raise BadInput("TO and --db both name a database: give only one of them")
    target = expand_path(given.to).absolute() if given.to and "://" not in given.to else source(given.to or given.db)
    done = restore(
        expand_path(str(given.backup)).absolute(),
        target,
        Settings(),
        Ticker(),
        replace=given.replace,
        anyway=given.anyway,
    )
    print(f"{_sized(done.path, done.runs, done.events)}; {_verdict(done.checked, done.findings)}")
    for note in _notes(done):
        print(f"note: {printable(note)}")
    return _print_findings(done.findings)


def _sized(path: Path, runs: int, events: int) -> str:
    return f"{path}: {counted(runs, 'run')}, {counted(events, 'event')}"


def _verdict(checked: CheckedLog, findings: Sequence[Finding]) -> str:
    many = len(findings) + checked.more
    without = "" if checked.fingerprint else " without a key"
    return f"verified{without}: {counted(many, 'finding').upper() if many else 'nothing was found'}"


def _print_findings(findings: Sequence[Finding]) -> int:
    for finding in findings:
        print(printable(in_words(finding)), file=sys.stderr)
    return CLASSES[findings[0].kind] if findings else 0


def _named(run_ids: Sequence[str]) -> str:
    return ", ".join(run_ids[:_MOST_NAMED]) + (", ..." if len(run_ids) > _MOST_NAMED else "")


def _which(run_ids: Sequence[str], how: str) -> str:
    one = len(run_ids) == 1
    return f"{counted(len(run_ids), 'run')} that {'was' if one else 'were'} {how} {'is' if one else 'are'}"


def _it(run_ids: Sequence[str]) -> str:
    return "it" if len(run_ids) == 1 else "them"


def _notes(done: Restored) -> Iterator[str]:
    if done.replaced is not None:
        yield f"what was there before is kept: {done.replaced}"
    if done.keys is not None:
        yield f"the keys of encrypted runs are {done.keys}; they need the master key of before"
    if done.back is None or done.unheld is None:
        yield "what was there before cannot be read: whether runs that were deleted since are back is not known"
    if done.back:
        were = _which(done.back, "deleted or erased since")
        yield f"{were} there again; erase {_it(done.back)} again: {_named(done.back)}"
    if done.unheld:
        yield f"{_which(done.unheld, 'held')} not held now; hold {_it(done.unheld)} again: {_named(done.unheld)}"
    if done.lost_runs:
        lost = done.lost_runs
        yield f"{_which(lost, 'held')} not in the backup; only {done.replaced} has {_it(lost)}: {_named(lost)}"
    for why, number in done.sealed.items():
        yield f"{counted(number, 'encrypted run')} cannot be opened now: {why}"
    if done.keyless:
        yield (
            f"the signing key {done.places.key} is not there, so no checkpoint could be checked: put its copy there "
            "before the program writes; else it makes a new key"
        )
    if done.older is not None:
        anchor = done.places.anchor.file
        yield f"{done.older}. verify will say {OLDER}, which is true: tell whoever checks this log"
        yield (
            f"nothing is published until the log has a new anchor: keep {anchor}, which proves what came later, under "
            "another name, or choose a new place with python -m storage anchor --to"
        )
