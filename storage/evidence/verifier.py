"""Checks a database or an exported bundle against the public key and the published checkpoints of its log.

It needs Python 3.11 and the package cryptography, and nothing of Conductor Inspector. It changes nothing.
"""

import argparse
import json
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from storage.evidence.bundle_audit import audit_bundle, open_bundle
from storage.evidence.bundle_files import is_bundle
from storage.evidence.database_audit import NoEvidence, audit_database, open_database, read_own_evidence
from storage.evidence.history import CLASSES, History, Report, counted, read_anchors
from storage.evidence.rotation import rotated_keys
from storage.merkle.formats import Invalid, PublicKey, error_text, read_key

BAD_INPUT = 2
FINGERPRINT = "fingerprint: "
_KEY_FORM = "a key is the line NAME+ID+KEY that `python -m storage key` prints"
_PROGRESS_S = 2.0


def verify(
    target: Path, keys: Sequence[PublicKey], anchors: Sequence[Path], progress: Callable[[str, int], None]
) -> Report:
    """Checks the database or bundle ``target``. ``keys``: trusted from elsewhere; those that they vouch for count, too.

    Raises: NoEvidence or Invalid if there is nothing to check; OSError, sqlite3.Error.
    """
    if not is_bundle(target):
        return verify_database(target, keys, anchors, progress)
    report = Report()
    try:
        with open_bundle(target) as bundle:
            records = {at: str(line["record"]).encode(errors="replace") for at, line in enumerate(bundle.records)}
            keys = rotated_keys(records, keys)
            audit_bundle(bundle, keys, _read(_as_they_are(anchors), keys, report), report, progress)
    except Invalid as error:
        report.add("evidence", None, None, f"the bundle cannot be read: {error}")
    return report


def verify_database(
    target: Path,
    keys: Sequence[PublicKey],
    anchors: Sequence[Path],
    progress: Callable[[str, int], None],
    none: str = "no anchor was given",
) -> Report:
    """Checks the database ``target``, as ``verify`` does. Raises: NoEvidence; OSError, sqlite3.Error.

    ``none``: why there are no ``anchors``.
    """
    report = Report()
    published = _as_they_are(anchors)  # what is published while the database is read is not in what is read of it
    with closing(open_database(target)) as connection:
        connection.execute("BEGIN")
        own = read_own_evidence(connection)
        keys = rotated_keys(own.records, keys)
        audit_database(connection, own, keys, _read(published, keys, report), report, progress)
    if not anchors:
        report.notes.append(f"{none}: whoever can write the database could have rewritten it all")
    return report


def _as_they_are(anchors: Sequence[Path]) -> list[tuple[Path, int]]:
    """Returns the anchors, each with its length in bytes. Raises: Invalid for a pipe or a device; OSError."""
    for each in anchors:
        if each.exists() and not each.is_file():
            raise Invalid(f"{each} is not a regular file")
    return [(each, each.stat().st_size) for each in anchors]


def _read(anchors: Sequence[tuple[Path, int]], keys: Sequence[PublicKey], report: Report) -> History:
    return read_anchors([(str(path), _published_lines(path, size)) for path, size in anchors], keys, report)


def _published_lines(path: Path, size: int) -> Iterator[str]:
    """Yields the lines of the first ``size`` bytes. One that was being written then is left out."""
    with path.open("rb") as file:
        for line in file:
            size -= len(line)
            if size < 0:
                return
            yield line.decode(errors="replace").replace("\r\n", "\n")


def document(report: Report, run_id: str | None = None) -> dict[str, Any]:
    """Returns the report as ``--json`` prints it."""
    findings = [each for each in report.findings if run_id is None or each.run_id in (None, run_id)]
    return {
        "ok": not findings,
        "verified_events": report.verified_events,
        "unanchored_events": report.unanchored_events,
        "verified_size": report.verified_size,
        "uncovered_events": report.uncovered_events,
        "deleted_runs": report.deleted_runs,
        "erased_runs": report.erased_runs,
        "findings": [
            {"class": each.kind, "run_id": each.run_id, "sequence": each.sequence, "what": each.what}
            for each in findings
        ],
        "more_findings": report.more,
        "notes": report.notes,
    }


def show(shown: dict[str, Any], *, as_json: bool) -> None:
    """Prints the report, whatever signs are in it and whatever signs the terminal knows."""
    text = json.dumps(shown) if as_json else "\n".join(lines(shown))
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, errors="backslashreplace").decode(encoding))


def lines(shown: dict[str, Any]) -> Iterator[str]:
    """Yields the report as a person reads it."""
    yield from map(printable, _said(shown))


def printable(line: str) -> str:
    """Returns a line without what steers a terminal: names in a report can be a forger's."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in line)


def _said(shown: dict[str, Any]) -> Iterator[str]:
    for each in shown["findings"]:
        place = "" if each["run_id"] is None else f" run {each['run_id']}"
        place += "" if each["sequence"] is None else f" event {each['sequence']}"
        yield f"{each['class'].upper()}{place}: {each['what']}"
    if shown["more_findings"]:
        yield f"... and {counted(shown['more_findings'], 'finding')} more"
    yield from (f"note: {each}" for each in shown["notes"])
    tail = shown["unanchored_events"]
    entries = counted(shown["verified_size"], "entry", "entries")
    yield f"{counted(shown['verified_events'], 'event is', 'events are')} as a signed checkpoint says ({entries})"
    if tail:
        uncovered = counted(tail, "event is", "events are")
        yield f"{uncovered} covered by no checkpoint from outside: nothing protects {'it' if tail == 1 else 'them'} yet"
    if older := shown["uncovered_events"]:
        yield f"{counted(older, 'event is', 'events are')} older than this log's evidence, which proves nothing of that"
    erased = shown["erased_runs"]
    for number, how in ((shown["deleted_runs"] - erased, "deleted"), (erased, "erased")):
        if number:
            yield f"{counted(number, 'run was', 'runs were')} {how} by the program, on record"
    yield "OK: nothing was found" if shown["ok"] else counted(len(shown["findings"]), "finding").upper()


def exit_code(shown: dict[str, Any], *, plain: bool) -> int:
    """Returns 0, or the code of the first finding's class; with ``plain`` 1 for any."""
    if shown["ok"]:
        return 0
    return 1 if plain else CLASSES[shown["findings"][0]["class"]]


class Ticker:
    """Says on stderr every two seconds how far the check is."""

    def __init__(self) -> None:
        self._next_s = time.monotonic() + _PROGRESS_S

    def __call__(self, what: str, count: int) -> None:
        if time.monotonic() > self._next_s:
            self._next_s = time.monotonic() + _PROGRESS_S
            print(f"{count:,} {what} checked", file=sys.stderr, flush=True)


def given_keys(given: Sequence[str]) -> list[PublicKey]:
    """Reads public keys: each the key itself, or a file that holds it. Raises: Invalid, OSError."""
    return [_given_key(each) for each in given]


def _given_key(given: str) -> PublicKey:
    """Reads a key with or without the line of its fingerprint, as ``python -m storage key`` prints both."""
    text, where = given, "what was given"
    if os.path.exists(given):
        if not os.path.isfile(given):
            raise Invalid(f"{given} is not a regular file")
        text, where = Path(given).read_text(encoding="utf-8", errors="replace"), given
    elif given.count("+") < 2:
        raise Invalid(f"{given[:80]!r} is neither a file nor a public key: {_KEY_FORM}")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [line.removeprefix(FINGERPRINT) for line in lines if line.startswith(FINGERPRINT)]
    lines = [line for line in lines if not line.startswith(FINGERPRINT)]
    if len(lines) != 1:
        raise Invalid(f"{where} holds {len(lines)} lines that could be a public key, and one is expected: {_KEY_FORM}")
    try:
        key = read_key(lines[0])
    except Invalid as error:
        raise Invalid(f"{where} is not a public key ({error}): {_KEY_FORM}") from error
    if any(each != key.fingerprint for each in said):
        raise Invalid(f"the fingerprint in {where} is not that of the key beside it: ask for both again")
    return key


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 if nothing was found, 2 for bad input, else the code of the first finding's class (with --json: 1)."""
    codes = ", ".join(f"{code} {kind}" for kind, code in CLASSES.items())
    parser = argparse.ArgumentParser(description=__doc__, epilog=f"Exit codes: 0 nothing found, 2 bad input, {codes}.")
    parser.add_argument("target", type=Path, help="A database, or a bundle: a folder or a zip file.")
    parser.add_argument(
        "--public-key", action="append", required=True, metavar="KEY|FILE", help="From the log's owner."
    )
    parser.add_argument("--anchor", action="append", default=[], type=Path, metavar="FILE", help="What was published.")
    parser.add_argument("--run", metavar="RUN_ID", help="Show only what concerns this run, and the log as a whole.")
    parser.add_argument("--json", action="store_true", help="One JSON document; the exit code is then 0, 1 or 2.")
    given = parser.parse_args(arguments)
    try:
        report = verify(given.target, given_keys(given.public_key), given.anchor, Ticker())
    except (Invalid, NoEvidence, OSError, sqlite3.Error) as error:
        print(f"error: {error_text(error)}", file=sys.stderr)
        return BAD_INPUT
    shown = document(report, given.run)
    show(shown, as_json=given.json)
    return exit_code(shown, plain=given.json)


def _from_the_shell() -> int:
    """Runs ``main``. Says nothing when whoever read the output has left."""
    try:
        try:
            return main()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


if __name__ == "__main__":
    sys.exit(_from_the_shell())
