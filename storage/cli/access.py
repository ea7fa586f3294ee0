"""``python -m storage access``: who viewed, exported, searched, erased, deleted and held what."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from conductor_core.errors import BadInput
from storage.access_log import KINDS, AccessQuery, AccessRecord
from storage.cli.search import end_of_day, line_of, moment_of, opened, paged, text_of
from storage.evidence.history import counted


def add(commands: Any, database: argparse.ArgumentParser) -> None:
    """Adds the command. ``database``: the options of all commands that name a database."""
    access = commands.add_parser(
        "access",
        parents=[database],
        help="Who viewed, exported, searched, erased, deleted or held what, newest first.",
        description="Who viewed, exported, searched, erased, deleted or held what, newest first. It shows no "
        "content of a run, and reading it is not logged. The words of a search are kept as keyed digests.",
    )
    access.add_argument("run_id", metavar="RUN_ID", nargs="?", type=text_of, help="Only entries about this run.")
    access.add_argument("--actor", metavar="X", type=text_of, help="Only what this person did: their id or name.")
    access.add_argument("--kind", choices=list(KINDS), help="Only this.")
    access.add_argument("--searched", metavar="WORDS", type=text_of, help="Only searches for all of these words.")
    access.add_argument("--since", metavar="DAY|TIME", type=moment_of, help="Only from this day (UTC) or time on.")
    access.add_argument("--until", metavar="DAY|TIME", type=end_of_day, help="Only up to this day, with it, or time.")
    paged(access)
    access.set_defaults(do=_access)


def _access(given: argparse.Namespace, file: Path) -> int:
    with opened(file, reads_index=False) as store:
        words = () if given.searched is None else store.access_log.digests(given.searched)
        if given.searched is not None and not words:
            raise BadInput(f"--searched {given.searched[:40]!r} has no word")
        asked = AccessQuery(
            run_id=None if given.run_id is None else store.access_log.resolve(given.run_id),
            actor=given.actor,
            kind=given.kind,
            since_utc=given.since,
            until_utc=given.until,
            words=words,
        )
        page = store.access_log.read(asked, given.before, given.limit)
    if page.unreadable:
        print(
            f"{counted(page.unreadable, 'record is', 'records are')} damaged: python -m storage verify says which",
            file=sys.stderr,
        )
    if given.json:
        shown = [_document(record) for record in page.records]
        print(json.dumps({"looks": shown, "before": page.before}, ensure_ascii=False, indent=2))
        return 0
    for record in page.records:
        print(_line(record))
    if not page.records:
        print("no such entries")
    if page.before is not None:
        print(f"continue with --before {page.before}")
    return 0


def _document(record: AccessRecord) -> dict[str, Any]:
    return {
        "entry": record.position,
        "at_utc": None if record.at_utc is None else record.at_utc.isoformat(),
        "kind": record.kind,
        "run_id": record.run_id,
        "actor": None if record.caller.actor is None else record.caller.actor.model_dump(),
        "door": record.caller.door,
        "what": record.what,
        "session": record.session,
        "words": list(record.words),
        "filters": list(record.filters),
    }


def _line(record: AccessRecord) -> str:
    when = "—" if record.at_utc is None else f"{record.at_utc:%Y-%m-%d %H:%M:%S}"
    session = f", browser {record.session}" if record.session else ""
    of = "" if record.run_id is None else f"run {record.run_id}: "
    return line_of(f"{when}  {of}{record.in_words}; by {record.caller.in_words}{session}", 400)
