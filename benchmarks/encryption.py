"""What encryption costs per durable append: ``python -m benchmarks.encryption [--events 4000]``.

Two stores write the same events by turns, one of them encrypted. Appends wait for the disk one by one, then in groups.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from conductor_core.run import events as ev
from storage import Privacy, Store, open_store
from tests.support.run_events import created, planned, step_started

ROUNDS, GROUP = 8, 32


async def one_by_one(store: Store, events: int) -> float:
    """Returns microseconds per append."""
    begun = time.perf_counter()
    for number in range(events):
        await store.log.append(delta(number))
    return (time.perf_counter() - begun) / events * 1e6


async def in_groups(store: Store, events: int) -> float:
    """Returns microseconds per append with 32 appends under way."""
    begun = time.perf_counter()
    for start in range(0, events, GROUP):
        await asyncio.gather(*(store.log.append(delta(start + number)) for number in range(GROUP)))
    return (time.perf_counter() - begun) / events * 1e6


def delta(number: int) -> ev.StepDelta:
    return ev.StepDelta(run_id="r", at_ms=31, path=(0,), text=f"{number} of the usual length of some words " * 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=4000, help="Per store and way, over all rounds.")
    events = parser.parse_args().events // ROUNDS
    with tempfile.TemporaryDirectory() as folder:
        stores = {
            name: open_store(f"sqlite:///{Path(folder) / name}.sqlite3", Privacy(encrypt=name == "encrypted"))
            for name in ("plain", "encrypted")
        }
        for store in stores.values():
            store.log.append_and_wait(created("r"), *planned("r"), step_started("r", 0, 30))
        for way in (one_by_one, in_groups):
            took: dict[str, list[float]] = {name: [] for name in stores}
            cpu: dict[str, list[float]] = {name: [] for name in stores}
            for turn in range(ROUNDS):
                for name, store in sorted(stores.items(), reverse=turn % 2 == 1):
                    before = time.process_time()
                    took[name].append(asyncio.run(way(store, events)))
                    cpu[name].append((time.process_time() - before) / events * 1e6)
            ratio = statistics.median(e / p for e, p in zip(took["encrypted"], took["plain"], strict=True))
            print(f"{way.__name__}: encrypted takes {ratio:.2f} times as long (median of {ROUNDS} rounds)")
            for name in stores:
                print(
                    f"  {name}: {statistics.median(took[name]):,.0f} µs per durable append, "
                    f"{statistics.median(cpu[name]):,.0f} µs of processor time"
                )
        for store in stores.values():
            store.close()


if __name__ == "__main__":
    main()
