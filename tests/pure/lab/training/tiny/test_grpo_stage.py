"""What a GRPO stage hands to its trainer and writes into the record: prompts, rollouts, rewards, held-out rows."""

import random
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import LlamaConfig, LlamaForCausalLM

from conductor_core.chat.messages import PlanRequest
from conductor_core.errors import BadInput
from conductor_core.lab.records.training import HeldOut, Sample, read_record
from conductor_core.lab.training.config import GrpoConfig, HeldOutConfig, Optimiser, PoolDraw
from conductor_core.lab.training.recorder import StageRecord
from conductor_core.lab.training.tiny import grpo
from conductor_core.lab.training.tiny.grpo import Stage
from conductor_core.lab.training.tiny.recursion import recursion_situations, simulate, worth
from conductor_core.lab.training.tiny.rollout import LegalPlans
from conductor_core.lab.training.tiny.situations import (
    Situation,
    Worth,
    draw_situations,
    exact_worth,
    held_out_situations,
    read_plan,
)
from conductor_core.rehearsal import generate, rehearsal_specs
from conductor_core.rehearsal.exact import success_chance
from conductor_core.workflow.model import Workflow
from tests.support.trainings import recursion_config, toy_model, toy_tokenizer

ALONE = 'model_id = [{agent}]\nsubtasks = ["Solve this: {question}"]\naccess_list = [[]]'
CHECKED = (
    'model_id = [{agent}, 4]\nsubtasks = ["Solve this: {question}", "Check it: {question}"]\naccess_list = [[], [0]]'
)
GARBAGE = "no plan at all"


def plan(text: str, agent: int) -> str:
    return text.replace("{agent}", str(agent))


def situation(number: int, difficulty: Any = "easy") -> Situation:
    task = generate("arithmetic", difficulty, number)
    return Situation(PlanRequest(task=task.question, agents=rehearsal_specs()), task)


def config(**changes: Any) -> GrpoConfig:
    settings: dict[str, Any] = {
        "iterations": 4,
        "prompts": 2,
        "group": 2,
        "max_completion_tokens": 64,
        "temperature": 0.7,
        "sample_every": 3,
        "optimiser": Optimiser(learning_rate=1e-3, bf16=False),
        "step_cost": 0.1,
        "pool": PoolDraw(most_steps=4),
        "held_out": HeldOutConfig(tasks=12, every=2, split="test"),
    }
    return GrpoConfig(**(settings | changes))


class FakeTrainer:
    """What a stage reads of its trainer. Attributes: told: how ``train`` was called."""

    def __init__(self, step: int = 0) -> None:
        self.state = SimpleNamespace(global_step=step)
        self.rollout_s, self.guard_loss = 0.0, 0.25
        self._metrics: dict[str, dict[str, list[float]]] = {"train": {}}
        self.model = "wrapped"
        self.accelerator = SimpleNamespace(unwrap_model=lambda model: f"un{model}")
        self.told: list[Any] = []

    def train(self, *, resume_from_checkpoint: str | None) -> None:
        self.told.append(resume_from_checkpoint)


def stage_of(folder: Path, settings: GrpoConfig, situations: Sequence[Situation] | None = None) -> Stage:
    record = StageRecord(folder, "grpo", settings.iterations, lambda _: None)
    stage = Stage(settings, 5, situations or [situation(0), situation(1, "hard")], toy_tokenizer(), record)
    stage.trainer = FakeTrainer()  # type: ignore[assignment]
    return stage


class Sampled:
    """Stands in for the sampling of plans: takes down how it was asked and gives ``plans`` in turn."""

    def __init__(self, plans: Sequence[str]) -> None:
        self.plans, self.asked, self.options = list(plans), [], {}  # type: ignore[var-annotated]
        self.model: Any = None

    def __call__(self, model: Any, ids: list[list[int]], group: int, **options: Any) -> SimpleNamespace:
        self.model, self.options = model, options
        self.asked = [toy_tokenizer().decode(each) for each in ids]
        wanted = [self.plans[at % len(self.plans)] for at in range(len(ids) * group)]
        eos = int(toy_tokenizer().eos_token_id)
        completions = [[*toy_tokenizer().encode(text, add_special_tokens=False), eos] for text in wanted]
        return SimpleNamespace(completion_ids=completions, logprobs=[[-0.5] * len(each) for each in completions])


def samples_in(folder: Path) -> list[Sample]:
    return [row for row in read_record(folder).rows if isinstance(row, Sample)]


def test_rollouts_are_of_each_prompt_once_for_every_completion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sampled = Sampled([plan(ALONE, 2), GARBAGE])
    monkeypatch.setattr(grpo, "sample", sampled)
    stage = stage_of(tmp_path, config())
    first, second = (each.prompt for each in stage.situations)
    given = stage.rollout([first, first, second, second], stage.trainer)
    assert sampled.model == "unwrapped"
    assert sampled.asked == [first, second]
    assert sampled.options == {
        "max_tokens": 64,
        "temperature": 0.7,
        "seed": random.Random("5/grpo/1").getrandbits(63),
        "bf16": False,
        "forbid": None,
    }
    assert [toy_tokenizer().decode(ids) for ids in given["prompt_ids"]] == [first, first, second, second]
    texts = toy_tokenizer().batch_decode(given["completion_ids"], skip_special_tokens=True)
    assert texts == [plan(ALONE, 2), GARBAGE] * 2
    assert [len(each) for each in given["logprobs"]] == [len(each) for each in given["completion_ids"]]


def test_constrained_rollouts_and_measurements_are_held_to_legal_plans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[list[str], int]] = []

    def mask(_self: LegalPlans, situations: Sequence[Situation], group: int) -> str:
        asked.append(([each.prompt for each in situations], group))
        return f"mask of {group}"

    monkeypatch.setattr(LegalPlans, "mask", mask)
    sampled = Sampled([plan(ALONE, 2)])
    monkeypatch.setattr(grpo, "sample", sampled)
    stage = stage_of(tmp_path, config(constrained=True))
    prompts = [each.prompt for each in stage.situations]
    stage.rollout([prompts[0], prompts[0], prompts[1], prompts[1]], stage.trainer)
    assert asked.pop() == (prompts, 2)
    assert sampled.options["forbid"] == "mask of 2"
    stage.measure(0, toy_model())
    held_out = held_out_situations(stage.config.held_out, 4)
    assert asked.pop() == ([each.prompt for each in held_out], 1)
    assert sampled.options["forbid"] == "mask of 1"


def chance(of: Situation, text: str) -> float:
    workflow = read_plan(of, text)
    assert workflow is not None
    return success_chance(of.task, workflow)


def test_rewards_details_and_samples_are_those_of_the_plans(tmp_path: Path) -> None:
    stage = stage_of(tmp_path, config())
    easy, hard = stage.situations
    written = [plan(ALONE, 2), GARBAGE, plan(CHECKED, 1), plan(CHECKED, 1)]
    rewards = stage.reward(written, [0, 0, 1, 1], more="is taken and left alone")
    chances = [chance(easy, written[0]), None, chance(hard, written[2]), chance(hard, written[3])]
    by_hand = [0.5 + 0.5 * each if each is not None else 0.0 for each in chances]
    by_hand[2] -= 0.1
    by_hand[3] -= 0.1
    assert rewards == pytest.approx(by_hand)
    trainer: Any = stage.trainer
    trainer.rollout_s = 2.0
    trainer._metrics["train"] = {
        "entropy": [1.0, 2.0],
        "completions/mean_length": [10.0, 20.0],
        "completions/clipped_ratio": [0.5],
        "empty": [],
    }
    found = stage.details()
    assert found["reward"] == pytest.approx(sum(by_hand) / 4)
    assert found["format_rate"] == 0.75
    assert found["accuracy"] == pytest.approx(sum(each for each in chances if each is not None) / 3)
    assert set(found["accuracy_by_difficulty"]) == {"easy", "hard"}
    assert found["steps"] == pytest.approx(5 / 3)
    told = ("supervised_loss", "entropy", "completion_tokens", "clipped_share", "rollout_s")
    assert [found[name] for name in told] == [0.25, 1.5, 15.0, 0.5, 2.0]
    assert found["update_s"] == 0.0, "less than the rollouts took: no time is below nothing"
    assert found["reward_s"] > 0
    again = stage.details()
    assert "reward" not in again
    assert (again["rollout_s"], again["reward_s"]) == (0.0, 0.0), "each iteration has its own"
    first, second = samples_in(tmp_path)
    assert first == Sample(
        stage="grpo",
        iteration=1,
        task=easy.task.question,
        family="arithmetic",
        difficulty="easy",
        completion=written[0],
        reward=rewards[0],
        chance=chances[0],
        agents=easy.agents,
    )
    assert (second.task, second.completion, second.reward) == (hard.task.question, written[2], rewards[2])


def test_an_iterations_time_is_split_among_rollouts_rewards_and_updates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = SimpleNamespace(s=100.0)

    def judge(_situation: Situation, _workflow: Workflow) -> Worth:
        now.s += 2.0
        return Worth(1.0, 0)

    monkeypatch.setattr(time, "monotonic", lambda: now.s)
    record = StageRecord(tmp_path, "grpo", 4, lambda _: None)
    stage = Stage(config(), 5, [situation(0)], toy_tokenizer(), record, judge)
    trainer: Any = FakeTrainer()
    stage.trainer = trainer
    now.s = 500.0
    stage.begin()
    trainer.rollout_s = 3.0
    stage.reward([plan(ALONE, 2)] * 2, [0, 0])
    now.s = 510.0
    found = stage.details()
    assert [found[name] for name in ("rollout_s", "reward_s", "update_s")] == [3.0, 4.0, 3.0]
    stage.begin()
    trainer.rollout_s, now.s = 4.5, 512.0
    found = stage.details()
    assert [found[name] for name in ("rollout_s", "reward_s", "update_s")] == [1.5, 0.0, 0.5]


def test_plans_are_kept_of_the_first_iteration_and_now_and_then(tmp_path: Path) -> None:
    stage = stage_of(tmp_path, config(prompts=6), [situation(number) for number in range(6)])
    written = [plan(ALONE, at) for at in range(5)] * 3
    for step in range(4):  # iterations 1 to 4
        stage.trainer = FakeTrainer(step)  # type: ignore[assignment]
        stage.reward(written[:12], [at // 2 for at in range(12)])
    kept = samples_in(tmp_path)
    assert [each.iteration for each in kept] == [1] * 4 + [3] * 4, "of four prompts, whatever there are"
    assert [each.completion for each in kept[:4]] == [written[0], written[2], written[4], written[6]]


def test_a_measurement_is_of_greedy_plans_for_the_held_out_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = [plan(ALONE, 2), plan(CHECKED, 1), GARBAGE]
    sampled = Sampled(plans)
    monkeypatch.setattr(grpo, "sample", sampled)
    stage, model = stage_of(tmp_path, config()), toy_model()
    stage.measure(2, model)
    held_out = held_out_situations(HeldOutConfig(tasks=12, every=2, split="test"), 4)
    assert sampled.model is model
    assert sampled.asked == [each.prompt for each in held_out]
    assert sampled.options == {"max_tokens": 64, "temperature": 0, "seed": 0, "bf16": False, "forbid": None}
    texts = [plans[at % 3] for at in range(12)]
    read = [read_plan(each, text) for each, text in zip(held_out, texts, strict=True)]
    chances = [
        success_chance(each.task, workflow) if workflow else 0.0 for each, workflow in zip(held_out, read, strict=True)
    ]
    tokens = [
        sum(reply.tokens for reply in simulate(each.task, workflow, 0)) if workflow else 0
        for each, workflow in zip(held_out, read, strict=True)
    ]
    steps = [len(workflow.steps) if workflow else 0 for workflow in read]

    def by_difficulty(figures: Sequence[float]) -> dict[str, float]:
        levels = [each.task.difficulty for each in held_out]
        return {
            level: sum(value for value, of in zip(figures, levels, strict=True) if of == level) / levels.count(level)
            for level in levels
        }

    (row,) = [row for row in read_record(tmp_path).rows if isinstance(row, HeldOut)]
    assert (row.stage, row.iteration, row.split, row.n) == ("grpo", 2, "test", 12)
    assert row.accuracy == pytest.approx(sum(chances) / 12)
    assert row.steps == pytest.approx(sum(steps) / 12) == pytest.approx(1.0)
    assert row.worker_tokens == pytest.approx(sum(tokens) / 12)
    assert dict(row.accuracy_by_difficulty) == pytest.approx(by_difficulty(chances))
    assert dict(row.steps_by_difficulty) == pytest.approx(by_difficulty(steps))
    kept = samples_in(tmp_path)
    assert [each.task for each in kept] == [held_out[at].task.question for at in (0, 3, 6, 9)]
    assert [each.completion for each in kept] == [texts[at] for at in (0, 3, 6, 9)]
    assert [each.iteration for each in kept] == [2] * 4
    assert kept[0].chance == pytest.approx(chances[0])
    assert kept[0].reward == pytest.approx(0.5 + 0.5 * chances[0])


def test_a_measurement_is_due_before_the_first_iteration_now_and_then_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpo, "sample", Sampled([plan(ALONE, 2)]))
    stage = stage_of(tmp_path, config(iterations=5))
    for iteration in range(6):
        stage.measure(iteration, toy_model())
    measured = [row.iteration for row in read_record(tmp_path).rows if isinstance(row, HeldOut)]
    assert measured == [0, 2, 4, 5]


class Built:
    """Stands in for the making of a trainer: takes down what for, and what was measured before it trains."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stage: Any = None
        self.model: Any = None
        self.trainer = FakeTrainer()
        self.measured: list[Any] = []
        self.taught: list[Any] = []
        monkeypatch.setattr(grpo, "build_trainer", self)
        monkeypatch.setattr(Stage, "measure", lambda _, iteration, model: self.measured.append((iteration, model)))
        monkeypatch.setattr(grpo, "teach", lambda *given: self.taught.append(given))

    def __call__(self, stage: Stage, model: Any) -> FakeTrainer:
        self.stage, self.model = stage, model
        return self.trainer


def test_a_stage_draws_its_prompts_by_its_seed_and_trains_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built, settings, model = Built(monkeypatch), config(iterations=3), toy_model()
    record = StageRecord(tmp_path, "grpo", 3, lambda _: None)
    tokenizer = toy_tokenizer()
    trained = grpo.run(settings, 5, model, tokenizer, record, best_of=7)
    assert trained is model
    assert model.config._attn_implementation == "sdpa"
    stage = built.stage
    assert [each.prompt for each in stage.situations] == [
        each.prompt for each in draw_situations("5/grpo", 6, settings.pool)
    ]
    assert (stage.config, stage.seed, stage.record, stage.best_of) == (settings, 5, record, 7)
    assert stage.tokenizer is tokenizer
    assert stage._judge is exact_worth
    assert built.model is model
    assert built.measured == [(0, model)]
    assert built.trainer.told == [None]
    assert built.taught == []


def test_a_stage_goes_on_from_a_checkpoint_without_a_first_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = Built(monkeypatch)
    at = tmp_path / "checkpoint-3"
    record = StageRecord(tmp_path, "grpo", 4, lambda _: None, cpu=False, checkpoint=at)
    grpo.run(config(), 5, toy_model(), toy_tokenizer(), record)
    assert built.trainer.told == [str(at)]
    assert built.measured == []


@pytest.mark.parametrize("checkpoint", [None, "checkpoint-1"])
def test_the_recursion_stage_is_taught_first_and_judged_with_its_inner_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoint: str | None
) -> None:
    built, settings, model = Built(monkeypatch), recursion_config(8), toy_model()
    at = Path(checkpoint) if checkpoint else None
    record = StageRecord(tmp_path, "recursion", 1, lambda _: None, checkpoint=at)
    tokenizer = toy_tokenizer()
    expected = recursion_situations(settings, "5/recursion", model, tokenizer)
    grpo.run(settings, 5, model, tokenizer, record, best_of=3)
    stage = built.stage
    assert [each.prompt for each in stage.situations] == [each.prompt for each in expected]
    assert stage._judge is worth
    assert (stage.config, stage.seed, stage.record, stage.best_of) == (settings, 5, record, 3)
    assert stage.tokenizer is tokenizer
    taught = [] if checkpoint else [(model, tokenizer, settings, "5/recursion", record)]
    assert built.taught == taught


@pytest.mark.parametrize(("bf16", "cpu", "wanted"), [(True, True, 1), (True, False, 0), (False, True, 0)])
def test_lessons_of_bfloat16_on_a_processor_attend_in_float32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bf16: bool, cpu: bool, wanted: int
) -> None:
    attended: list[Any] = []
    monkeypatch.setattr(grpo, "attend_in_fp32", attended.append)
    Built(monkeypatch)
    settings = recursion_config(8).model_copy(update={"optimiser": Optimiser(learning_rate=1e-3, bf16=bf16)})
    model, record = toy_model(), StageRecord(tmp_path, "recursion", 1, lambda _: None, cpu=cpu)
    grpo.run(settings, 5, model, toy_tokenizer(), record)
    assert attended == [model] * wanted


def test_a_model_of_another_kind_is_refused_by_its_name(tmp_path: Path) -> None:
    shape = LlamaConfig(vocab_size=16, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1)
    other = LlamaForCausalLM(shape)
    record = StageRecord(tmp_path, "grpo", 1, lambda _: None)
    with pytest.raises(BadInput, match=r"^these stages are for Qwen2 models, not llama$"):
        grpo.run(config(), 5, other, toy_tokenizer(), record)
