"""Compares the events of a database with those that its history says it has, and names what was done to them.

A row is tried against an entry of the history by content: with the place, sequence and previous leaf that the history
gives, do the row's kind, time and payload make the entry's leaf? So one change is one finding, and what was moved is
found where it went.
"""

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from storage.evidence.history import Events, Report, counted
from storage.merkle.formats import event_leaf, text_of

_WINDOW = 64
"""How many rows and entries around a difference are tried to find where both agree again."""
_FEW_WAYS = 20
"""How many ways around a difference are always tried: the nearest."""
_TRIES, _TRIES_AN_EVENT = 1_000_000, 4
"""How often all ways are tried in one check, at least, and for each event: the time grows with the log, and not with
what somebody did to it. Each try takes about 2 us."""
_FAR = 20_000
"""How many later entries are tried for one row if nothing near it fits, most of all after a long gap."""
_MOST_PAIRS = 250_000
_TICK_ROWS = 0x4000


class Row(NamedTuple):
    """An event as it lies in the database. ``digest``: of its payload, in hexadecimal. ``position``: of its leaf."""

    sequence: int
    run_id: bytes
    kind: bytes
    at_utc: bytes
    digest: bytes
    position: object = None


@dataclass
class Differences:
    """``missing``: events of the history without a row. ``extra``: rows without an event.

    ``misplaced``: events whose row names another leaf.
    """

    missing: list[int] = field(default_factory=list)
    extra: list[Row] = field(default_factory=list)
    misplaced: list[int] = field(default_factory=list)
    shift: int = 0


class Aligner:
    """Compares rows with the ``events`` of a history."""

    def __init__(self, origin: bytes, events: Events) -> None:
        self._origin, self.events = origin, events
        self._far_tries = 5
        self._tries = _TRIES + _TRIES_AN_EVENT * len(events)

    def fits(self, index: int, row: Row) -> bool:
        """Whether the content of ``row`` is that of event ``index``, whatever run and sequence the row claims."""
        events = self.events
        _, _, kind, at_utc, digest, _ = row
        if b"\n" in kind or b"\n" in at_utc:
            return False
        place, sequence, previous = events.places[index], events.sequence(index), events.previous_leaf(index)
        leaf = event_leaf(self._origin, place, sequence, digest, previous, at_utc, kind, events.name(index))
        return leaf == events.leaf(index)

    def align(self, rows: Iterable[Row], tick: Callable[[int], None]) -> Differences:
        """Goes through the rows, in order of sequence, and the events side by side."""
        events, found = self.events, Differences()
        waiting: deque[Row] = deque()
        source = iter(rows)
        index = seen = 0
        end = len(events)
        while (row := waiting.popleft() if waiting else next(source, None)) is not None:
            in_place = index < end and row.sequence - found.shift == events.sequence(index)
            if in_place and self._same(index, row):
                if row.position != events.positions[index]:
                    found.misplaced.append(index)
                index += 1
            elif index >= end:
                found.extra.append(row)
            else:
                waiting.appendleft(row)
                waiting.extend(islice(source, max(0, _WINDOW - len(waiting))))
                skipped, dropped = self._again(index, waiting, found.shift)
                found.missing.extend(range(index, index + skipped))
                found.extra.extend(waiting.popleft() for _ in range(dropped))
                index += skipped
                if waiting and index < end:
                    found.shift = waiting[0].sequence - events.sequence(index)
            seen += 1
            if not seen % _TICK_ROWS:
                tick(seen)
        found.missing.extend(range(index, end))
        return found

    def _again(self, index: int, rows: "deque[Row]", shift: int) -> tuple[int, int]:
        """Returns how many events and rows to pass over until both agree again; at least one."""
        events = self.events
        near = list(islice(rows, _WINDOW))
        gap = near[0].sequence - shift - events.sequence(index)
        left = len(events) - index
        if 0 < gap < left and self._same(index + gap, near[0]):
            return gap, 0
        for skip, drop in self._ways(min(_WINDOW, left), len(near)):
            if self._same(index + skip, near[drop]):
                return skip, drop
        if self._far_tries:
            self._far_tries -= 1
            for skip in range(_WINDOW, min(_FAR, left)):
                if self._same(index + skip, near[0]):
                    return skip, 0
        if gap > 0:
            return min(gap, left), 0
        return (1, 1) if gap == 0 else (0, 1)

    def _ways(self, events: int, rows: int) -> Iterator[tuple[int, int]]:
        """Yields how many events and rows to pass over: near ways always, others as long as there are tries left."""
        ways = ((skip, drop) for skip, drop in _ways(events, rows) if skip < events and drop < rows)
        yield from islice(ways, _FEW_WAYS)
        for way in ways:
            if not self._tries:
                return
            self._tries -= 1
            yield way

    def _same(self, index: int, row: Row) -> bool:
        return row.run_id == self.events.name(index) and self.fits(index, row)


def _ways(most_skipped: int, most_dropped: int) -> Iterator[tuple[int, int]]:
    """Yields numbers of events and rows to pass over: as many of both, then more of either; the near ones first."""
    furthest = max(most_skipped, most_dropped)
    for first, last, least, most in ((1, 9, 1, 5), (9, furthest, 5, most_skipped + most_dropped)):
        yield from ((both, both) for both in range(first, min(last, furthest)))
        for total in range(least, min(most, most_skipped + most_dropped)):
            yield from ((skip, total - skip) for skip in range(total + 1) if 2 * skip != total)


def name_differences(aligner: Aligner, found: Differences, report: Report, gone: Container[str], end: int) -> None:
    """Adds a finding for each difference.

    ``gone``: runs that the program deleted, on record. ``end``: how many of the events the log should have.
    """
    events = aligner.events
    missing, extra = found.missing, found.extra
    moved = _moved(aligner, missing, extra)
    for index, row in moved:
        run_id, sequence = events.run(index), events.sequence(index)
        if row.run_id == run_id.encode():
            what = f"the event is at sequence {row.sequence} instead"
            report.add("reordered", run_id, sequence, what)
        else:
            what = f"the event is in run {text_of(row.run_id)}, at sequence {row.sequence}"
            report.add("swapped", run_id, sequence, what)
    taken, used = {index for index, _ in moved}, {id(row) for _, row in moved}
    missing = [index for index in missing if index not in taken]
    by_sequence = {row.sequence: row for row in extra if id(row) not in used}
    rest = []
    for index in missing:
        here = by_sequence.get(events.sequence(index))
        if here is None or here.run_id != events.run(index).encode():
            rest.append(index)
            continue
        del by_sequence[here.sequence]
        used.add(id(here))
        what = "kind, time or content of the event are not those that were written"
        report.add("edited", events.run(index), events.sequence(index), what)
    _name_missing(events, rest, end, len(found.extra) == len(used), report, gone)
    for row in extra:
        if id(row) not in used:
            report.add("inserted", text_of(row.run_id), row.sequence, "no such event was ever written")


def _moved(aligner: Aligner, missing: list[int], extra: list[Row]) -> list[tuple[int, Row]]:
    """Returns the events that are there as another row's content."""
    if len(missing) * len(extra) > _MOST_PAIRS:
        return []
    rest, moved = list(extra), []
    for index in missing:
        at = next((at for at, row in enumerate(rest) if aligner.fits(index, row)), None)
        if at is not None:
            moved.append((index, rest.pop(at)))
    return moved


def _name_missing(
    events: Events, missing: list[int], end: int, tail: bool, report: Report, gone: Container[str]
) -> None:
    """Names events without a row. ``tail``: whether those at the end can be a cut, because nothing replaces them."""
    lost: dict[str, list[int]] = {}
    for index in missing:
        if events.run(index) not in gone:
            lost.setdefault(events.run(index), []).append(index)
    if not lost:
        return
    had: dict[str, int] = {}
    for index in range(end):
        if (run := events.run(index)) in lost:
            had[run] = had.get(run, 0) + 1
    whole = {run for run in lost if len(lost[run]) == had[run]}
    last = range(end_of_missing(events, missing, end), end) if tail else range(0)
    cut = [index for index in last if events.run(index) not in gone]
    if cut and {events.run(index) for index in cut} <= whole and (len(whole) == 1 or len(cut) < len(missing)):
        cut = []  # runs that were removed and happen to be the last
    if cut:
        what = f"the log was cut here: this event and all after it are missing, {len(cut)} in all"
        report.add("truncated", events.run(cut[0]), events.sequence(cut[0]), what)
    for run_id, indices in lost.items():
        if run_id in whole and not cut:
            what = f"the run with its {counted(had[run_id], 'event')} was removed without a record of a deletion"
            report.add("run_removed", run_id, events.sequence(indices[0]), what)
            continue
        for index in indices:
            if not cut or index < cut[0]:
                report.add("deleted", run_id, events.sequence(index), "the event is missing")


def end_of_missing(events: Events, missing: list[int], end: int | None = None) -> int:
    """Returns the first of the missing events after which there is none before ``end``; else ``end``."""
    here, end = set(missing), len(events) if end is None else end
    while end and end - 1 in here:
        end -= 1
    return end
