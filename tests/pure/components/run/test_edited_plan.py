"""What the graph draws while a plan is edited."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from conductor_core.engine.estimates import RerunPreview, StepForecast
from conductor_core.workflow.model import Fault, Step, Workflow
from pages.components.run import draft as drafts
from pages.components.run.draft import Draft
from pages.components.run.edited_plan import edited_plan
from tests.support.fakes import workflow_of
from tests.support.workflows import workflows

CHAIN = workflow_of(("a", "plan", ()), ("b", "solve", (0,)), ("c", "check", (1,)))
NEW = Step(instruction="look again", agent="c", access_list=(0,))


def drawing(draft: Draft) -> dict[str, Any]:
    return edited_plan(draft, draft, None, ())


def drawn(draft: Draft) -> dict[str, dict[str, Any]]:
    return {step["key"]: step for step in drawing(draft)["steps"]}


def edges(draft: Draft) -> dict[tuple[str, str], str | None]:
    layout = drawing(draft)["layout"]
    return {(edge["from"], edge["to"]): edge["change"] for edge in layout["edges"]}


def columns(draft: Draft) -> dict[str, int]:
    return {node["id"]: node["layer"] for node in drawing(draft)["layout"]["nodes"]}


def test_a_plan_that_nobody_changed_is_drawn_as_it_is() -> None:
    draft = drafts.begin(CHAIN)
    assert [step["change"] for step in drawn(draft).values()] == [None, None, None]
    assert edges(draft) == {("0", "1"): None, ("1", "2"): None}


def test_a_removed_step_stays_in_the_picture_with_what_went_with_it() -> None:
    draft = drafts.remove(drafts.begin(CHAIN), 1)
    steps = drawn(draft)
    assert (steps["1"]["change"], steps["1"]["number"], steps["1"]["was"]) == ("removed", None, 1)
    assert (steps["2"]["change"], steps["2"]["number"], steps["2"]["was"]) == ("changed", 1, 2)
    assert steps["2"]["words"] == "no longer reads the removed step 1"
    assert edges(draft) == {("0", "1"): "lost", ("1", "2"): "lost"}
    assert columns(draft) == {"0": 0, "1": 1, "2": 2}, "nothing moves away"


def test_a_new_step_has_a_key_of_its_own_and_gained_edges() -> None:
    draft = drafts.insert(drafts.begin(CHAIN), 1, NEW)
    steps = drawn(draft)
    assert (steps["3"]["change"], steps["3"]["number"], steps["3"]["was"]) == ("new", 1, None)
    assert [steps[key]["number"] for key in ("0", "1", "2")] == [0, 2, 3]
    assert [steps[key]["change"] for key in ("0", "1", "2")] == [None, None, None]
    assert edges(draft) == {("0", "1"): None, ("1", "2"): None, ("0", "3"): "gained"}


def test_a_moved_step_and_an_edge_that_is_gained_and_one_that_is_lost() -> None:
    draft = drafts.move(drafts.begin(CHAIN), 2, 1)
    steps = drawn(draft)
    assert (steps["2"]["number"], steps["2"]["was"], steps["2"]["change"]) == (1, 2, "changed")
    assert edges(draft) == {("0", "1"): None, ("1", "2"): "lost"}
    rewired = drafts.change(drafts.begin(CHAIN), 2, Step(instruction="check", agent="c", access_list=(0,)))
    assert edges(rewired) == {("0", "1"): None, ("0", "2"): "gained", ("1", "2"): "lost"}


def test_an_edge_that_was_turned_round_is_drawn_as_it_is_now() -> None:
    moved = drafts.move(drafts.begin(CHAIN), 1, 0)
    turned = drafts.change(moved, 1, Step(instruction="plan", agent="a", access_list=(0,)))
    assert edges(turned) == {("1", "0"): "gained", ("1", "2"): None}
    assert drawn(turned)["1"]["words"] == "moved, no longer reads step 1"


def test_a_step_says_what_will_become_of_it() -> None:
    draft = drafts.begin(CHAIN)
    runs = StepForecast(index=1, agent="b", instruction="solve", reason="instruction changed")
    reused = [StepForecast(index=index, agent="a", instruction="x", reason="unchanged") for index in (0, 2)]
    forecast = RerunPreview(will_run=(runs,), will_reuse=tuple(reused), estimated_tokens=0, estimated_usd=0)
    told = edited_plan(draft, draft, forecast, ())["steps"]
    assert [(step["fate"], step["words"]) for step in told] == [
        ("reused", "unchanged"),
        ("runs", "instruction changed"),
        ("reused", "unchanged"),
    ]


def test_a_plan_with_a_fault_is_drawn_as_it_last_could_be_read_and_says_so() -> None:
    good = drafts.move(drafts.change(drafts.begin(CHAIN), 2, step("check twice", (1,))), 2, 1)
    draft = drafts.change(good, 1, step(" ", ()))
    fault = Fault(code="empty_instruction", message="Step 1 has an empty instruction.", step=1, field="instruction")

    def faults(workflow: Workflow) -> list[Fault]:
        return [fault] if any(not each.instruction.strip() for each in workflow.steps) else []

    shown = drafts.last_readable(draft, faults)
    assert shown.workflow == good.workflow
    plan = edited_plan(draft, shown, None, [fault])
    assert plan["stale"]
    (mended,) = (each for each in plan["steps"] if each["fate"] == "fault")
    assert (mended["key"], mended["instruction"], mended["words"]) == ("2", "check twice", fault.message)


def test_a_plan_that_is_too_long_is_drawn_all_the_same() -> None:
    fault = Fault(code="too_many_steps", message="The workflow has 4 steps; at most 3 are allowed.", step=3)
    draft = drafts.insert(drafts.begin(CHAIN), 1, NEW)
    shown = drafts.last_readable(draft, lambda workflow: [fault] if len(workflow.steps) > 3 else [])
    assert shown == draft
    plan = edited_plan(draft, shown, None, [fault])
    assert not plan["stale"]
    assert [each["fate"] for each in plan["steps"]] == [None, None, None, "fault"]


def step(instruction: str, access: tuple[int, ...]) -> Step:
    return Step(instruction=instruction, agent="c", access_list=access)


def test_access_lists_with_faults_are_drawn_without_them() -> None:
    draft = drafts.change(drafts.begin(CHAIN), 1, Step(instruction="solve", agent="b", access_list=(0, 1, 2, 9)))
    assert edges(draft) == {("0", "1"): None, ("1", "2"): None}


ACTS = st.lists(
    st.tuples(st.sampled_from(["insert", "remove", "move", "access"]), st.integers(0, 9), st.integers(0, 9)), max_size=6
)


@given(workflows(), ACTS)
def test_every_step_of_both_plans_is_drawn_once_and_every_edge_leads_forwards(
    workflow: Workflow, acts: list[tuple[str, int, int]]
) -> None:
    draft = drafts.begin(workflow)
    for name, first, second in acts:
        count = len(draft.workflow.steps)
        if name == "insert":
            draft = drafts.insert(draft, first % (count + 1), Step(instruction="new", agent="a", access_list="all"))
        elif not count:
            continue
        elif name == "remove":
            draft = drafts.remove(draft, first % count)
        elif name == "move":
            draft = drafts.move(draft, first % count, second % count)
        else:
            step = draft.workflow.steps[first % count]
            access = tuple(range(second % (first % count + 1)))
            draft = drafts.change(draft, first % count, step.model_copy(update={"access_list": access}))
    plan = drawing(draft)
    keys = [step["key"] for step in plan["steps"]]
    assert sorted(keys) == sorted(map(str, {*range(len(workflow.steps)), *draft.now.ids}))
    assert sorted(node["id"] for node in plan["layout"]["nodes"]) == sorted(keys)
    layer = columns(draft)
    for (source, target), change in edges(draft).items():
        assert layer[source] < layer[target]
        now = {str(each): index for index, each in enumerate(draft.now.ids)}
        reads_now = target in now and source in now and now[source] in draft.workflow.reads(now[target])
        assert reads_now == (change != "lost")
