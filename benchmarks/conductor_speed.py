"""How soon a local Conductor writes.

    python -m benchmarks.conductor_speed [--model FOLDER] [--rounds 3]

Without ``--model`` a checkpoint of Qwen2.5's configuration with random weights is written and removed: random weights
take as long as real ones.

Measured beside plain ``generate`` of the same model in this process, on the same prompt, whose static part has at
least 1,500 tokens, on the same threads, in turns. The Conductor has read the static part before, as in every call but
the first of a process. The bar: at least 5 times sooner.
"""

import argparse
import asyncio
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.random_checkpoint import given_or_random
from conductor_core.chat.messages import PlanRequest, WorkerSpec

STATIC_TOKENS, NEW_TOKENS = 1500, 32
FIRST_TOKEN_BAR = 5.0


class FirstToken:
    """A streamer for ``generate`` that notes when the first new token came (the first ``put`` is the prompt)."""

    def __init__(self) -> None:
        self.puts = 0
        self.at_s = 0.0

    def put(self, value: object) -> None:
        self.puts += 1
        if self.puts == 2:
            self.at_s = time.perf_counter()

    def end(self) -> None:
        pass


def plain_generate(model: Any, ids: list[int]) -> tuple[float, float]:
    """Milliseconds to the first token, and in all."""
    import torch

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


async def beside_generate(folder: Path, rounds: int) -> bool:
    import torch

    from conductor_core.conductors.catalogue import open_conductor
    from conductor_core.conductors.prompts import STATIC_MESSAGES, full_prompt
    from conductor_core.inference.generation import Done, Generation
    from conductor_core.inference.shared import shared_model
    from conductor_core.settings import Settings

    shared = shared_model(str(folder))
    [_ async for _ in shared.stream(Generation("warm up", max_tokens=4))]
    model = shared.loaded
    if model is None:
        raise RuntimeError("the model was not loaded")
    torch.set_num_threads(shared._thread.submit(torch.get_num_threads).result())

    def agents_of(repeats: int) -> tuple[WorkerSpec, ...]:
        words = "careful with sums, proofs, code and facts;" * repeats
        return tuple(WorkerSpec(name=f"w{i}", provider="rehearsal", model="m", description=words) for i in range(7))

    def static_tokens(agents: tuple[WorkerSpec, ...]) -> int:
        prompt = full_prompt(PlanRequest(task="t", agents=agents))
        return len(model.encode(Generation(prompt, 1, static_messages=STATIC_MESSAGES))[1])

    pool = next(pool for pool in map(agents_of, range(1, 40)) if static_tokens(pool) >= STATIC_TOKENS)
    tasks = [f"A train leaves at {hour}:00 at {60 + hour} km/h. When has it covered 300 km?" for hour in range(1, 30)]

    async def stream(generation: Generation) -> tuple[float, float]:
        start, first = time.perf_counter(), 0.0
        async for piece in shared.stream(generation):
            first = first or time.perf_counter()
            if isinstance(piece, Done):
                break
        return (first - start) * 1e3, (time.perf_counter() - start) * 1e3

    async def plan(task: str) -> tuple[float, float]:
        """The whole way through ``open_conductor``, grammar included."""
        start, first = time.perf_counter(), 0.0
        settings = Settings(plan_max_tokens=200)
        async for _ in open_conductor(str(folder), settings).write(PlanRequest(task=task, agents=pool)):
            first = first or time.perf_counter()
        return (first - start) * 1e3, (time.perf_counter() - start) * 1e3

    def generation(task: str) -> Generation:
        prompt = full_prompt(PlanRequest(task=task, agents=pool))
        return Generation(prompt, NEW_TOKENS, static_messages=STATIC_MESSAGES)

    plain_generate(model, model.encode(generation(tasks[-1]))[0])
    cold_ms, _ = await stream(generation(tasks[-1]))
    await plan(tasks[-1])
    rows: dict[str, list[tuple[float, float]]] = {"plain generate": [], "Conductor": [], "Conductor, grammar": []}
    for task in tasks[:rounds]:
        rows["plain generate"].append(plain_generate(model, model.encode(generation(task))[0]))
        rows["Conductor"].append(await stream(generation(task)))
        rows["Conductor, grammar"].append(await plan(task))
    print(
        f"{model.files.parameters / 1e6:.0f}M parameters, {model.placement.device} {model.placement.dtype}, static ",
        end="",
    )
    print(f"prefix {static_tokens(pool)} tokens, very first call {cold_ms:.0f} ms, medians of {rounds} rounds\n")
    print("| | first token ms | total ms | sooner |\n|---|---|---|---|")
    first = {name: statistics.median(row[0] for row in found) for name, found in rows.items()}
    for name, found in rows.items():
        sooner = first["plain generate"] / first[name]
        print(f"| {name} | {first[name]:.0f} | {statistics.median(row[1] for row in found):.0f} | {sooner:.1f} |")
    return first["plain generate"] >= FIRST_TOKEN_BAR * max(first["Conductor"], first["Conductor, grammar"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a checkpoint; default: a 0.5B of random weights is made")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with given_or_random(asked.model) as model:
        met = asyncio.run(beside_generate(model, asked.rounds))
    print("the bar is", "met" if met else "missed")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
