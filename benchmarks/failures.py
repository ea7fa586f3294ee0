"""The catalogue of failures over many runs: what the Failures page reads, each in ms, and all of it together.

A quarter of the runs have a failure of some kind. Each reading is timed five times, and the best counts.

python -m benchmarks.failures [--runs 10000]
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from storage import open_store
from storage.search.failures import Narrowed
from storage.search.filters import Filters
from tests.support.failing_runs import failing_runs

ROUNDS = 5


def best_ms(read: Callable[[], object]) -> float:
    taken = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        read()
        taken.append(time.perf_counter() - began)
    return 1000 * min(taken)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(open_store(f"sqlite:///{Path(folder) / 'runs.sqlite3'}")) as store,
    ):
        for events in failing_runs(given.runs):
            store.log.append_and_wait(*events)
        store.search.catch_up()
        with store.search.catalogue(Filters(), Narrowed()) as catalogue:
            readings: dict[str, Callable[[], object]] = {
                "totals": catalogue.totals,
                "kinds": catalogue.counts,
                "workers": lambda: catalogue.counts("worker"),
                "models": lambda: catalogue.counts("model"),
                "trend": lambda: catalogue.trend(hours=False),
                "a page of requests": catalogue.requests,
            }
            measured = {name: best_ms(read) for name, read in readings.items()}
            failed, runs = catalogue.totals()
    for name, took_ms in measured.items():
        print(f"{name:20} {took_ms:7.1f} ms")
    print(f"{'together':20} {sum(measured.values()):7.1f} ms, {failed:,} of {runs:,} requests with a failure")
    return 0


if __name__ == "__main__":
    sys.exit(main())
