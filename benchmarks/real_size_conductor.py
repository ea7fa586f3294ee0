"""Benchmark: a Conductor of Qwen2.5-7B's exact size writes a valid plan by the app's own path, within this machine.

    python -m benchmarks.real_size_conductor [--size 7b|0.5b] [--folder DIR]

A checkpoint of the exact configuration with random bfloat16 weights (15.2 GB) is written, opened with
``open_conductor``, made to write one grammar-constrained plan, checked, and deleted. The plan is kept short (two steps
at most, 96 tokens): a processor needs a second or more for each token. Random weights write nonsense, but as many bytes
move and as many products are made as with the real ones.

Memory is sampled from the kernel: anonymous memory is what the model itself takes; pages of the mapped files are cache,
which the kernel gives up when it needs to.
"""

import argparse
import asyncio
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.gguf_speed import POOL
from benchmarks.random_checkpoint import write_checkpoint
from conductor_core.chat.messages import PlanFinished, PlanRequest, TextDelta
from conductor_core.conductors.catalogue import open_conductor
from conductor_core.inference.shared import shared_model
from conductor_core.settings import Settings
from conductor_core.workflow.parser import parse_completion
from conductor_core.workflow.validation import validate

MAX_STEPS = 2
MAX_TOKENS = 96
GIB = 2**30
REQUEST = PlanRequest(task="What is the sum of the first 40 odd numbers?", agents=POOL, max_steps=MAX_STEPS)


class MemoryWatch:
    """Peak memory of this process while it is used as a context, in bytes, sampled ten times a second."""

    def __init__(self) -> None:
        self.peak_anonymous = 0
        self.peak_resident = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "MemoryWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.1):
            lines = Path("/proc/self/status").read_text().splitlines()
            kilobytes = {
                name: int(value.split()[0])
                for name, _, value in (line.partition(":") for line in lines)
                if name in ("RssAnon", "VmRSS")
            }
            self.peak_anonymous = max(self.peak_anonymous, kilobytes["RssAnon"] * 1024)
            self.peak_resident = max(self.peak_resident, kilobytes["VmRSS"] * 1024)


async def write_plan(folder: Path, settings: Settings, *, again: bool) -> dict[str, Any]:
    """One plan; ``again``: the model is loaded and has read the static prefix."""
    conductor = open_conductor(str(folder), settings)
    start = time.perf_counter()
    first = 0.0
    text = ""
    usage = None
    async for piece in conductor.write(REQUEST):
        if isinstance(piece, TextDelta):
            first = first or time.perf_counter()
            text += piece.text
        elif isinstance(piece, PlanFinished):
            usage = piece.usage
    end = time.perf_counter()
    checked = validate(parse_completion(text), [worker.name for worker in POOL], max_steps=MAX_STEPS)
    if usage is None:
        raise RuntimeError("the plan was not finished")
    return {
        "again": again,
        "valid": checked.workflow is not None,
        "steps": len(checked.workflow.steps) if checked.workflow else 0,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "first_token_s": first - start,
        "seconds": end - start,
        "tokens_per_s": (usage.output_tokens - 1) / (end - first),
    }


def measure(folder: Path, size: str, data_folder: Path) -> dict[str, Any]:
    start = time.perf_counter()
    parameters = write_checkpoint(folder, size)
    write_s = time.perf_counter() - start
    settings = Settings(plan_max_tokens=MAX_TOKENS, data_folder=data_folder)
    with MemoryWatch() as memory:
        plans = [asyncio.run(write_plan(folder, settings, again=again)) for again in (False, True)]
    model = shared_model(str(folder))
    placement = model.placement
    return {
        "parameters": parameters,
        "device": placement.device if placement else None,
        "dtype": placement.dtype if placement else None,
        "checkpoint_write_s": write_s,
        "load_s": model.load_s,
        "peak_memory_gib": memory.peak_anonymous / GIB,
        "peak_resident_gib": memory.peak_resident / GIB,
        "plans": plans,
    }


def table(result: dict[str, Any]) -> str:
    lines = [
        f"{result['parameters'] / 1e9:.2f} B parameters, {result['device']} {result['dtype']}; written in "
        f"{result['checkpoint_write_s']:.0f} s, loaded in {result['load_s']:.0f} s; peak memory "
        f"{result['peak_memory_gib']:.1f} GiB (with cached file pages {result['peak_resident_gib']:.1f} GiB)",
        "",
        "| plan | valid | steps | prompt tokens | tokens | first token s | in all s | tokens/s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for plan in result["plans"]:
        name = "second, prefix kept" if plan["again"] else "first, with loading"
        lines.append(
            f"| {name} | {'yes' if plan['valid'] else 'no'} | {plan['steps']} | {plan['input_tokens']} | "
            f"{plan['output_tokens']} | {plan['first_token_s']:.1f} | {plan['seconds']:.1f} | "
            f"{plan['tokens_per_s']:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=["7b", "0.5b"], default="7b")
    parser.add_argument("--folder", type=Path, help="where the checkpoint is written; default: a temporary folder")
    options = parser.parse_args()
    parent = Path(options.folder or tempfile.gettempdir())
    folder = parent / f"qwen2.5-{options.size}-random"
    free = shutil.disk_usage(parent).free
    if options.size == "7b" and free < 18 * GIB:
        raise SystemExit(f"{parent} has {free / GIB:.0f} GiB free, 18 are needed")
    try:
        with tempfile.TemporaryDirectory(dir=parent) as data_folder:
            result = measure(folder, options.size, Path(data_folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(table(result))
    raise SystemExit(0 if all(plan["valid"] for plan in result["plans"]) else 1)


if __name__ == "__main__":
    main()
