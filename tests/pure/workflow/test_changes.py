"""Which step of a plan is which after an edit, and what became of it: never by place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.workflow.edits import Origins, add_step, compare, match, move_step, remove_step, replace_step
from conductor_core.workflow.model import Step, Workflow
from pages.components.run import draft as drafts
from tests.support.fakes import workflow_of
from tests.support.workflows import edits, workflows

CHAIN = workflow_of(("a", "plan", ()), ("b", "solve", (0,)), ("c", "check", (1,)), ("a", "write it down", (2,)))
NEW = Step(instruction="look again", agent="c", access_list=(0,))


def words(after: Workflow, before: Workflow = CHAIN, origins: Origins | None = None) -> list[str]:
    changes = compare(before, after, origins)
    return [changes.in_words(step.after) for step in changes.steps]


def test_an_inserted_step_is_new_and_renumbers_the_others_without_changing_them() -> None:
    after = add_step(CHAIN, 1, NEW)
    assert words(after) == ["", "new", "", "", ""]
    assert [step.before for step in compare(CHAIN, after).steps] == [0, None, 1, 2, 3]
    assert not any(step.moved for step in compare(CHAIN, after).steps)


def test_a_removed_step_is_missed_by_its_readers_alone() -> None:
    after, _ = remove_step(CHAIN, 1)
    assert words(after) == ["", "no longer reads the removed step 1", ""]
    assert compare(CHAIN, after).removed == (1,)


def test_a_moved_step_has_moved_and_lost_what_is_not_before_it_any_more() -> None:
    after, _ = move_step(CHAIN, 2, 1)
    assert words(after) == ["", "moved, no longer reads step 2", "", ""]
    assert compare(CHAIN, after).sentences(CHAIN, after) == ("step 1: moved (was step 2), no longer reads step 2",)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (Step(instruction="check", agent="b", access_list=(1,)), "agent changed"),
        (Step(instruction="check it", agent="c", access_list=(1,)), "instruction changed"),
        (Step(instruction="check", agent="c", access_list=()), "no longer reads step 1"),
        (Step(instruction="check", agent="c", access_list="all"), "also reads step 0"),
        (
            Step(instruction="check it", agent="c", access_list=(0,)),
            "instruction changed, also reads step 0, no longer reads step 1",
        ),
    ],
)
def test_a_changed_step_says_what_of_it(step: Step, said: str) -> None:
    assert words(replace_step(CHAIN, 2, step)) == ["", "", said, ""]


def test_a_step_that_saw_all_sees_a_new_one_too() -> None:
    before = replace_step(CHAIN, 3, Step(instruction="write it down", agent="a", access_list="all"))
    assert words(add_step(before, 1, NEW), before)[4] == "also reads step 1"


def test_an_access_list_written_otherwise_that_means_the_same_is_no_change() -> None:
    before = replace_step(CHAIN, 2, Step(instruction="check", agent="c", access_list=(0, 1)))
    after = replace_step(CHAIN, 2, Step(instruction="check", agent="c", access_list="all"))
    assert compare(before, after).none


def test_steps_that_are_seen_in_another_order_are_told() -> None:
    before = workflow_of(("a", "one", ()), ("b", "two", ()), ("c", "join", (0, 1)))
    after, _ = move_step(before, 1, 0)
    assert words(after, before) == ["moved", "", "reads its steps in another order"]


def test_what_is_known_of_the_steps_goes_before_what_they_look_like() -> None:
    after = Workflow(steps=(Step(instruction="quite other words", agent="c"), *CHAIN.steps[:3]))
    assert words(after)[0] == "new"
    assert words(after, origins=(3, 0, 1, 2))[0] == "moved, agent and instruction changed, no longer reads step 3"


@pytest.mark.parametrize("origins", [(0, 1, 2), (0, 0, 1, 2), (0, 1, 2, 4), (-1, 0, 1, 2)])
def test_origins_that_do_not_fit_are_refused(origins: Origins) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        compare(CHAIN, CHAIN, origins)


def test_equal_steps_are_taken_in_place_and_in_order() -> None:
    before = workflow_of(("a", "try", ()), ("a", "try", ()), ("a", "try", ()), ("b", "judge", (0, 1, 2)))
    assert match(before, before) == (0, 1, 2, 3)
    after, _ = remove_step(before, 1)
    assert match(before, after) == (0, 1, 3)
    assert words(after, before) == ["", "", "no longer reads the removed step 2"]


def test_a_step_is_known_by_its_words_then_by_where_it_stands() -> None:
    reworded = Workflow(steps=(Step(instruction="write it down briefly", agent="b"), *CHAIN.steps[:3]))
    assert match(CHAIN, reworded) == (3, 0, 1, 2)
    in_its_place = replace_step(CHAIN, 3, Step(instruction="translate", agent="b", access_list=(2,)))
    assert match(CHAIN, in_its_place) == (0, 1, 2, 3)
    two_for_one = add_step(in_its_place, 4, Step(instruction="shorten", agent="a"))
    assert match(CHAIN, two_for_one) == (0, 1, 2, None, 3)
    elsewhere = Workflow(steps=(Step(instruction="translate", agent="b"), *CHAIN.steps[:3]))
    assert match(CHAIN, elsewhere) == (None, 0, 1, 2)


@given(workflows())
def test_a_plan_is_not_different_from_itself(workflow: Workflow) -> None:
    changes = compare(workflow, workflow)
    assert changes.none
    assert changes.sentences(workflow, workflow) == ()


@given(st.data())
def test_every_step_of_both_plans_is_accounted_for(data: st.DataObject) -> None:
    before = data.draw(workflows())
    after = data.draw(edits(before))
    changes = compare(before, after)
    kept = [step.before for step in changes.steps if step.before is not None]
    assert sorted([*kept, *changes.removed]) == list(range(len(before.steps)))
    for step in changes.steps:
        assert bool(changes.in_words(step.after)) == (step.new or step.changed or step.moved)
        if step.before is not None:
            saw = set(before.reads(step.before))
            sees = {changes.steps[earlier].before for earlier in after.reads(step.after)}
            assert set(step.lost) == saw - sees
            assert {changes.steps[earlier].before for earlier in step.gained} == sees - saw
    assert changes.none == (len(kept) == len(before.steps) == len(after.steps) and not changes.sentences(before, after))


@given(st.integers(0, 3), st.integers(0, 3))
def test_one_move_moves_one_step(from_index: int, to_index: int) -> None:
    draft = drafts.move(drafts.begin(CHAIN), from_index, to_index)
    changes = compare(CHAIN, draft.workflow, draft.origins)
    assert sum(step.moved for step in changes.steps) == (from_index != to_index)


def test_several_steps_are_told_as_several() -> None:
    after = CHAIN.model_copy(
        update={"steps": (*CHAIN.steps[:3], CHAIN.steps[3].model_copy(update={"access_list": (0, 1, 2)}))}
    )
    assert words(after) == ["", "", "", "also reads steps 0, 1"]


def test_two_fields_of_one_step_are_two_changes() -> None:
    both = Step(instruction="check it", agent="b", access_list=(0, 1))
    assert compare(CHAIN, replace_step(CHAIN, 2, both)).count == 3
    assert compare(CHAIN, add_step(remove_step(CHAIN, 3)[0], 0, NEW.model_copy(update={"access_list": ()}))).count == 2
    assert compare(CHAIN, CHAIN).count == 0
