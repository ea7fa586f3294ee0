"""What a person changes in the fields, in the graph and by keys goes into one draft, in that order and once."""

from hypothesis import given
from hypothesis import strategies as st

from conductor_core.run.actor import local_caller
from conductor_core.workflow.model import Step, Workflow
from conductor_core.workflow.validation import validate
from pages.components.run import draft
from pages.components.run import draft as drafts
from pages.components.run.draft import NOTHING_APPLIED, AppliedChanges, Author, Sent

AGENT = "solver"
AUTHOR = Author(local_caller("page"), agent=AGENT)
PLAN = Workflow(
    steps=(
        Step(instruction="a {question}", agent=AGENT),
        Step(instruction="b {question}", agent=AGENT, access_list=(0,)),
        Step(instruction="c {question}", agent=AGENT, access_list="all"),
    )
)


def sent(*changes: dict[str, object], first: int = 1) -> Sent:
    numbered = [{"number": number, **change} for number, change in enumerate(changes, first)]
    found = draft.read_sent({"page": "p", "run_id": "r", "changes": numbered})
    assert found is not None
    return found


def give(step: int, read: int) -> dict[str, object]:
    return {"kind": "give", "step": step, "read": read}


def cut(step: int, read: int) -> dict[str, object]:
    return {"kind": "cut", "step": step, "read": read}


def move(step: int, to: int) -> dict[str, object]:
    return {"kind": "move", "step": step, "to": to}


def apply(draft: drafts.Draft, changes: Sent, applied: AppliedChanges) -> tuple[drafts.Draft, AppliedChanges]:
    return drafts.apply_changes(draft, changes, applied, AUTHOR)[:2]


def made(*changes: dict[str, object]) -> drafts.Draft:
    return apply(drafts.begin(PLAN), sent(*changes), NOTHING_APPLIED)[0]


def lists(draft: drafts.Draft) -> list[object]:
    return [step.access_list for step in draft.workflow.steps]


def test_an_access_is_cut_and_given_and_the_line_says_so() -> None:
    draft = made(cut(1, 0))
    assert lists(draft) == [(), (), "all"]
    assert draft.note == "Step 1 no longer sees step 0."
    draft = made(cut(1, 0), give(1, 0))
    assert lists(draft) == [(), (0,), "all"]
    assert draft.note == "Step 1 now sees step 0."
    assert not draft.changed
    assert len(draft.past) == 2


def test_cutting_one_of_all_leaves_the_others() -> None:
    assert lists(made(cut(2, 0))) == [(), (0,), (1,)]


def test_the_fields_of_a_step_are_changed_each_by_itself() -> None:
    draft = made(
        {"kind": "instruct", "step": 1, "text": "other {question}"},
        {"kind": "assign", "step": 1, "agent": "checker"},
        {"kind": "only", "step": 2},
        {"kind": "all", "step": 1},
    )
    assert [step.instruction[0] for step in draft.workflow.steps] == ["a", "o", "c"]
    assert draft.workflow.steps[1].agent == "checker"
    assert lists(draft) == [(), "all", (0, 1)]
    assert len(draft.past) == 4


def test_only_these_leaves_out_what_a_step_cannot_read() -> None:
    steps = (*PLAN.steps[:2], PLAN.steps[2].model_copy(update={"access_list": (2, 1, 1, 9)}))
    draft, _ = apply(drafts.begin(Workflow(steps=steps)), sent({"kind": "only", "step": 2}), NOTHING_APPLIED)
    assert lists(draft)[2] == (1,)


def test_steps_are_added_copied_and_removed() -> None:
    draft = made({"kind": "add", "step": 0}, {"kind": "copy", "step": 1}, {"kind": "remove", "step": 0})
    assert draft.now.ids == (3, 1, 4, 2)
    assert [step.agent for step in draft.workflow.steps] == [AGENT] * 4
    first, _ = apply(drafts.begin(Workflow(steps=())), sent({"kind": "first"}), NOTHING_APPLIED)
    assert first.workflow.steps[0].agent == AGENT


def test_what_is_typed_before_the_plan_is_run_is_in_it_and_what_comes_after_is_not() -> None:
    text: dict[str, object] = {"kind": "instruct", "step": 0, "text": "typed"}
    changes = sent(text, {"kind": "start"}, {**text, "text": "too late"})
    draft, applied, left = drafts.apply_changes(drafts.begin(PLAN), changes, NOTHING_APPLIED, AUTHOR)
    assert (draft.workflow.steps[0].instruction, left) == ("typed", "start")
    again = drafts.apply_changes(draft, changes, applied, AUTHOR)
    assert again == (draft, applied, None), "it runs once, however often it is sent"


def test_only_a_change_of_the_plan_opens_its_editor() -> None:
    assert not NOTHING_APPLIED.brings_more(sent({"kind": "close"}))
    assert NOTHING_APPLIED.brings_more(sent(cut(1, 0)))
    assert not AppliedChanges({"p": 1}).brings_more(sent(cut(1, 0)))


def test_an_output_is_given_only_to_the_step_of_a_run() -> None:
    assert not made({"kind": "write", "step": 1, "text": "42"}, {"kind": "pin", "step": 1}).changed


def test_only_earlier_steps_can_be_given() -> None:
    for change in (give(0, 1), give(1, 1), give(1, 0), give(2, 1), give(1, 7), cut(1, 2), move(0, 3), move(0, -1)):
        assert made(change) == drafts.begin(PLAN), change


def test_a_change_is_made_once_however_often_it_is_sent() -> None:
    draft, applied = apply(drafts.begin(PLAN), sent(cut(1, 0)), NOTHING_APPLIED)
    assert applied.as_data() == {"page": "p", "number": 1}
    again, applied = apply(drafts.undo(draft), sent(cut(1, 0)), applied)
    assert not again.changed
    draft, applied = apply(again, sent(cut(1, 0), move(2, 1)), applied)
    assert [step.instruction[0] for step in draft.workflow.steps] == ["a", "c", "b"]
    assert lists(draft) == [(), "all", (0,)]
    assert applied.as_data() == {"page": "p", "number": 2}


def test_what_was_made_in_the_graph_is_undone_and_redone_by_its_keys() -> None:
    undo: dict[str, object] = {"kind": "undo"}
    redo: dict[str, object] = {"kind": "redo"}
    assert lists(made(cut(1, 0), move(2, 1), undo, undo)) == lists(drafts.begin(PLAN))
    assert lists(made(cut(1, 0), undo, undo, redo, redo)) == [(), (), "all"]


def test_a_step_that_is_shifted_by_key_counts_from_where_it_is_by_then() -> None:
    shift: dict[str, object] = {"kind": "shift", "step": 2, "by": -1}
    assert made(shift, shift, shift).now.ids == (2, 0, 1)
    assert made(shift, {"kind": "undo"}, shift).now.ids == (0, 2, 1)


def test_another_page_counts_from_one() -> None:
    _, applied = apply(drafts.begin(PLAN), sent(cut(1, 0)), NOTHING_APPLIED)
    other = sent(cut(2, 1)).model_copy(update={"page": "q"})
    draft, applied = apply(drafts.begin(PLAN), other, applied)
    assert lists(draft) == [(), (0,), (0,)]
    assert applied.numbers == {"p": 1, "q": 1}


def test_what_a_browser_should_not_send_is_no_change() -> None:
    change: dict[str, object] = {"number": 1, **cut(1, 0)}
    good: dict[str, object] = {"page": "p", "run_id": None, "changes": [change]}
    assert draft.read_sent(good) is not None
    values: tuple[object, ...] = (
        None,
        [],
        {},
        good | {"page": 1},
        good | {"changes": [{"number": 1, "kind": "drop", "step": 1}]},
        good | {"changes": [change | {"step": "1"}]},
        good | {"changes": [change | {"number": True}]},
        good | {"changes": [change] * 1000},
        *(
            good | {"changes": [{"number": 1, "kind": kind, "step": 1}]}
            for kind in ("write", "instruct", "assign", "give", "cut", "move", "shift")
        ),
    )
    for value in values:
        assert draft.read_sent(value) is None


CHANGES = st.lists(
    st.one_of(
        st.builds(give, st.integers(0, 6), st.integers(0, 6)),
        st.builds(cut, st.integers(0, 6), st.integers(0, 6)),
        st.builds(move, st.integers(0, 6), st.integers(0, 6)),
    ),
    max_size=12,
)


@given(changes=CHANGES, size=st.integers(1, 6))
def test_no_change_in_the_graph_makes_a_plan_faulty_and_each_can_be_undone(
    changes: list[dict[str, object]], size: int
) -> None:
    steps = tuple(
        Step(instruction=f"{n} {{question}}", agent=AGENT, access_list=(n - 1,) if n else ()) for n in range(size)
    )
    begun = drafts.begin(Workflow(steps=steps))
    draft, _ = apply(begun, sent(*changes), NOTHING_APPLIED)
    assert validate(draft.workflow, [AGENT], max_steps=size).faults == ()
    for _ in draft.past:
        draft = drafts.undo(draft)
    assert draft.now == begun.now
