"""GRPO iterations of the 7B training on one GPU, with random weights: memory and time of each part.

    python -m benchmarks.real_size_grpo_step [--weights bfloat16|float32] [--iterations N] [--prompts N]
    python -m benchmarks.real_size_grpo_step --small      tries it on a CPU; says nothing about a GPU

Model, trainer, prompt and settings are those of ``training/configs/qwen2.5-7b-grpo.toml``: a checkpoint of Qwen2.5-7B's
exact configuration is written with random weights, plans are sampled by the model's own ``generate`` (vLLM is not
measured), and the optimiser makes its step. Not measured: the workers. Each reward is drawn, so that advantages are not
all zero. Random weights hardly ever write the end token, so every completion has its full length: the worst case.

Weights, gradients and both moments take 16 bytes a parameter in float32, as the config has them (114 GiB for the 7B),
and 8 in bfloat16 (57 GiB), which is what fits a card of 80 GB; there the steps of 1e-6 are lost to rounding, so that is
a measurement and no training. The second iteration is the one to look at: before the first there are no moments yet.
"""

import argparse
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from benchmarks.random_checkpoint import write_checkpoint
from conductor_core.engine.pools import read_specs
from conductor_core.lab.training.config import TaskSource, read_config
from conductor_core.lab.training.recorder import without_console
from conductor_core.lab.training.scale import ScaleTrainer, arguments, draw_prompts, load_tasks

CONFIG = "qwen2.5-7b-grpo"
GIB = 2**30
SMALL_MODEL = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 16_384,
}
SMALL_BATCH = {"prompts": 1, "group": 4, "max_completion_tokens": 8}


def _peak() -> str:
    """Returns the peak memory of the card since it was last asked, in GiB."""
    if not torch.cuda.is_available():
        return "-"
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() / GIB
    torch.cuda.reset_peak_memory_stats()
    return f"{peak:.1f}"


class MeasuredTrainer(ScaleTrainer):
    """Prints time and peak memory of sampling and of the update."""

    _sampled_at = 0.0

    def _generate_single_turn(self, prompt_ids: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        _peak()
        began = time.perf_counter()
        completion_ids, logprobs = super()._generate_single_turn(prompt_ids, *args, **kwargs)
        self._sampled_at = time.perf_counter()
        took_s, tokens = self._sampled_at - began, sum(map(len, completion_ids))
        sizes = f"{len(completion_ids)} | {max(map(len, prompt_ids))} | {tokens / len(completion_ids):.0f}"
        print(f"| {sizes} | {took_s:.1f} | {tokens / took_s:.0f} | {_peak()} |", end="", flush=True)
        return completion_ids, logprobs

    def step_ended(self) -> None:
        peak = _peak()  # which waits for the card
        print(f" {time.perf_counter() - self._sampled_at:.1f} | {peak} |", flush=True)


class StepEnd(TrainerCallback):
    def __init__(self, trainer: MeasuredTrainer) -> None:
        self._trainer = trainer

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._trainer.step_ended()
        control.should_save = False  # what is measured is the step, not the disk


def drawn_rewards(numbers: Sequence[int], completions: Sequence[str]) -> list[float]:
    rng = random.Random(0)
    return [rng.choice([0.0, 0.5, 1.0]) for _ in completions]


def measure(options: argparse.Namespace, folder: Path) -> None:
    config = read_config(CONFIG)
    if config.grpo is None or config.scale is None:
        raise RuntimeError(f"{CONFIG} has no stage grpo or no table scale")
    sizes = {"iterations": options.iterations, "prompts": options.prompts or config.grpo.prompts}
    grpo = config.grpo.model_copy(update=sizes | (SMALL_BATCH if options.small else {}))
    scale = config.scale.model_copy(update={"vllm": None, "weights": options.weights, "rows_per_device": 2})
    parameters = write_checkpoint(folder / "model", "7b", changes=SMALL_MODEL if options.small else None)
    # The paper's seven workers; the tasks are the rehearsal world's, of like length.
    tasks = load_tasks((TaskSource(suite="rehearsal", split="train", count=grpo.prompts),), 0)
    asked = draw_prompts(grpo, tasks, read_specs("paper"), 0)
    args = arguments(grpo, scale, folder / "out", seed=0, cpu=options.small, world_size=1)
    trainer = MeasuredTrainer(str(folder / "model"), args, asked, drawn_rewards, scale.rows_sampled)
    without_console(trainer)
    trainer.add_callback(StepEnd(trainer))
    device = "CPU" if options.small else torch.cuda.get_device_name()
    print(f"{parameters / 1e9:.3f} B parameters in {options.weights}, {device}, torch {torch.__version__}\n")
    print("| rollouts | prompt tokens | tokens | sampling s | tokens/s | peak GiB | update s | peak GiB |")
    print("|---|---|---|---|---|---|---|---|")
    trainer.train()


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--iterations", type=int, default=2)
    parser.add_argument("--prompts", type=int, help="default: as configured, 4")
    parser.add_argument("--small", action="store_true", help="a small model on a CPU, to see that it works")
    options = parser.parse_args(given)
    if not options.small and not torch.cuda.is_available():
        print("error: no GPU found, and without one this measures nothing; to see it work: --small", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="grpo-step-") as folder, warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        measure(options, Path(folder))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
