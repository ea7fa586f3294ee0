"""The Blame page without a browser: what it asks, what it says, and that replays stay out of the lists of re-runs."""

from collections.abc import Callable
from html import unescape

from streamlit.testing.v1 import AppTest

from conductor_core.blame.experiments import PURPOSE
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import RunTrace
from conductor_core.workflow.model import Step, Workflow
from pages.components.app.session import Session
from pages.components.blame import table

Visit = Callable[..., AppTest]


def htmls(app: AppTest) -> str:
    return unescape("\n".join(each.proto.body for each in app.get("html")))


def texts(app: AppTest) -> str:
    said = [each.value for each in (*app.markdown, *app.caption, *app.info, *app.error)]
    return "\n".join(said).replace("\\", "")


def measured(app: AppTest, run: RunTrace, replays: int = 3) -> AppTest:
    """Starts a blame on the page and draws the page once more when all replays have ended."""
    app.number_input("blame-count").set_value(replays).run()
    app.button("blame-begin").click().run()
    begun = table.work_of(run.run_id)
    assert begun is not None
    begun.wait(60)
    assert begun.error is None
    return app.run()


def test_without_runs_it_leads_to_the_run_page(visit: Visit) -> None:
    app = visit("blame")
    assert "What decided this answer?" in texts(app)
    assert [link.proto.label for link in app.get("page_link")] == ["Start one"]


def test_a_completed_run_is_offered_and_its_calls_are_named_before(visit: Visit, finished_run: RunTrace) -> None:
    app = visit("blame")
    app.button(f"blame-of-{finished_run.run_id}").click().run()
    assert app.query_params["run"] == finished_run.run_id
    said = texts(app)
    assert "60 replays, 100 calls" in said
    assert "Nothing is measured yet" in said
    assert "The right answer is not known" in said


def test_an_address_of_no_run_says_so_and_offers_others(visit: Visit, session: Session, finished_run: RunTrace) -> None:
    again = RunRequest(
        task=finished_run.task, workflow=finished_run.root.workflow, pool=finished_run.pool, purpose="one step again"
    )
    session.host.wait(session.host.start(again))
    app = visit("blame", run="nothing")
    assert "unknown run 'nothing'; see `conductor runs`" in texts(app)
    assert "Open the run" not in [link.proto.label for link in app.get("page_link")]
    offered = [button.key for button in app.button if button.key and button.key.startswith("blame-of-")]
    assert offered == [f"blame-of-{finished_run.run_id}"], "the answers of one step are not offered one by one"


def test_it_measures_ranks_draws_and_opens_each_replay(visit: Visit, session: Session, finished_run: RunTrace) -> None:
    app = measured(visit("blame", run=finished_run.run_id), finished_run)
    assert not app.exception
    assert "all of it is recorded" in texts(app)
    said = htmls(app)
    assert "data:image/svg+xml" in said
    assert "step 2 does not see step 1" in said
    rows = [button.label for button in app.button if (button.key or "").startswith("blame-step")]
    assert len(rows) == 3
    app.button("blame-granted 0-2").click().run()
    replays = session.store.runs(limit=1000, parent=finished_run.run_id)
    assert {run.purpose for run in replays} == {PURPOSE}
    shown = [run.run_id for run in replays if (run.batch_row or "").startswith("granted 0-2 fresh 2 #")]
    assert len(shown) == 3
    assert [run_id for run_id in shown if f"run?run={run_id}" not in htmls(app)] == []


def test_replays_are_no_reruns_and_one_row_of_history(visit: Visit, finished_run: RunTrace) -> None:
    measured(visit("blame", run=finished_run.run_id), finished_run, replays=1)
    run_page = visit("run", run=finished_run.run_id)
    assert not [button for button in run_page.button if (button.key or "").startswith("rerun-")]
    history = visit("history")
    (row,) = [button.label for button in history.button if (button.key or "").startswith("open-batch-")]
    assert row == "▤ Blame · 6 replays"
    assert [link.proto.label for link in history.get("page_link")] == [
        link.proto.label for link in visit("history").get("page_link") if "Plan by hand" in link.proto.label
    ], "no replay stands for itself"
    decided = [each.proto.body for each in visit("blame").get("html") if "Decided" in each.proto.body]
    assert any("flips in" in body or "nothing clearly flips it" in body for body in decided)


def test_a_truth_that_is_given_decides_what_a_flip_is(visit: Visit, finished_run: RunTrace) -> None:
    app = visit("blame", run=finished_run.run_id)
    app.text_input("blame-truth").set_value("no such time").run()
    assert "The answer is wrong: it flips if it becomes right." in texts(app)


def test_a_run_that_cannot_be_blamed_says_why(visit: Visit, session: Session) -> None:
    plan = Workflow(steps=(Step(instruction="{question}", agent="writer"),))
    planned = session.host.wait(session.host.start(RunRequest(task="t", workflow=plan, plan_only=True)), 30)
    assert "only the answer of a completed run can be blamed" in texts(visit("blame", run=planned.run_id))
    assert "no" in texts(visit("blame", run="no-such-run"))


def test_a_budget_that_was_just_typed_holds_for_the_press_that_comes_with_it(
    visit: Visit, finished_run: RunTrace
) -> None:
    app = visit("blame", run=finished_run.run_id)
    app.number_input("blame-count").set_value(1)
    app.number_input("blame-usd").set_value(0.5)
    app.button("blame-begin").click().run()
    begun = table.work_of(finished_run.run_id)
    assert begun is not None
    begun.wait(60)
    cap = begun.carrying_out.cap
    assert cap is not None
    assert (begun.carrying_out.blame.count, cap.max_usd) == (1, 0.5)
