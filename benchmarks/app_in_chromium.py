"""The app on an empty data folder in this process, and Chromium to look at it: what benchmarks of a page begin with."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from benchmarks.live_latency import serve
from storage import Store
from tests.browser.find_chromium import ABSENT, FLAGS, find_chromium


@contextmanager
def app_in_chromium() -> Iterator[tuple[Browser, str, Store]]:
    """Gives a browser, the app's address and its store. Raises: SystemExit if there is no Chromium."""
    chromium = find_chromium()
    if chromium is None:
        raise SystemExit(ABSENT)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        os.environ["CONDUCTOR_DATA_FOLDER"] = folder
        server, thread, url = serve()
        from pages.components.app.session import current

        browser = playwright.chromium.launch(executable_path=str(chromium), args=list(FLAGS))
        yield browser, url, current().store
        browser.close()
        server.should_exit = True
        thread.join(10)
