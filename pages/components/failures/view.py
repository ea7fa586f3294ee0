"""What the Failures page draws: kinds with their counts, the trend, and the requests, which open at their step."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import streamlit as st

from conductor_core.formats import RUN_STATUSES
from pages.components.app import places
from pages.components.app.widgets import across, button, start_link, text_button
from pages.components.failures import query
from pages.components.failures.query import FailureQuery
from pages.components.style.figures import Figure, bars, figure, panel
from pages.components.style.formats import html, plural
from storage.search.failures import KINDS, FailedRequest, FailureBucket, FailureCount

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
            text_button(f"{glyph} {word}", f"failures-only-{kind}", query.go, help=says, kwargs={"kind": to})
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
        st.html(html(TEMPLATE, "rows", rows=[(row, *_words(row)) for row in shown]))
    more = len(rows) > PAGE
    if more or asked.before is not None:
        with across():
            button("Newest", "failures-newest", query.go, icon="first_page", disabled=asked.before is None)
            older = {"before": str(shown[-1].cursor) if shown else None}
            button("Older", "failures-older", query.go, icon="chevron_right", disabled=not more, kwargs=older)


def _words(row: FailedRequest) -> tuple[str, str]:
    """Returns the kind with its glyph, and the status of the run."""
    glyph, word, _ = KINDS.get(row.kind, ("·", row.kind, ""))  # of a damaged row
    return f"{glyph} {word}", RUN_STATUSES[row.status][1] if row.status in RUN_STATUSES else row.status


def nothing(asked: FailureQuery, requests: int) -> None:
    """Draws what is said where nothing failed, or nothing was asked."""
    with st.container(border=True, horizontal_alignment="center", key="failures-empty"):
        if asked.is_narrowed:
            st.markdown("**No such failure.** Take a choice back, or look at a longer time.")
            button("All failures", "failures-all", query.go, icon="filter_alt_off", kwargs=_EVERYTHING)
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


_EVERYTHING = {"kind": None, "worker": None, "model": None, "purpose": None}
