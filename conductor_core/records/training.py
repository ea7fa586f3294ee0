"""The record of a training run: a folder with ``record.jsonl``, one row a line, appended as training goes.

A resumed run first drops the rows after the checkpoint that it continues from, so that no iteration stands twice.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, TypeAdapter

from conductor_core.records import Finite, append_lines, read_rows
from conductor_core.workflow.model import Frozen

RECORD = "record.jsonl"

Stage = Literal["cold_start", "grpo", "recursion"]


def _finite_or_none(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


Figure = Annotated[float | None, BeforeValidator(_finite_or_none)]
"""What a row may do without. A loss that is no number is left out: it must not end the training that it belongs to."""


class Started(Frozen):
    """The first row: what was asked for.

    Attributes:
        config: the whole configuration, as written in its file.
        simulated: whether the workers that gave the reward are simulated.
        machine: processor or card, threads, version of torch: a curve belongs to the machine it was measured on.
        agents: names by ordinal, as the Conductor's completions number them.
        planned: how many iterations each stage is to have, in order; a reader can then tell what is left.
            Written anew when the training is gone on with.
        started_from: model folder or hub id that it began with; empty: none, it has a cold start; None: the record
            is older than this.
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
    """Figures of one optimiser step (cold start) or one GRPO iteration. What a stage does not have is None.

    Attributes:
        iteration: counted from 1 within its stage.
        seconds: since the stage began, pauses between resumed parts left out.
        loss: as optimised. supervised_loss: of the term that guards the wording.
        reward: mean over rollouts, as the trainer saw it. format_rate: share that parses and validates.
        accuracy: mean chance (exact) or share (sampled) of a right answer over valid rollouts.
        steps: mean length of valid workflows; by difficulty in ``steps_by_difficulty``.
        entropy: mean over completion tokens, in nats.
        agent_share: share of steps given to each agent, by name.
        rollout_s, reward_s, update_s: where an iteration's time went.
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
    """Greedy, grammar-held plans for held-out tasks, measured between iterations."""

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
    """A workflow written during training, so that early ones can be read beside late ones.

    Attributes:
        agents: names by ordinal for this completion, None for a seat that was empty; none at all: the run's.
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
    """How far the lessons are that a recursion stage begins with.

    Attributes:
        rounds, planned: shown so far, and in all. seconds: as of an iteration. loss: mean since the row before; None
            where that is no number.
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
        seconds: of all its stages, pauses between resumed parts left out.
        model: folder of the trained weights. sha256: of its ``model.safetensors``.
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
    """A record as read. ``broken``: what is wrong with the lines that were left out."""

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
        """What ``stages`` took together, each until its last iteration; pauses between resumed parts left out."""
        return round(sum(done[-1].seconds for stage in stages if (done := self.iterations(stage))), 1)

    def held_out(self) -> tuple[HeldOut, ...]:
        return tuple(row for row in self.rows if isinstance(row, HeldOut))

    def samples(self) -> tuple[Sample, ...]:
        return tuple(row for row in self.rows if isinstance(row, Sample))


def append(folder: Path, *rows: Row) -> None:
    """Adds rows, whole lines at once. Raises: OSError."""
    append_lines(folder / RECORD, *rows)


def read_record(folder: Path, *, lenient: bool = False) -> TrainingRecord:
    """The record in ``folder``. A last line that is still being written is left out.

    Args:
        lenient: whether lines that are no rows are left out and told in ``broken``.

    Raises: BadInput naming the file, and the line that is no row.
    """
    broken: list[str] = []
    rows = tuple(
        read_rows(folder / RECORD, _ROW.validate_json, "row of a training record", broken if lenient else None)
    )
    return TrainingRecord(folder, rows, tuple(broken))
