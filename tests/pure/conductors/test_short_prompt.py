import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.chat.messages import ParentPlan, PlanRequest, WorkerSpec
from conductor_core.conductors.prompts import MARKERS, short_prompt


def worker(name: str = "alpha", description: str = "") -> WorkerSpec:
    return WorkerSpec(name=name, provider="rehearsal", model="m", description=description)


def test_the_exact_form() -> None:
    request = PlanRequest(
        task="  What is\n\n17 * 24?  ", agents=(worker(description="writes Python"), worker("beta")), max_steps=3
    )
    assert short_prompt(request) == ("<|task|>\nWhat is 17 * 24?\n<|pool|>\n1 reason\n3 code\n<|max|>3\n<|plan|>\n")


def test_the_form_of_a_recursion() -> None:
    parent = ParentPlan(plan='model_id = [0]\nsubtasks = ["x"]', last_response="408")
    request = PlanRequest(task="t", agents=(worker(),), allow_recursion=True, parent=parent)
    assert short_prompt(request) == (
        "<|task|>\nt\n<|pool|>\n1 reason\n7 conductor\n<|max|>5\n"
        '<|parent|>\nmodel_id = [0] subtasks = ["x"]\n408\n<|plan|>\n'
    )


def test_long_texts_keep_beginning_and_end() -> None:
    request = PlanRequest(task=" ".join(map(str, range(1000))), agents=(worker(),))
    task = short_prompt(request).splitlines()[1]
    assert task.startswith("0 1 2 3 4 ")
    assert task.endswith(" 997 998 999")
    assert " ... " in task
    assert 590 < len(task) <= 605


@pytest.mark.parametrize("task", ["🚀🙂" * 30, "word salad and " * 4000 + "what?", "7" * 3000, "ab" * 99])
def test_of_what_stands_there_over_and_over_a_little_is_kept(task: str) -> None:
    said = short_prompt(PlanRequest(task=task, agents=(worker(),))).splitlines()[1]
    assert 2 < len(said) < 150
    assert said[:2] == task[:2]
    assert said[-5:] == task[-5:]


@pytest.mark.parametrize("task", ["Is 1000000 more than 9999?", "row row row your boat", "ha ha ha"])
def test_an_ordinary_repetition_is_left_alone(task: str) -> None:
    assert short_prompt(PlanRequest(task=task, agents=(worker(),))).splitlines()[1] == task


HOSTILE = st.lists(st.sampled_from([*MARKERS, "<|", "|>", "<", "|", "\n", " ", "<|im_end|>", "x"])).map("".join)


@given(task=HOSTILE | st.text(), description=HOSTILE | st.text(), said=HOSTILE)
def test_text_from_outside_adds_neither_line_nor_marker(task: str, description: str, said: str) -> None:
    parent = ParentPlan(plan=said, last_response=said)
    prompt = short_prompt(PlanRequest(task=task, agents=(worker(description=description),), parent=parent))
    assert prompt.count("<|") == len(MARKERS)
    assert all(prompt.count(marker) == 1 for marker in MARKERS)
    assert prompt.count("\n") == 9
