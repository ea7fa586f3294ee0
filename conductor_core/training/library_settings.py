"""Translates our configs into arguments of transformers' and TRL's trainers that several stages share."""

from typing import Any

from conductor_core.training.config import GrpoConfig, Optimiser


def common(optimiser: Optimiser, *, seed: int, steps: int, cpu: bool) -> dict[str, Any]:
    """Returns arguments of any trainer: optimiser and checkpoints, with no console lines and no reports to servers."""
    return {
        "use_cpu": cpu,
        "seed": seed,
        "max_steps": steps,
        "bf16": optimiser.bf16,
        "learning_rate": optimiser.learning_rate,
        "lr_scheduler_type": optimiser.scheduler,
        "warmup_steps": int(steps * optimiser.warmup_share),
        "weight_decay": optimiser.weight_decay,
        "adam_beta2": optimiser.adam_beta2,
        "max_grad_norm": optimiser.max_grad_norm,
        "save_strategy": "steps",
        "save_total_limit": 2,
        "report_to": "none",
        "disable_tqdm": True,
        "remove_unused_columns": False,
    }


def grpo(config: GrpoConfig, *, seed: int, cpu: bool) -> dict[str, Any]:
    """Returns arguments of a GRPO trainer, with those of ``common``. The stage adds how a batch is divided."""
    return common(config.optimiser, seed=seed, steps=config.iterations * config.updates, cpu=cpu) | {
        "num_generations": config.group,
        "num_iterations": config.updates,
        "max_completion_length": config.max_completion_tokens,
        "temperature": config.temperature,
        "beta": 0.0,  # no reference model
        "epsilon": config.clip,
        "loss_type": config.loss,
        "scale_rewards": config.scale_advantages,
        "entropy_coef": config.entropy_bonus,
        "shuffle_dataset": False,
        "logging_steps": config.updates,
        "save_steps": config.save_every * config.updates,
    }
