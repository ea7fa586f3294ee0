"""``python -m storage verify`` and ``key``: checks a log, and hands out the public half of its key."""

import argparse
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from conductor_core import __version__
from conductor_core.errors import BadInput
from conductor_core.run.actor import local_caller
from conductor_core.settings import Settings
from storage.evidence.anchoring import Places, kept_fault, places_of
from storage.evidence.bundle import verifier_digest, verifier_source
from storage.evidence.bundle_files import is_bundle
from storage.evidence.checking import OwnAnchor, check_log, no_key, own_anchor, own_key, public_key
from storage.evidence.database_audit import NoEvidence, open_database, read_log
from storage.evidence.history import CLASSES, Finding
from storage.evidence.keys import load_key
from storage.evidence.verifier import FINGERPRINT, Ticker, document, exit_code, given_keys, show, verify
from storage.merkle.formats import Invalid, PublicKey, error_text
from storage.privacy import Privacy
from storage.store import open_store

Source = Callable[[str | None], Path]


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    codes = ", ".join(f"{code} {kind}" for kind, code in CLASSES.items())
    checking = commands.add_parser(
        "verify",
        help="Check that the record is as it was written; changes nothing.",
        epilog=f"Exit codes: 0 nothing was found, 2 bad input, {codes}; with --json 0, 1 or 2.",
    )
    checking.add_argument("target", nargs="?", metavar="RUN_ID|BUNDLE", help="A run, or an exported bundle. Else all.")
    checking.add_argument(
        "--public-key", action="append", default=[], metavar="KEY|FILE", help="Else the log's own key."
    )
    checking.add_argument("--anchor", action="append", default=[], metavar="FILE", help="Else the setting's.")
    checking.add_argument("--json", action="store_true")
    key = commands.add_parser("key", help="Print the public key that checks this log, and its fingerprint.")
    key.add_argument("--rotate", action="store_true", help="First replace the key, on record.")
    file = commands.add_parser("verifier", help="Write the verifier as one file that needs Python and cryptography.")
    file.add_argument("path", metavar="PATH", type=Path, help="The new file; nothing is overwritten.")
    for each in (checking, key):
        each.add_argument("--db", metavar="FILE|URL", help="Else DATABASE_URL, else your data folder's.")


def check(given: argparse.Namespace, source: Source) -> int:
    """Verifies a database, one run of it, or a bundle. Raises: InspectorError."""
    settings = Settings()
    before: list[Finding] = []
    own_place: OwnAnchor | None = None
    try:
        bundle = Path(given.target) if given.target is not None and is_bundle(Path(given.target)) else None
        keys, anchors, run_id = given_keys(given.public_key), [Path(each) for each in given.anchor], None
        if bundle is not None:
            if not keys:
                keys = [_own_key(source(given.db), settings)]
            report = verify(bundle, keys, anchors, Ticker())
        else:
            path = source(given.db)
            _refuse_missing(path)
            places = _places(path, settings)
            none = ""
            if not keys:
                own, before = own_key(path, places)
                keys = [] if own is None else [own]
            if not anchors and keys:
                own_place = own_anchor(path, places, keys[0].name)
                anchors, none = own_place.files, own_place.none
            elif not keys:
                anchors, none = [], no_key(places)
            report = check_log(path, keys, anchors, Privacy.of(settings).vault(path), Ticker(), none)
            after = [] if own_place is None else own_place.lacks(report)
            report.findings = [*before, *report.findings, *after]
            with closing(open_database(path)) as connection:
                run_id = None if given.target is None else _resolved(connection, given.target)
            if (stopped := kept_fault(path)) is not None:
                report.notes.append(f"publishing has stopped: {stopped}")
        shown = document(report, run_id, keys)
    except (Invalid, NoEvidence, OSError, sqlite3.Error) as error:
        raise BadInput(error_text(error)) from error
    if not given.public_key:
        shown["notes"].append(
            "the public key is this machine's own: whoever controls this machine could have changed it"
        )
    show(shown, as_json=given.json)
    return exit_code(shown, plain=given.json)


def show_key(given: argparse.Namespace, source: Source) -> int:
    """Prints the public key, which is made if there is none; first replaces it if asked. Raises: InspectorError."""
    path, settings = source(given.db), Settings()
    if given.rotate:
        privacy = Privacy.of(settings)
        store = open_store(f"sqlite:///{path}", privacy, anchor=settings.anchor, signing_key=settings.signing_key)
        try:
            public = store.rotate_key(local_caller("cli"))
        finally:
            store.close()
    else:
        _refuse_missing(path)
        places = _places(path, settings)
        public = public_key(path, places) or _made_key(path, places)
    print(f"{public.line}\n{FINGERPRINT}{public.fingerprint}")
    return 0


def write_verifier(given: argparse.Namespace, source: Source) -> int:
    """Writes the verifier, and prints its version and digest. Raises: BadInput."""
    if given.path.exists():
        raise BadInput(f"{given.path} is there already: nothing is overwritten, name another file")
    text = verifier_source()
    try:
        given.path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise BadInput(f"{given.path} cannot be written: {error.strerror}") from error
    print(f"version {__version__}\nsha256 {verifier_digest(text)}")
    print(f"{given.path}: run it with Python and the package cryptography; --help says how", file=sys.stderr)
    return 0


def _places(path: Path, settings: Settings) -> Places:
    return places_of(path, settings.anchor, settings.signing_key)


def _own_key(path: Path, settings: Settings) -> PublicKey:
    _refuse_missing(path)
    places = _places(path, settings)
    key = public_key(path, places)
    if key is None:
        raise BadInput(f"no signing key at {places.key}: give the public key with --public-key")
    return key


def _made_key(path: Path, places: Places) -> PublicKey:
    try:
        with closing(open_database(path)) as connection:
            origin, _ = read_log(connection)
        places.key.parent.mkdir(exist_ok=True, mode=0o700)
        return load_key(places.key, origin).public
    except (NoEvidence, OSError) as error:
        raise BadInput(error_text(error)) from error


def _refuse_missing(path: Path) -> None:
    if not path.is_file():
        raise BadInput(f"no database at {path}")


def _resolved(connection: sqlite3.Connection, prefix: str) -> str:
    """Returns the one run whose id begins with ``prefix``, also one whose events are gone. Raises: BadInput."""
    query = (
        "SELECT run_id FROM leaves WHERE substr(run_id, 1, length(:prefix)) = :prefix "
        "UNION SELECT run_id FROM events WHERE substr(run_id, 1, length(:prefix)) = :prefix LIMIT 2"
    )
    try:
        found = [run_id for (run_id,) in connection.execute(query, {"prefix": prefix})]
    except sqlite3.Error:  # a table is missing, as the check says
        return prefix
    if len(found) != 1:
        raise BadInput(f"{'several runs begin' if found else 'no run and no bundle begins'} with {prefix!r}")
    return str(found[0])
