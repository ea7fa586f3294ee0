"""An opened run brings its own Conductor, pool and policies, so that a new run asks the same models in the same way.

The earlier choices return once no run is open, unless the person has chosen something else meanwhile.
"""

from dataclasses import dataclass

import streamlit as st

from conductor_core.trace import RunTrace
from pages.components.look.words import inert
from pages.components.run import policies, run_settings
from pages.components.run.policies import Policies

_BROUGHT = "choices-from-run"
_MAY_BE_ASKED = "addresses-that-may-be-asked"


@dataclass(frozen=True)
class _Brought:
    """The choices that the run on the page set, and those before it."""

    run_id: str
    conductor: str
    pool: str
    conductor_before: str
    pool_before: str
    policies: Policies
    policies_before: Policies
    missing: tuple[str, ...]

    @property
    def untouched(self) -> bool:
        return (run_settings.conductor(), run_settings.pool()) == (self.conductor, self.pool)


def take_choices_of(trace: RunTrace | None) -> None:
    """Takes the run's choices over. Call it before the fields are drawn."""
    brought: _Brought | None = st.session_state.get(_BROUGHT)
    if trace is not None and brought is not None and brought.run_id == trace.run_id:
        return
    before, policies_before = (run_settings.conductor(), run_settings.pool()), run_settings.chosen_policies()
    if brought is not None and brought.untouched:
        before = brought.conductor_before, brought.pool_before
        run_settings.put(*before)
    if brought is not None and policies_before == brought.policies:
        policies_before = brought.policies_before
        policies.put(policies_before)
    st.session_state.pop(_BROUGHT, None)
    if trace is None:
        return
    missing = []
    conductor, pool = before
    if trace.conductor is not None:
        if run_settings.conductor_available(trace.conductor.name):
            conductor = trace.conductor.name
        else:
            missing.append(f"Conductor {trace.conductor.name}")
    found = run_settings.pool_called(trace.pool.name)
    if found is None:
        missing.append(f"pool {trace.pool.name}")
    else:
        pool = found
    run_settings.put(conductor, pool)
    if found is not None:
        run_settings.also_exclude(trace.pool.excluded)
    own = _policies_of(trace, found)
    policies.put(own)
    st.session_state[_BROUGHT] = _Brought(trace.run_id, conductor, pool, *before, own, policies_before, tuple(missing))


def _policies_of(trace: RunTrace, pool: str | None) -> Policies:
    """Returns the policies of this run; None where the pool, if it is there, has the same by itself."""
    of_pool = None if pool is None else run_settings.policies_of_pool(pool)
    if of_pool is None:
        return Policies(trace.on_incomplete, trace.give_question)
    return Policies(
        None if of_pool.on_incomplete == trace.on_incomplete else trace.on_incomplete,
        None if of_pool.give_question == trace.give_question else trace.give_question,
    )


def missing_note() -> str:
    """Says in a sentence which parts of the opened run are not here any more; empty: none."""
    brought: _Brought | None = st.session_state.get(_BROUGHT)
    if brought is None or not brought.missing:
        return ""
    verb = "is" if len(brought.missing) == 1 else "are"
    left = f"Conductor {run_settings.conductor()} and pool {run_settings.pool_name()} are set for the next run."
    return inert(f"The {' and the '.join(brought.missing)} of this run {verb} not here any more. {left}")


def address_of_the_run_alone() -> str | None:
    """Returns the chosen Conductor if it is an address that the opened run brought and nobody here chose; else None.

    Anybody may have made the record, and a health check would send the key of CONDUCTOR_API_KEY to that server.
    """
    brought: _Brought | None = st.session_state.get(_BROUGHT)
    ref = run_settings.conductor()
    if brought is None or "://" not in ref or ref != brought.conductor or ref == brought.conductor_before:
        return None
    return None if ref in st.session_state.get(_MAY_BE_ASKED, ()) else ref


def may_be_asked(ref: str | None) -> None:
    """Lets this session's pages ask the Conductor at that address, as if somebody had chosen it here."""
    st.session_state[_MAY_BE_ASKED] = (*st.session_state.get(_MAY_BE_ASKED, ()), ref)
