"""The record of a training of real size: how it begins, and whether what a folder holds is the same training."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState

from conductor_core.engine.pool import Pool
from conductor_core.records.training import Stage, Started
from conductor_core.training.config import TrainingConfig
from conductor_core.training.config_scale import WorkersConfig
from conductor_core.training.recorder import begin

_MAY_CHANGE = frozenset(WorkersConfig.model_fields) - {"pool", "params", "inner_conductor"}
"""Settings of the workers that a resumed training may have otherwise: caps, patience, prices."""

_MEMORY_AND_PATIENCE = ("gradient_checkpointing", "wait_for_workers_s")


def begin_record(
    config: TrainingConfig, out: Path, stages: tuple[Stage, ...], start: str, pool: Pool, *, resume: bool
) -> None:
    """See ``recorder.begin``."""
    agents, machine = tuple(pool.workers), _machine(config)
    begin(config, out, stages, start, _same, resume, simulated=pool.simulated, machine=machine, agents=agents)


def _same(started: Started, config: TrainingConfig) -> bool:
    return bool(_essence(started.config) == _essence(config.model_dump(mode="json")))


def _essence(config: Mapping[str, Any]) -> Any:
    """The configuration without what may be changed on the way."""
    copied = json.loads(json.dumps(config))
    scale = copied.get("scale") or {}
    for name in _MEMORY_AND_PATIENCE:
        scale.pop(name, None)
    # Where and how vLLM runs; whether it samples is part of the loss, which is corrected for its rounding.
    scale["vllm"] = scale.get("vllm") is not None
    stages = [copied[stage] for stage in ("grpo", "recursion") if copied.get(stage)]
    if all(each["loss"] != "bnpo" and not each["entropy_bonus"] for each in stages):
        # Those two are means over the tokens of the rows at once; the other losses are the same however they are cut.
        scale.pop("rows_per_device", None)
    scale["workers"] = {name: each for name, each in scale.get("workers", {}).items() if name not in _MAY_CHANGE}
    return copied


def _machine(config: TrainingConfig) -> str:
    state = PartialState()
    device = torch.cuda.get_device_name() if state.device.type == "cuda" else f"CPU, {config.threads} threads"
    processes = "" if state.num_processes == 1 else f"{state.num_processes} x "
    return f"{processes}{device}, torch {torch.__version__}, {os.cpu_count()} cores"
