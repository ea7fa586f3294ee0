"""Compares forwarded requests with the Conductor's own runs of them: what is right, how fast, at what cost.

Each figure says of how many requests it is, and has its 95 % interval. Nothing is left out silently: what is no part of
a figure is counted beside it. ``storage.shadow`` reads the requests.
"""

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

from conductor_core.analysis.intervals import (
    Estimate,
    Pairs,
    mean_of,
    paired_proportions,
    quantile,
    ratio_of,
    ratio_of_means,
    wilson,
)
from conductor_core.formats import dollars, plural, seconds
from conductor_core.run.costs import Cost

Verdict = Literal["better", "same", "worse"]
VERDICTS: tuple[Verdict, ...] = ("better", "same", "worse")
"""Of the Conductor's answer, compared with the forwarded request's."""
ENDINGS = ("failed", "limited", "refused", "filtered", "cut", "empty")
"""How an answer may have ended otherwise than whole. ``limited``: it failed because of a provider's rate limit."""
_WITHOUT_ANSWER = {"failed", "limited", "filtered", "empty"}
_NOT_ENDED = {"queued", "running", "waiting"}
CALLED = "called"
"""How a shadow ended that came to a call of its client's tools: nobody carries it out."""
_COMPARED = {"completed", CALLED, *ENDINGS}


class Answer(NamedTuple):  # quicker to make than a frozen dataclass, and a page makes twenty thousand
    """One run: a forwarded request, or the Conductor's run of it.

    Attributes:
        status: as of a run, or ``limited``, or ``called``.
        by: who answered: the model of a forwarded request, the Conductor of a shadow.
        cost_usd: None: a price is unknown. known_usd: of what has a price.
        duration_ms: None while it runs.
        right: None: nobody has said so.
    """

    run_id: str
    at_utc: datetime
    status: str
    by: str
    tokens: int = 0
    cost_usd: float | None = None
    known_usd: float = 0.0
    duration_ms: float | None = None
    simulated: bool = False
    right: bool | None = None

    @property
    def ended(self) -> bool:
        return self.status not in _NOT_ENDED


class Request(NamedTuple):
    """A forwarded request.

    Attributes:
        shadow: the Conductor's run of it; None: it has none.
        compared: what was said of the shadow in comparison; None: nothing.
        disputed: whether two judges contradict each other about it.
        judged_usd: what asking judges cost; None: unknown. judged_known_usd: of what has a price.
        unread: of how many of these questions the judge's answer was no verdict.
    """

    forwarded: Answer
    shadow: Answer | None = None
    compared: Verdict | None = None
    disputed: bool = False
    judgings: int = 0
    judged_usd: float | None = 0.0
    judged_known_usd: float = 0.0
    unread: int = 0

    @property
    def whole(self) -> bool:
        """Whether both runs came to an end of their own, so that they can be compared."""
        return self.shadow is not None and {self.forwarded.status, self.shadow.status} <= _COMPARED

    @property
    def rights(self) -> tuple[bool, bool] | None:
        """Whether each answer is right; None: that is not known of both.

        A run without an answer counts as wrong where the other one was judged: else failures would look like nothing.
        """
        if self.shadow is None:
            return None
        first, second = _right(self.forwarded, self.shadow), _right(self.shadow, self.forwarded)
        return None if first is None or second is None else (first, second)

    @property
    def verdict(self) -> Verdict | None:
        """What was said in comparison, else what follows from right and wrong."""
        if self.compared is not None or (rights := self.rights) is None:
            return self.compared
        return "same" if rights[0] == rights[1] else "better" if rights[1] else "worse"


def _right(own: Answer, other: Answer) -> bool | None:
    if own.right is None and own.status in _WITHOUT_ANSWER and other.right is not None:
        return False
    return own.right


@dataclass(frozen=True, slots=True)
class Traffic:
    """All forwarded requests of a period, the newest first.

    Attributes:
        gone: shadows whose forwarded run was deleted or erased.
        repeated: further shadows of a request that has several; the newest counts.
    """

    requests: tuple[Request, ...] = ()
    gone: int = 0
    repeated: int = 0


# What is compared.

Kind = Literal["share", "ms", "tokens", "usd"]


@dataclass(frozen=True, slots=True)
class Line:
    """One figure of both sides, as in a row of a table.

    Attributes:
        n: of how many requests it is. left_out: how many of the compared requests it lacks; why: the reason.
        forwarded, shadow: the figure of each. A share is 0 to 1; the others have the unit that ``kind`` names.
        difference: of the shadow to the forwarded request, in the same unit. ratio: how many times as much it is.
    """

    name: str
    kind: Kind
    n: int
    forwarded: Estimate | None
    shadow: Estimate | None
    difference: Estimate | None = None
    ratio: Estimate | None = None
    left_out: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """The figures of some traffic.

    Attributes:
        forwarded, shadowed: requests, and how many of them have a shadow.
        compared: of how many both runs have ended. unfinished: shadows that wait or run.
        broken_off: shadows, or forwarded runs that have one, that were cancelled, denied or interrupted.
        gone, repeated: as in ``Traffic``.
        judged: compared requests with a verdict. verdicts: how many of each.
        preferred: how much more often the shadow is better than worse.
        right, times, amounts, endings: the lines of the table, in this order. ``right`` is None without marks.
        judging: what judges cost. judgings: how often one was asked. unread: how often that brought no verdict.
        simulated: how many of the compared requests have a simulated worker.
    """

    forwarded: int = 0
    shadowed: int = 0
    compared: int = 0
    unfinished: int = 0
    broken_off: int = 0
    gone: int = 0
    repeated: int = 0
    judged: int = 0
    verdicts: dict[Verdict, int] = field(default_factory=dict)
    shares: dict[Verdict, Estimate] = field(default_factory=dict)
    preferred: Estimate | None = None
    right: Line | None = None
    times: tuple[Line, ...] = ()
    amounts: tuple[Line, ...] = ()
    endings: tuple[Line, ...] = ()
    judgings: int = 0
    judging: Cost = field(default_factory=Cost)
    unread: int = 0
    simulated: int = 0

    @property
    def lines(self) -> tuple[Line, ...]:
        return (*([] if self.right is None else [self.right]), *self.times, *self.amounts, *self.endings)

    @property
    def asked_judges(self) -> str:
        """Says how often judges were asked, what that cost, and how often it brought no verdict; empty: never."""
        unread = f", {self.unread:,} without a verdict" if self.unread else ""
        return f"{plural(self.judgings, 'question')} to judges{unread}: {self.judging.in_line}" if self.judgings else ""

    @property
    def not_compared(self) -> tuple[str, ...]:
        """Says what is left out of the comparison, in a few words each."""
        parts = {
            "without a shadow": self.forwarded - self.shadowed,
            "not ended yet": self.unfinished,
            "broken off": self.broken_off,
            "of a deleted request": self.gone,
            "repeated": self.repeated,
        }
        return tuple(f"{number:,} {words}" for words, number in parts.items() if number)


def report(traffic: Traffic) -> Report:
    requests = traffic.requests
    shadowed = [each for each in requests if each.shadow is not None]
    compared = [each for each in shadowed if each.whole]
    unfinished = sum(each.shadow is not None and not each.shadow.ended for each in shadowed)
    verdicts = Counter(verdict for each in compared if (verdict := each.verdict) is not None)
    judged = verdicts.total()
    found: dict[Verdict, int] = {verdict: verdicts[verdict] for verdict in VERDICTS}
    pairs = Pairs(first=found["better"], second=found["worse"], neither=found["same"])
    known = [rights for each in compared if (rights := each.rights) is not None]
    return Report(
        forwarded=len(requests),
        shadowed=len(shadowed),
        compared=len(compared),
        unfinished=unfinished,
        broken_off=len(shadowed) - len(compared) - unfinished,
        gone=traffic.gone,
        repeated=traffic.repeated,
        judged=judged,
        verdicts=found if judged else {},
        shares={verdict: _share(number, judged) for verdict, number in found.items()} if judged else {},
        preferred=_difference(pairs) if judged else None,
        right=_shares("Right", known, len(compared) - len(known), "not marked") if known else None,
        times=_times(compared),
        amounts=_amounts(compared),
        endings=_endings(compared),
        judgings=sum(each.judgings for each in requests),
        judging=sum((Cost(each.judged_usd, each.judged_known_usd) for each in requests), Cost()),
        unread=sum(each.unread for each in requests),
        simulated=sum(each.forwarded.simulated or each.shadow.simulated for each in compared if each.shadow),
    )


def _share(happened: float, count: float) -> Estimate:
    found = wilson(happened, count)
    return Estimate(found.rate, found.low, found.high)


def _difference(pairs: Pairs) -> Estimate:
    found = paired_proportions(pairs)
    return Estimate(found.mean, found.low, found.high)


def _shares(name: str, outcomes: Sequence[tuple[bool, bool]], left_out: int = 0, why: str = "") -> Line:
    """``outcomes``: of each request, whether it happened to the forwarded one and to the shadow."""
    table, n = Counter(outcomes), len(outcomes)
    both, only_forwarded, only_shadow = table[True, True], table[True, False], table[False, True]
    apart = _difference(Pairs(both, only_shadow, only_forwarded, table[False, False]))
    shares = (_share(both + only_forwarded, n), _share(both + only_shadow, n))
    return Line(name, "share", n, *shares, apart, left_out=left_out, why=why if left_out else "")


def _endings(compared: Sequence[Request]) -> tuple[Line, ...]:
    """Returns the shares of the endings that occur; ``failed`` holds the limited ones, too."""
    lines = []
    for ending in ENDINGS:
        of = {"failed", "limited"} if ending == "failed" else {ending}
        outcomes = [(each.forwarded.status in of, each.shadow.status in of) for each in compared if each.shadow]
        if any(map(any, outcomes)):
            lines.append(_shares(_ENDING_NAMES[ending], outcomes))
    return tuple(lines)


_ENDING_NAMES = {
    "failed": "Failed", "limited": "Rate-limited", "refused": "Refused", "filtered": "Filtered", "cut": "Cut off",
    "empty": "Empty",
}  # fmt: skip
_PAIR = tuple[float, float]


def _values(
    compared: Sequence[Request], of: Callable[[Answer], float | None], among: Callable[[Answer], bool]
) -> list[_PAIR]:
    found = []
    for each in compared:
        if each.shadow is None or not (among(each.forwarded) and among(each.shadow)):
            continue
        first, second = of(each.forwarded), of(each.shadow)
        if first is not None and second is not None:
            found.append((first, second))
    return found


def _times(compared: Sequence[Request]) -> tuple[Line, ...]:
    """Times are of requests that both answered: one that fails at once is not a fast one."""
    known = _values(compared, lambda answer: answer.duration_ms, lambda answer: answer.status not in _WITHOUT_ANSWER)
    if not known:
        return ()
    left_out = len(compared) - len(known)
    firsts, others = [first for first, _ in known], [second for _, second in known]
    lines = []
    for name, share in (("Median time", 0.5), ("95th percentile", 0.95)):
        first, second = quantile(firsts, share), quantile(others, share)
        why = "unanswered" if left_out else ""
        lines.append(Line(name, "ms", len(known), first, second, None, ratio_of(first, second), left_out, why))
    return tuple(lines)


def _amounts(compared: Sequence[Request]) -> tuple[Line, ...]:
    tokens = _values(compared, lambda answer: answer.tokens, lambda answer: True)
    usd = _values(compared, lambda answer: answer.cost_usd, lambda answer: True)
    unpriced = len(compared) - len(usd)
    return (_means("Tokens", "tokens", tokens), _means("Cost", "usd", usd, unpriced)) if compared else ()


def _means(name: str, kind: Kind, pairs: Sequence[_PAIR], unpriced: int = 0) -> Line:
    why = "of unknown price" if unpriced else ""
    if not pairs:
        return Line(name, kind, 0, None, None, left_out=unpriced, why=why)
    firsts, others = [first for first, _ in pairs], [second for _, second in pairs]
    apart = mean_of([second - first for first, second in pairs])
    ratio = ratio_of_means(firsts, others)
    return Line(name, kind, len(pairs), mean_of(firsts), mean_of(others), apart, ratio, unpriced, why)


# Parts of the traffic.

BREAKDOWNS: dict[str, Callable[[Request], str]] = {
    "day": lambda request: f"{request.forwarded.at_utc:%Y-%m-%d}",
    "forwarded model": lambda request: request.forwarded.by,
    "Conductor": lambda request: "" if request.shadow is None else request.shadow.by,
}
"""By what the figures are given apart, and what of it a request belongs to; empty: to none."""


def _grouped(requests: Iterable[Request], by: str) -> dict[str, list[Request]]:
    """Returns the requests of each part; days the newest first, others those with the most requests first."""
    groups: dict[str, list[Request]] = {}
    for each in requests:
        groups.setdefault(BREAKDOWNS[by](each), []).append(each)
    if by == "day":
        return dict(sorted(groups.items(), reverse=True))
    return dict(sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])))


def parts(traffic: Traffic, by: str) -> dict[str, Report]:
    return {name: report(Traffic(tuple(group))) for name, group in _grouped(traffic.requests, by).items() if name}


# Today's traffic, without any comparison.


@dataclass(frozen=True, slots=True)
class Forwarded:
    """What was forwarded of a part of the traffic.

    Attributes:
        tokens: of all. cost: of all. unpriced: how many have a part of unknown price.
        median_ms, p95_ms: of those with an answer; None: there is none.
        ended: how many ended otherwise than with a whole answer, by status.
    """

    requests: int
    tokens: int
    cost: Cost
    unpriced: int
    median_ms: Estimate | None
    p95_ms: Estimate | None
    ended: dict[str, int]
    simulated: int


def forwarded(requests: Iterable[Request]) -> Forwarded:
    answers = [each.forwarded for each in requests]
    times = [
        each.duration_ms
        for each in answers
        if each.duration_ms is not None and each.status in _COMPARED - _WITHOUT_ANSWER
    ]
    return Forwarded(
        requests=len(answers),
        tokens=sum(each.tokens for each in answers),
        cost=sum((Cost(each.cost_usd, each.known_usd) for each in answers), Cost()),
        unpriced=sum(each.cost_usd is None for each in answers),
        median_ms=quantile(times, 0.5) if times else None,
        p95_ms=quantile(times, 0.95) if times else None,
        ended=dict(Counter(each.status for each in answers if each.status != "completed")),
        simulated=sum(each.simulated for each in answers),
    )


def forwarded_by(requests: Sequence[Request], by: str) -> dict[str, Forwarded]:
    """Returns what was forwarded, by ``day`` or by ``forwarded model``."""
    return {name: forwarded(group) for name, group in _grouped(requests, by).items()}


# Which requests a list shows.

FILTERS: dict[str, Callable[[Request], bool]] = {
    "all": lambda request: request.shadow is not None,
    "worse": lambda request: request.verdict == "worse",
    "better": lambda request: request.verdict == "better",
    "disputed": lambda request: request.disputed,
    "not judged": lambda request: request.whole and request.verdict is None,
    "failed": lambda request: (
        request.shadow is not None and request.shadow.ended and request.shadow.status not in ("completed", CALLED)
    ),
}
"""``failed``: the shadow ended otherwise than with a whole answer."""


# In words.


def written(value: float, kind: Kind, *, sign: bool = False) -> str:
    """Writes a figure with its unit; ``sign``: as a difference, shares in points."""
    if kind == "share":
        return _signed(f"{100 * value:+.1f}").replace("+0.0", "0.0") if sign else f"{100 * value:.1f} %"
    plus = ("−" if value < 0 else "+" if value > 0 else "") if sign else ""
    value = abs(value) if sign else value
    return plus + {"ms": seconds, "tokens": lambda tokens: f"{tokens:,.0f}", "usd": dollars}[kind](value)


def times(value: float) -> str:
    """Writes a ratio: ``2.1×``."""
    return f"{value:.2f}×" if value < 1 else f"{value:.1f}×" if value < 100 else f"{value:,.0f}×"


def spread(estimate: Estimate, write: Callable[[float], str]) -> str:
    """Writes the interval: ``2 to 10``; ``from 2`` if too few values tell the other end; nothing if it has no width."""
    low, high = (None if end is None else write(end) for end in (estimate.low, estimate.high))
    if low is None or high is None:
        return f"from {low}" if low is not None else f"up to {high}" if high is not None else ""
    return f"{low} to {high}" if low != high else ""


def _signed(number: str) -> str:
    return number.replace("-", "−")


def sentence(found: Report) -> str:
    """Says in one sentence what the comparison shows, with the interval of what is most in question."""
    if not found.compared:
        return ""
    pace = next((line.ratio for line in found.times), None)
    took = "" if pace is None else f"took {times(pace.value)[:-1]} times as long"
    clauses = [clause for clause in (_quality(found), took, _price(found)) if clause]
    listed = " and ".join(filter(None, (", ".join(clauses[:-1]), *clauses[-1:]))) or "came to an end"
    said = f"On {plural(found.compared, 'compared request')} the Conductor {listed}"
    return f"{said}." if found.judged else f"{said}; no answer is judged yet."


def _quality(found: Report) -> str:
    if found.right is not None and 2 * found.right.n >= found.judged:
        apart, n, about, often = found.right.difference, found.right.n, "was right about as often", "was right"
    else:
        apart, n, about = found.preferred, found.judged, "was better about as often as worse"
        often = "was better than worse"
    if apart is None or apart.low is None or apart.high is None:
        return ""
    among = "" if n == found.compared else f" on the {n:,} that are judged"
    if apart.low <= 0 <= apart.high:
        return f"{about}{among} ({_points(apart.low)} to {_points(apart.high)} points)"
    ends = (apart.low, apart.high) if apart.value > 0 else (-apart.high, -apart.low)
    more = "more" if apart.value > 0 else "less"
    return f"{often} {_points(abs(apart.value))} points {more} often{among} ({_points(ends[0])} to {_points(ends[1])})"


def _points(share: float) -> str:
    said = f"{100 * share:.0f}"
    return "0" if said == "-0" else _signed(said)


def _price(found: Report) -> str:
    line = next((line for line in found.amounts if line.kind == "usd"), None)
    if line is None:
        return ""
    if line.forwarded is None or line.shadow is None:
        return "has an unknown cost"
    unknown = f" ({line.left_out:,} of unknown price left out)" if line.left_out else ""
    if line.ratio is not None:
        return f"cost {times(line.ratio.value)[:-1]} times as much{unknown}"
    if line.shadow.value == line.forwarded.value:
        return f"cost nothing, as today{unknown}"
    return f"cost {dollars(line.shadow.value)} a request instead of {dollars(line.forwarded.value)}{unknown}"


# For other programs.


def document(found: Report) -> dict[str, Any]:
    """Returns the figures as JSON values; what is unknown is null."""
    whole = asdict(found)
    for name in ("right", "times", "amounts", "endings"):
        del whole[name]
    more = {"judging": _cost(found.judging), "lines": [asdict(line) for line in found.lines]}
    return {"sentence": sentence(found), **whole, **more}


def _cost(cost: Cost) -> dict[str, float | None]:
    return {"usd": cost.usd, "known_usd": cost.known_usd}


def whole_document(traffic: Traffic) -> dict[str, Any]:
    """Returns all figures of the traffic, of its parts, and what was forwarded of each, as JSON values."""
    return {
        **document(report(traffic)),
        "by": {by: {name: document(each) for name, each in parts(traffic, by).items()} for by in BREAKDOWNS},
        "traffic": {
            by: {
                name: asdict(each) | {"cost": _cost(each.cost)}
                for name, each in forwarded_by(traffic.requests, by).items()
            }
            for by in ("forwarded model", "day")
        },
    }


_VERDICTS = {"better": "Better", "same": "The same", "worse": "Worse"}
_ESTIMATES = ("forwarded", "shadow", "difference", "ratio")


def to_csv(reports: dict[tuple[str, str], Report]) -> str:
    """Writes all figures in full, a row for each. ``reports``: by what the traffic was parted, and the part's name."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    ends = [f"{name}{end}" for name in _ESTIMATES for end in ("", "_low", "_high")]
    writer.writerow(["by", "part", "figure", "unit", "n", "left_out", *ends])
    for (by, part), found in reports.items():
        lines = [*found.lines]
        lines += [Line(_VERDICTS[name], "share", found.judged, None, share) for name, share in found.shares.items()]
        if found.preferred is not None:
            lines.append(Line("Better minus worse", "share", found.judged, None, None, found.preferred))
        for line in lines:
            row: list[object] = [by, part, line.name, line.kind, line.n, line.left_out]
            for estimate in (line.forwarded, line.shadow, line.difference, line.ratio):
                row += [None] * 3 if estimate is None else [estimate.value, estimate.low, estimate.high]
            writer.writerow([_cell(value) for value in row])
    return file.getvalue()


def _cell(value: object) -> object:
    """Puts a quote before a text that a spreadsheet would take for a formula."""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return "" if value is None else value
