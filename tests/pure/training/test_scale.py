"""Settings of a training of real size: the paper's, as TRL is told them, and what is refused."""

from pathlib import Path

import pytest
import torch

from benchmarks import real_size_grpo_step
from conductor_core.errors import BadInput
from conductor_core.settings import Settings
from conductor_core.training.config import CONFIGS, Guard, read_config
from conductor_core.training.scale import train
from conductor_core.training.scale_config import ScaleConfig, TaskSource, WorkersConfig
from conductor_core.training.scale_trainer import arguments

PAPER = read_config("qwen2.5-7b-grpo")
ALL = sorted(path.stem for path in CONFIGS.glob("qwen2.5-7b-*.toml"))


def test_the_papers_settings_reach_the_trainer(tmp_path: Path) -> None:
    assert PAPER.grpo is not None
    assert PAPER.scale is not None
    assert PAPER.base == "Qwen/Qwen2.5-7B-Instruct"
    assert sum(source.count for source in PAPER.scale.tasks) == 960
    scale = PAPER.scale.model_copy(update={"vllm": None})
    grpo = PAPER.grpo.model_copy(update={"optimiser": PAPER.grpo.optimiser.model_copy(update={"bf16": False})})
    args = arguments(grpo, scale, tmp_path, seed=0, cpu=True, world_size=2)
    assert args.max_steps == 200
    assert args.num_generations == 64
    assert args.per_device_train_batch_size * args.gradient_accumulation_steps * 2 == 256
    assert args.steps_per_generation == args.gradient_accumulation_steps
    assert (args.temperature, args.max_completion_length) == (1.0, 1024)
    assert (args.learning_rate, args.adam_beta1, args.adam_beta2) == (1e-6, 0.9, 0.999)
    assert (args.lr_scheduler_type, args.warmup_steps) == ("cosine", 6)
    assert (args.epsilon, args.beta, args.num_iterations) == (0.2, 0.0, 1)
    assert (args.loss_type, args.scale_rewards) == ("grpo", "group")
    assert args.model_init_kwargs == {"dtype": "float32"}
    assert args.shuffle_dataset is False


@pytest.mark.parametrize("name", ALL)
def test_each_config_is_whole(name: str) -> None:
    config = read_config(name)
    assert config.name == name
    assert config.scale is not None
    assert config.scale.vllm is not None
    assert config.scale.workers.pool == "paper"
    for stage in config.stages:
        grpo = getattr(config, stage)
        assert (grpo.prompts, grpo.group, grpo.rollout) == (4, 64, "trl")
        assert (grpo.reward.kind, grpo.reward.step_cost) == ("sampled", 0.0)


def test_a_batch_that_cannot_be_divided_is_refused(tmp_path: Path) -> None:
    assert PAPER.grpo is not None
    assert PAPER.scale is not None
    with pytest.raises(BadInput, match="256 rollouts cannot be divided into 3 processes of 2 rows"):
        arguments(PAPER.grpo, PAPER.scale, tmp_path, seed=0, cpu=True, world_size=3)


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    assert PAPER.grpo is not None
    guarded = PAPER.model_copy(update={"grpo": PAPER.grpo.model_copy(update={"guard": Guard(weight=0.2)})})
    with pytest.raises(BadInput, match="there is no guard"):
        train(guarded, tmp_path, Settings())
    with pytest.raises(BadInput, match="needs the table scale and a base model"):
        train(read_config("qwen2.5-7b-k-of-n"), tmp_path, Settings())
    with pytest.raises(BadInput, match="has no stage recursion to stop after; it has grpo"):
        train(PAPER, tmp_path, Settings(), stop_after="recursion")
    with pytest.raises(BadInput, match="vLLM, which is not installed here"):
        train(PAPER, tmp_path, Settings())
    with pytest.raises(ValueError, match="longer than wait_for_workers_s"):
        ScaleConfig(tasks=(TaskSource(suite="rehearsal", count=1),), workers=WorkersConfig(pauses=20))


def test_the_benchmark_refuses_to_measure_without_a_card(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert real_size_grpo_step.main([]) == 2
    assert "there is no GPU here" in capsys.readouterr().err
    assert real_size_grpo_step.main(["--cpu"]) == 2
    assert "give --hidden" in capsys.readouterr().err
