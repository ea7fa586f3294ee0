"""The corpus: every plan is legal for its pool and limit, carries the task, and comes again by its seed."""

import functools
import itertools
import random
import re
import tomllib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_core.conductors.roles import ROLES, numbering
from conductor_core.lab.training.corpus import plans
from conductor_core.lab.training.corpus.plans import TrainingExample, draw_example, draw_plan, draw_repair, examples
from conductor_core.lab.training.corpus.tasks import (
    NAMED_BY_TOPIC,
    draw_task,
    rehearsal_task,
    typed_requests,
    typed_task,
)
from conductor_core.lab.training.corpus.wording import table
from conductor_core.rehearsal import DIFFICULTIES, FAMILIES, generate
from conductor_core.rehearsal.exact import success_chance
from conductor_core.rehearsal.families import Difficulty, RehearsalTask
from conductor_core.workflow.model import QUESTION, Workflow
from conductor_core.workflow.parser import parse_completion
from conductor_core.workflow.topology import topology
from conductor_core.workflow.validation import validate

EVERYDAY = Path(__file__).parents[5] / "benchmarks" / "everyday_requests.toml"


def _workflow(example: TrainingExample) -> Workflow:
    """The example's completion as the app reads it; fails on any fault, repair or warning."""
    parsed = parse_completion(example.completion)
    assert parsed.repairs == ()
    if example.request.parent is not None and parsed.is_stop:
        return Workflow(steps=())
    checked = validate(
        parsed,
        numbering(example.request.agents),
        max_steps=example.request.max_steps,
        allow_recursion=example.request.allow_recursion,
    )
    assert checked.workflow is not None, checked.faults
    assert checked.warnings == ()
    return checked.workflow


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**63))
def test_every_plan_is_legal_and_every_step_has_the_task(seed: int) -> None:
    example = draw_example(random.Random(seed))
    workflow = _workflow(example)
    holds = [QUESTION in step.instruction for step in workflow.steps]
    for index, step in enumerate(workflow.steps):
        assert holds[index] or any(holds[earlier] for earlier in workflow.reads(index))
        assert not any(mark in step.instruction for mark in '[]<>|\\"\n')
        assert step.instruction[0].isupper()


def test_one_seed_makes_the_same_examples_and_another_makes_others() -> None:
    first, again, other = (list(itertools.islice(examples(seed), 40)) for seed in (7, 7, 8))
    assert first == again
    assert first != other


def test_plans_are_of_many_shapes_and_the_harder_the_longer() -> None:
    drawn = [example for example in itertools.islice(examples(1), 800) if example.request.max_steps >= 5]
    shapes = {topology(_workflow(example)) for example in drawn}
    assert shapes >= {"stop", "one shot", "chain", "fan-out", "tree", "debate"}
    lengths = {
        difficulty: [len(each.plan.steps) for each in drawn if each.task.difficulty == difficulty]
        for difficulty in ("easy", "medium", "hard")
    }
    means = [sum(lengths[difficulty]) / len(lengths[difficulty]) for difficulty in ("easy", "medium", "hard")]
    assert means == sorted(means)
    assert means[0] < 2 < means[2]


def test_the_conductor_is_named_only_where_it_is_offered_and_reads_an_answer() -> None:
    named = 0
    for example in itertools.islice(examples(2), 800):
        for step in example.plan.steps:
            if step.ordinal == len(ROLES):
                named += 1
                assert example.request.allow_recursion
                assert step.access_list
    assert named > 10


def test_a_settled_parent_is_ended_with_three_empty_lists_and_a_doubtful_one_is_not() -> None:
    inner = [example for example in itertools.islice(examples(3), 800) if example.request.parent is not None]
    stops = [example for example in inner if not example.plan.steps]
    assert 0.3 < len(stops) / len(inner) < 0.7
    assert all(example.completion.endswith("model_id = []\nsubtasks = []\naccess_list = []") for example in stops)
    responses = [example.request.parent.last_response for example in stops if example.request.parent is not None]
    assert not any("not sure" in response or "Error" in response for response in responses)


@functools.cache
def _some() -> tuple[TrainingExample, ...]:
    return tuple(itertools.islice(examples(4), 500))


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5])
def test_the_step_limit_is_kept(limit: int) -> None:
    drawn = [example for example in _some() if example.request.max_steps == limit]
    assert drawn
    assert max(len(example.plan.steps) for example in drawn) == limit


def test_tasks_are_varied() -> None:
    rng = random.Random(0)
    tasks = [draw_task(rng) for _ in range(1000)]
    assert len({task.text for task in tasks}) > 900
    assert len({task.kind for task in tasks}) >= 20


def test_of_many_plans_the_one_of_highest_reward_is_taken_and_of_one_none_is_preferred() -> None:
    def worth(best_of: int) -> float:
        drawn = [each for each in itertools.islice(examples(6, best_of), 400) if each.task.rehearsal is not None]
        chances = [success_chance(each.task.rehearsal, each.plan.workflow()) for each in drawn if each.task.rehearsal]
        return sum(chances) / len(chances)

    assert worth(12) > worth(1) + 0.1


@pytest.mark.parametrize("best_of", [1, 2])
def test_where_no_plan_is_preferred_none_is_weighed_in_first_rounds_and_inner_ones(
    best_of: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two plans all kinds of examples are weighed: so it would be seen with one."""
    weighed: list[Workflow] = []

    def chance(task: RehearsalTask, workflow: Workflow) -> float:
        weighed.append(workflow)
        return 0.5

    monkeypatch.setattr(plans, "success_chance", chance)
    by_kind: dict[str, list[bool]] = {"first round": [], "stop": [], "repair": []}
    for example in itertools.islice(examples(9, best_of), 1000):
        if example.task.rehearsal is not None:
            inner = "repair" if example.plan.steps else "stop"
            by_kind["first round" if example.request.parent is None else inner].append(bool(weighed))
        weighed.clear()
    assert all(len(found) >= 5 for found in by_kind.values())
    assert all(set(found) == {best_of > 1} for found in by_kind.values())


@pytest.mark.parametrize("draw", [draw_plan, draw_repair])
def test_where_no_plan_is_preferred_anybody_is_asked(draw: Callable[..., plans.Plan]) -> None:
    task = rehearsal_task(generate("algebra", "hard", 3))
    drawn = [draw(task, range(len(ROLES)), 5, random.Random(at), best_of=1) for at in range(200)]
    asked = Counter(plan.steps[0].ordinal for plan in drawn)
    assert set(asked) == set(range(len(ROLES)))
    assert max(asked.values()) < 3 * min(asked.values())


@pytest.mark.parametrize("family", FAMILIES)
def test_one_step_where_one_is_enough(family: str) -> None:
    def steps(difficulty: Difficulty) -> list[int]:
        tasks = [rehearsal_task(generate(family, difficulty, seed)) for seed in range(12)]
        return [len(draw_plan(task, range(len(ROLES)), 5, random.Random(at)).steps) for at, task in enumerate(tasks)]

    assert steps("easy").count(1) >= 10
    assert steps("medium").count(1) <= 2


@pytest.mark.parametrize(("way", "steps"), [("opinions", 4), ("verified", 4), ("staged", 3), ("brief", 1)])
@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_a_wish_how_to_work_is_followed_whatever_it_is_worth(way: str, steps: int, difficulty: Difficulty) -> None:
    task = replace(rehearsal_task(generate("arithmetic", difficulty, 3)), way=way)
    plan = draw_plan(task, range(len(ROLES)), 5, random.Random(1))
    assert len(plan.steps) == steps


def test_none_of_the_typed_requests_is_nearly_one_that_is_measured() -> None:
    measured = tomllib.loads(EVERYDAY.read_text(encoding="utf-8"))
    asked = [_words(text) for of_kind in measured.values() for text in of_kind["requests"]]
    typed = [_words(each.text) for each in typed_requests()]
    assert len(asked) == 175
    assert len(typed) == len({each.text.lower() for each in typed_requests()}) > 4000
    assert max(len(one & other) / len(one | other) for one in asked for other in typed) < 0.5


@pytest.mark.parametrize("max_steps", [1, 2, 5])
def test_every_typed_request_has_a_plan_of_its_kind(max_steps: int) -> None:
    by_kind = table("plans")
    for each in typed_requests():
        task = typed_task(each)
        assert task.kind in by_kind["fan"] if task.parts else task.kind in by_kind
        assert (task.kind in NAMED_BY_TOPIC) == (each.topic in table("topics"))
        assert 1 <= len(draw_plan(task, range(len(ROLES)), max_steps, random.Random(1)).steps) <= max_steps


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))
