from pathlib import Path

import pytest

from conductor_core.chat.messages import WorkerSpec
from conductor_core.errors import BadInput
from conductor_core.grading.tasks import Task
from conductor_core.lab.training.config import GrpoConfig, Optimiser, PoolDraw, RecursionConfig, TaskSource, read_config
from conductor_core.lab.training.scale import draw_prompts, find_parents, left_out, load_tasks
from conductor_core.lab.training.worker_reward import AnswerCache, RolloutOutcome

WORKERS = tuple(WorkerSpec(name=f"w{n}", provider="openai", model="m", description=f"good at {n}") for n in range(7))
TASKS = tuple(Task(f"t/{n}", f"Question {n}?", "family", "easy", "1", "numeric") for n in range(5))


def config(kind: type[GrpoConfig] = GrpoConfig, **fields: object) -> GrpoConfig:
    known = {
        "iterations": 5,
        "prompts": 4,
        "group": 2,
        "max_completion_tokens": 16,
        "optimiser": Optimiser(learning_rate=1e-6),
    }
    return kind.model_validate(known | fields)


def test_every_task_is_asked_before_any_is_asked_again() -> None:
    asked = draw_prompts(config(), TASKS, WORKERS, 0)
    assert len(asked) == 20
    assert [each.task for each in asked[:5]] == list(TASKS)
    assert [each.task for each in asked[5:10]] == list(TASKS)


def test_the_prompt_is_the_full_one_with_workers_by_ordinal() -> None:
    system, user = draw_prompts(config(), TASKS, WORKERS, 0)[0].messages
    assert "Model 6: good at 6" in system.content
    assert "w6" not in system.content
    assert user.content == "Task: Question 0?"


def test_pools_are_drawn_by_seed_and_keep_their_order() -> None:
    some = config(pool=PoolDraw(whole_share=0.3, least=2))
    drawn = [each.agents for each in draw_prompts(some, TASKS, WORKERS, 1)]
    assert drawn == [each.agents for each in draw_prompts(some, TASKS, WORKERS, 1)]
    assert drawn != [each.agents for each in draw_prompts(some, TASKS, WORKERS, 2)]
    sizes = {len(agents) for agents in drawn}
    assert 7 in sizes
    assert min(sizes) >= 2
    assert len(sizes) > 2
    assert all(list(agents) == sorted(agents) for agents in drawn)


def test_inner_rounds_plan_on_from_right_and_wrong_answers_alike(tmp_path: Path) -> None:
    cache = AnswerCache(tmp_path / "answers.sqlite3")
    for n, (score, answer) in enumerate([(1.0, "1"), (0.0, "2"), (0.0, "3"), (0.0, "4"), (1.0, None)]):
        cache.keep_outcome(f"d{n}", RolloutOutcome("t/0", "run", f"plan {n}", answer, score, "reason"))
    cache.keep_outcome("other", RolloutOutcome("t/3", "run", "plan", "5", 0.0, "reason"))
    parents = find_parents(cache, TASKS)
    cache.close()
    assert {task: [each.last_response for each in of] for task, of in parents.items()} == {
        "t/0": ["1", "2"],
        "t/3": ["5"],
    }
    inner = draw_prompts(config(RecursionConfig), TASKS, WORKERS, 0, parents=parents)
    assert {each.task.task_id for each in inner} == {"t/0", "t/3"}
    assert all(each.request.parent and len(each.agents) == 7 for each in inner)
    both = draw_prompts(config(RecursionConfig, inner_share=0.5), TASKS, WORKERS, 0, parents=parents, may_recurse=True)
    assert {each.request.allow_recursion for each in both} == {True, False}
    assert all(each.request.allow_recursion != bool(each.request.parent) for each in both)


def test_a_recursion_stage_without_anything_to_plan_on_from_says_so() -> None:
    with pytest.raises(BadInput, match="run a grpo stage in the same folder first"):
        draw_prompts(config(RecursionConfig), TASKS, WORKERS, 0)


def test_what_a_recursion_stage_leaves_out_is_said() -> None:
    written = read_config("qwen2.5-7b-recursion")
    assert written.scale is not None
    assert written.recursion is not None
    assert "inner rounds only, despite inner_share = 0.6" in (left_out(written) or "")
    workers = written.scale.workers.model_copy(update={"inner_conductor": "tiny"})
    scale = written.scale.model_copy(update={"workers": workers})
    assert left_out(written.model_copy(update={"scale": scale})) is None
    inner_only = written.recursion.model_copy(update={"inner_share": 1.0})
    assert left_out(written.model_copy(update={"recursion": inner_only})) is None
    assert left_out(read_config("qwen2.5-7b-grpo")) is None


def test_tasks_of_several_suites_are_shuffled_together_by_seed(tmp_path: Path) -> None:
    train = TaskSource(suite="rehearsal", count=6)
    test = TaskSource(suite="rehearsal", split="test", count=6)
    ids = [task.task_id for task in load_tasks((train, test), 0)]
    assert len(set(ids)) == 12
    assert ids == [task.task_id for task in load_tasks((train, test), 0)]
    assert ids != sorted(ids)
    with pytest.raises(BadInput, match="same ids"):
        load_tasks((train, train), 0)
