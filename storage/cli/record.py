"""``python -m storage record``: what happened in the runs of a bundle, read from its verified events alone."""

import argparse
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from conductor_core.analysis.decision_reader import decision_record
from conductor_core.analysis.decision_text import record_text
from conductor_core.errors import BadInput, InspectorError
from conductor_core.run.events import EVENT, Event
from conductor_core.run.redaction import Redactor
from conductor_core.run.trace import RunTrace, RunUnreadable, fold
from conductor_core.settings import Settings
from storage.evidence.anchoring import places_of
from storage.evidence.bundle_files import is_bundle
from storage.evidence.checking import public_key
from storage.evidence.database_audit import NoEvidence
from storage.evidence.event_record import printable
from storage.evidence.verifier import (
    Proven,
    Ticker,
    document,
    exit_code,
    given_keys,
    lines,
    print_text,
    record_head,
    unproven,
    verify,
)
from storage.merkle.formats import Invalid, PublicKey, error_text

Source = Callable[[str | None], Path]


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", database: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "record",
        parents=[database],
        help="Check a bundle, then print what happened in its runs, from the proven events alone.",
        epilog="Exit codes: as those of verify.",
    )
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="An exported bundle, a zip file or a folder.")
    parser.add_argument("run_id", nargs="?", default="", metavar="RUN_ID", help="One run, or its beginning. Else all.")
    parser.add_argument(
        "--public-key", action="append", default=[], metavar="KEY|FILE", help="Else the key of this machine's log."
    )
    parser.add_argument("--anchor", action="append", default=[], type=Path, metavar="FILE", help="What was published.")
    parser.set_defaults(do=show_record)


def show_record(given: argparse.Namespace, path: Path) -> int:
    """Prints the report of the check, and then the records. Raises: BadInput."""
    proven = Proven(given.run_id)
    try:
        if not is_bundle(given.bundle):
            raise BadInput(f"{given.bundle} is not an exported bundle")
        keys = given_keys(given.public_key) or [_own_key(path)]
        shown = document(verify(given.bundle, keys, given.anchor, Ticker(), proven), None, keys)
    except (Invalid, NoEvidence, OSError, sqlite3.Error) as error:
        raise BadInput(error_text(error)) from error
    if given.run_id and shown["ok"] and not proven.runs:
        raise BadInput(f"the bundle has no proven event of a run {given.run_id!r}")
    print_text("\n".join(lines(shown)))
    print_text(record_head(shown, len(proven.runs)))
    for run_id, payloads in proven.runs.items():
        print_text(_record(run_id, payloads, proven.runs, unproven(shown, run_id)))
    return exit_code(shown, plain=False)


def _own_key(path: Path) -> PublicKey:
    settings = Settings()
    places = places_of(path, settings.anchor, settings.signing_key)
    key = public_key(path, places) if path.is_file() else None
    if key is None:
        raise BadInput(f"no database with a signing key at {path}: give the public key with --public-key")
    return key


def _record(run_id: str, payloads: Sequence[bytes], runs: dict[str, list[bytes]], damage: str) -> str:
    redactor = Redactor()
    try:
        events = redactor.events(_events(payloads))
        parent = _parent(fold(events), runs, redactor)
        record = decision_record(events, parent=parent, damage=damage.rstrip(".") or None)
    except (ValidationError, ValueError, InspectorError) as error:
        reason = "it is encrypted, or of another version" if isinstance(error, ValidationError) else error_text(error)
        return f"# Decision record of run {printable(run_id)}\n\nIts proven events cannot be read: {reason}.\n"
    return record_text(record, redactor.count)


def _events(payloads: Sequence[bytes]) -> list[Event]:
    return [EVENT.validate_json(payload) for payload in payloads]


def _parent(trace: RunTrace, runs: dict[str, list[bytes]], redactor: Redactor) -> RunTrace | None:
    """Returns the run that this one re-runs or resumes, if the bundle proves it, too."""
    if trace.parent_run_id in runs:
        with suppress(ValidationError, RunUnreadable):
            return fold(redactor.events(_events(runs[trace.parent_run_id])))
    return None
