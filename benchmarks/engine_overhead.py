"""Benchmark 1: wall time over critical path for concurrent diamonds, our engine beside both kinds of LangGraph.

    python -m venv .venv-bench && .venv-bench/bin/pip install -r requirements-bench.txt
    python -m benchmarks.engine_overhead --langgraph-python .venv-bench/bin/python [--repeats 5] [--json FILE]

A diamond is five steps, 0 -> 1, 2, 3 -> 4, of one second each: its critical path is three seconds. All steps are
answered by one fake provider in a process of its own (``provider``), 20 chunks a second and stream. Ours goes
through the engine's host (a waiting caller's thread a run), the real HTTP worker and the durable event log (SQLite,
WAL, synchronous=FULL), every streamed piece included; LangGraph through aiohttp nodes and its own SQLite checkpointer,
also synchronous=FULL. Its ``durability`` is "async" (its default: the next steps start while the checkpoint is written)
or "sync" (they start when it is on disk, which is what ours promises). ``--checkout FOLDER`` measures an older checkout
of ours as well, by its own copy of this file, which knows how its engine is called.

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
import importlib.metadata
import json
import os
import platform
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BARS = {1: 1.02, 20: 1.05, 100: 1.15, 200: 1.25}
"""Wall time over critical path that is allowed for so many runs at once."""
BEGIN_BARS_S = {200: 1.0}
"""Seconds in which one thread must have begun so many runs."""
CRITICAL_PATH_STEPS, STEPS = 3, 5
WAIT_S = 300


@dataclass(frozen=True)
class System:
    """What is measured: its name in the table, the command of one measurement, and where that is run."""

    name: str
    command: tuple[str, ...]
    folder: Path

    @property
    def is_ours(self) -> bool:
        return "--child" in self.command


class Ours:
    """The engine of the checkout in ``sys.path``, through the doors that the pages and the command line use."""

    def __init__(self, url: str, database: str) -> None:
        from conductor_core.engine.host import EngineHost
        from conductor_core.settings import Settings
        from conductor_core.workflow.model import Step, Workflow
        from storage.store import open_store

        reads: tuple[tuple[int, ...], ...] = ((), (0,), (0,), (0,), (1, 2, 3))
        steps = tuple(Step(instruction="Solve the next part.", agent="paced", access_list=each) for each in reads)
        self._workflow = Workflow(steps=steps)
        self._url = url
        self._store = open_store(f"sqlite:///{database}")
        self._host = EngineHost(self._store.log, Settings(), self._store)

    def begin(self, model: str) -> str:
        from conductor_core.chat.messages import WorkerSpec
        from conductor_core.run.request import RunRequest
        from conductor_core.run.values import PoolInfo

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

    def end_all(self) -> None:
        """Waits until nothing runs. An older checkout forgets the results of runs that nobody waits for yet."""
        patience = time.monotonic() + WAIT_S
        while self._host.active():
            if time.monotonic() > patience:
                raise RuntimeError(f"{len(self._host.active())} runs have no end after {WAIT_S} s")
            time.sleep(0.05)

    def close(self) -> None:
        self._host.close()
        self._store.close()


def ours(url: str, runs: int, seconds: float, chunks: int, database: str) -> dict[str, Any]:
    """One measurement in this process: ``runs`` callers at once, then as many runs that one thread begins."""
    system, model = Ours(url, database), f"paced/{seconds}/{chunks}"
    system.run("paced/0.05/2")
    everybody = threading.Barrier(runs + 1)

    def caller(_: int) -> float:
        everybody.wait()
        return system.run(model)

    with ThreadPoolExecutor(max_workers=runs) as callers:
        results = callers.map(caller, range(runs))
        everybody.wait()
        started, cpu = time.perf_counter(), time.process_time()
        walls_s = list(results)
        wall_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu
    events = _count(database, "SELECT count(*) FROM events")

    started = time.perf_counter()
    for _ in range(runs):
        system.begin(model)
    begin_s = time.perf_counter() - started
    system.end_all()
    system.close()
    if (whole := _count(database, "SELECT count(*) FROM runs WHERE status = 'completed'")) != 2 * runs + 1:
        raise RuntimeError(f"{whole} of {2 * runs + 1} runs are whole")
    return {"wall_s": wall_s, "run_s": statistics.median(walls_s), "cpu_s": cpu_s, "begin_s": begin_s, "events": events}


def _count(database: str, question: str) -> int:
    connection = sqlite3.connect(database)
    try:
        ((count,),) = connection.execute(question)
    finally:
        connection.close()
    return int(count)


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
    command = [sys.executable, str(Path(__file__)), "--provider"]
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


def systems(checkouts: list[Path], langgraph_python: str | None) -> list[System]:
    """Ours, then each older checkout of ours by the Python of its own environment, then LangGraph's two kinds."""
    here = Path(__file__).resolve()

    def ours_in(folder: Path) -> tuple[str, ...]:
        # -P: the file's folder is not searched for modules, the checkout is (PYTHONPATH).
        python = folder / ".venv" / "bin" / "python"
        own = str(python) if python.exists() else sys.executable
        return own, "-P", str(folder / "benchmarks" / here.name), "--child"

    found = [System("ours", (sys.executable, *ours_in(here.parents[1])[1:]), here.parents[1])]
    found += [System(f"ours, {folder.name}", ours_in(folder), folder) for folder in checkouts]
    if langgraph_python:
        diamond = (langgraph_python, str(here.with_name("langgraph_diamond.py")))
        found += [
            System(f"LangGraph, {durability}", (*diamond, durability), here.parents[1])
            for durability in ("async", "sync")
        ]
    return found


def measure(system: System, url: str, runs: int, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        arguments = [url, str(runs), str(options.seconds), str(options.chunks), str(Path(folder) / "log.sqlite3")]
        done = subprocess.run(
            [*system.command, *arguments],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            timeout=3 * WAIT_S,
            cwd=system.folder,
            env={**os.environ, "PYTHONPATH": str(system.folder)},
        )
    result: dict[str, Any] = json.loads(done.stdout)
    critical_s = CRITICAL_PATH_STEPS * options.seconds
    return result | {
        "ratio": result["wall_s"] / critical_s,
        "run_ratio": result["run_s"] / critical_s,
        "cpu_ms_a_step": result["cpu_s"] * 1000 / (runs * STEPS),
        "load_before": os.getloadavg()[0],
    }


def machine() -> dict[str, Any]:
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        cpu = names[0] if names else cpu
    packages = ("httpx2", "aiohttp", "pydantic", "sqlalchemy")
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "versions": {name: importlib.metadata.version(name) for name in packages},
    }


def row(system: System, runs: int, results: list[dict[str, Any]]) -> dict[str, Any]:
    """The medians of one system's measurements, and whether they keep the bars; those are for ours alone."""
    ratios = sorted(result["ratio"] for result in results)
    ratio = round(statistics.median(ratios), 4)
    begin_s = round(statistics.median(result["begin_s"] for result in results), 3)
    bars = []
    if system.is_ours:
        for value, bar, unit in ((ratio, BARS.get(runs), ""), (begin_s, BEGIN_BARS_S.get(runs), " s")):
            if bar is not None:
                bars.append(f"{bar}{unit} {'met' if value <= bar else 'MISSED'}")
    return {
        "system": system.name,
        "runs": runs,
        "ratio": ratio,
        "lowest": round(ratios[0], 4),
        "highest": round(ratios[-1], 4),
        "run_ratio": round(statistics.median(result["run_ratio"] for result in results), 4),
        "cpu_ms_a_step": round(statistics.median(result["cpu_ms_a_step"] for result in results), 2),
        "begin_s": begin_s,
        "events": [result.get("events") for result in results],
        "bars": ", ".join(bars),
        "load_before": [round(result["load_before"], 2) for result in results],
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as one Markdown table, those of as many runs together."""
    lines = [
        "| at once | system | wall / critical path | lowest-highest | median run | CPU ms a step "
        "| one thread begins all, s | bars |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for each in sorted(rows, key=lambda each: int(each["runs"])):
        lines.append(
            f"| {each['runs']} | {each['system']} | {each['ratio']:.3f} | {each['lowest']:.3f}-{each['highest']:.3f} "
            f"| {each['run_ratio']:.3f} | {each['cpu_ms_a_step']:.2f} | {each['begin_s']:.2f} | {each['bars']} |"
        )
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Wall time over critical path, our engine beside LangGraph.")
    parser.add_argument("--langgraph-python", help="a Python with requirements-bench.txt; without it only ours is run")
    parser.add_argument("--checkout", type=Path, nargs="+", default=[], help="older checkouts of ours, measured too")
    parser.add_argument("--runs", type=int, nargs="+", default=list(BARS), help="at once")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a step")
    parser.add_argument("--chunks", type=int, default=20, help="of a step's stream")
    parser.add_argument("--folder", help="where the databases are written (a disk, not memory)")
    parser.add_argument("--json", type=Path, help="write the result to this file as well")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    measured = systems([folder.resolve() for folder in options.checkout], options.langgraph_python)
    rows = []
    with provider() as url:
        for runs in options.runs:
            results: dict[str, list[dict[str, Any]]] = {system.name: [] for system in measured}
            for _ in range(options.repeats):
                for system in measured:
                    result = measure(system, url, runs, options)
                    results[system.name].append(result)
                    print(f"{system.name}, {runs} at once: {result['ratio']:.3f}", file=sys.stderr, flush=True)
            rows += [row(system, runs, results[system.name]) for system in measured]
    report = {"machine": machine(), "seconds": options.seconds, "chunks": options.chunks, "rows": rows}
    print(f"{report['machine']}\n")
    print(table(rows))
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["--provider"]:
        asyncio.run(serve())
    elif sys.argv[1:2] == ["--child"]:
        _, _, url_, runs_, seconds_, chunks_, database_ = sys.argv
        print(json.dumps(ours(url_, int(runs_), float(seconds_), int(chunks_), database_)))
    else:
        main()
