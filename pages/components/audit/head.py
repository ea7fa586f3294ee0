"""The head of the Audit page: the search field, the view, and the filters as chips."""

from datetime import date

import streamlit as st

from pages.components.app.session import current
from pages.components.app.widgets import chosen, worded
from pages.components.audit import query
from pages.components.audit.query import FOUND, VIEWS, AuditQuery, go, value_words
from pages.components.style.formats import inert
from storage.search.filters import ANY, KINDS, Facet
from storage.search.reading import FIELDS

SHOWN = "audit-q-shown"
_MOST_VALUES = 200
_ANYWHERE = "anywhere"


def head(asked: AuditQuery) -> None:
    """Draws the title, the field, the chips and the choice of the view."""
    with st.container(horizontal=True, vertical_alignment="center", key="audit-head"):
        st.title("Audit", anchor=False, width="content")
        if st.session_state.get(SHOWN) != asked.typed:  # a link, or the browser's Back
            st.session_state["audit-q"] = st.session_state[SHOWN] = asked.typed
        st.text_input(
            "Search all texts",
            placeholder='Words, "a phrase" or begin* in tasks, instructions, messages and outputs',
            icon=":material/search:",
            key="audit-q",
            label_visibility="collapsed",
            on_change=_typed,
        )
        with st.popover("Filter", icon=":material/filter_list:", width="content", key="audit-filter"):
            _choices(asked)
    with st.container(horizontal=True, vertical_alignment="center", key="audit-bar"):
        st.session_state["audit-view"] = asked.view
        st.segmented_control(
            "View",
            list(VIEWS),
            format_func=VIEWS.__getitem__,
            key="audit-view",
            label_visibility="collapsed",
            on_change=_view,
            width="content",
        )
        _chips(asked)


def _typed() -> None:
    go(q=str(st.session_state["audit-q"] or "").strip() or None)


def _view() -> None:
    go(view=st.session_state["audit-view"] or FOUND, provider_of_calls=None)


def _chips(asked: AuditQuery) -> None:
    """Draws what is asked as buttons, each of which takes it out again."""
    chips = {kind: value_words(kind, value) for kind, value in asked.filters.values.items()}
    if asked.field is not None:
        chips["in"] = f"in: {asked.field}"
    for name, moment in (("since", asked.filters.since_utc), ("until", asked.filters.until_utc)):
        if moment is not None:
            chips[name] = f"{name} {st.query_params.get(name, '')}"
    if asked.filters.least_usd is not None:
        chips["over"] = f"cost from ${asked.filters.least_usd:g}"
    for name, words in chips.items():
        st.button(
            inert(words[:60]), key=f"chip-{name}", icon=":material/close:", help="Take this filter out", on_click=go,
            kwargs={name: None},
        )  # fmt: skip
    if chips:
        st.button("Clear all", key="audit-clear", type="tertiary", on_click=query.change_address)


def _choices(asked: AuditQuery) -> None:
    """Draws a choice for each kind of filter that any run has, with the number of its runs."""
    by_kind: dict[str, list[Facet]] = {}
    for facet in current().store.search.facets():
        by_kind.setdefault(facet.kind, []).append(facet)
    left, right = st.columns(2)
    shown = [kind for kind in KINDS if kind in by_kind]
    for number, kind in enumerate(shown):
        counts = {facet.value: facet.runs for facet in by_kind[kind][:_MOST_VALUES]}
        key, options = f"audit-of-{kind}", _options(kind, counts, asked)
        st.session_state[key] = asked.filters.values.get(kind)
        (left, right)[number % 2].selectbox(
            KINDS[kind].capitalize(),
            options,
            format_func=worded(key, {each: _label(each, counts) for each in options}),
            key=key,
            placeholder="any",
            on_change=_choose,
            args=(kind,),
        )
    st.session_state["audit-in"] = asked.field or _ANYWHERE
    left.selectbox("Place of the words", [_ANYWHERE, *FIELDS], key="audit-in", on_change=_choose_field)
    st.session_state["audit-over"] = asked.filters.least_usd
    right.number_input("Cost from, in USD", min_value=0.0, key="audit-over", placeholder="any", on_change=_choose_cost)
    for name, column in (("since", left), ("until", right)):
        _day(column, name)
    st.caption("The address of this page holds the whole view: bookmark it to keep it, or send it as a link.")


def _options(kind: str, counts: dict[str, int], asked: AuditQuery) -> list[str]:
    value = asked.filters.values.get(kind)
    return [*([value] if value is not None and value not in counts else []), *counts]


def _label(value: str, counts: dict[str, int]) -> str:
    return f"{value} · {counts[value]:,}" if value in counts else "any" if value == ANY else value


def _choose(kind: str) -> None:
    go(**{kind: chosen(f"audit-of-{kind}")})


def _choose_field() -> None:
    place = st.session_state["audit-in"]
    go(**{"in": None if place == _ANYWHERE else place})


def _choose_cost() -> None:
    usd: float | None = st.session_state["audit-over"]
    go(over=None if usd is None else f"{usd:g}")


def _day(column: "st.delta_generator.DeltaGenerator", name: str) -> None:
    given = st.query_params.get(name)
    try:
        st.session_state[f"audit-{name}"] = date.fromisoformat(given) if given else None
    except ValueError:
        st.session_state[f"audit-{name}"] = None
    column.date_input(
        "From this day (UTC)" if name == "since" else "Up to this day (UTC)", key=f"audit-{name}", format="YYYY-MM-DD",
        on_change=_choose_day, args=(name,), value=None,
    )  # fmt: skip


def _choose_day(name: str) -> None:
    day: date | None = st.session_state[f"audit-{name}"]
    go(**{name: None if day is None else day.isoformat()})
