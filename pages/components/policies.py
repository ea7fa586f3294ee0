"""How the next run goes: what happens to an answer that is no whole one, and who is told the task."""

from collections.abc import Mapping

import streamlit as st

from conductor_core.endings import OnIncomplete

ON_INCOMPLETE, GIVE_QUESTION = "on-incomplete", "give-question"
_POLICIES: Mapping[OnIncomplete | None, str] = {
    None: "as its pool has it",
    "allow": "goes on, marked",
    "stop": "stops there",
    "more_tokens": "is asked for with more tokens",
    "fallback": "is asked of the fallback",
}
_TOLD: Mapping[bool | None, str] = {
    None: "as its pool has it",
    False: "steps that say {question}",
    True: "every step",
}


def on_incomplete() -> OnIncomplete | None:
    """None: as the pool has it."""
    chosen = st.session_state.get(ON_INCOMPLETE)
    return chosen if chosen in _POLICIES else None


def give_question() -> bool | None:
    """None: as the pool has it."""
    chosen = st.session_state.get(GIVE_QUESTION)
    return chosen if chosen in _TOLD else None


def choose() -> None:
    """Draws the two fields."""
    whole_at, asked_at = st.columns(2, gap="small")
    with whole_at:
        st.selectbox(
            "An incomplete answer",
            list(_POLICIES),
            format_func=_POLICIES.__getitem__,
            key=ON_INCOMPLETE,
            help="Refused, filtered, cut off or empty. Only if it goes on do later steps read what there is of it. A "
            "worker's fallback is named in the pool file.",
            persist_state="session",
        )
    with asked_at:
        st.selectbox(
            "The question goes to",
            list(_TOLD),
            format_func=_TOLD.__getitem__,
            key=GIVE_QUESTION,
            help="A step is told it where its instruction says {question}, or every step is.",
            persist_state="session",
        )
