"""Settings of a training with real workers and a model of real size: the table ``scale`` of a training's file."""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from conductor_core.chat import Price
from conductor_core.workflow.model import Frozen


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
