"""Writes the record of a training (its beginning, each stage's figures, its end) and shows lines of progress."""

import platform
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any, NamedTuple

import torch
from transformers import TrainerCallback

from conductor_core.errors import BadInput
from conductor_core.lab.records import by_group, now, weights_sha256
from conductor_core.lab.records.training import Ended, HeldOut, Iteration, Row, Stage, Started, append, read_record
from conductor_core.lab.training.config import TrainingConfig
from conductor_core.lab.training.folder import drop_rows_after, latest_checkpoint, replan_stages, step_of, writing
from conductor_core.rehearsal import DIFFICULTIES
from conductor_core.workflow.model import Workflow
from conductor_core.workflow.topology import topology

# Figures of one iteration's rollouts, as fields of ``records.training.Iteration``.


class Judged(NamedTuple):
    """A rollout with its reward.

    Attributes:
        difficulty: difficulty of its task, "" if unknown.
        workflow: None if the completion holds no valid workflow; ``right`` does not count then.
        right: the chance of a right answer, or 0 or 1 if the workflow was carried out.
    """

    difficulty: str
    reward: float
    workflow: Workflow | None = None
    right: float | None = None


def figures(judged: Sequence[Judged]) -> dict[str, Any]:
    """Returns means over all rollouts and over those with a valid workflow; empty if there are no rollouts."""
    if not judged:
        return {}
    rewards = [each.reward for each in judged]
    valid = [
        (each.difficulty, each.workflow, each.right)
        for each in judged
        if each.workflow is not None and each.right is not None
    ]
    found: dict[str, Any] = {
        "reward": fmean(rewards),
        "reward_spread": pstdev(rewards),
        "format_rate": len(valid) / len(rewards),
    }
    if valid:
        agents = Counter(step.agent for _, workflow, _ in valid for step in workflow.steps)
        shapes = Counter(topology(workflow) for _, workflow, _ in valid)
        found |= {
            "accuracy": fmean(right for _, _, right in valid),
            "accuracy_by_difficulty": by_group((level, right) for level, _, right in valid),
            "steps": fmean(len(workflow.steps) for _, workflow, _ in valid),
            "steps_by_difficulty": by_group((level, len(workflow.steps)) for level, workflow, _ in valid),
            "topology_share": {name: count / len(valid) for name, count in sorted(shapes.items())},
            "agent_share": {name: count / agents.total() for name, count in sorted(agents.items())},
        }
    return found


def trainer_figures(
    metrics: Mapping[str, Sequence[float]], *, rollout_s: float, reward_s: float, whole_s: float
) -> dict[str, float | None]:
    """Returns what TRL's trainer knows of an iteration. ``whole_s``: seconds of its rollouts, rewards and updates."""
    # A metric has one value for each micro-batch or one for all; the mean is right in both cases.
    known = {name: fmean(values) for name, values in metrics.items() if values}
    return {
        "entropy": known.get("entropy"),
        "completion_tokens": known.get("completions/mean_length"),
        "clipped_share": known.get("completions/clipped_ratio"),
        "rollout_s": round(rollout_s, 3),
        "reward_s": round(reward_s, 3),
        "update_s": round(max(0.0, whole_s - rollout_s - reward_s), 3),
    }


Show = Callable[[str], None]
"""Takes one line of progress."""


@dataclass
class StageRecord:
    """One stage's place in the record of a training.

    Attributes:
        planned: planned iterations of the stage.
        cpu: whether it is trained on the processor.
        checkpoint: the one that it continues from.
        before_s: seconds that the stage took before it was interrupted.
    """

    folder: Path
    stage: Stage
    planned: int
    show: Show
    cpu: bool = True
    checkpoint: Path | None = None
    before_s: float = 0.0
    began: float = field(default_factory=time.monotonic)
    resumed_from: tuple[int, float] | None = None
    """The last iteration before this process, and the time when this process's trainer began, after its preparation."""

    @property
    def seconds(self) -> float:
        return round(self.before_s + time.monotonic() - self.began, 2)

    @property
    def work(self) -> Path:
        """Returns the folder of the stage's checkpoints."""
        return self.folder / "stages" / f"{self.stage}.checkpoints"

    def resume(self, before: tuple[Stage, ...], *, rounds: int = 0) -> None:
        """Finds the last checkpoint, drops the rows after it, and counts the stage's time on from its last row.

        ``rounds``: lessons to keep, see ``drop_rows_after``. Raises: BadInput.
        """
        with writing(self.work):
            self.work.mkdir(parents=True, exist_ok=True)
        self.checkpoint = latest_checkpoint(self.work)
        reached = step_of(self.checkpoint) if self.checkpoint else -1
        drop_rows_after(self.folder, before, self.stage, reached, rounds=rounds)
        read = read_record(self.folder)
        earlier, taught = read.iterations(self.stage), [row for row in read.taught() if row.stage == self.stage]
        if earlier:
            self.before_s = earlier[-1].seconds
        elif taught:
            self.before_s = taught[-1].seconds

    def add(self, *rows: Row) -> None:
        """Appends rows and shows a line for each figure. Raises: BadInput if the record cannot be written."""
        with writing(self.folder):
            append(self.folder, *rows)
        for row in rows:
            if isinstance(row, Iteration):
                self.show(self._line(row))
            elif isinstance(row, HeldOut):
                levels = ", ".join(
                    f"{level} {row.accuracy_by_difficulty[level]:.2f} in {row.steps_by_difficulty[level]:.1f} steps"
                    for level in DIFFICULTIES
                    if level in row.accuracy_by_difficulty
                )
                self.show(f"{self.stage} held out: {row.accuracy:.3f} right ({levels})")

    def _line(self, row: Iteration) -> str:
        said = [f"{self.stage} {row.iteration} of {self.planned}"]
        named = {
            "loss": row.loss,
            "supervised": row.supervised_loss,
            "reward": row.reward,
            "format": row.format_rate,
            "right": row.accuracy,
            "steps": row.steps,
            "entropy": row.entropy,
        }
        said += [f"{name} {value:.3f}" for name, value in named.items() if value is not None]
        return " · ".join([*said, self._time_left(row.iteration)])

    def _time_left(self, iteration: int) -> str:
        """Estimates the time left from the pace since this process took up the stage."""
        before, began = self.resumed_from or (0, self.began)
        each = (time.monotonic() - began) / max(1, iteration - before)
        left_s = each * (self.planned - iteration)
        return f"{each:.1f} s each, {in_words(left_s)}" if left_s >= 90 else in_words(left_s)


def in_words(left_s: float) -> str:
    return f"about {left_s / 60:.0f} min left" if left_s >= 90 else f"about {left_s:.0f} s left"


class RecordCallback(TrainerCallback):
    """Turns each log of a trainer into an ``Iteration`` row.

    Args:
        details: returns further fields of the row; called once for each row.
        after: called with the iteration's number after its row is written and before a checkpoint is written.
    """

    def __init__(
        self,
        record: StageRecord,
        *,
        details: Callable[[], dict[str, Any]] = dict,
        after: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._record, self._details, self._after = record, details, after

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._record.resumed_from = (state.global_step, time.monotonic())

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        logs = logs or {}
        if "loss" not in logs:
            return  # the trainer's summary at its end
        iteration = state.global_step
        self._record.add(
            Iteration(
                stage=self._record.stage,
                iteration=iteration,
                seconds=self._record.seconds,
                loss=logs["loss"],
                learning_rate=logs.get("learning_rate"),
                grad_norm=logs.get("grad_norm"),
                **self._details(),
            )
        )
        self._after(iteration)


def without_console(trainer: Any) -> None:
    """Removes the trainer's own console lines; a ``RecordCallback`` replaces them."""
    for each in list(trainer.callback_handler.callbacks):
        if type(each).__name__ in ("PrinterCallback", "ProgressCallback"):
            trainer.remove_callback(each)


def continue_training(trainer: Any, record: StageRecord) -> None:
    trainer.train(resume_from_checkpoint=str(record.checkpoint) if record.checkpoint else None)


@dataclass(frozen=True)
class Trained:
    """The result of a training.

    Attributes:
        stage: the last finished stage.
        seconds: time of all stages, without the pauses before resuming.
        iteration: the last iteration of that stage. held_out: the last measurement on held-out tasks.
    """

    folder: Path
    sha256: str
    stage: Stage
    seconds: float
    iteration: Iteration | None = None
    held_out: HeldOut | None = None


def machine(config: TrainingConfig) -> str:
    """Returns the card or the processor, the threads and the version of torch: a curve belongs to them."""
    device = "cpu"
    if config.device == "auto" and torch.cuda.is_available():
        device = torch.cuda.get_device_name()
    processor = platform.processor() or platform.machine()
    return f"{device if device != 'cpu' else processor}, {config.threads} threads, torch {torch.__version__}"


def stages_until(config: TrainingConfig, stages: tuple[Stage, ...], last: Stage | None) -> tuple[Stage, ...]:
    """Returns ``stages`` up to ``last``, or all if ``last`` is None. Raises: BadInput if ``last`` is not among them."""
    if last is None:
        return stages
    if last not in stages:
        raise BadInput(f"config {config.name} has no stage {last} to stop after; it has {', '.join(stages)}")
    return stages[: stages.index(last) + 1]


def begin(
    config: TrainingConfig,
    out: Path,
    stages: tuple[Stage, ...],
    start: str,
    resume: bool,
    *,
    same: Callable[[Started, TrainingConfig], bool] = lambda started, config: (
        dict(started.config) == config.model_dump(mode="json")
    ),
    simulated: bool,
    machine: str,
    agents: tuple[str, ...],
) -> None:
    """Begins a record in ``out``, or continues the one there.

    Args:
        start: result of ``folder.begun_with``; empty for a cold start.
        same: says whether a record belongs to a configuration.

    Raises: BadInput if the record belongs to another training, or cannot be written.
    """
    planned = {stage: config.iterations_of(stage) for stage in config.stages}
    if resume:
        started = read_record(out).started
        if started is None or not same(started, config):
            raise BadInput(
                f"{out} holds a training of another config or seed: give the config and seed that it began with"
            )
        if started.started_from != start:
            was, given = started.started_from or "a cold start", start or "a cold start"
            do = f"add --from {was}" if started.started_from else "leave out --from"
            raise BadInput(
                f"{out} holds a training that began with {was}, not with {given}: {do}, or name another folder"
            )
        replan_stages(out, planned, stages, start)
        return
    row = Started(
        name=config.name,
        at=now(),
        seed=config.seed,
        config=config.model_dump(mode="json"),
        simulated=simulated,
        machine=machine,
        agents=agents,
        planned={stage: planned[stage] for stage in stages},
        started_from=start,
    )
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        append(out, row)


def end(out: Path, stages: tuple[Stage, ...]) -> Trained:
    """Writes the last row of the record and returns the result. Raises: BadInput if the record cannot be written."""
    record = read_record(out)
    seconds, iterations, held_out = record.seconds(stages), record.iterations(stages[-1]), record.held_out()
    sha256 = weights_sha256(out)
    with writing(out):
        append(out, Ended(at=now(), seconds=seconds, model=str(out), sha256=sha256))
    last = iterations[-1] if iterations else None
    return Trained(out, sha256, stages[-1], seconds, last, held_out[-1] if held_out else None)
