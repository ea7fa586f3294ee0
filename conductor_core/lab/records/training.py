"""The record of a training run: a folder with ``record.jsonl``, to which training appends one row a line.

A resumed run first drops the rows after its checkpoint, so that no iteration is there twice.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, TypeAdapter

from conductor_core.lab.records import Finite, append_lines, read_rows
from conductor_core.workflow.model import Frozen

RECORD = "record.jsonl"

Stage = Literal["cold_start", "adapter", "grpo", "recursion"]


def _finite_or_none(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


Figure = Annotated[float | None, BeforeValidator(_finite_or_none)]
"""An optional figure. Infinity and NaN become None: a loss that is not a number must not end its training."""


class Started(Frozen):
    """The first row: what was asked for.

    Attributes:
        config: the whole configuration, as written in its file.
        simulated: whether the workers that gave the reward are simulated.
        machine: processor or card, threads, version of torch: a curve belongs to the machine it was measured on.
        agents: names by ordinal, as the Conductor's completions number them.
        planned: how many iterations each stage is to have, in order. It is rewritten when the training continues.
        started_from: model folder or hub id that it began with; empty for a cold start; None in older records.
    """

    kind: Literal["started"] = "started"
    name: str
    at: str
    seed: int
    config: Mapping[str, Any]
    simulated: bool
    machine: str
    agents: tuple[str, ...] = ()
    planned: Mapping[Stage, int] = Field(default_factory=dict)
    started_from: str | None = None


class Iteration(Finite):
    """Figures of one optimiser step (cold start) or one GRPO iteration. Those that a stage lacks are None.

    Attributes:
        iteration: counted from 1 within its stage.
        seconds: since the stage began, without pauses between resumed parts.
        loss: as optimised. supervised_loss: of the term that guards the wording.
        reward: mean over rollouts, as the trainer saw it. format_rate: share that parses and validates.
        accuracy: mean chance (exact) or share (sampled) of a right answer over valid rollouts.
        steps: mean length of valid workflows; by difficulty in ``steps_by_difficulty``.
        entropy: mean over completion tokens, in nats.
        agent_share: share of steps given to each agent, by name.
        rollout_s, reward_s, update_s: the seconds that these parts of an iteration took.
    """

    kind: Literal["iteration"] = "iteration"
    stage: Stage
    iteration: int
    seconds: float
    loss: Figure = None
    supervised_loss: Figure = None
    learning_rate: Figure = None
    grad_norm: Figure = None
    reward: Figure = None
    reward_spread: Figure = None
    format_rate: Figure = None
    accuracy: Figure = None
    accuracy_by_difficulty: Mapping[str, float] = Field(default_factory=dict)
    steps: Figure = None
    steps_by_difficulty: Mapping[str, float] = Field(default_factory=dict)
    topology_share: Mapping[str, float] = Field(default_factory=dict)
    agent_share: Mapping[str, float] = Field(default_factory=dict)
    completion_tokens: Figure = None
    clipped_share: Figure = None
    entropy: Figure = None
    rollout_s: Figure = None
    reward_s: Figure = None
    update_s: Figure = None


class HeldOut(Finite):
    """Figures of greedy plans, held to the grammar, for held-out tasks, measured between iterations."""

    kind: Literal["held_out"] = "held_out"
    stage: Stage
    iteration: int
    split: str
    n: int
    accuracy: float
    accuracy_by_difficulty: Mapping[str, float] = Field(default_factory=dict)
    steps: float
    steps_by_difficulty: Mapping[str, float] = Field(default_factory=dict)
    worker_tokens: Figure = None


class Sample(Finite):
    """A workflow written during training, so that early and late ones can be compared.

    Attributes:
        agents: names by ordinal for this completion, None for an empty role. If empty, the run's agents hold.
    """

    kind: Literal["sample"] = "sample"
    stage: Stage
    iteration: int
    task: str
    family: str
    difficulty: str
    completion: str
    reward: float
    chance: Figure = None
    agents: tuple[str | None, ...] = ()


class Taught(Finite):
    """Progress of the lessons with which a recursion stage begins.

    Attributes:
        rounds, planned: shown so far, and in all. seconds: as in ``Iteration``.
        loss: mean since the row before; None where that is not a number.
    """

    kind: Literal["taught"] = "taught"
    stage: Stage
    rounds: int = Field(ge=1)
    planned: int = Field(ge=1)
    seconds: float
    loss: Figure = None


class Ended(Finite):
    """The last row of a run that came to its end.

    Attributes:
        seconds: of all its stages, without pauses between resumed parts.
        model: folder of the trained weights. sha256: of its ``model.safetensors`` or ``adapter.gguf``.
    """

    kind: Literal["ended"] = "ended"
    at: str
    seconds: float
    model: str
    sha256: str


Row = Annotated[Started | Iteration | HeldOut | Sample | Taught | Ended, Field(discriminator="kind")]
_ROW: TypeAdapter[Row] = TypeAdapter(Row)


@dataclass(frozen=True)
class TrainingRecord:
    """A record as read. ``broken`` says what is wrong with the lines that were left out."""

    folder: Path
    rows: tuple[Row, ...]
    broken: tuple[str, ...] = ()

    @property
    def started(self) -> Started | None:
        return next((row for row in self.rows if isinstance(row, Started)), None)

    @property
    def ended(self) -> Ended | None:
        return next((row for row in reversed(self.rows) if isinstance(row, Ended)), None)

    def iterations(self, stage: Stage | None = None) -> tuple[Iteration, ...]:
        return tuple(row for row in self.rows if isinstance(row, Iteration) and stage in (None, row.stage))

    def taught(self) -> tuple[Taught, ...]:
        return tuple(row for row in self.rows if isinstance(row, Taught))

    def seconds(self, stages: Iterable[Stage]) -> float:
        """Returns the seconds of ``stages`` together, each until its last iteration, without pauses."""
        return round(sum(done[-1].seconds for stage in stages if (done := self.iterations(stage))), 1)

    def held_out(self) -> tuple[HeldOut, ...]:
        return tuple(row for row in self.rows if isinstance(row, HeldOut))

    def samples(self) -> tuple[Sample, ...]:
        return tuple(row for row in self.rows if isinstance(row, Sample))


def append(folder: Path, *rows: Row) -> None:
    """Adds rows to the record. Raises: OSError."""
    append_lines(folder / RECORD, *rows)


def read_record(folder: Path, *, lenient: bool = False) -> TrainingRecord:
    """Reads the record in ``folder``, without a last line that is still being written.

    ``lenient``: whether to leave out lines that are no rows, and to report them in ``broken``.

    Raises: BadInput, which names the file, and the line that is no row.
    """
    broken: list[str] = []
    rows = tuple(
        read_rows(folder / RECORD, _ROW.validate_json, "row of a training record", broken if lenient else None)
    )
    return TrainingRecord(folder, rows, tuple(broken))
