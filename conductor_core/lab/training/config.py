"""Settings of a training, from one TOML file; the checked-in ones lie in ``training/configs``.

A training has up to three stages, in this order, each a table of the file: ``cold_start`` (supervised, from random
weights), ``grpo`` (reinforcement learning), ``recursion`` (a short fine-tune of the same kind, on recursive calls). A
stage that the file does not name is left out; a training without a cold start begins with the weights of ``base``. The
table ``scale`` is for real workers and a model of real size.

``common`` and ``grpo`` translate settings that several stages share into arguments of transformers' and TRL's trainers.
"""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from conductor_core.chat.messages import Price, WorkerSpec
from conductor_core.errors import BadInput
from conductor_core.files import open_regular
from conductor_core.lab.records import why
from conductor_core.lab.records.training import Stage
from conductor_core.providers.model_files import NotToml, read_toml
from conductor_core.workflow.model import Frozen

# The table ``scale``.


class TaskSource(Frozen):
    """Tasks to train on.

    Attributes:
        suite, split: as ``evaluation.suites.load_suite`` takes them.
        count: number of tasks; a smaller suite gives fewer.
    """

    suite: str
    split: str = "train"
    count: int = Field(ge=1)


class WorkersConfig(Frozen):
    """The workers that carry out the workflows, and what they may cost over the whole training.

    Attributes:
        pool: ``paper``, ``rehearsal`` or a pool file.
        params: parameters of every worker; they override those of the pool's file.
        concurrency: workflows that run at once. Each worker's ``max_concurrency`` applies as well.
        step_attempts: calls for one step before the step fails.
        pauses: how often the training waits for a failing pool. pause_s: the first wait; the wait doubles each time.
        max_usd, max_tokens: caps on what the workers cost; None means no cap. The inner Conductor does not count.
        assumed_usd_per_mtok: price of workers without one, until the provider says what a call cost.
        inner_conductor: plans the inner rounds of plans that name the Conductor itself; named as for ``--conductor``.
            None: prompts do not offer the Conductor, and inner rounds are trained only as prompts of their own.
    """

    pool: str = "paper"
    params: Mapping[str, Any] = Field(default_factory=dict)
    concurrency: int = Field(32, ge=1)
    step_attempts: int = Field(3, ge=1, le=10)
    pauses: int = Field(4, ge=0)
    pause_s: float = Field(30.0, ge=0)
    max_usd: float | None = Field(None, ge=0)
    max_tokens: int | None = Field(None, ge=1)
    assumed_usd_per_mtok: Price | None = None
    inner_conductor: str | None = None


class VllmConfig(Frozen):
    """Generation by vLLM, through TRL.

    Attributes:
        mode: ``colocate`` runs vLLM in the training's processes on the same cards; ``server`` on cards of its own.
        url: address of the server.
        memory_share: share of a card's memory for vLLM's weights and cache; only with ``colocate``.
        tensor_parallel: number of cards that share one copy of vLLM's weights; only with ``colocate``.
        sleep: whether vLLM's weights and cache leave the card while the model learns.
    """

    mode: Literal["colocate", "server"] = "colocate"
    url: str = "http://127.0.0.1:8000"
    memory_share: float = Field(0.3, gt=0, lt=1)
    tensor_parallel: int = Field(1, ge=1)
    sleep: bool = False


class ScaleConfig(Frozen):
    """See the module.

    Attributes:
        tasks: shuffled together by the training's seed; each is asked once before any is asked again.
        vllm: None samples with the model's own ``generate``.
        weights: the type in which the optimiser keeps the weights. bfloat16's eight bits lose a step of 1e-6.
        rows_per_device: completions whose gradients are computed at once on one device.
        rows_sampled: completions that the model's own ``generate`` samples at once on one device; vLLM decides itself.
        gradient_checkpointing: activations are computed again in the backward pass instead of being kept.
        wait_for_workers_s: how long the other processes wait for the one that asks the workers.
    """

    tasks: tuple[TaskSource, ...] = Field(min_length=1)
    workers: WorkersConfig = WorkersConfig()
    vllm: VllmConfig | None = None
    weights: Literal["float32", "bfloat16"] = "float32"
    rows_per_device: int = Field(2, ge=1)
    rows_sampled: int = Field(64, ge=1)
    gradient_checkpointing: bool = True
    wait_for_workers_s: int = Field(24 * 3600, ge=60)

    @model_validator(mode="after")
    def _patient_enough(self) -> Self:
        workers = self.workers
        paused_s = workers.pause_s * (2**workers.pauses - 1)
        if paused_s >= self.wait_for_workers_s:
            raise ValueError(
                f"workers: {workers.pauses} pauses from {workers.pause_s:g} s take {paused_s:g} s in all, longer than "
                f"wait_for_workers_s = {self.wait_for_workers_s}"
            )
        return self


CONFIGS = Path(__file__).with_name("configs")
STAGES: tuple[Stage, ...] = ("cold_start", "adapter", "grpo", "recursion")


class ModelShape(Frozen):
    """Sizes of the Qwen2 architecture; embeddings are tied."""

    vocab_size: int = Field(ge=512)
    hidden_size: int = Field(ge=8)
    intermediate_size: int = Field(ge=8)
    num_hidden_layers: int = Field(ge=1)
    num_attention_heads: int = Field(ge=1)
    num_key_value_heads: int = Field(ge=1)
    max_position_embeddings: int = Field(ge=256)


class Optimiser(Frozen):
    """AdamW with a linear warm-up.

    Attributes:
        warmup_share: share of all steps in which the learning rate rises.
        schedule: how the learning rate goes on after the warm-up.
        bf16: whether to train under bfloat16 autocast; the weights themselves stay in float32.
    """

    learning_rate: float = Field(gt=0)
    warmup_share: float = Field(0.03, ge=0, lt=1)
    schedule: Literal["cosine", "constant", "linear"] = "cosine"
    weight_decay: float = Field(0.0, ge=0)
    adam_beta2: float = Field(0.999, gt=0, lt=1)
    max_grad_norm: float = Field(1.0, gt=0)
    bf16: bool = True


BEST_OF = 40
"""How many plans are compared for a rehearsal question, besides the plans that ask one worker alone."""


class ColdStartConfig(Frozen):
    """A supervised cold start.

    Attributes:
        examples: how many are drawn from the corpus; each is seen once.
        best_of: how many plans are compared by reward for each rehearsal question (see ``plans.draw_plan``).
        tokenizer_examples: how many of them the tokenizer is trained on.
        thought_only: share of examples that end after the line of thought (see ``cold_start.example_rows``).
        batch_size: examples in one step. save_every: steps between checkpoints.
        matrix_rate: Muon's learning rate for the hidden matrices; None trains all weights with AdamW. Muon follows the
            optimiser's schedule, decay and clipping; the optimiser's rate and ``adam_beta2`` are for the rest.
    """

    examples: int = Field(ge=1)
    best_of: int = Field(BEST_OF, ge=1)
    tokenizer_examples: int = Field(ge=1)
    thought_only: float = Field(ge=0, lt=1)
    batch_size: int = Field(ge=1)
    save_every: int = Field(200, ge=1)
    matrix_rate: float | None = Field(None, gt=0)
    model: ModelShape
    optimiser: Optimiser

    @property
    def steps(self) -> int:
        return -(-self.examples // self.batch_size)


class AdapterConfig(Frozen):
    """Low-rank matrices beside a published model's weights, which stay as they are (arXiv 2106.09685).

    Attributes:
        hand_written: workflows written by hand that are learned from. held_out: others, for measuring progress.
        epochs: how often each is seen, each time with another pool.
        rehearsal: questions of the rehearsal world, each with the best of all shapes and workers by exact chance.
        rounds: outer and inner rounds of recursion on such questions, with the continuation that is worth most.
        rank, alpha: of the matrices; their product is scaled by ``alpha / rank``.
        batch_size: examples in one step. rows_at_once: those whose gradients are computed at once.
        save_every: steps between checkpoints.
    """

    hand_written: int = Field(ge=1)
    held_out: int = Field(200, ge=1)
    epochs: int = Field(ge=1)
    rehearsal: int = Field(0, ge=0)
    rounds: int = Field(0, ge=0)
    rank: int = Field(ge=1)
    alpha: int = Field(ge=1)
    batch_size: int = Field(ge=1)
    rows_at_once: int = Field(ge=1)
    save_every: int = Field(100, ge=1)
    optimiser: Optimiser

    @property
    def steps(self) -> int:
        return -(-(self.epochs * self.hand_written + self.rehearsal + self.rounds) // self.batch_size)


class PoolDraw(Frozen):
    """Which workers a prompt offers: all, or a random k of n, so that the model learns to do without excluded workers.

    Attributes:
        whole_share: share of prompts that offer all workers.
        least: fewest workers that any other prompt offers.
        full_steps_share: share of prompts that allow ``most_steps``; the others allow 1 to ``most_steps`` - 1.
    """

    whole_share: float = Field(1.0, ge=0, le=1)
    least: int = Field(3, ge=1)
    most_steps: int = Field(5, ge=1)
    full_steps_share: float = Field(1.0, ge=0, le=1)

    def part_of(self, workers: tuple[WorkerSpec, ...], rng: random.Random) -> tuple[WorkerSpec, ...]:
        """Draws some of ``workers``, in their order, but not all if there are several."""
        count = rng.randint(min(self.least, len(workers) - 1), len(workers) - 1)
        return tuple(workers[index] for index in sorted(rng.sample(range(len(workers)), count)))


class Guard(Frozen):
    """The supervised loss that keeps instructions readable and keeps the plans for tasks without a reward.

    Attributes:
        weight: weight of the mean next-token loss, which is added to the policy's loss. 0 leaves the term out.
        examples: how many new examples are drawn from the corpus for every update.
        rehearsal: whether the examples include rehearsal questions. If not, only reward teaches how to plan those.
    """

    weight: float = Field(0.0, ge=0)
    examples: int = Field(8, ge=1)
    rehearsal: bool = True


class HeldOutConfig(Frozen):
    """How progress is measured: by greedy plans for tasks whose seeds no training uses.

    Attributes:
        tasks: number of tasks, spread over families and difficulties.
        every: iterations between measurements. The stage also measures before the first and after the last iteration.
        split: ``train`` has the wordings of the training with other numbers; ``test`` has other wordings too.
    """

    tasks: int = Field(90, ge=1)
    every: int = Field(25, ge=1)
    split: Literal["train", "test"] = "train"


class GrpoConfig(Frozen):
    """Group-relative policy optimisation (arXiv 2402.03300), by TRL's trainer.

    Attributes:
        iterations: each draws ``prompts`` tasks, samples ``group`` plans for each, and makes one update.
        max_completion_tokens: a longer plan is cut off and gets no reward.
        entropy_bonus: weight of the mean entropy over completion tokens.
        scale_advantages: what the advantages are divided by: the spread within a group, within the batch, or nothing.
        loss: TRL's name. ``grpo``: mean over plans of the mean over a plan's tokens. ``dapo``: mean over tokens.
        constrained: whether the grammar of legal plans restricts rollouts (see ``tiny.rollout``).
        save_every: iterations between checkpoints. sample_every: iterations between workflows kept for reading.
        step_cost: what the reward of a plan loses for every step after the first.
    """

    iterations: int = Field(ge=1)
    prompts: int = Field(ge=1)
    group: int = Field(ge=2)
    max_completion_tokens: int = Field(ge=16)
    temperature: float = Field(1.0, gt=0)
    entropy_bonus: float = Field(0.0, ge=0)
    scale_advantages: Literal["group", "batch", "none"] = "group"
    loss: Literal["grpo", "dapo", "bnpo", "dr_grpo"] = "grpo"
    constrained: bool = False
    save_every: int = Field(20, ge=1)
    sample_every: int = Field(10, ge=1)
    optimiser: Optimiser
    step_cost: float = Field(0.0, ge=0, lt=0.5)
    pool: PoolDraw = PoolDraw()
    guard: Guard = Guard()
    held_out: HeldOutConfig = HeldOutConfig()


class RecursionConfig(GrpoConfig):
    """The fine-tune on recursive calls. Its prompts are outer rounds that offer the Conductor itself, and inner rounds.

    Attributes:
        inner_share: share of prompts that are inner rounds; the others are outer rounds that may recurse.
        taught: inner and outer rounds that are shown with their best plan before reward (``tiny.recursion``).
        guard_inner_share: share of the guard's examples that are inner rounds.
    """

    inner_share: float = Field(0.6, ge=0, le=1)
    taught: int = Field(0, ge=0)
    taught_learning_rate: float = Field(5e-4, gt=0)
    guard_inner_share: float = Field(0.0, ge=0, le=1)


class TrainingConfig(Frozen):
    """A whole training.

    Attributes:
        seed: of corpus, weights, tasks and sampling. It repeats a model on the same machine and version of torch.
        threads: of torch.
        device: ``auto`` takes a GPU if there is one.
        base: model folder or hub id to start from, if there is no cold start.
        scale: settings for a model of real size and real workers; None trains on rehearsal tasks by exact reward.
    """

    name: str = Field(min_length=1, max_length=80)
    seed: int = 0
    threads: int = Field(1, ge=1)
    device: Literal["auto", "cpu"] = "cpu"
    base: str | None = None
    cold_start: ColdStartConfig | None = None
    adapter: AdapterConfig | None = None
    grpo: GrpoConfig | None = None
    recursion: RecursionConfig | None = None
    scale: ScaleConfig | None = None

    @model_validator(mode="after")
    def _has_a_beginning(self) -> Self:
        if not self.stages:
            raise ValueError("no stage given; add a table [cold_start], [grpo] or [recursion]")
        if self.cold_start is not None and self.base is not None:
            raise ValueError("base: a cold start begins with random weights; leave out one of the two")
        return self

    @property
    def best_of(self) -> int:
        """Returns the cold start's ``best_of``. The guard's examples use it too, and so leave as much to reward."""
        return BEST_OF if self.cold_start is None else self.cold_start.best_of

    @property
    def stages(self) -> tuple[Stage, ...]:
        return tuple(stage for stage in STAGES if getattr(self, stage) is not None)

    def iterations_of(self, stage: Stage) -> int:
        """Returns the number of iterations of a stage; for a cold start, its optimiser steps. Raises: ValueError."""
        if stage == "cold_start" and self.cold_start is not None:
            return self.cold_start.steps
        if stage == "adapter" and self.adapter is not None:
            return self.adapter.steps
        return self.grpo_of(stage).iterations

    def grpo_of(self, stage: Stage) -> GrpoConfig:
        """Returns the settings of a stage of reinforcement learning. Raises: ValueError if there is no such stage."""
        found = self.recursion if stage == "recursion" else self.grpo
        if found is None:
            raise ValueError(f"unknown stage {stage}")
        return found


def read_config(ref: str) -> TrainingConfig:
    """Reads a TOML file, or a checked-in config by its name. Raises: BadInput naming the file and the field."""
    path = Path(ref) if ref.endswith(".toml") else CONFIGS / f"{ref}.toml"
    try:
        with open_regular(path) as file:
            text = file.read().decode("utf-8-sig")
        return TrainingConfig.model_validate(read_toml(text))
    except OSError as error:
        checked_in = ", ".join(sorted(each.stem for each in CONFIGS.glob("*.toml")))
        raise BadInput(f"{path}: {error.strerror or error}; checked-in configs: {checked_in}") from error
    except NotToml as error:
        raise BadInput(f"{path} is not TOML: {error.place}{error.what}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not TOML: {error}") from error
    except ValidationError as error:
        raise BadInput(f"{path}: {why(error)}") from error


# Arguments of trainers.


def common(optimiser: Optimiser, *, seed: int, steps: int, cpu: bool) -> dict[str, Any]:
    """Returns arguments of any trainer: optimiser and checkpoints, with no console lines and no reports to servers."""
    return {
        "use_cpu": cpu,
        "seed": seed,
        "max_steps": steps,
        "bf16": optimiser.bf16,
        "learning_rate": optimiser.learning_rate,
        "lr_scheduler_type": "constant_with_warmup" if optimiser.schedule == "constant" else optimiser.schedule,
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
    return common(config.optimiser, seed=seed, steps=config.iterations, cpu=cpu) | {
        "num_generations": config.group,
        "max_completion_length": config.max_completion_tokens,
        "temperature": config.temperature,
        "beta": 0.0,  # no reference model
        "loss_type": config.loss,
        "scale_rewards": config.scale_advantages,
        "entropy_coef": config.entropy_bonus,
        "shuffle_dataset": False,
        "logging_steps": 1,
        "save_steps": config.save_every,
    }
