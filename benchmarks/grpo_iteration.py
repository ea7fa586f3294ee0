"""Time of one GRPO iteration of the tiny Conductor: our rollout and shared prompts against TRL's, in one run.

    python -m benchmarks.grpo_iteration [--iterations 3] [--model conductor_core/conductors/tiny]

Four ways, with the same weights, prompts and settings (those of ``tiny``, without its supervised term):

- ``ours``: our rollout, held to the grammar as in training; each prompt read once for its group.
- ``ours_free``: the same without the grammar.
- ``trl_generation``: TRL's own generation, the update as in ours.
- ``trl``: TRL's trainer as it comes.

Each has one iteration before those that are timed. Prints one JSON object: seconds an iteration (wall and of the
processor, means), what the wall time goes to, and how many tokens were written. Each way draws its own completions,
so that their lengths differ a little.
"""

import argparse
import json
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen2ForCausalLM, TrainerCallback
from transformers.utils import logging as transformers_logging
from trl.trainer.grpo_trainer import GRPOTrainer

from conductor_core.errors import BadInput
from conductor_core.lab.training.config import GrpoConfig, Guard, read_config
from conductor_core.lab.training.folder import load
from conductor_core.lab.training.recorder import StageRecord, without_console
from conductor_core.lab.training.tiny.grpo import Stage, arguments, build_trainer
from conductor_core.lab.training.tiny.situations import draw_situations
from conductor_core.lab.training.tiny.trainer import attend_in_fp32

SEED = 0
WAYS = ("ours", "ours_free", "trl_generation", "trl")


class _Timed(TrainerCallback):
    """Adds up the time of all iterations but the first."""

    def __init__(self) -> None:
        self.wall_s = self.cpu_s = self.rollout_s = self.reward_s = 0.0
        self.iterations = self.tokens = 0
        self._started = (0.0, 0.0)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == 1:
            self.rollout_s = self.reward_s = 0.0
            self.tokens = 0
        self._started = (time.monotonic(), time.process_time())

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step > 1:
            self.wall_s += time.monotonic() - self._started[0]
            self.cpu_s += time.process_time() - self._started[1]
            self.iterations += 1

    def rollouts(self, generate: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            began = time.monotonic()
            written = generate(*arguments)
            self.rollout_s += time.monotonic() - began
            self.tokens += sum(map(len, written[1]))
            return written

        return timed

    def rewards(self, reward: Callable[..., Any]) -> Callable[..., Any]:
        def timed_reward(**given: Any) -> Any:
            began = time.monotonic()
            found = reward(**given)
            self.reward_s += time.monotonic() - began
            return found

        return timed_reward

    def document(self) -> dict[str, float]:
        each = {name: getattr(self, name) / self.iterations for name in ("wall_s", "cpu_s", "rollout_s", "reward_s")}
        return {name: round(value, 3) for name, value in each.items()} | {
            "update_s": round(each["wall_s"] - each["rollout_s"] - each["reward_s"], 3),
            "tokens_per_iteration": round(self.tokens / self.iterations, 1),
        }


def measure(way: str, config: GrpoConfig, model_ref: str) -> dict[str, float]:
    """Trains for ``config.iterations`` in a folder that is thrown away."""
    model, tokenizer = load(model_ref)
    if not isinstance(model, Qwen2ForCausalLM):
        raise BadInput(f"{model_ref} is not a Qwen2 model")
    config = config.model_copy(
        update={"rollout": "trl" if way.startswith("trl") else "fast", "constrained": way == "ours"}
    )
    timed = _Timed()
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(name)
        situations = draw_situations(f"{SEED}/grpo", config.iterations * config.prompts, config.pool)
        stage = Stage(
            config, SEED, situations, tokenizer, StageRecord(folder, "grpo", config.iterations, lambda _: None)
        )
        stage.measure = lambda *_: None  # type: ignore[method-assign]
        stage.reward = timed.rewards(stage.reward)  # type: ignore[method-assign]
        trainer: Any
        if way == "trl":
            attend_in_fp32(model)
            trainer = GRPOTrainer(
                model=model,
                args=arguments(config, SEED, folder, cpu=True),
                reward_funcs=stage.reward,
                train_dataset=stage.dataset(),
                processing_class=tokenizer,
            )
            stage.trainer = trainer  # for the number of the iteration only
            without_console(trainer)
        else:
            trainer = build_trainer(stage, model, folder, cpu=True)
        trainer._generate = timed.rollouts(trainer._generate)
        trainer.add_callback(timed)
        trainer.train()
    return timed.document()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.grpo_iteration")
    parser.add_argument("--iterations", type=int, default=3, help="timed, for each way")
    parser.add_argument("--model", default="conductor_core/conductors/tiny")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    given = parser.parse_args()
    training = read_config("tiny")
    if training.grpo is None:
        raise BadInput("the config tiny has no stage grpo")
    torch.set_num_threads(training.threads)
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    config = training.grpo.model_copy(
        update={"iterations": given.iterations + 1, "guard": Guard(), "save_every": 1000, "sample_every": 1000}
    )
    document = {
        "prompts": config.prompts,
        "group": config.group,
        "threads": training.threads,
        "bf16": config.optimiser.bf16,
        "iterations": given.iterations,
        "ways": {way: measure(way, config, given.model) for way in given.ways},
    }
    print(json.dumps(document, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
