"""Runs a whole training, stage by stage, in one output folder; an interrupted one continues from its last checkpoint.

The folder holds the model as the local Conductor loads it, and ``record.jsonl``. Below ``stages`` it holds the model
after each stage in float32 and, while a stage runs, its checkpoints.
"""

import shutil
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from conductor_core.conductors.roles import numbering
from conductor_core.errors import BadInput
from conductor_core.lab.records.training import Stage
from conductor_core.lab.training.config import TrainingConfig
from conductor_core.lab.training.folder import WEIGHTS, begun_with, held, load, save
from conductor_core.lab.training.recorder import Show, StageRecord, Trained, begin, end, machine, stages_until
from conductor_core.lab.training.tiny import cold_start, grpo
from conductor_core.lab.training.tiny.recursion import taught_rounds
from conductor_core.rehearsal import rehearsal_specs


def train(
    config: TrainingConfig,
    out: Path,
    *,
    resume: bool = False,
    stop_after: Stage | None = None,
    start_from: str | None = None,
    show: Show = lambda _: None,
) -> Trained:
    """Runs the stages of ``config`` and writes the model folder to ``out``.

    Args:
        resume: whether to continue the training in ``out``. Finished stages stay as they are.
        stop_after: the last stage to run.
        start_from: model folder or hub id to begin with, instead of a cold start.

    Raises: BadInput if the config does not fit the request, or the folder cannot be used or is in use already.
    """
    stages = _stages(config, stop_after, start_from)
    torch.set_num_threads(config.threads)
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    with held(out, resume=resume):
        return _train(config, out, stages, start_from, show, resume=resume)


def _train(
    config: TrainingConfig, out: Path, stages: tuple[Stage, ...], start_from: str | None, show: Show, *, resume: bool
) -> Trained:
    begun = "" if stages[0] == "cold_start" else begun_with(start_from or config.base or "")
    agents = tuple(name for name in numbering(rehearsal_specs()) if name is not None)
    begin(config, out, stages, begun, resume, simulated=True, machine=machine(config), agents=agents)
    for index, stage in enumerate(stages):
        folder = out / "stages" / stage
        if (folder / WEIGHTS).is_file():
            show(f"{stage} is finished: {folder}")
            continue
        start = str(out / "stages" / stages[index - 1]) if index else start_from or config.base
        _run_stage(config, out, stages[:index], stage, start, show)
    model, tokenizer = load(out / "stages" / stages[-1])
    save(model.bfloat16(), tokenizer, out)
    return end(out, stages)


def _stages(config: TrainingConfig, stop_after: Stage | None, start_from: str | None) -> tuple[Stage, ...]:
    stages = config.stages
    if start_from is not None:
        stages = tuple(stage for stage in stages if stage != "cold_start")
    elif config.cold_start is None and config.base is None:
        raise BadInput(f"config {config.name} has neither a cold start nor a base: name a model to start from (--from)")
    stages = stages_until(config, stages, stop_after)
    if not stages:
        raise BadInput(f"config {config.name} has no stage but the cold start, which a model to start from replaces")
    return stages


def _run_stage(
    config: TrainingConfig, out: Path, before: tuple[Stage, ...], stage: Stage, start: str | None, show: Show
) -> None:
    """Trains one stage, from its last checkpoint if there is one, and writes its folder."""
    cpu = config.device == "cpu" or not torch.cuda.is_available()
    record = StageRecord(out, stage, config.iterations_of(stage), show, cpu)
    record.resume(before, rounds=taught_rounds(record.work))
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    if stage == "cold_start" and config.cold_start is not None:
        model, tokenizer = cold_start.run(config.cold_start, config.seed, record)
    else:
        model, tokenizer = load(start or "")
        model = grpo.run(config.grpo_of(stage), config.seed, model, tokenizer, record, best_of=config.best_of)
    save(model, tokenizer, out / "stages" / stage)
    shutil.rmtree(record.work)
