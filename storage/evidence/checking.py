"""Checks a log as its owner does: with its own key and anchor, and its lists against its events.

The result of the last check that the Audit page made is kept in a file, so that it is known after a restart. The file
proves nothing: whoever can write the database can write it, too.
"""

import logging
import sqlite3
import stat
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from pydantic import AwareDatetime, Field

from conductor_core.errors import BadInput
from conductor_core.workflow.model import Frozen
from storage.database.schema import EVIDENCE_SINCE
from storage.evidence import derived, sent_commands
from storage.evidence.anchoring import FileAnchor, Places, keep_file, read_file
from storage.evidence.database_audit import NoEvidence, open_database, published_size, read_log, reading
from storage.evidence.derived import read_version
from storage.evidence.history import Finding, Report, counted
from storage.evidence.keys import other_log_error, own_public_key
from storage.evidence.verifier import verify_database
from storage.merkle.formats import Invalid, PublicKey, error_text
from storage.privacy import Vault

log = logging.getLogger(__name__)

_LAST = "last-check.json"
_AHEAD_S = 60.0
"""By how much the clock of who kept a result may be ahead of this one."""
_MOST_KEPT = 200
"""Findings of the kept result; the command line prints all."""

Progress = Callable[[str, int], None]
_Value = TypeVar("_Value", int, str)


class CheckedLog(Frozen):
    """What a check of a whole log found.

    Attributes:
        origin: of the log. at_utc: when it began. newest: the sequence of the newest event at that moment.
        fingerprint: of the log's own key; None: there was none. anchor: None: there was none.
        witnessed: whether the user of the program could not rewrite it.
        verified_events, unanchored_events, deleted_runs, notes: as in ``history.Report``.
        more: how many findings are not in ``findings``.
    """

    origin: str
    at_utc: AwareDatetime
    duration_ms: float = Field(ge=0, allow_inf_nan=False)
    newest: int = Field(ge=0)
    fingerprint: str | None
    anchor: str | None
    witnessed: bool
    verified_events: int = Field(ge=0)
    unanchored_events: int = Field(ge=0)
    deleted_runs: int = Field(ge=0)
    findings: tuple[Finding, ...]
    more: int = Field(ge=0)
    notes: tuple[str, ...]

    @property
    def weak(self) -> str | None:
        """What it lacked, so that it says little; None: nothing."""
        return "a signing key" if self.fingerprint is None else "an anchor" if self.anchor is None else None

    def of(self, run_id: str) -> tuple[Finding, ...]:
        return tuple(each for each in self.findings if each.run_id in (None, run_id))


def public_key(database: Path, places: Places) -> PublicKey | None:
    """Returns the public half of the log's key; None: there is no key yet. Raises: BadInput."""
    return _own_key(database, places)[0]


def _own_key(database: Path, places: Places) -> tuple[PublicKey | None, list[Finding]]:
    """Returns the public half of the log's key, named after the log that it signs, and what speaks against that."""
    if not places.key.is_file():
        return None, []
    try:
        with closing(open_database(database)) as connection:
            try:
                origin = read_log(connection)[0]
            except NoEvidence:  # the check itself says so
                origin = None
        key = own_public_key(places.key)
    except (NoEvidence, OSError) as error:
        raise BadInput(error_text(error)) from error
    if origin in (None, key.name):
        return key, []
    return key, [Finding("begun_again", None, None, str(other_log_error(places.key, key.name, origin)))]


def _own_anchor(
    database: Path, places: Places, origin: str
) -> tuple[list[Path], str, Callable[[Report], list[Finding]]]:
    """Returns what a witness keeps of the log ``origin`` and the anchor itself, as far as they can be read; why the
    anchor cannot be; and what tells, after a check with them, what is missing at the anchor's end. Raises: BadInput."""
    try:
        with closing(open_database(database)) as connection:
            published = published_size(connection)
            entries = _one(connection, "SELECT count(*) FROM leaves", int)
    except NoEvidence as error:
        raise BadInput(error_text(error)) from error
    file, kept, ends, why = places.anchor.file, places.kept(), 0, ""
    try:
        if not stat.S_ISREG(file.stat().st_mode):  # a pipe would hold whoever reads it
            why = f"the anchor {file} is not a regular file"
        else:
            ends = FileAnchor(file).size(origin)
    except OSError as error:
        gone = isinstance(error, FileNotFoundError)
        why = f"the anchor {file} {'is not there' if gone else f'cannot be read ({error.strerror})'}"
    what = why or f"the anchor {file} ends at entry {ends:,}"

    def lacks(report: Report) -> list[Finding]:
        known = min(report.anchored_size, ends)
        if known < published and report.anchored_size:
            said = counted(published, "entry was", "entries were")
            lacking = f"{what}, {known:,} of them are signed, and the database says that {said} published"
        elif not report.anchored_size and not published and entries > 1:  # the first can wait for an event
            lacking = f"{what}, and nothing of the log was published"
        else:
            return []
        return [Finding("anchor", None, None, lacking)]

    return [*kept, *([] if why else [file])], why, lacks


def check_with_own(
    database: Path,
    places: Places,
    vault: Vault,
    progress: Progress,
    keys: Sequence[PublicKey] = (),
    anchors: Sequence[Path] = (),
) -> tuple[Sequence[PublicKey], Sequence[Path], Report]:
    """Checks a log as ``check_log`` does, without ``keys`` or ``anchors`` with its own, as far as they are there.

    Returns those that were used, too. Raises: BadInput; StoreError.
    """
    before: list[Finding] = []
    files, none, lacks = [*anchors], "", None
    if not keys:
        key, before = _own_key(database, places)
        keys = [] if key is None else [key]
    if not keys:
        files, none = [], f"no signing key at {places.key}, so no anchor could be checked"
    elif not anchors:
        files, none, lacks = _own_anchor(database, places, keys[0].name)
    report = check_log(database, keys, files, vault, progress, none)
    report.findings = [*before, *report.findings, *(lacks(report) if lacks is not None else ())]
    return keys, files, report


def check_log(
    database: Path,
    keys: Sequence[PublicKey],
    anchors: Sequence[Path],
    vault: Vault,
    progress: Progress,
    none: str = "no anchor was given",
) -> Report:
    """Checks a database as ``verify_database`` does, and its lists. Raises: BadInput; StoreError."""
    try:
        try:
            report = verify_database(database, keys, anchors, progress, none)
        except NoEvidence as error:
            with closing(open_database(database)) as connection:
                if (read_version(connection) or "") < EVIDENCE_SINCE:
                    raise
            report = Report()
            report.add("evidence", f"nothing could be checked of events and their evidence: {error}")
        with closing(open_database(database)) as connection:
            connection.execute("BEGIN")  # a run that goes on changes its row together with its events
            derived.check(connection, report, progress, vault)
            with reading(report, "the commands to runs"):
                sent_commands.check(connection, keys, report, vault)
    except (Invalid, NoEvidence, OSError, sqlite3.Error) as error:
        raise BadInput(error_text(error)) from error
    return report


def check_own_log(database: Path, places: Places, vault: Vault, progress: Progress) -> CheckedLog:
    """Checks a log with its own key and anchor, as far as they are there. Raises: BadInput; StoreError."""
    began_utc = datetime.now(UTC)
    try:
        with closing(open_database(database)) as connection:
            newest = max(0, _one(connection, "SELECT coalesce(max(sequence), 0) FROM events", int))
            origin = _one(connection, "SELECT origin FROM evidence_log", str)
    except NoEvidence as error:
        raise BadInput(str(error)) from error
    keys, anchors, report = check_with_own(database, places, vault, progress)
    return CheckedLog(
        origin=origin,
        at_utc=began_utc,
        duration_ms=(datetime.now(UTC) - began_utc).total_seconds() * 1000,
        newest=newest,
        fingerprint=keys[0].fingerprint if keys else None,
        anchor=str(anchors[0]) if anchors else None,
        witnessed=places.witnessed().witnessed,
        findings=tuple(report.findings),
        notes=tuple(report.notes),
        **{name: getattr(report, name) for name in ("verified_events", "unanchored_events", "deleted_runs", "more")},
    )


def _one(connection: sqlite3.Connection, query: str, kind: type[_Value]) -> _Value:
    """Returns the one value of a query; an empty one if there is none of this type: the check itself says so."""
    try:
        row = connection.execute(query).fetchone()
    except sqlite3.Error:
        return kind()
    return row[0] if row is not None and isinstance(row[0], kind) else kind()


def keep_check(checked: CheckedLog, folder: Path) -> None:
    """Keeps the result in the folder of the evidence. A folder that cannot be written is logged."""
    more = checked.more + max(0, len(checked.findings) - _MOST_KEPT)
    try:
        keep_file(folder / _LAST, checked.model_copy(update={"findings": checked.findings[:_MOST_KEPT], "more": more}))
    except OSError as error:
        log.warning("the result of the check is not kept in %s: %s", folder, error)


def last_check(folder: Path, origin: str) -> CheckedLog | None:
    """Returns the result that was kept last; None: there is none of the log ``origin`` that can be read and can be."""
    checked = read_file(folder / _LAST, CheckedLog)
    if checked is None or checked.origin != origin:
        return None
    return None if (checked.at_utc - datetime.now(UTC)).total_seconds() > _AHEAD_S else checked


def forget_check(folder: Path) -> None:
    """Removes the kept result: it was about another database. Raises: OSError."""
    (folder / _LAST).unlink(missing_ok=True)
