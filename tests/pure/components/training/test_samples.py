import base64
import re
from pathlib import Path

import pytest

from conductor_core.lab.records.training import Sample, Stage, TrainingRecord
from pages.components.training.samples import graph_html, groups, read_sample, sample_html
from tests.support.records import AGENTS, EARLY, LATE, training_rows


def sample(
    completion: str,
    *,
    stage: Stage = "grpo",
    iteration: int = 1,
    task: str = "t",
    agents: tuple[str | None, ...] = (),
    reward: float = 0.5,
) -> Sample:
    return Sample(
        stage=stage,
        iteration=iteration,
        task=task,
        family="code",
        difficulty="easy",
        completion=completion,
        reward=reward,
        agents=agents,
    )


def shown(completion: str, *, stage: Stage = "grpo", reward: float = 0.5) -> str:
    made = sample(completion, stage=stage, reward=reward)
    return sample_html(made, read_sample(made, AGENTS, most=5), AGENTS, dark=False)


def test_a_workflow_is_shown_as_steps_with_agent_instruction_and_access() -> None:
    html = shown(LATE[0])
    for said in (
        "✓ tree",
        "<b>planner</b>",
        "sees nothing",
        "sees all (0, 1, 2)",
        "Reason it out independently",
        "the task",
    ):
        assert said in html


def test_what_is_no_workflow_says_what_is_wrong() -> None:
    html = shown(EARLY[2])
    assert "✕ no valid plan" in html
    assert "<li>" in html


def test_ordinals_are_those_of_the_sample_where_it_has_its_own() -> None:
    made = sample("model_id = [1]\nsubtasks = ['a']\naccess_list = [[]]", agents=(None, "second"))
    checked = read_sample(made, AGENTS)
    assert checked.workflow is not None
    assert checked.workflow.steps[0].agent == "second"
    empty = sample("model_id = [0]\nsubtasks = ['a']\naccess_list = [[]]", agents=(None, "second"))
    assert read_sample(empty, AGENTS).workflow is None


def test_the_ordinal_after_the_last_agent_is_the_conductor_itself() -> None:
    assert "<b>conductor</b>" in shown("model_id = [7]\nsubtasks = ['again']\naccess_list = [[]]")


def test_an_empty_plan_is_the_end_of_a_recursion() -> None:
    assert "ends a recursion" in shown("model_id = []\nsubtasks = []\naccess_list = []")


AGAIN = "model_id = [1, 7]\nsubtasks = ['a', 'again']\naccess_list = [[], [0]]"


@pytest.mark.parametrize(
    ("completion", "stage", "why"),
    [
        (AGAIN, "grpo", "recursion is off"),
        ("model_id = []\nsubtasks = []\naccess_list = []", "recursion", "The workflow has no steps."),
        (
            f"model_id = {[1] * 6}\nsubtasks = {['a'] * 6}\naccess_list = {[[]] * 6}",
            "grpo",
            "6 steps; at most 5 are allowed",
        ),
        (AGAIN, "recursion", "Its prompt allowed fewer steps, or did not offer the Conductor itself"),
    ],
)
def test_what_training_rejected_is_no_valid_plan_and_says_why(completion: str, stage: Stage, why: str) -> None:
    html = shown(completion, stage=stage, reward=0.0)
    assert "✕ no valid plan" in html
    assert why in html
    assert "✓" in shown(completion, stage=stage), "the same, as training took it for valid"


def test_a_plan_whose_cost_eats_up_its_reward_is_a_valid_one() -> None:
    made = sample(LATE[0], reward=0.0).model_copy(update={"chance": 0.1})
    assert "✓ tree" in sample_html(made, read_sample(made, AGENTS), AGENTS, dark=False)


def test_instructions_are_data() -> None:
    html = shown("model_id = [1]\nsubtasks = ['<img src=x onerror=alert(1)>']\naccess_list = [[]]")
    assert "&lt;img src=x" in html
    assert "<img src=x" not in html


def test_the_graph_names_every_step_and_every_edge_once() -> None:
    checked = read_sample(sample(LATE[0]), AGENTS)
    assert checked.workflow is not None
    html = graph_html(checked.workflow, AGENTS, dark=True)
    assert "step 3 by verifier sees 0, 1, 2" in html
    found = re.search(r"base64,([^\"]+)", html)
    assert found is not None
    svg = base64.b64decode(found[1]).decode()
    assert svg.count("<circle") == 4
    assert svg.count('fill="none"') == 4


def test_the_line_of_thought_is_shown_and_is_data() -> None:
    assert "“plan, two ways, a check”" in shown(LATE[0])
    assert "“&lt;b&gt;" in shown(f"<b>\n{LATE[2]}")
    assert "“" not in shown(LATE[2].partition("\n")[2])


def test_workflows_for_one_task_stand_together_early_to_late() -> None:
    record = TrainingRecord(Path("r"), tuple(training_rows(1, cold_start=0, grpo=60, recursion=0)))
    found = groups(record)
    assert len(found) == 3
    assert all(group.same_task for group in found)
    assert all([each.iteration for each in group.samples] == [1, 21, 41, 60] for group in found)


def test_where_no_task_came_twice_those_of_a_kind_stand_together() -> None:
    rows = (sample("b", iteration=9, task="two"), sample("a", iteration=2, task="one"))
    (group,) = groups(TrainingRecord(Path("r"), rows))
    assert group.label == "easy · code"
    assert not group.same_task
    assert [each.task for each in group.samples] == ["one", "two"]


def test_a_task_that_came_once_is_left_out_where_others_came_again() -> None:
    rows = (*(sample("a", iteration=each, task="again") for each in (0, 20)), sample("b", iteration=10, task="once"))
    (group,) = groups(TrainingRecord(Path("r"), rows))
    assert [each.task for each in group.samples] == ["again", "again"]


def test_what_changed_most_comes_first() -> None:
    rewards = {"same": (0.9, 0.9), "worse": (0.9, 0.4), "better": (0.6, 0.9)}
    rows = [
        sample("a", iteration=when, task=task).model_copy(update={"reward": both[at]})
        for at, when in enumerate((0, 20))
        for task, both in rewards.items()
    ]
    assert [group.samples[0].task for group in groups(TrainingRecord(Path("r"), tuple(rows)))] == [
        "worse",
        "better",
        "same",
    ]


def test_without_samples_there_is_nothing_to_read() -> None:
    assert groups(TrainingRecord(Path("r"), ())) == []
