"""An opened run brings its own Conductor and pool, so that asking again asks whom it asked.

What was chosen before is there again once no run is open, unless something else was chosen meanwhile.
"""

from dataclasses import dataclass

import streamlit as st

from conductor_core.trace import RunTrace
from pages.components import choices
from pages.components.words import inert

_BROUGHT = "choices-from-run"
_MAY_BE_ASKED = "addresses-that-may-be-asked"


@dataclass(frozen=True)
class _Brought:
    """What the run on the page set, and what had been chosen before it."""

    run_id: str
    conductor: str
    pool: str
    conductor_before: str
    pool_before: str
    missing: tuple[str, ...]

    @property
    def untouched(self) -> bool:
        return (choices.conductor(), choices.pool()) == (self.conductor, self.pool)


def take_choices_of(trace: RunTrace | None) -> None:
    """Call it before the fields are drawn."""
    brought: _Brought | None = st.session_state.get(_BROUGHT)
    if trace is not None and brought is not None and brought.run_id == trace.run_id:
        return
    before = choices.conductor(), choices.pool()
    if brought is not None and brought.untouched:
        before = brought.conductor_before, brought.pool_before
        choices.put(*before)
    st.session_state.pop(_BROUGHT, None)
    if trace is None:
        return
    missing = []
    conductor, pool = before
    if trace.conductor is not None:
        if choices.conductor_there(trace.conductor.name):
            conductor = trace.conductor.name
        else:
            missing.append(f"Conductor {trace.conductor.name}")
    found = choices.pool_called(trace.pool.name)
    if found is None:
        missing.append(f"pool {trace.pool.name}")
    else:
        pool = found
    choices.put(conductor, pool)
    if found is not None:
        choices.also_exclude(trace.pool.excluded)
    st.session_state[_BROUGHT] = _Brought(trace.run_id, conductor, pool, *before, tuple(missing))


def missing_note() -> str:
    """What of the opened run is not here any more, as a sentence; empty: nothing."""
    brought: _Brought | None = st.session_state.get(_BROUGHT)
    if brought is None or not brought.missing:
        return ""
    verb = "is" if len(brought.missing) == 1 else "are"
    left = f"Conductor {choices.conductor()} and pool {choices.pool_name()} are set for the next run."
    return inert(f"The {' and the '.join(brought.missing)} of this run {verb} not here any more. {left}")


def address_of_the_run_alone() -> str | None:
    """The chosen Conductor, if it is an address that the opened run brought and nobody here has chosen; else None.

    A record may come from anybody, and whoever asks that server for its health sends it the key of CONDUCTOR_API_KEY.
    """
    brought: _Brought | None = st.session_state.get(_BROUGHT)
    ref = choices.conductor()
    if brought is None or "://" not in ref or ref != brought.conductor or ref == brought.conductor_before:
        return None
    return None if ref in st.session_state.get(_MAY_BE_ASKED, ()) else ref


def may_be_asked(ref: str) -> None:
    """From now on this session's pages ask the Conductor at that address as one that was chosen here."""
    st.session_state[_MAY_BE_ASKED] = (*st.session_state.get(_MAY_BE_ASKED, ()), ref)
