"""SIGKILL at every boundary of gated runs: nothing is lost, done twice, paid twice, or sent without an approval.

    python -m benchmarks.gated_kills [--points 200] [--gates steps plan ...]

A process begins a run of four steps and approves what it asks for. It is killed just before, or just after, one write
to the log becomes durable: events of the run, and commands to it. Then another process goes on as people would: it
marks what was interrupted, resumes it, and approves what waits. Checked from the record alone, at each point:

- the answer is that of an undisturbed run;
- no step that had its answer was asked for again;
- every call was approved in its run, for exactly what was sent;
- every command was answered by one event, or its run ended before it was heard; none was answered twice.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from conductor_core.engine.host import EngineHost
from conductor_core.engine.request import resume_of
from conductor_core.run.actor import local_caller
from conductor_core.run.commands import Approve, Command
from conductor_core.run.events import Event, EventSink
from conductor_core.run.request import RunRequest, read_gate
from conductor_core.run.trace import RunTrace
from conductor_core.settings import Settings
from conductor_core.workflow.model import Step, Workflow
from storage import Store, open_store

GATES = ("steps", "plan", "step:1", "step:2", "step:3", "usd:0", "provider:rehearsal")
TASK = "What is 6 times 7?"
WORKFLOW = Workflow(
    steps=(
        Step(agent="planner", instruction="Plan: {question}", access_list=()),
        Step(agent="reasoner", instruction="Solve it.", access_list=(0,)),
        Step(agent="calculator", instruction="Compute it.", access_list=(0,)),
        Step(agent="writer", instruction="Say it.", access_list=(1, 2)),
    )
)
SETTINGS = Settings(rehearsal_tokens_per_s=0, warm_up=False)
WAIT_S = 60.0


class Killing:
    """A log that kills its process at the write ``at`` (counted from 0), before or after it is durable."""

    def __init__(self, inner: EventSink, at: int, *, after: bool) -> None:
        self._inner, self._at, self._after = inner, at, after
        self.writes = 0

    def boundary(self) -> bool:
        """Counts a write. Returns whether to die after it."""
        here = self.writes == self._at
        self.writes += 1
        if here and not self._after:
            die()
        return here

    def append(self, *events: Event) -> Any:
        here = self.boundary()
        written = self._inner.append(*events)
        if here:
            written.add_done_callback(lambda _: die())
        return written

    def append_and_wait(self, *events: Event) -> None:
        here = self.boundary()
        self._inner.append_and_wait(*events)
        if here:
            die()


class Records:
    """A store whose commands are boundaries, too."""

    def __init__(self, store: Store, log: Killing) -> None:
        self._store, self._log = store, log

    def send(self, command: Command) -> int:
        here = self._log.boundary()
        number = self._store.send(command)
        if here:
            die()
        return number

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(WAIT_S)  # until the signal is there


def approve_until_the_end(store: Any, run_id: str) -> RunTrace:
    """Approves all that a run asks for, until it has ended."""
    trace: RunTrace
    by, deadline_s, decided = local_caller("cli"), time.monotonic() + WAIT_S, 0
    while True:
        trace = store.read(run_id)
        if trace.ended:
            return trace
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"run {run_id} is {trace.status} and asks for {[each.what for each in trace.asked_for]}")
        if trace.asked_for and trace.last_command >= decided:
            decided = store.send(Approve(run_id=run_id, actor=by.actor, door=by.door))
        time.sleep(0.002)


def begin(path: str, gate: str, at: int, *, after: bool) -> int:
    """Carries out one run, and dies at the write ``at``. Returns the number of writes if there is no such."""
    store = open_store(f"sqlite:///{path}")
    log = Killing(store.log, at, after=after)
    records = Records(store, log)
    host = EngineHost(log, SETTINGS, records)
    run_id = host.start(RunRequest(task=TASK, workflow=WORKFLOW, gates=(read_gate(gate),)))
    approve_until_the_end(records, run_id)
    host.close()
    store.close()
    return log.writes


def go_on(store: Store) -> RunTrace | None:
    """Brings what a killed process left to its end, as people would. Returns the last run; None: there is none."""
    store.mark_interrupted()
    with ExitStack() as stack:
        host = EngineHost(store.log, SETTINGS, store, carries_on_all=True)
        stack.callback(host.close)
        host.carry_on_all()
        runs = store.runs()
        if not runs:
            return None
        trace = approve_until_the_end(store, runs[0].run_id)
        if trace.status == "interrupted":
            trace = approve_until_the_end(store, host.start(resume_of(trace, door="cli")))
        return trace


def faults(store: Store, trace: RunTrace | None, answer: str) -> Iterator[str]:
    """Yields what is wrong with the record."""
    if trace is None:
        return
    if (trace.status, trace.answer) != ("completed", answer):
        yield f"the run ended {trace.status}: {trace.error}"
    runs = [store.read(run.run_id) for run in reversed(store.runs())]
    answered: Counter[int] = Counter()
    begun: list[str] = []
    done: set[str] = set()
    for run in runs:
        granted: set[str] = set()
        for stored in store.events(run.run_id):
            event = stored.event
            if (number := getattr(event, "command", None)) is not None:
                answered[number] += 1
            if event.kind == "approval.granted":
                granted = {each.identity for each in run.approvals if each.status == "granted"}
            elif event.kind == "step.started":
                begun.append(event.identity)
                if event.identity in done:
                    yield f"step {event.path} of {run.run_id} had its answer, and was asked again"
                gated = [each for each in run.approvals if each.of == "step" and each.path == event.path]
                if gated and event.identity not in granted:
                    yield f"step {event.path} of {run.run_id} was sent without an approval"
            elif event.kind == "step.completed":
                done.add(run.step_at(event.path).identity or "")
    for run in runs:
        for sent in store.commands(run.run_id):
            times = answered[sent.id]
            if times > 1 or (times == 0 and run.status != "interrupted"):
                yield f"command {sent.id} ({sent.command.kind}) of {run.run_id} was answered {times} times"


def kill_at(points: int, gates: tuple[str, ...]) -> tuple[int, list[str]]:
    """Kills at up to ``points`` boundaries, the same share of each gate. Returns how many, and all faults."""
    found: list[str] = []
    tried = 0
    with tempfile.TemporaryDirectory() as folder:
        for gate in gates:
            whole = Path(folder) / f"{gates.index(gate)}-whole.sqlite3"
            writes = killed(whole, gate, -1, after=False)
            store = open_store(f"sqlite:///{whole}")
            answer = store.read(store.runs()[0].run_id).answer or ""
            store.close()
            both = [(at, after) for at in range(writes) for after in (False, True)]
            share = max(1, points // len(gates))
            for at, after in both[:: max(1, len(both) // share)][:share]:
                path = Path(folder) / f"{gates.index(gate)}-{at}-{after}.sqlite3"
                killed(path, gate, at, after=after)
                store = open_store(f"sqlite:///{path}")
                side = "after" if after else "before"
                try:
                    found += [f"{gate}, {side} write {at}: {fault}" for fault in faults(store, go_on(store), answer)]
                except TimeoutError as error:
                    found.append(f"{gate}, {side} write {at}: {error}")
                store.close()
                tried += 1
    return tried, found


def killed(path: Path, gate: str, at: int, *, after: bool) -> int:
    """Runs ``begin`` in a process of its own. Returns the number of writes, or 0 if it was killed."""
    command = [sys.executable, "-m", "benchmarks.gated_kills", "--child", str(path), gate, str(at), str(after)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * WAIT_S)
    if done.returncode not in (0, -signal.SIGKILL):
        raise RuntimeError(f"the process ended with {done.returncode}: {done.stderr}")
    return int(done.stdout or 0)


def main() -> int:
    parser = argparse.ArgumentParser(description="SIGKILL at every boundary of gated runs.")
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--gates", nargs="+", default=GATES)
    options = parser.parse_args()
    began_s = time.monotonic()
    tried, found = kill_at(options.points, tuple(options.gates))
    print(f"{tried} points in {time.monotonic() - began_s:.0f} s, {len(found)} faults")
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        _, _, path_, gate_, at_, after_ = sys.argv
        print(begin(path_, gate_, int(at_), after=after_ == "True"))
    else:
        sys.exit(main())
