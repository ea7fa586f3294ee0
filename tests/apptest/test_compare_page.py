"""The Compare page without a browser: by its address, by its choices, from a re-run and from History."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from conductor_core.engine.estimates import edit_step
from conductor_core.engine.request import rerun_of
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import BatchRow
from conductor_core.workflow.model import CONDUCTOR_AGENT, Workflow
from pages.components.app.session import Session
from tests.support.damaging import doctor
from tests.support.fakes import workflow_of
from tests.support.run_events import created_otherwise, recursive_run, whole_run

Visit = Callable[..., AppTest]


def rerun(session: Session, source: RunTrace, **edit: Any) -> RunTrace:
    workflow = source.root.workflow
    assert workflow is not None
    changed: Workflow = edit_step(workflow, 2, **edit)
    run_id = session.host.start(rerun_of(source, changed, door="page", origins=(0, 1, 2)))
    return session.host.wait(run_id, 30)


def compared(app: AppTest) -> dict[str, Any] | None:
    """What the component is given; None: it is not there."""
    drawn = [json.loads(each.proto.json) for each in app.get("bidi_component")]
    return next((each for each in drawn if "headline" in each), None)


def shared(app: AppTest) -> dict[str, Any] | None:
    """What the dialog that hands the comparison over is given; None: it is not there."""
    drawn = [json.loads(each.proto.json) for each in app.get("bidi_component")]
    return next((each for each in drawn if "run_ids" in each), None)


def markdown(app: AppTest) -> str:
    return " ".join(each.value for each in app.markdown)


def links(app: AppTest) -> list[tuple[str, str]]:
    return [(link.proto.label, link.proto.query_string) for link in app.get("page_link")]


def test_without_runs_it_says_what_will_be_here_and_leads_to_a_first_run(visit: Visit) -> None:
    app = visit("compare")
    assert "Nothing to compare yet" in markdown(app)
    assert [label for label, _ in links(app)] == ["Start a run"]
    assert not app.get("bidi_component")


def test_two_runs_by_their_address(visit: Visit, session: Session, finished_run: RunTrace) -> None:
    child = rerun(session, finished_run, access=(0, 1))
    app = visit("compare", a=finished_run.run_id, b=child.run_id)
    view = compared(app)
    assert view is not None
    assert [run["run_id"] for run in view["runs"]] == [finished_run.run_id, child.run_id]
    assert view["first"] == "2"
    assert view["headline"].startswith("One change of the plan: step 2 also reads step 0.")
    assert [app.selectbox(f"compare-{name}").value for name in "ab"] == [finished_run.run_id, child.run_id]
    assert shared(app) == {"run_ids": [finished_run.run_id, child.run_id], "ended": True}


def test_choosing_and_exchanging_runs_writes_the_address(
    visit: Visit, session: Session, finished_run: RunTrace
) -> None:
    child = rerun(session, finished_run, access=(0, 1))
    app = visit("compare")
    assert [button.key for button in app.button if str(button.key).startswith("offer-")] == [f"offer-{child.run_id}"]
    app.selectbox("compare-a").set_value(child.run_id).run()
    app.selectbox("compare-b").set_value(finished_run.run_id).run()
    assert (app.query_params["a"], app.query_params["b"]) == (child.run_id, finished_run.run_id)
    assert compared(app) is not None
    app.button("swap").click().run()
    assert (app.query_params["a"], app.query_params["b"]) == (finished_run.run_id, child.run_id)
    view = compared(app)
    assert view is not None
    assert view["runs"][0]["run_id"] == finished_run.run_id


def test_the_same_run_twice_and_unknown_runs_are_said(visit: Visit, finished_run: RunTrace) -> None:
    app = visit("compare", a=finished_run.run_id, b=finished_run.run_id)
    assert "the same run twice" in app.warning[0].value
    app = visit("compare", a=finished_run.run_id, b="nothere")
    assert "nothere" in app.error[0].value
    assert "Nothing to compare yet" in markdown(app)


def test_a_damaged_run_is_compared_as_far_as_it_can_be_read(
    visit: Visit, session: Session, finished_run: RunTrace
) -> None:
    child = rerun(session, finished_run, access=(0, 1))
    change = "UPDATE events SET payload = '{' WHERE run_id = :run_id AND kind = 'step.completed'"
    doctor(session.store._database.path, change, run_id=child.run_id)
    app = visit("compare", a=finished_run.run_id, b=child.run_id)
    assert "compared as far as it can be read" in app.error[0].value.replace("\\", "")
    assert compared(app) is not None


def test_three_runs_are_a_table_and_each_leads_to_its_details(
    visit: Visit, session: Session, finished_run: RunTrace
) -> None:
    children = [rerun(session, finished_run, instruction=f"Check it {n}: {{question}}") for n in range(2)]
    app = visit("compare", a=finished_run.run_id, b=children[0].run_id, more=children[1].run_id)
    cells = [each.proto.body for each in app.get("html") if "compared-cells" in each.proto.body]
    assert ["1 change" in cell for cell in cells] == [False, False, True, True]
    app.button(f"with-{children[1].run_id}").click().run()
    assert (app.query_params["a"], app.query_params["b"]) == (finished_run.run_id, children[1].run_id)
    assert "more" not in app.query_params
    view = compared(app)
    assert view is not None
    assert view["runs"][1]["run_id"] == children[1].run_id


def test_of_three_runs_only_the_first_two_can_be_kept(visit: Visit, session: Session, finished_run: RunTrace) -> None:
    children = [rerun(session, finished_run, instruction=f"Check it {n}: {{question}}") for n in range(2)]
    app = visit("compare", a=finished_run.run_id, b=children[0].run_id, more=children[1].run_id)
    app.button("only-two").click().run()
    view = compared(app)
    assert view is not None
    assert view["runs"][1]["run_id"] == children[0].run_id


def test_a_rerun_is_offered_with_its_parent(visit: Visit, session: Session, finished_run: RunTrace) -> None:
    child = rerun(session, finished_run, access=(0, 1))
    app = visit("compare")
    app.button(f"offer-{child.run_id}").click().run()
    assert (app.query_params["a"], app.query_params["b"]) == (finished_run.run_id, child.run_id)


def test_it_opens_with_reruns_that_changed_the_answer(visit: Visit, session: Session) -> None:
    told = [("first", "42", None), ("same", "42", "first"), ("changed", "41", "first"), ("other", "7", None)]
    for run_id, answer, parent in told:
        first, *rest = whole_run(run_id, answer=f"The answer is {answer}.")
        session.store.log.append_and_wait(created_otherwise(first, parent_run_id=parent), *rest)
    app = visit("compare")
    heads = [each.label.replace("\\", "") for each in app.button if str(each.key).startswith("run-group-")]
    titles = ["Re-runs that changed the answer", "Re-runs that kept it", "The same task by another plan"]
    assert [title in head for title, head in zip(titles, heads, strict=True)] == [True] * 3
    offers = [str(button.key) for button in app.button if str(button.key).startswith("offer-")]
    assert offers == ["offer-changed", "offer-same", "offer-other"]
    app.button("offer-other").click().run()
    assert (app.query_params["a"], app.query_params["b"]) == ("first", "other")


def test_a_step_asked_many_times_is_no_rerun_to_compare(
    visit: Visit, retell: Callable[..., RunTrace], finished_run: RunTrace
) -> None:
    one_of_many = retell(99, parent_run_id=finished_run.run_id, batch=BatchRow(id="b", row="0", name="", size=1))
    assert f"offer-{one_of_many.run_id}" not in {button.key for button in visit("compare").button}


def test_what_models_wrote_is_inert(visit: Visit, retell: Callable[..., RunTrace], finished_run: RunTrace) -> None:
    hostile = "<b>![x](http://evil)</b>"
    others = [retell(99, task=hostile), retell(99, task=hostile)]
    app = visit("compare", a=finished_run.run_id, b=others[0].run_id, more=others[1].run_id)
    told = [*(each.value for each in app.caption), *(label for label, _ in links(app))]
    assert not any("![" in each for each in told)


@pytest.mark.parametrize("from_parent", [True, False])
def test_a_rerun_and_its_parent_lead_to_the_comparison_the_older_run_first(
    visit: Visit, session: Session, finished_run: RunTrace, from_parent: bool
) -> None:
    child = rerun(session, finished_run, access=(0, 1))
    here = finished_run if from_parent else child
    (live,) = visit(run=here.run_id).get("bidi_component")
    assert json.loads(live.proto.json)["kin"]["compare"] == f"compare?a={finished_run.run_id}&b={child.run_id}"


def test_history_compares_the_runs_that_are_selected(visit: Visit, session: Session, finished_run: RunTrace) -> None:
    child = rerun(session, finished_run, access=(0, 1))
    app = visit("history")
    app.toggle("history-select").set_value(True).run()
    assert app.button("compare-picked").disabled
    for run in (finished_run, child):
        app.checkbox(f"pick-run-{run.run_id}").set_value(True).run()
    app.button("compare-picked").click().run()
    assert not app.exception
    assert (app.query_params["a"], app.query_params["b"]) == (finished_run.run_id, child.run_id)
    assert compared(app) is not None


def test_history_draws_the_tree_of_a_run_with_what_was_edited(
    visit: Visit, session: Session, finished_run: RunTrace
) -> None:
    child = rerun(session, finished_run, access=(0, 1))
    grandchild = rerun(session, child, instruction="Check it once more: {question}")
    app = visit("history", tree=child.run_id)
    opened = [query for _, query in links(app) if query.startswith("run=")]
    assert opened == [f"run={run.run_id}" for run in (finished_run, child, grandchild)]
    said = [each.proto.body for each in app.get("html") if "tree-said" in each.proto.body]
    assert ["Plan by hand" in said[0], "also reads step 0" in said[1], "instruction of step 2 edited" in said[2]] == [
        True
    ] * 3
    assert [query for label, query in links(app) if label == "Compare"] == [
        f"a={finished_run.run_id}&b={child.run_id}",
        f"a={child.run_id}&b={grandchild.run_id}",
    ]
    app.button("all-runs").click().run()
    assert "tree" not in app.query_params


def test_one_selected_run_of_history_leads_to_its_tree(visit: Visit, finished_run: RunTrace) -> None:
    app = visit("history")
    app.toggle("history-select").set_value(True).run()
    app.checkbox(f"pick-run-{finished_run.run_id}").set_value(True).run()
    app.button("tree-picked").click().run()
    assert app.query_params["tree"] == finished_run.run_id
    assert [query for _, query in links(app)] == [f"run={finished_run.run_id}"]


def test_a_run_without_relatives_has_no_tree(visit: Visit, session: Session, finished_run: RunTrace) -> None:
    def kin() -> dict[str, str] | None:
        (live,) = visit(run=finished_run.run_id).get("bidi_component")
        found: dict[str, str] | None = json.loads(live.proto.json)["kin"]
        return found

    assert kin() is None
    rerun(session, finished_run, access=(0, 1))
    assert (kin() or {})["tree"] == "Tree of 2 runs"


def test_the_rounds_of_a_run_stand_beside_each_other(visit: Visit, session: Session, finished_run: RunTrace) -> None:
    assert "one round" in visit("compare", rounds=finished_run.run_id).info[0].value

    first = workflow_of(("solver", "solve", ()), (CONDUCTOR_AGENT, "go on", (0,)))
    second = workflow_of(("checker", "check {question}", ()))
    session.store.log.append_and_wait(*recursive_run("rounds", first, second))
    app = visit("compare", rounds="rounds")
    assert not app.exception
    view = compared(app)
    assert view is not None
    assert [run["name"] for run in view["runs"]] == ["round 1", "round 2"]
    assert [run["answer"]["text"] for run in view["runs"]] == ["41", "42"]
    assert ("Run rounds", "run=rounds") in links(app)
