"""Wall time over critical path for concurrent diamonds, our engine beside both kinds of LangGraph.

    python -m venv .venv-bench && .venv-bench/bin/pip install -r requirements-bench.txt
    python -m benchmarks.engine_overhead --langgraph-python .venv-bench/bin/python [--repeats 5]

A diamond is five steps, 0 -> 1, 2, 3 -> 4, of one second each: its critical path is three seconds. All steps are
answered by one fake provider in a process of its own (``provider``), 20 chunks a second and stream. Ours goes
through the engine's host (a waiting caller's thread a run), the real HTTP worker and the durable event log (SQLite,
WAL, synchronous=FULL), every streamed piece included; LangGraph through aiohttp nodes and its own SQLite checkpointer,
also synchronous=FULL. Its ``durability`` is "async" (its default: the next steps start while the checkpoint is written)
or "sync" (they start when it is on disk, which is what ours promises).

Each measurement is a process of its own, the systems in turn. Reported, as the median of the repeats:

wall / critical path    from the first run's start to the last one's end, with the lowest and the highest
median run              one run's wall time over the critical path
CPU ms a step           of the measured process alone, the provider's not counted
one thread begins all   seconds until one thread has begun so many runs: ours until the last ``start`` has returned, its
                        ``run.created`` durable; LangGraph, whose thread is its event loop, until the last first node is
                        called, of the same runs whose wall time is measured
"""

import argparse
import asyncio
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from conductor_core.chat.messages import WorkerSpec
from conductor_core.engine.host import EngineHost
from conductor_core.run.request import RunRequest
from conductor_core.run.values import PoolInfo
from conductor_core.settings import Settings
from conductor_core.workflow.model import Step, Workflow
from storage.store import open_store

BARS = {1: 1.02, 20: 1.05, 100: 1.15, 200: 1.25}
"""Wall time over critical path that is allowed for so many runs at once."""
BEGIN_BARS_S = {200: 1.0}
"""Seconds in which one thread must have begun so many runs."""
CRITICAL_PATH_S, STEPS = 3, 5
MODEL = "paced/1.0/20"
WAIT_S = 300


class Ours:
    """The engine, through the doors that the pages and the command line use."""

    def __init__(self, url: str, database: str) -> None:
        reads: tuple[tuple[int, ...], ...] = ((), (0,), (0,), (0,), (1, 2, 3))
        steps = tuple(Step(instruction="Solve the next part.", agent="paced", access_list=each) for each in reads)
        self._workflow, self._url = Workflow(steps=steps), url
        self._store = open_store(f"sqlite:///{database}")
        self._host = EngineHost(self._store.log, Settings(), self._store)

    def begin(self, model: str) -> str:
        spec = WorkerSpec(name="paced", provider="openai", model=model, base_url=self._url, max_concurrency=1000)
        pool = PoolInfo(name="benchmark", workers=(spec,))
        return self._host.start(RunRequest(task="A diamond of five steps.", workflow=self._workflow, pool=pool))

    def end(self, run_id: str) -> None:
        trace = self._host.wait(run_id, timeout_s=WAIT_S)
        if trace.status != "completed" or not trace.answer:
            raise RuntimeError(f"run {run_id} is not whole: {trace.status}, {trace.error}")

    def run(self, model: str) -> float:
        started = time.perf_counter()
        self.end(self.begin(model))
        return time.perf_counter() - started

    def close(self) -> None:
        self._host.close()
        self._store.close()


def ours(url: str, runs: int, database: str) -> dict[str, Any]:
    """One measurement in this process: ``runs`` callers at once, then as many runs that one thread begins."""
    system = Ours(url, database)
    system.run("paced/0.05/2")
    everybody = threading.Barrier(runs + 1)

    def caller(_: int) -> float:
        everybody.wait()
        return system.run(MODEL)

    with ThreadPoolExecutor(max_workers=runs) as callers:
        results = callers.map(caller, range(runs))
        everybody.wait()
        started, cpu = time.perf_counter(), time.process_time()
        walls_s = list(results)
        wall_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu
    started = time.perf_counter()
    begun = [system.begin(MODEL) for _ in range(runs)]
    begin_s = time.perf_counter() - started
    for run_id in begun:
        system.end(run_id)
    system.close()
    with closing(sqlite3.connect(database)) as connection:
        ((whole,),) = connection.execute("SELECT count(*) FROM runs WHERE status = 'completed'")
    if whole != 2 * runs + 1:
        raise RuntimeError(f"{whole} of {2 * runs + 1} runs are whole")
    return {"wall_s": wall_s, "run_s": statistics.median(walls_s), "cpu_s": cpu_s, "begin_s": begin_s}


_HEADERS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def _event(text: str | None) -> bytes:
    """One server-sent event in one HTTP chunk; None: the finish reason and the usage."""
    choice: dict[str, object] = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    body: dict[str, object] = {"id": "paced", "object": "chat.completion.chunk", "choices": [choice]}
    if text is None:
        choice |= {"delta": {}, "finish_reason": "stop"}
        body["usage"] = {"prompt_tokens": 40, "completion_tokens": 40, "total_tokens": 80}
    data = f"data: {json.dumps(body)}\n\n".encode()
    if text is None:
        data += b"data: [DONE]\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data) + (b"0\r\n\r\n" if text is None else b"")


_TEXT, _END = _event("another few words "), _event(None)


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers OpenAI's streaming chat completions at the pace that the model's name says.

    ``paced/1.0/20`` answers in 1.0 s, in 20 chunks, each at its own point of a schedule fixed when the request is read,
    so that lateness does not add up.
    """
    loop = asyncio.get_running_loop()
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            started = loop.time()
            length = next(
                int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
            )
            model = json.loads(await reader.readexactly(length))["model"]
            _, seconds, chunks = model.split("/")
            writer.write(_HEADERS)
            for chunk in range(1, int(chunks) + 1):
                await asyncio.sleep(started + float(seconds) * chunk / int(chunks) - loop.time())
                writer.write(_END if chunk == int(chunks) else _TEXT)
    except (asyncio.IncompleteReadError, ConnectionError):
        return  # The client is done with this connection.
    finally:
        writer.close()


@contextmanager
def provider() -> Iterator[str]:
    """Runs the fake provider in a process of its own until the block is left. Gives its base URL."""
    command = [sys.executable, "-m", "benchmarks.engine_overhead", "--provider"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        if process.stdout is None or process.stdin is None:
            raise RuntimeError("the provider has no pipes")
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()


async def serve() -> None:
    """Prints the base URL, and serves until stdin is closed."""
    server = await asyncio.start_server(_serve, "127.0.0.1", 0, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


def measure(command: list[str], url: str, runs: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        arguments = [url, str(runs), MODEL, str(Path(folder) / "log.sqlite3")]
        done = subprocess.run([*command, *arguments], check=True, stdout=subprocess.PIPE, text=True, timeout=3 * WAIT_S)
    result: dict[str, Any] = json.loads(done.stdout)
    return {
        "ratio": result["wall_s"] / CRITICAL_PATH_S,
        "run_ratio": result["run_s"] / CRITICAL_PATH_S,
        "cpu_ms_a_step": result["cpu_s"] * 1000 / (runs * STEPS),
        "begin_s": result["begin_s"],
    }


def row(system: str, runs: int, results: list[dict[str, float]]) -> str:
    """The medians of one system's measurements, and whether they keep the bars; those are for ours alone."""
    ratios = [result["ratio"] for result in results]
    found = {name: statistics.median(result[name] for result in results) for name in results[0]}
    bars = [
        f"{bar}{unit} {'met' if value <= bar else 'MISSED'}"
        for value, bar, unit in ((found["ratio"], BARS.get(runs), ""), (found["begin_s"], BEGIN_BARS_S.get(runs), " s"))
        if system == OURS and bar is not None
    ]
    return (
        f"| {runs} | {system} | {found['ratio']:.3f} | {min(ratios):.3f}-{max(ratios):.3f} | {found['run_ratio']:.3f} "
        f"| {found['cpu_ms_a_step']:.2f} | {found['begin_s']:.2f} | {', '.join(bars)} |"
    )


OURS = "ours"


def main() -> None:
    parser = argparse.ArgumentParser(description="Wall time over critical path, our engine beside LangGraph.")
    parser.add_argument("--langgraph-python", help="a Python with requirements-bench.txt; without it only ours is run")
    parser.add_argument("--runs", type=int, nargs="+", default=list(BARS), help="at once")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    systems = {OURS: [sys.executable, "-m", "benchmarks.engine_overhead", "--child"]}
    if options.langgraph_python:
        diamond = str(Path(__file__).with_name("langgraph_diamond.py"))
        for durability in ("async", "sync"):
            systems[f"LangGraph, {durability}"] = [options.langgraph_python, diamond, durability]
    print(f"load {os.getloadavg()[0]:.1f}\n")
    print("| at once | system | wall / critical path | lowest-highest | median run | CPU ms a step ", end="")
    print("| one thread begins all, s | bars |\n|---|---|---|---|---|---|---|---|")
    with provider() as url:
        for runs in options.runs:
            results: dict[str, list[dict[str, float]]] = {name: [] for name in systems}
            for _ in range(options.repeats):
                for name, command in systems.items():
                    results[name].append(measure(command, url, runs))
            for name, measured in results.items():
                print(row(name, runs, measured), flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["--provider"]:
        asyncio.run(serve())
    elif sys.argv[1:2] == ["--child"]:
        _, _, url_, runs_, _, database_ = sys.argv
        print(json.dumps(ours(url_, int(runs_), database_)))
    else:
        main()
