"""The README's pictures: `make pictures` runs the last example with the shipped Conductor and the
simulated workers in the real app, and writes docs/images/run.png and run-dark.png."""

import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import suppress
from os import environ
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, ViewportSize, sync_playwright

from tests.browser.find_chromium import ABSENT, FLAGS, find_chromium

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
PORT = 8599
URL = f"http://127.0.0.1:{PORT}"
EXAMPLE = "The train"
SIZE = ViewportSize(width=1440, height=900)
THEMES: dict[str, Literal["light", "dark"]] = {"run.png": "light", "run-dark.png": "dark"}


def _take(browser: Browser) -> None:
    page = browser.new_page(viewport=SIZE, color_scheme="light")
    page.goto(URL)
    page.get_by_role("button", name=EXAMPLE).click()
    page.wait_for_timeout(2_000)
    page.locator("[class*=st-key-run] button").last.click()
    page.get_by_text("Completed").wait_for(timeout=120_000)
    for name, theme in THEMES.items():
        shown = browser.new_page(viewport=SIZE, color_scheme=theme)
        shown.goto(page.url)
        shown.get_by_text("Completed").wait_for()
        shown.wait_for_timeout(2_500)
        shown.screenshot(path=IMAGES / name)


def main() -> int:
    chromium = find_chromium()
    if chromium is None:
        print(ABSENT, file=sys.stderr)
        return 1
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        app = subprocess.Popen(
            [sys.executable, "-m", "streamlit", "run", "app.py", f"--server.port={PORT}"],
            cwd=ROOT,
            env=environ | {"CONDUCTOR_DATA_FOLDER": folder, "CONDUCTOR_SERVER_PORTS": ""},
        )
        try:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                with suppress(OSError):
                    urllib.request.urlopen(f"{URL}/_stcore/health", timeout=5).close()
                    break
                time.sleep(0.2)
            with sync_playwright() as playwright:
                _take(playwright.chromium.launch(executable_path=str(chromium), args=list(FLAGS)))
        finally:
            app.terminate()
            app.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
