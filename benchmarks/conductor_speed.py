"""How soon a local Conductor writes, and how fast.

    python -m benchmarks.conductor_speed first-token [--model FOLDER] [--rounds 5]
    python -m benchmarks.conductor_speed restart [--size 7b|0.5b] [--precision bf16|int8|int4] [--rounds 3]
    python -m benchmarks.conductor_speed precisions [--size 7b|0.5b] [--tokens 32] [--precisions bf16,int8,int4]

Without ``--model`` a checkpoint of Qwen2.5's configuration with random weights is written and removed: random weights
take as long as real ones.

first-token: beside plain ``generate`` of the same model in this process, on the same prompt, whose static part has at
least 1,500 tokens, on the same threads, in turns. The Conductor has read the static part before, as in every call but
the first of a process. The bar: at least 5 times sooner.

restart: each measurement is a process of its own. A round is a start that finds no file of its prompt's prefix, which
reads the prefix and writes the file, and one that finds it. Then the plan is given up while the model is loaded,
converted, in the middle of reading the prompt, and while it writes: the figure is the time until its thread does
nothing any more. The bars: 7B 1/20 of without, 0.5B 1 s; 1 s until idle.

precisions: each in a process of its own; the first plan comes after a restart, the second with the model loaded.
``today`` is bf16 that reads its whole prompt at each start; the others have their prefix file, and packed weights, from
an unmeasured start before. N tokens are written, one in each pass, and what a plan of 150 takes is computed.

Times count from the request for a plan, with the libraries imported. Processor time stands beside, since other work on
the machine disturbs it less.
"""

import argparse
import asyncio
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal, get_args

from benchmarks.random_checkpoint import POOL, MemoryWatch, given_or_random
from conductor_core.chat.messages import PlanFinished, PlanRequest, PlanText, WorkerSpec
from conductor_core.chat.progress import Progress, watching
from conductor_core.engine.recorder import closing
from conductor_core.precision import Precision

Stop = Literal["loading", "converting", "reading", "writing", "end"]
"""At which phase a plan is given up. ``writing``: after its first token."""
STATIC_TOKENS, NEW_TOKENS, PLAN_TOKENS, LEAST_TOKENS = 1500, 32, 150, 16
FIRST_TOKEN_BAR = 5.0
TODAY = "today"
GIB = 2**30
TASKS = ("What is the sum of the first 40 odd numbers?", "Write a function that reverses a list.")
INTO_A_PASS_S = 1.0


# -- beside plain generate --


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


# -- after a restart, each in a process of its own --


async def plan_until(folder: Path, settings: Any, task: str, stop: Stop) -> dict[str, Any]:
    """Asks for a plan, and gives it up while the model is at ``stop``."""
    from conductor_core.conductors.catalogue import open_conductor
    from conductor_core.inference.shared import shared_model

    conductor, shared = open_conductor(str(folder), settings), shared_model(str(folder))
    told: list[tuple[float, Progress]] = []
    began, began_cpu = time.perf_counter(), time.process_time()
    found: dict[str, Any] = {}

    async def write() -> None:
        with watching(lambda each: told.append((time.perf_counter() - began, each))):
            async with closing(conductor.write(PlanRequest(task=task, agents=POOL, max_steps=2))) as pieces:
                async for piece in pieces:
                    if isinstance(piece, PlanText) and not found:
                        found["first_s"] = time.perf_counter() - began
                        found["first_processor_s"] = time.process_time() - began_cpu
                        if stop == "writing":
                            return
                    elif isinstance(piece, PlanFinished):
                        later = max(1, piece.usage.output_tokens - 1)
                        found["token_s"] = (time.perf_counter() - began - found["first_s"]) / later
                        found["token_processor_s"] = (
                            time.process_time() - began_cpu - found["first_processor_s"]
                        ) / later

    def is_there() -> bool:
        last = [(at_s, each) for at_s, each in told if each.phase == stop]
        if stop in ("loading", "converting"):
            return bool(last) and last[-1][1].done * 3 > last[-1][1].total
        return bool(last) and time.perf_counter() - began - last[0][0] > INTO_A_PASS_S

    writing = asyncio.create_task(write())
    if stop in ("writing", "end"):
        await writing
    else:
        while not is_there() and not writing.done():  # noqa: ASYNC110 - another thread brings it about
            await asyncio.sleep(0.005)
        writing.cancel()
        await asyncio.wait([writing])
    stopped = time.perf_counter()
    while shared.busy:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.002)
    reading = [each for _, each in told if each.phase == "reading"]
    return found | {
        "load_s": shared.load_s,
        "read_tokens": reading[-1].done - reading[0].done if reading else 0,
        "in_time": stop in ("writing", "end") or stop in {each.phase for _, each in told},
        "stop_s": time.perf_counter() - stopped,
    }


def child(asked: argparse.Namespace) -> None:
    """Prints one measurement as JSON: a plan after a restart, and, unless it is given up, another one."""
    began = time.perf_counter()
    import llguidance  # noqa: F401
    from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM  # noqa: F401

    from conductor_core.conductors import catalogue  # noqa: F401
    from conductor_core.inference.shared import shared_model
    from conductor_core.settings import Settings

    import_s = time.perf_counter() - began
    values: dict[str, Any] = {"data_folder": asked.data_folder}
    values["precision"] = "bf16" if asked.precision == TODAY else asked.precision
    if asked.child == "end":
        values |= {"plan_max_tokens": asked.tokens, "constrained": False}
        values["prefix_bytes"] = 0 if asked.precision == TODAY else 2**30
    settings = Settings.model_validate(values)
    with MemoryWatch() as memory:
        tasks = TASKS if asked.child == "end" else TASKS[:1]
        plans = [asyncio.run(plan_until(asked.model, settings, task, asked.child)) for task in tasks]
    placement = shared_model(str(asked.model)).placement
    ran_in = placement and (placement.precision or placement.dtype)
    gib = [memory.peak_anonymous / GIB, memory.peak_resident / GIB]
    print(json.dumps({"import_s": import_s, "ran_in": ran_in, "gib": gib, "plans": plans}))


def in_a_process(model: Path, data_folder: Path, precision: str, stop: Stop, tokens: int = 32) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.conductor_speed", "restart", "--child", stop, "--model", str(model)]
    command += ["--precision", precision, "--data-folder", str(data_folder), "--tokens", str(tokens)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(f"{precision}, stopped at {stop}: {measured}", file=sys.stderr, flush=True)
    return measured


def restart(model: Path, size: str, precision: str, rounds: int) -> bool:
    without, with_file, stops = [], [], {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if precision != "bf16":
            stops["converting"] = in_a_process(model, folder, precision, "converting")["plans"][0]
            in_a_process(model, folder, precision, "writing")  # converts
        for _ in range(rounds):
            shutil.rmtree(folder / "prefixes", ignore_errors=True)
            without.append(in_a_process(model, folder, precision, "writing"))
            with_file.append(in_a_process(model, folder, precision, "writing"))
        shutil.rmtree(folder / "prefixes")
        for stop in ("loading", "reading"):
            stops[stop] = in_a_process(model, folder, precision, stop)["plans"][0]
    both = [*without, *with_file]
    stop_s = {name: each["stop_s"] for name, each in stops.items()}
    stop_s["writing"] = max(each["plans"][0]["stop_s"] for each in both)
    print(f"| after a restart ({size}, {precision}) | first token s, each round | processor s | tokens read |")
    print("|---|---|---|---|")
    for name, measured in (("without a file", without), ("with it", with_file)):
        plans = [each["plans"][0] for each in measured]
        first, busy = ("  ".join(f"{each[what]:.2f}" for each in plans) for what in ("first_s", "first_processor_s"))
        print(f"| {name} | {first} | {busy} | {plans[0]['read_tokens']} |")
    pairs = [
        (one["plans"][0]["first_s"], other["plans"][0]["first_s"])
        for one, other in zip(with_file, without, strict=True)
    ]
    ratio, first_s = statistics.median(one / other for one, other in pairs), statistics.median(one for one, _ in pairs)
    load_s = statistics.median(each["plans"][0]["load_s"] for each in both)
    import_s = statistics.median(each["import_s"] for each in both)
    print(
        f"\nwith / without: 1/{1 / ratio:.1f}; loading took {load_s:.2f} s of it, the imports {import_s:.1f} s before"
    )
    print(f"cancelled until idle: {', '.join(f'{name} {took:.2f} s' for name, took in stop_s.items())}")
    quick = all(each["in_time"] for each in stops.values()) and max(stop_s.values()) <= 1
    return quick and (ratio <= 1 / 20 if size == "7b" else first_s <= 1)


def precisions(model: Path, size: str, which: list[str], tokens: int, given: Path | None) -> bool:
    with nullcontext(str(given)) if given is not None else tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if given is None:
            for each in which:
                in_a_process(model, folder, each, "end", LEAST_TOKENS)  # packs weights, keeps the prefix
        results = {each: in_a_process(model, folder, each, "end", tokens) for each in (TODAY, *which)}

    def plan_s(precision: str, plan: int, kind: str) -> float:
        found = results[precision]["plans"][plan]
        return float(found[f"first_{kind}s"] + (PLAN_TOKENS - 1) * found[f"token_{kind}s"])

    print(f"| {size}, plan of {PLAN_TOKENS} tokens | after a restart: first token s | plan s | of today's ", end="")
    print("| later: plan s | of today's | tokens/s | peak GiB (with mapped files) |\n|---|---|---|---|---|---|---|---|")
    for kind, name in (("", ""), ("processor_", ", processor time")):
        for each, result in results.items():
            first, later = (plan_s(each, number, kind) for number in (0, 1))
            print(
                f"| {each}{name} | {result['plans'][0][f'first_{kind}s']:.1f} | {first:.0f} | "
                f"{first / plan_s(TODAY, 0, kind):.2f} | {later:.0f} | {later / plan_s(TODAY, 1, kind):.2f} | "
                f"{1 / result['plans'][1][f'token_{kind}s']:.2f} | {result['gib'][0]:.1f} ({result['gib'][1]:.1f}) |"
            )
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["first-token", "restart", "precisions"])
    parser.add_argument("--size", choices=["7b", "0.5b"], help="default: 0.5b for first-token, else 7b")
    parser.add_argument("--model", type=Path, help="a checkpoint of that size; default: one of random weights is made")
    parser.add_argument("--precision", choices=(*get_args(Precision), TODAY), default="bf16")
    parser.add_argument("--precisions", default="bf16,int8,int4")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data-folder", type=Path, help="keeps what is packed between calls; default: a temporary one")
    parser.add_argument("--child", choices=get_args(Stop), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child is not None:
        child(asked)
        return 0
    size = asked.size or ("0.5b" if asked.part == "first-token" else "7b")
    with given_or_random(asked.model, size) as model:
        if asked.part == "first-token":
            met = asyncio.run(beside_generate(model, asked.rounds))
        elif asked.part == "restart":
            met = restart(model, size, asked.precision, asked.rounds)
        else:
            met = precisions(model, size, asked.precisions.split(","), asked.tokens, asked.data_folder)
    print("the bar is", "met" if met else "missed")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
