"""The README's pictures: `make pictures` runs the last example with the shipped Conductor and the
simulated workers in the real app, and writes docs/images/run.png and run-dark.png. Made-up failing runs of four weeks
give failures.png."""

import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, ViewportSize, sync_playwright

from storage import open_store
from tests.browser.find_chromium import ABSENT, FLAGS, find_chromium
from tests.browser.serving import IMAGES, app_for_pictures
from tests.support.failing_runs import failing_runs

EXAMPLE = "When does the train arrive?"
SIZE = ViewportSize(width=1440, height=900)
THEMES: dict[str, Literal["light", "dark"]] = {"run.png": "light", "run-dark.png": "dark"}


def _take(browser: Browser, url: str) -> None:
    page = browser.new_page(viewport=SIZE, color_scheme="light")
    page.goto(url)
    page.get_by_role("button", name=EXAMPLE).click()
    page.wait_for_timeout(2_000)
    page.locator(".st-key-run button").click()
    page.locator(".bar .status.completed").wait_for(timeout=120_000)
    for name, theme in THEMES.items():
        shown = browser.new_page(viewport=SIZE, color_scheme=theme)
        shown.goto(page.url)
        shown.locator(".bar .status.completed").wait_for()
        shown.wait_for_timeout(2_500)
        shown.screenshot(path=IMAGES / name)


def _take_failures(browser: Browser, url: str) -> None:
    page = browser.new_page(viewport=SIZE, color_scheme="light")
    page.goto(f"{url}/failures?period=month")
    page.locator(".failure-row").first.wait_for(timeout=60_000)
    page.locator(".st-key-failures-trend .plot-container").wait_for()
    page.wait_for_timeout(1_500)
    page.screenshot(path=IMAGES / "failures.png")


def main() -> int:
    chromium = find_chromium()
    if chromium is None:
        print(ABSENT, file=sys.stderr)
        return 1
    IMAGES.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=str(chromium), args=list(FLAGS))
        with app_for_pictures() as url:
            _take(browser, url)
        database = f"sqlite:///{Path(folder) / 'runs.sqlite3'}"
        with closing(open_store(database)) as store:
            for events in failing_runs(600):
                store.log.append_and_wait(*events)
        with app_for_pictures(database_url=database) as url:
            _take_failures(browser, url)
    return 0


if __name__ == "__main__":
    sys.exit(main())
