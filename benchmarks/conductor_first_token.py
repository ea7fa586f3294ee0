"""Benchmark: how soon a Conductor writes its first token, beside plain ``generate`` of the same model in this process.

    python -m benchmarks.conductor_first_token [--model FOLDER] [--rounds 5] [--json]

Without ``--model`` a checkpoint of Qwen2.5-0.5B's configuration with random weights is written and removed. Both ways
read the same prompt, whose static part has at least 1,500 tokens, and write the same number of tokens on the same
threads; they take turns. "first again" is a Conductor that has read the static part before, as in every call but the
first of a process. The bar: at least 5 times sooner to the first token than plain generate.
"""

import argparse
import asyncio
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.given_checkpoint import given_or_random
from conductor_core.chat.messages import PlanFinished, PlanRequest, WorkerSpec
from conductor_core.conductors.catalogue import open_conductor
from conductor_core.conductors.prompts import STATIC_MESSAGES, full_prompt
from conductor_core.inference.generation import Done, Generation
from conductor_core.inference.model import LoadedModel
from conductor_core.inference.shared import SharedModel, shared_model
from conductor_core.settings import Settings

STATIC_TOKENS = 1500
NEW_TOKENS = 32
BAR = 5.0
TASKS = [f"A train leaves at {hour}:00 at {60 + hour} km/h. When has it covered 300 km?" for hour in range(1, 30)]


class FirstToken:
    """A streamer for ``generate`` that notes when the first new token came (the first ``put`` is the prompt)."""

    def __init__(self) -> None:
        self.puts = 0
        self.at_s = 0.0

    def put(self, value: torch.Tensor) -> None:
        self.puts += 1
        if self.puts == 2:
            self.at_s = time.perf_counter()

    def end(self) -> None:
        pass


def plain_generate(model: LoadedModel, ids: list[int]) -> tuple[float, float]:
    """Milliseconds to the first token, and in all."""
    streamer = FirstToken()
    start = time.perf_counter()
    model.model.generate(
        torch.tensor([ids], device=model.placement.device),
        attention_mask=torch.ones(1, len(ids), dtype=torch.long, device=model.placement.device),
        max_new_tokens=NEW_TOKENS,
        min_new_tokens=NEW_TOKENS,
        do_sample=False,
        pad_token_id=0,
        streamer=streamer,
    )
    return (streamer.at_s - start) * 1e3, (time.perf_counter() - start) * 1e3


async def conductor_stream(model: SharedModel, generation: Generation) -> tuple[float, float]:
    start = time.perf_counter()
    first = 0.0
    async for piece in model.stream(generation):
        first = first or time.perf_counter()
        if isinstance(piece, Done):
            break
    return (first - start) * 1e3, (time.perf_counter() - start) * 1e3


async def constrained_plan(folder: Path, request: PlanRequest) -> tuple[float, float, int]:
    """The whole way through ``open_conductor``, grammar included; also the number of tokens."""
    start = time.perf_counter()
    first, tokens = 0.0, 0
    async for piece in open_conductor(str(folder), Settings(plan_max_tokens=200)).write(request):
        first = first or time.perf_counter()
        if isinstance(piece, PlanFinished):
            tokens = piece.usage.output_tokens
    return (first - start) * 1e3, (time.perf_counter() - start) * 1e3, tokens


def pool_for(model: LoadedModel) -> tuple[WorkerSpec, ...]:
    """Seven workers, described at such length that the static part of the prompt has ``STATIC_TOKENS`` or more."""
    words = "careful with sums, proofs, code and facts;"
    for repeats in range(1, 40):
        pool = tuple(
            WorkerSpec(name=f"w{i}", provider="rehearsal", model="m", description=words * repeats) for i in range(7)
        )
        if len(static_ids(model, pool)) >= STATIC_TOKENS:
            return pool
    raise RuntimeError("no such pool")


def static_ids(model: LoadedModel, pool: tuple[WorkerSpec, ...]) -> tuple[int, ...]:
    prompt = full_prompt(PlanRequest(task="t", agents=pool))
    return model.encode(Generation(prompt, 1, static_messages=STATIC_MESSAGES))[1]


async def measure(folder: Path, rounds: int) -> dict[str, Any]:
    shared = shared_model(str(folder))
    [_ async for _ in shared.stream(Generation("warm up", max_tokens=4))]
    model = shared.loaded
    if model is None:
        raise RuntimeError("the model was not loaded")
    threads = shared._thread.submit(torch.get_num_threads).result()
    torch.set_num_threads(threads)
    pool = pool_for(model)
    rows: dict[str, list[tuple[float, float]]] = {"plain generate": [], "Conductor": [], "Conductor, grammar": []}
    prompts = [full_prompt(PlanRequest(task=task, agents=pool)) for task in TASKS]
    plain_generate(model, model.encode(Generation(prompts[-1], 1))[0])
    cold = await conductor_stream(shared, Generation(prompts[-1], NEW_TOKENS, static_messages=STATIC_MESSAGES))
    await constrained_plan(folder, PlanRequest(task=TASKS[-1], agents=pool))
    tokens = []
    for round_ in range(rounds):
        generation = Generation(prompts[round_], NEW_TOKENS, static_messages=STATIC_MESSAGES)
        rows["plain generate"].append(plain_generate(model, model.encode(generation)[0]))
        rows["Conductor"].append(await conductor_stream(shared, generation))
        *times, written = await constrained_plan(folder, PlanRequest(task=TASKS[round_], agents=pool))
        rows["Conductor, grammar"].append((times[0], times[1]))
        tokens.append(written)
    first = {name: statistics.median(row[0] for row in values) for name, values in rows.items()}
    total = {name: statistics.median(row[1] for row in values) for name, values in rows.items()}
    return {
        "parameters": model.files.parameters,
        "device": model.placement.device,
        "dtype": model.placement.dtype,
        "threads": threads,
        "static_tokens": len(static_ids(model, pool)),
        "new_tokens": NEW_TOKENS,
        "grammar_tokens": statistics.median(tokens),
        "rounds": rounds,
        "first_token_ms": first,
        "total_ms": total,
        "first_call_ms": cold[0],
        "times_sooner": first["plain generate"] / first["Conductor"],
        "times_sooner_with_grammar": first["plain generate"] / first["Conductor, grammar"],
        "bar": BAR,
    }


def table(result: dict[str, Any]) -> str:
    size = f"{result['parameters'] / 1e6:.0f}M parameters, {result['device']} {result['dtype']}"
    lines = [
        f"{size}, {result['threads']} thread(s), static prefix {result['static_tokens']} tokens, medians of "
        f"{result['rounds']} rounds",
        "",
        "| | first token ms | total ms | tokens |",
        "|---|---|---|---|",
    ]
    for name, first in result["first_token_ms"].items():
        tokens = result["grammar_tokens"] if "grammar" in name else result["new_tokens"]
        lines.append(f"| {name} | {first:.0f} | {result['total_ms'][name]:.0f} | {tokens:.0f} |")
    lines += [
        f"| Conductor, very first call | {result['first_call_ms']:.0f} | | |",
        "",
        f"first token {result['times_sooner']:.1f} times sooner ({result['times_sooner_with_grammar']:.1f} with the "
        f"grammar); the bar is {result['bar']:.0f}",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a model folder; default: random weights in Qwen2.5-0.5B's form")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with given_or_random(options.model, "0.5b") as folder:
        result = asyncio.run(measure(folder, options.rounds))
    print(json.dumps(result, indent=1) if options.json else table(result))
    raise SystemExit(0 if min(result["times_sooner"], result["times_sooner_with_grammar"]) >= BAR else 1)


if __name__ == "__main__":
    main()
