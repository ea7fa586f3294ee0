"""Checks a log as its owner does: with its own key and anchor, and its lists against its events.

The result of the last check that the Audit page made is kept in a file, so that it is known after a restart. The file
proves nothing: whoever can write the database can write it, too.
"""

import logging
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from pydantic import AwareDatetime, Field, ValidationError

from conductor_core.errors import BadInput
from conductor_core.workflow.model import Frozen
from storage.evidence import derived
from storage.evidence.anchoring import Places
from storage.evidence.database_audit import NoEvidence, open_database, read_log
from storage.evidence.history import Report, counted
from storage.evidence.keys import load_key, names_log
from storage.evidence.schema_audit import EVIDENCE_SINCE, read_version
from storage.evidence.verifier import verify_database
from storage.merkle.formats import Invalid, PublicKey, error_text
from storage.privacy.vault import Vault

log = logging.getLogger(__name__)

_LAST = "last-check.json"
_NEWEST = "SELECT coalesce(max(sequence), 0) FROM events"
_ORIGIN = "SELECT origin FROM evidence_log"
_PUBLISHED = "SELECT coalesce(max(size), 0) FROM checkpoints"
"""A checkpoint is kept once it is published."""
_MOST_BYTES = 4 << 20
_AHEAD_S = 60.0
"""By how much the clock of who kept a result may be ahead of this one."""
_MOST_KEPT = 200
"""Findings of the kept result; the command line prints all."""

Progress = Callable[[str, int], None]
_Value = TypeVar("_Value", int, str)


class FoundFault(Frozen):
    """A finding, as in ``history.Finding``. ``kind``: its class."""

    kind: str
    run_id: str | None
    sequence: int | None
    what: str


class CheckedLog(Frozen):
    """What a check of a whole log found.

    Attributes:
        origin: of the log. at_utc: when it began. newest: the sequence of the newest event at that moment.
        fingerprint: of the log's own key; None: there was none. anchor: None: there was none.
        verified_events, unanchored_events, uncovered_events, deleted_runs, notes: as in ``history.Report``.
        more: how many findings are not in ``findings``.
    """

    origin: str
    at_utc: AwareDatetime
    duration_ms: float = Field(ge=0, allow_inf_nan=False)
    newest: int = Field(ge=0)
    fingerprint: str | None
    anchor: str | None
    anchor_beside: bool
    verified_events: int = Field(ge=0)
    unanchored_events: int = Field(ge=0)
    uncovered_events: int = Field(ge=0)
    deleted_runs: int = Field(ge=0)
    findings: tuple[FoundFault, ...]
    more: int = Field(ge=0)
    notes: tuple[str, ...]

    @property
    def weak(self) -> str | None:
        """What it lacked, so that it says little; None: nothing."""
        return "a signing key" if self.fingerprint is None else "an anchor" if self.anchor is None else None

    def of(self, run_id: str) -> tuple[FoundFault, ...]:
        """Returns what was found about this run, and about the log as a whole."""
        return tuple(each for each in self.findings if each.run_id in (None, run_id))


def public_key(database: Path, places: Places) -> PublicKey | None:
    """Returns the public half of the log's key; None: there is no key yet, or no name of a log. Raises: BadInput."""
    try:
        if not places.key.is_file():
            return None
        with closing(open_database(database)) as connection:
            try:
                origin, _ = read_log(connection)
            except NoEvidence:  # the check itself says so
                return None
        return load_key(places.key, origin).public
    except (NoEvidence, OSError, sqlite3.Error) as error:
        raise BadInput(error_text(error)) from error


def key_to_check(database: Path, places: Places) -> PublicKey | None:
    """Returns the same; None also for a log that is named as this program names none: the check says so.

    A key is bound to the name of its log. Raises: BadInput; NoEvidence.
    """
    with closing(open_database(database)) as connection:
        try:
            origin, _ = read_log(connection)
        except NoEvidence:
            return None
    return public_key(database, places) if names_log(origin) else None


def own_anchor(database: Path, places: Places) -> tuple[list[Path], str]:
    """Returns the log's own anchor; if it cannot be read, none, and why. Raises: BadInput."""
    file = places.anchor.file
    try:
        if stat.S_ISREG(file.stat().st_mode):  # a pipe would hold whoever reads it
            with file.open("rb"):
                return [file], ""
        why = f"the anchor {file} is not a regular file"
    except FileNotFoundError:
        why = f"the anchor {file} is not there"
    except OSError as error:
        why = f"the anchor {file} cannot be read ({error.strerror})"
    try:
        with closing(open_database(database)) as connection:
            try:
                ((published,),) = connection.execute(_PUBLISHED)
            except sqlite3.Error:  # the check itself says so
                published = 0
    except NoEvidence as error:
        raise BadInput(error_text(error)) from error
    if published:
        why += f", and the database says that {counted(published, 'entry was', 'entries were')} published"
    return [], why


def has_evidence(database: Path) -> bool:
    """Whether the database is of a version that has evidence of its events. Raises: NoEvidence."""
    with closing(open_database(database)) as connection:
        return (read_version(connection) or "") >= EVIDENCE_SINCE


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
            if not has_evidence(database):
                raise
            report = Report()
            report.add("evidence", None, None, f"nothing could be checked of events and their evidence: {error}")
        with closing(open_database(database)) as connection:
            connection.execute("BEGIN")  # a run that goes on changes its row together with its events
            derived.check(connection, report, progress, vault)
    except (Invalid, NoEvidence, OSError, sqlite3.Error) as error:
        raise BadInput(error_text(error)) from error
    return report


def check_own_log(database: Path, places: Places, vault: Vault, progress: Progress) -> CheckedLog:
    """Checks a log with its own key and anchor, as far as they are there. Raises: BadInput; StoreError."""
    began_utc = datetime.now(UTC)
    anchors, none = own_anchor(database, places)
    try:
        key = key_to_check(database, places)
    except NoEvidence as error:
        raise BadInput(error_text(error)) from error
    if key is None:
        anchors, none = [], f"no signing key at {places.key} of this log, so no anchor could be checked"
    try:
        with closing(open_database(database)) as connection:
            newest = max(0, _one(connection, _NEWEST, int))
            origin = _one(connection, _ORIGIN, str)
    except NoEvidence as error:
        raise BadInput(str(error)) from error
    report = check_log(database, [] if key is None else [key], anchors, vault, progress, none)
    findings = [
        FoundFault(kind=each.kind, run_id=each.run_id, sequence=each.sequence, what=each.what)
        for each in report.findings
    ]
    return CheckedLog(
        origin=origin,
        at_utc=began_utc,
        duration_ms=(datetime.now(UTC) - began_utc).total_seconds() * 1000,
        newest=newest,
        fingerprint=None if key is None else key.fingerprint,
        anchor=str(anchors[0]) if anchors else None,
        anchor_beside=places.beside(database),
        verified_events=report.verified_events,
        unanchored_events=report.unanchored_events,
        uncovered_events=report.uncovered_events,
        deleted_runs=report.deleted_runs,
        findings=tuple(findings),
        more=report.more,
        notes=tuple(report.notes),
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
    short = checked.model_copy(
        update={
            "findings": checked.findings[:_MOST_KEPT],
            "more": checked.more + max(0, len(checked.findings) - _MOST_KEPT),
        }
    )
    try:
        folder.mkdir(exist_ok=True, mode=0o700)
        handle, fresh = tempfile.mkstemp(prefix=f".{_LAST}-", dir=folder)  # follows no link that lies there
        try:
            with open(handle, "w", encoding="utf-8") as file:
                file.write(short.model_dump_json())
            Path(fresh).replace(folder / _LAST)
        finally:
            Path(fresh).unlink(missing_ok=True)
    except OSError as error:
        log.warning("the result of the check is not kept in %s: %s", folder, error)


def last_check(folder: Path, origin: str) -> CheckedLog | None:
    """Returns the result that was kept last; None: there is none of the log ``origin`` that can be read and can be."""
    path = folder / _LAST
    try:
        if not stat.S_ISREG(path.lstat().st_mode):  # a pipe would hold whoever reads it
            return None
        with path.open("rb") as file:
            kept = file.read(_MOST_BYTES + 1)
        checked = CheckedLog.model_validate_json(kept) if len(kept) <= _MOST_BYTES else None
    except (OSError, ValidationError):
        return None
    if checked is None or checked.origin != origin:
        return None
    return None if (checked.at_utc - datetime.now(UTC)).total_seconds() > _AHEAD_S else checked


def forget_check(folder: Path) -> None:
    """Removes the kept result: it was about another database. Raises: OSError."""
    (folder / _LAST).unlink(missing_ok=True)
