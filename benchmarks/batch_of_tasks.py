"""A batch of tasks against its ideal, and killed: ``run --tasks`` as users start it, with workers of known latency.

    python -m benchmarks.batch_of_tasks                 wall time over the ideal
    python -m benchmarks.batch_of_tasks --kills 3       SIGKILL three times, then to its end: what was paid twice

The ideal is ``ceil(tasks / concurrency)`` times the steps of a task times the time of a step. Each task is a chain of
given steps, so no Conductor takes the processor. Wall time is the batch's own (its summary says it); the process's
start comes on top, once.
"""

import argparse
import json
import math
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks.paced_provider import provider
from storage import open_store

_STEPS = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--step-s", type=float, default=1.0, help="seconds that a worker takes")
    parser.add_argument("--chunks", type=int, default=10, help="pieces of each answer")
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0, help="of the moments of the kills")
    given = parser.parse_args()
    with provider() as url, tempfile.TemporaryDirectory() as folder:
        _measure(given, url, Path(folder))


def _measure(given: argparse.Namespace, url: str, folder: Path) -> None:
    (folder / "pool.toml").write_text(
        f'[[worker]]\nname = "paced"\nprovider = "openai"\nmodel = "paced/{given.step_s}/{given.chunks}"\n'
        f'base_url = "{url}"\nusd_per_mtok = {{ input = 1.0, output = 10.0 }}\nmax_concurrency = 1024\n'
    )
    steps = [
        {"agent": "paced", "instruction": f"Part {index}: {{question}}", "access_list": [index - 1] if index else []}
        for index in range(_STEPS)
    ]
    rows = [{"id": f"t{number}", "task": f"Task {number}.", "workflow": steps} for number in range(given.tasks)]
    (folder / "tasks.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    ideal_s = math.ceil(given.tasks / given.concurrency) * _STEPS * given.step_s
    command = [sys.executable, "-m", "conductor_core", "run", "--tasks", str(folder / "tasks.jsonl"), "--json"]
    command += ["--pool", str(folder / "pool.toml"), "--db", str(folder / "runs.sqlite3"), "--resume"]
    command += ["--concurrency", str(given.concurrency)]
    moments = random.Random(given.seed)
    for kill in range(given.kills):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        after_s = 1.0 + moments.uniform(0.05, 0.35) * ideal_s
        time.sleep(after_s)
        process.kill()
        process.wait()
        print(f"kill {kill + 1} after {after_s:.1f} s: {_state(folder)}", flush=True)
    started_s = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    process_s = time.monotonic() - started_s
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == given.tasks
    assert {line["status"] for line in lines} == {"completed"}
    print(_state(folder))
    if not given.kills:
        # "... 200 tasks: 200 completed · 14.9 s · $0.1 ..."
        found = re.search(r"tasks: .*? · (?:(\d+) min )?([\d.]+) s ·", done.stderr)
        assert found is not None, done.stderr
        wall_s = 60 * int(found[1] or 0) + float(found[2])
        print(
            f"ideal {ideal_s:.1f} s, batch {wall_s:.1f} s: {wall_s / ideal_s:.3f}; with the process {process_s:.1f} s"
        )


def _state(folder: Path) -> str:
    """What the record says was paid."""
    store = open_store(f"sqlite:///{folder / 'runs.sqlite3'}")
    store.mark_interrupted()
    paid, cut, runs = Counter[tuple[str, int]](), 0, store.runs(limit=100_000)
    for run in runs:
        trace, _ = store.trace(run.run_id)
        assert trace.batch is not None
        paid.update((trace.batch.row, step.index) for step in trace.steps if step.status == "completed")
        cut += sum(step.status in ("running", "cancelled") and bool(step.messages) for step in trace.steps)
    store.close()
    twice = sum(count - 1 for count in paid.values())
    return f"{len(runs)} runs, {len(paid)} steps finished, {twice} of them paid twice, {cut} under way when killed"


if __name__ == "__main__":
    main()
