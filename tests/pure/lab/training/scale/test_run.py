"""Settings of a training of real size: the paper's, as TRL is told them, and what is refused."""

import base64
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import TrainerState

from benchmarks import real_size_grpo_step
from conductor_core.errors import BadInput
from conductor_core.lab.records.training import Ended, Stage, append, read_record
from conductor_core.lab.training.config import (
    CONFIGS,
    Guard,
    HeldOutConfig,
    PoolDraw,
    ScaleConfig,
    TaskSource,
    TrainingConfig,
    WorkersConfig,
    read_config,
)
from conductor_core.lab.training.folder import show_disk_needs
from conductor_core.lab.training.recorder import begin as begin_record
from conductor_core.lab.training.scale import ScaleTrainer, StageEnded, arguments, same_training, train
from conductor_core.settings import Settings

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
        assert (grpo.prompts, grpo.group) == (4, 64)


def test_a_batch_that_cannot_be_divided_is_refused(tmp_path: Path) -> None:
    assert PAPER.grpo is not None
    assert PAPER.scale is not None
    with pytest.raises(BadInput, match="256 rollouts cannot be divided into 3 processes of 2 rows"):
        arguments(PAPER.grpo, PAPER.scale, tmp_path, seed=0, cpu=True, world_size=3)


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"names no base model: name one to begin with \(--from\)"):
        train(read_config("qwen2.5-7b-k-of-n"), tmp_path, Settings())
    with pytest.raises(BadInput, match="has no stage recursion to stop after; it has grpo"):
        train(PAPER, tmp_path, Settings(), stop_after="recursion")
    with pytest.raises(BadInput, match="vLLM, which is not installed here"):
        train(PAPER, tmp_path, Settings())
    with pytest.raises(ValueError, match="longer than wait_for_workers_s"):
        ScaleConfig(tasks=(TaskSource(suite="rehearsal", count=1),), workers=WorkersConfig(pauses=20))


@pytest.mark.parametrize(
    ("stage", "name", "setting"),
    [
        ("grpo", "held_out", {"held_out": HeldOutConfig(tasks=9)}),
        ("grpo", "constrained", {"constrained": True}),
        ("grpo", "guard, step_cost", {"guard": Guard(weight=0.2), "step_cost": 0.02}),
        ("grpo", "pool.full_steps_share", {"pool": PoolDraw(full_steps_share=0.5)}),
        ("recursion", "taught, guard_inner_share", {"taught": 9, "guard_inner_share": 0.5}),
    ],
)
def test_a_setting_that_would_do_nothing_is_refused(
    tmp_path: Path, stage: str, name: str, setting: dict[str, object]
) -> None:
    config = read_config("qwen2.5-7b-recursion")
    changed = config.model_copy(update={stage: getattr(config, stage).model_copy(update=setting)})
    with pytest.raises(BadInput, match=f"{stage}: with the table scale these have no effect, leave them out: {name}$"):
        train(changed, tmp_path, Settings(), start_from="model")


@pytest.mark.parametrize(("mode", "ended"), [("colocate", [True, False]), ("server", [False])])
def test_a_process_holds_vllm_for_one_stage(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: str, ended: list[bool]
) -> None:
    config = read_config("qwen2.5-7b-recursion")
    real = config.scale
    assert real is not None
    assert real.vllm is not None
    small = {"tasks": (TaskSource(suite="rehearsal", count=1),), "workers": WorkersConfig(pool="rehearsal")}
    vllm = real.vllm.model_copy(update={"mode": mode})
    config = config.model_copy(update={"device": "cpu", "scale": real.model_copy(update=small | {"vllm": vllm})})
    trained: list[str] = []

    def run_stage(_config: object, _scale: object, _before: object, stage: str, *_: object) -> None:
        trained.append(stage)
        (tmp_path / "stages" / stage).mkdir(parents=True)
        (tmp_path / "stages" / stage / "config.json").touch()

    monkeypatch.setattr("conductor_core.lab.training.scale.is_vllm_available", lambda: True)
    monkeypatch.setattr("conductor_core.lab.training.scale._run_stage", run_stage)
    monkeypatch.setattr("conductor_core.lab.training.scale._prompts", lambda *_: [])
    monkeypatch.setattr("conductor_core.lab.training.scale._publish", lambda *_: "digest")
    for number, ends in enumerate(ended):
        if ends:
            with pytest.raises(StageEnded, match=r"grpo is finished; recursion needs processes of its own.*--resume"):
                train(config, tmp_path, Settings(), start_from="model", resume=number > 0)
            assert trained == ["grpo"]
        else:
            train(config, tmp_path, Settings(), start_from="model", resume=number > 0)
    assert trained == ["grpo", "recursion"]


def begin(out: Path, config: TrainingConfig, *, resume: bool, stages: tuple[Stage, ...] = ("grpo",)) -> None:
    begin_record(config, out, stages, "model", resume, same=same_training, simulated=False, machine="", agents=())


def with_scale(config: TrainingConfig, **fields: object) -> TrainingConfig:
    assert config.scale is not None
    return config.model_copy(update={"scale": config.scale.model_copy(update=fields)})


def test_memory_and_patience_may_change_on_the_way_and_what_is_learned_may_not(tmp_path: Path) -> None:
    assert PAPER.scale is not None
    assert PAPER.scale.vllm is not None
    assert PAPER.grpo is not None
    begin(tmp_path, PAPER, resume=False)
    less = PAPER.scale.vllm.model_copy(update={"memory_share": 0.2, "tensor_parallel": 1})
    other = with_scale(PAPER, vllm=less, rows_per_device=1, gradient_checkpointing=False, wait_for_workers_s=9999)
    begin(tmp_path, other, resume=True)
    for changed in (with_scale(PAPER, vllm=None), with_scale(PAPER, weights="bfloat16")):
        with pytest.raises(BadInput, match="another config or seed"):
            begin(tmp_path, changed, resume=True)
    by_rows = PAPER.model_copy(update={"grpo": PAPER.grpo.model_copy(update={"loss": "bnpo"})})
    begin(tmp_path / "bnpo", by_rows, resume=False)
    with pytest.raises(BadInput, match="another config or seed"):
        begin(tmp_path / "bnpo", with_scale(by_rows, rows_per_device=1), resume=True)


def test_more_stages_may_be_planned_when_a_training_goes_on(tmp_path: Path) -> None:
    config = read_config("qwen2.5-7b-recursion")
    begin(tmp_path, config, resume=False)
    append(tmp_path, Ended(at="now", seconds=1.0, model="model", sha256="digest"))
    begin(tmp_path, config, resume=True, stages=("grpo", "recursion"))
    record = read_record(tmp_path)
    assert record.started is not None
    assert record.started.planned == {"grpo": 20, "recursion": 20}
    assert record.ended is None


def test_a_server_gets_the_weights_of_the_moment_though_plans_are_replayed(tmp_path: Path) -> None:
    updated: list[int] = []

    class Resumed(ScaleTrainer):
        def __init__(self, mode: str) -> None:
            self.use_vllm, self.vllm_mode, self._last_loaded_step = True, mode, -1
            self.state = TrainerState(global_step=3)
            generation: Any = SimpleNamespace(sync_weights=lambda: updated.append(self.state.global_step))
            self.vllm_generation = generation
            self._kept = tmp_path
            self.accelerator = SimpleNamespace(
                process_index=0, num_processes=1, device="cpu", gather=lambda flags: flags
            )

    for mode, expected in (("colocate", []), ("server", [3])):
        trainer = Resumed(mode)
        random = [base64.b64encode(torch.get_rng_state().numpy().tobytes()).decode()]
        kept = {"prompts": [[1]], "completions": [[2]], "logprobs": None, "random": random}
        (tmp_path / "000003-0-of-1.json").write_text(json.dumps(kept))
        for _ in range(2):
            assert trainer._generate_single_turn([[1]]) == ([[2]], None)
        assert updated == expected


def test_a_disk_without_room_for_the_checkpoints_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "checkpoint-1").write_bytes(bytes(1_000_000))
    told: list[str] = []
    for free_bytes in (47_000_000, 46_000_000):  # three of 16 MB, but for what is there
        monkeypatch.setattr("shutil.disk_usage", lambda _, free=free_bytes: SimpleNamespace(free=free))
        show_disk_needs(tmp_path, 4_000_000, told.append)
    assert told == [f"{tmp_path}: checkpoints take up to 0.047 GB more and 0.046 GB are free: make room"]


def test_the_benchmark_refuses_to_measure_without_a_card(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert real_size_grpo_step.main([]) == 2
    assert "no GPU found" in capsys.readouterr().err
