"""What a failed run offers, in one press each: another try, another Conductor, another pool, the settings."""

from pathlib import Path

import streamlit as st

from conductor_core.engine.request import asks_conductor, may_run_here, rerun_of, resume_of
from conductor_core.errors import InspectorError
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import RunTrace
from pages.components.app import address
from pages.components.app.session import current
from pages.components.app.widgets import fault_box
from pages.components.run import settings
from pages.components.run.preflight import SIMULATED
from pages.components.run.settings import BUILT_IN_POOLS
from pages.components.run.task_box import open_run, start
from pages.components.style.formats import inert

_FAULT = "way-out-fault"
_MOST_POOLS = 2
_SIMULATED_HELP = "Simulated workers know only the example tasks. The Conductor writes another plan for them."


def ways_out(trace: RunTrace) -> None:
    """Draws the buttons below the task of a run that failed. What is recorded of finished steps is reused."""
    if trace.status != "failed" or not may_run_here(trace):
        return
    if message := st.session_state.pop(_FAULT, None):
        fault_box(message)
    with st.container(horizontal=True, vertical_alignment="center", gap="xsmall", key="ways-out"):
        st.caption("This run failed", width="content")
        st.button("Try again", key="way-again", on_click=_begin, args=(trace, None, None))
        if asks_conductor(trace.root.workflow) and _conductor(trace) != settings.SHIPPED:
            st.button("Plan with tiny", key="way-conductor", on_click=_begin, args=(trace, settings.SHIPPED, None))
        for number, pool in enumerate(_other_pools(trace)):
            use = (trace, None, pool)
            st.button(f"Use pool {inert(Path(pool).stem)}", key=f"way-pool-{number}", on_click=_begin, args=use)
        if trace.pool.name != SIMULATED:
            conductor = settings.SHIPPED if trace.root.workflow is None else None
            use = (trace, conductor, SIMULATED)
            label = "Simulate it, planned by tiny" if conductor else "Use the simulated pool"
            st.button(label, key="way-pool", on_click=_begin, args=use, help=_SIMULATED_HELP)
        st.button("Settings", key="way-settings", on_click=settings.open_)


def _other_pools(trace: RunTrace) -> list[str]:
    """Returns pool files of this machine other than the run's, as many as there is room for."""
    files = [ref for ref in settings.offered_pools() if ref not in BUILT_IN_POOLS]
    return [ref for ref in files if Path(ref).stem != Path(trace.pool.name).stem][:_MOST_POOLS]


def _conductor(trace: RunTrace) -> str | None:
    return None if trace.conductor is None else trace.conductor.name


def _begin(trace: RunTrace, conductor: str | None, pool: str | None) -> None:
    """Starts the task of ``trace`` again; with another Conductor or pool, which are then chosen."""
    try:
        run_id = start(_request(trace, conductor, pool))
    except InspectorError as error:
        st.session_state[_FAULT] = str(error)
        return
    if conductor is not None:
        settings.use_conductor(conductor)
    if pool is not None:
        settings.use_pool(pool)
    open_run(run_id, trace.task)
    address.write("run", run_id)


def _request(trace: RunTrace, conductor: str | None, pool: str | None) -> RunRequest:
    if pool is None:
        request = resume_of(trace, *current().store.resumed_from(trace), door="page")
        asked = conductor or request.conductor or settings.conductor()
        needed = asks_conductor(request.workflow)
        return request.model_copy(update={"conductor": asked if needed else None})
    # The workers of another pool have other names: the Conductor plans anew.
    asked = conductor or _conductor(trace) or settings.SHIPPED
    more = {"workflow": None, "overrides": RunRequest(task=trace.task).overrides, "conductor": asked, "pool": pool}
    return rerun_of(trace, door="page").model_copy(update=more)
