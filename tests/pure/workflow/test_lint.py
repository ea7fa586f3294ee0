"""A plan read as a linter would: what is found, at which step, and what is let be."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_core.workflow.model import AccessList, Workflow
from conductor_core.workflow.parser import parse_completion
from conductor_core.workflow.topology import descendants, topology
from conductor_core.workflow.validation import validate
from tests.support.fakes import workflow_of
from tests.support.workflows import workflows

Given = tuple[str, str, AccessList]
PLAN: Given = ("a", "Plan how to solve this, without solving it: {question}", ())
SOLVE: Given = ("b", "Solve this: {question}", ())
CARRY_OUT: Given = ("b", "Carry out the plan above and give a full solution: {question}", (0,))


def found(workflow: Workflow) -> list[tuple[str, int | None]]:
    checked = validate(workflow, ["a", "b", "c"], max_steps=12, allow_recursion=True)
    assert checked.workflow is not None
    return [(warning.code, warning.step) for warning in checked.warnings]


def messages(*steps: Given) -> list[str]:
    return [warning.message for warning in validate(workflow_of(*steps), ["a", "b", "c"], max_steps=12).warnings]


@settings(max_examples=100)
@given(workflow=workflows())
def test_each_step_that_the_answer_does_not_rest_on_is_named_once(workflow: Workflow) -> None:
    last = len(workflow.steps) - 1
    off = {step for code, step in found(workflow) if code in ("unread_output", "off_the_answers_path")}
    if last > 0 and workflow.reads(last):
        assert off == {index for index in range(last) if last not in descendants(workflow, index)}


def test_a_step_that_only_a_dead_end_reads_is_off_the_answers_path() -> None:
    steps = (SOLVE, ("a", "Sum it up.", (0,)), ("b", "Solve: {question}", ()), ("c", "Give the answer.", (2,)))
    codes = found(workflow_of(*steps))
    assert codes == [("off_the_answers_path", 0), ("unread_output", 1)]
    assert messages(*steps)[0] == (
        "The answer does not rest on step 0: only step 1 reads it, and it does not lead to the answer. Let a step that "
        "does read it, or remove it."
    )


@pytest.mark.parametrize(
    ("steps", "at"),
    [
        ([SOLVE, ("c", "Check the answer above: {question}", ())], 1),
        ([SOLVE, ("c", "Please carefully verify the solution to {question}", ())], 1),
        ([SOLVE, ("c", "As a strict referee, review the proof: {question}", ())], 1),
        ([PLAN, CARRY_OUT, ("c", "Check the result above: {question}", (0,))], 2),
        ([PLAN, CARRY_OUT, SOLVE, ("c", "Check the output of step 1: {question}", (2,))], 3),
    ],
)
def test_a_verifier_that_cannot_see_what_it_verifies(steps: list[Given], at: int) -> None:
    assert ("verifier_sees_nothing", at) in found(workflow_of(*steps))


@pytest.mark.parametrize(
    "step",
    [
        ("c", "Check the answer above: {question}", (1,)),
        ("c", "Check the answer above: {question}", "all"),
        ("c", "Check the plan above: {question}", (0,)),
        # It verifies what it makes itself, or what the task brings.
        ("c", "Solve this again, check each number and state the result: {question}", ()),
        ("c", "Check whether this claim is true: {question}", ()),
        # Counted from 1, step 2 is the one that it reads.
        ("c", "Check the result of step 2: {question}", (1,)),
        ("conductor", "Check the answer above, else plan anew: {question}", ()),
    ],
)
def test_a_verifier_that_sees_it_or_verifies_something_else_is_let_be(step: Given) -> None:
    codes = found(workflow_of(PLAN, CARRY_OUT, step))
    assert not [code for code, _ in codes if code in ("verifier_sees_nothing", "grants_more_than_named")]


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (("c", "Using step 0, answer: {question}", "all"), "speaks of step 0 alone, but its access list also grants"),
        (("c", "Improve on the output of step 1: {question}", (0, 1)), "speaks of step 1 alone"),
        (("c", "Write down step 1's number: {question}", "all"), "speaks of step 1 alone"),
        (("c", "Carry out the plan above: {question}", "all"), "speaks of the plan alone"),
        (("c", "Follow the plan: {question}", (0, 1)), "the plan alone, but its access list also grants step 1"),
    ],
)
def test_an_access_list_that_grants_more_than_is_spoken_of(step: Given, said: str) -> None:
    workflow = workflow_of(PLAN, CARRY_OUT, step)
    assert found(workflow) == [("grants_more_than_named", 2)]
    assert said in messages(PLAN, CARRY_OUT, step)[0]


@pytest.mark.parametrize(
    "step",
    [
        ("c", "Using steps 0 and 1, answer: {question}", "all"),
        ("c", "Compare the output of step 0 with all the others: {question}", "all"),
        ("c", "Use steps 0 to 1: {question}", "all"),
        ("c", "Solve it: step 1 reads the file, step 2 writes it. {question}", "all"),
        ("c", "Carry out the plan and use the earlier results: {question}", "all"),
        ("c", "Answer: {question}", "all"),
        # What the numbers stand for is not plain: they may count from 1.
        ("c", "Using steps 1 and 2, answer: {question}", "all"),
    ],
)
def test_an_access_list_is_let_be_where_the_words_are_not_plain(step: Given) -> None:
    assert found(workflow_of(PLAN, CARRY_OUT, step)) == []


def test_equal_attempts_and_a_debate_are_no_fault() -> None:
    best = workflow_of(SOLVE, SOLVE, SOLVE, ("c", "Choose the best answer above: {question}", "all"))
    assert (topology(best), found(best)) == ("best-of-n", [])
    debate = workflow_of(
        ("a", "Argue your answer: {question}", ()),
        ("b", "Argue your answer: {question}", ()),
        ("a", "Reply to the other side: {question}", (1,)),
        ("b", "Reply to the other side: {question}", (0,)),
        ("c", "Settle the debate above: {question}", "all"),
    )
    assert (topology(debate), found(debate)) == ("debate", [])


def test_the_place_of_a_finding_is_the_access_list() -> None:
    parsed = parse_completion(
        'model_id = [0, 1]\nsubtasks = ["Solve it.", "Check the answer above."]\naccess_list = [[], []]'
    )
    warning = validate(parsed, ["a", "b"], max_steps=5).warnings[-1]
    assert (warning.code, warning.step, warning.field) == ("verifier_sees_nothing", 1, "access_list")
    assert (warning.line, warning.column) == (3, 20)
    assert warning.message.endswith("let it read the step that it checks, for instance step 0.")


@settings(max_examples=100)
@given(words=st.text(max_size=300), reads=st.sampled_from([(), (0,), "all"]))
def test_any_instruction_can_be_read(words: str, reads: AccessList) -> None:
    validate(workflow_of(PLAN, SOLVE, ("c", f"x{words}", reads)), ["a", "b", "c"], max_steps=12)
