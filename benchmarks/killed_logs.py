"""SIGKILL while a log is written, WALs whose end is lost, and SIGKILL at every boundary of gated runs.

    python -m benchmarks.killed_logs [--kills 1000] [--events 400] [--seed 1]
    python -m benchmarks.killed_logs --gates 240

A process appends events one by one and notes in a file which have become durable. It is killed at a moment drawn by
chance, or at one of the points of ``POINTS``, ten times for each database. After each kill the database is verified as
it lies there, and after the tenth the next process publishes what is left. Checked: every event that was acknowledged
is there, each run holds the beginning of what was written, nothing else was found, and in the end all is anchored.

Then the WAL of a database of so many events is cut at the end of each of its commits, as a loss of power would if the
disk had not kept its promise. Each cut must hold all events up to there, in a chain that is whole. What an anchor knew
and the cut does not must be reported, and nothing must be if the anchor did not know it.

Gates: a process begins a run of four steps and approves what it asks for. It is killed just before, or just after, one
write to the log becomes durable: events of the run, and commands to it. Then another process goes on as people would:
it marks what was interrupted, resumes it, and approves what waits. Checked from the record alone, at each point:

- the answer is that of an undisturbed run;
- no step that had its answer was asked for again;
- every call was approved in its run, for exactly what was sent;
- every command was answered by one event, or its run ended before it was heard; none was answered twice.
"""

import argparse
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

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
from storage.database.connections import Database
from storage.evidence import anchoring
from storage.evidence.anchoring import Anchoring, FileAnchor, places_of
from storage.evidence.database_audit import open_database, read_log
from storage.evidence.history import Report
from storage.evidence.keys import load_key
from storage.evidence.verifier import verify
from storage.log import event_log
from storage.log.event_log import EventLog
from tests.support.run_events import whole_run

KILLS_A_DATABASE = 10
_ROOT = Path(__file__).parents[1]
_RUNS_A_PROCESS = 40
_WAIT_S = 30.0
_NOT_REACHED = 3
_WAL_HEAD, _FRAME_HEAD, _PAGE = 32, 24, 4096
_KINDS = [event.kind for event in whole_run("r")]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(_WAIT_S)  # until the signal is there


def at_call(owner: Any, name: str, *, after: bool = False) -> Callable[[int], None]:
    """Returns what makes the process die before, or after, call ``at`` (from 0) of a function."""

    def arm(at: int) -> None:
        whole, calls = getattr(owner, name), count()

        def deadly(*arguments: Any, **named: Any) -> Any:
            here = next(calls) == at
            if here and not after:
                die()
            done = whole(*arguments, **named)
            if here:
                die()
            return done

        setattr(owner, name, deadly)

    return arm


def in_a_line(at: int) -> None:
    """Makes the process die when half of a line of the anchor is written."""
    whole, calls = FileAnchor.publish, count()

    def deadly(self: FileAnchor, line: str) -> None:
        if next(calls) == at:
            with self.file.open("a") as file:
                file.write(line[: len(line) // 2])
            die()
        whole(self, line)

    FileAnchor.publish = deadly  # type: ignore[method-assign]


POINTS: dict[str, Callable[[int], None]] = {
    "before a commit": at_call(EventLog, "_insert", after=True),
    "after a commit, before anybody is told": at_call(EventLog, "_announce"),
    "before the WAL is moved": at_call(Database, "checkpoint"),
    "after the WAL was moved": at_call(Database, "checkpoint", after=True),
    "with a new key that is not in its place": at_call(os, "link"),
    "before a checkpoint is published": at_call(FileAnchor, "publish"),
    "in the middle of a line of the anchor": in_a_line,
    "after a checkpoint was published": at_call(FileAnchor, "publish", after=True),
    "after the database noted a checkpoint": at_call(Anchoring, "publish", after=True),
}
AT_RANDOM = "at random"
ONLY_FIRST = "with a new key that is not in its place"


def write_until_killed(path: str, promised: str, number: str, point: str, at: str) -> None:
    """Appends events of runs of its own, and notes each in ``promised`` once it is durable."""
    if point in POINTS:
        POINTS[point](int(at))
    event_log._CHECKPOINT_BYTES = 128 << 10
    anchoring.EVERY_S, anchoring.EVERY_ENTRIES = 0.01, 8
    store = open_store(f"sqlite:///{path}")
    notes = os.open(promised, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for run in range(_RUNS_A_PROCESS):
        for event in whole_run(f"{number}-{run}"):
            store.log.append_and_wait(event)
            os.write(notes, f"{event.run_id}\n".encode())


def nursery() -> None:
    """Forks a writing process for each line of stdin, so that all share what they import. Prints how each ended."""
    with tempfile.TemporaryDirectory() as folder:
        open_store(f"sqlite:///{folder}/first.sqlite3").close()  # what only this imports
    for line in sys.stdin:
        path, promised, number, point, at = line.rstrip("\n").split("\t")
        child = os.fork()
        if not child:
            try:
                write_until_killed(path, promised, number, point, at)
            finally:
                os._exit(_NOT_REACHED)
        if point == AT_RANDOM:
            time.sleep(float(at))
            os.kill(child, signal.SIGKILL)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


class Killer:
    """Kills writing processes. Close it."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "benchmarks.killed_logs", "--nursery"]
        self._nursery = subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def kill(self, path: Path, promised: Path, number: int, point: str, at: float) -> int:
        """Lets a process write to ``path`` until it is killed. Returns its exit code."""
        stdin, stdout = self._nursery.stdin, self._nursery.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the process was started without pipes")
        stdin.write(f"{path}\t{promised}\t{number}\t{point}\t{at}\n")
        stdin.flush()
        return int(stdout.readline())

    def close(self) -> None:
        self._nursery.communicate()


def kills(folder: Path, times: int, rng: random.Random) -> Iterator[str]:
    """Kills so many processes, half of them at random moments. Yields what is wrong afterwards."""
    fresh = folder / "fresh.sqlite3"
    open_store(f"sqlite:///{fresh}").close()
    with closing(Killer()) as killer:
        for first in range(0, times, KILLS_A_DATABASE):
            path = folder / f"{first}.sqlite3"
            shutil.copy(fresh, path)
            for number in range(first, min(times, first + KILLS_A_DATABASE)):
                usable = [point for point in POINTS if point != ONLY_FIRST or number == first]
                point = rng.choice(usable) if rng.random() < 0.5 else AT_RANDOM
                if number == first and number % (2 * KILLS_A_DATABASE):
                    point = ONLY_FIRST
                at = rng.uniform(0, 0.2) if point == AT_RANDOM else 0 if point == ONLY_FIRST else rng.randrange(4)
                promised = path.with_suffix(".promised")
                ended = killer.kill(path, promised, number, point, at)
                wrong = [f"it ended with {ended}"] if ended != -signal.SIGKILL else []
                yield from (f"kill {number}, {point} {at}: {each}" for each in [*wrong, *faults(path, promised)])
            open_store(f"sqlite:///{path}").close()  # which publishes what the last one left
            report = checked(path)
            if not report.ok or report.unanchored_events:
                yield f"{path.name}: {report.unanchored_events} events are not anchored, {report.findings[:3]}"


def checked(path: Path) -> Report:
    """Verifies a database as it lies there, with its own key and anchor."""
    with closing(open_database(path)) as connection:
        origin, _ = read_log(connection)
    places = places_of(path)
    places.key.parent.mkdir(exist_ok=True, mode=0o700)
    anchors = [places.anchor.file] if places.anchor.file.exists() else []
    return verify(path, [load_key(places.key, origin).public], anchors, lambda what, count: None)


def faults(path: Path, promised: Path) -> Iterator[str]:
    yield from (f"{each.kind}: {each.what}" for each in checked(path).findings)
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        kept: dict[str, list[str]] = {}
        for run_id, kind in connection.execute("SELECT run_id, kind FROM events ORDER BY sequence"):
            kept.setdefault(run_id, []).append(kind)
    acknowledged: dict[str, int] = {}
    for run_id in promised.read_text().split() if promised.exists() else ():
        acknowledged[run_id] = acknowledged.get(run_id, 0) + 1
    yield from (f"run {run} has other events" for run, kinds in kept.items() if kinds != _KINDS[: len(kinds)])
    for run_id, events in acknowledged.items():
        if len(kept.get(run_id, ())) < events:
            yield f"run {run_id} has {len(kept.get(run_id, ()))} events, and {events} were acknowledged"


def cuts(folder: Path, events: int) -> Iterator[tuple[int, bool, str]]:
    """Cuts a WAL at each commit. The first two thirds of the entries are published, and no more.

    Yields the entries that are left, whether an anchor knew more, and what is wrong.
    """
    anchored = events * 2 // 3
    path = folder / "log.sqlite3"
    wal, bounds = path.with_name(f"{path.name}-wal"), [(0, 0)]
    with (
        patch.multiple(event_log, _IDLE_S=600.0, _CHECKPOINT_BYTES=1 << 40),
        patch.multiple(anchoring, EVERY_S=600.0, EVERY_ENTRIES=anchored),
    ):
        store = open_store(f"sqlite:///{path}")
        written = (event for run in count() for event in whole_run(f"run-{run}"))
        for number in range(1, events + 1):
            store.log.append_and_wait(next(written))
            bounds.append((wal.stat().st_size, number))
            if number == anchored:
                _until_anchored(path, anchored)
        copy = folder / "copy" / path.name
        copy.parent.mkdir()
        for file in (path, wal):
            shutil.copy(file, copy.with_name(file.name))
        shutil.copytree(path.with_name(f"{path.name}.evidence"), copy.with_name(f"{path.name}.evidence"))
        store.close()
    whole = copy.with_name(wal.name).read_bytes()
    frames = range(_WAL_HEAD, len(whole) - _FRAME_HEAD, _FRAME_HEAD + _PAGE)
    published = _published(copy)
    for end in [at + _FRAME_HEAD + _PAGE for at in frames if whole[at + 4 : at + 8] != bytes(4)]:
        yield _cut(copy, whole[:end], max(number for size, number in bounds if size <= end), published)


def _published(path: Path) -> int:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        ((origin,),) = connection.execute("SELECT origin FROM evidence_log")
    return FileAnchor(places_of(path).anchor.file).size(origin)


def _until_anchored(path: Path, entries: int) -> None:
    deadline_s = time.monotonic() + _WAIT_S
    while (published := _published(path)) < entries:
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{published} of {entries} entries were published")
        time.sleep(0.01)


def _cut(copy: Path, wal: bytes, promised: int, anchored: int) -> tuple[int, bool, str]:
    for name in ("wal", "shm"):
        copy.with_name(f"{copy.name}-{name}").unlink(missing_ok=True)
    copy.with_name(f"{copy.name}-wal").write_bytes(wal)
    with closing(sqlite3.connect(f"file:{copy}?mode=ro", uri=True)) as connection:
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
            return 0, True, ""  # the file was only just made: there is no log yet
        ((events,),) = connection.execute("SELECT count(*) FROM events")
        ((entries,),) = connection.execute("SELECT count(*) FROM leaves")
    report = checked(copy)
    kinds = {each.kind for each in report.findings}
    wrong = f"{promised - events} acknowledged events are lost" if events < promised else ""
    if kinds != ({"rolled_back"} if entries < anchored else set()):
        wrong = f"{wrong} {entries} of {anchored} anchored entries are left, and found was {sorted(kinds)}"
    return entries, entries < anchored, wrong


# -- gated runs --

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
RUN_WAIT_S = 60.0


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


def approve_until_the_end(store: Any, run_id: str) -> RunTrace:
    """Approves all that a run asks for, until it has ended."""
    trace: RunTrace
    by, deadline_s, decided = local_caller("cli"), time.monotonic() + RUN_WAIT_S, 0
    while True:
        trace = store.read(run_id)
        if trace.ended:
            return trace
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"run {run_id} is {trace.status} and asks for {[each.what for each in trace.asked_for]}")
        if trace.asked_for and trace.last_command >= decided:
            decided = store.send(Approve(run_id=run_id, actor=by.actor, door=by.door))
        time.sleep(0.002)


def begin_gated(path: str, gate: str, at: int, *, after: bool) -> int:
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


def gated_faults(store: Store, trace: RunTrace | None, answer: str) -> Iterator[str]:
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


def gated_kills(points: int, gates: tuple[str, ...]) -> tuple[int, list[str]]:
    """Kills at up to ``points`` boundaries, the same share of each gate. Returns how many, and all faults."""
    found: list[str] = []
    tried = 0
    with tempfile.TemporaryDirectory() as folder:
        for gate in gates:
            whole = Path(folder) / f"{gates.index(gate)}-whole.sqlite3"
            writes = gated_kill(whole, gate, -1, after=False)
            store = open_store(f"sqlite:///{whole}")
            answer = store.read(store.runs()[0].run_id).answer or ""
            store.close()
            both = [(at, after) for at in range(writes) for after in (False, True)]
            share = max(1, points // len(gates))
            for at, after in both[:: max(1, len(both) // share)][:share]:
                path = Path(folder) / f"{gates.index(gate)}-{at}-{after}.sqlite3"
                gated_kill(path, gate, at, after=after)
                store = open_store(f"sqlite:///{path}")
                side = "after" if after else "before"
                try:
                    found += [
                        f"{gate}, {side} write {at}: {fault}" for fault in gated_faults(store, go_on(store), answer)
                    ]
                except TimeoutError as error:
                    found.append(f"{gate}, {side} write {at}: {error}")
                store.close()
                tried += 1
    return tried, found


def gated_kill(path: Path, gate: str, at: int, *, after: bool) -> int:
    """Runs ``begin_gated`` in a process of its own. Returns the number of writes, or 0 if it was killed."""
    command = [sys.executable, "-m", "benchmarks.killed_logs", "--gated", str(path), gate, str(at), str(after)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * RUN_WAIT_S)
    if done.returncode not in (0, -signal.SIGKILL):
        raise RuntimeError(f"the process ended with {done.returncode}: {done.stderr}")
    return int(done.stdout or 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--events", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gates", type=int, metavar="POINTS", help="of gated runs, and nothing else")
    options = parser.parse_args()
    if options.gates:
        began_s = time.monotonic()
        tried, found = gated_kills(options.gates, GATES)
        print(f"{tried} points in {time.monotonic() - began_s:.0f} s, {len(found)} faults", *found, sep="\n")
        return 1 if found else 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wrong = list(kills(folder, options.kills, random.Random(options.seed)))
        promised = sum(len(file.read_text().split()) for file in folder.glob("*.promised"))
        print(f"{options.kills:,} kills after {promised:,} acknowledged events: {len(wrong)} faults", flush=True)
        cut = list(cuts(folder, options.events))
    lost = sum(anchored for _, anchored, _ in cut)
    bad = [each for _, _, each in cut if each]
    print(f"{len(cut):,} cuts of a WAL, {lost:,} of them into what was anchored: {len(bad)} faults")
    print("\n".join([*wrong, *bad]))
    return 1 if wrong or bad else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--nursery"]:
        nursery()
    elif sys.argv[1:2] == ["--gated"]:
        _, _, path_, gate_, at_, after_ = sys.argv
        print(begin_gated(path_, gate_, int(at_), after=after_ == "True"))
    else:
        sys.exit(main())
