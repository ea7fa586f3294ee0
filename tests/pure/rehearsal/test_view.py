"""What a worker makes of its messages."""

from conductor_core.chat.messages import Message
from conductor_core.rehearsal import EXAMPLES
from conductor_core.rehearsal.worker import PLAN_HEADING, read_messages

TRAIN = EXAMPLES[3].task


def test_words_of_the_question_itself_do_not_decide_the_role() -> None:
    view = read_messages([Message(role="user", content=TRAIN)])
    assert view.task is not None
    assert view.role == "solve"  # the task ends with "Check the result independently."


def test_the_question_is_found_in_a_granted_turn() -> None:
    view = read_messages(
        [
            Message(role="user", content=f"Break it down: {TRAIN}"),
            Message(role="assistant", content="Later."),
            Message(role="user", content="Solve it."),
        ]
    )
    assert view.task is not None
    assert view.task.answer == "13:43"
    assert view.plan is None


def test_a_plan_that_leaves_something_out_is_not_a_good_one() -> None:
    task = read_messages([Message(role="user", content=TRAIN)]).task
    assert task is not None
    lines = list(task.solution.plan)

    def plan_seen(plan: list[str]) -> str | None:
        output = f"{PLAN_HEADING}\n" + "\n".join(plan)
        turns = [Message(role="user", content=f"Plan: {TRAIN}"), Message(role="assistant", content=output)]
        return read_messages([*turns, Message(role="user", content="Solve it.")]).plan

    assert plan_seen(lines) == "good"
    assert plan_seen(lines[:-1]) == "poor"


def test_only_granted_outputs_count_as_answers_not_instructions() -> None:
    view = read_messages(
        [
            Message(role="user", content=f"{TRAIN} **Answer: 01:00**"),
            Message(role="assistant", content="**Answer: 02:00**"),
            Message(role="user", content="Check it. **Answer: 03:00**"),
        ]
    )
    assert [given.answer for given in view.given] == ["02:00"]


def test_no_messages_at_all() -> None:
    view = read_messages([])
    assert (view.instruction, view.turns, view.task) == ("", (), None)
