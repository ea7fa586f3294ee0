"""Several plans for one task on the Run page: written, folded, opened, edited, run."""

from collections.abc import Callable, Sequence

import pytest
from streamlit.testing.v1 import AppTest

from conductor_core.chat.messages import Usage
from conductor_core.engine.pools import pool_info
from conductor_core.engine.repeats import plans_requested
from conductor_core.run import events as ev
from conductor_core.run.actor import local_caller
from conductor_core.run.request import RunRequest
from conductor_core.workflow.model import Fault, Step, Workflow
from conductor_core.workflow.topology import topology
from pages.components.app.session import Session
from pages.components.run.editing import EDITING
from tests.support.provider import Answer, ScriptedProvider
from tests.support.run_events import created

Visit = Callable[..., AppTest]
TASK = "How much is 17 % of 2400?"
ONE = Workflow(steps=(Step(instruction="Compute {question}", agent="calculator"),))
TWO = Workflow(steps=(*ONE.steps, Step(instruction="Check {question}", agent="verifier", access_list=(0,))))
FREE = {"usage": Usage(), "cost_usd": 0.0}
FAULT = Fault(code="unknown_agent", message="Step 0: the pool has no agent <b>9</b>.", step=0, field="agent")


def written(session: Session, plans: Sequence[Workflow | None], temperature: float | None = 0.7) -> list[str]:
    """Writes a batch of plans into the store as a Conductor would have written them; None: a faulty one."""
    each = RunRequest(task=TASK, door="page", conductor="tiny", pool="rehearsal")
    requests = plans_requested(each, len(plans), seed=1, temperature=temperature)
    pool = pool_info("rehearsal", session.settings)
    for request, plan in zip(requests, plans, strict=True):
        first = created(request.run_id, pool=pool).model_copy(update={"request": request})
        told = {"run_id": request.run_id, "at_ms": 1.0, "raw": "text", "duration_ms": 1.0}
        if plan is None:
            faulty = ev.PlanRejected(**told, attempt=1, faults=(FAULT,), will_retry=False)
            end: ev.Event = ev.RunFailed(
                run_id=request.run_id, at_ms=2, duration_ms=2, error_code="PlanRejected", error="no usable plan", **FREE
            )
            session.store.log.append_and_wait(first, faulty, end)
            continue
        done = ev.PlanCompleted(**told, source="conductor", workflow=plan, topology=topology(plan))
        end = ev.RunCompleted(run_id=request.run_id, at_ms=2, duration_ms=2, answer=None, **FREE)
        session.store.log.append_and_wait(first, done, end)
    return [request.run_id for request in requests]


def says(app: AppTest, text: str) -> bool:
    return any(text in each.value.replace("\\", "") for each in [*app.markdown, *app.caption, *app.error])


def opened(app: AppTest) -> str:
    """The id of the run in the address."""
    found = app.query_params["run"]
    return str(found[0] if isinstance(found, list) else found)


def labels(app: AppTest) -> list[str]:
    return [str(button.label) for button in app.button]


@pytest.fixture
def four(session: Session) -> list[str]:
    return written(session, (ONE, TWO, None, ONE))


def test_equal_plans_are_one_row_and_a_faulty_one_says_why(visit: Visit, four: list[str]) -> None:
    app = visit(run=four[1])
    assert {"Plan 0, 3 ×2", "**Plan 1**", "Plan 2"} <= set(labels(app))
    assert says(app, "4 written, 2 different")
    assert says(app, "no agent <b>9</b>")
    assert says(app, "2 of 2 steps")
    assert not says(app, "plans are equal")


def test_any_plan_opens_from_the_rows(visit: Visit, four: list[str]) -> None:
    app = visit(run=four[0])
    app.button(f"choose-{four[1]}").click().run()
    assert opened(app) == four[1]
    assert "**Plan 1**" in labels(app)


def test_one_plan_runs_and_its_run_keeps_the_rows(visit: Visit, four: list[str], session: Session) -> None:
    app = visit(run=four[0])
    app.button(f"choice-start-{four[1]}").click().run()
    trace = session.host.wait(opened(app), 30)
    app.run()
    assert (trace.status, trace.parent_run_id, trace.root.workflow) == ("completed", four[1], TWO)
    assert trace.seed == session.settings.seed, "so that only the plans differ"
    assert "✓ completed" in [label.replace("\\", "") for label in labels(app)]
    assert "**Plan 1**" in labels(app)


def test_all_plans_run_once_each_and_none_again(visit: Visit, four: list[str], session: Session) -> None:
    app = visit(run=four[0])
    assert app.button("run-all").label.startswith("Run all 2 · about ")
    app.button("run-all").click().run()
    children = {plan: [run.run_id for run in session.store.runs(parent=plan)] for plan in four}
    assert [len(children[plan]) for plan in four] == [1, 1, 0, 0]
    for plan in (four[0], four[1]):
        assert session.host.wait(children[plan][0], 30).status == "completed"
    app.run()
    assert "run-all" not in [button.key for button in app.button]


def test_a_plan_is_edited_in_the_editor_of_its_run(visit: Visit, four: list[str]) -> None:
    app = visit(run=four[0])
    app.button(f"choice-edit-{four[1]}").click().run()
    assert (app.query_params["run"], app.session_state[EDITING]) == (four[1], four[1])


def test_all_equal_plans_of_a_greedy_conductor_say_what_to_do(visit: Visit, session: Session) -> None:
    run_ids = written(session, (ONE, ONE, ONE), temperature=0)
    app = visit(run=run_ids[0])
    assert says(app, "All 3 plans are equal")
    assert says(app, "Give a temperature")
    assert app.button("resample-warmer").label == "Resample at 0.7"


def test_resample_writes_as_many_again_with_other_seeds(visit: Visit, four: list[str], session: Session) -> None:
    app = visit(run=four[0])
    app.button("resample").click().run()
    first = session.store.trace(opened(app))[0]
    assert first.batch is not None
    again = session.store.runs(batch=first.batch.id)
    assert len(again) == 4
    traces = [session.host.wait(run.run_id, 120) for run in again]
    assert len({trace.seed for trace in traces}) == 4
    assert {trace.plan_temperature for trace in traces} == {0.7}
    assert {trace.status for trace in traces} == {"planned"}


def test_cancel_ends_the_plans_that_are_being_written(visit: Visit, session: Session) -> None:
    with ScriptedProvider(("planner",)) as provider:
        provider.always(Answer("model_id = [0]", pause_s=60))
        each = RunRequest(task=TASK, door="page", conductor=f"{provider.url}#planner", pool="rehearsal")
        requests = plans_requested(each, 3)
        for request in requests:
            session.host.start(request)
        app = visit(run=requests[0].run_id)
        assert says(app, "0 of 3 written")
        assert says(app, "being written")
        app.button("choices-cancel").click().run()
        assert {session.host.wait(request.run_id, 60).status for request in requests} == {"cancelled"}


def test_a_plan_that_came_alone_has_no_rows(visit: Visit, session: Session) -> None:
    run_id = session.host.start(RunRequest(task=TASK, workflow=ONE, door="page", plan_only=True))
    session.host.wait(run_id, 30)
    assert not says(visit(run=run_id), "Plans to choose from")


def test_the_dialog_has_several_plans_written(visit: Visit, session: Session) -> None:
    app = visit()
    app.text_area("task").set_value(TASK).run()
    app.button("plans").click().run()
    app.session_state["plans-kind"] = "Several to choose from"
    app.run()
    app.number_input("plans-count").set_value(2).run()
    app.button("plans-write").click().run()
    assert not app.exception
    assert says(app, "Plans to choose from")
    found = session.store.runs()
    assert len(found) == 2
    assert {session.host.wait(run.run_id, 120).status for run in found} == {"planned"}


def test_the_open_plan_is_compared_with_another_and_with_its_run(
    visit: Visit, four: list[str], session: Session
) -> None:
    def link(app: AppTest) -> str:
        """Where the one link leads: equal and faulty plans are not compared with themselves."""
        (found,) = (each.proto for each in app.get("page_link") if each.proto.label == "Compare")
        return str(found.query_string)

    app = visit(run=four[0])
    assert link(app) == f"a={four[0]}&b={four[1]}"
    app.button(f"choice-start-{four[1]}").click().run()
    child = opened(app)
    session.host.wait(child, 30)
    app.button(f"choose-{four[0]}").click().run()
    assert link(app) == f"a={four[0]}&b={child}"


def test_history_shows_the_plans_as_one_row_that_says_so(visit: Visit, four: list[str], session: Session) -> None:
    app = visit("history")
    [batch] = session.store.batches()
    assert app.button(f"open-batch-{batch.batch_id}").label.replace("\\", "") == f"▤ 4 plans: {TASK}"
    assert "3 planned" in " ".join(str(each.proto) for each in app.get("html"))
    assert session.store.delete(four, local_caller("page")).run_ids
    assert session.store.batches() == []
