"""Benchmark 1: wall time over critical path for concurrent diamonds, our engine beside LangGraph.

    python -m venv .venv-bench && .venv-bench/bin/pip install -r requirements-bench.txt
    python -m benchmarks.engine_overhead --langgraph-python .venv-bench/bin/python [--repeats 5] [--json FILE]

A diamond is five steps, 0 -> 1, 2, 3 -> 4, of one second each: its critical path is three seconds. All steps are
answered by one fake provider in a process of its own (``paced_provider``), 20 chunks a second and stream. Ours goes
through the engine's host (a waiting caller's thread a run), the real HTTP worker and the durable event log (SQLite,
WAL, synchronous=FULL), every streamed piece included; LangGraph through aiohttp nodes and its own SQLite checkpointer,
also synchronous=FULL. Each measurement is a process of its own, the two systems in turn. ``wall`` runs from the first
run's start to the last one's end; ``median run`` is one run's. Reported: the median of the repeats, the lowest and the
highest.
"""

import argparse
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
from pathlib import Path
from typing import Any

BARS = {1: 1.02, 20: 1.05, 100: 1.15}
CRITICAL_PATH_STEPS, STEPS = 3, 5


def ours(url: str, runs: int, seconds: float, chunks: int, database: str) -> dict[str, Any]:
    """One measurement in this process, through the doors that the pages and the command line use."""
    from conductor_core.chat import WorkerSpec
    from conductor_core.engine.host import EngineHost
    from conductor_core.engine.request import RunRequest
    from conductor_core.events import PoolInfo
    from conductor_core.settings import Settings
    from conductor_core.workflow.model import Step, Workflow
    from storage.store import open_store

    store = open_store(f"sqlite:///{database}")
    host = EngineHost(store.log, Settings())
    reads: tuple[tuple[int, ...], ...] = ((), (0,), (0,), (0,), (1, 2, 3))
    steps = tuple(Step(instruction="Solve the next part.", agent="paced", access_list=each) for each in reads)
    workflow = Workflow(steps=steps)

    def run(model: str) -> float:
        spec = WorkerSpec(name="paced", provider="openai", model=model, base_url=url, max_concurrency=1000)
        pool = PoolInfo(name="benchmark", workers=(spec,))
        started = time.perf_counter()
        run_id = host.start(RunRequest(task="A diamond of five steps.", workflow=workflow), None, pool)
        trace = host.wait(run_id, timeout_s=120)
        if trace.status != "completed" or not trace.answer:
            raise RuntimeError(f"run {trace.run_id} is not whole: {trace.status}, {trace.error}")
        return time.perf_counter() - started

    run("paced/0.05/2")
    everybody = threading.Barrier(runs + 1)

    def caller(_: int) -> float:
        everybody.wait()
        return run(f"paced/{seconds}/{chunks}")

    with ThreadPoolExecutor(max_workers=runs) as callers:
        results = callers.map(caller, range(runs))
        everybody.wait()
        started, cpu = time.perf_counter(), time.process_time()
        walls_s = list(results)
        wall_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu
    host.close()
    store.close()
    with sqlite3.connect(database) as connection:
        ((events,),) = connection.execute("SELECT count(*) FROM events")
    connection.close()
    return {"wall_s": wall_s, "run_s": statistics.median(walls_s), "cpu_s": cpu_s, "events": events}


@contextmanager
def provider() -> Iterator[str]:
    command = [sys.executable, "-m", "benchmarks.paced_provider"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        if process.stdout is None or process.stdin is None:
            raise RuntimeError("the provider has no pipes")
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()


def measure(system: str, python: str, url: str, runs: int, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        arguments = [url, str(runs), str(options.seconds), str(options.chunks), str(Path(folder) / "log.sqlite3")]
        if system == "ours":
            command = [sys.executable, "-m", "benchmarks.engine_overhead", "--child", *arguments]
        else:
            command = [python, str(Path(__file__).with_name("langgraph_diamond.py")), *arguments]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
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
    packages = ("httpx2", "pydantic", "sqlalchemy")
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "versions": {name: importlib.metadata.version(name) for name in packages},
    }


def row(system: str, runs: int, results: list[dict[str, Any]]) -> dict[str, Any]:
    ratios = sorted(result["ratio"] for result in results)
    return {
        "system": system,
        "runs": runs,
        "ratio": round(statistics.median(ratios), 4),
        "lowest": round(ratios[0], 4),
        "highest": round(ratios[-1], 4),
        "run_ratio": round(statistics.median(result["run_ratio"] for result in results), 4),
        "cpu_ms_a_step": round(statistics.median(result["cpu_ms_a_step"] for result in results), 2),
        "bar": BARS.get(runs) if system == "ours" else None,
        "load_before": [round(result["load_before"], 2) for result in results],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Wall time over critical path, our engine beside LangGraph.")
    parser.add_argument("--langgraph-python", help="a Python with requirements-bench.txt; without it only ours is run")
    parser.add_argument("--runs", type=int, nargs="+", default=list(BARS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a step")
    parser.add_argument("--chunks", type=int, default=20, help="of a step's stream")
    parser.add_argument("--folder", help="where the databases are written (a disk, not memory)")
    parser.add_argument("--json", type=Path, help="write the result to this file as well")
    options = parser.parse_args()

    systems = ["ours", *(["langgraph"] if options.langgraph_python else [])]
    results: dict[tuple[str, int], list[dict[str, Any]]] = {}
    with provider() as url:
        for runs in options.runs:
            for _ in range(options.repeats):
                for system in systems:
                    result = measure(system, options.langgraph_python, url, runs, options)
                    results.setdefault((system, runs), []).append(result)
                    print(f"{system}, {runs} at once: {result['ratio']:.3f}", file=sys.stderr, flush=True)
    rows = [row(system, runs, each) for (system, runs), each in results.items()]
    report = {"machine": machine(), "seconds": options.seconds, "chunks": options.chunks, "rows": rows}
    print(f"{report['machine']}\n")
    print("| system | at once | wall / critical path | lowest-highest | median run | CPU ms a step | bar |")
    print("|---|---|---|---|---|---|---|")
    for each in rows:
        bar = "" if each["bar"] is None else f"{each['bar']} {'met' if each['ratio'] <= each['bar'] else 'MISSED'}"
        print(
            f"| {each['system']} | {each['runs']} | {each['ratio']:.3f} | {each['lowest']:.3f}-{each['highest']:.3f} | "
            f"{each['run_ratio']:.3f} | {each['cpu_ms_a_step']:.1f} | {bar} |"
        )
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        _, _, url_, runs_, seconds_, chunks_, database_ = sys.argv
        print(json.dumps(ours(url_, int(runs_), float(seconds_), int(chunks_), database_)))
    else:
        main()
