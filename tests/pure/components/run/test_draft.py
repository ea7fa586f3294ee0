from hypothesis import given
from hypothesis import strategies as st

from conductor_core.workflow.model import Step, Workflow
from pages.components.run import draft as drafts
from pages.components.run.draft import Draft

CHAIN = Workflow(
    steps=tuple(Step(instruction=f"do {n}", agent="solver", access_list=(n - 1,) if n else ()) for n in range(4))
)
NEW = Step(instruction="new", agent="writer")


def test_a_field_stays_with_its_step_when_the_number_changes() -> None:
    moved = drafts.move(drafts.begin(CHAIN), 3, 0)
    assert moved.now.ids == (3, 0, 1, 2)
    assert moved.workflow.steps[0].instruction == "do 3"


def test_a_new_step_never_takes_the_id_of_a_removed_one() -> None:
    draft = drafts.insert(drafts.remove(drafts.begin(CHAIN), 1), 1, NEW)
    assert draft.now.ids == (0, 4, 2, 3)


def test_removing_a_step_says_which_references_went_with_it() -> None:
    assert "step 2 reading step 1" in drafts.remove(drafts.begin(CHAIN), 1).note


def test_setting_a_field_to_what_it_was_is_no_change() -> None:
    draft = drafts.begin(CHAIN)
    assert drafts.change_step(draft, 1, CHAIN.steps[1]) is draft


def test_reset_can_be_undone() -> None:
    edited = drafts.insert(drafts.begin(CHAIN), 2, NEW)
    back = drafts.reset(edited)
    assert not back.changed
    assert drafts.undo(back).workflow == edited.workflow


ACTS = st.lists(
    st.tuples(st.sampled_from(["insert", "remove", "move", "change"]), st.integers(0, 9), st.integers(0, 9))
)


def _act(draft: Draft, name: str, first: int, second: int) -> Draft:
    count = len(draft.workflow.steps)
    if name == "insert":
        return drafts.insert(draft, first % (count + 1), NEW)
    if not count:
        return draft
    if name == "remove":
        return drafts.remove(draft, first % count)
    if name == "move":
        return drafts.move(draft, first % count, second % count)
    return drafts.change_step(draft, first % count, Step(instruction=f"changed {second}", agent="solver"))


@given(ACTS)
def test_undo_goes_all_the_way_back_and_redo_all_the_way_forth(acts: list[tuple[str, int, int]]) -> None:
    draft = drafts.begin(CHAIN)
    for act in acts:
        draft = _act(draft, *act)
        assert len(set(draft.now.ids)) == len(draft.now.ids) == len(draft.workflow.steps)
    end = draft.now
    while draft.past:
        draft = drafts.undo(draft)
    assert draft.workflow == CHAIN
    while draft.future:
        draft = drafts.redo(draft)
    assert draft.now == end


def test_an_edit_of_a_plan_that_was_changed_meanwhile_stands_beside_the_changed_plan() -> None:
    edited = drafts.change_step(drafts.begin(CHAIN), 3, CHAIN.steps[3].model_copy(update={"instruction": "do it well"}))
    meanwhile = Workflow(steps=(*CHAIN.steps[:2], NEW))
    now = drafts.rebase(edited, meanwhile)
    assert (now.original, now.workflow) == (meanwhile, edited.workflow)
    assert now.origins[:2] == (0, 1)
    assert len(set(now.now.ids)) == 4
    assert "changed meanwhile" in now.note
    alone = drafts.undo(now)
    assert (alone.workflow, alone.changed) == (meanwhile, False)
    assert drafts.redo(alone).workflow == edited.workflow


def test_without_an_edit_the_changed_plan_is_where_one_begins() -> None:
    unchanged = drafts.begin(CHAIN)
    shorter = Workflow(steps=CHAIN.steps[:2])
    assert drafts.rebase(unchanged, shorter).now == drafts.begin(shorter).now
    same = drafts.remove(drafts.remove(unchanged, 3), 2)
    assert not drafts.rebase(same, shorter).past
