"""The real app on a free port, with a data folder of its own, in a real Chromium."""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Page, ViewportSize, expect, sync_playwright

from conductor_core.engine.host import EngineHost
from conductor_core.settings import Settings
from storage import Store, open_store
from tests.browser.find_chromium import ABSENT, FLAGS, find_chromium, may_be_absent
from tests.browser.warm_profile import WarmProfile

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
START_S = 120.0
PATIENCE_MS = 60_000


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without Chromium this layer is left out, loudly; in CI it is left in and fails."""
    if find_chromium() is not None or not may_be_absent():
        return
    ours = [item for item in items if item.path.is_relative_to(HERE)]
    if ours:
        config.hook.pytest_deselected(items=ours)
        items[:] = [item for item in items if item not in ours]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if find_chromium() is None:
        terminalreporter.write(ABSENT, red=True, bold=True)


@dataclass(frozen=True)
class App:
    """A running app on ``data_folder``. ``store`` and ``engine`` work on the same database, from this process."""

    url: str
    process: "subprocess.Popen[bytes]"
    store: Store
    engine: EngineHost
    data_folder: Path

    def run_url(self, run_id: str) -> str:
        return f"{self.url}/run?run={run_id}"


@pytest.fixture(scope="session")
def start_app() -> Callable[..., contextlib.AbstractContextManager[App]]:
    """Starts the app on a data folder, at a free port unless one is given; keywords are settings
    (``rehearsal_tokens_per_s=30``)."""

    @contextlib.contextmanager
    def start(data_folder: Path, port: int = 0, **settings: object) -> Iterator[App]:
        if not port:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CONDUCTOR_")}
        environment |= {f"CONDUCTOR_{name.upper()}": str(value) for name, value in settings.items()}
        environment |= {
            "CONDUCTOR_DATA_FOLDER": str(data_folder),
            "CONDUCTOR_RECORDED_RUNS": environment.get("CONDUCTOR_RECORDED_RUNS", "0"),
            # Five seconds of the processor at each start. A run that asks the model loads it.
            "CONDUCTOR_WARM_UP": environment.get("CONDUCTOR_WARM_UP", "0"),
            # What other model servers this machine has is no part of a test.
            "CONDUCTOR_SERVER_PORTS": environment.get("CONDUCTOR_SERVER_PORTS", ""),
            "HF_HUB_OFFLINE": os.environ.get("HF_HUB_OFFLINE", "1"),
        }
        data_folder.mkdir(parents=True, exist_ok=True)
        log = data_folder / "app.log"
        command = [sys.executable, "-m", "streamlit", "run", "app.py", f"--server.port={port}"]
        with log.open("wb") as output:
            process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT)
        url = f"http://127.0.0.1:{port}"
        try:
            _wait_until_healthy(url, process, log)
            own = Settings(data_folder=data_folder, **settings)  # type: ignore[arg-type]
            store = open_store(own.resolved_database_url)
            engine = EngineHost(store.log, own, store)
            try:
                yield App(url, process, store, engine, data_folder)
            finally:
                engine.close()
                store.close()
        finally:
            process.terminate()
            process.wait(timeout=20)

    return start


def _wait_until_healthy(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START_S
    while True:
        with contextlib.suppress(OSError):  # nobody answers yet, or too slowly
            urllib.request.urlopen(f"{url}/_stcore/health", timeout=5).close()
            return
        if process.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"the app did not start:\n{log.read_text()}")
        time.sleep(0.05)


@pytest.fixture(scope="session")
def app(
    start_app: Callable[..., contextlib.AbstractContextManager[App]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[App]:
    """One app for all tests that do not need a fresh one; its simulated workers write at a readable pace."""
    with start_app(tmp_path_factory.mktemp("app"), rehearsal_tokens_per_s=60, delta_interval_ms=40) as app:
        yield app


@pytest.fixture(scope="session")
def _chromium() -> Iterator[tuple[Browser, asyncio.AbstractEventLoop]]:
    """One Chromium a process, and the event loop of its Playwright, which does not count as running."""
    chromium = find_chromium()
    if chromium is None:
        pytest.fail(ABSENT)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(chromium), args=list(FLAGS))
        loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)
        yield browser, loop
        asyncio._set_running_loop(loop)
        browser.close()


@pytest.fixture(scope="module")
def browser(_chromium: tuple[Browser, asyncio.AbstractEventLoop]) -> Iterator[Browser]:
    """Chromium for a module. While Playwright's loop counts as running in this thread, no asyncio test could run."""
    browser, loop = _chromium
    asyncio._set_running_loop(loop)
    yield browser
    asyncio._set_running_loop(None)


@pytest.fixture(scope="session")
def _warm_profiles() -> list[WarmProfile]:
    """The profiles for the first, second ... page of a test."""
    return []


@pytest.fixture
def open_page(
    request: pytest.FixtureRequest, browser: Browser, _warm_profiles: list[WarmProfile]
) -> Iterator[Callable[..., Page]]:
    """Opens pages; a script error on any of them fails the test.

    Each has a browser profile of its own, without cookies or anything stored. Unless the test asks for a ``cold`` one,
    the profile has the app's scripts in its cache.
    """
    warm: list[WarmProfile] = []
    contexts: list[BrowserContext] = []
    errors: list[str] = []
    expect.set_options(timeout=PATIENCE_MS)
    failed_before = request.session.testsfailed

    def note(error: Error) -> None:
        errors.append(str(error))

    def open_page(
        url: str, *, dark: bool = False, width: int = 1440, height: int = 1100, zoom: float = 1, cold: bool = False
    ) -> Page:
        # To a page, zoom is a smaller window of larger pixels.
        viewport = ViewportSize(width=round(width / zoom), height=round(height / zoom))
        scheme: Literal["dark", "light"] = "dark" if dark else "light"
        if cold or zoom != 1:
            context = browser.new_context(viewport=viewport, color_scheme=scheme, device_scale_factor=zoom)
            contexts.append(context)
            context.set_default_timeout(PATIENCE_MS)
            page = context.new_page()
            page.on("pageerror", note)
        else:
            if len(warm) == len(_warm_profiles):
                _warm_profiles.append(WarmProfile(browser, PATIENCE_MS))
            warm.append(_warm_profiles[len(warm)])
            page = warm[-1].open(viewport, scheme, note)
        page.goto(url)
        return page

    yield open_page
    for profile in warm:
        profile.forget(note, keep_page=request.session.testsfailed == failed_before)
    for context in contexts:
        context.close()
    assert errors == []


OpenFile = Callable[..., tuple[Page, list[str]]]


@pytest.fixture
def open_file(browser: Browser, tmp_path: Path) -> Iterator[OpenFile]:
    """Opens a page from the disk without a network. Gives it and what it asked for; a fault of a script fails."""
    contexts: list[BrowserContext] = []
    errors: list[str] = []

    def open_file(text: str, moment: str = "", *, dark: bool = False) -> tuple[Page, list[str]]:
        file = tmp_path / f"run-{len(contexts)}.html"
        file.write_text(text, encoding="utf-8")
        context = browser.new_context(offline=True, color_scheme="dark" if dark else "light")
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        page = context.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.extend([request.url] * (not request.url.startswith("file:"))))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.extend([message.text] * (message.type == "error")))
        page.goto(f"{file.as_uri()}{moment}")
        return page, asked

    yield open_file
    for context in contexts:
        context.close()
    assert errors == []
