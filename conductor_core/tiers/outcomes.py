"""Finds what both ways brought: pairs of a cheap worker's run and the Conductor's run of one request, with verdicts.

A pair is a run of one step by the cheap worker (forwarded unchanged, or given as a workflow) and a run that a Conductor
planned, where one is about the other, or a verdict compares them, or both were asked the same and have marks.

A request is easy if the cheap answer is right, or not worse than the Conductor's. Of several verdicts those of people
count before those of graders, and these before those of judges; of one judge the latest.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from pydantic import ValidationError

from conductor_core.chat.messages import Usage
from conductor_core.errors import InspectorError
from conductor_core.run.judgement import Judgement
from conductor_core.run.request import JUDGE_PURPOSE, REPLAY_PURPOSE, TIER_REASONS, WhatIsAsked
from conductor_core.tiers.classifier import Outcome
from conductor_core.tiers.features import Features, features, reason_for_conductor

LEAST_OUTCOMES, LEAST_OF_A_CLASS = 50, 10
"""A classifier is fitted on no fewer, and on no fewer easy ones and others."""
_PAGE = 500
_ORDER = ("person", "grader", "judge")
_MIRRORED = {"better": "worse", "same": "same", "worse": "better"}
NO_CHEAP = "no judged answer of the cheap worker alone"
NO_CONDUCTOR = "no judged answer of the Conductor"
NO_MARK = "only one of the two answers has a verdict"
CONTRADICTION = "the verdicts contradict each other"
GONE = "a run cannot be read"


class Listed(Protocol):
    """A run in a list (``storage.records.RunSummary``)."""

    @property
    def run_id(self) -> str: ...

    @property
    def created_at_utc(self) -> datetime | None: ...

    @property
    def task(self) -> str: ...

    @property
    def purpose(self) -> str: ...

    @property
    def conductor(self) -> str | None: ...

    @property
    def plan_only(self) -> bool: ...

    @property
    def agents(self) -> tuple[str, ...]: ...

    @property
    def steps(self) -> int: ...

    @property
    def usage(self) -> Usage: ...

    @property
    def cost_usd(self) -> float | None: ...

    @property
    def about_run_id(self) -> str | None: ...


class Created(Protocol):
    @property
    def request(self) -> WhatIsAsked: ...


class Records(Protocol):
    """Where runs are kept. Each method blocks and raises StoreError."""

    def runs(self, limit: int = 50, *, among: Collection[str] | None = None) -> Sequence[Listed]: ...

    def created(self, run_id: str) -> Created: ...


@dataclass(frozen=True, slots=True)
class Row:
    """One outcome with what the classifier reads of its request.

    ``text_sha256``: of all that was asked, so that equal requests are known.
    """

    outcome: Outcome
    features: Features
    text_sha256: str
    at_utc: datetime


@dataclass(frozen=True, slots=True)
class Found:
    """Attributes:
    left_out: how many requests with a verdict give no row, by the reason.
    """

    rows: tuple[Row, ...]
    left_out: Mapping[str, int]


def find(records: Records, judgements: Iterable[Judgement], worker: str, since: datetime | None = None) -> Found:
    """Returns the outcomes for the cheap ``worker``, of requests that came at ``since`` or later. Blocks.

    Raises: StoreError.
    """
    marks = _Marks(judgements)
    known = {each.run_id: each for each in _listed(records, marks.run_ids)}
    more = {each.about_run_id for each in known.values() if each.about_run_id is not None} - set(known)
    known |= {each.run_id: each for each in _listed(records, more)}
    left_out: Counter[str] = Counter()
    rows = []
    for cheap, full in _pairs(known, marks, worker, since, left_out):
        made = _row(records, cheap, full, marks)
        if isinstance(made, str):
            left_out[made] += 1
        else:
            rows.append(made)
    return Found(tuple(rows), dict(sorted(left_out.items())))


def alone(records: Records, judgements: Iterable[Judgement]) -> list[str]:
    """Returns the workers that answered a judged request alone, the most frequent first. Blocks. Raises: StoreError."""
    known = {each.run_id: each for each in _listed(records, _Marks(judgements).run_ids)}
    about = {each.about_run_id for each in known.values() if each.about_run_id is not None} - set(known)
    runs = [*known.values(), *_listed(records, about)]
    counts = Counter(run.agents[0] for run in runs if len(run.agents) == 1 and _is_cheap(run, run.agents[0]))
    return [worker for worker, _ in counts.most_common()]


class _Marks:
    """Verdicts about whole answers that count: by run, and by pair of runs."""

    def __init__(self, judgements: Iterable[Judgement]) -> None:
        latest: dict[object, Judgement] = {}
        for each in sorted(judgements, key=lambda each: each.id):
            if each.path is None:
                latest[each.run_id, each.compared_with, each.judge] = each
        self._alone: dict[str, list[tuple[str, str]]] = defaultdict(list)
        self._compared: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
        for each in latest.values():
            if each.mark in ("right", "wrong"):
                self._alone[each.run_id].append((each.by, each.mark))
            elif each.mark is not None and each.compared_with is not None:
                self._compared[each.run_id, each.compared_with].append((each.by, each.mark))
                self._compared[each.compared_with, each.run_id].append((each.by, _MIRRORED[each.mark]))

    @property
    def run_ids(self) -> set[str]:
        return {*self._alone, *(run_id for pair in self._compared for run_id in pair)}

    @property
    def pairs(self) -> Collection[tuple[str, str]]:
        return tuple(self._compared)

    def alone(self, run_id: str) -> str | None:
        """Returns ``right``, ``wrong``, or why neither counts; None: nobody said either."""
        return _agreed(self._alone.get(run_id, []))

    def compared(self, run_id: str, other: str) -> str | None:
        """Returns how a run is compared with another one. ``same`` and ``better`` by two judges count as ``same``."""
        found = [(by, "worse" if mark == "worse" else mark) for by, mark in self._compared.get((run_id, other), [])]
        return _agreed(found)


def _agreed(found: Sequence[tuple[str, str]]) -> str | None:
    for by in _ORDER:
        said = {mark for who, mark in found if who == by}
        if said:
            return said.pop() if len(said) == 1 else CONTRADICTION
    return None


def _listed(records: Records, run_ids: Collection[str]) -> Iterator[Listed]:
    ordered = sorted(run_ids)
    for place in range(0, len(ordered), _PAGE):
        yield from records.runs(_PAGE, among=ordered[place : place + _PAGE])


# Pairs.


def _is_cheap(run: Listed, worker: str) -> bool:
    return run.conductor is None and run.steps == 1 and run.agents == (worker,) and run.purpose not in _NOT_ASKED


def _is_full(run: Listed) -> bool:
    return run.conductor is not None and not run.plan_only and run.purpose not in _NOT_ASKED


_NOT_ASKED = (REPLAY_PURPOSE, JUDGE_PURPOSE)


def _pairs(
    known: Mapping[str, Listed], marks: _Marks, worker: str, since: datetime | None, left_out: Counter[str]
) -> Iterator[tuple[Listed, Listed]]:
    """Yields each cheap run once, with one run of a Conductor; counts judged runs that are in no pair."""
    linked: dict[str, str] = {}
    for first, second in _links(known, marks):
        for cheap, full in ((first, second), (second, first)):
            if _is_cheap(known[cheap], worker) and _is_full(known[full]):
                linked.setdefault(cheap, full)
    taken = set(linked.values())
    by_task: dict[str, list[str]] = defaultdict(list)
    for run_id, run in sorted(known.items()):
        if _is_full(run) and run_id not in taken and marks.alone(run_id) is not None:
            by_task[run.task].append(run_id)
    cheap_runs = [each for _, each in sorted(known.items()) if _is_cheap(each, worker)]
    paired: set[str] = set()
    for run in cheap_runs:
        if since is not None and (run.created_at_utc is None or run.created_at_utc < since):
            paired |= {run.run_id, *filter(None, [linked.get(run.run_id)])}
            continue
        other = linked.get(run.run_id)
        if other is None and marks.alone(run.run_id) is not None and by_task[run.task]:
            other = by_task[run.task].pop(0)
        if other is None:
            left_out[NO_CONDUCTOR] += 1
        else:
            paired |= {run.run_id, other}
            yield run, known[other]
    for run in known.values():
        late = since is None or (run.created_at_utc is not None and run.created_at_utc >= since)
        if _is_full(run) and run.run_id not in paired and late:
            left_out[NO_CHEAP] += 1


def _links(known: Mapping[str, Listed], marks: _Marks) -> Iterator[tuple[str, str]]:
    for run in known.values():
        if run.about_run_id in known and run.about_run_id is not None:
            yield run.run_id, run.about_run_id
    yield from (pair for pair in sorted(marks.pairs) if pair[0] in known and pair[1] in known)


# Rows.


def _row(records: Records, cheap: Listed, full: Listed, marks: _Marks) -> Row | str:
    """Returns the outcome of a pair, or why it gives none."""
    verdict = _verdict(cheap.run_id, full.run_id, marks)
    if isinstance(verdict, str):
        return verdict
    try:
        asked, other = records.created(cheap.run_id).request, records.created(full.run_id).request
    except InspectorError:
        return GONE
    if asked.task != other.task:
        return "the two runs were not asked the same"
    if reason := reason_for_conductor(asked):
        return f"always to the Conductor: {TIER_REASONS[reason]}"
    if cheap.created_at_utc is None:
        return GONE
    easy, good = verdict
    try:
        outcome = Outcome(
            cheap_run_id=cheap.run_id,
            conductor_run_id=full.run_id,
            easy=easy,
            conductor_good=good,
            cheap_usd=cheap.cost_usd,
            conductor_usd=full.cost_usd,
            cheap_tokens=_tokens(cheap),
            conductor_tokens=_tokens(full),
        )
    except ValidationError:
        return GONE
    said = "\0".join((asked.system, *(f"{turn.role} {turn.text}" for turn in asked.turns_before), asked.task))
    digest = hashlib.sha256(said.encode("utf-8", "replace")).hexdigest()
    return Row(outcome, features(asked.task, asked.turns_before), digest, cheap.created_at_utc)


def _verdict(cheap: str, full: str, marks: _Marks) -> tuple[bool, bool] | str:
    """Returns whether the cheap answer is good enough, and whether the Conductor's is; or why that is not known."""
    alone = marks.alone(cheap), marks.alone(full)
    compared = marks.compared(cheap, full)
    if CONTRADICTION in (*alone, compared):
        return CONTRADICTION
    if None not in alone:
        return alone[0] == "right", alone[1] == "right"
    if compared is None:
        return NO_MARK
    return compared != "worse", compared != "better"


def _tokens(run: Listed) -> int:
    return run.usage.input_tokens + run.usage.output_tokens
