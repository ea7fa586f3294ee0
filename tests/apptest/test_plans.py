"""Start from a plan: a template, a text, an earlier run; edited and run before anything is sent."""

import json
from collections.abc import Callable

import pytest
from streamlit.testing.v1 import AppTest

from conductor_core.run.trace import RunTrace
from conductor_core.workflow.topology import TEMPLATES, Template
from pages.components.app.session import Session
from pages.components.run import new_plan
from pages.components.run.draft import Draft
from tests.support.plan_edits import Edits

Visit = Callable[..., AppTest]
Open = Callable[..., Edits]
TASK = "How much is 17 % of 2400?"


@pytest.fixture
def dialog(visit: Visit) -> AppTest:
    app = visit()
    app.text_area("task").set_value(TASK).run()
    app.button("plans").click().run()
    assert not app.exception
    return app


def draft(app: AppTest) -> Draft:
    kept: Draft = app.session_state[new_plan.KEY]
    return kept


def kind(app: AppTest, name: str) -> None:
    app.session_state["plans-kind"] = name
    app.run()
    assert not app.exception


def says(app: AppTest, text: str) -> bool:
    shown = [*app.markdown, *app.caption, *app.error]
    return any(text in each.value.replace("\\", "") for each in shown)


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: str(template.name))
def test_a_template_opens_valid_and_nothing_is_sent(
    template: Template, dialog: AppTest, edits: Open, session: Session
) -> None:
    dialog.radio("plans-template").set_value(template.name).run()
    dialog.button("plans-open").click().run()
    assert not dialog.exception
    editing = edits(app=dialog)
    assert editing.editor["title"].startswith("A plan of your own")
    assert editing.said.startswith("Nothing is sent yet")
    assert editing.editor["starts"]
    assert session.store.runs() == []


def test_a_template_runs_as_it_was_edited(dialog: AppTest, edits: Open, session: Session) -> None:
    dialog.radio("plans-template").set_value("One shot").run()
    dialog.button("plans-open").click().run()
    editing = edits(app=dialog)
    assert "once a run of this plan has ended" in editing.editor["not_yet"], "why no output can be given"
    editing.do("instruct", 0, text="Compute this: {question}")
    editing.do("assign", 0, agent="calculator")
    trace = editing.start(session)
    assert trace.status == "completed"
    assert (trace.task, trace.conductor, trace.root.source) == (TASK, None, "file")
    assert [(step.agent, step.instruction) for step in trace.steps] == [("calculator", "Compute this: {question}")]
    assert new_plan.KEY not in dialog.session_state, "the run has the plan now"


def test_a_blank_plan_says_what_it_lacks_until_it_has_a_step(dialog: AppTest, edits: Open) -> None:
    dialog.radio("plans-template").set_value("Blank").run()
    dialog.button("plans-open").click().run()
    editing = edits(app=dialog)
    assert "The workflow has no steps." in editing.notes()
    assert not editing.editor["starts"]
    editing.do("first")
    assert editing.editor["starts"]


def test_a_plan_without_a_task_does_not_start(visit: Visit, edits: Open, session: Session) -> None:
    app = visit()
    app.button("plans").click().run()
    app.button("plans-open").click().run()
    editing = edits(app=app)
    assert not editing.editor["starts"]
    assert "There is no task yet" in editing.said
    editing.do("start")
    assert session.store.runs() == []


def test_a_pasted_plan_brings_its_task_into_an_empty_box(visit: Visit) -> None:
    app = visit()
    app.button("plans").click().run()
    kind(app, "A text or file")
    text = '{"task": "How many?", "steps": [{"instruction": "{question}", "agent": "coder", "access_list": []}]}'
    app.text_area("plans-given").set_value(text).run()
    app.button("plans-open").click().run()
    assert not app.exception
    assert app.text_area("task").value == "How many?"
    assert [step.agent for step in draft(app).workflow.steps] == ["coder"]


def test_a_pasted_text_that_is_no_plan_says_why_and_where(dialog: AppTest) -> None:
    kind(dialog, "A text or file")
    dialog.text_area("plans-given").set_value("model_id = [0]\nsubtasks = ['x']\naccess_list = [[]").run()
    assert says(dialog, "line 3, column")
    assert not [each for each in dialog.button if each.key == "plans-open"]


def test_a_pasted_plan_with_a_broken_rule_shows_the_fault_at_its_step(dialog: AppTest, edits: Open) -> None:
    kind(dialog, "A text or file")
    dialog.text_area("plans-given").set_value(
        "model_id = [0, 9]\nsubtasks = ['{question}', 'x']\naccess_list = [[], [0]]"
    ).run()
    dialog.button("plans-open").click().run()
    editing = edits(app=dialog)
    (fault,) = editing.editor["faults"]
    assert (fault["key"], fault["field"]) == ("1", "agent")
    assert "the pool has no agent 9" in fault["message"]
    assert not editing.editor["starts"]


def test_access_that_no_field_shows_is_cut_with_one_click(dialog: AppTest, edits: Open) -> None:
    kind(dialog, "A text or file")
    steps = [("planner", [7]), ("writer", [0, 0, 1])]
    told = [{"instruction": "{question}", "agent": agent, "access_list": access} for agent, access in steps]
    dialog.text_area("plans-given").set_value(json.dumps({"steps": told})).run()
    dialog.button("plans-open").click().run()
    editing = edits(app=dialog)
    assert "Step 0 reads step 7" in editing.notes()
    assert [step["beyond"] for step in editing.editor["steps"]] == [True, True]
    for step in (0, 1):
        editing.do("only", step)
    assert [step.access_list for step in editing.draft.workflow.steps] == [(), (0,)]
    assert editing.editor["starts"]


def test_the_plan_of_an_earlier_run_can_be_taken(visit: Visit, finished_run: RunTrace) -> None:
    app = visit()
    app.button("plans").click().run()
    kind(app, "An earlier run")
    assert app.selectbox("plans-run").value == finished_run.run_id
    app.button("plans-open").click().run()
    assert draft(app).workflow == finished_run.root.workflow
    assert app.text_area("task").value == finished_run.task


def test_another_start_takes_the_place_of_the_plan_and_undo_brings_it_back(dialog: AppTest, edits: Open) -> None:
    for name in ("Debate", "One shot"):
        if name == "One shot":
            dialog.button("plans").click().run()
        dialog.radio("plans-template").set_value(name).run()
        dialog.button("plans-open").click().run()
    assert len(draft(dialog).workflow.steps) == 1
    editing = edits(app=dialog)
    editing.do("undo")
    assert len(draft(dialog).workflow.steps) == 5
    editing.do("redo")
    assert len(draft(dialog).workflow.steps) == 1


def test_a_closed_plan_is_offered_again(dialog: AppTest, edits: Open) -> None:
    dialog.button("plans-open").click().run()
    editing = edits(app=dialog)
    editing.data = {}
    editing.do("close")
    assert not editing.data, "the first screen is there"
    dialog.button("plans").click().run()
    assert dialog.button("plans-go-on").label == "Go on with your plan of 3 steps"
    dialog.button("plans-go-on").click().run()
    assert editing.editor["of"] == "new"


def test_a_run_on_the_page_hides_the_plan_and_leaving_it_shows_the_plan_again(
    dialog: AppTest, edits: Open, finished_run: RunTrace
) -> None:
    dialog.button("plans-open").click().run()
    editing = edits(app=dialog)
    dialog.query_params["run"] = finished_run.run_id
    dialog.run()
    assert editing.data["editor"] is None
    del dialog.query_params["run"]
    dialog.run()
    assert editing.editor["of"] == "new"
