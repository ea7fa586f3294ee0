"""What a failed run offers, in one press each: another try, another Conductor, another pool, the settings.

The component shows it in its bar.
"""

from pathlib import Path

import streamlit as st

from conductor_core.engine.request import asks_conductor, may_run_here, rerun_of, resume_of
from conductor_core.errors import InspectorError
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import RunTrace
from pages.components.app import address
from pages.components.app.session import current
from pages.components.run import settings
from pages.components.run.preflight import SIMULATED
from pages.components.run.settings import BUILT_IN_POOLS
from pages.components.run.task_box import open_run, start

_FAULT = "way-out-fault"


def ways_out(trace: RunTrace) -> dict[str, str]:
    """Returns what a run that failed offers beside another try, by the kind of the intent."""
    if trace.status != "failed" or not may_run_here(trace):
        return {}
    offers = {}
    if asks_conductor(trace.root.workflow) and _conductor(trace) != settings.SHIPPED:
        offers["way-conductor"] = "Plan with tiny"
    if (pool := _other_pool(trace)) is not None:
        offers["way-other-pool"] = f"Use pool {Path(pool).stem}"
    if trace.pool.name != SIMULATED:
        planned = trace.root.workflow is not None
        offers["way-pool"] = "Use the simulated pool" if planned else "Simulate it, planned by tiny"
    return {**offers, "way-settings": "Settings"}


def take(trace: RunTrace, way: str) -> None:
    """Does what ``ways_out`` offered. What is recorded of finished steps is reused. Call it before a drawing."""
    if way not in ways_out(trace):
        return
    if way == "way-settings":
        settings.open_()
    elif way == "way-conductor":
        _begin(trace, settings.SHIPPED, None)
    elif way == "way-other-pool":
        _begin(trace, None, _other_pool(trace))
    else:
        _begin(trace, settings.SHIPPED if trace.root.workflow is None else None, SIMULATED)


def fault() -> str | None:
    """Returns why the last way out led nowhere, once."""
    message: str | None = st.session_state.pop(_FAULT, None)
    return message


def try_again(trace: RunTrace) -> RunRequest:
    """Returns the request of another try of a run that has no plan."""
    return _request(trace, None, None)


def _other_pool(trace: RunTrace) -> str | None:
    """Returns the first pool file of this machine that is not the run's; None: there is none."""
    files = [ref for ref in settings.offered_pools() if ref not in BUILT_IN_POOLS]
    return next((ref for ref in files if Path(ref).stem != Path(trace.pool.name).stem), None)


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
