"""The Failures page: what its address asks, kinds with their counts, the trend, and the requests, which open at their
step. All that is asked is in the address, so a view is kept or sent as a link."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import streamlit as st

from conductor_core.formats import RUN_STATUSES
from conductor_core.run.request import JUDGE_PURPOSE, PASS_PURPOSE, SHADOW_PURPOSE
from pages.components.app import places
from pages.components.app.widgets import across, button, chosen, segments, select, start_link, text_button, worded
from pages.components.audit.query import cursor, go, paging
from pages.components.style.figures import Figure, bars, figure, panel
from pages.components.style.formats import html, inert, plural
from storage.search.failures import ASKED, KINDS, FailedRequest, FailureBucket, FailureCount, Narrowed
from storage.search.filters import ANY, Filters

PERIODS = {
    "day": ("24 hours", timedelta(days=1)),
    "week": ("7 days", timedelta(days=7)),
    "month": ("30 days", timedelta(days=30)),
    "all": ("All", None),
}
PURPOSES = {
    ASKED: "Asked by clients and people",
    PASS_PURPOSE: "Passed through unchanged",
    SHADOW_PURPOSE: "Shadows of requests",
    JUDGE_PURPOSE: "Questions to judges",
    ANY: "All runs",
}
_OWN = ("period", "kind", "worker", "model", "purpose", "before")
_USUAL = "week"
_PERIOD = "failures-period"
_LONGEST = 60


@dataclass(frozen=True)
class FailureQuery:
    """The address, read. ``before``: the cursor of the page of requests."""

    period: str
    filters: Filters
    narrowed: Narrowed
    before: int | None

    @property
    def period_words(self) -> str:
        word, length = PERIODS[self.period]
        return "" if length is None else f" in the last {word}"


def read() -> FailureQuery:
    """Reads the address. Call it once, at the script's start."""
    given = {name: places.read(name) for name in _OWN}
    period = given["period"] if given["period"] in PERIODS else None
    length = PERIODS[period or _USUAL][1]
    kind = given["kind"] if given["kind"] in KINDS else None
    purpose = given["purpose"] if given["purpose"] in PURPOSES else ASKED
    # To the minute: a rerun for the same page asks the same.
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    return FailureQuery(
        period=period or _USUAL,
        filters=Filters(since_utc=None if length is None else now - length),
        narrowed=Narrowed.model_validate(
            {"kind": kind, "agent": given["worker"], "served": given["model"], "purpose": purpose}
        ),
        before=cursor(given["before"]),
    )


def _choose(name: str, key: str, usual: str | None = None) -> None:
    value = chosen(key)
    go(**{name: None if value == usual else value})


def bar(asked: FailureQuery, workers: Sequence[str], models: Sequence[str]) -> None:
    """Draws the period and the choices of worker, served model and purpose."""
    st.session_state[_PERIOD] = asked.period
    with across("failures-bar"):
        segments(
            "Period",
            PERIODS,
            _PERIOD,
            format_func=lambda name: PERIODS[name][0],
            on_change=lambda: go(period=st.session_state.get(_PERIOD) or _USUAL),
        )
        _box("worker", "Worker", "Any worker", asked.narrowed.agent, workers)
        _box("model", "Served model", "Any served model", asked.narrowed.served, models)
        key = "failures-purpose"
        st.session_state[key] = asked.narrowed.purpose
        words = worded(key, PURPOSES)
        select("Purpose", PURPOSES, key, format_func=words, on_change=_choose, args=("purpose", key, ASKED))


def _box(name: str, label: str, anything: str, now: str | None, names: Sequence[str]) -> None:
    key = f"failures-{name}"
    options = list(dict.fromkeys([*([] if now is None else [now]), *filter(None, names)]))
    st.session_state[key] = now
    words = worded(key, {option: inert(option)[:_LONGEST] for option in options})
    select(label, options, key, format_func=words, placeholder=anything, on_change=_choose, args=(name, key))


TEMPLATE = "failures/failures"
PAGE = 20
_HEIGHT = 190
_MOST_BUCKETS = 400


def summary(failed: int, requests: int, asked: FailureQuery) -> None:
    kind = None if asked.narrowed.kind is None else KINDS[asked.narrowed.kind][1]
    st.html(html(TEMPLATE, "summary", failed=failed, all=requests, words=asked.period_words, kind=kind))


def kinds(counts: Sequence[FailureCount], chosen: str | None) -> None:
    """Draws a card for each kind. Its name narrows the page to it, or takes that back."""
    by_kind = {count.name: count for count in counts}
    columns = st.columns(len(KINDS), gap="small")
    for column, (kind, (glyph, word, means)) in zip(columns, KINDS.items(), strict=True):
        count = by_kind.get(kind)
        key = f"failures-kind-{kind}{'-chosen' if kind == chosen else ''}"
        with column, st.container(border=True, key=key, gap=None):
            to = None if kind == chosen else kind
            says = "All kinds again" if kind == chosen else f"Only these: {means}"
            text_button(f"{glyph} {word}", f"failures-only-{kind}", go, help=says, kwargs={"kind": to})
            st.html(html(TEMPLATE, "count", count=count))


def trend(buckets: Sequence[FailureBucket], asked: FailureQuery, *, hours: bool) -> None:
    with panel("failures-trend", "Requests with failures", "by hour, UTC" if hours else "by day, UTC"):
        times = _times(buckets, asked, hours=hours)
        figure(_bars(buckets, times, hours=hours), key="failures-trend-figure", alt=_alt(buckets))


def _times(buckets: Sequence[FailureBucket], asked: FailureQuery, *, hours: bool) -> list[str]:
    """Returns the beginnings of all buckets from the first to now, so that a time without failures is seen as such."""
    form, step = ("%Y-%m-%dT%H", timedelta(hours=1)) if hours else ("%Y-%m-%d", timedelta(days=1))
    there = sorted({bucket.begin for bucket in buckets})
    try:
        begin = asked.filters.since_utc or datetime.strptime(there[0], form).replace(tzinfo=UTC)
    except (ValueError, IndexError):  # a damaged row
        return there
    end, found = datetime.now(UTC), list[str]()
    while begin <= end and len(found) < _MOST_BUCKETS:
        found.append(begin.strftime(form))
        begin += step
    return sorted({*found, *there})


def _bars(buckets: Sequence[FailureBucket], times: Sequence[str], *, hours: bool) -> Figure:
    runs: Mapping[tuple[str, str], int] = {(bucket.kind, bucket.begin): bucket.runs for bucket in buckets}
    there = {bucket.kind for bucket in buckets}
    words = [f"{time[5:10]} {time[11:]}:00" if hours else time for time in times]
    named = [
        (word, f"@kind-{kind}", [runs.get((kind, time), 0) for time in times])
        for kind, (_, word, _) in KINDS.items()
        if kind in there
    ]
    xaxis, yaxis = {"tickangle": 0, "range": [-0.5, len(words) - 0.5]}, {"tickformat": ",d", "nticks": 4}
    return bars(named, words, _HEIGHT, bargap=0.25, xaxis=xaxis, yaxis=yaxis)


def _alt(buckets: Sequence[FailureBucket]) -> str:
    sums: Counter[str] = Counter()
    for bucket in buckets:
        sums[bucket.kind] += bucket.runs
    said = ", ".join(f"{KINDS[kind][1]} {count}" for kind, count in sums.items() if kind in KINDS)
    return f"Bars of requests with failures over time: {said}"


def requests(rows: Sequence[FailedRequest], asked: FailureQuery) -> None:
    """Draws a page of requests; each row opens its run at the step that failed."""
    shown = rows[:PAGE]
    with panel("failures-requests", "Requests", "newest first; a row opens the run at its step"):
        kinds = {kind: f"{glyph} {word}" for kind, (glyph, word, _) in KINDS.items()}
        statuses = {status: word for status, (_, word) in RUN_STATUSES.items()}
        st.html(html(TEMPLATE, "rows", rows=shown, kinds=kinds, statuses=statuses))
    paging(asked.before, shown[-1].cursor if len(rows) > PAGE else None, "failures")


def nothing(asked: FailureQuery, requests: int) -> None:
    """Draws what is said where nothing failed, or nothing was asked."""
    with st.container(border=True, horizontal_alignment="center", key="failures-empty"):
        if asked.narrowed != Narrowed():
            st.markdown("**No such failure.** Take a choice back, or look at a longer time.")
            button(
                "All failures",
                "failures-all",
                go,
                icon="filter_alt_off",
                kwargs=dict.fromkeys(("kind", "worker", "model", "purpose")),
            )
        elif requests:
            st.markdown(
                f"**✓ Nothing failed{asked.period_words}.** {plural(requests, 'request')} ended without a "
                "failure, a limit, a refusal or a correction."
            )
        else:
            st.markdown(
                f"**No request ended{asked.period_words}.** What fails, is refused, runs into a limit or has to "
                "be corrected is listed here, by kind, as soon as clients ask the endpoint or somebody starts a run."
            )
            st.page_link(places.KEYS, label="Point a client at the endpoint", icon=":material/key:")
            start_link("Start a run")
