"""The tour by its addresses, without a browser: where it begins, and where it is none."""

from collections.abc import Callable

from streamlit.testing.v1 import AppTest

from conductor_core.run.trace import RunTrace
from pages.components.app.session import Session
from pages.components.run.editing import EDITING
from pages.components.tour import drive as story

Visit = Callable[..., AppTest]


def labels(app: AppTest) -> set[str]:
    return {button.label for button in app.button}


def begun(session: Session) -> tuple[RunTrace, RunTrace, RunTrace]:
    """The three runs of a tour."""

    def run(source: RunTrace | None) -> RunTrace:
        request = story.first_request() if source is None else story.request_after(source)
        return session.host.wait(session.host.start(request), 30)

    planned = run(None)
    first = run(planned)
    return planned, first, run(first)


def test_it_begins_with_a_plan_of_which_nothing_has_run(visit: Visit, session: Session) -> None:
    app = visit()
    app.button("take-tour").click().run()
    trace = session.host.wait(app.query_params["run"], 30)
    assert app.query_params["tour"] == "plan"
    assert (story.kind_of(trace), trace.status) == ("planned", "planned")
    assert not labels(app) & {"Take the 60-second tour", "Resume tour"}


def test_a_link_to_a_stop_arranges_the_page_for_it(visit: Visit, session: Session) -> None:
    _, first, second = begun(session)
    app = visit(run=first.run_id, tour="change")
    assert app.session_state[EDITING] == first.run_id
    assert app.session_state[f"draft:{first.run_id}"].workflow == story.CHANGED
    app = visit(run=first.run_id, tour="saw")
    assert EDITING not in app.session_state
    app = visit(run=second.run_id, tour="change")
    assert app.query_params["tour"] == "rerun"
    app = visit(run=second.run_id, tour="compare")
    assert (app.query_params["a"], app.query_params["b"]) == (first.run_id, second.run_id)
    assert app.query_params["tour"] == "compare"
    app = visit(run=second.run_id, tour="record")
    assert app.query_params["run"] == second.run_id
    assert any("A person changed the plan" in each.proto.body for each in app.get("html"))


def test_another_run_has_no_tour_and_a_run_of_a_tour_leads_back_to_it(
    visit: Visit, session: Session, finished_run: RunTrace
) -> None:
    app = visit(run=finished_run.run_id, tour="change")
    assert "tour" not in app.query_params
    assert not labels(app) & {"Take the 60-second tour", "Resume tour"}
    _, first, _ = begun(session)
    app = visit(run=first.run_id)
    assert "Resume tour" in labels(app)
    app.button("take-tour").click().run()
    assert (app.query_params["run"], app.query_params["tour"]) == (first.run_id, "streaming")
