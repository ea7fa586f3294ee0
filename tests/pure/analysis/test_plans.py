"""The differences of two plans: complete, so that they lead from one to the other, and no more than there are."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_core.analysis.compare import (
    NO_PLAN,
    Difference,
    RoundsCompared,
    compare_plans,
    compare_runs,
)
from conductor_core.run.events import PlanCompleted, RecursionEntered
from conductor_core.run.trace import RunTrace, fold
from conductor_core.workflow.model import CONDUCTOR_AGENT, Step, Workflow
from tests.support.run_events import created, planned
from tests.support.workflows import edits, workflows

STEPS = tuple(
    Step(instruction=f"do {word}", agent=word, access_list=reads)
    for word, reads in (("plan", ()), ("solve", (0,)), ("guess", ()), ("verify", (2,)))
)
PLAN = Workflow(steps=STEPS)


def changes(before: Workflow, after: Workflow) -> list[tuple[str, int | None, int | None, tuple[str, ...]]]:
    return [(each.change, each.a, each.b, each.fields) for each in compare_plans(before, after).differences]


def applied(plan: Workflow, differences: Sequence[Difference]) -> Workflow:
    """Returns plan B, given plan A and the differences of B from A. Raises: ValueError if they do not fit ``plan``."""
    placed: dict[int, int | Step] = {}
    gone = {each.a for each in differences if each.change == "removed"}
    for each in differences:
        if each.b is not None and each.change == "moved" and each.a is not None:
            placed[each.b] = each.a
        elif each.b is not None and each.change == "added" and each.after is not None:
            placed[each.b] = each.after
    stays = [index for index in range(len(plan.steps)) if index not in gone and index not in placed.values()]
    size = len(placed) + len(stays)
    free = [index for index in range(size) if index not in placed]
    if len(free) != len(stays) or not gone | {place for place in placed.values() if isinstance(place, int)} <= set(
        range(len(plan.steps))
    ):
        raise ValueError(f"the differences do not fit a plan of {len(plan.steps)} steps")
    placed |= dict(zip(free, stays, strict=True))
    numbers = {place: index for index, place in placed.items() if isinstance(place, int)}
    changed = {each.b: each for each in differences if each.change == "changed"}
    steps: list[Step] = []
    for index in range(size):
        place = placed[index]
        step = plan.steps[place] if isinstance(place, int) else place
        if isinstance(place, int):
            reads = step.access_list
            if reads != "all":
                reads = tuple(numbers[read] for read in reads if read in numbers)
            step = step.model_copy(update={"access_list": reads})
        if (own := changed.get(index)) is not None and own.after is not None:
            step = step.model_copy(update={part: getattr(own.after, part) for part in own.fields})
        steps.append(step)
    return Workflow(steps=tuple(steps))


def with_step(index: int, **update: object) -> Workflow:
    steps = list(STEPS)
    steps[index] = steps[index].model_copy(update=update)
    return Workflow(steps=tuple(steps))


def planned_run(run_id: str, workflow: Workflow | None, inner: Workflow | None) -> RunTrace:
    events = [created(run_id), *([] if workflow is None else planned(run_id, workflow))]
    asks = next((index for index, step in enumerate(workflow.steps if workflow else ()) if step.agent == "c"), None)
    if inner is not None and asks is not None:
        events += [
            RecursionEntered(run_id=run_id, path=(asks,), depth=1),
            PlanCompleted(run_id=run_id, round=(asks,), source="conductor", raw="", workflow=inner, topology="chain"),
        ]
    return fold(events)


def rounds_of(compared: RoundsCompared) -> list[RoundsCompared]:
    return [compared, *(each for pair in compared.pairs if pair.inner for each in rounds_of(pair.inner))]


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_the_differences_of_two_runs_applied_to_one_plan_give_the_other(data: st.DataObject) -> None:
    before = data.draw(workflows())
    after = data.draw(st.one_of(edits(before), workflows(), st.none()))
    inner = data.draw(workflows(3))
    a = planned_run("a", before, inner)
    b = planned_run("b", after, data.draw(st.one_of(edits(inner), st.none())))
    for there, back in ((a, b), (b, a)):
        compared = compare_runs(there, back)
        for each in rounds_of(compared.root):
            target = NO_PLAN if each.b is None or each.b.workflow is None else each.b.workflow
            assert applied(each.plans.a, each.plans.differences) == target
            assert (not each.plans.differences) == (each.plans.a == target)
            # Each step of either plan stands in exactly one pair.
            for side, steps in (("a", each.plans.a.steps), ("b", target.steps)):
                places = [step.index for pair in each.pairs if (step := getattr(pair, side)) is not None]
                assert sorted(places) == list(range(len(steps)))


def test_an_access_list_whose_steps_only_got_other_numbers_did_not_change() -> None:
    new = Step(instruction="think first", agent="plan")
    after = Workflow(
        steps=(
            new,
            *(
                step.model_copy(update={"access_list": tuple(read + 1 for read in PLAN.reads(index))})
                for index, step in enumerate(STEPS)
            ),
        )
    )
    assert changes(PLAN, after) == [("added", None, 0, ())]


def test_each_part_that_changed_is_named() -> None:
    assert changes(PLAN, with_step(3, access_list=(1, 2))) == [("changed", 3, 3, ("access_list",))]
    assert changes(PLAN, with_step(1, agent="other", instruction="do solve it")) == [
        ("changed", 1, 1, ("instruction", "agent"))
    ]


def test_a_step_is_removed_and_who_read_it_lost_access() -> None:
    after = Workflow(steps=(*STEPS[:2], STEPS[3].model_copy(update={"access_list": ()})))
    assert changes(PLAN, after) == [("changed", 3, 2, ("access_list",)), ("removed", 2, None, ())]
    assert compare_plans(PLAN, after).rows() == [(0, 0), (1, 1), (2, None), (3, 2)]


def test_a_step_that_changed_places_moved() -> None:
    after = Workflow(steps=(STEPS[2], STEPS[0], STEPS[1].model_copy(update={"access_list": (1,)}), STEPS[3]))
    found = changes(PLAN, after)
    assert ("moved", 2, 0, ()) in found
    assert [each for each in found if each[0] != "moved"] == [("changed", 3, 3, ("access_list",))]


def test_all_that_grants_the_same_as_a_list_is_a_change_of_writing() -> None:
    assert changes(with_step(1, access_list=(0,)), with_step(1, access_list="all")) == [
        ("changed", 1, 1, ("access_list",))
    ]
    assert not compare_plans(PLAN, with_step(1, access_list="all")).changes.steps[1].changed


def test_all_covers_a_step_that_is_new() -> None:
    before = Workflow(steps=(STEPS[0], STEPS[1].model_copy(update={"access_list": "all"})))
    after = Workflow(steps=(STEPS[0], STEPS[2], before.steps[1]))
    assert changes(before, after) == [("added", None, 1, ()), ("changed", 1, 2, ("access_list",))]


def test_differences_that_do_not_fit_a_plan_are_refused() -> None:
    with pytest.raises(ValueError, match="do not fit a plan of 4 steps"):
        applied(PLAN, [Difference(change="removed", a=7)])


def test_recursion_is_a_step_like_any_other_in_a_plan() -> None:
    after = with_step(2, agent=CONDUCTOR_AGENT)
    assert changes(PLAN, after) == [("changed", 2, 2, ("agent",))]
