"""``python -m storage looks``: who looked at what, and who exported, searched, erased, deleted and held."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from conductor_core.errors import BadInput
from storage.access_log.queries import KINDS, Asked, Look
from storage.cli.search import end_of_day, line_of, moment_of, opened, paged, text_of
from storage.evidence.history import counted


def add(commands: Any, database: argparse.ArgumentParser) -> None:
    """Adds the command. ``database``: the options of all commands that name a database."""
    looks = commands.add_parser(
        "looks",
        parents=[database],
        help="Who looked at what, exported, searched, erased, deleted or held it, newest first.",
        description="Who looked at what, exported, searched, erased, deleted or held it, newest first. It shows no "
        "content of a run, and reading it is no look. The words of a search are kept as keyed digests.",
    )
    looks.add_argument("run_id", metavar="RUN_ID", nargs="?", type=text_of, help="Only looks at this run.")
    looks.add_argument("--actor", metavar="X", type=text_of, help="Only what this person did: their id or name.")
    looks.add_argument("--kind", choices=list(KINDS), help="Only this.")
    looks.add_argument("--searched", metavar="WORDS", type=text_of, help="Only searches for all of these words.")
    looks.add_argument("--since", metavar="DAY|TIME", type=moment_of, help="Only from this day (UTC) or time on.")
    looks.add_argument("--until", metavar="DAY|TIME", type=end_of_day, help="Only up to this day, with it, or time.")
    paged(looks)
    looks.set_defaults(do=_looks)


def _looks(given: argparse.Namespace, file: Path) -> int:
    with opened(file, reads_index=False) as store:
        words = () if given.searched is None else store.looks.digests(given.searched)
        if given.searched is not None and not words:
            raise BadInput(f"--searched {given.searched[:40]!r} has no word")
        asked = Asked(
            run_id=None if given.run_id is None else store.looks.resolve(given.run_id),
            actor=given.actor,
            kind=given.kind,
            since_utc=given.since,
            until_utc=given.until,
            words=words,
        )
        page = store.looks.read(asked, given.before, given.limit)
    if page.unreadable:
        print(
            f"{counted(page.unreadable, 'record is', 'records are')} damaged: python -m storage verify says which",
            file=sys.stderr,
        )
    if given.json:
        shown = [_document(look) for look in page.looks]
        print(json.dumps({"looks": shown, "before": page.before}, ensure_ascii=False, indent=2))
        return 0
    for look in page.looks:
        print(_line(look))
    if not page.looks:
        print("nothing of this is on record")
    if page.before is not None:
        print(f"go on with --before {page.before}")
    return 0


def _document(look: Look) -> dict[str, Any]:
    return {
        "entry": look.position,
        "at_utc": None if look.at_utc is None else look.at_utc.isoformat(),
        "kind": look.kind,
        "run_id": look.run_id,
        "actor": None if look.caller.actor is None else look.caller.actor.model_dump(),
        "door": look.caller.door,
        "what": look.what,
        "session": look.session,
        "words": list(look.words),
        "filters": list(look.filters),
    }


def _line(look: Look) -> str:
    when = "—" if look.at_utc is None else f"{look.at_utc:%Y-%m-%d %H:%M:%S}"
    session = f", browser {look.session}" if look.session else ""
    of = "" if look.run_id is None else f"run {look.run_id}: "
    return line_of(f"{when}  {of}{look.in_words}; by {look.caller.in_words}{session}", 400)
