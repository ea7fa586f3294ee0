"""Trains a model of real size with real workers: stages, processes, checkpoints, and what stays when it stops.

    accelerate launch -m conductor_core train qwen2.5-7b-grpo --out FOLDER

Each process loads the model and samples its part of the plans; the main one alone asks the workers, writes the record
and the model folder. ``docs/research/training-at-scale.md`` has the commands and the arithmetic of memory.
"""

import json
import random
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from accelerate import PartialState
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils.logging import disable_progress_bar
from trl.import_utils import is_vllm_available

from conductor_core.chat.messages import ParentPlan
from conductor_core.conductors.catalogue import open_conductor
from conductor_core.engine.budgets import CostCap
from conductor_core.engine.pools import Pool, open_pool
from conductor_core.errors import BadInput, InspectorError
from conductor_core.lab.records.training import Sample, Stage
from conductor_core.lab.training.checkpoint import latest_checkpoint, show_disk_needs, writing
from conductor_core.lab.training.config import (
    GrpoConfig,
    RecursionConfig,
    Reward,
    ScaleConfig,
    TrainingConfig,
    WorkersConfig,
)
from conductor_core.lab.training.figures import Judged, figures
from conductor_core.lab.training.folder import begun_with, weights_sha256
from conductor_core.lab.training.recorder import (
    RecordCallback,
    Show,
    StageRecord,
    Trained,
    end,
    stages_until,
    without_console,
)
from conductor_core.lab.training.scale.prompts import (
    Parents,
    PromptedTask,
    draw_prompts,
    find_parents,
    left_out,
    load_tasks,
)
from conductor_core.lab.training.scale.record import begin_record
from conductor_core.lab.training.scale.trainer import ScaleTrainer, StoppedElsewhere, arguments
from conductor_core.lab.training.scale.worker_reward import Patience, WorkerReward, WorkerScore
from conductor_core.lab.training.scale.workers import AnswerCache
from conductor_core.run.events import EventSink
from conductor_core.settings import Settings

ANSWERS = "answers.sqlite3"
"""File name of the workers' answers in the output folder."""

PARENTS = "parents.json"

_WITHOUT_EFFECT = ("constrained", "held_out", "taught", "taught_learning_rate", "guard_inner_share")


class StageEnded(InspectorError):
    """A stage is finished, and the next one needs a process of its own."""


def train(
    config: TrainingConfig,
    out: Path,
    settings: Settings,
    *,
    resume: bool = False,
    stop_after: Stage | None = None,
    start_from: str | None = None,
    sink: EventSink | None = None,
    show: Show = lambda _: None,
) -> Trained:
    """Runs the stages of ``config`` and writes the model folder to ``out``. Every process of a launch calls it. The
    caller must hold the lock of ``out``.

    Args:
        start_from: model folder or hub id in place of the config's ``base``.
        sink: where the rollouts' runs are logged; None logs nothing.

    Raises: BadInput; CostCapReached, WorkerPoolFailed and StageEnded, which keep all finished work for ``resume``.
    """
    scale, stages, start = _checked(config, stop_after, start_from)
    state = PartialState(cpu=config.device == "cpu", timeout=timedelta(seconds=scale.wait_for_workers_s))
    torch.set_num_threads(config.threads)
    disable_progress_bar()  # type: ignore[no-untyped-call]  # untyped in transformers
    tasks = load_tasks(scale.tasks, config.seed)
    with ExitStack() as stack:
        main = None
        if state.is_main_process:
            main = stack.enter_context(_opened(config, scale, out, stages, start, settings, sink, show, resume=resume))
        state.wait_for_everyone()
        pool = main.pool if main else _pool(scale.workers, settings)
        for index, stage in enumerate(stages):
            asked = _prompts(config, stage, tasks, pool, out, main)
            weights = out / "stages" / stage
            if not (weights / "config.json").is_file():
                state.wait_for_everyone()
                from_folder = str(out / "stages" / stages[index - 1]) if index else start
                _run_stage(config, scale, stages[:index], stage, from_folder, asked, out, main, show)
                state.wait_for_everyone()
                _leave(scale, stages[index:], on_main=main is not None)
            state.wait_for_everyone()
        if main is None:
            return Trained(out, "", stages[-1], 0.0)
        _publish(out / "stages" / stages[-1], out)
        return end(out, stages, weights_sha256(out))


def _checked(
    config: TrainingConfig, stop_after: Stage | None, start_from: str | None
) -> tuple[ScaleConfig, tuple[Stage, ...], str]:
    """Returns the table ``scale``, the stages to run, and the model to begin with. Raises: BadInput."""
    start = start_from or config.base
    if config.scale is None or config.cold_start is not None:
        raise BadInput(f"config {config.name} needs the table scale, and no cold start")
    if start is None:
        raise BadInput(f"config {config.name} names no base model: name one to begin with (--from)")
    stages = stages_until(config, config.stages, stop_after)
    for stage in stages:
        grpo = config.grpo_of(stage)
        if grpo.rollout != "trl" or grpo.reward != Reward(kind="sampled") or grpo.guard.weight:
            raise BadInput(
                f'config {config.name}, {stage}: with the table scale, rollout is "trl", reward.kind is "sampled", a '
                "step costs nothing and no guard is set"
            )
        if ignored := _ignored(grpo):
            raise BadInput(
                f"config {config.name}, {stage}: with the table scale these have no effect, leave them out: "
                f"{', '.join(ignored)}"
            )
    if config.scale.vllm is not None and not is_vllm_available():
        raise BadInput(
            f"config {config.name} samples with vLLM, which is not installed here: "
            "docs/research/training-at-scale.md says how, and --dry-run shows every other part"
        )
    return config.scale, stages, start


def _ignored(grpo: GrpoConfig) -> list[str]:
    """Returns the names of settings that are set in the config but not used by this training."""
    fields = type(grpo).model_fields
    ignored = [name for name in _WITHOUT_EFFECT if name in fields and getattr(grpo, name) != fields[name].default]
    return ignored + (["pool.full_steps_share"] if grpo.pool.full_steps_share != 1.0 else [])


def _leave(scale: ScaleConfig, stages: tuple[Stage, ...], *, on_main: bool) -> None:
    """Ends a process that holds vLLM after the first of ``stages``: it cannot start vLLM again. Raises: StageEnded."""
    if len(stages) == 1 or scale.vllm is None or scale.vllm.mode != "colocate":
        return
    if not on_main:
        raise SystemExit(0)
    raise StageEnded(
        f"{stages[0]} is finished; {stages[1]} needs processes of its own, for vLLM is in these until they end: start "
        "the same command with --resume"
    )


@contextmanager
def _opened(
    config: TrainingConfig,
    scale: ScaleConfig,
    out: Path,
    stages: tuple[Stage, ...],
    start: str,
    settings: Settings,
    sink: EventSink | None,
    show: Show,
    *,
    resume: bool,
) -> Iterator[WorkerReward]:
    """Opens what only the main process has: the record, the file of answers, and the workers."""
    workers = scale.workers
    pool = _pool(workers, settings)
    begin_record(config, out, stages, begun_with(start), pool, resume=resume)
    # Shown before the first stage is paid for, because the planner of inner rounds cannot change on resuming.
    if "recursion" in stages and (why := left_out(config)):
        show(f"left out: {why}")
    with closing(AnswerCache(out / ANSWERS)) as cache:
        spent = cache.spent()
        if spent.answered or spent.broken_off:
            lost = f" and {spent.broken_off} calls that broke off, at their most" if spent.broken_off else ""
            paid = f"{spent.usd:.4f} USD, {spent.tokens} tokens"
            show(f"{spent.answered} answers of workers are kept from before{lost}: {paid}")
        cap = CostCap(
            spent,
            max_usd=workers.max_usd,
            max_tokens=workers.max_tokens,
            assumed_price=workers.assumed_usd_per_mtok,
            or_else=", or assumed_usd_per_mtok in the training's configuration",
        )
        inner = workers.inner_conductor
        own = settings.model_copy(update={"step_attempts": workers.step_attempts})
        conductor = None if inner is None else open_conductor(inner, own)
        patience = Patience(workers.concurrency, workers.pauses, workers.pause_s)
        with closing(
            WorkerReward(pool, cache, cap, own, sink=sink, conductor=conductor, patience=patience, report=show)
        ) as reward:
            yield reward


def _pool(workers: WorkersConfig, settings: Settings) -> Pool:
    pool = open_pool(workers.pool, settings)
    return pool.with_params(dict.fromkeys(pool.workers, workers.params), settings) if workers.params else pool


def _prompts(
    config: TrainingConfig, stage: Stage, tasks: Sequence[Any], pool: Pool, out: Path, main: WorkerReward | None
) -> list[PromptedTask]:
    """Returns the same prompts on every process: a file fixes those of inner rounds when the stage begins."""
    grpo, workers = config.grpo_of(stage), pool.specs
    if not isinstance(grpo, RecursionConfig):
        return draw_prompts(grpo, tasks, workers, config.seed)
    path = out / PARENTS
    if main is not None and not path.exists():
        found = find_parents(main.cache, tasks)
        with writing(out):
            new = path.with_suffix(".new")
            new.write_text(json.dumps({key: [each.model_dump() for each in found[key]] for key in found}))
            new.replace(path)
    PartialState().wait_for_everyone()
    read: dict[str, list[dict[str, str]]] = json.loads(path.read_text(encoding="utf-8"))
    parents: Parents = {key: tuple(ParentPlan(**each) for each in value) for key, value in read.items()}
    may_recurse = config.scale is not None and config.scale.workers.inner_conductor is not None
    return draw_prompts(grpo, tasks, workers, config.seed, parents=parents, may_recurse=may_recurse)


class _Scorer:
    """Computes rewards for the trainer, and the figures and samples of each iteration."""

    def __init__(
        self, reward: WorkerReward, asked: Sequence[PromptedTask], record: StageRecord, config: GrpoConfig
    ) -> None:
        self._reward, self._asked, self._record, self._config = reward, asked, record, config
        self._last: list[tuple[PromptedTask, str, WorkerScore]] = []

    def __call__(self, numbers: Sequence[int], completions: Sequence[str]) -> list[float]:
        asked = [self._asked[number] for number in numbers]
        rollouts = [each.rollout(completion) for each, completion in zip(asked, completions, strict=True)]
        scored = self._reward.score(rollouts)
        self._last = list(zip(asked, completions, scored, strict=True))
        return [each.reward for each in scored]

    def details(self, trainer: ScaleTrainer) -> dict[str, Any]:
        """Returns the figures of the last iteration, as fields of its row."""
        judged = [
            Judged(each.task.difficulty, scored.reward, scored.workflow, float(scored.right))
            for each, _, scored in self._last
        ]
        return figures(judged) | trainer.figures()

    def keep_samples(self, iteration: int) -> None:
        """Keeps one plan of each prompt of some iterations; the iteration's number decides which plan."""
        if not self._last or (iteration - 1) % self._config.sample_every:
            return
        rng = random.Random(iteration)
        by_task: dict[str, list[tuple[PromptedTask, str, WorkerScore]]] = {}
        for each in self._last:
            by_task.setdefault(each[0].task.task_id, []).append(each)
        for of_task in by_task.values():
            asked, completion, scored = rng.choice(of_task)
            self._record.add(
                Sample(
                    stage=self._record.stage,
                    iteration=iteration,
                    task=asked.task.question,
                    family=asked.task.family,
                    difficulty=asked.task.difficulty,
                    completion=completion,
                    reward=scored.reward,
                    agents=asked.agents,
                )
            )


def _on_another_process(numbers: Sequence[int], completions: Sequence[str]) -> list[float]:
    raise RuntimeError("only the main process asks the workers")


def _run_stage(
    config: TrainingConfig,
    scale: ScaleConfig,
    before: tuple[Stage, ...],
    stage: Stage,
    start: str,
    asked: Sequence[PromptedTask],
    out: Path,
    main: WorkerReward | None,
    show: Show,
) -> None:
    """Trains one stage and writes its folder. An error that stops the training is raised after a checkpoint is kept."""
    state, grpo = PartialState(), config.grpo_of(stage)
    work = out / "stages" / f"{stage}.checkpoints"
    if main is not None:
        with writing(work):
            work.mkdir(parents=True, exist_ok=True)
        latest_checkpoint(work)  # removes what is not whole, before others look
    state.wait_for_everyone()
    checkpoint = latest_checkpoint(work)
    cpu = state.device.type == "cpu"
    args = arguments(grpo, scale, work, seed=config.seed, cpu=cpu, world_size=state.num_processes)
    record = StageRecord(out, stage, grpo.iterations, show)
    scorer = None if main is None else _Scorer(main, asked, record, grpo)
    trainer = _open_trainer(start, args, asked, scorer or _on_another_process, scale.rows_sampled)
    without_console(trainer)
    if scorer is not None:
        record.resume(before, checkpoint, steps=grpo.updates)
        show_disk_needs(work, sum(each.nbytes for each in cast("torch.nn.Module", trainer.model).parameters()), show)
        details = partial(scorer.details, trainer)
        trainer.add_callback(RecordCallback(record, steps=grpo.updates, details=details, after=scorer.keep_samples))
    try:
        with _quiet():
            trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    except InspectorError as error:
        trainer.stop()
        if isinstance(error, StoppedElsewhere):
            # The main process reports the reason and the exit code. A failure here would end it before it can.
            raise SystemExit(0) from error
        raise
    trainer.save_model(str(out / "stages" / f"{stage}.new"))
    if main is not None:
        with writing(out):
            (out / "stages" / f"{stage}.new").replace(out / "stages" / stage)
            shutil.rmtree(work)


def _open_trainer(
    start: str, args: Any, asked: Sequence[PromptedTask], score: Callable[..., list[float]], rows_sampled: int
) -> ScaleTrainer:
    try:
        with _quiet():
            return ScaleTrainer(start, args, asked, score, rows_sampled)
    except (OSError, ValueError, ImportError) as error:
        raise BadInput(f"{start} cannot be trained here: {error}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Hides the warning that TRL calls a method of transformers by its old name."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*gradient_checkpointing.* is deprecated", category=FutureWarning)
        yield


def _publish(folder: Path, out: Path) -> None:
    """Writes the model in bfloat16, as the local Conductor loads it."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    with writing(out):
        model.save_pretrained(out, safe_serialization=True)
        AutoTokenizer.from_pretrained(folder).save_pretrained(out)
        (out / "conductor.json").write_text(json.dumps({"prompt": "full"}) + "\n", encoding="utf-8")
