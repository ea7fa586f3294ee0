"""What the Failures page is asked: all of it is in the browser's address, so a view is kept or sent as a link."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import streamlit as st

from conductor_core.run.request import JUDGE_PURPOSE, PASS_PURPOSE, SHADOW_PURPOSE
from pages.components.app import places
from pages.components.app.widgets import across, chosen, segments, select, worded
from pages.components.style.formats import inert
from storage.search.failures import ASKED, KINDS, Narrowed
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

    @property
    def is_narrowed(self) -> bool:
        """Whether the person asked for less than what clients and people asked for in this time."""
        return self.narrowed != Narrowed()


def read() -> FailureQuery:
    """Reads the address. Call it once, at the script's start."""
    given = {name: places.read(name) for name in _OWN}
    period = given["period"] if given["period"] in PERIODS else _USUAL
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
        before=int(before) if (before := given["before"] or "").isdecimal() and len(before) < 19 else None,
    )


def go(**changes: str | None) -> None:
    """Changes parts of the address; a page that was turned to belongs to what was asked."""
    for name, value in {"before": None, **changes}.items():
        places.write(name, value)


def _choose(name: str, key: str, usual: str | None = None) -> None:
    value = chosen(key)
    go(**{name: None if value == usual else value})


def _choose_period() -> None:
    go(period=st.session_state.get(_PERIOD) or _USUAL)


def bar(asked: FailureQuery, workers: Sequence[str], models: Sequence[str]) -> None:
    """Draws the period and the choices of worker, served model and purpose."""
    st.session_state[_PERIOD] = asked.period
    with across("failures-bar"):
        segments("Period", PERIODS, _PERIOD, format_func=lambda name: PERIODS[name][0], on_change=_choose_period)
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
