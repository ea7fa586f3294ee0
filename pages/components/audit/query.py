"""What the Audit page is asked: all of it is in the browser's address, so a view is kept or sent as a link."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time

import streamlit as st

from pages.components.app import places
from pages.components.app.session import current
from pages.components.app.widgets import across, button, chosen, search_field, segments, text_button, worded
from pages.components.style.formats import inert
from storage.access_log import KINDS as ACCESS_KINDS
from storage.search.filters import ANY, KINDS, Facet, Filters, end_of
from storage.search.reading import FIELDS

TEMPLATE = "audit/audit"
FOUND, LEDGER, COST, FAILURES = "found", "ledger", "cost", "failures"
ACCESS, INTEGRITY = "looks", "integrity"
VIEWS = {
    FOUND: "Found",
    LEDGER: "Who received it",
    COST: "Tokens and cost",
    FAILURES: "Failures",
    ACCESS: "Access log",
    INTEGRITY: "Integrity",
}
_OF_ACCESS = ("looked-by", "looked-how", "looked-at")
OWN = ("q", "view", "in", "since", "until", "over", "before", "provider-of-calls", "run", *_OF_ACCESS, *KINDS)
CURSORS = ("before", "run")


@dataclass(frozen=True)
class AuditQuery:
    """The address, read. ``fault``: what of it cannot be read."""

    typed: str
    view: str
    field: str | None
    filters: Filters
    before: int | None
    receiver: tuple[str, str] | None
    run_id: str | None
    viewed_by: str | None
    access_kind: str | None
    viewed_run: str | None
    fault: str

    @property
    def blank(self) -> bool:
        return not self.typed and not self.filters and self.field is None


def read() -> AuditQuery:
    """Reads the address. Call it once, at the script's start."""
    given = {name: places.read(name) for name in OWN}
    faults: list[str] = []
    receiver = (given["provider-of-calls"] or "").partition("@")
    return AuditQuery(
        typed=(given["q"] or "").strip(),
        view=given["view"] if given["view"] in VIEWS else FOUND,
        field=given["in"] if given["in"] in FIELDS else None,
        filters=Filters(
            values={kind: value for kind in KINDS if (value := given[kind])},
            since_utc=_day(given["since"], faults),
            until_utc=_day(given["until"], faults, whole=True),
            least_usd=_amount(given["over"], faults),
        ),
        before=cursor(given["before"]),
        receiver=(receiver[0], receiver[2]) if receiver[1] else None,
        run_id=given["run"],
        viewed_by=given["looked-by"],
        access_kind=given["looked-how"] if given["looked-how"] in ACCESS_KINDS else None,
        viewed_run=given["looked-at"],
        fault="; ".join(faults),
    )


def cursor(given: str | None) -> int | None:
    """Reads where a page of a list begins, as ``paging`` has put it into the address."""
    return int(given) if given is not None and given.isdecimal() and len(given) < 19 else None


def _day(given: str | None, faults: list[str], *, whole: bool = False) -> datetime | None:
    if not given:
        return None
    try:
        day = date.fromisoformat(given)
    except ValueError:
        faults.append(f"{given[:20]!r} in the address is not a date (2026-01-31)")
        return None
    return end_of(day) if whole else datetime.combine(day, time(), UTC)


def _amount(given: str | None, faults: list[str]) -> float | None:
    if not given:
        return None
    with suppress(ValueError):
        if 0 <= (usd := float(given)) < 1e12:
            return usd
    faults.append(f"{given[:20]!r} in the address is not an amount in USD")
    return None


def go(**changes: str | None) -> None:
    """Changes parts of the address; a page that was turned to, and a run that was open, belong to what was asked."""
    for name, value in {"before": None, "run": None, **changes}.items():
        places.write(name.replace("_", "-"), value)


def open_run(run_id: str | None) -> None:
    """Opens a run's record, or goes back to the same page of what was found."""
    go(run=run_id, before=st.query_params.get("before"))


def change_address(**changes: str | None) -> None:
    for name in OWN:
        places.write(name, changes.get(name))


def paging(now: int | None, older: int | None, key: str) -> None:
    """Draws the ways to the newest page and to the next older one. ``now``, ``older``: where they begin, None: at the
    newest, and there is none."""
    if now is not None or older is not None:
        with across():
            button("Newest", f"{key}-newest", go, icon="first_page", disabled=now is None)
            turned = {"before": str(older)}
            button("Older", f"{key}-older", go, icon="chevron_right", disabled=older is None, kwargs=turned)


SHOWN = "audit-q-shown"
_MOST_VALUES = 200
_ANYWHERE = "anywhere"


def head(asked: AuditQuery) -> None:
    with across("audit-head"):
        st.title("Audit", anchor=False, width="content")
        if st.session_state.get(SHOWN) != asked.typed:  # a link, or the browser's Back
            st.session_state["audit-q"] = st.session_state[SHOWN] = asked.typed
        says = 'Words, "a phrase" or begin* in tasks, instructions, messages and outputs'
        search_field("audit-q", "Search all texts", placeholder=says, on_change=take, args=("q",))
        with st.popover("Filter", icon=":material/filter_list:", width="content", key="audit-filter"):
            _choices(asked)
    with across("audit-bar"):
        st.session_state["audit-view"] = asked.view
        segments("View", VIEWS, "audit-view", format_func=VIEWS.__getitem__, on_change=_view, width="content")
        _chips(asked)


def take(name: str) -> None:
    """Puts what the field ``audit-NAME`` says into the address."""
    value = st.session_state[f"audit-{name}"]
    text = f"{value:g}" if isinstance(value, float) else str(value or "").strip()
    go(**{name: None if text == _ANYWHERE else text or None})


def _view() -> None:
    go(view=st.session_state["audit-view"] or FOUND, provider_of_calls=None)


def _chips(asked: AuditQuery) -> None:
    """Draws what is asked as buttons, each of which takes it out again."""
    chips = {kind: f"{KINDS[kind]}: {'any' if value == ANY else value}" for kind, value in asked.filters.values.items()}
    if asked.field is not None:
        chips["in"] = f"in: {asked.field}"
    for name, moment in (("since", asked.filters.since_utc), ("until", asked.filters.until_utc)):
        if moment is not None:
            chips[name] = f"{name} {st.query_params.get(name, '')}"
    if asked.filters.least_usd is not None:
        chips["over"] = f"cost from ${asked.filters.least_usd:g}"
    for name, words in chips.items():
        button(inert(words[:60]), f"chip-{name}", go, icon="close", help="Take this filter out", kwargs={name: None})
    if chips:
        text_button("Clear all", "audit-clear", change_address)


def _choices(asked: AuditQuery) -> None:
    by_kind: dict[str, list[Facet]] = {}
    for facet in current().store.search.facets():
        by_kind.setdefault(facet.kind, []).append(facet)
    left, right = st.columns(2)
    shown = [kind for kind in KINDS if kind in by_kind]
    for number, kind in enumerate(shown):
        counts = {facet.value: facet.runs for facet in by_kind[kind][:_MOST_VALUES]}
        key, value = f"audit-of-{kind}", asked.filters.values.get(kind)
        words = {each: f"{each} · {runs:,}" for each, runs in counts.items()}
        if value is not None and value not in counts:
            words = {value: "any" if value == ANY else value, **words}
        st.session_state[key] = value
        (left, right)[number % 2].selectbox(
            KINDS[kind].capitalize(),
            list(words),
            format_func=worded(key, words),
            key=key,
            placeholder="any",
            on_change=lambda kind=kind, key=key: go(**{kind: chosen(key)}),
        )
    st.session_state["audit-in"] = asked.field or _ANYWHERE
    left.selectbox("Place of the words", [_ANYWHERE, *FIELDS], key="audit-in", on_change=take, args=("in",))
    st.session_state["audit-over"] = asked.filters.least_usd
    right.number_input(
        "Cost from, in USD", min_value=0.0, key="audit-over", placeholder="any", on_change=take, args=("over",)
    )
    for name, column, label in (("since", left, "From this day (UTC)"), ("until", right, "Up to this day (UTC)")):
        st.session_state[f"audit-{name}"] = None
        with suppress(ValueError):  # the page says what of the address cannot be read
            if given := st.query_params.get(name):
                st.session_state[f"audit-{name}"] = date.fromisoformat(given)
        key = f"audit-{name}"
        column.date_input(label, None, key=key, format="YYYY-MM-DD", on_change=take, args=(name,))
    st.caption("The address of this page holds the whole view: bookmark it to keep it, or send it as a link.")
