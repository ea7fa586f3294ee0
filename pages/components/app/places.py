"""The files of the pages, for links between them. A page's address is its file's name."""

from pathlib import Path

import streamlit as st

PAGES = Path(__file__).resolve().parents[2]
FRAME = Path(__file__).with_name("frame.py")  # the script around every page

_ICONS = {
    "run": "play_circle", "history": "history", "compare": "compare_arrows", "context": "account_tree",
    "blame": "troubleshoot", "audit": "manage_search", "evaluate": "leaderboard", "training": "school",
    "shadow": "tonality", "tiers": "alt_route", "failures": "error", "workers": "groups", "models": "neurology",
    "keys": "key",
}  # fmt: skip
ICONS = {PAGES / f"{name}.py": icon for name, icon in _ICONS.items()}
"""By page, the name of its icon among Material's symbols."""
(
    RUN, HISTORY, COMPARE, CONTEXT, BLAME, AUDIT, EVALUATE, TRAINING, SHADOW, TIERS, FAILURES, WORKERS, MODELS, KEYS,
) = ALL = tuple(ICONS)  # fmt: skip
RAIL = {
    "": (RUN, HISTORY, COMPARE, CONTEXT, BLAME, AUDIT),
    "Conductor": (EVALUATE, TRAINING),
    "Moving in": (SHADOW, TIERS, FAILURES),
    "System": (WORKERS, MODELS, KEYS),
}
"""The pages in the rail, below their headings."""

FIRST = "first"
"""In the address of the Run page: its first screen, also after the first run. And the address that leads there."""

OF_RUN = ("at", "edit", "step")
"""What the address says about the run that it names: the moment of a replay, the edit of the plan, the step that is
shown first."""


def write(name: str, value: str | None) -> None:
    """Sets a parameter of the address, also for the script after the callback. None removes it.

    Another run has other moments and other edits, so those of this one go; and with a run, the first screen is over.
    """
    st.session_state[f"address-{name}"] = (value,)
    if name == "run":
        for own in (*OF_RUN, FIRST):
            st.query_params.pop(own, None)
    _set_parameter(name, value)


def read(name: str) -> str | None:
    """Returns the parameter of the last callback, else that of the browser. Call it once, at the script's start."""
    if written := st.session_state.pop(f"address-{name}", None):
        _set_parameter(name, *written)
    return st.query_params.get(name)


def _set_parameter(name: str, value: str | None) -> None:
    if value is None:
        st.query_params.pop(name, None)
    elif st.query_params.get(name) != value:
        st.query_params[name] = value
