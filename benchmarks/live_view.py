"""Long tasks of the live view in Chromium: 40 steps, one output of 100,000 tokens, watched while they stream.

Counted are the browser's tasks over 50 ms once the page is there: while the events of such a run are stored, about 600
pieces of text in a second, another step is selected every two seconds, and the run ends: once with every step in the
graph, and once in the list. The bar: no task over 200 ms.

python -m benchmarks.live_view [--rounds 3]
"""

import argparse
import statistics
import sys
import threading
import time

from playwright.sync_api import Browser

from benchmarks.app_in_chromium import app_in_chromium
from benchmarks.page_load import WATCH
from benchmarks.replay import LONG_WORDS, STEPS, run
from conductor_core.run.events import Event
from storage import Store

BAR_MS = 200.0
BEFORE = 90  # events: the plan, and the first step writes
AT_ONCE, PAUSE_S = 60, 0.1
SELECT_EVERY_MS = 2_000
STEP = {"all": ".twin button", "list": ".graph-list tr.step"}


def write(store: Store, events: list[Event]) -> None:
    for begin in range(0, len(events), AT_ONCE):
        store.log.append_and_wait(*events[begin : begin + AT_ONCE])
        time.sleep(PAUSE_S)


def measure(browser: Browser, url: str, store: Store, run_id: str, view: str) -> float:
    """Milliseconds of the longest task while the run goes on and ends, shown in ``view``."""
    events = [event.model_copy(update={"run_id": run_id}) for event in run()]
    store.log.append_and_wait(*events[:BEFORE])
    page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    page.add_init_script(WATCH)
    page.goto(f"{url}/run?run={run_id}")
    page.locator(".live-workflow[data-status=running]").wait_for(timeout=120_000)
    page.locator(f'.graph-views [data-view="{view}"]').click()
    page.wait_for_timeout(2_000)
    page.evaluate("window.longTasks = []")
    writing = threading.Thread(target=write, args=(store, events[BEFORE:]))
    writing.start()
    turn = 0
    while writing.is_alive():
        steps = page.locator(STEP[view])
        steps.nth(turn % steps.count()).click()
        page.wait_for_timeout(SELECT_EVERY_MS)
        turn += 7
    page.locator(".live-workflow[data-status=completed]").wait_for(timeout=120_000)
    page.wait_for_timeout(1_000)
    longest = max(page.evaluate("window.longTasks"), default=0.0)
    page.context.close()
    return float(longest)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with app_in_chromium() as (browser, url, store):
        rounds = {
            view: [measure(browser, url, store, f"live-{view}-{number}", view) for number in range(given.rounds)]
            for view in STEP
        }
    print(f"{STEPS} steps, one output of {LONG_WORDS:,} words, watched live; longest task in ms")
    for view, times in rounds.items():
        said = ", ".join(f"{ms:.0f}" for ms in times)
        print(f"{view}: lowest {min(times):.0f}, median {statistics.median(times):.0f} ({said})")
    met = all(statistics.median(times) <= BAR_MS for times in rounds.values())
    print("the bar is", "met" if met else "missed", f"(no task over {BAR_MS:.0f} ms)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
