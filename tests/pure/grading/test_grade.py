import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_core.errors import BadInput
from conductor_core.grading.code import extract_code
from conductor_core.grading.grade import grade, require_gradable
from conductor_core.grading.tasks import Task
from conductor_core.lab.evaluation.suites import load_suite

TASKS = [
    Task("n", "q", "f", "", "18", "numeric"),
    Task("e", "q", "f", "", "Ada", "exact"),
    Task("c", "q", "f", "", "B", "choice", {"choices": ["one", "two"]}),
    next(task for task in load_suite("rehearsal", limit=30).tasks if task.extra["kind"] == "number"),
]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.grader)
@given(text=st.text(max_size=300))
def test_any_text_gets_a_mark_and_a_sentence(task: Task, text: str) -> None:
    graded = grade(task, text)
    assert graded.score in (0, 1)
    assert graded.reason.endswith(".")


@settings(max_examples=25, deadline=None)
@given(st.text(alphabet="\\{}$^_ 0123456789xy+-*/=()[],.frac sqrtboxed", max_size=40))
def test_any_formula_gets_a_mark_and_a_sentence(formula: str) -> None:
    graded = grade(Task("m", "q", "f", "", r"\frac{1}{2}", "math"), f"\\boxed{{{formula}}}")
    assert graded.score in (0, 1)
    assert graded.reason.endswith(".")


LONG = 100_000
ENDLESS = (
    "answer is " * (LONG // 10),
    "the answer: option " * (LONG // 19),
    "\\boxed{" * (LONG // 7),
    "answer is \\text{" * (LONG // 16),
    "\\(" * (LONG // 2),
    "**" * (LONG // 2),
    "1" * LONG,
    "A\n" * (LONG // 2),
    "answer is " + "A or " * (LONG // 5),
    "```\n" * (LONG // 4),
    "the answer is" + " " * LONG + "!",
    "the answer is " + "_" * LONG + " because",
    "**answer" + "\n" * LONG + "!",
    "**Answer:" + " " * LONG + "!",
    "A" + "*" * LONG + "!",
    "the answer is A, " + "*" * LONG + "!",
    "(A) or " * (LONG // 7) + "so it is open",
    "\n" * LONG + "###",
    "```" + " " * LONG + "`",
    "~" * LONG + "`",
)


RUNS = (
    " ", "\n", "*", "_", "`", "~", "#", "-", ".", "(", "{", "$", "\\", "\t\n", "A ", "(A) or ", "**A", "1,", "1 000 ",
)  # fmt: skip
STARTS = (
    "", "The answer", "The answer is", "Final", "I choose", "Thus", "A", "A,", "A is", "**", "**Answer", "**Answer:",
    "- ", "```", "~~~", "\\boxed", "\\text", "\\frac", "Option", "5 or", "#### 1",
)  # fmt: skip


@pytest.mark.timeout(60)
@settings(deadline=None, max_examples=25)
@given(st.sampled_from(STARTS), st.sampled_from(RUNS), st.sampled_from(["", "!", "x", "`", "}", "#"]))
def test_no_run_of_characters_does_either(start: str, run: str, end: str) -> None:
    text = start + run * (LONG // len(run) - len(start)) + end
    extract_code(text, None)
    for task in TASKS:
        grade(task, text)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("text", ENDLESS, ids=range(len(ENDLESS)))
def test_no_text_keeps_a_grader_for_minutes(text: str) -> None:
    for task in (*TASKS, Task("m", "q", "f", "", "2x", "math")):
        assert grade(task, text).score == 0


def test_rehearsal_answers_are_read_by_the_rehearsal_world() -> None:
    for task in load_suite("rehearsal", limit=30).tasks:
        answer = (
            f"```python\n{task.reference}\n```" if task.extra["kind"] == "code" else f"**Answer: {task.reference}**"
        )
        assert grade(task, answer).right
        assert not grade(task, "**Answer: nothing of the kind**").right


@pytest.mark.parametrize(
    ("task", "why"),
    [
        (Task("t", "q", "f", "", "many", "numeric"), "t: the reference"),
        (Task("t", "q", "f", "", " ", "exact"), "t: the reference is empty"),
        (Task("t", "q", "f", "", " ", "math"), "t: the reference is empty"),
        (Task("t", "q", "f", "", "B", "choice"), "t: "),
        (Task("t", "q", "f", "", "", "code"), "t: "),
    ],
    ids=lambda value: value.grader if isinstance(value, Task) else "",
)
def test_a_task_of_which_no_answer_can_be_graded_is_refused_before_anyone_is_asked(task: Task, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        require_gradable(task)


def test_a_task_that_can_be_graded_is_taken() -> None:
    for task in TASKS:
        require_gradable(task)
