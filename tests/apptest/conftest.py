"""The pages without a browser: the entry script on a real store and a real engine, with the simulated workers."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import streamlit as st
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest

from conductor_core.run.events import Event
from conductor_core.run.request import RunRequest, new_run_id
from conductor_core.run.trace import RunTrace
from conductor_core.settings import Settings
from conductor_core.workflow.model import Step, Workflow
from pages.components.app import session as runtime
from pages.components.app.session import Session
from tests.support.plan_edits import Edits
from tests.support.run_events import created_otherwise

FRAME = Path(__file__).resolve().parents[2] / "pages" / "components" / "app" / "frame.py"

CHAIN = Workflow(
    steps=(
        Step(instruction="Plan how to solve this: {question}", agent="planner"),
        Step(instruction="Solve this, following the plan: {question}", agent="reasoner", access_list=(0,)),
        Step(instruction="Check the solution in view: {question}", agent="verifier", access_list=(1,)),
    )
)
TASK = "A train leaves at 09:40 and covers 210 km at 84 km/h, then 95 km at 76 km/h. When does it arrive?"


@pytest.fixture(scope="session", autouse=True)
def _components_are_found_once() -> Iterator[None]:
    """Streamlit reads what all installed packages say of themselves at each AppTest: half of this layer's time."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(manifest_scanner, "scan_component_manifests", cache(manifest_scanner.scan_component_manifests))
        yield


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """The app as its lifespan would start it, with nothing in mind of another test's."""
    st.cache_data.clear()
    st.cache_resource.clear()
    opened = runtime.open_session(Settings(server_ports=()))
    monkeypatch.setattr(runtime, "_session", opened)
    yield opened
    opened.host.close()
    opened.store.close()


@pytest.fixture
def finished_run(session: Session) -> RunTrace:
    """A run of three steps in a chain, as the page would have started it."""
    run_id = session.host.start(RunRequest(task=TASK, workflow=CHAIN, door="page"))
    return session.host.wait(run_id, 30)


@pytest.fixture
def retell(session: Session, finished_run: RunTrace) -> Callable[..., RunTrace]:
    """Writes the finished run once more, as another run that went otherwise."""

    def write(events: int, *ending: Event, **created: object) -> RunTrace:
        """The first ``events`` events of it and then ``ending``; ``created``: what its ``run.created`` says instead."""
        run_id = new_run_id()
        told: list[Event] = [stored.event for stored in session.store.events(finished_run.run_id)][:events]
        told[0] = created_otherwise(told[0], **created)
        for event in (*told, *ending):
            session.store.log.append_and_wait(event.model_copy(update={"run_id": run_id}))
        return session.store.trace(run_id)[0]

    return write


@pytest.fixture
def visit(session: Session) -> Callable[..., AppTest]:
    """Opens a page by its address; ``state``: what the page has in mind from before."""

    def open_page(page: str = "run", state: dict[str, object] | None = None, **query: str) -> AppTest:
        app = AppTest.from_file(str(FRAME), default_timeout=300)
        for name, value in (state or {}).items():
            app.session_state[name] = value
        for name, value in query.items():
            app.query_params[name] = value
        app.run()
        if page != "run":
            app.switch_page(f"../../{page}.py").run()
        assert not app.exception
        return app

    return open_page


@pytest.fixture
def edits(visit: Callable[..., AppTest], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Edits]:
    """Opens the editor of a run's plan, or of the new plan on the page of ``app``."""

    def open_editor(run: RunTrace | None = None, app: AppTest | None = None) -> Edits:
        if run is None:
            assert app is not None
            return Edits(app, None, monkeypatch)
        return Edits(visit(run=run.run_id, state={"editing-run": run.run_id}), run.run_id, monkeypatch)

    return open_editor
