import pytest

from conductor_core.workflow.model import CONDUCTOR_AGENT, AccessList, Fault, Step, Workflow
from conductor_core.workflow.parser import parse_completion
from conductor_core.workflow.validation import Checked, validate

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
