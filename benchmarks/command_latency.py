"""How soon a command to a run takes effect: an approval of a run that waits, and the cancelling of one that works.

    python -m benchmarks.command_latency [--times 50]

A command has taken effect when the event that answers it is durable and can be read. It is sent by the process that
carries the run out, as the page does, or by another one, as ``conductor approve`` and ``conductor cancel`` do. The
waiting for the effect reads the run again and again, so each figure is up to two milliseconds too high. Workers are
simulated.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import TextIO

from conductor_core.engine.host import EngineHost
from conductor_core.rehearsal import EXAMPLES
from conductor_core.run.actor import local_caller
from conductor_core.run.commands import Approve, Cancel, Command
from conductor_core.run.request import RunRequest, read_gate
from conductor_core.run.trace import RunTrace
from conductor_core.settings import Settings
from conductor_core.workflow.model import Step, Workflow
from storage import Store, open_store

BARS_MS = {"this process": 20.0, "another process": 300.0}
WORKFLOW = Workflow(steps=(Step(agent="planner", instruction="Plan: {question}", access_list=()),))
SETTINGS = Settings(rehearsal_tokens_per_s=2, warm_up=False)
WAIT_S = 60.0
BREATH_S = 0.001


def begin(host: EngineHost, kind: type[Command]) -> str:
    """Begins a run that waits for an approval of its plan, or one whose worker writes for a long time."""
    gates = (read_gate("plan"),) if kind is Approve else ()
    return host.start(RunRequest(task=EXAMPLES[0].task, workflow=WORKFLOW, gates=gates))


def until(store: Store, run_id: str, status: str) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while store.read(run_id).status != status:
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"run {run_id} is {store.read(run_id).status}, not {status}")
        time.sleep(BREATH_S)


def answered(trace: RunTrace, number: int, kind: type[Command]) -> bool:
    return trace.ended if kind is Cancel else trace.last_command >= number


def latency_ms(store: Store, run_id: str, kind: type[Command]) -> float:
    """Sends the command and returns the milliseconds until its effect can be read."""
    by = local_caller("cli")
    began_s = time.perf_counter()
    number = store.send(kind.model_validate({"run_id": run_id, "actor": by.actor, "door": by.door}))
    while not answered(store.read(run_id), number, kind):
        if time.perf_counter() - began_s > WAIT_S:
            raise TimeoutError(f"run {run_id} did not answer the command {number}")
        time.sleep(BREATH_S)
    return (time.perf_counter() - began_s) * 1000


def carry_out(database: str, orders: TextIO) -> None:
    """Begins a run for each line of ``orders``, and prints its id: the other process."""
    store = open_store(database)
    host = EngineHost(store.log, SETTINGS, store)
    for line in orders:
        print(begin(host, KINDS[line.strip()]), flush=True)
    host.close()
    store.close()


KINDS: dict[str, type[Command]] = {"approve": Approve, "cancel": Cancel}


class Elsewhere:
    def __init__(self, database: str) -> None:
        command = [sys.executable, "-m", "benchmarks.command_latency", "--carry-out", database]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def begin(self, kind: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None  # noqa: PT018  both are pipes
        print(kind, file=self._process.stdin, flush=True)
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        self._process.communicate(timeout=WAIT_S)


def measure(times: int) -> dict[str, dict[str, list[float]]]:
    """Returns the latencies in milliseconds, by who carries the run out and by command."""
    found: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        database = f"sqlite:///{Path(folder) / 'commands.sqlite3'}"
        store = open_store(database)
        with closing(EngineHost(store.log, SETTINGS, store)) as host:
            found["this process"] = {
                name: [one(store, begin(host, kind), kind) for _ in range(times)] for name, kind in KINDS.items()
            }
        elsewhere = Elsewhere(database)
        found["another process"] = {
            name: [one(store, elsewhere.begin(name), kind) for _ in range(times)] for name, kind in KINDS.items()
        }
        elsewhere.close()
        store.close()
    return found


def one(store: Store, run_id: str, kind: type[Command]) -> float:
    until(store, run_id, "waiting" if kind is Approve else "running")
    return latency_ms(store, run_id, kind)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--times", type=int, default=50, help="commands of each kind; default 50")
    parser.add_argument("--carry-out", metavar="URL", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.carry_out:
        carry_out(asked.carry_out, sys.stdin)
        return 0
    found = measure(asked.times)
    print(f"{'the run is in':<18} {'command':<9} {'median':>8} {'p95':>8} {'max':>8} {'bar':>8}   (ms)")
    met = True
    for where, kinds in found.items():
        for name, each in kinds.items():
            p95_ms = statistics.quantiles(each, n=20, method="inclusive")[-1]
            met &= p95_ms <= BARS_MS[where]
            figures = (statistics.median(each), p95_ms, max(each), BARS_MS[where])
            print(f"{where:<18} {name:<9}{''.join(f' {ms:>8.1f}' for ms in figures)}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
