"""The GRPO stage: it samples plans, carries them out in the rehearsal world, and makes plans likelier that did better
than their group.

    python -m conductor_core train tiny --out FOLDER

Group-relative policy optimisation after arXiv 2402.03300, with the reward of arXiv 2512.04388, by TRL's trainer;
rollouts are our own (``rollout``). Departures from the paper, each with its reason in the config: the exact
chance of success instead of one draw, a cost of steps, an entropy bonus, a supervised term that keeps plans readable.
"""

import itertools
import random
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from statistics import fmean
from typing import Any

import torch
from accelerate.utils import send_to_device
from datasets import Dataset
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Qwen2ForCausalLM, TrainerCallback
from transformers.cache_utils import DynamicCache
from trl.trainer.grpo_config import GRPOConfig as TrlConfig
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.utils import split_tensor_dict

from conductor_core.errors import BadInput
from conductor_core.lab.records import by_group
from conductor_core.lab.records.training import HeldOut, Sample
from conductor_core.lab.training import config as training_config
from conductor_core.lab.training.config import BEST_OF, GrpoConfig, RecursionConfig
from conductor_core.lab.training.corpus.plans import draw_example
from conductor_core.lab.training.folder import SafeCheckpoints
from conductor_core.lab.training.recorder import (
    Judged,
    RecordCallback,
    StageRecord,
    continue_training,
    figures,
    trainer_figures,
    without_console,
)
from conductor_core.lab.training.supervised import LeftPadded, attend_in_fp32, rounded
from conductor_core.lab.training.tiny.cold_start import example_rows
from conductor_core.lab.training.tiny.recursion import draw_inner_round, recursion_situations, simulate, teach, worth
from conductor_core.lab.training.tiny.rollout import LegalPlans, sample
from conductor_core.lab.training.tiny.situations import (
    Judge,
    Scored,
    Situation,
    draw_situations,
    exact_worth,
    held_out_situations,
    score,
)

# TRL's trainer, adapted to small models on a CPU: it keeps groups together and adds a supervised loss.


# Log-probabilities.


def completion_logprobs(
    model: PreTrainedModel, prompt_ids: Tensor, prompt_mask: Tensor, completion_ids: Tensor, *, temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Returns log-probabilities and entropies (nats), both (B, C) in float32, with gradients if these are on.

    A group's plans share their prompt, so the model reads it once for all of them: a third of the work.

    Args:
        prompt_ids, prompt_mask: (B, P), padded on the left. Consecutive rows with the same prompt read it once.
        completion_ids: (B, C), padded on the right. The caller must mask the values of the padding.
        temperature: divides the logits.
    """
    first = torch.ones(len(prompt_ids), dtype=torch.bool, device=prompt_ids.device)
    first[1:] = (prompt_ids[1:] != prompt_ids[:-1]).any(dim=1)
    of_prompt = first.cumsum(0) - 1
    prompts, attended = _narrowed(prompt_ids[first], prompt_mask[first])
    core, cache = model.base_model, DynamicCache(config=model.config)
    read = core(
        input_ids=prompts,
        attention_mask=attended,
        position_ids=(attended.cumsum(1) - 1).clamp(min=0),
        past_key_values=cache,
        use_cache=True,
    )
    cache.batch_select_indices(of_prompt)
    lengths = attended.sum(1)[of_prompt]
    count = completion_ids.shape[1]
    written = core(
        input_ids=completion_ids[:, :-1],
        attention_mask=torch.cat([attended[of_prompt], torch.ones_like(completion_ids[:, :-1])], dim=1),
        position_ids=lengths[:, None] + torch.arange(count - 1, device=lengths.device),
        past_key_values=cache,
        use_cache=True,
    )
    hidden = torch.cat([read.last_hidden_state[of_prompt, -1:], written.last_hidden_state], dim=1)
    head: Any = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    scores = (head(hidden).float() / temperature).log_softmax(dim=-1)
    chosen = scores.gather(-1, completion_ids.unsqueeze(-1)).squeeze(-1)
    return chosen, -(scores.exp() * scores).sum(dim=-1)


def _narrowed(prompts: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Drops the padding that no row needs, down to a rounded length."""
    wanted = min(rounded(int(mask.sum(1).max())), prompts.shape[1])
    return prompts[:, -wanted:], mask[:, -wanted:]


_BY_TOKEN = ("completion_ids", "completion_mask", "old_per_token_logps", "sampling_per_token_logps")


class ConductorTrainer(SafeCheckpoints, GRPOTrainer):
    """Uses TRL's loss, advantages and clipping, with two differences:

    1. A micro-batch is one prompt's whole group, not a random part of the batch. The model then reads the prompt once
       (``completion_logprobs``), and completions are padded to the longest of the group. An update's sum is the same.
    2. ``guard`` adds a supervised loss to each update.

    Args:
        guard: returns the supervised batch of an update by its number: arguments of the model with ``labels``.
        guard_weight: weight of that batch's mean loss.
    """

    def __init__(
        self, *, guard: Callable[[int], Mapping[str, Any]] | None = None, guard_weight: float = 0.0, **options: Any
    ) -> None:
        with _without_known_warnings():
            super().__init__(**options)
        self._guard, self._guard_weight = guard, guard_weight
        self._parts: list[dict[str, Any]] = []
        self.rollout_s = 0.0
        """Seconds spent on completions since the trainer was made."""
        self.guard_loss: float | None = None
        """Supervised loss of the last update, before its weight is applied."""

    def _generate(self, prompts: list[Any]) -> Any:
        began = time.monotonic()
        written = super()._generate(prompts)
        self.rollout_s += time.monotonic() - began
        return written

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        with _without_known_warnings():
            return super()._generate_and_score_completions(inputs)

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        parts: int = self.args.gradient_accumulation_steps
        if self._step % (parts * self.num_iterations) == 0 or not self._parts:
            scored = self._generate_and_score_completions(generation_batch)
            self._parts = [trimmed(part) for part in split_tensor_dict(scored, parts)]
        return self._parts[self._step % parts]

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        **_: Any,
    ) -> tuple[Tensor, Tensor | None, None]:
        size = batch_size or len(input_ids)
        logprobs, entropies = [], []
        for at in range(0, len(input_ids), size):
            rows = slice(at, at + size)
            with self.accelerator.autocast():
                found = completion_logprobs(
                    model,
                    input_ids[rows, :-logits_to_keep],
                    attention_mask[rows, :-logits_to_keep],
                    input_ids[rows, -logits_to_keep:],
                    temperature=self.temperature,
                )
            logprobs.append(found[0])
            entropies.append(found[1])
        return torch.cat(logprobs), torch.cat(entropies) if compute_entropy else None, None

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Tensor:
        loss: Tensor = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        if self._guard is not None and self._step % self.args.gradient_accumulation_steps == 0:
            # Added once per update, in its first micro-batch. TRL divides the other losses itself.
            batch = send_to_device(self._guard(self.state.global_step), loss.device)
            with self.accelerator.autocast():
                supervised: Tensor = model(**batch).loss
            self.guard_loss = float(supervised.detach())
            loss = loss + self._guard_weight * supervised
        return loss


@contextmanager
def _without_known_warnings() -> Iterator[None]:
    """Hides TRL's warnings about its own interface, and transformers' warnings about names that TRL uses."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="You are using 'rollout_func'", category=UserWarning)
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated", category=FutureWarning)
        yield


def trimmed(part: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a micro-batch without the columns that are padding in all its rows; the width is rounded up."""
    mask = part["completion_mask"]
    width = min(rounded(int(mask.sum(dim=1).max()), 16), mask.shape[1])
    cut: Sequence[str] = [name for name in _BY_TOKEN if isinstance(part.get(name), Tensor)]
    return dict(part) | {name: part[name][:, :width] for name in cut}


_READ = slice(0, 30, 3)
"""The held-out tasks whose plans are kept for reading: one of each of the ten families, with all difficulties."""


class Stage:
    """Gives the trainer of one GRPO stage its prompts, rollouts and rewards, and keeps the figures.

    ``best_of``: used for the guard's examples, see ``supervised_batches``.
    """

    def __init__(
        self,
        config: GrpoConfig,
        seed: int,
        situations: Sequence[Situation],
        tokenizer: PreTrainedTokenizerBase,
        record: StageRecord,
        judge: Judge = exact_worth,
        *,
        best_of: int = BEST_OF,
    ) -> None:
        self.config, self.seed, self.record, self.best_of = config, seed, record, best_of
        self.situations, self.tokenizer, self._judge = situations, tokenizer, judge
        self._by_prompt = {each.prompt: each for each in situations}
        self._held_out = held_out_situations(config.held_out, config.pool.most_steps)
        self._legal = LegalPlans(tokenizer, len(tokenizer)) if config.constrained else None
        self._judged: list[Judged] = []
        self._rollouts_before_s = self._reward_s = 0.0
        self._began = time.monotonic()
        self.trainer: ConductorTrainer  # set when it is built

    @property
    def iteration(self) -> int:
        return int(self.trainer.state.global_step) + 1

    def dataset(self) -> Dataset:
        """Returns one row for each prompt, in the order of the iterations."""
        prompts = [each.prompt for each in self.situations]
        return Dataset.from_dict({"prompt": prompts, "number": list(range(len(prompts)))})

    def rollout(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        """Samples completions as TRL's ``rollout_func``; ``prompts`` has one entry for every wanted completion."""
        distinct = prompts[:: self.config.group]
        asked = [self._by_prompt[prompt] for prompt in distinct]
        ids = [self.tokenizer.encode(prompt, add_special_tokens=False) for prompt in distinct]
        found = sample(
            trainer.accelerator.unwrap_model(trainer.model),
            ids,
            self.config.group,
            max_tokens=self.config.max_completion_tokens,
            temperature=self.config.temperature,
            seed=random.Random(f"{self.seed}/{self.record.stage}/{self.iteration}").getrandbits(63),
            bf16=self.config.optimiser.bf16,
            forbid=self._legal.mask(asked, self.config.group) if self._legal else None,
        )
        return {
            "prompt_ids": [each for each in ids for _ in range(self.config.group)],
            "completion_ids": found.completion_ids,
            "logprobs": found.logprobs,
        }

    def reward(self, completions: list[str], number: list[int], **_: Any) -> list[float]:
        """Scores completions as TRL's reward function. ``number``: the number of each completion's situation."""
        began = time.monotonic()
        asked = [self.situations[each] for each in number]
        scored = [
            score(situation, completion, self.config.step_cost, self._judge)
            for situation, completion in zip(asked, completions, strict=True)
        ]
        self._judged += [
            Judged(situation.task.difficulty, each.reward, each.workflow, each.chance)
            for situation, each in zip(asked, scored, strict=True)
        ]
        self._reward_s += time.monotonic() - began
        if self.iteration % self.config.sample_every == 0 or self.iteration == 1:
            # The first plan for each of a few prompts, for reading.
            kept = range(0, len(asked), self.config.group)[:4]
            self.record.add(*(self._sample(self.iteration, asked[at], completions[at], scored[at]) for at in kept))
        return [each.reward for each in scored]

    def _sample(self, iteration: int, asked: Situation, completion: str, scored: Scored) -> Sample:
        return Sample(
            stage=self.record.stage,
            iteration=iteration,
            task=asked.task.question,
            family=asked.task.family,
            difficulty=asked.task.difficulty,
            completion=completion,
            reward=scored.reward,
            chance=scored.chance,
            agents=asked.agents,
        )

    def details(self) -> dict[str, Any]:
        """Returns the fields of the iteration's row that the trainer does not log, and resets them for the next one."""
        trainer, took_s = self.trainer, time.monotonic() - self._began
        rollout_s = trainer.rollout_s - self._rollouts_before_s
        found = figures(self._judged) | {"supervised_loss": trainer.guard_loss}
        found |= trainer_figures(
            trainer._metrics["train"], rollout_s=rollout_s, reward_s=self._reward_s, whole_s=took_s
        )
        self._judged, self._rollouts_before_s, self._reward_s = [], trainer.rollout_s, 0.0
        return found

    def begin(self) -> None:
        self._began = time.monotonic()

    def measure(self, iteration: int, model: Qwen2ForCausalLM) -> None:
        """Adds a held-out row if one is due, with the plans for a few tasks that stay the same, for reading."""
        if iteration % self.config.held_out.every and iteration != self.config.iterations:
            return
        ids = [self.tokenizer.encode(each.prompt, add_special_tokens=False) for each in self._held_out]
        found = sample(
            model,
            ids,
            1,
            max_tokens=self.config.max_completion_tokens,
            temperature=0,
            seed=0,
            bf16=self.config.optimiser.bf16,
            forbid=self._legal.mask(self._held_out, 1) if self._legal else None,
        )
        texts = self.tokenizer.batch_decode(found.completion_ids, skip_special_tokens=True)
        scored = [
            score(situation, text, self.config.step_cost, exact_worth)
            for situation, text in zip(self._held_out, texts, strict=True)
        ]
        tokens = [
            sum(reply.tokens for reply in simulate(situation.task, each.workflow, 0)) if each.workflow else 0
            for situation, each in zip(self._held_out, scored, strict=True)
        ]
        levels = [each.task.difficulty for each in self._held_out]
        chances = [each.chance or 0.0 for each in scored]
        steps = [float(len(each.workflow.steps)) if each.workflow else 0.0 for each in scored]
        self.record.add(
            HeldOut(
                stage=self.record.stage,
                iteration=iteration,
                split=self.config.held_out.split,
                n=len(scored),
                accuracy=fmean(chances),
                accuracy_by_difficulty=by_group(zip(levels, chances, strict=True)),
                steps=fmean(steps),
                steps_by_difficulty=by_group(zip(levels, steps, strict=True)),
                worker_tokens=fmean(tokens),
            ),
            *(self._sample(iteration, self._held_out[at], texts[at], scored[at]) for at in range(len(texts))[_READ]),
        )


class _Clock(TrainerCallback):
    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._stage.begin()


def run(
    config: GrpoConfig,
    seed: int,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    record: StageRecord,
    *,
    best_of: int = BEST_OF,
) -> PreTrainedModel:
    """Trains ``model`` and returns it, in float32.

    The seed and the iteration's number repeat prompts, samples and guard.

    Args:
        best_of: used for the guard's examples, see ``supervised_batches``.
    Raises: BadInput if the model is not a Qwen2 model.
    """
    if not isinstance(model, Qwen2ForCausalLM):
        raise BadInput(f"these stages are for Qwen2 models, not {model.config.model_type}")
    drawn = f"{seed}/{record.stage}"
    recursion = config if isinstance(config, RecursionConfig) else None
    if recursion is not None:
        situations = recursion_situations(recursion, drawn, model, tokenizer)
    else:
        situations = draw_situations(drawn, config.iterations * config.prompts, config.pool)
    if config.optimiser.bf16 and record.cpu:
        attend_in_fp32(model)
    if recursion is not None and record.checkpoint is None:
        teach(model, tokenizer, recursion, drawn, record)
    judge = exact_worth if recursion is None else worth
    stage = Stage(config, seed, situations, tokenizer, record, judge, best_of=best_of)
    trainer = build_trainer(stage, model)
    if record.checkpoint is None:
        stage.measure(0, model)
    continue_training(trainer, record)
    model.set_attn_implementation("sdpa")
    return model


def build_trainer(stage: Stage, model: Qwen2ForCausalLM) -> ConductorTrainer:
    config, record = stage.config, stage.record
    guard = supervised_batches(config, stage.seed, stage.tokenizer, stage.best_of) if config.guard.weight else None
    trainer = ConductorTrainer(
        guard=guard,
        guard_weight=config.guard.weight,
        model=model,
        args=TrlConfig(
            **training_config.grpo(config, seed=stage.seed, cpu=record.cpu),
            output_dir=str(record.work),
            activation_checkpointing=False,
            per_device_train_batch_size=config.group,
            gradient_accumulation_steps=config.prompts,
            steps_per_generation=config.prompts,
            dataloader_pin_memory=False,
        ),
        reward_funcs=[stage.reward],
        train_dataset=stage.dataset(),
        processing_class=stage.tokenizer,
        rollout_func=stage.rollout,
    )
    stage.trainer = trainer
    without_console(trainer)
    trainer.add_callback(_Clock(stage))
    measure = partial(stage.measure, model=model)
    trainer.add_callback(RecordCallback(record, details=stage.details, after=measure))
    return trainer


def supervised_batches(
    config: GrpoConfig, seed: int, tokenizer: PreTrainedTokenizerBase, best_of: int = BEST_OF
) -> Callable[[int], Mapping[str, Any]]:
    """Returns a function from an update's number to a batch of new, whole examples of the corpus, of all kinds of
    tasks. In the recursion stage some of them are inner rounds.

    Args:
        best_of: as for ``plans.examples``. The cold start's value leaves as much to reward as the cold start did.
    """
    guard = config.guard
    collate = LeftPadded(int(tokenizer.pad_token_id))

    def batch(update: int) -> Mapping[str, Any]:
        each_drawn = (draw_example(random.Random(f"{seed}/guard/{update}/{at}"), best_of) for at in itertools.count())
        endless = (each for each in each_drawn if guard.rehearsal or each.task.rehearsal is None)
        drawn = list(itertools.islice(endless, guard.examples))
        if isinstance(config, RecursionConfig):
            for at in range(round(config.guard_inner_share * guard.examples)):
                rng = random.Random(f"{seed}/guard/{update}/{at}/inner")
                drawn[at] = draw_inner_round(rng, config.pool, config.step_cost)
        return collate(example_rows(drawn, tokenizer))

    return batch
