"""Shadow: what is forwarded today, and how the Conductor would have done on the same requests."""

from datetime import UTC, datetime, timedelta

import streamlit as st

from conductor_core.analysis import shadow
from conductor_core.analysis.shadow import Report, Traffic
from conductor_core.errors import StoreError
from pages.components.app.session import current
from pages.components.app.widgets import across, fault_shown, notes, rerun_when, segments
from pages.components.shadow import figures, pairs
from pages.components.style.formats import inert

PERIOD = "shadow-period"
_DAYS = {"All": None, "1 day": 0, "7 days": 6, "30 days": 29}
FOLLOWED_S = 5.0
FORWARD = "conductor serve --pass-through MODEL"
SHADOW = "conductor serve --pass-through MODEL --shadow 0.1"


def show() -> None:
    with across("shadow-head"):
        st.title("Shadow", anchor=False, width="content")
        period = segments("Period", _DAYS, PERIOD, default="All", required=True)
        head = st.container(horizontal=True, vertical_alignment="center", width="content")
    with fault_shown():
        notes()
        store = current().store
        state, since = store.shadow_traffic.state(), _since(_DAYS.get(period or "All"))
        traffic, found = _read(str(store.path), state, since)
        if not traffic.requests:
            _nothing(narrowed=since is not None)
        else:
            with head:
                figures.downloads(traffic)
            _body(traffic, found)
        # A row stays under the mouse while somebody judges it.
        if st.session_state.get(pairs.OPENED) is None:
            rerun_when(lambda: _changed(state), FOLLOWED_S)


def _since(days: int | None) -> datetime | None:
    if days is None:
        return None
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=days)


@st.cache_resource(max_entries=4, show_spinner=False)
def _read(path: str, state: tuple[int, ...], since: datetime | None) -> tuple[Traffic, Report]:
    """Reads the traffic of the database as it is in ``state``, once for all sessions. Raises: StoreError."""
    traffic = current().store.shadow_traffic.read(since)
    return traffic, shadow.report(traffic)


def _changed(state: tuple[int, ...]) -> bool:
    try:
        return current().store.shadow_traffic.state() != state
    except StoreError:
        return False  # the page itself says what is wrong


def _body(traffic: Traffic, found: Report) -> None:
    if not found.shadowed:
        st.info(
            f"**{found.forwarded:,} forwarded, none run again.** Let the Conductor answer a share of them, too. "
            "Clients do not notice, and the figures appear here:",
            icon=":material/tonality:",
        )
        st.code(SHADOW, language="bash")
    else:
        figures.verdict(found)
        left, right = st.columns([3, 2], gap="small")
        with left:
            figures.table(found)
        with right:
            figures.verdicts(found)
            figures.latency(traffic.requests)
        pairs.rows(traffic.requests)
        figures.parts(traffic)
    figures.today(traffic.requests)


def _nothing(*, narrowed: bool) -> None:
    with st.container(border=True, horizontal_alignment="center"):
        if narrowed:
            st.markdown(f"**No request was forwarded in this period.** Choose {inert('All')} to see earlier ones.")
            return
        st.markdown(
            "**No traffic yet.** Send today's requests through this program: they are forwarded unchanged to the model "
            "that answers them now, and each becomes a run."
        )
        st.code(FORWARD, language="bash")


show()
