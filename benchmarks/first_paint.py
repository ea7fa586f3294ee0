"""First paint of the Run page before any run, beside that of Streamlit's own hello page (`streamlit hello`).

    python -m benchmarks.first_paint [--rounds 15]

Both servers run on this machine, and rounds alternate between them. Each visit has a browser profile of its own, so
nothing is cached. Three moments are taken, in milliseconds since the visit began: the browser's first contentful paint;
when the page's own first part is there (the task box; the heading); and, on the Run page, when its story is. The
bar: a first paint at most 1.5 times that of the hello page.
"""

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from playwright.sync_api import Browser, ViewportSize, sync_playwright

from tests.browser.find_chromium import ABSENT, FLAGS, find_chromium

ROOT = Path(__file__).resolve().parents[1]
BAR = 1.5
PATIENCE_MS = 60_000
FIRST_PAINT = """
() => new Promise((told) => new PerformanceObserver((list) => {
  const found = list.getEntriesByName("first-contentful-paint")
  if (found.length) told(found[0].startTime)
}).observe({ type: "paint", buffered: true }))
"""
NOW = "() => performance.now()"
PAGES = {
    "hello": ("", ["h1"]),
    "run": ("run", [".st-key-task textarea", ".story[data-told]"]),
}


@contextmanager
def served(*words: str, folder: str) -> Iterator[str]:
    """Runs a Streamlit server until the end, and gives its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["--server.headless=true", "--server.address=127.0.0.1", "--browser.gatherUsageStats=false"]
    options += [f"--server.port={port}", "--server.fileWatcherType=none"]
    environment = os.environ | {"CONDUCTOR_DATA_FOLDER": folder, "CONDUCTOR_SERVER_PORTS": ""}
    # The hello page is as Streamlit ships it: without the settings of this checkout.
    process = subprocess.Popen(
        [sys.executable, "-m", "streamlit", *words, *options],
        cwd=ROOT if "run" in words else folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + PATIENCE_MS / 1000
        while True:
            with suppress(OSError):
                urllib.request.urlopen(f"{url}/_stcore/health", timeout=5).close()
                break
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"error: the server {' '.join(words)} did not start")
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait(20)


def visit(browser: Browser, address: str, parts: Sequence[str]) -> list[float]:
    """Milliseconds until the first paint, and until each of ``parts`` is visible."""
    context = browser.new_context(viewport=ViewportSize(width=1280, height=720))
    try:
        page = context.new_page()
        page.goto(address, wait_until="commit", timeout=PATIENCE_MS)
        there = []
        for part in parts:
            page.locator(part).first.wait_for(timeout=PATIENCE_MS)
            there.append(float(page.evaluate(NOW)))
        return [float(page.evaluate(FIRST_PAINT)), *there]
    finally:
        context.close()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args(arguments).rounds
    chromium = find_chromium()
    if chromium is None:
        print(ABSENT, file=sys.stderr)
        return 1
    found: dict[str, list[list[float]]] = {name: [] for name in PAGES}
    with (
        tempfile.TemporaryDirectory() as folder,
        served("hello", folder=folder) as hello,
        served("run", "app.py", folder=folder) as ours,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=str(chromium), args=list(FLAGS))
        urls = {"hello": hello, "run": ours}
        # The first visits of a server are of another kind: it imports what its pages need.
        for number in range(rounds + 2):
            for name, (path, parts) in PAGES.items():
                times = visit(browser, f"{urls[name]}/{path}", parts)
                if number > 1:
                    found[name].append(times)
        browser.close()
    medians = {}
    print(f"ms, median of {rounds} visits (lowest to highest)")
    for name, visits in found.items():
        columns = [sorted(column) for column in zip(*visits, strict=True)]
        medians[name] = [statistics.median(column) for column in columns]
        said = [f"{statistics.median(c):.0f} ({c[0]:.0f} to {c[-1]:.0f})" for c in columns]
        print(
            f"{name:6} first paint {said[0]:22} {'   '.join(map(' '.join, zip(PAGES[name][1], said[1:], strict=True)))}"
        )
    ratio, drawn = (medians["run"][moment] / medians["hello"][moment] for moment in (0, 1))
    print(f"run / hello: first paint {ratio:.2f}, first part {drawn:.2f}")
    print("the bar is", "met" if ratio <= BAR else "missed", f"(first paint at most {BAR} times)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
