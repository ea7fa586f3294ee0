"""Benchmark: GRPO iterations of the 7B training on one GPU, with random weights: memory and time of each part.

    python -m benchmarks.real_size_grpo_step [--weights bfloat16|float32] [--iterations N] [--json]
    python -m benchmarks.real_size_grpo_step --cpu --layers 2 --hidden 64 --vocabulary 16384 --prompts 1 --group 4 \\
        --completion-tokens 8

Model, trainer, prompt and settings are those of ``training/configs/qwen2.5-7b-grpo.toml``: a checkpoint of Qwen2.5-7B's
exact configuration is written with random weights, plans are sampled by the model's own ``generate`` (vLLM is not
measured), and the optimiser makes its step. Not measured: the workers. Each reward is drawn, so that advantages are not
all zero. Random weights hardly ever write the end token, so every completion has its full length: the worst case.

Weights, gradients and both moments take 16 bytes a parameter in float32, as the config has them (114 GiB for the 7B),
and 8 in bfloat16 (57 GiB), which is what fits a card of 80 GB; there the steps of 1e-6 are lost to rounding, so that is
a measurement and no training. The second iteration is the one to look at: before the first there are no moments yet.
"""

import argparse
import json
import random
import shutil
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
from conductor_core.lab.training.config import GrpoConfig, TaskSource, read_config
from conductor_core.lab.training.recorder import without_console
from conductor_core.lab.training.scale import ScaleTrainer, arguments, draw_prompts, load_tasks
from conductor_core.lab.training.worker_reward import PromptedTask

CONFIG = "qwen2.5-7b-grpo"
GIB = 2**30


class Peaks:
    """Peak memory of the card since it was last asked, in GiB; None on a CPU."""

    def __init__(self, *, cpu: bool) -> None:
        self._cpu = cpu

    def synchronise(self) -> None:
        """Waits until the card has done what it was told."""
        if not self._cpu:
            torch.cuda.synchronize()

    def take(self) -> float | None:
        if self._cpu:
            return None
        peak = torch.cuda.max_memory_allocated() / GIB
        torch.cuda.reset_peak_memory_stats()
        return round(peak, 2)


class MeasuredTrainer(ScaleTrainer):
    """Notes time and peak memory of sampling and of the update.

    Attributes:
        measured: a row for each iteration.
    """

    def __init__(self, *args: Any, peaks: Peaks) -> None:
        super().__init__(*args)
        self._peaks = peaks
        self._sampled_at = 0.0
        self.measured: list[dict[str, Any]] = []

    def _generate_single_turn(self, prompt_ids: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        self._peaks.take()
        began = time.perf_counter()
        completion_ids, logprobs = super()._generate_single_turn(prompt_ids, *args, **kwargs)
        self._sampled_at = time.perf_counter()
        self.measured.append(
            {
                "prompt_tokens": max(len(ids) for ids in prompt_ids),
                "completion_tokens": sum(len(ids) for ids in completion_ids) / len(completion_ids),
                "rollouts": len(completion_ids),
                "sampling_s": self._sampled_at - began,
                "sampling_tokens_per_s": sum(len(ids) for ids in completion_ids) / (self._sampled_at - began),
                "sampling_peak_gib": self._peaks.take(),
            }
        )
        print(f"iteration {len(self.measured)}: sampled in {self.measured[-1]['sampling_s']:.1f} s", file=sys.stderr)
        return completion_ids, logprobs

    def step_ended(self) -> None:
        self._peaks.synchronise()
        self.measured[-1] |= {"update_s": time.perf_counter() - self._sampled_at, "update_peak_gib": self._peaks.take()}
        print(f"iteration {len(self.measured)}: updated in {self.measured[-1]['update_s']:.1f} s", file=sys.stderr)


class StepEnd(TrainerCallback):
    def __init__(self, trainer: MeasuredTrainer) -> None:
        self._trainer = trainer

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._trainer.step_ended()
        control.should_save = False  # what is measured is the step, not the disk


def drawn_rewards(numbers: Sequence[int], completions: Sequence[str]) -> list[float]:
    rng = random.Random(0)
    return [rng.choice([0.0, 0.5, 1.0]) for _ in completions]


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    config = read_config(CONFIG)
    if config.grpo is None or config.scale is None:
        raise RuntimeError(f"{CONFIG} has no stage grpo or no table scale")
    sizes = {
        "iterations": options.iterations,
        "prompts": options.prompts,
        "group": options.group,
        "max_completion_tokens": options.completion_tokens,
    }
    grpo = config.grpo.model_copy(update={name: value for name, value in sizes.items() if value is not None})
    scale = config.scale.model_copy(
        update={
            "vllm": None,
            "weights": options.weights,
            "rows_per_device": options.rows or 2,
            "rows_sampled": options.rows_sampled or config.scale.rows_sampled,
        }
    )
    began = time.perf_counter()
    parameters = write_checkpoint(folder / "model", "7b", changes=changes(options))
    written_s = time.perf_counter() - began
    asked = prompts(grpo)
    peaks = Peaks(cpu=options.cpu)
    args = arguments(grpo, scale, folder / "out", seed=0, cpu=options.cpu, world_size=1)
    trainer = open_trainer(folder / "model", args, asked, scale.rows_sampled, peaks)
    trainer.train()
    return {
        "device": "CPU" if options.cpu else torch.cuda.get_device_name(),
        "memory_gib": None if options.cpu else torch.cuda.get_device_properties(0).total_memory / GIB,
        "torch": torch.__version__,
        "parameters": parameters,
        "weights": options.weights,
        "rows_per_device": scale.rows_per_device,
        "rows_sampled": scale.rows_sampled,
        "checkpoint_write_s": written_s,
        "iterations": trainer.measured,
    }


def open_trainer(
    model: Path, args: Any, asked: Sequence[PromptedTask], rows_sampled: int, peaks: Peaks
) -> MeasuredTrainer:
    trainer = MeasuredTrainer(str(model), args, asked, drawn_rewards, rows_sampled, peaks=peaks)
    without_console(trainer)
    trainer.add_callback(StepEnd(trainer))
    return trainer


def prompts(grpo: GrpoConfig) -> list[PromptedTask]:
    """The full prompt with the paper's seven workers; the tasks are the rehearsal world's, of like length."""
    tasks = load_tasks((TaskSource(suite="rehearsal", split="train", count=grpo.prompts),), 0)
    return draw_prompts(grpo, tasks, read_specs("paper"), 0)


def changes(options: argparse.Namespace) -> dict[str, int]:
    """Sizes in place of the 7B's: heads of 16 values where the hidden size is given."""
    changed = {}
    if options.layers is not None:
        changed["num_hidden_layers"] = options.layers
    if options.hidden is not None:
        heads = max(2, options.hidden // 16)
        changed |= {
            "hidden_size": heads * 16,
            "intermediate_size": options.hidden * 4,
            "num_attention_heads": heads,
            "num_key_value_heads": 2 if heads % 2 == 0 else 1,
        }
    if options.vocabulary is not None:
        changed["vocab_size"] = options.vocabulary
    return changed


def table(result: dict[str, Any]) -> str:
    lines = [
        f"{result['parameters'] / 1e9:.3f} B parameters in {result['weights']}, {result['device']}, torch "
        f"{result['torch']}, {result['rows_per_device']} rows at once, {result['rows_sampled']} while sampling; "
        f"checkpoint written in {result['checkpoint_write_s']:.0f} s",
        "",
        "| iteration | rollouts | prompt tokens | tokens | sampling s | tokens/s | peak GiB | update s | peak GiB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for number, row in enumerate(result["iterations"], start=1):
        sampling, update = (
            "-" if peak is None else f"{peak:.1f}" for peak in (row["sampling_peak_gib"], row["update_peak_gib"])
        )
        lines.append(
            f"| {number} | {row['rollouts']} | {row['prompt_tokens']} | {row['completion_tokens']:.0f} | "
            f"{row['sampling_s']:.1f} | {row['sampling_tokens_per_s']:.0f} | {sampling} | {row['update_s']:.1f} | "
            f"{update} |"
        )
    return "\n".join(lines)


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--iterations", type=int, default=2)
    parser.add_argument("--prompts", type=int, help="default: as configured, 4")
    parser.add_argument("--group", type=int, help="default: as configured, 64")
    parser.add_argument("--completion-tokens", type=int, help="default: as configured, 1024")
    parser.add_argument("--rows", type=int, help="completions whose gradients are computed at once; default 2")
    parser.add_argument("--rows-sampled", type=int, help="completions that are sampled at once; default 64")
    parser.add_argument("--layers", type=int, help="in place of 28, to try it small")
    parser.add_argument("--hidden", type=int, help="in place of 3584, to try it small")
    parser.add_argument("--vocabulary", type=int, help="in place of 152064, to try it small; at least 16000")
    parser.add_argument("--cpu", action="store_true", help="without a GPU; says nothing about one")
    parser.add_argument("--folder", type=Path, help="where the checkpoint is written; default: a temporary folder")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parsed(arguments)
    if not options.cpu and not torch.cuda.is_available():
        print(
            "error: no GPU found, and without one this measures nothing; to see it work, try it small: "
            "--cpu --layers 2 --hidden 64 --vocabulary 16384 --prompts 1 --group 4 --completion-tokens 8",
            file=sys.stderr,
        )
        return 2
    if options.cpu and options.hidden is None:
        print("error: the whole 7B is not for a CPU: give --hidden, and --layers", file=sys.stderr)
        return 2
    parent = options.folder or Path(tempfile.gettempdir())
    folder = Path(tempfile.mkdtemp(prefix="grpo-step-", dir=parent))
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning)
            result = measure(options, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(result, indent=1) if options.json else table(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
