"""Proposes once a larger Conductor of this machine, because the shipped one only chooses among kinds of plan."""

import logging
from concurrent.futures import Future, ThreadPoolExecutor

import streamlit as st

from conductor_core.chat import WorkerSpec
from conductor_core.engine.catalogue import discover_local_servers
from conductor_core.engine.larger_conductors import LargerConductor, larger_conductors
from conductor_core.settings import Settings
from pages.components.look.words import inert
from pages.components.run import run_settings
from pages.components.shell.runtime import current

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 60
_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="servers")


def propose_larger_conductor() -> None:
    """Draws a line with a button where *tiny* is chosen, until the person accepts or declines."""
    if run_settings.conductor() != run_settings.SHIPPED or run_settings.was_proposed():
        return
    found = larger_conductors(run_settings.conductor_options().values(), served())
    if not found:
        return
    best = found[0]
    with st.container(horizontal=True, vertical_alignment="center", key="larger-conductor"):
        st.markdown(
            f":material/lightbulb: **{inert(best.name)}** ({inert(best.where)}) could plan this. "
            ":gray[The shipped Conductor only chooses among kinds of plan.]",
            width="stretch",
        )
        st.button("Plan with it", key="larger-use", on_click=_use, args=(best,))
        st.button("Not now", key="larger-no", type="tertiary", on_click=run_settings.put_proposal_away)


def _use(larger: LargerConductor) -> None:
    run_settings.put_proposal_away()
    run_settings.use_conductor(larger.ref)


def served() -> tuple[WorkerSpec, ...]:
    """Returns the known models on this machine's servers, which are asked in the background once a minute."""
    asked = asked_servers()
    return asked.result() if asked.done() else ()


def asked_servers() -> "Future[tuple[WorkerSpec, ...]]":
    """Returns the question to this machine's servers, which goes on in the background. It never fails."""
    return _asked(current().settings)


@st.cache_resource(ttl=LOOK_AGAIN_S, show_spinner=False)
def _asked(_settings: Settings) -> "Future[tuple[WorkerSpec, ...]]":
    return _thread.submit(_found, _settings)


def _found(settings: Settings) -> tuple[WorkerSpec, ...]:
    try:
        return discover_local_servers(settings)
    except Exception:
        log.exception("the search for model servers on this machine failed")
        return ()
