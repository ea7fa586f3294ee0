"""TRL's GRPO trainer for models of real size. Two things are added: plans are kept, and rewards come from one place.

Sampled plans stay on disk until a checkpoint holds what was learned from them. A training that continues from its last
checkpoint replays them, because a seed cannot repeat vLLM's sampling. It thus asks the workers for the same rollouts,
of which the finished ones are already paid for.

The main process alone computes the rewards of all processes, with one cache and one cap.
"""

import base64
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list, gather_object
from datasets import Dataset
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from conductor_core.errors import BadInput, InspectorError
from conductor_core.lab.training import config as training_config
from conductor_core.lab.training.checkpoint import SafeCheckpoints, writing
from conductor_core.lab.training.config import GrpoConfig, ScaleConfig
from conductor_core.lab.training.figures import trainer_figures
from conductor_core.lab.training.scale.prompts import PromptedTask

ROLLOUTS = "rollouts"
"""Name of the folder of kept plans, in the folder of their stage."""

Score = Callable[[Sequence[int], Sequence[str]], list[float]]
"""Returns rewards from the prompts' numbers and their completions. Called on the main process only."""


class StoppedElsewhere(InspectorError):
    """The main process has stopped the training and reports the reason."""


def arguments(
    config: GrpoConfig, scale: ScaleConfig, out: Path, *, seed: int, cpu: bool, world_size: int
) -> GRPOConfig:
    """Returns TRL's settings. Raises: BadInput if a batch cannot be divided among the processes."""
    batch = config.prompts * config.group
    if batch % (scale.rows_per_device * world_size):
        raise BadInput(
            f"{batch} rollouts cannot be divided into {world_size} processes of {scale.rows_per_device} rows each: "
            "change rows_per_device or --num_processes"
        )
    turns = batch // (scale.rows_per_device * world_size)
    vllm = scale.vllm
    served: dict[str, Any] = {}
    if vllm is not None:
        served = {
            "use_vllm": True,
            "vllm_mode": vllm.mode,
            "vllm_server_base_url": vllm.url if vllm.mode == "server" else None,
            "vllm_gpu_memory_utilization": vllm.memory_share,
            "vllm_tensor_parallel_size": vllm.tensor_parallel,
            "vllm_enable_sleep_mode": vllm.sleep,
        }
    return GRPOConfig(
        **training_config.grpo(config, seed=seed, cpu=cpu),
        output_dir=str(out),
        data_seed=seed,
        per_device_train_batch_size=scale.rows_per_device,
        gradient_accumulation_steps=turns,
        steps_per_generation=turns,
        activation_checkpointing=scale.gradient_checkpointing,
        model_init_kwargs={"dtype": scale.weights},
        ddp_timeout=scale.wait_for_workers_s,
        dataloader_pin_memory=not cpu,
        **served,
    )


def as_dataset(asked: Sequence[PromptedTask]) -> Dataset:
    """Returns one row for each prompt: its messages and its number."""
    prompts = [[message.model_dump() for message in each.messages] for each in asked]
    return Dataset.from_list([{"prompt": prompt, "number": number} for number, prompt in enumerate(prompts)])


class ScaleTrainer(SafeCheckpoints, GRPOTrainer):
    """See the module."""

    def __init__(
        self, model: str, args: GRPOConfig, asked: Sequence[PromptedTask], score: Score, rows_sampled: int
    ) -> None:
        self._score = score
        self._rows_sampled = rows_sampled
        self._kept = Path(str(args.output_dir)) / ROLLOUTS
        self._rollout_s, self._reward_s = 0.0, 0.0

        def plans(completions: list[Any], number: list[int], **_: Any) -> list[float | None]:
            return [*self._rewards(number, [turns[0]["content"] for turns in completions])]

        super().__init__(model=model, reward_funcs=plans, args=args, train_dataset=as_dataset(asked))

    def figures(self) -> dict[str, float | None]:
        """Returns the figures of the iteration that is being logged, as fields of ``records.training.Iteration``."""
        metrics = self._metrics["train"]
        whole_s = sum(metrics.get("step_time", []))
        return trainer_figures(metrics, rollout_s=self._rollout_s, reward_s=self._reward_s, whole_s=whole_s)

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Writes no card, because the library's card does not describe a Conductor."""

    def stop(self) -> None:
        """Keeps the weights of the last finished iteration, on all processes at once."""
        if self.state.global_step and not (self._folder / f"checkpoint-{self.state.global_step}").exists():
            self._save_checkpoint(self.model, trial=None)

    @property
    def _folder(self) -> Path:
        return Path(str(self.args.output_dir))

    def _rewards(self, numbers: list[int], completions: list[str]) -> list[float]:
        """Scores this process's completions on the main process. Raises: InspectorError, on every process."""
        began = time.monotonic()
        try:
            return self._scored(numbers, completions)
        finally:
            self._reward_s = time.monotonic() - began

    def _scored(self, numbers: list[int], completions: list[str]) -> list[float]:
        if self.accelerator.num_processes == 1:
            return self._score(numbers, completions)
        everything = gather_object(list(zip(numbers, completions, strict=True)))
        said: list[Any] = [None]
        error: InspectorError | None = None
        if self.accelerator.is_main_process:
            try:
                said = [self._score(*map(list, zip(*everything, strict=True)))]
            except InspectorError as raised:
                error, said = raised, [str(raised)]
        broadcast_object_list(said)
        if error is not None:
            raise error
        if isinstance(said[0], str):
            raise StoppedElsewhere(said[0])
        begin = self.accelerator.process_index * len(numbers)
        return list(said[0][begin : begin + len(numbers)])

    def _generate_single_turn(self, prompt_ids: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Returns the plans that were sampled for these prompts before the training stopped, or samples new ones."""
        began = time.monotonic()
        try:
            return self._sampled(prompt_ids, *args, **kwargs)
        finally:
            self._rollout_s = time.monotonic() - began

    def _sampled(self, prompt_ids: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        path = self._kept_file(self.state.global_step)
        kept = _read_kept(path, prompt_ids)
        if self._all_have(kept is not None) and kept is not None:
            self._update_server()
            _set_random(kept["random"])
            return kept["completions"], kept["logprobs"]
        sampled = self._sample(prompt_ids, *args, **kwargs)
        content = {"prompts": prompt_ids, "completions": sampled[0], "logprobs": sampled[1], "random": _random()}
        with writing(self._folder):
            path.parent.mkdir(parents=True, exist_ok=True)
            new = path.with_suffix(".new")
            new.write_text(json.dumps(content))
            new.replace(path)
        return sampled

    def _sample(self, prompt_ids: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Samples new plans; without vLLM in parts, since ``generate`` reads all the prompts it gets in one pass."""
        generate: Callable[..., tuple[Any, Any]] = super()._generate_single_turn
        rows = len(prompt_ids) if self.use_vllm else self._rows_sampled
        parts = [generate(prompt_ids[at : at + rows], *args, **kwargs) for at in range(0, len(prompt_ids), rows)]
        return [row for completions, _ in parts for row in completions], parts[0][1]

    def _update_server(self) -> None:
        """Sends the current weights to vLLM's server, as TRL does before it samples: it may plan inner rounds too."""
        if self.use_vllm and self.vllm_mode == "server" and self.state.global_step != self._last_loaded_step:
            self.vllm_generation.sync_weights()  # type: ignore[no-untyped-call]  # untyped in TRL
            self._last_loaded_step = self.state.global_step

    def _all_have(self, one_has: bool) -> bool:
        """Says whether every process has its part, because all processes must sample together or not at all."""
        flag = torch.tensor([int(one_has)], device=self.accelerator.device)
        return bool(self.accelerator.gather(flag).min().item())

    def _kept_file(self, step: int) -> Path:
        accelerator = self.accelerator
        return self._kept / f"{step:06d}-{accelerator.process_index}-of-{accelerator.num_processes}.json"

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        # A killed training continues from the checkpoint before this one if this one is damaged.
        oldest = self.state.global_step - 2 * self.args.save_steps
        if self.accelerator.is_main_process:
            for path in self._kept.glob("*.json"):
                if int(path.name.partition("-")[0]) < oldest:
                    path.unlink()


def _read_kept(path: Path, prompt_ids: Any) -> dict[str, Any] | None:
    """Reads the kept plans; None if there are none, or they are for other prompts (the configuration changed)."""
    try:
        kept: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read: {error}; remove it, and its plans are sampled again") from error
    return kept if kept["prompts"] == [list(ids) for ids in prompt_ids] else None


def _random() -> list[str]:
    """Returns the state of torch's generators: of the CPU, and of the current card if there is one."""
    states = [torch.get_rng_state(), *([torch.cuda.get_rng_state()] if torch.cuda.is_available() else [])]
    return [base64.b64encode(state.numpy().tobytes()).decode() for state in states]


def _set_random(kept: Sequence[str]) -> None:
    """Restores torch's generators, so that later draws, such as the order of gradient sums, repeat."""
    states = [torch.frombuffer(bytearray(base64.b64decode(each)), dtype=torch.uint8) for each in kept]
    torch.set_rng_state(states[0])
    if len(states) > 1 and torch.cuda.is_available():
        torch.cuda.set_rng_state(states[1])
