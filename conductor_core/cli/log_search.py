"""What is asked of all runs: ``log search``, ``ledger``, ``received``, ``spending``, ``failures``, ``shadow`` and
``access``.
"""

import math
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Annotated, Any

import typer
from pydantic import BaseModel

from conductor_core.analysis import shadow as figures
from conductor_core.analysis.intervals import Estimate
from conductor_core.cli import options
from conductor_core.cli.output import one_line, print_json
from conductor_core.cli.progress import terminal_bar
from conductor_core.errors import BadInput
from conductor_core.formats import RUN_STATUSES, plural, run_word, seconds
from conductor_core.run.actor import local_caller
from storage.access_log import KINDS as ACCESS_KINDS
from storage.access_log import AccessQuery, AccessRecord
from storage.evidence.history import counted
from storage.search.failures import ASKED, By, Narrowed
from storage.search.failures import KINDS as FAILURE_KINDS
from storage.search.filters import ANY, KINDS, Filters, end_of
from storage.search.hits import Hit
from storage.search.index import Lag
from storage.search.reading import FIELDS
from storage.store import Store

_LINE = 120
_MOST_PARTS = 30
"""Models and days that a list shows."""


def _usd_bound(typed: str) -> float:
    try:
        usd = float(typed)
    except ValueError:
        usd = math.nan
    if not 0 <= usd < math.inf:
        raise BadInput(f"{typed!r} is not an amount in USD")
    return usd


def _text(typed: str) -> str:
    try:
        typed.encode()
    except UnicodeEncodeError:
        raise BadInput(f"{typed!r} is not valid UTF-8 text") from None
    return typed


def _moment(typed: str) -> datetime:
    try:
        moment = datetime.fromisoformat(typed)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise BadInput(f"{typed!r} is not a date (2026-01-31) or an ISO 8601 time") from error


def _end(typed: str) -> datetime:
    """Reads an end; that of a day is the midnight after it."""
    try:
        day = date.fromisoformat(typed)
    except ValueError:
        return _moment(typed)
    return end_of(day)


def _one_of(names: Iterable[str], option: str) -> Callable[[str], str]:
    """Returns what reads one of ``names``. Raises: BadInput for any other text."""

    def read(typed: str) -> str:
        if typed not in names:
            raise BadInput(f"{option} {typed!r}: choose {', '.join(names)}")
        return typed

    return read


Words = Annotated[list[str] | None, typer.Argument(metavar="WORDS", parser=_text)]
Limit = Annotated[int, typer.Option(metavar="N", min=1, max=10_000, help="How many.")]
Before = Annotated[
    int | None,
    typer.Option(metavar="CURSOR", min=1, max=2**63 - 1, help="Go on after a page: the cursor that it ended with."),
]
Since = Annotated[
    datetime | None, typer.Option(metavar="DAY|TIME", parser=_moment, help="Only from this day (UTC) or time on.")
]
Until = Annotated[
    datetime | None, typer.Option(metavar="DAY|TIME", parser=_end, help="Only up to this day, with it, or time.")
]


def _kind(kind: str) -> Any:
    help_ = f"Only runs with this {KINDS[kind]}; {ANY}: any."
    return typer.Option(f"--{kind}", metavar="X", parser=_text, help=help_)


@dataclass(frozen=True)
class Filtered(options.Options):
    """The options that choose among runs: one for each kind of ``KINDS``, and bounds."""

    actor: Annotated[str | None, _kind("actor")] = None
    agent: Annotated[str | None, _kind("agent")] = None
    provider: Annotated[str | None, _kind("provider")] = None
    host: Annotated[str | None, _kind("host")] = None
    status: Annotated[str | None, _kind("status")] = None
    topology: Annotated[str | None, _kind("topology")] = None
    edited: Annotated[str | None, _kind("edited")] = None
    approval: Annotated[str | None, _kind("approval")] = None
    workers: Annotated[str | None, _kind("workers")] = None
    failure: Annotated[str | None, _kind("failure")] = None
    origin: Annotated[str | None, _kind("origin")] = None
    since: Since = None
    until: Until = None
    least_usd: Annotated[float | None, typer.Option("--least-usd", metavar="X", parser=_usd_bound)] = None
    most_usd: Annotated[float | None, typer.Option("--most-usd", metavar="X", parser=_usd_bound)] = None
    run: Annotated[str | None, typer.Option("--run", metavar="RUN_ID", parser=_text)] = None

    def filters(self, store: Store) -> Filters:
        return Filters(
            values={kind: value for kind in KINDS if (value := getattr(self, kind)) is not None},
            since_utc=self.since,
            until_utc=self.until,
            least_usd=self.least_usd,
            most_usd=self.most_usd,
            run_id=None if self.run is None else store.resolve(self.run),
        )

    @contextmanager
    def indexed(self, *, rebuild: bool = False) -> Iterator[Store]:
        """Opens the store, and brings its index up to date. Raises: BadInput, StoreError."""
        with self.existing_store() as store:
            with terminal_bar("indexing events") as notify:
                if rebuild:
                    store.search.rebuild(notify)
                elif store.refusal is None:
                    store.search.catch_up(notify)
            yield store


OfRuns = Annotated[Filtered, "db", "as_json", *KINDS, "since", "until", "least_usd", "most_usd", "run"]


def search(
    words: Words = None,
    field: Annotated[
        str | None,
        typer.Option(
            "--in",
            metavar="KIND",
            parser=_one_of(FIELDS, "--in"),
            help=f"Only texts of this kind: {', '.join(FIELDS)}.",
        ),
    ] = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Build the search index again from the events.")] = False,
    limit: Limit = 20,
    before: Before = None,
    given: OfRuns = Filtered(),
) -> int:
    """All WORDS must occur; "in quotation marks" is a phrase, and a word may end in *."""
    with given.indexed(rebuild=rebuild) as store:
        typed, asked, found = " ".join(words or ()), given.filters(store), store.search
        count, lag = found.count(typed, asked, field), found.lag()
        if not typed.strip():
            if field is not None:
                raise BadInput("--in needs WORDS to search for")
            runs = found.runs(asked, before, limit)
            before = runs[-1].sequence if len(runs) == limit else None
            shown = [
                {"run_id": run.run_id, "status": run.status, "imported": run.imported, "task": run.task} for run in runs
            ]
            document = {"runs": shown, "before": before}
            lines = [
                f"{run.run_id}  {run.status:11}  {'imported: ' if run.imported else ''}{one_line(run.task, _LINE)}"
                for run in runs
            ]
        else:
            page = found.texts(typed, asked, field, before, limit)
            names = [*asked.names, *([] if field is None else ["in"])]
            _keep_search(store, typed, names, "texts", [hit.run_id for hit in page.hits])
            before = page.before
            document = {"hits": [_hit_document(hit) for hit in page.hits], "before": before}
            lines = [each for hit in page.hits for each in _hit_lines(hit)]
        counts = {"texts": count.texts, "runs": count.runs, "at_least": count.more}
        least = "at least " if count.more else ""
        texts = f"{counted(count.texts, 'text')} in " if typed.strip() else ""
        lines.append(
            f"{least}{texts}{counted(count.runs, 'run')}{f'; continue with --before {before}' if before else ''}"
        )
    return _print(document | {"count": counts}, lines, given, lag)


def _keep_search(store: Store, typed: str, filters: Iterable[str], what: str, seen: Iterable[str] = ()) -> None:
    """Puts a search on record, and the runs of which it shows texts."""
    caller = local_caller("cli")
    store.access_log.searched(typed, filters, what, caller)
    store.access_log.viewed(seen, "hits", caller)
    store.access_log.warn_if_lost()


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
        f"run {hit.run_id} ({status}{simulated}): {one_line(', '.join(where), _LINE)}",
        "    " + one_line("".join(f"[{piece}]" if is_found else piece for piece, is_found in hit.snippet), 2 * _LINE),
    ]


def ledger(
    words: Words = None,
    list_calls: Annotated[bool, typer.Option("--calls", help="List the calls, not only the servers.")] = False,
    limit: Limit = 20,
    before: Before = None,
    given: OfRuns = Filtered(),
) -> int:
    with given.indexed() as store:
        typed, asked = " ".join(words or ()), given.filters(store)
        with terminal_bar("reading the events of runs") as notify:
            found = store.search.receivers(typed, asked, notify)
        if typed.strip():
            _keep_search(store, typed, asked.names, "ledger")
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
        if list_calls:
            calls = store.search.calls(typed, asked, before=before, limit=limit)
            before = calls[-1].call_id if len(calls) == limit else None
            document |= {"calls": _plain(calls), "before": before}
            lines += [
                f"{call.at_utc or '—'}  run {call.run_id} {call.purpose} {call.path}: {call.agent} at {call.provider} "
                f"{call.host or 'this process'}, {f'{call.how}, ' if call.purpose != 'traces' else ''}{call.ended}"
                f"{', says the imported file' if call.imported else ''}"
                for call in calls
            ]
            lines += [f"continue with --before {before}"] if before is not None else []
        lag = store.search.lag()
    return _print(document, lines, given, lag)


def received(
    provider: Annotated[
        str,
        typer.Argument(metavar="PROVIDER", parser=_text, help="A provider, a host, or HOST:PORT; '' for any."),
    ],
    text: Annotated[str, typer.Argument(metavar="TEXT", parser=_text)],
    since: Since = None,
    until: Until = None,
    imported: Annotated[bool, typer.Option("--imported", help="Also say what the files of imported runs say.")] = False,
    given: options.DbJson = options.NONE,
) -> int:
    with given.existing_store() as store:
        with terminal_bar("reading runs") as notify:
            receipt = store.search.receipt(provider, text, since, until, notify, imported=imported)
        period = [name for name, day in (("since", since), ("until", until)) if day is not None]
        _keep_search(store, text, ["provider", *period], "received")
        said = {"answer": receipt.in_words, "rests_on": receipt.rests_on, "not_seen": receipt.not_seen}
        lines = [receipt.in_words]
        lines += [f"  run {at.run_id} {at.at_utc:%Y-%m-%d %H:%M} {at.in_words}" for at in receipt.received]
        lines += ["It rests on:", *(f"  {each}" for each in receipt.rests_on)]
        lines += ["Not seen:", *(f"  {each}" for each in receipt.not_seen)]
    return _print(receipt.model_dump(mode="json") | said, lines, given)


def spending(given: OfRuns = Filtered()) -> int:
    with given.indexed() as store:
        rows, lag = store.search.spending(given.filters(store)), store.search.lag()
    lines = [
        f"{row.day}  {row.agent:20}  {one_line(row.person, 30):30}  {row.calls:6,} calls  {row.tokens:10,} tokens  "
        + ("simulated" if row.simulated else f"${row.known_usd:.4f}")
        + (f" and {counted(row.unpriced, 'call')} of unknown cost" if row.unpriced and not row.simulated else "")
        for row in rows
    ]
    return _print({"spending": _plain(rows)}, lines or ["no calls"], given, lag)


def failures(
    by: Annotated[By, typer.Option(help="Count requests by this.", show_choices=True)] = "kind",
    purpose: Annotated[
        str,
        typer.Option(
            metavar="X",
            parser=_text,
            help=f"Only runs of this purpose, such as shadow; {ASKED}: what clients and people asked for; {ANY}: any.",
        ),
    ] = ASKED,
    given: OfRuns = Filtered(),
) -> int:
    """A request counts once in each kind that it has: failed, limited, empty, refused, looping, corrected."""
    with given.indexed() as store:
        narrowed = Narrowed(purpose=purpose)
        with store.search.catalogue(given.filters(store), narrowed) as catalogue:
            counts, rows = catalogue.counts(by), catalogue.by_code()
        lag = store.search.lag()
    lines = []
    for count in counts:
        glyph, word, _ = FAILURE_KINDS.get(count.name, ("·", count.name, "")) if by == "kind" else ("·", count.name, "")
        last = "" if count.last_utc is None else f", last {count.last_utc:%Y-%m-%d %H:%M} UTC"
        name = one_line(word, 40) or f"(no {by})"
        lines.append(f"{glyph} {name:20}  {counted(count.runs, 'request')}, {counted(count.times, 'time')}{last}")
    lines += [""] if rows else []
    for row in rows:
        last = f"; last: {one_line(row.said, _LINE)}" if row.said else ""
        lines.append(f"{row.code} ({row.kind}): {counted(row.times, 'time')} in {counted(row.runs, 'run')}{last}")
        lines += [f"    {one_line(task, _LINE)}" for task in row.tasks]
    document = {"by": by, "counts": _plain(counts), "failures": _plain(rows)}
    return _print(document, lines or ["no failures"], given, lag)


def shadow(since: Since = None, given: options.DbJson = options.NONE) -> int:
    """Forwarded requests are those of conductor serve --pass-through. Each figure has its 95 % interval."""
    from conductor_core.serving.counts import losses

    lost = losses(given.settings.data_folder)
    with given.existing_store() as store:
        traffic = store.shadow_traffic.read(since)
    return _print(figures.whole_document(traffic) | {"lost": lost}, _shadow_lines(traffic, lost), given)


def _shadow_lines(traffic: figures.Traffic, lost: Iterable[str]) -> list[str]:
    lines = [f"ever lost: {', '.join(lost)}"] if lost else []
    if not traffic.requests:
        return [*lines, "no forwarded requests: conductor serve --pass-through forwards and records them"]
    found = figures.report(traffic)
    forwarded = plural(found.forwarded, "forwarded request")
    counts = ", ".join([forwarded, f"{found.shadowed:,} with a shadow", *found.not_compared])
    lines = [*filter(None, [figures.sentence(found)]), counts, *lines]
    if found.simulated:
        lines.append(f"{found.simulated:,} of the compared requests have simulated workers")
    if found.judged:
        said = [f"{verdict} {_with_interval(share, 'share')}" for verdict, share in found.shares.items()]
        lines.append(f"the Conductor's answer, of {found.judged:,} judged: {', '.join(said)}")
    lines += filter(None, [found.asked_judges])
    lines += [""] * bool(found.lines) + [_figure_line(line) for line in found.lines]
    for by, what in (("forwarded model", "by model"), ("day", "by day")):
        parts = figures.forwarded_by(traffic.requests, by)
        lines += ["", f"forwarded, {what}:", *(_traffic_line(*part) for part in list(parts.items())[:_MOST_PARTS])]
        lines += [f"  and {len(parts) - _MOST_PARTS:,} more; --json has all"] if len(parts) > _MOST_PARTS else []
    return lines


def _figure_line(line: figures.Line) -> str:
    said = f"  {line.name.lower()} ({line.n:,}{f', {line.left_out:,} {line.why}' if line.left_out else ''}): "
    if line.forwarded is None or line.shadow is None:
        return f"{said}unknown"
    said += f"today {_with_interval(line.forwarded, line.kind)}, Conductor {_with_interval(line.shadow, line.kind)}"
    if line.difference is not None:
        points = " points" if line.kind == "share" else ""
        said += f", {_with_interval(line.difference, line.kind, sign=True)}{points}"
    if line.ratio is not None:
        ends = figures.spread(line.ratio, figures.times)
        said += f", {figures.times(line.ratio.value)}{f' ({ends})' if ends else ''}"
    return said


def _with_interval(estimate: Estimate, kind: figures.Kind, *, sign: bool = False) -> str:
    said = figures.written(estimate.value, kind, sign=sign)
    ends = figures.spread(estimate, lambda end: figures.written(end, kind, sign=sign))
    return f"{said} ({ends})" if ends else said


def _traffic_line(name: str, found: figures.Forwarded) -> str:
    half, most = (seconds(None if each is None else each.value) for each in (found.median_ms, found.p95_ms))
    parts = [plural(found.requests, "request"), f"{found.tokens:,} tokens", found.cost.in_line]
    parts += [f"{found.unpriced:,} of unknown price"] if found.unpriced else []
    parts += [f"median {half}", f"95th percentile {most}"]
    parts += [f"{number:,} {status}" for status, number in sorted(found.ended.items())]
    simulated = " (simulated)" if found.simulated == found.requests else ""
    said = ", ".join(parts)
    return f"  {one_line(f'{name[:80]}{simulated}: {said}', 400)}"


def _plain(models: Iterable[BaseModel]) -> list[dict[str, Any]]:
    return [model.model_dump(mode="json") for model in models]


def _print(document: dict[str, Any], lines: Iterable[str], given: options.Options, lag: Lag | None = None) -> int:
    """``lag``: what an answer by the index leaves out; it is said with it. Returns the exit code."""
    if given.as_json:
        if lag is not None:
            left_out = {"ended": lag.runs, "running": lag.running, "encrypted": lag.encrypted, "damaged": lag.damaged}
            document = document | {"not_searched": left_out}
        print_json(document, ascii_only=False)
        return 0
    print("\n".join(lines))
    if lag is not None and lag.in_words:
        print(f"not searched: {lag.in_words}", file=sys.stderr)
    return 0


# The access log.


def access(
    run_id: Annotated[
        str | None, typer.Argument(metavar="RUN_ID", parser=_text, help="Only entries about this run.")
    ] = None,
    actor: Annotated[
        str | None, typer.Option(metavar="X", parser=_text, help="Only what this person did: their id or name.")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            metavar="KIND", parser=_one_of(ACCESS_KINDS, "--kind"), help=f"Only this: {', '.join(ACCESS_KINDS)}."
        ),
    ] = None,
    searched: Annotated[
        str | None, typer.Option(metavar="WORDS", parser=_text, help="Only searches for all of these words.")
    ] = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 20,
    before: Before = None,
    given: options.DbJson = options.NONE,
) -> int:
    """It shows no content of a run, and reading it is not logged. The words of a search are kept as keyed digests."""
    with given.existing_store() as store:
        words = () if searched is None else store.access_log.digests(searched)
        if searched is not None and not words:
            raise BadInput(f"--searched {searched[:40]!r} has no word")
        of_run = None if run_id is None else store.access_log.resolve(run_id)
        asked = AccessQuery(run_id=of_run, actor=actor, kind=kind, since_utc=since, until_utc=until, words=words)
        page = store.access_log.read(asked, before, limit)
    if page.unreadable:
        damaged = counted(page.unreadable, "record is", "records are")
        print(f"{damaged} damaged: conductor log verify says which", file=sys.stderr)
    lines = [_access_line(record) for record in page.records] or ["no such entries"]
    lines += [] if page.before is None else [f"continue with --before {page.before}"]
    document = {"looks": [_access_document(record) for record in page.records], "before": page.before}
    return _print(document, lines, given)


def _access_document(record: AccessRecord) -> dict[str, Any]:
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


def _access_line(record: AccessRecord) -> str:
    when = "—" if record.at_utc is None else f"{record.at_utc:%Y-%m-%d %H:%M:%S}"
    session = f", browser {record.session}" if record.session else ""
    of = "" if record.run_id is None else f"run {record.run_id}: "
    return one_line(f"{when}  {of}{record.in_words}; by {record.caller.in_words}{session}", 400)
