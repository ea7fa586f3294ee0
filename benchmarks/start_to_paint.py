"""From the command to the first paint of the page, on a warm disk, and what the time goes to.

    python -m benchmarks.start_to_paint [--rounds 5]

Each round starts what `make run` starts, on a free port and a data folder that has been used before, and visits the
page as soon as the server listens, in a browser that is open already. The bar: at most 2 s, and torch is not loaded.
On a machine with other work beside, the processor time says more than the clock: it is that of the server's process.
"""

import argparse
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from tests.browser.find_chromium import ABSENT, FLAGS, find_chromium

ROOT = Path(__file__).resolve().parents[1]
BAR_S = 2.0
PATIENCE_S = 120.0
FIRST_PAINT = """
() => new Promise((told) => new PerformanceObserver((list) => {
  const found = list.getEntriesByName("first-contentful-paint")
  if (found.length) told((performance.timeOrigin + found[0].startTime) / 1000)
}).observe({ type: "paint", buffered: true }))
"""
STAGES = ("make", "command", "server listens", "first paint", "task box")
_IMPORT = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)")
_SHOWN = 10


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(folder: str) -> dict[str, str]:
    own = {"CONDUCTOR_DATA_FOLDER": folder, "CONDUCTOR_SERVER_PORTS": ""}
    return {name: each for name, each in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | own


def processor_s(pid: int) -> float:
    """Returns the processor time that the process has taken, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def started(browser: Browser, folder: str) -> tuple[list[float], list[float], bool]:
    """Returns for each of ``STAGES`` when it was over, in seconds since the command, and the server's processor time.

    The third value tells whether torch was loaded by then. Raises: SystemExit if the server does not start.
    """
    page = browser.new_page()
    page.goto("about:blank")
    port, began_s = free_port(), time.time()
    subprocess.run(["make", "--dry-run", "run"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    clock, taken = [time.time() - began_s], [0.0]
    server = subprocess.Popen(
        [str(Path(sys.executable).with_name("conductor")), "ui", f"--port={port}"],
        cwd=ROOT,
        env=environment(folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def note() -> None:
        clock.append(time.time() - began_s)
        taken.append(processor_s(server.pid))

    try:
        while b"streamlit" not in Path(f"/proc/{server.pid}/cmdline").read_bytes():
            time.sleep(0.005)
        note()
        _wait_for(f"http://127.0.0.1:{port}/_stcore/health", server)
        note()
        page.goto(f"http://127.0.0.1:{port}/", wait_until="commit", timeout=PATIENCE_S * 1000)
        painted_s = float(page.evaluate(FIRST_PAINT))
        note()
        clock[-1] = painted_s - began_s
        page.locator(".st-key-task textarea").first.wait_for(timeout=PATIENCE_S * 1000)
        note()
        torch = "libtorch" in Path(f"/proc/{server.pid}/maps").read_text()
        return clock, taken, torch
    finally:
        page.close()
        server.terminate()
        server.wait(20)


def _wait_for(address: str, server: "subprocess.Popen[bytes]") -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        with suppress(OSError):
            urllib.request.urlopen(address, timeout=5).close()
            return
        if server.poll() is not None or time.monotonic() > deadline_s:
            raise SystemExit("error: the server did not start")
        time.sleep(0.01)


def imports(folder: str) -> Counter[str]:
    """Returns the seconds that each package takes to import until the server listens, without what it imports."""
    port = free_port()
    words = [sys.executable, "-X", "importtime", "-P", "-m", "streamlit", "run", "app.py", f"--server.port={port}"]
    with tempfile.TemporaryFile("w+") as told:
        server = subprocess.Popen(
            [*words, "--server.headless=true"],
            cwd=ROOT,
            env=environment(folder),
            stdout=subprocess.DEVNULL,
            stderr=told,
        )
        try:
            _wait_for(f"http://127.0.0.1:{port}/_stcore/health", server)
        finally:
            server.terminate()
            server.wait(20)
        told.seek(0)
        found: Counter[str] = Counter()
        for line in told:
            if (match := _IMPORT.match(line)) is not None:
                found[match[2].partition(".")[0]] += int(match[1]) / 1e6  # type: ignore[assignment]
    return found


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args(arguments).rounds
    chromium = find_chromium()
    if chromium is None:
        print(ABSENT, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(chromium), args=list(FLAGS))
        started(browser, folder)  # warms the disk, and makes the database
        found = [started(browser, folder) for _ in range(rounds)]
        browser.close()
        packages = imports(folder)
    print(f"load of the machine {os.getloadavg()[0]:.1f}; s since the command, median of {rounds} (lowest to highest)")
    for number, stage in enumerate(STAGES):
        clock = sorted(each[0][number] for each in found)
        taken = statistics.median(each[1][number] for each in found)
        said = f"{statistics.median(clock):.2f} ({clock[0]:.2f} to {clock[-1]:.2f})"
        print(f"{stage:15} {said:24} processor time of the server {taken:.2f}")
    print("imports until the server listens, in s on the clock:")
    for name, took_s in packages.most_common(_SHOWN):
        print(f"  {name:20} {took_s:.2f}")
    torch = any(each[2] for each in found)
    paint_s = statistics.median(each[0][STAGES.index("first paint")] for each in found)
    print(f"torch was {'loaded' if torch else 'not loaded'}")
    print("the bar is", "met" if paint_s <= BAR_S and not torch else "missed", f"(first paint at most {BAR_S:g} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
