"""Our configs in the words of transformers' and TRL's trainers: what several stages share."""

from typing import Any

from conductor_core.training.config import GrpoConfig, Optimiser


def common(optimiser: Optimiser, *, seed: int, steps: int, cpu: bool) -> dict[str, Any]:
    """Arguments of any trainer: the optimiser, what is kept, and nothing said on the console or to anybody's server."""
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
    """Arguments of a GRPO trainer, ``common`` ones among them; how a batch is divided is left to the stage."""
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
