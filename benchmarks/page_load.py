"""Benchmark: how long loading a page keeps Chromium from answering a click.

    python -m benchmarks.page_load URL [URL ...] [--pages evaluate,training] [--rounds 5]

Each URL is a running app (``http://127.0.0.1:8501``); with two, say before and after a change, rounds alternate
between them, so that both meet the same machine. Counted are the browser's long tasks (over 50 ms) until all
figures are drawn: the longest, and by how much all of them together went over 50 ms.
"""

import argparse
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence

from playwright.sync_api import Browser, ViewportSize, sync_playwright

from tests.browser.find_chromium import ABSENT, FLAGS, find_chromium

ALLOWED_MS = 50
PATIENCE_MS = 120_000
STILL_MS = 2_500
"""A load has ended when all figures there are have been drawn, and none has come for this long."""

WATCH = """
window.longTasks = []
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.longTasks.push(entry.duration)
}).observe({ type: "longtask", buffered: true })
"""
WAITING = """
() => [...document.querySelectorAll("[role=figure]")].filter((each) => !each.querySelector(".main-svg")).length
  || document.querySelectorAll('[data-testid="stMain"] .stElementContainer').length === 0
"""


def load(browser: Browser, address: str) -> list[float]:
    """Milliseconds of each long task of one load, in a profile of its own."""
    context = browser.new_context(viewport=ViewportSize(width=1440, height=900))
    try:
        context.add_init_script(WATCH)
        page = context.new_page()
        page.goto(address, timeout=PATIENCE_MS)
        still_ms = waited_ms = 0
        while still_ms < STILL_MS:
            if waited_ms > PATIENCE_MS:
                raise SystemExit(f"{address} was not drawn within {PATIENCE_MS // 1000} s")
            page.wait_for_timeout(100)
            waited_ms += 100
            still_ms = 0 if page.evaluate(WAITING) else still_ms + 100
        return [float(each) for each in page.evaluate("window.longTasks")]
    finally:
        context.close()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("apps", nargs="+", metavar="URL")
    parser.add_argument("--pages", default="evaluate,training")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    chromium = find_chromium()
    if chromium is None:
        print(ABSENT, file=sys.stderr)
        return 1
    found: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(chromium), args=list(FLAGS))
        for _ in range(options.rounds):
            for page in options.pages.split(","):
                for app in options.apps:
                    found[page, app].append(load(browser, f"{app.rstrip('/')}/{page}"))
    print("page app longest_ms (lowest to highest) blocked_ms")
    for (page, app), loads in found.items():
        longest = sorted(max(each, default=0.0) for each in loads)
        blocked = statistics.median(sum(task - ALLOWED_MS for task in each) for each in loads)
        middle = statistics.median(longest)
        print(f"{page} {app} {middle:.0f} ({longest[0]:.0f} to {longest[-1]:.0f}) {blocked:.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
