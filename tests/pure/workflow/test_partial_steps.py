"""Steps appear one by one while the plan is still being written."""

from conductor_core.workflow.parser import parse_completion, partial_steps
from conductor_core.workflow.source import PartialStep

PLAN = (
    "<think>I might say model_id = [3], subtasks = ['draft'].</think>\n"
    "model_id = [0, 2]\nsubtasks = ['Don't guess, plan.', \"Do it.\"]\naccess_list = [[], [0]]\n"
)


def until(end: str) -> tuple[PartialStep, ...]:
    return partial_steps(PLAN[: PLAN.index(end, PLAN.index("</think>")) + len(end)])


def test_nothing_yet() -> None:
    assert partial_steps("") == partial_steps("Let me think about this") == ()


def test_steps_grow_field_by_field() -> None:
    assert until("model_id = [0") == (PartialStep(index=0, agent=0, writing="agent"),)
    assert until("subtasks = ['Don't gu") == (
        PartialStep(index=0, agent=0, instruction="Don't gu", writing="instruction"),
        PartialStep(index=1, agent=2),
    )
    assert until('"Do') == (
        PartialStep(index=0, agent=0, instruction="Don't guess, plan."),
        PartialStep(index=1, agent=2, instruction="Do", writing="instruction"),
    )
    assert until("access_list = [[], [0")[1] == PartialStep(
        index=1, agent=2, instruction="Do it.", access_list=(0,), writing="access_list"
    )


def test_a_finished_plan_is_what_the_parser_reads() -> None:
    steps = parse_completion(PLAN).steps
    assert steps is not None
    assert partial_steps(PLAN) == tuple(
        PartialStep(index=index, agent=step.agent, instruction=step.instruction, access_list=step.access_list)
        for index, step in enumerate(steps)
    )


def test_a_new_attempt_takes_over_as_soon_as_it_has_an_agent() -> None:
    assert len(partial_steps(PLAN + "Better: model_id = [")) == 2
    assert partial_steps(PLAN + "Better: model_id = [4") == (PartialStep(index=0, agent=4, writing="agent"),)


def test_mentioning_a_list_afterwards_changes_nothing() -> None:
    assert partial_steps(PLAN + "Here access_list: [0] means") == partial_steps(PLAN)


def test_half_an_escape_is_not_shown() -> None:
    for cut in ("\\", "\\u", "\\u00e"):
        (step,) = partial_steps(f'model_id = [0]\nsubtasks = ["caf{cut}')
        assert step.instruction == "caf"


def test_steps_as_objects() -> None:
    text = '{"steps": [{"instruction": "Plan.", "agent": 0, "access_list": []}, {"instruction": "Do'
    assert partial_steps(text) == (
        PartialStep(index=0, instruction="Plan.", agent=0, access_list=()),
        PartialStep(index=1, instruction="Do", writing="workflow"),
    )
