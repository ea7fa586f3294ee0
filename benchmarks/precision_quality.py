"""Benchmark: what packed weights change in what a model says.

    python -m benchmarks.precision_quality [--tasks N] [--model FOLDER] [--json]

The shipped Conductor, which usually keeps float32, is packed by force and plans N requests (``everyday_requests.toml``)
greedily. Reported for each precision: how many plans are the same word by word as in float32, how many have the same
agents and accesses, and at how many places of the plans in float32 the likeliest of all tokens is the same.

With ``--model``, a checkpoint such as one of ``benchmarks.random_checkpoint``: the error of its logits against bf16 as
a share of their standard deviation, and how often the likeliest token is the same. Random weights make no token likely,
so this agreement is far below that of a trained model; the error counts. With ``--exact``, all are compared with
float32, so that what bf16 itself loses stands beside.
"""

import argparse
import asyncio
import json
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import torch

from benchmarks.real_prompts import EVERYDAY, everyday
from conductor_core.chat.messages import PlanRequest, PlanText
from conductor_core.conductors.catalogue import TINY, TINY_FOLDER, open_conductor
from conductor_core.inference.generation import Generation, Packing
from conductor_core.inference.loading import load_weights
from conductor_core.inference.model import LoadedModel
from conductor_core.inference.shared import shared_model
from conductor_core.inference.source import inspect_folder
from conductor_core.precision import Packed, PrecisionChoice
from conductor_core.rehearsal import rehearsal_specs
from conductor_core.settings import Settings
from conductor_core.workflow.parser import parse_completion

LOGIT_TOKENS = 256


def requests(count: int) -> list[PlanRequest]:
    """Returns so many requests, drawn by a fixed seed."""
    tasks = sorted(task for _, task in everyday())
    random.Random(0).shuffle(tasks)
    return [PlanRequest(task=task, agents=rehearsal_specs(), max_steps=5) for task in tasks[:count]]


async def plans(precision: PrecisionChoice, asked: Sequence[PlanRequest], folder: Path) -> list[str]:
    conductor = open_conductor(TINY, Settings(precision=precision, data_folder=folder))
    return [
        "".join([part.text async for part in conductor.write(each) if isinstance(part, PlanText)]) for each in asked
    ]


def likeliest(model: LoadedModel, prompt: Any, plan: str) -> torch.Tensor:
    """Returns the likeliest token at each place of ``plan`` after ``prompt``."""
    before, _ = model.encode(Generation(prompt, max_tokens=1))
    ids = torch.tensor([before + model.vocabulary.encode(plan)])
    with torch.inference_mode():
        chosen: torch.Tensor = model.model(input_ids=ids).logits[0, len(before) - 1 : -1].argmax(-1)
    return chosen


def _workflow(plan: str) -> Any:
    return [(step.agent, step.access_list) for step in parse_completion(plan).steps or ()]


def of_shipped(count: int, folder: Path) -> list[dict[str, Any]]:
    asked = requests(count)
    conductor = open_conductor(TINY, Settings())
    prompts = [conductor.messages(each) for each in asked]

    def told(precision: PrecisionChoice) -> tuple[list[str], list[torch.Tensor]]:
        texts = asyncio.run(plans(precision, asked, folder))
        model = shared_model(str(TINY_FOLDER)).loaded
        if model is None:
            raise RuntimeError("the model is not loaded")
        exact = reference if reference else texts
        return texts, [likeliest(model, prompt, plan) for prompt, plan in zip(prompts, exact, strict=True)]

    reference: list[str] = []
    reference, tokens = told("bf16")
    found = []
    for precision in get_args(Packed):
        texts, others = told(precision)
        same = sum(int((one == other).sum()) for one, other in zip(tokens, others, strict=True))
        pairs = list(zip(reference, texts, strict=True))
        found.append(
            {
                "precision": precision,
                "plans": len(texts),
                "same_plans": sum(one == other for one, other in pairs),
                "same_workflows": sum(_workflow(one) == _workflow(other) for one, other in pairs),
                "tokens": sum(map(len, tokens)),
                "same_tokens": same,
            }
        )
    return found


def _logits(model: Any, ids: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = model(input_ids=ids).logits[0].float()
    return logits


def of_checkpoint(model_folder: Path, folder: Path, *, exact: bool) -> list[dict[str, Any]]:
    files = inspect_folder(model_folder)
    first = LoadedModel(files)
    words = first.vocabulary.encode(EVERYDAY.read_text(encoding="utf-8"))[:LOGIT_TOKENS]
    ids = torch.tensor([words])
    vocabulary = len(first.tokenizer)
    told = {first.placement.dtype: _logits(first.model, ids)[:, :vocabulary]}
    del first
    if exact:
        model = load_weights(files, torch.float32, lambda _: None, lambda: False)
        told = {"float32": _logits(model, ids)[:, :vocabulary], **told}
        del model
    for precision in get_args(Packed):
        told[precision] = _logits(LoadedModel(files, packing=Packing(precision, folder)).model, ids)[:, :vocabulary]
    reference, *others = told
    deviation = told[reference].std(1)
    return [
        {
            "precision": name,
            "against": reference,
            "tokens": len(words),
            "error": float(((told[name] - told[reference]).pow(2).mean(1).sqrt() / deviation).mean()),
            "same_tokens": int((told[name].argmax(1) == told[reference].argmax(1)).sum()),
        }
        for name in others
    ]


def table(shipped: Sequence[dict[str, Any]], checkpoint: Sequence[dict[str, Any]]) -> str:
    lines = [
        "| shipped Conductor | same plans | same agents and accesses | same likeliest token |",
        "|---|---|---|---|",
    ]
    for each in shipped:
        lines.append(
            f"| {each['precision']} | {each['same_plans']} of {each['plans']} | {each['same_workflows']} of "
            f"{each['plans']} | {each['same_tokens'] / each['tokens']:.2%} of {each['tokens']} |"
        )
    if checkpoint:
        lines += ["", "| random weights | error of logits, share of their deviation | same likeliest token |"]
        lines.append("|---|---|---|")
    for each in checkpoint:
        lines.append(
            f"| {each['precision']} against {each['against']} | {each['error']:.3f} | "
            f"{each['same_tokens']} of {each['tokens']} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=200, help="0: leave the shipped Conductor out")
    parser.add_argument("--model", type=Path, help="a checkpoint whose logits are compared")
    parser.add_argument("--exact", action="store_true", help="compare its logits with float32")
    parser.add_argument("--packed", type=Path, help="the folder of packed weights; default: a temporary one")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.packed or Path(scratch)
        shipped = of_shipped(options.tasks, Path(scratch)) if options.tasks else []
        checkpoint = of_checkpoint(options.model, folder, exact=options.exact) if options.model else []
    print(json.dumps([*shipped, *checkpoint], indent=1) if options.json else table(shipped, checkpoint))


if __name__ == "__main__":
    main()
