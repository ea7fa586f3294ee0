"""When an answer flips: by what is right where that is known, else by what it concludes."""

import pytest

from conductor_core.blame.runs import Verdicts
from conductor_core.errors import BadInput
from conductor_core.rehearsal import generate
from conductor_core.run.trace import RunTrace, begin
from tests.support.run_events import created


def answered(answer: str, task: str = "How many are there?") -> RunTrace:
    trace = begin(created("r", task=task))
    trace.answer = answer
    return trace


def test_with_the_truth_given_only_right_and_wrong_count() -> None:
    verdicts = Verdicts(answered("The answer is 41."), truth="42")
    assert (verdicts.recorded_right, verdicts.known_by) == (False, "you")
    assert verdicts.flips("So the answer is 42.")
    assert not verdicts.flips("The answer is 17."), "another wrong answer is still wrong"
    assert "it flips if it becomes right" in verdicts.in_words
    assert Verdicts(answered("Paris"), truth="paris").recorded_right


def test_the_rehearsal_world_knows_its_own_tasks() -> None:
    task = generate("arithmetic", "medium", 7)
    verdicts = Verdicts(answered(f"**Answer:** {task.answer}", task.question))
    assert (verdicts.known_by, verdicts.recorded_right) == ("rehearsal world", True)
    assert verdicts.flips("I do not know.")
    assert "it flips if it becomes wrong" in verdicts.in_words


@pytest.mark.parametrize(
    ("answer", "other", "flips"),
    [
        ("The answer is 1,250.", "So the answer is **1250**.", False),
        ("The answer is 41.", "The answer is 42.", True),
        ("Answer: May 5", "Answer: June 5", True),
        ("Answer: Paris", "answer: *paris*", False),
        ("Answer: 5", "Answer: Paris", True),
        ("I cannot help with that.", "Sorry, I can't answer this.", False),
        ("The answer is 41.", "I cannot help with that.", True),
        ("It rains today. It is cold.", "It rains today. It is cold.", False),
        ("It rains today. It is cold.", "It rains today. It is warm.", True),
        (f"{'It rains. ' * 40}Take a coat.", f"{'It rains. ' * 40}Take a hat.", True),
    ],
)
def test_without_a_truth_the_conclusions_are_compared(answer: str, other: str, flips: bool) -> None:
    verdicts = Verdicts(answered(answer))
    assert (verdicts.known_by, verdicts.recorded_right) == ("nobody", None)
    assert verdicts.flips(other) is flips


def test_it_is_said_what_answers_are_compared_by() -> None:
    value, prose = Verdicts(answered("The answer is 41.")), Verdicts(answered("It rains today. It is cold."))
    assert (value.compared_by, prose.compared_by) == ("value", "text")
    assert Verdicts(answered("The answer is 41."), truth="42").compared_by == "truth"
    assert "marks another value" in value.in_words
    assert prose.differs_in_wording("It is cold today. It rains.")
    assert not prose.differs_in_wording("It rains today. It is cold.")
    assert not value.differs_in_wording("The answer is 42.")


def test_prose_says_that_two_wordings_count_as_two() -> None:
    prose = "They differ in many ways, and it is a matter of taste which of them one likes more than all of the others."
    assert "give the truth" in Verdicts(answered(prose)).in_words


@pytest.mark.parametrize("truth", ["", "  ", "x" * 3000])
def test_a_truth_that_says_nothing_or_too_much_is_refused(truth: str) -> None:
    with pytest.raises(BadInput, match="the right answer"):
        Verdicts(answered("41"), truth=truth)
