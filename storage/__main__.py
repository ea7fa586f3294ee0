"""``python -m storage``: copies, searches, exports and erases runs, shows the access log, and checks the record."""

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from conductor_core.errors import BadInput, InspectorError
from conductor_core.files import expand_path, give_stdout_up, only_for_owner
from conductor_core.privacy import masking
from conductor_core.settings import Settings, setting_fault, sqlite_url
from storage import bundles
from storage.cli import access, anchor, backup, erase, record, search, verify
from storage.database.connections import path_of
from storage.merkle.formats import error_text


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 if all went well, 2 with one line on stderr for bad input; ``verify`` has codes of its own.

    Returns 1 if what is printed cannot be written, without a word if whoever read it has left.
    """
    only_for_owner()
    try:
        try:
            return _run(arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        give_stdout_up()
    except OSError as error:
        print(f"error: {error_text(error)}", file=sys.stderr)
        give_stdout_up()
    return 1


def _run(arguments: Sequence[str] | None) -> int:
    parser = argparse.ArgumentParser(prog="python -m storage", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    database = argparse.ArgumentParser(add_help=False)
    database.add_argument("--db", metavar="FILE|URL", help="Else DATABASE_URL, else your data folder's.")
    backup.add(commands)
    verify.add(commands)
    record.add(commands, database)
    anchor.add(commands)
    bundles.add(commands)
    erase.add(commands)
    search.add(commands, database)
    access.add(commands, database)
    masking.mask_logs()
    try:
        given = parser.parse_args(arguments)
        match given.command:
            case "verify":
                return verify.check(given, _source)
            case "key":
                return verify.show_key(given, _source)
            case "anchor":
                return anchor.place(given, _source)
            case "witness":
                return anchor.witness(given, _source)
            case "export":
                return bundles.run(given, _source)
            case "verifier":
                return verify.write_verifier(given, _source)
            case "erase":
                return erase.erase_runs(given, _source)
            case "retain":
                return erase.retain(given, _source)
            case "hold":
                return erase.hold_runs(given, _source)
            case "backup":
                return backup.backup_database(given, _source)
            case "restore":
                return backup.restore_database(given, _source)
        return int(given.do(given, _source(given.db)))
    except ValidationError as error:
        print(f"error: {setting_fault(error)}", file=sys.stderr)
        return 2
    except InspectorError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2


def _source(given: str | None) -> Path:
    if given is not None:
        return path_of(given if "://" in given else sqlite_url(expand_path(given).absolute()))
    try:
        return path_of(Settings().resolved_database_url)
    except ValidationError as error:
        raise BadInput(setting_fault(error)) from error


def _stop(*_: object) -> None:
    sys.exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stop)  # so that no half copy is left
    sys.exit(main())
