"""What the evidence costs: durable appends with and without it, and the verification of a large log.

    python -m benchmarks.evidence_cost [--seconds 5] [--repeats 3] [--events 1000000] [--folder FOLDER] [--encrypt]

Appends: one, and 32 threads, each append one event of a run of their own and wait until it is durable, for so many
seconds. Without the evidence, the same log runs with a chain that hashes nothing, stores no leaf and publishes nothing;
both take turns, so that the noise of the machine hits both. Reported: the median of the ratios. The bar is 0.8.
With ``--encrypt``: an encrypted log beside a plain one, both with the evidence, and nothing else.

Verification: a log of so many events, all published, is verified in a process of its own by the one file that is
shipped. The bars for a million are 60 s and 300 MB.
"""

import argparse
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

from conductor_core.run.events import StepDelta
from storage import Privacy, Store, open_store
from storage.bundles import verifier_source
from storage.evidence.anchoring import Anchoring
from storage.evidence.database_audit import open_database
from storage.evidence.keys import load_key
from storage.log import event_log
from storage.merkle import chain
from tests.support.run_events import created, planned, step_started

PRODUCERS = (1, 32)
BAR, BAR_S, BAR_MB = 0.8, 60.0, 300.0
_TEXT = "A piece of streamed text of the usual length. " * 4


class NoEntries(chain.Entries):
    """Stands for a log without evidence."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        pass

    def save(self) -> None:
        pass

    def add_event(self, run: chain.RunChain, *_: Any) -> int:
        return 0

    def seal(self, run_id: str, run: chain.RunChain) -> None:
        pass


def appends_a_second(folder: Path, producers: int, seconds: float, kind: str) -> float:
    """Returns how many events a second became durable. ``kind``: with evidence, without, encrypted."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        if kind != "without":
            return _measured(Path(name), producers, seconds, Privacy(encrypt=kind == "encrypted"))
        with patch.object(event_log, "Entries", NoEntries), patch.object(Anchoring, "written", lambda *_: None):
            return _measured(Path(name), producers, seconds, Privacy())


def _measured(folder: Path, producers: int, seconds: float, privacy: Privacy) -> float:
    store = open_store(f"sqlite:///{folder / 'log.sqlite3'}", privacy)
    for number in range(producers):
        run_id = f"run-{number}"
        store.log.append_and_wait(created(run_id), *planned(run_id), step_started(run_id, 0, 30))
    counts = [0] * producers
    until = time.perf_counter() + seconds

    def produce(number: int) -> None:
        event = StepDelta(run_id=f"run-{number}", path=(0,), text=_TEXT)
        while time.perf_counter() < until:
            store.log.append_and_wait(event)
            counts[number] += 1

    threads = [threading.Thread(target=produce, args=(number,)) for number in range(producers)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took_s = time.perf_counter() - started
    store.close()
    return sum(counts) / took_s


def fill(store: Store, events: int) -> None:
    """Writes so many events, in runs of a thousand."""
    written = 0
    while written < events:
        run_id = f"run-{written:07}"
        store.log.append_and_wait(created(run_id), *planned(run_id), step_started(run_id, 0, 30))
        piece = StepDelta(run_id=run_id, path=(0,), text=_TEXT)
        rest = min(994, max(0, events - written - 6))
        store.log.append_and_wait(*[piece] * rest)
        written += 6 + rest


_MEASURED = """
import atexit, runpy, sys
def memory():
    with open("/proc/self/status") as status:
        print(next(line.split()[1] for line in status if line.startswith("VmHWM")), file=sys.stderr)
atexit.register(memory)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a program and prints its largest size in kB last. What the kernel counts for children includes their parent."""


def verification(folder: Path, events: int) -> tuple[float, float, float]:
    """Returns the seconds, the seconds of a processor, and the megabytes that the verification takes (Linux only)."""
    path = folder / "large.sqlite3"
    store = open_store(f"sqlite:///{path}")
    fill(store, events)
    places = store.places
    origin = store.evidence().origin
    store.close()
    file = folder / "verify.py"
    file.write_text(verifier_source())
    told = ["--public-key", load_key(places.key, origin).public.line, "--anchor", str(places.anchor.file), "--json"]
    command = [sys.executable, "-c", _MEASURED, str(file), str(path), *told]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    took_s = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if f'"verified_events": {events}' not in done.stdout:
        raise RuntimeError(done.stdout)
    with closing(open_database(path)) as connection:
        ((count,),) = connection.execute("SELECT count(*) FROM events")
    if count != events:
        raise RuntimeError(f"{count} events")
    return took_s, cpu_s, int(done.stderr.split()[-1]) / 1024


def main() -> int:
    parser = argparse.ArgumentParser(description="What the evidence of the log costs.")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="where the databases are written (a disk, not memory)")
    parser.add_argument("--encrypt", action="store_true")
    options = parser.parse_args()
    met = True
    base, other = ("with evidence", "encrypted") if options.encrypt else ("without", "with evidence")
    print(f"| producers | {other}, events/s | {base} | ratio, median of the pairs |\n|---|---|---|---|")
    for producers in PRODUCERS:
        pairs = []
        for _ in range(options.repeats):
            pairs.append([appends_a_second(options.folder, producers, options.seconds, each) for each in (base, other)])
        ratio = statistics.median(on / off for off, on in pairs)
        off, on = (statistics.median(column) for column in zip(*pairs, strict=True))
        met &= ratio >= BAR
        print(f"| {producers} | {on:,.0f} | {off:,.0f} | {ratio:.2f} |")
    if options.encrypt:
        return 0
    print("the bar is", "met" if met else "missed", f"({BAR})")
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        took_s, cpu_s, size_mb = verification(Path(name), options.events)
    met &= took_s <= BAR_S and size_mb <= BAR_MB
    took = f"{took_s:.1f} s ({cpu_s:.1f} s of a processor), {size_mb:.0f} MB"
    print(f"\n{options.events:,} events verified in {took}; bars {BAR_S:g} s, {BAR_MB:g} MB")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
