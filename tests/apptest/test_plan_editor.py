from collections.abc import Callable

import pytest
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import Multiselect

from conductor_core.chat.messages import ConductorInfo
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import Limits
from conductor_core.workflow.model import CONDUCTOR_AGENT, AccessList, Step, Workflow
from pages.components.app.session import Session
from pages.components.run.draft import Draft

Visit = Callable[..., AppTest]
HOSTILE = "</textarea><script>alert(1)</script> ![x](http://example.com/x.png) :red[no]"


class Editor:
    """The editor of one run's plan, as a person uses it."""

    def __init__(self, visit: Visit, run: RunTrace, *open_steps: int) -> None:
        self.run_id = run.run_id
        key = f"draft:{run.run_id}"
        state = {"editing-run": run.run_id, f"{key}:open": open_steps}
        self.app: AppTest = visit(run=run.run_id, state=state)

    def key(self, step_id: int, field: str) -> str:
        return f"draft:{self.run_id}:{self.draft.generation}:{step_id}:{field}"

    @property
    def draft(self) -> Draft:
        kept: Draft = self.app.session_state[f"draft:{self.run_id}"]
        return kept

    def press(self, step_id: int, what: str) -> None:
        self.app.button(f"draft:{self.run_id}:{step_id}:{what}").click().run()

    def tell(self, step_id: int, instruction: str) -> None:
        self.app.text_area(self.key(step_id, "instruction")).set_value(instruction).run()

    def see(self, which: str) -> None:
        """Chooses all earlier steps or single ones, in the one open step."""
        self.app.segmented_control[0].set_value(which).run()

    def sees(self, index: int) -> Multiselect[int]:
        """The field of the single steps that step ``index`` sees."""
        (field,) = (each for each in self.app.multiselect if each.label == f"Steps that step {index} sees")
        return field

    def access_list(self, index: int) -> AccessList:
        return self.draft.workflow.steps[index].access_list

    @property
    def start_label(self) -> str:
        return str(self.app.button("start-edited").label)

    def start(self, session: Session) -> RunTrace:
        self.app.button("start-edited").click().run()
        return session.host.wait(self.app.query_params["run"], 30)

    def says(self, text: str) -> bool:
        return any(text in each.value.replace("\\", "") for each in self.app.markdown)


@pytest.fixture
def edit(visit: Visit, finished_run: RunTrace) -> Callable[..., Editor]:
    return lambda *open_steps: Editor(visit, finished_run, *open_steps)


Edit = Callable[..., Editor]


def test_an_edit_forecasts_and_reruns_only_what_changed(edit: Edit, session: Session, finished_run: RunTrace) -> None:
    editor = edit(1)
    editor.tell(1, "Solve this in another way: {question}")
    assert editor.start_label == "Re-run 2 of 3 steps"
    assert editor.says("▶ **1, 2** will run · ↺ **0** reused")
    assert editor.says("instruction changed")
    trace = editor.start(session)
    assert trace.parent_run_id == finished_run.run_id
    assert [step.status for step in trace.steps] == ["reused", "completed", "completed"]
    assert trace.steps[0].output == finished_run.steps[0].output
    assert session.store.trace(finished_run.run_id)[0] == finished_run


def test_another_agent_runs_the_step(edit: Edit, session: Session) -> None:
    editor = edit(1)
    editor.app.selectbox(editor.key(1, "agent")).set_value("calculator").run()
    assert editor.says("agent changed")
    assert editor.start(session).steps[1].agent == "calculator"


def test_a_changed_access_list_is_what_the_step_sees(edit: Edit, session: Session) -> None:
    editor = edit(2)
    editor.sees(2).set_value([0]).run()
    assert editor.says("also reads step 0, no longer reads step 1")
    trace = editor.start(session)
    assert [shared.path for shared in trace.steps[2].granted] == [(0,)]
    assert [shared.path for shared in trace.steps[2].withheld] == [(1,)]


def test_all_earlier_steps_and_back_to_chosen_ones(edit: Edit) -> None:
    editor = edit(2)
    editor.see("All earlier steps")
    assert editor.access_list(2) == "all"
    editor.see("Only these")
    assert editor.access_list(2) == (0, 1)


def test_a_fault_opens_its_step_and_undo_takes_it_back(edit: Edit) -> None:
    editor = edit(2)
    editor.tell(2, "")
    editor.press(2, "open")
    assert editor.says("instruction")
    assert any(":red[" in each.value for each in editor.app.markdown)
    assert editor.app.button("start-edited").disabled
    editor.app.button("undo").click().run()
    assert not editor.app.button("start-edited").disabled
    assert not editor.draft.changed


def test_redo_and_reset(edit: Edit) -> None:
    editor = edit(1)
    editor.tell(1, "other words")
    editor.app.button("undo").click().run()
    editor.app.button("redo").click().run()
    assert editor.draft.workflow.steps[1].instruction == "other words"
    editor.app.button("reset").click().run()
    assert not editor.draft.changed


def test_removing_a_step_says_which_references_go_with_it(edit: Edit) -> None:
    editor = edit()
    editor.press(1, "remove")
    assert editor.says("step 2 reading step 1")


def test_a_removed_step_is_back_with_one_click_beside_what_says_so(edit: Edit, finished_run: RunTrace) -> None:
    editor = edit()
    editor.press(1, "remove")
    editor.app.button("undo-noted").click().run()
    assert editor.draft.workflow == finished_run.root.workflow


def test_each_button_of_a_step_is_named_with_its_step(edit: Edit) -> None:
    labels = [button.label for button in edit().app.button]
    for index in range(3):
        for name in (f"Move step {index} up", f"Move step {index} down", f"Add a step after step {index}"):
            assert name in labels
        assert f"Remove step {index}" in labels


def test_moving_a_step_moves_what_reads_it_along(edit: Edit) -> None:
    editor = edit()
    editor.press(2, "up")
    assert editor.says("moved, no longer reads step 2")
    assert not editor.says("agent and instruction changed")
    assert [step.agent for step in editor.draft.workflow.steps] == ["planner", "verifier", "reasoner"]
    assert editor.says("step 2 reading step 1")
    assert editor.draft.workflow.steps[2].access_list == (0,)


def test_a_new_step_opens_and_runs(edit: Edit, session: Session) -> None:
    editor = edit()
    editor.press(2, "add")
    new = editor.draft.now.ids[3]
    editor.tell(new, "State the result in one sentence: {question}")
    assert editor.start_label == "Re-run 1 of 4 steps"
    assert editor.says("new step")
    trace = editor.start(session)
    assert [step.status for step in trace.steps] == ["reused", "reused", "reused", "completed"]
    assert trace.steps[3].access_list == (2,)
    assert trace.root.edits == ("step 3 (verifier) added",)


def test_a_step_that_is_inserted_changes_no_other_one(edit: Edit, session: Session) -> None:
    editor = edit()
    editor.press(0, "add")
    assert [each for each in ("was step 1", "was step 2") if editor.says(each)] == ["was step 1", "was step 2"]
    assert editor.start_label == "Re-run 1 of 4 steps"
    assert editor.start(session).root.edit_origins == (0, None, 1, 2)


def test_more_steps_than_the_limit_cannot_start(edit: Edit) -> None:
    editor = edit()
    for _ in range(3):
        editor.press(2, "add")
    assert editor.app.button("start-edited").disabled
    assert editor.says("at most 5")


def test_steps_are_lines_until_they_are_opened(edit: Edit) -> None:
    editor = edit()
    assert len(editor.app.text_area) == 1
    editor.press(1, "open")
    assert [area.key for area in editor.app.text_area][1:] == [editor.key(1, "instruction")]


def test_the_conductor_itself_is_offered_where_recursion_is_allowed(
    visit: Visit, edit: Edit, retell: Callable[..., RunTrace]
) -> None:
    without = edit(0)
    assert CONDUCTOR_AGENT not in without.app.selectbox(without.key(0, "agent")).options
    info = ConductorInfo(name="tiny", kind="local", model="tiny")
    recursive = Editor(visit, retell(1000, conductor=info), 0)
    assert CONDUCTOR_AGENT in recursive.app.selectbox(recursive.key(0, "agent")).options
    recursive.app.selectbox(recursive.key(0, "agent")).set_value(CONDUCTOR_AGENT).run()
    assert not recursive.app.button("start-edited").disabled


def test_hostile_text_in_an_instruction_is_shown_and_does_nothing(edit: Edit) -> None:
    editor = edit(1)
    editor.tell(1, HOSTILE)
    shown = [each.value for each in editor.app.markdown if "alert" in each.value]
    assert shown
    for text in shown:
        assert "<script" not in text.replace("\\<", "")
        assert "\\!\\[x\\]" in text
        assert "\\:red\\[no\\]" in text
    assert editor.draft.workflow.steps[1].instruction == HOSTILE


def test_closing_keeps_the_draft(edit: Edit) -> None:
    editor = edit(1)
    editor.tell(1, "other words")
    editor.app.button("close-editor").click().run()
    assert len(editor.app.text_area) == 1
    editor.app.session_state["editing-run"] = editor.run_id
    editor.app.run()
    assert editor.draft.workflow.steps[1].instruction == "other words"


def test_a_step_that_is_removed_takes_what_was_just_typed_in_it_along(edit: Edit) -> None:
    editor = edit(1)
    editor.app.text_area(editor.key(1, "instruction")).set_value("typed, then removed at once")
    editor.press(1, "remove")
    assert not editor.app.exception
    assert [step.agent for step in editor.draft.workflow.steps] == ["planner", "verifier"]


def test_undo_and_typing_in_one_click_lose_nothing(edit: Edit) -> None:
    editor = edit(0, 1)
    editor.tell(0, "first change")
    editor.app.text_area(editor.key(1, "instruction")).set_value("typed, then undo at once")
    editor.app.button("undo").click().run()
    assert not editor.app.exception
    assert {"first change", "typed, then undo at once"} & {
        step.instruction for version in (editor.draft.now, *editor.draft.future) for step in version.workflow.steps
    }


def test_one_click_tells_a_step_the_task(edit: Edit, finished_run: RunTrace) -> None:
    editor = edit(0)
    for step_id in editor.draft.now.ids:
        editor.app.session_state[f"draft:{editor.run_id}:open"] = (step_id,)
        editor.app.run()
        editor.tell(step_id, "Do your part.")
    assert editor.says("does not receive the task")
    editor.press(0, "tell")
    assert editor.draft.workflow.steps[0].instruction == "Do your part.\n\n{question}"
    assert not editor.says("does not receive the task")


def test_a_plan_of_real_workers_can_be_exported_as_a_script(
    visit: Visit, finished_run: RunTrace, retell: Callable[..., RunTrace]
) -> None:
    real = [
        worker.model_copy(update={"provider": "openai", "base_url": "http://127.0.0.1:9/v1"})
        for worker in finished_run.pool.workers
    ]
    for workers, offered in ((finished_run.pool.workers, False), (tuple(real), True)):
        run = retell(10_000, pool=finished_run.pool.model_copy(update={"workers": workers}))
        app = Editor(visit, run).app
        buttons = {button.proto.label: button.proto.disabled for button in app.get("download_button")}
        assert buttons["Workflow file (JSON)"] is False
        assert buttons["Script for CrewAI"] is not offered
        assert any("is simulated" in caption.value for caption in app.caption) is not offered


def test_a_long_plan_is_listed_in_parts(visit: Visit, session: Session) -> None:
    steps = tuple(Step(instruction=f"Part {index} of {{question}}", agent="planner") for index in range(23))
    request = RunRequest(task="Plan", workflow=Workflow(steps=steps), limits=Limits(max_steps=23), door="page")
    run = session.host.wait(session.host.start(request), 30)
    editor = Editor(visit, run)

    def listed() -> list[str]:
        return [each.label.split(" ·")[0].strip("*") for each in editor.app.button if str(each.key).endswith(":open")]

    def choose(part: int) -> None:
        (field,) = (each for each in editor.app.segmented_control if each.label == "Steps that are listed")
        field.set_value(part).run()

    assert listed() == [str(index) for index in range(10)]
    editor.press(9, "down")
    assert listed() == [str(index) for index in range(10, 20)], "the list goes with a step that is moved"
    choose(2)
    assert listed() == ["20", "21", "22"]
    editor.press(22, "open")
    editor.tell(22, "")
    choose(0)
    assert editor.says("Also to fix: step 22")
    editor.app.button("undo").click().run()
    assert not editor.says("Also to fix")
    choose(2)
    for _ in range(3):
        editor.press(editor.draft.now.ids[-1], "remove")
    assert listed() == [str(index) for index in range(10, 20)], "a part that is gone gives way to the last"
