"""The search index behind a page: runs that ended a moment ago come in, and the page says what it does not have."""

import streamlit as st

from conductor_core.errors import StoreError
from pages.components.app.session import current
from pages.components.style.formats import inert

# So many ended runs are indexed before the page is drawn; more come in while it shows how far that is.
AT_ONCE = 60
FOLLOWED_S = 1.0


def catch_up() -> None:
    """Takes in what ended a moment ago. What the index has is shown even if that fails. Raises: StoreError."""
    store = current().store
    if store.refusal is None and 0 < store.search.lag().runs <= AT_ONCE:
        try:
            store.search.catch_up()
        except StoreError as error:
            st.warning(inert(str(error)), icon=":material/warning:")


def lag_note() -> None:
    """Says what the page does not see, and draws it anew while many runs come in."""
    lag = current().store.search.lag()
    if lag.runs and current().store.refusal is None:
        _follow(lag.runs)
    elif lag.in_words:
        st.caption(f"Not searched: {lag.in_words}.")


@st.fragment(run_every=FOLLOWED_S)
def _follow(first: int) -> None:
    lag = current().store.search.lag()
    if not lag.runs:
        st.rerun()
    most = max(first, lag.runs)
    st.progress(
        1 - lag.runs / most, text=f"The search index is being filled: {lag.runs:,} ended runs are still to come."
    )
