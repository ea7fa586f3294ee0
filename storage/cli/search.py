"""What auditors ask of all runs: ``python -m storage search``, ``ledger``, ``received``, ``spending``, ``failures``."""

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from conductor_core.errors import BadInput
from conductor_core.formats import RUN_STATUSES, run_word
from conductor_core.run.actor import local_caller
from conductor_core.settings import Settings
from storage.evidence.history import counted
from storage.search.filters import ANY, KINDS, Filters, end_of
from storage.search.hits import Hit
from storage.search.index import Lag
from storage.search.reading import FIELDS
from storage.store import Store, store_of

_PROGRESS_EVERY = 20


def add(commands: Any, database: argparse.ArgumentParser) -> None:
    """Adds the commands. ``database``: the options of all commands that name a database."""
    filters = _filters()
    search = commands.add_parser(
        "search",
        parents=[database, filters],
        help="Find texts of runs; without WORDS, runs.",
        epilog='All WORDS must occur; "in quotation marks" is a phrase, and a word may end in *.',
    )
    search.add_argument("words", metavar="WORDS", nargs="*", type=text_of)
    search.add_argument("--in", dest="field", choices=list(FIELDS), help="Only texts of this kind.")
    search.add_argument("--rebuild", action="store_true", help="Build the search index again from the events.")
    paged(search)
    search.set_defaults(do=_search)
    ledger = commands.add_parser(
        "ledger",
        parents=[database, filters],
        help="Which provider and host received what; with WORDS, only such texts.",
    )
    ledger.add_argument("words", metavar="WORDS", nargs="*", type=text_of)
    ledger.add_argument("--calls", action="store_true", help="List the calls, not only the servers.")
    paged(ledger)
    ledger.set_defaults(do=_ledger)
    received = commands.add_parser(
        "received", parents=[database], help="Answer from the events whether a provider was ever sent a text."
    )
    received.add_argument(
        "provider", metavar="PROVIDER", type=text_of, help="A provider, a host, or HOST:PORT; '' for any."
    )
    received.add_argument("text", metavar="TEXT", type=text_of)
    received.add_argument("--since", metavar="DAY|TIME", type=moment_of)
    received.add_argument("--until", metavar="DAY|TIME", type=end_of_day)
    received.add_argument("--imported", action="store_true", help="Also say what the files of imported runs say.")
    received.add_argument("--json", action="store_true")
    received.set_defaults(do=_received)
    for name, do, says in (
        ("spending", _spending, "Tokens and cost by day, agent and person."),
        ("failures", _failures, "Which failures there are, how often, and in which tasks."),
    ):
        each = commands.add_parser(name, parents=[database, filters], help=says)
        each.add_argument("--json", action="store_true")
        each.set_defaults(do=do)


def _filters() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    for kind, word in KINDS.items():
        parser.add_argument(f"--{kind}", metavar="X", type=text_of, help=f"Only runs with this {word}; {ANY}: any.")
    parser.add_argument("--since", metavar="DAY|TIME", type=moment_of, help="Only runs from this day (UTC) or time on.")
    parser.add_argument(
        "--until", metavar="DAY|TIME", type=end_of_day, help="Only runs up to this day, with it, or time."
    )
    parser.add_argument("--least-usd", metavar="X", type=_usd_bound)
    parser.add_argument("--most-usd", metavar="X", type=_usd_bound)
    parser.add_argument("--run", metavar="RUN_ID", type=text_of)
    return parser


def paged(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a list that has pages."""
    parser.add_argument("--limit", metavar="N", type=_count, default=20)
    parser.add_argument(
        "--before", metavar="CURSOR", type=_cursor, help="Go on after a page: the cursor that it ended with."
    )
    parser.add_argument("--json", action="store_true")


def _whole(typed: str, most: int) -> int:
    if not (typed.isascii() and typed.isdecimal() and len(typed) < 20 and 1 <= int(typed) <= most):
        raise BadInput(f"{typed!r} is not a whole number from 1 to {most}")
    return int(typed)


def _count(typed: str) -> int:
    return _whole(typed, 10_000)


def _cursor(typed: str) -> int:
    return _whole(typed, 2**63 - 1)


def _usd_bound(typed: str) -> float:
    try:
        usd = float(typed)
    except ValueError:
        usd = math.nan
    if not 0 <= usd < math.inf:
        raise BadInput(f"{typed!r} is not an amount in USD")
    return usd


def text_of(typed: str) -> str:
    """Reads a text. Raises: BadInput if it is no Unicode."""
    try:
        typed.encode()
    except UnicodeEncodeError:
        raise BadInput(f"{typed!r} is not valid UTF-8 text") from None
    return typed


def moment_of(typed: str) -> datetime:
    """Reads a day or a time. Raises: BadInput."""
    try:
        moment = datetime.fromisoformat(typed)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise BadInput(f"{typed!r} is not a date (2026-01-31) or an ISO 8601 time") from error


def end_of_day(typed: str) -> datetime:
    """Reads an end; that of a day is the midnight after it. Raises: BadInput."""
    try:
        day = date.fromisoformat(typed)
    except ValueError:
        return moment_of(typed)
    return end_of(day)


def _asked(given: argparse.Namespace, store: Store) -> Filters:
    values = {kind: value for kind in KINDS if (value := getattr(given, kind)) is not None}
    return Filters(
        values=values,
        since_utc=given.since,
        until_utc=given.until,
        least_usd=given.least_usd,
        most_usd=given.most_usd,
        run_id=None if given.run is None else store.resolve(given.run),
    )


@contextmanager
def opened(file: Path, *, rebuild: bool = False, reads_index: bool = True) -> Iterator[Store]:
    """Opens the store, and brings its index up to date. Raises: BadInput, StoreError."""
    if not file.is_file():
        raise BadInput(f"no database at {file}")
    store = store_of(file, Settings())
    try:
        if rebuild:
            store.search.rebuild(_progress("indexing", "events"))
        elif reads_index and store.refusal is None:
            store.search.catch_up(_progress("indexing", "events"))
        yield store
    finally:
        store.close()


def _progress(doing: str, things: str) -> Callable[[int, int], None]:
    shows = sys.stderr.isatty()

    def notify(done: int, total: int) -> None:
        if shows and (done >= total or done % _PROGRESS_EVERY == 0):
            end = "\n" if done >= total else ""
            print(f"\r{doing}: {done:,} of {total:,} {things}", end=end, file=sys.stderr, flush=True)

    return notify


def _search(given: argparse.Namespace, file: Path) -> int:
    with opened(file, rebuild=given.rebuild) as store:
        typed, only, search = " ".join(given.words), _asked(given, store), store.search
        count, lag = search.count(typed, only, given.field), search.lag()
        if not typed.strip():
            if given.field is not None:
                raise BadInput("--in needs WORDS to search for")
            runs = search.runs(only, given.before, given.limit)
            before = runs[-1].sequence if len(runs) == given.limit else None
            shown = [
                {"run_id": run.run_id, "status": run.status, "imported": run.imported, "task": run.task} for run in runs
            ]
            document = {"runs": shown, "before": before}
            lines = [
                f"{run.run_id}  {run.status:11}  {'imported: ' if run.imported else ''}{line_of(run.task)}"
                for run in runs
            ]
        else:
            page = search.texts(typed, only, given.field, given.before, given.limit)
            fields = [] if given.field is None else ["in"]
            _keep_search(store, typed, [*only.names, *fields], "texts", [hit.run_id for hit in page.hits])
            before = page.before
            document = {"hits": [_hit_document(hit) for hit in page.hits], "before": before}
            lines = [each for hit in page.hits for each in _hit_lines(hit)]
        counts = {"texts": count.texts, "runs": count.runs, "at_least": count.more}
        least = "at least " if count.more else ""
        texts = f"{counted(count.texts, 'text')} in " if typed.strip() else ""
        lines.append(
            f"{least}{texts}{counted(count.runs, 'run')}{f'; continue with --before {before}' if before else ''}"
        )
        _print(given, document | {"count": counts}, lines, lag)
    return 0


def _keep_search(store: Store, typed: str, filters: Iterable[str], what: str, seen: Iterable[str] = ()) -> None:
    """Puts a search on record, and the runs of which it shows texts."""
    caller = local_caller("cli")
    store.access_log.searched(typed, filters, what, caller)
    store.access_log.viewed(seen, "hits", caller)
    store.access_log.warn_if_lost()


def _lag_document(lag: Lag) -> dict[str, int]:
    """Returns what a search does not see, as in a document."""
    return {"ended": lag.runs, "running": lag.running, "encrypted": lag.encrypted, "damaged": lag.damaged}


def _hit_document(hit: Hit) -> dict[str, Any]:
    return {
        "run_id": hit.run_id,
        "created_at_utc": None if hit.created_at_utc is None else hit.created_at_utc.isoformat(),
        "status": hit.status,
        "simulated": hit.simulated,
        "imported": hit.imported,
        "task": hit.task,
        "snippet": "".join(piece for piece, _ in hit.snippet),
        "found": [piece for piece, is_found in hit.snippet if is_found],
        "characters": hit.characters,
        "places": [
            {"field": at.field, "step": at.path, "agent": at.agent, "event": at.event, "detail": at.detail}
            for at in hit.places
        ],
    }


def _hit_lines(hit: Hit) -> list[str]:
    where = dict.fromkeys(f"{FIELDS[at.field]}{f' of step {at.path}' if at.path else ''}" for at in hit.places)
    simulated = f"{', imported' if hit.imported else ''}{', simulated' if hit.simulated else ''}"
    status = run_word(hit.status) if hit.status in RUN_STATUSES else hit.status
    return [
        f"run {hit.run_id} ({status}{simulated}): {line_of(', '.join(where))}",
        "    " + line_of("".join(f"[{piece}]" if is_found else piece for piece, is_found in hit.snippet), 240),
    ]


def _ledger(given: argparse.Namespace, file: Path) -> int:
    with opened(file) as store:
        typed, only = " ".join(given.words), _asked(given, store)
        found = store.search.receivers(typed, only, _progress("reading the events", "runs"))
        if typed.strip():
            _keep_search(store, typed, only.names, "ledger")
        document: dict[str, Any] = {
            "receivers": _plain(found.receivers),
            "only_newest_texts": found.more,
            "imported_runs_left_out": found.files,
            "of_imported_files": found.of_files,
            "read_from": "events" if found.from_events else "index",
        }
        lines = [
            f"{each.name}{' (simulated)' if each.simulated else ''}: {counted(each.calls, 'call')}"
            f"{f' ({each.failed:,} failed)' if each.failed else ''} in {counted(each.runs, 'run')}, "
            f"{counted(each.messages, 'message')}, {counted(each.images, 'image')}; {each.agents}"
            for each in found.receivers
        ]
        lines += found.in_words
        if given.calls:
            calls = store.search.calls(typed, only, before=given.before, limit=given.limit)
            before = calls[-1].call_id if len(calls) == given.limit else None
            document |= {"calls": _plain(calls), "before": before}
            lines += [
                f"{call.at_utc or '—'}  run {call.run_id} {call.purpose} {call.path}: {call.agent} at {call.provider} "
                f"{call.host or 'this process'}, {f'{call.how}, ' if call.purpose != 'traces' else ''}{call.ended}"
                f"{', says the imported file' if call.imported else ''}"
                for call in calls
            ]
            lines += [f"continue with --before {before}"] if before is not None else []
        _print(given, document, lines, store.search.lag())
    return 0


def _received(given: argparse.Namespace, file: Path) -> int:
    with opened(file, reads_index=False) as store:
        notify = _progress("reading", "runs")
        asked = (given.provider, given.text, given.since, given.until, notify)
        receipt = store.search.receipt(*asked, imported=given.imported)
        period = [name for name in ("since", "until") if getattr(given, name) is not None]
        _keep_search(store, given.text, ["provider", *period], "received")
        said = {"answer": receipt.in_words, "rests_on": receipt.rests_on, "not_seen": receipt.not_seen}
        lines = [receipt.in_words]
        lines += [f"  run {at.run_id} {at.at_utc:%Y-%m-%d %H:%M} {at.in_words}" for at in receipt.received]
        lines += ["It rests on:", *(f"  {each}" for each in receipt.rests_on)]
        lines += ["Not seen:", *(f"  {each}" for each in receipt.not_seen)]
        _print(given, receipt.model_dump(mode="json") | said, lines)
    return 0


def _spending(given: argparse.Namespace, file: Path) -> int:
    with opened(file) as store:
        rows = store.search.spending(_asked(given, store))
        lines = [
            f"{row.day}  {row.agent:20}  {line_of(row.person, 30):30}  {row.calls:6,} calls  {row.tokens:10,} tokens  "
            f"{'simulated' if row.simulated else _usd(row.known_usd, row.unpriced)}"
            for row in rows
        ]
        _print(given, {"spending": _plain(rows)}, lines or ["no calls"], store.search.lag())
    return 0


def _usd(known_usd: float, unpriced: int) -> str:
    return f"${known_usd:.4f}" + (f" and {counted(unpriced, 'call')} of unknown cost" if unpriced else "")


def _failures(given: argparse.Namespace, file: Path) -> int:
    with opened(file) as store:
        rows = store.search.failures(_asked(given, store))
        lines = []
        for row in rows:
            last = f"; last: {line_of(row.said)}" if row.said else ""
            lines.append(f"{row.code}: {row.times:,} times in {row.runs:,} runs{last}")
            lines += [f"    {line_of(task)}" for task in row.tasks]
        _print(given, {"failures": _plain(rows)}, lines or ["no failures"], store.search.lag())
    return 0


def _plain(models: Iterable[BaseModel]) -> list[dict[str, Any]]:
    return [model.model_dump(mode="json") for model in models]


def _print(given: argparse.Namespace, document: dict[str, Any], lines: Iterable[str], lag: Lag | None = None) -> None:
    """``lag``: what an answer by the index leaves out; it is said with it."""
    if given.json:
        if lag is not None:
            document = document | {"not_searched": _lag_document(lag)}
        print(json.dumps(document, ensure_ascii=False, indent=2))
        return
    for line in lines:
        print(line)
    if lag is not None and lag.in_words:
        print(f"not searched: {lag.in_words}", file=sys.stderr)


def line_of(text: str, most: int = 120) -> str:
    """Returns a text of a run as one line without signs that steer a terminal."""
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
