"""A plan that a person pastes or drops: every form is read, and what is wrong is named with its place."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.errors import BadInput
from conductor_core.workflow.model import Step, Workflow
from conductor_core.workflow.parser import to_json, to_lists
from pages.components.run.pasted_plan import MOST_MIB, given_plan, text_of

AGENTS = ["planner", "coder"]
PLAN = Workflow(
    steps=(
        Step(instruction="Plan {question}", agent="planner"),
        Step(instruction="Code {question}", agent="coder", access_list=(0,)),
        Step(instruction="Judge {question}", agent="planner", access_list="all"),
    )
)
PROOF_OF_CONCEPT = json.dumps(
    {
        "task": "t",
        "steps": [
            {
                "step": index,
                "instruction": step.instruction,
                "assigned_agent": step.agent,
                "access_list": step.access_list,
                "result": "",
            }
            for index, step in enumerate(PLAN.steps)
        ],
    }
)


@pytest.mark.parametrize(
    "text", [to_lists(PLAN, AGENTS), to_json(PLAN, "t"), PROOF_OF_CONCEPT], ids=["lists", "json", "proof of concept"]
)
def test_every_form_is_read(text: str) -> None:
    found = given_plan(text, AGENTS)
    assert (found.workflow, found.faults) == (PLAN, ())


def test_the_task_of_a_file_comes_along() -> None:
    assert given_plan(to_json(PLAN, "How many?"), AGENTS).task == "How many?"


def test_a_text_that_is_no_plan_names_the_fault_and_its_place() -> None:
    found = given_plan('model_id = [0]\nsubtasks = ["x"]\naccess_list = [[]', AGENTS)
    assert found.workflow is None
    assert [(fault.code, fault.line) for fault in found.faults] == [("cut_off", 3)]


def test_a_broken_rule_stays_in_the_plan_for_the_editor_to_show() -> None:
    found = given_plan("model_id = [7]\nsubtasks = ['x']\naccess_list = [[4]]", AGENTS)
    assert found.workflow == Workflow(steps=(Step(instruction="x", agent="7", access_list=(4,)),))


def test_more_steps_than_are_read_are_a_fault() -> None:
    steps = [{"instruction": "x", "agent": "coder", "access_list": []}] * 201
    found = given_plan(json.dumps({"steps": steps}), AGENTS)
    assert found.workflow is None
    assert found.faults[0].code == "too_many_steps"


@given(st.text(max_size=400))
def test_no_text_raises_and_what_cannot_be_read_has_a_fault(text: str) -> None:
    found = given_plan(text, AGENTS)
    assert (found.workflow is None) == bool(found.faults)


def test_a_file_that_is_no_text_is_refused_with_the_place() -> None:
    assert text_of(b"\xef\xbb\xbfplan", "a.json") == "plan"
    with pytest.raises(BadInput, match=r"a\.json: line 2, byte 3: it is not UTF-8 text"):
        text_of(b"one\nab\xff", "a.json")
    with pytest.raises(BadInput, match=f"more than {MOST_MIB} MiB"):
        text_of(b"x" * ((MOST_MIB << 20) + 1), "a.json")
