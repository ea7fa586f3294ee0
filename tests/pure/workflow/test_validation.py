import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_core.workflow.model import CONDUCTOR_AGENT, AccessList, Fault, Step, Workflow
from conductor_core.workflow.parser import parse_completion
from conductor_core.workflow.topology import descendants, topology
from conductor_core.workflow.validation import UNTOLD, Checked, validate
from tests.support.fakes import workflow_of
from tests.support.workflows import workflows

AGENTS = ("gpt-5", "claude-sonnet-4", "qwen3-32b")


def check(text: str, *, max_steps: int = 5, allow_recursion: bool = False) -> Checked:
    return validate(parse_completion(text), AGENTS, max_steps=max_steps, allow_recursion=allow_recursion)


def lists(models: str, subtasks: str, access: str) -> str:
    return f"model_id = {models}\nsubtasks = {subtasks}\naccess_list = {access}\n"


def plan(*access_lists: AccessList) -> Workflow:
    return Workflow(
        steps=tuple(
            Step(instruction=f"Instruction {index}.", agent=AGENTS[index % 3], access_list=reads)
            for index, reads in enumerate(access_lists)
        )
    )


def places(faults: tuple[Fault, ...]) -> list[tuple[str, int | None, str, int | None, int | None]]:
    return [(fault.code, fault.step, fault.field, fault.line, fault.column) for fault in faults]


def test_ordinals_become_names() -> None:
    checked = check(lists("[2, 0]", "['Plan.', 'Do.']", "[[], 'all']"))
    assert checked == Checked(
        workflow=Workflow(
            steps=(
                Step(instruction="Plan.", agent="qwen3-32b"),
                Step(instruction="Do.", agent="gpt-5", access_list="all"),
            )
        )
    )


def test_names_stand_for_themselves() -> None:
    checked = check(lists("['gpt-5', qwen3-32b]", "['Plan.', 'Do.']", "[[], [0]]"))
    assert checked.workflow is not None
    assert [step.agent for step in checked.workflow.steps] == ["gpt-5", "qwen3-32b"]


@pytest.mark.parametrize(
    ("text", "code", "step", "field", "line", "column"),
    [
        (lists("[3]", "['a']", "[[]]"), "unknown_agent", 0, "agent", 1, 13),
        (lists("[-1]", "['a']", "[[]]"), "unknown_agent", 0, "agent", 1, 13),
        (lists("['gpt5']", "['a']", "[[]]"), "unknown_agent", 0, "agent", 1, 13),
        (lists("['conductor']", "['a']", "[[]]"), "unknown_agent", 0, "agent", 1, 13),
        (lists("[0, 0]", "['a', 'b']", "[[], [1]]"), "self_reference", 1, "access_list", 3, 20),
        (lists("[0, 0]", "['a', 'b']", "[[1], [0]]"), "forward_reference", 0, "access_list", 3, 16),
        (lists("[0, 0]", "['a', 'b']", "[[], [2]]"), "out_of_range", 1, "access_list", 3, 20),
        (lists("[0, 0]", "['a', 'b']", "[[], [-1]]"), "negative_index", 1, "access_list", 3, 20),
        (lists("[0, 0]", "['a', ' \\n ']", "[[], [0]]"), "empty_instruction", 1, "instruction", 2, 18),
        (lists("[0, 0]", "['a', '']", "[[], [0]]"), "empty_instruction", 1, "instruction", 2, 18),
        ("\n" + lists("[]", "[]", "[]"), "empty_workflow", None, "workflow", 2, 1),
        (lists("[0, 1, 2]", "['a', 'b', 'c']", "[[], [0], [1]]"), "too_many_steps", 2, "workflow", 2, 23),
    ],
)  # fmt: skip
def test_each_rule_has_its_code_and_place(
    text: str, code: str, step: int | None, field: str, line: int, column: int
) -> None:
    checked = check(text, max_steps=2)
    assert checked.workflow is None
    assert places(checked.faults) == [(code, step, field, line, column)]


def test_all_faults_at_once_those_of_reading_first() -> None:
    text = lists("[9, None, 0, 0]", "['', 'b', 3]", "[[0], [5, -2, 2], [True], []]")
    codes = [(fault.code, fault.step) for fault in check(text, max_steps=3).faults]
    assert codes == [
        ("not_an_agent", 1),
        ("not_text", 2),
        ("bad_access", 2),
        ("unequal_lengths", None),
        ("too_many_steps", 3),
        ("empty_instruction", 0),
        ("self_reference", 0),
        ("unknown_agent", 0),
        ("out_of_range", 1),
        ("negative_index", 1),
        ("forward_reference", 1),
    ]


def test_an_unknown_agent_names_the_pool_and_a_close_match() -> None:
    (fault,) = check(lists("['Claude Sonnet']", "['a']", "[[]]")).faults
    assert fault.message == (
        "Step 0: the pool has no agent Claude Sonnet; did you mean claude-sonnet-4? "
        "It has 0 gpt-5, 1 claude-sonnet-4, 2 qwen3-32b."
    )
    (fault,) = check(lists("[7]", "['a']", "[[]]")).faults
    assert fault.message == "Step 0: the pool has no agent 7. It has 0 gpt-5, 1 claude-sonnet-4, 2 qwen3-32b."
    (fault,) = validate(plan(()), [], max_steps=5).faults
    assert fault.message == "Step 0: the pool has no agent gpt-5. It is empty."
    (fault,) = validate(plan(()), [f"agent {i}" for i in range(40)], max_steps=5).faults
    assert fault.message.endswith("11 agent 11, and 28 more.")


def test_a_reference_says_what_would_be_right() -> None:
    faults = check(lists("[0, 1, 2]", "['a', 'b', 'c']", "[[2], [2], [0, 3]]")).faults
    assert [fault.message for fault in faults] == [
        "Step 0 reads step 2: only earlier steps can be read, and there is none before step 0.",
        "Step 1 reads step 2: only earlier steps can be read, that is step 0.",
        "Step 2 reads step 3: the last step is 2.",
    ]
    (fault,) = check(lists("[0, 1, 2, 0]", "['a', 'b', 'c', 'd']", "[[], [], [3], []]")).faults
    assert fault.message == "Step 2 reads step 3: only earlier steps can be read, that is steps 0 to 1."


def test_the_conductor_itself_is_the_ordinal_after_the_pool() -> None:
    text = lists("[0, 3]", "['a', 'b']", "[[], [0]]")
    checked = check(text, allow_recursion=True)
    assert checked.workflow is not None
    assert checked.workflow.steps[1].agent == CONDUCTOR_AGENT
    assert check(text.replace("3", "'conductor'"), allow_recursion=True) == checked
    (fault,) = check(text).faults
    assert fault.code == "unknown_agent"
    assert "recursion is off" in fault.message
    assert [fault.code for fault in check(text.replace("3", "4"), allow_recursion=True).faults] == ["unknown_agent"]


def test_no_steps_are_a_stop_where_a_recursion_can_stop() -> None:
    stop = parse_completion(lists("[]", "[]", "[]"))
    assert validate(stop, AGENTS, max_steps=5, allow_recursion=True).workflow == Workflow(steps=())
    assert validate(stop, AGENTS, max_steps=5, allow_stop=True).workflow == Workflow(steps=())
    first_round = validate(stop, AGENTS, max_steps=5, allow_recursion=True, allow_stop=False)
    assert [fault.code for fault in first_round.faults] == ["empty_workflow"]
    assert [fault.code for fault in validate(plan(), AGENTS, max_steps=5).faults] == ["empty_workflow"]


def test_nothing_read_stays_a_fault() -> None:
    checked = validate(parse_completion("no plan"), AGENTS, max_steps=5, allow_stop=True)
    assert [fault.code for fault in checked.faults] == ["no_workflow"]


def test_a_workflow_without_text_is_checked_without_places() -> None:
    workflow = plan((), (0,), (3,))
    checked = validate(workflow, AGENTS, max_steps=5)
    assert places(checked.faults) == [("out_of_range", 2, "access_list", None, None)]
    assert validate(plan((), (0,), (1,)), AGENTS, max_steps=3) == Checked(workflow=plan((), (0,), (1,)))


def test_the_question_macro_is_legal() -> None:
    assert check(lists("[0]", "['Answer {question}']", "[[]]")).workflow is not None


# -- warnings --


def test_an_output_nobody_reads() -> None:
    checked = check(lists("[0, 1, 2]", "['a', 'b', 'c']", "[[], [], [0]]"))
    assert checked.workflow is not None
    assert places(checked.warnings) == [("unread_output", 1, "workflow", 2, 18)]


def test_an_answer_that_reads_nothing() -> None:
    checked = check(lists("[0, 1]", "['a', 'b']", "[[], []]"))
    assert places(checked.warnings) == [
        ("unread_output", 0, "workflow", 2, 13),
        ("answer_reads_nothing", 1, "access_list", 3, 20),
    ]
    assert check(lists("[0]", "['a']", "[[]]")).warnings == ()


def test_a_duplicate_step() -> None:
    checked = check(lists("[0, 0, 1, 2]", "['Solve it.', 'Solve  it.', 'Check it.', 'End.']", "[[], [], [0], [1, 2]]"))
    assert places(checked.warnings) == [("duplicate_step", 1, "workflow", 2, 26)]
    assert checked.warnings[0].message == (
        "Step 1 repeats step 0: same agent, instruction and inputs. Remove one, or let a later step compare both."
    )


@pytest.mark.parametrize(
    "access",
    ["[[], [], [], 'all']", "[[], [], [0, 1], [2]]", "[[], [], [0], [0, 1, 2]]"],
    ids=["best of three", "best of two, then checked", "read together by one of two"],
)
def test_equal_attempts_that_a_later_step_compares_are_meant(access: str) -> None:
    checked = check(lists("[0, 0, 0, 1]", "['Solve it.', 'Solve it.', 'Solve it.', 'Choose.']", access))
    assert [warning.code for warning in checked.warnings] == []


def test_the_same_words_with_other_inputs_are_no_duplicate() -> None:
    assert (
        check(lists("[0, 0, 0]", "['Improve it.', 'Improve it.', 'Improve it.']", "[[], 'all', 'all']")).warnings == ()
    )


def test_warnings_stand_beside_faults() -> None:
    checked = check(lists("[9, 1, 2]", "['a', 'b', 'c']", "[[], [], [0]]"))
    assert [fault.code for fault in checked.faults] == ["unknown_agent"]
    assert [warning.code for warning in checked.warnings] == ["unread_output"]


def test_no_warning_is_guessed_where_an_access_list_is_missing() -> None:
    assert check(lists("[0, 1, 2]", "['a', 'b', 'c']", "[[], []]")).warnings == ()


def test_a_plan_beyond_all_limits_is_not_searched_for_warnings() -> None:
    count = 10_000
    entries = (f"[{entry * count}]" for entry in ("0, ", "'a', ", "'all', "))
    checked = check(lists(*entries))
    assert [fault.code for fault in checked.faults] == ["too_many_steps"]
    assert checked.warnings == ()


# A plan whose steps are not told the task is warned of, at the steps where it could be.


TASK = "What is  17 * 24?"


def warned(*steps: tuple[str, str, AccessList], task: str | None = TASK) -> list[int | None]:
    checked = validate(workflow_of(*steps), ["a", "b"], max_steps=5, allow_recursion=True, task=task)
    assert checked.workflow is not None
    return [warning.step for warning in checked.warnings if warning.code == UNTOLD]


@pytest.mark.parametrize(
    ("steps", "at"),
    [
        ([("a", "Solve it.", ())], [0]),
        ([("a", "Solve: {question}", ())], []),
        ([("a", "Solve: What is 17 * 24?", ())], []),
        ([("a", "Solve it.", ()), ("b", "Check it.", (0,))], [0]),
        ([("a", "Solve it.", ()), ("b", "Check the answer to {question}", (0,))], []),
        ([("a", "One.", ()), ("a", "Two.", ()), ("b", "Best of both.", "all")], [0, 1]),
        ([("a", "See {question}", ()), ("a", "Solve it.", ()), ("b", "Check it.", (1,))], [1]),
        ([("conductor", "Plan it.", ())], []),
        ([("a", "One.", ()), ("conductor", "Plan it.", (0,))], []),
    ],
)
def test_where_nothing_that_counts_is_told_the_task(steps: list[tuple[str, str, AccessList]], at: list[int]) -> None:
    assert warned(*steps) == at


def test_no_word_is_said_where_every_step_is_told_anyway() -> None:
    assert warned(("a", "Solve it.", ()), task=None) == []


def test_an_empty_task_is_in_no_instruction() -> None:
    assert warned(("a", "Solve it.", ()), task="") == [0]


def test_the_place_is_the_instruction() -> None:
    parsed = parse_completion('model_id = [0]\nsubtasks = ["Solve it."]\naccess_list = [[]]')
    (warning,) = validate(parsed, ["a"], max_steps=5, task=TASK).warnings
    assert (warning.code, warning.field, warning.line, warning.column) == (UNTOLD, "instruction", 2, 13)
    assert warning.message == (
        "Step 0 does not receive the task, nor does any step that leads to the answer: no instruction says {question}."
    )


# A plan read as a linter would: what is found, at which step, and what is let be.


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
