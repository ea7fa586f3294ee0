import pytest

from conductor_core.workflow.model import CONDUCTOR_AGENT, Step, Workflow
from conductor_core.workflow.parser import parse_completion, to_json, to_lists

WORKFLOW = Workflow(
    steps=(
        Step(instruction='Say "é".', agent="a"),
        Step(instruction="It's\nlong", agent=CONDUCTOR_AGENT, access_list=(0,)),
        Step(instruction="Answer {question}", agent="elsewhere", access_list="all"),
    )
)


def test_lists_as_in_the_paper() -> None:
    assert to_lists(WORKFLOW, ["b", "a"]) == (
        'model_id = [1, 2, "elsewhere"]\n'
        'subtasks = ["Say \\"é\\".", "It\'s\\nlong", "Answer {question}"]\n'
        'access_list = [[], [0], "all"]\n'
    )
    assert to_lists(Workflow(steps=()), ["a"]) == "model_id = []\nsubtasks = []\naccess_list = []\n"


def test_json_as_in_the_contract() -> None:
    assert to_json(Workflow(steps=WORKFLOW.steps[1:2]), "Why?") == (
        '{\n  "task": "Why?",\n  "steps": [\n    {\n      "instruction": "It\'s\\nlong",\n'
        '      "agent": "conductor",\n      "access_list": [\n        0\n      ]\n    }\n  ]\n}\n'
    )
    assert "task" not in to_json(WORKFLOW)


@pytest.mark.parametrize(
    "text", ["\times", "\right", "\n" + "eq", "\n" + "abla", "\b" + "eta", "\f" + "rac", "\\times", "\\\\neq"]
)
def test_control_characters_are_not_mistaken_for_latex(text: str) -> None:
    workflow = Workflow(steps=(Step(instruction=text, agent="a"),))
    parsed = parse_completion(to_lists(workflow, ["a"]))
    assert parsed.steps is not None
    assert (parsed.steps[0].instruction, parsed.repairs) == (text, ())
