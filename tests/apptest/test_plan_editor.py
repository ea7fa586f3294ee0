from collections.abc import Callable

import pytest
from streamlit.testing.v1 import AppTest

from conductor_core.chat.messages import ConductorInfo
from conductor_core.run.trace import RunTrace
from conductor_core.workflow.model import CONDUCTOR_AGENT, AccessList
from pages.components.app.session import Session
from tests.support.plan_edits import Edits

Visit = Callable[..., AppTest]


@pytest.fixture
def editing(edits: Callable[..., Edits], finished_run: RunTrace) -> Edits:
    """The open editor of the finished run's plan."""
    return edits(finished_run)


def access_list(editing: Edits, index: int) -> AccessList:
    return editing.draft.workflow.steps[index].access_list


def agents(editing: Edits) -> list[str]:
    return [step.agent for step in editing.draft.workflow.steps]


def test_an_edit_forecasts_and_reruns_only_what_changed(
    editing: Edits, session: Session, finished_run: RunTrace
) -> None:
    editing.do("instruct", 1, text="Solve this in another way: {question}")
    assert editing.editor["start"] == "Re-run 2 steps"
    assert editing.editor["title"] == "1 change: instruction of step 1 edited"
    assert editing.said.startswith("↻ 1 and 2 run again · ↺ 0 reused · about ")
    assert "instruction changed" in editing.words(1)
    trace = editing.start(session)
    assert trace.parent_run_id == finished_run.run_id
    assert [step.status for step in trace.steps] == ["reused", "completed", "completed"]
    assert trace.steps[0].output == finished_run.steps[0].output
    assert session.store.trace(finished_run.run_id)[0] == finished_run


def test_a_change_opens_the_editor_by_itself(visit: Visit, edits: Callable[..., Edits], finished_run: RunTrace) -> None:
    editing = edits(finished_run)
    editing.do("close")
    assert editing.data["editor"] is None
    editing.do("assign", 1, agent="calculator")
    assert agents(editing)[1] == "calculator"
    assert editing.data["editor"] is not None


def test_another_agent_runs_the_step(editing: Edits, session: Session) -> None:
    editing.do("assign", 1, agent="calculator")
    assert "agent changed" in editing.words(1)
    assert editing.start(session).steps[1].agent == "calculator"


def test_a_changed_access_list_is_what_the_step_sees(editing: Edits, session: Session) -> None:
    editing.do("give", 2, read=0)
    editing.do("cut", 2, read=1)
    assert "also reads step 0, no longer reads step 1" in editing.editor["title"]
    own = editing.editor["steps"][2]
    assert (own["access"], own["before"]) == (["0"], ["1"])
    trace = editing.start(session)
    assert [shared.path for shared in trace.steps[2].granted] == [(0,)]
    assert [shared.path for shared in trace.steps[2].withheld] == [(1,)]


def test_all_earlier_steps_and_back_to_chosen_ones(editing: Edits) -> None:
    editing.do("all", 2)
    assert access_list(editing, 2) == "all"
    editing.do("only", 2)
    assert access_list(editing, 2) == (0, 1)


def test_a_fault_is_told_at_its_field_runs_nothing_and_undo_takes_it_back(
    editing: Edits, finished_run: RunTrace
) -> None:
    editing.do("instruct", 2, text="")
    (fault,) = editing.editor["faults"]
    assert (fault["key"], fault["field"]) == ("2", "instruction")
    assert not editing.editor["starts"]
    editing.do("start")
    assert editing.app.query_params["run"] == finished_run.run_id
    assert editing.draft.workflow.steps[2].instruction == "", "it is kept as it is"
    editing.do("undo")
    assert editing.editor["starts"]
    assert not editing.draft.changed


def test_redo_and_taking_all_back(editing: Edits) -> None:
    editing.do("instruct", 1, text="other words")
    editing.do("undo")
    editing.do("redo")
    assert editing.draft.workflow.steps[1].instruction == "other words"
    editing.do("reset")
    assert not editing.draft.changed
    editing.do("undo")
    assert editing.draft.workflow.steps[1].instruction == "other words"


def test_removing_a_step_says_which_references_go_with_it(editing: Edits, finished_run: RunTrace) -> None:
    editing.do("remove", 1)
    assert "step 2 reading step 1" in editing.data["said"]
    editing.do("undo")
    assert editing.draft.workflow == finished_run.root.workflow


def test_moving_a_step_moves_what_reads_it_along(editing: Edits) -> None:
    editing.do("shift", 2, by=-1)
    assert "moved, no longer reads step 2" in editing.words(2)
    assert agents(editing) == ["planner", "verifier", "reasoner"]
    assert "step 2 reading step 1" in editing.data["said"]
    assert access_list(editing, 2) == (0,)


def test_a_new_step_runs(editing: Edits, session: Session) -> None:
    editing.do("add", 2)
    new = editing.draft.now.ids[3]
    editing.do("instruct", new, text="State the result in one sentence: {question}")
    assert editing.editor["start"] == "Re-run 1 step"
    assert "new step" in editing.words(new)
    trace = editing.start(session)
    assert [step.status for step in trace.steps] == ["reused", "reused", "reused", "completed"]
    assert trace.steps[3].access_list == (2,)
    assert trace.root.edits == ("step 3 (verifier) added",)


def test_a_step_that_is_inserted_changes_no_other_one(editing: Edits, session: Session) -> None:
    editing.do("add", 0)
    assert ["was step 1" in editing.words(1), "was step 2" in editing.words(2)] == [True, True]
    assert editing.editor["start"] == "Re-run 1 step"
    assert editing.start(session).root.edit_origins == (0, None, 1, 2)


def test_a_copy_of_a_step_reads_what_the_step_reads(editing: Edits) -> None:
    editing.do("copy", 1)
    steps = editing.draft.workflow.steps
    assert steps[2] == steps[1]
    assert access_list(editing, 3) == (1,), "who read the step goes on reading it"


def test_more_steps_than_the_limit_cannot_start(editing: Edits) -> None:
    for _ in range(3):
        editing.do("add", 2)
    assert not editing.editor["starts"]
    assert "at most 5" in editing.notes()


def test_the_conductor_itself_is_offered_where_recursion_is_allowed(
    edits: Callable[..., Edits], finished_run: RunTrace, retell: Callable[..., RunTrace]
) -> None:
    def offered(editing: Edits) -> bool:
        return CONDUCTOR_AGENT in [each["name"] for each in editing.editor["agents"]]

    assert not offered(edits(finished_run))
    info = ConductorInfo(name="tiny", kind="local", model="tiny")
    recursive = edits(retell(1000, conductor=info))
    assert offered(recursive)
    recursive.do("assign", 0, agent=CONDUCTOR_AGENT)
    assert recursive.editor["starts"]


def test_closing_keeps_the_draft(editing: Edits, finished_run: RunTrace) -> None:
    editing.do("instruct", 1, text="other words")
    editing.do("close")
    assert (editing.data["editor"], editing.data["edited"]) == (None, None), "the run is shown again"
    editing.app.session_state["editing-run"] = finished_run.run_id
    editing.app.run()
    assert editing.draft.workflow.steps[1].instruction == "other words"


def test_one_click_tells_a_step_the_task(editing: Edits) -> None:
    for step_id in editing.draft.now.ids:
        editing.do("instruct", step_id, text="Do your part.")
    assert "does not receive the task" in editing.notes("warnings")
    assert any(each["untold"] and each["key"] == "0" for each in editing.editor["warnings"])
    editing.do("tell", 0)
    assert editing.draft.workflow.steps[0].instruction == "Do your part.\n\n{question}"
    assert "does not receive the task" not in editing.notes("warnings")


def test_a_plan_of_real_workers_can_be_exported_as_a_script(
    edits: Callable[..., Edits], finished_run: RunTrace, retell: Callable[..., RunTrace]
) -> None:
    real = [
        worker.model_copy(update={"provider": "openai", "base_url": "http://127.0.0.1:9/v1"})
        for worker in finished_run.pool.workers
    ]
    for workers, offered in ((finished_run.pool.workers, False), (tuple(real), True)):
        run = retell(10_000, pool=finished_run.pool.model_copy(update={"workers": workers}))
        editing = edits(run)
        editing.ask("export")
        app = editing.app
        buttons = {button.proto.label: button.proto.disabled for button in app.get("download_button")}
        assert buttons["Workflow file (JSON)"] is False
        assert buttons["Script for CrewAI"] is not offered
        assert any("is simulated" in caption.value for caption in app.caption) is not offered
