"""What a blame asks, of which steps, and what that takes: all of it before anything is called."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_core.blame.experiments import Change, Experiments, Replay, blamed_run, seed_of
from conductor_core.blame.report import change_words, notes
from conductor_core.errors import BadInput
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import Limits
from conductor_core.workflow.model import Workflow
from conductor_core.workflow.topology import descendants
from tests.support.fakes import ScriptedWorker, run, workflow_of
from tests.support.workflows import AGENTS, workflows

# 0 and 1 are read by 2; 3 reads 2 and not 0 or 1; nobody reads 4, and 5 answers.
PLAN = workflow_of(
    ("a", "one {question}", ()),
    ("b", "two {question}", ()),
    ("a", "join {question}", (0, 1)),
    ("b", "check {question}", (2,)),
    ("a", "aside {question}", ()),
    ("c", "answer {question}", (3,)),
)
LIMITS = Limits(max_steps=8)


async def recorded(plan: Workflow) -> RunTrace:
    trace, _ = await run(*map(ScriptedWorker, AGENTS), workflow=plan, task="The task?", limits=LIMITS)
    return trace


def keys(experiments: Experiments) -> list[str]:
    return [each.change.key for each in experiments.experiments]


async def test_each_step_and_each_access_that_can_reach_the_answer_is_an_experiment() -> None:
    found = Experiments(await recorded(PLAN))
    assert keys(found) == [
        "step 0",
        "step 1", "granted 0-1",
        "step 2", "cut 0-2", "cut 1-2",
        "step 3", "granted 0-3", "granted 1-3", "cut 2-3",
        "step 5", "granted 0-5", "granted 1-5", "granted 2-5", "cut 3-5", "granted 4-5",
    ]  # fmt: skip
    assert found.out_of_reach == (4,)
    assert notes(found) == ("Step 4 cannot reach the answer: nothing of it is measured.",)
    assert keys(Experiments(found.source, "steps")) == ["step 0", "step 1", "step 2", "step 3", "step 5"]
    assert not any(key.startswith("step") for key in keys(Experiments(found.source, "access")))


async def test_the_arm_without_a_change_asks_the_same_steps_but_the_one_that_changed() -> None:
    found = {each.change.key: each for each in Experiments(await recorded(PLAN)).experiments}
    assert found["step 2"].with_it.fresh == (2, 3, 5)
    assert found["step 2"].without.fresh == (3, 5)
    assert found["step 2"].without == found["step 3"].with_it, "an arm that two experiments share is replayed once"
    assert found["step 5"].without.fresh == (), "nothing lies below, so the answer is the recorded one"
    assert found["cut 0-2"].with_it.fresh == found["cut 0-2"].without.fresh == (2, 3, 5)
    assert found["cut 0-2"].with_it.workflow(PLAN).reads(2) == (1,)
    assert found["granted 0-3"].with_it.workflow(PLAN).reads(3) == (0, 2)


@settings(max_examples=40)
@given(plan=workflows(), count=st.integers(1, 3), number=st.integers(0, 5))
async def test_a_replay_asks_what_its_arm_names_and_nothing_above(plan: Workflow, count: int, number: int) -> None:
    found = Experiments(await recorded(plan))
    replays = list(found.replays(count))
    assert len({replay.key for replay in replays}) == len(replays) == count * len(found.arms)
    assert found.estimate(replays).calls == sum(len(replay.arm.fresh) for replay in replays)
    for each in found.experiments:
        step, last = each.change.step, len(plan.steps) - 1
        reaching = {index for index in descendants(plan, step) if index == last or last in descendants(plan, index)}
        assert set(each.with_it.fresh) == {step, *reaching}
        request = found.request(Replay(arm=each.with_it, number=number), door="cli")
        assert {seed.step: seed.seed for seed in request.overrides.seeds} == {
            index: seed_of(found.source, number, index) for index in each.with_it.fresh
        }
        assert (request.parent_run_id, request.purpose, request.gates) == (found.source.run_id, "blame", ())


async def test_replays_of_one_number_stand_together_so_that_who_stops_has_whole_pairs() -> None:
    found = Experiments(await recorded(PLAN))
    numbers = [replay.number for replay in found.replays(3)]
    assert numbers == sorted(numbers)
    assert len({seed_of(found.source, number, 2) for number in range(50)}) == 50


async def test_tokens_and_cost_are_those_of_the_run_and_of_what_is_granted() -> None:
    found = Experiments(await recorded(PLAN))
    by_key = {each.change.key: each for each in found.experiments}

    def of(key: str) -> int:
        return found.estimate([Replay(arm=by_key[key].with_it, number=0)]).tokens

    took = {step.index: step.usage.total_tokens for step in found.source.steps}
    assert of("step 3") == took[3] + took[5]
    assert of("granted 0-3") > of("step 3")
    assert found.estimate([Replay(arm=by_key["step 3"].with_it, number=0)]).usd == pytest.approx(2 * 6e-5)


async def test_a_step_without_a_whole_answer_is_asked_in_every_replay() -> None:
    cut = ScriptedWorker("b").then("two", "")
    trace, _ = await run(ScriptedWorker("a"), cut, ScriptedWorker("c"), workflow=PLAN, task="The task?", limits=LIMITS)
    found = Experiments(trace)
    assert trace.steps[3].status == "empty"
    assert found.unsound == (3, 5)
    assert all({3, 5} <= set(arm.fresh) for arm in found.arms)
    assert "re-runs them" in notes(found)[1]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"status": "failed"}, "it is failed"),
        ({"gates": ("x",)}, "it has gates"),
        ({"answer": None}, "only the answer"),
    ],
)
async def test_what_cannot_be_blamed_says_why(changed: dict[str, object], said: str) -> None:
    trace = await recorded(PLAN)
    with pytest.raises(BadInput, match=f"run {trace.run_id} cannot be blamed: .*{said}"):
        Experiments(trace.model_copy(update=changed))


def test_changes_and_batches_have_names() -> None:
    assert change_words(Change(kind="fresh", step=2), PLAN) == "step 2 (a) re-run"
    assert change_words(Change(kind="cut", step=2, source=0), PLAN) == "step 2 does not see step 0"
    assert change_words(Change(kind="granted", step=3, source=1), PLAN) == "step 3 sees step 1"
    assert blamed_run("blame of run 1234: The task: what?") == "1234"
    assert blamed_run("tasks.jsonl") is None
