"""How fast a Conductor of a GGUF file plans, before and after a restart, and how soon it stops.

    python -m benchmarks.gguf_speed FILE.gguf [--tokens 96]

Each round is a process of its own: first without a file of the prompt's static beginning, then with it. Then a plan is
given up while the model is loaded, reads and writes: the figure is the time until the model is the next caller's. The
bar: 1 s.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

from conductor_core.chat.messages import PlanFinished, PlanRequest, TextDelta, WorkerSpec
from conductor_core.chat.progress import Progress, watching
from conductor_core.conductors.catalogue import open_conductor
from conductor_core.inference.llama import Llama, shared_llama
from conductor_core.settings import Settings

POOL = tuple(
    WorkerSpec(name=name, provider="rehearsal", model=name, description=description)
    for name, description in (("solver", "hard sums and proofs"), ("coder", "code"), ("writer", "clear prose"))
)
REQUEST = PlanRequest(task="What is the sum of the first 40 odd numbers?", agents=POOL, max_steps=3)


async def plan_until(file: Path, settings: Settings, stop: str) -> dict[str, Any]:
    """Asks for a plan, and gives it up at the phase ``stop``; ``end``: never."""
    conductor, llama = open_conductor(str(file), settings), shared_llama(file)
    began, told = time.perf_counter(), asyncio.Event()
    found: dict[str, Any] = {}

    def notify(made: Progress) -> None:
        if made.phase == stop or (stop == "writing" and made.writes):
            told.set()

    async def write() -> None:
        with watching(notify):
            async with aclosing(conductor.write(REQUEST)) as pieces:  # type: ignore[type-var]
                async for piece in pieces:
                    if isinstance(piece, TextDelta):
                        found.setdefault("first_s", time.perf_counter() - began)
                    elif isinstance(piece, PlanFinished):
                        took_s = time.perf_counter() - began - found["first_s"]
                        found["written_per_s"] = (piece.usage.output_tokens - 1) / took_s
                        found["cached"] = piece.usage.cached_input_tokens

    writing = asyncio.create_task(write())
    if stop != "end":
        await told.wait()
        await asyncio.sleep(0.0 if stop == "loading" else 0.5)
        writing.cancel()
        stopped = time.perf_counter()
        await asyncio.wait([writing])
        while llama.waits:  # noqa: ASYNC110 a thread brings it about
            await asyncio.sleep(0.005)
        found["stop_s"] = time.perf_counter() - stopped
    else:
        await writing
        found |= memory_of(llama)
    await conductor.aclose()
    return found


def memory_of(llama: Llama) -> dict[str, float]:
    if llama.process is None:
        return {}
    status = Path(f"/proc/{llama.process.pid}/status").read_text()
    kilobytes = {line.split()[0]: int(line.split()[1]) for line in status.splitlines() if line.endswith("kB")}
    return {"peak_mb": kilobytes["VmHWM:"] / 1000, "own_mb": kilobytes["RssAnon:"] / 1000}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--data-folder", help=argparse.SUPPRESS)
    parser.add_argument("--stop", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.stop is not None:
        settings = Settings(plan_max_tokens=asked.tokens, data_folder=asked.data_folder)
        print(json.dumps(asyncio.run(plan_until(asked.file, settings, asked.stop))))
        return 0
    slowest_s = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for name, stop in (("first", "end"), ("restart", "end"), *((each, each) for each in ("loading", "writing"))):
            command = [sys.executable, "-m", "benchmarks.gguf_speed", str(asked.file), "--tokens", str(asked.tokens)]
            command += ["--data-folder", folder, "--stop", stop]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
            measured = json.loads(done.stdout.splitlines()[-1])
            slowest_s = max(slowest_s, measured.get("stop_s", 0.0))
            print(name, {key: round(value, 2) for key, value in measured.items()}, flush=True)
        command[-3:] = [str(Path(folder) / "none"), "--stop", "reading"]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
        measured = json.loads(done.stdout.splitlines()[-1])
        print("reading", {key: round(value, 2) for key, value in measured.items()})
    met = max(slowest_s, measured["stop_s"]) <= 1
    print("the bar is", "met" if met else "missed")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
