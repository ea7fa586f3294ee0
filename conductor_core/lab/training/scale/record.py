"""Begins the record of a training of real size, and checks whether a folder holds the same training."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState

from conductor_core.engine.pools import Pool
from conductor_core.lab.records.training import Stage, Started
from conductor_core.lab.training.config import TrainingConfig, WorkersConfig
from conductor_core.lab.training.recorder import begin

_MAY_CHANGE = frozenset(WorkersConfig.model_fields) - {"pool", "params", "inner_conductor"}
"""Settings of the workers that may change when a training is resumed: caps, patience, prices."""

_MEMORY_AND_PATIENCE = ("gradient_checkpointing", "rows_sampled", "wait_for_workers_s")


def begin_record(
    config: TrainingConfig, out: Path, stages: tuple[Stage, ...], start: str, pool: Pool, *, resume: bool
) -> None:
    """Begins or continues the record as ``recorder.begin`` does."""
    agents, machine = tuple(pool.workers), _machine(config)
    begin(config, out, stages, start, _same, resume, simulated=pool.simulated, machine=machine, agents=agents)


def _same(started: Started, config: TrainingConfig) -> bool:
    return bool(_essence(started.config) == _essence(config.model_dump(mode="json")))


def _essence(config: Mapping[str, Any]) -> Any:
    """Returns the configuration without the settings that may change when a training is resumed."""
    copied = json.loads(json.dumps(config))
    scale = copied.get("scale") or {}
    for name in _MEMORY_AND_PATIENCE:
        scale.pop(name, None)
    # vLLM's place and settings may change, but not whether it samples: the loss is corrected for vLLM's rounding.
    scale["vllm"] = scale.get("vllm") is not None
    stages = [copied[stage] for stage in ("grpo", "recursion") if copied.get(stage)]
    if all(each["loss"] != "bnpo" and not each["entropy_bonus"] for each in stages):
        # Those two are means over the tokens of the rows computed at once. Other losses do not depend on the split.
        scale.pop("rows_per_device", None)
    scale["workers"] = {name: each for name, each in scale.get("workers", {}).items() if name not in _MAY_CHANGE}
    return copied


def _machine(config: TrainingConfig) -> str:
    state = PartialState()
    device = torch.cuda.get_device_name() if state.device.type == "cuda" else f"CPU, {config.threads} threads"
    processes = "" if state.num_processes == 1 else f"{state.num_processes} x "
    return f"{processes}{device}, torch {torch.__version__}, {os.cpu_count()} cores"
