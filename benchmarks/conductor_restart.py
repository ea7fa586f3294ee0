"""Benchmark: the first token of a real-size Conductor after a restart, with its prompt's prefix on disk and without.

    python -m benchmarks.conductor_restart [--size 7b|0.5b] [--precision bf16|int8|int4] [--model FOLDER] [--rounds N]

Each measurement is a process of its own, by the app's own path (``open_conductor``). A round is a start that finds no
file, which reads the prefix and writes the file, and one that finds it; so other work on the machine hits both alike.
Times count from the request for a plan, with the libraries imported; what importing them takes stands beside.

Packed weights are converted before the rounds, and stay for all of them.

Cancellation: the plan is given up while the model is loaded, converted, in the middle of reading the prompt, and while
it writes. The figure is the time until its thread does nothing any more.
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
from pathlib import Path
from typing import Any, Literal, get_args

from benchmarks.given_checkpoint import given_or_random
from conductor_core.chat.messages import PlanRequest, PlanText, WorkerSpec
from conductor_core.chat.progress import Progress, watching
from conductor_core.engine.recorder import closing
from conductor_core.precision import Precision, PrecisionChoice

Stop = Literal["loading", "converting", "reading", "writing"]
BARS = {"7b": "at most 1/20 of without", "0.5b": "at most 1 s"}
POOL = tuple(
    WorkerSpec(name=name, provider="rehearsal", model=name, description=description)
    for name, description in (("solver", "hard sums and proofs"), ("coder", "code"), ("writer", "clear prose"))
)
REQUEST = PlanRequest(task="What is the sum of the first 40 odd numbers?", agents=POOL, max_steps=2)
INTO_A_PASS_S = 1.0


async def plan(model: Path, data_folder: Path, precision: PrecisionChoice, stop: Stop) -> dict[str, Any]:
    """Asks for a plan, and gives it up while the model is at ``stop``."""
    from conductor_core.conductors.catalogue import open_conductor
    from conductor_core.inference.shared import shared_model
    from conductor_core.settings import Settings

    settings = Settings(data_folder=data_folder, precision=precision)
    conductor, shared = open_conductor(str(model), settings), shared_model(str(model))
    told: list[tuple[float, Progress]] = []
    began, began_cpu = time.perf_counter(), time.process_time()

    async def write() -> tuple[float, float]:
        with watching(lambda each: told.append((time.perf_counter() - began, each))):
            async with closing(conductor.write(REQUEST)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, PlanText):
                        return time.perf_counter() - began, time.process_time() - began_cpu
        raise RuntimeError("the plan ended without text")

    def is_there() -> bool:
        last = [(at_s, each) for at_s, each in told if each.phase == stop]
        if stop in ("loading", "converting"):
            return bool(last) and last[-1][1].done * 3 > last[-1][1].total
        return bool(last) and time.perf_counter() - began - last[0][0] > INTO_A_PASS_S

    writing = asyncio.create_task(write())
    first_token_s = processor_s = None
    if stop == "writing":
        first_token_s, processor_s = await writing
    else:
        while not is_there() and not writing.done():  # noqa: ASYNC110 - another thread brings it about
            await asyncio.sleep(0.005)
        writing.cancel()
        await asyncio.wait([writing])
    stopped = time.perf_counter()
    while shared.busy:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.002)
    phases = {each.phase for _, each in told}
    return {
        "first_token_s": first_token_s,
        "processor_s": processor_s,
        "load_s": shared.load_s,
        "read_tokens": _read_tokens([each for _, each in told if each.phase == "reading"]),
        "stopped_in_time": stop in phases or stop == "writing",
        "stop_s": time.perf_counter() - stopped,
    }


def _read_tokens(reading: list[Progress]) -> int:
    return reading[-1].done - reading[0].done if reading else 0


def child(model: Path, data_folder: Path, precision: PrecisionChoice, stop: Stop) -> None:
    """Prints one measurement as JSON."""
    began = time.perf_counter()
    import llguidance  # noqa: F401
    from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM  # noqa: F401

    from conductor_core.conductors import catalogue  # noqa: F401

    imports_s = time.perf_counter() - began
    print(json.dumps({"import_s": imports_s} | asyncio.run(plan(model, data_folder, precision, stop))))


def in_a_process(model: Path, data_folder: Path, precision: PrecisionChoice, stop: Stop) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.conductor_restart", "--child", stop, "--model", str(model)]
    command += ["--precision", precision, "--data-folder", str(data_folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(f"stopped at {stop}: {measured}", file=sys.stderr, flush=True)
    return measured


def measure(model: Path, precision: PrecisionChoice, rounds: int) -> dict[str, Any]:
    without, with_file, sizes, stops = [], [], [], {}
    packed = precision != "bf16"
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if packed:
            stops["converting"] = in_a_process(model, folder, precision, "converting")
            in_a_process(model, folder, precision, "writing")  # converts
        for _ in range(rounds):
            shutil.rmtree(folder / "prefixes", ignore_errors=True)
            without.append(in_a_process(model, folder, precision, "writing"))
            with_file.append(in_a_process(model, folder, precision, "writing"))
            sizes += [file.stat().st_size for file in folder.glob("prefixes/*.safetensors")]
        shutil.rmtree(folder / "prefixes")
        for stop in ("loading", "reading"):
            stops[stop] = in_a_process(model, folder, precision, stop)
    both = [*without, *with_file]
    return {
        "precision": precision,
        "file_bytes": statistics.median(sizes),
        "import_s": statistics.median(each["import_s"] for each in both),
        "load_s": statistics.median(each["load_s"] for each in both),
        "without": without,
        "with_file": with_file,
        "ratio": statistics.median(
            one["first_token_s"] / other["first_token_s"] for one, other in zip(with_file, without, strict=True)
        ),
        "stop_s": {name: each["stop_s"] for name, each in stops.items()}
        | {"writing": max(each["stop_s"] for each in both)},
        "all_stopped_in_time": all(each["stopped_in_time"] for each in stops.values()),
    }


def table(result: dict[str, Any], size: str) -> str:
    stops = ", ".join(f"{name} {took:.2f} s" for name, took in result["stop_s"].items())
    lines = [
        f"| after a restart ({size}, {result['precision']}) | first token s, each round | processor s | tokens read |",
        "|---|---|---|---|",
    ]
    for name, measured in (("without a file", result["without"]), ("with it", result["with_file"])):
        first, busy = ("  ".join(f"{each[what]:.2f}" for each in measured) for what in ("first_token_s", "processor_s"))
        lines.append(f"| {name} | {first} | {busy} | {measured[0]['read_tokens']} |")
    return "\n".join(
        [
            *lines,
            "",
            f"with / without, median of rounds: 1/{1 / result['ratio']:.1f} (the bar: {BARS[size]}); the file has "
            f"{result['file_bytes'] / 1e6:.0f} MB; loading took {result['load_s']:.2f} s of it, importing the "
            f"libraries {result['import_s']:.1f} s before",
            f"cancelled until idle: {stops} (the bar: 1 s)",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=sorted(BARS), default="7b")
    parser.add_argument("--precision", choices=get_args(Precision), default="bf16")
    parser.add_argument("--model", type=Path, help="a checkpoint of that size; default: one of random weights is made")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", choices=get_args(Stop), help=argparse.SUPPRESS)
    parser.add_argument("--data-folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        child(options.model, options.data_folder, options.precision, options.child)
        return
    with given_or_random(options.model, options.size) as model:
        result = measure(model, options.precision, options.rounds)
    print(json.dumps(result, indent=1) if options.json else table(result, options.size))
    first_s = statistics.median(each["first_token_s"] for each in result["with_file"])
    good = result["ratio"] <= 1 / 20 if options.size == "7b" else first_s <= 1
    quick = result["all_stopped_in_time"] and max(result["stop_s"].values()) <= 1
    raise SystemExit(0 if good and quick else 1)


if __name__ == "__main__":
    main()
