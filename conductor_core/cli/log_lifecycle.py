"""Copies of the database, and the end of runs: ``log backup``, ``restore``, ``erase``, ``retain`` and ``hold``."""

import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from conductor_core.cli import options
from conductor_core.cli.options import Options
from conductor_core.cli.output import pages_of_runs, print_json
from conductor_core.errors import BadInput, StoreError, UnknownRun
from conductor_core.files import expand_path
from conductor_core.formats import run_word
from conductor_core.run.actor import local_caller
from conductor_core.run.request import file_part
from conductor_core.run.trace import RunUnreadable
from conductor_core.settings import Settings
from storage.backup import OLDER, Restored, backup, entries, in_words, restore
from storage.database.connections import BUSY_TIMEOUT_S, connect
from storage.database.schema import HEAD, read_version
from storage.errors import translated
from storage.evidence.anchoring import FileAnchor, Places, places_of
from storage.evidence.checking import CheckedLog, check_own_log
from storage.evidence.history import CLASSES, Finding, counted
from storage.evidence.verifier import Ticker, printable
from storage.privacy import Privacy
from storage.records import ERASED
from storage.store import Store, store_of

_MOST_NAMED = 5


# Copies.


def backup_database(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The new file; nothing is overwritten.")],
    given: options.Db = options.NONE,
) -> int:
    """Exit codes: 0 nothing was found, 2 bad input, 10 to 23 as of verify."""
    settings, database = given.settings, given.database
    target = expand_path(str(path)).absolute()
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
    held = f"{counted(done.runs, 'run')}, {counted(done.events, 'event')}"
    print(f"{done.path}: {held}, {done.size:,} bytes; {verdict}")
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


def restore_database(
    backup: Annotated[Path, typer.Argument(metavar="BACKUP", help="What backup wrote, with .keys beside it.")],
    to: Annotated[
        str | None, typer.Argument(metavar="TO", help="The database; else that of --db or the settings.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Keep a database that is there under another name.")
    ] = False,
    anyway: Annotated[bool, typer.Option("--anyway", help="Restore also a backup that has findings.")] = False,
    given: options.Db = options.NONE,
) -> int:
    """Exit codes: 0 nothing was found, 2 bad input, 10 to 23 as of verify."""
    if to and given.db:
        raise BadInput("TO and --db both name a database: give only one of them")
    of_url = Options(db=to or given.db)
    target = of_url.database if to is None or "://" in to else expand_path(to).absolute()
    source = expand_path(str(backup)).absolute()
    done = restore(source, target, given.settings, Ticker(), replace=replace, anyway=anyway)
    held = f"{counted(done.runs, 'run')}, {counted(done.events, 'event')}"
    print(f"{done.path}: {held}; {_verdict(done.checked, done.findings)}")
    for note in _notes(done):
        print(f"note: {printable(note)}")
    return _print_findings(done.findings)


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
            "another name, or choose a new place with conductor log anchor --to"
        )


# The end of runs.

LEAST_DAYS = 184
"""Six months, for which the EU AI Act wants the logs of a high-risk system kept (articles 19 and 26)."""
RunIds = Annotated[list[str], typer.Argument(metavar="RUN_ID", help="A whole id.")]


def erase(run_ids: RunIds, given: options.DbJson = options.NONE) -> int:
    with given.existing_store() as store:
        _require(store, run_ids, "erase")
        return _erase(store, run_ids, given)


def hold(
    run_ids: RunIds,
    release: Annotated[bool, typer.Option("--release", help="Allow it again.")] = False,
    given: options.DbJson = options.NONE,
) -> int:
    with given.existing_store() as store:
        _require(store, run_ids, "hold")
        run_ids = list(dict.fromkeys(run_ids))
        store.hold(run_ids, local_caller("cli"), held=not release)
    if given.as_json:
        print_json({"held": [] if release else run_ids, "released": run_ids if release else []}, indent=None)
        return 0
    said = "released: it can be deleted and erased" if release else "held: nobody can delete or erase it"
    print("\n".join(f"{run_id}: {said}" for run_id in run_ids))
    return 0


def _require(store: Store, run_ids: Sequence[str], command: str) -> None:
    """Raises: UnknownRun for an id that no run has."""
    known = {run.run_id for run in pages_of_runs(store)}
    if unknown := [run_id for run_id in run_ids if run_id not in known]:
        raise UnknownRun(f"unknown run {unknown[0]!r}; {command} needs whole ids")


def retain(
    days: Annotated[int, typer.Option(help=f"At least {LEAST_DAYS}, which is six months.")],
    erase_them: Annotated[bool, typer.Option("--erase", help="Erase them. Without this they are only listed.")] = False,
    given: options.DbJson = options.NONE,
) -> int:
    if days < LEAST_DAYS:
        raise BadInput(f"--days {days} is less than six months: runs are kept at least {LEAST_DAYS} days")
    before = datetime.now(UTC) - timedelta(days=days)
    with given.existing_store() as store:
        there = list(pages_of_runs(store))
        # Of any age: their text was to go already.
        broken_off = store.unfinished([run.run_id for run in there if run.status == ERASED])
        kept = (run for run in there if run.status != ERASED)
        due = {run.run_id for run in kept if run.created_at_utc is not None and run.created_at_utc < before}
        old = [run for run in there if run.run_id in due | broken_off]
        none_due = f"no run is older than {counted(days, 'day')}"
        if erase_them and not old and not given.as_json:
            print(f"{none_due}: nothing was erased")
            return 0
        if erase_them:
            return _erase(store, [run.run_id for run in old], given)
        held = store.held([run.run_id for run in old if run.run_id not in broken_off])
        if given.as_json:
            stay = [run.run_id for run in old if run.run_id in held]
            would_erase = [run.run_id for run in old if run.run_id not in held]
            print_json({"would_erase": would_erase, "held": stay}, indent=None)
            return 0
        for run in old:
            note = "  its key is still there" if run.run_id in broken_off else ""
            note = "  held: stays" if run.run_id in held else note
            day = "no date   " if run.created_at_utc is None else f"{run.created_at_utc:%Y-%m-%d}"
            print(f"{run.run_id}  {day}  {run_word(run.status)}{note}")
        would = counted(len(old) - len(held), "run")
        held_ones = counted(len(held), "is", "are")
        print(f"{would} would be erased, {held_ones} held; --erase does it" if old else none_due)
        return 0


def _erase(store: Store, run_ids: Sequence[str], given: Options) -> int:
    copies = _copies(store, run_ids)
    if run_ids:
        print(f"erasing {counted(len(run_ids), 'run')}; the database is then rewritten", file=sys.stderr)
    edits = 0

    def forget(run_id: str) -> None:
        nonlocal edits
        edits += remove_edits(given.settings.data_folder, run_id)

    done = store.erase(run_ids, local_caller("cli"), forget)
    if given.as_json:
        document = {"erased": done.run_ids, "refused": done.refused, "copies": copies, "kept_edits": edits}
        print_json(document | {"keyless": done.keyless}, indent=None)
        return 1 if done.refused else 0
    for run_id in done.run_ids:
        print(f"{run_id}: erased")
        if run_id in done.keyless:
            print("  its key was not there to be destroyed: if a copy of the file .keys comes back, erase it again")
        if run_id in copies:
            print(f"  re-runs and imported copies of it may hold its text: {', '.join(copies[run_id])}")
    for run_id, why in done.refused.items():
        print(f"{run_id}: not erased: {why}")
    if done.run_ids:
        print("backups and exported files that were made before still hold what they held")
    return 1 if done.refused else 0


def _copies(store: Store, run_ids: Sequence[str]) -> dict[str, list[str]]:
    """Returns the re-runs of each run, and the runs that were imported from a file of it, where there are any."""
    copies = {run_id: store.copies(run_id) for run_id in run_ids}
    for run in pages_of_runs(store) if run_ids else ():
        if run.imported and run.status != ERASED:
            with suppress(RunUnreadable):
                imported = store.created(run.run_id).imported
                if imported is not None and imported.run_id in copies:
                    copies[imported.run_id].append(run.run_id)
    return {run_id: others for run_id, others in copies.items() if others}


def remove_edits(data_folder: Path, run_id: str) -> int:
    """Removes the edits of the run's plan that browsers keep, and returns how many. Raises: OSError."""
    files = list((data_folder / "edits").glob(f"*.{file_part(run_id)}.*"))
    for file in files:
        file.unlink(missing_ok=True)
    return len(files)
