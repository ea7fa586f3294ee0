"""A step asked again from the Run page, and outputs given in the plan editor."""

from collections.abc import Callable

import pytest
from streamlit.testing.v1 import AppTest

from conductor_core.engine.budgets import CostCap
from conductor_core.engine.repeats import PURPOSE, Again, repeat_requests
from conductor_core.errors import StoreError
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import RunTrace
from pages.components.app.session import Session
from tests.support.plan_edits import Edits

Visit = Callable[..., AppTest]
Open = Callable[..., Edits]


def says(app: AppTest, text: str) -> bool:
    return any(text in each.value.replace("\\", "") for each in app.markdown)


def test_a_step_is_asked_many_times_and_its_answers_open_their_runs(
    visit: Visit, session: Session, finished_run: RunTrace
) -> None:
    run_id = finished_run.run_id
    app = visit(run=run_id, state={"step-again": (run_id, 1)})
    app.number_input("again-times").set_value(3).run()
    app.multiselect("again-agents-1").set_value(["reasoner", "calculator"]).run()
    assert says(app, "▶ **1** will run in each · ↺ **0** reused")
    assert says(app, "6 runs: about")
    app.button("again-run").click().run()
    assert not app.exception
    made = session.store.runs(limit=20, parent=run_id)
    assert {run.purpose for run in made} == {PURPOSE}
    for run in made:
        session.host.wait(run.run_id, 30)
    app.run()
    assert says(app, "**Step 1 alone, 6 times**")
    assert says(app, "**reasoner** :small[3 of 3 answered")
    assert says(app, "**calculator** :small[3 of 3 answered")
    app.button(f"again-open-{made[0].run_id}").click().run()
    assert app.query_params["run"] == made[0].run_id
    assert says(app, "**Step 1 alone, 6 times**"), "the panel stands on the page of each of these runs"


def test_after_a_storage_error_only_what_is_missing_starts(
    visit: Visit, session: Session, finished_run: RunTrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, left = session.host.start, [2]

    def start(request: RunRequest, cap: CostCap | None = None, **how: object) -> str:
        left[0] -= 1
        if left[0] == -1:
            raise StoreError("the disk is full")
        return begin(request, cap, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(session.host, "start", start)
    app = visit(run=finished_run.run_id, state={"step-again": (finished_run.run_id, 1)})
    app.number_input("again-times").set_value(4).run()
    app.button("again-run").click().run()
    assert any("disk is full" in each.value for each in app.error)
    assert app.button("again-run").label == "Run the 2 that are missing"
    app.number_input("again-times").set_value(3).run()
    assert app.button("again-run").label == "Run 3 times", "another choice is another matter"
    app.number_input("again-times").set_value(4).run()
    app.button("again-run").click().run()
    made = session.store.runs(limit=20, parent=finished_run.run_id)
    assert len(made) == 4
    assert len({run.batch_id for run in made}) == 1, "they are of one batch"
    for run in made:
        session.host.wait(run.run_id, 30)
    app.run()
    assert says(app, "**Step 1 alone, 4 times**")


def test_a_single_run_is_opened(visit: Visit, session: Session, finished_run: RunTrace) -> None:
    app = visit(run=finished_run.run_id, state={"step-again": (finished_run.run_id, 1)})
    app.number_input("again-times").set_value(1).run()
    app.button("again-run").click().run()
    (made,) = session.store.runs(limit=20, parent=finished_run.run_id)
    assert app.query_params["run"] == made.run_id, "a single run is opened"


def test_the_answers_stand_also_where_the_parent_is_gone(
    visit: Visit, session: Session, finished_run: RunTrace
) -> None:
    agents = [spec.name for spec in finished_run.pool.workers]
    requests = repeat_requests(finished_run, Again(step=0, times=2), agents, door="page")
    ids = [session.host.start(request) for request in requests]
    for run_id in ids:
        session.host.wait(run_id, 30)
    session.store.delete([finished_run.run_id], requests[0].caller)
    assert says(visit(run=ids[0]), "**Step 0 alone, 2 times**")


def test_an_output_is_written_undone_redone_and_run(edits: Open, session: Session, finished_run: RunTrace) -> None:
    editing = edits(finished_run)
    editing.do("write", 1, text=finished_run.steps[1].output)
    editing.do("write", 1, text="The answer is 12:00.")
    assert "by a person" in editing.said
    assert editing.editor["steps"][1]["given"]["text"] == "The answer is 12:00."
    editing.do("undo")
    editing.do("undo")
    assert not editing.draft.outputs
    editing.do("redo")
    editing.do("redo")
    assert editing.draft.outputs[0].text == "The answer is 12:00."
    trace = editing.start(session)
    assert [step.status for step in trace.steps] == ["reused", "written", "completed"]
    assert trace.steps[1].given is not None
    assert trace.steps[1].given.door == "page"
    assert trace.steps[2].granted[0].given == "written"


def test_a_pinned_output_is_let_go_again(edits: Open, finished_run: RunTrace) -> None:
    editing = edits(finished_run)
    editing.do("pin", 1)
    assert editing.editor["steps"][1]["given"]["how"] == "pinned"
    assert editing.draft.outputs[0].text == finished_run.steps[1].output
    editing.do("release", 1)
    assert not editing.draft.changed
