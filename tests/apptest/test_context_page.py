"""The Context page without a browser: what it says of runs of every kind, and that what it shows is inert."""

from collections.abc import Callable
from html import unescape

import pytest
from streamlit.testing.v1 import AppTest

from conductor_core.run.context_flow import context_flow
from conductor_core.run.events import RunFailed
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import SharedOutput
from conductor_core.workflow.model import Step, Workflow
from pages.components.app.session import Session
from pages.components.context.page import matrix_data
from tests.support.run_events import answered, created, planned, step_started

Visit = Callable[..., AppTest]


def htmls(app: AppTest) -> str:
    return "\n".join(each.proto.body for each in app.get("html"))


def choose(app: AppTest, run: RunTrace, cell: str) -> AppTest:
    """Chooses a cell of the run's matrix, as the component in the browser does."""
    app.session_state[f"matrix-{run.run_id}-"] = {"cell": cell}
    return app.run()


def test_without_runs_it_leads_to_the_run_page(visit: Visit) -> None:
    app = visit("context")
    assert any("Where does the context go?" in each.value for each in app.markdown)
    assert [link.proto.label for link in app.get("page_link")] == ["Start one"]


def test_without_a_chosen_run_it_offers_the_newest(visit: Visit, finished_run: RunTrace) -> None:
    app = visit("context")
    (offered,) = [button for button in app.button if button.key == f"context-of-{finished_run.run_id}"]
    offered.click().run()
    assert app.query_params["run"] == finished_run.run_id
    assert "✓ completed" in htmls(app)


def test_another_run_can_be_picked(visit: Visit, session: Session, finished_run: RunTrace) -> None:
    other = Workflow(steps=(Step(instruction="{question}", agent="writer"),))
    second = session.host.wait(session.host.start(RunRequest(task="Another one?", workflow=other)), 30)
    app = visit("context", run=finished_run.run_id)
    app.selectbox("context-run").select(second.run_id).run()
    assert app.query_params["run"] == second.run_id
    assert any("Another one?" in each.value.replace("\\", "") for each in app.caption)


def test_a_run_that_is_not_there_is_one_clear_error(visit: Visit) -> None:
    (error,) = visit("context", run="no-such-run").error
    assert "no" in error.value


def test_it_shows_the_matrix_the_prompts_and_the_other_lists_and_says_simulated(
    visit: Visit, finished_run: RunTrace
) -> None:
    app = visit("context", run=finished_run.run_id)
    assert not app.exception
    said = htmls(app)
    assert '<span class="pill simulated">simulated</span>' in said
    assert "These workers are simulated." in said
    assert "output of step 0" in said
    assert [word for word in ("no access", "as planned", "every list &#34;all&#34;") if word not in said] == []
    assert "● granted" in said
    drawn = [each.proto for each in app.get("bidi_component")]
    assert [proto.component_name.rpartition(".")[2] for proto in drawn] == ["context", "figure"]


def test_a_cell_opens_the_exact_message(visit: Visit, finished_run: RunTrace) -> None:
    app = choose(visit("context", run=finished_run.run_id), finished_run, "0>1")
    said = unescape(htmls(app))
    assert "Step 1 (reasoner) got the output of step 0 (planner)." in said
    assert finished_run.steps[0].output in said
    assert "message 2 of 3, assistant" in said
    app = choose(app, finished_run, "0>2")
    said = unescape(htmls(app))
    assert "Step 2 (verifier) was not shown the output of step 0 (planner)." in said
    assert "what was withheld" in said


@pytest.mark.parametrize("sent", ["9>9", 7, ["0>1"], "<b>"])
def test_what_a_browser_might_send_instead_of_a_cell_chooses_none(
    visit: Visit, finished_run: RunTrace, sent: object
) -> None:
    app = visit("context", run=finished_run.run_id)
    app.session_state[f"matrix-{finished_run.run_id}-"] = {"cell": sent}
    app.run()
    assert not app.exception
    assert "Choose a cell." in htmls(app)


def test_what_models_wrote_is_never_markup(visit: Visit, session: Session) -> None:
    hostile = "<img src=x onerror=alert(1)>\u202e"
    shared = SharedOutput(path=(0,), agent="solver", sha256="ab" * 32, characters=len(hostile), tokens=8)
    second = step_started("r", 1, 60).model_copy(update={"withheld": (shared,)})
    for event in (created("r", task=hostile), *planned("r"), *answered("r", 0, hostile), second):
        session.store.log.append_and_wait(event)
    app = choose(visit("context", run="r"), session.store.trace("r")[0], "0>1")
    assert not app.exception
    assert "<img" not in htmls(app)
    assert "⟨U+202E⟩" in htmls(app)


def test_failed_and_waiting_steps_are_shown(visit: Visit, retell: Callable[..., RunTrace]) -> None:
    run = retell(5, RunFailed(run_id="", error_code="X", error="why"))
    app = visit("context", run=run.run_id)
    assert not app.exception
    assert "✕ failed" in htmls(app)


def test_by_provider_it_says_who_got_what(visit: Visit, finished_run: RunTrace) -> None:
    app = visit("context", run=finished_run.run_id)
    app.segmented_control("context-view").set_value("By provider").run()
    said = htmls(app)
    assert "rehearsal, in this process" in said
    assert "written there" in said
    assert "Choose “By step”, then a cell." in said


def test_what_the_browser_draws_has_a_cell_for_each_earlier_source(finished_run: RunTrace) -> None:
    (round_,) = context_flow(finished_run).rounds
    data = matrix_data(round_, ["planner", "reasoner", "verifier"])
    assert [[cell and cell["key"] for cell in row["cells"]] for row in data["rows"]] == [
        ["question>0", "question>1", "question>2"],
        [None, "0>1", "0>2"],
        [None, None, "1>2"],
    ]
    assert [head["agent"] for head in data["heads"]] == ["planner", "reasoner", "verifier"]
    assert data["rows"][1]["cells"][2]["said"].startswith("step 0 of planner for step 2: withheld, ")
