import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.workflow.edits import Reference, add_step, move_step, remove_step, replace_step
from conductor_core.workflow.model import AccessList, Step, Workflow


def plan(*access_lists: AccessList) -> Workflow:
    """Steps named by the number they start with."""
    return Workflow(
        steps=tuple(Step(instruction=str(i), agent="a", access_list=reads) for i, reads in enumerate(access_lists))
    )


def edges(workflow: Workflow) -> set[tuple[str, str]]:
    """Explicit valid references, by the steps' own names: independent of numbering."""
    return {
        (step.instruction, workflow.steps[read].instruction)
        for index, step in enumerate(workflow.steps)
        if step.access_list != "all"
        for read in step.access_list
        if 0 <= read < index
    }


@st.composite
def plans(draw: st.DrawFn) -> Workflow:
    access_lists: list[AccessList] = []
    for index in range(draw(st.integers(1, 7))):
        reads = draw(st.lists(st.integers(0, index - 1), max_size=4)) if index else []
        access_lists.append("all" if draw(st.booleans()) else tuple(reads))
    return plan(*access_lists)


NEW = Step(instruction="new", agent="b", access_list=(0,))


def test_adding_in_the_middle_shifts_references_to_later_steps() -> None:
    added = add_step(plan((), (0,), (0, 1), "all"), 1, NEW)
    assert [step.access_list for step in added.steps] == [(), (0,), (0,), (0, 2), "all"]
    assert added.steps[1] == NEW


def test_adding_at_the_end_changes_nothing_else() -> None:
    assert add_step(plan((), (0,)), 2, NEW).steps == (*plan((), (0,)).steps, NEW)
    with pytest.raises(IndexError, match="at 0 to 2, not at 3"):
        add_step(plan((), ()), 3, NEW)


def test_removing_names_the_references_that_go() -> None:
    removed, gone = remove_step(plan((), (0,), (0, 1), (2, 1), "all"), 1)
    assert [step.access_list for step in removed.steps] == [(), (0,), (1,), "all"]
    assert gone == (Reference(reader=2, read=1), Reference(reader=3, read=1))


def test_removing_a_step_that_lists_itself_or_others_reports_only_readers() -> None:
    _, gone = remove_step(plan((), (0, 1)), 1)
    assert gone == ()


def test_moving_drops_references_that_would_point_forwards() -> None:
    moved, dropped = move_step(plan((), (0,), (0, 1), "all"), 0, 2)
    assert [(step.instruction, step.access_list) for step in moved.steps] == [
        ("1", ()),
        ("2", (0,)),
        ("0", ()),
        ("3", "all"),
    ]
    assert dropped == (Reference(1, 0), Reference(2, 0))


def test_moving_a_reader_before_what_it_reads() -> None:
    moved, dropped = move_step(plan((), (), (0, 1)), 2, 1)
    assert [(step.instruction, step.access_list) for step in moved.steps] == [("0", ()), ("2", (0,)), ("1", ())]
    assert dropped == (Reference(2, 1),)


def test_faults_stay_for_validation_to_report() -> None:
    faulty = plan((1,), (1, 9, -1))
    moved, dropped = move_step(faulty, 0, 0)
    assert (moved, dropped) == (faulty, ())
    removed, _ = remove_step(plan((), (2,), ()), 0)
    assert removed.steps[0].access_list == (1,)
    assert add_step(plan((), (9,)), 0, NEW).steps[2].access_list == (10,)


@pytest.mark.parametrize("index", [-1, 2])
def test_indices_out_of_range_are_refused(index: int) -> None:
    workflow = plan((), ())
    with pytest.raises(IndexError, match="the workflow has 2"):
        remove_step(workflow, index)
    with pytest.raises(IndexError, match="the workflow has 2"):
        move_step(workflow, index, 0)
    with pytest.raises(IndexError, match="the workflow has 2"):
        move_step(workflow, 0, index)
    with pytest.raises(IndexError, match="the workflow has 2"):
        replace_step(workflow, index, NEW)


def test_replacing_touches_only_that_step() -> None:
    before = plan((), (0,), (1,))
    after = replace_step(before, 1, NEW)
    assert after.steps == (before.steps[0], NEW, before.steps[2])


@given(plans(), st.data())
def test_adding_then_removing_changes_nothing(workflow: Workflow, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(workflow.steps)))
    assert remove_step(add_step(workflow, index, NEW), index) == (workflow, ())


@given(plans(), st.data())
def test_removing_keeps_every_other_reference(workflow: Workflow, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(workflow.steps) - 1))
    removed, gone = remove_step(workflow, index)
    name = str(index)
    assert edges(removed) == {edge for edge in edges(workflow) if name not in edge}
    assert {(str(reader), str(read)) for reader, read in gone} == {edge for edge in edges(workflow) if edge[1] == name}


@given(plans(), st.data())
def test_moving_keeps_or_reports_every_reference(workflow: Workflow, data: st.DataObject) -> None:
    places = st.integers(0, len(workflow.steps) - 1)
    source, target = data.draw(places), data.draw(places)
    moved, dropped = move_step(workflow, source, target)
    assert moved.steps[target].instruction == str(source)
    assert edges(moved) | {(str(reader), str(read)) for reader, read in dropped} == edges(workflow)
    assert not edges(moved) & {(str(reader), str(read)) for reader, read in dropped}
    for index, step in enumerate(moved.steps):
        was_all = workflow.steps[int(step.instruction)].access_list == "all"
        assert (step.access_list == "all") == was_all
        assert was_all or all(0 <= read < index for read in step.access_list if isinstance(read, int))
    if not dropped:
        assert move_step(moved, target, source) == (workflow, ())
