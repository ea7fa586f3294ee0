"""Benchmark: plans of a real-size Conductor with its weights in bf16, int8 and int4, after a restart and later on.

    python -m benchmarks.conductor_precisions [--size 7b|0.5b] [--model FOLDER] [--tokens N] [--precisions int8,int4]

Each precision is measured in a process of its own, by the app's own path (``open_conductor``), one after the other in
one run. The first plan comes after a restart, the second with the model loaded. ``today`` is bf16 that reads its whole
prompt at each start; the others have their prefix file, and packed weights, from an unmeasured start before.

N tokens are written, one in each pass, and what a plan of 150 takes is computed: the first token, and 149 times one of
the others. Times count from the request for a plan, with the libraries imported. Processor time stands beside, since
other work on the machine disturbs it less. Random weights take as long as real ones.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from benchmarks.given_checkpoint import given_or_random
from conductor_core.chat.messages import PlanFinished, PlanRequest, PlanText
from conductor_core.engine.recorder import closing

PLAN_TOKENS = 150
LEAST_TOKENS = 16
"""The least that a plan may have."""
TODAY = "today"
GIB = 2**30
TASKS = ("What is the sum of the first 40 odd numbers?", "Write a function that reverses a list.")


async def write(folder: Path, settings: Any, task: str) -> dict[str, float]:
    """Returns wall and processor time of a first token, and of each later one."""
    from benchmarks.real_size_conductor import POOL
    from conductor_core.conductors.catalogue import open_conductor

    request = PlanRequest(task=task, agents=POOL, max_steps=2)
    began, began_cpu = time.perf_counter(), time.process_time()
    first = first_cpu = 0.0
    tokens = 0
    async with closing(open_conductor(str(folder), settings).write(request)) as pieces:
        async for piece in pieces:
            if isinstance(piece, PlanText):
                first = first or time.perf_counter() - began
                first_cpu = first_cpu or time.process_time() - began_cpu
            elif isinstance(piece, PlanFinished):
                tokens = piece.usage.output_tokens
    later = max(1, tokens - 1)
    return {
        "first_s": first,
        "first_processor_s": first_cpu,
        "token_s": (time.perf_counter() - began - first) / later,
        "token_processor_s": (time.process_time() - began_cpu - first_cpu) / later,
        "tokens": tokens,
    }


def child(folder: Path, data_folder: Path, precision: str, tokens: int) -> None:
    """Prints one measurement as JSON."""
    import llguidance  # noqa: F401
    from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM  # noqa: F401

    from benchmarks.real_size_conductor import MemoryWatch
    from conductor_core.inference.shared import shared_model
    from conductor_core.settings import Settings

    settings = Settings.model_validate(
        {
            "data_folder": data_folder,
            "precision": "bf16" if precision == TODAY else precision,
            "prefix_bytes": 0 if precision == TODAY else 2**30,
            "plan_max_tokens": tokens,
            "constrained": False,
        }
    )
    with MemoryWatch() as memory:
        plans = [asyncio.run(write(folder, settings, task)) for task in TASKS]
    placement = shared_model(str(folder)).placement
    print(
        json.dumps(
            {
                "precision": precision,
                "ran_in": placement and (placement.precision or placement.dtype),
                "load_s": shared_model(str(folder)).load_s,
                "peak_anonymous_gib": memory.peak_anonymous / GIB,
                "peak_resident_gib": memory.peak_resident / GIB,
                "restart": plans[0],
                "later": plans[1],
            }
        )
    )


def in_a_process(folder: Path, data_folder: Path, precision: str, tokens: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.conductor_precisions", "--child", precision, "--model", str(folder)]
    command += ["--data-folder", str(data_folder), "--tokens", str(tokens)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(json.dumps(measured), file=sys.stderr, flush=True)
    return measured


def plan_s(plan: dict[str, float], kind: str) -> float:
    """``kind``: empty for wall time, ``processor_`` for processor time."""
    return plan[f"first_{kind}s"] + (PLAN_TOKENS - 1) * plan[f"token_{kind}s"]


def table(results: list[dict[str, Any]], size: str) -> str:
    today = results[0]
    lines = [
        f"| {size}, plan of {PLAN_TOKENS} tokens | after a restart: first token s | plan s | of today's | "
        "later: plan s | of today's | tokens/s | peak GiB (with mapped files) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for kind, name in (("", ""), ("processor_", ", processor time")):
        for each in results:
            shares = [plan_s(each[when], kind) / plan_s(today[when], kind) for when in ("restart", "later")]
            lines.append(
                f"| {each['precision']}{name} | {each['restart'][f'first_{kind}s']:.1f} | "
                f"{plan_s(each['restart'], kind):.0f} | {shares[0]:.2f} | {plan_s(each['later'], kind):.0f} | "
                f"{shares[1]:.2f} | {1 / each['later'][f'token_{kind}s']:.2f} | "
                f"{each['peak_anonymous_gib']:.1f} ({each['peak_resident_gib']:.1f}) |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=["7b", "0.5b"], default="7b")
    parser.add_argument("--model", type=Path, help="a checkpoint of that size; default: one of random weights is made")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--precisions", default="bf16,int8,int4")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--data-folder", type=Path, help="keeps what is packed between calls; default: a temporary one")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        child(options.model, options.data_folder, options.child, options.tokens)
        return
    with given_or_random(options.model, options.size) as model:
        given = options.data_folder
        with nullcontext(str(given)) if given is not None else tempfile.TemporaryDirectory() as folder:
            precisions = options.precisions.split(",")
            if given is None:
                for each in precisions:
                    in_a_process(model, Path(folder), each, LEAST_TOKENS)  # packs weights, keeps the prefix
            results = [in_a_process(model, Path(folder), each, options.tokens) for each in (TODAY, *precisions)]
    print(json.dumps(results, indent=1) if options.json else table(results, options.size))


if __name__ == "__main__":
    main()
