"""The real app on a free port, with a data folder of its own, in a real Chromium; runs to look at; the page's parts.

What is about the view of a run alone is looked at in a file of that run: the same scripts and styles, without the app.
"""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Locator, Page, ViewportSize, expect, sync_playwright
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from conductor_core.engine.host import EngineHost
from conductor_core.run.events import Event
from conductor_core.run.redaction import Redactor
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import RunTrace
from conductor_core.settings import Settings
from conductor_core.workflow.model import AccessList, Step, Workflow
from pages.components.live_workflow.shared_page import shared_page
from pages.components.run import settings
from storage import Store, open_store
from tests.browser.find_chromium import ABSENT, FLAGS, find_chromium, may_be_absent
from tests.browser.warm_profile import WarmProfile
from tests.support.run_events import one_step

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
START_S = 300.0
# So long a busy machine may take for what a quiet one shows at once; a test as a whole longer.
PATIENCE_MS = 120_000
TEST_S = 900


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without Chromium this layer is left out, loudly; in CI it is left in and fails."""
    ours = [item for item in items if item.path.is_relative_to(HERE)]
    for item in ours:
        item.add_marker(pytest.mark.timeout(TEST_S))
    if find_chromium() is None and may_be_absent():
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

    def open_file(
        text: str, moment: str = "", *, dark: bool = False, width: int = 1280, height: int = 720
    ) -> tuple[Page, list[str]]:
        file = tmp_path / f"run-{len(contexts)}.html"
        file.write_text(text, encoding="utf-8")
        viewport = ViewportSize(width=width, height=height)
        context = browser.new_context(offline=True, color_scheme="dark" if dark else "light", viewport=viewport)
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


@pytest.fixture
def view(open_file: OpenFile) -> Iterator[Callable[..., Page]]:
    """Shows a run that is over, without an app; ``moment``: ``#at=5`` shows it as it was after five seconds."""
    asked: list[list[str]] = []

    def view(events: Sequence[Event], moment: str = "", **look: Any) -> Page:
        page, requests = open_file(shared_page(events, {}, Redactor()), moment, **look)
        asked.append(requests)
        return page

    yield view
    assert not any(asked), "it loads nothing"


# What is wider than the window, or scrolls sideways inside the page.
SIDEWAYS = """
() => {
  const wide = [document.scrollingElement, document.querySelector('[data-testid="stMain"]')]
    .filter((each) => each.scrollWidth > each.clientWidth + 1)
  const out = [...document.querySelectorAll('.stMain [class*="st-key-"]')]
    .filter((each) => each.getBoundingClientRect().right > window.innerWidth + 1)
  return [...wide, ...out].map((each) => each.className)
}
"""
# Sums what moves by itself. A move that follows a person's input is theirs.
SHIFTS = """
window.shifted = 0
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shifted += entry.value
}).observe({ type: "layout-shift", buffered: true })
"""
MOST_SHIFTED = 0.02
HOSTILE = (
    '<img src="http://evil.example/a.png" onerror="window.pwned=1"><script>window.pwned=1</script> '
    "![x](http://evil.example/b.png) [y](javascript:window.pwned=1) :red[z] $x$"
)

TASK = (
    "A train leaves at 09:40 and covers 210 km at 84 km/h, waits 12 minutes, then covers 95 km at 76 km/h. When does "
    "it arrive? Check the result independently."
)
PLAN: tuple[tuple[str, str, AccessList], ...] = (
    ("planner", "Break the journey into legs: {question}", ()),
    ("reasoner", "Solve each leg, following the plan: {question}", (0,)),
    ("calculator", "Compute the total, following the plan: {question}", (0,)),
    ("verifier", "Recompute both results: {question}", "all"),
    ("writer", "State the arrival time in one sentence.", (3,)),
)

OpenPage = Callable[..., Page]
StartApp = Callable[..., contextlib.AbstractContextManager[App]]
View = Callable[..., Page]
Make = Callable[..., RunTrace]


@pytest.fixture(autouse=True)
def _keeps_no_choices(request: pytest.FixtureRequest) -> Iterator[None]:
    """What one test chooses for its runs is not what the next begins with."""
    yield
    if "app" in request.fixturenames:
        (request.getfixturevalue("app").data_folder / settings.FILE).unlink(missing_ok=True)


@pytest.fixture(scope="session")
def make_run(app: App) -> Iterator[Make]:
    """A run of PLAN (or of the given steps) that is over: made by this process, whose workers answer at once."""
    with runs_in(app.store) as make:
        yield make


@contextlib.contextmanager
def runs_in(store: Store) -> Iterator[Make]:
    """Makes runs in ``store``."""
    host = EngineHost(store.log, Settings(rehearsal_tokens_per_s=0), store)

    def make(*steps: tuple[str, str, AccessList], task: str = TASK, plan_only: bool = False) -> RunTrace:
        workflow = Workflow(
            steps=tuple(
                Step(agent=agent, instruction=told, access_list=access) for agent, told, access in steps or PLAN
            )
        )
        request = RunRequest(task=task, workflow=workflow, door="page", plan_only=plan_only)
        # Playwright's event loop has this thread; the engine is asked from another.
        with ThreadPoolExecutor(1) as aside:
            return aside.submit(lambda: host.wait(host.start(request), 60)).result()

    yield make
    host.close()


@pytest.fixture(scope="session")
def ended(tmp_path_factory: pytest.TempPathFactory) -> list[Event]:
    """The events of a run of PLAN, made without an app."""
    with contextlib.closing(open_store(f"sqlite:///{tmp_path_factory.mktemp('ended') / 'runs.sqlite3'}")) as store:
        with runs_in(store) as make:
            run = make()
        return [stored.event for stored in store.events(run.run_id)]


Tell = Callable[..., str]


@pytest.fixture(scope="session")
def tell(app: App) -> Tell:
    """Writes a run of one step into the app's database and gives its id; the answer is whatever a test wants to see."""

    def tell(answer: str, **more: Any) -> str:
        events = one_step(answer, **more)
        append(app, *events)
        return events[0].run_id

    return tell


def append(app: App, *events: Event) -> None:
    # Playwright's event loop has this thread.
    with ThreadPoolExecutor(1) as aside:
        aside.submit(app.store.log.append_and_wait, *events).result()


def becomes(where: Page | Locator, function: str, argument: object = None) -> Any:
    """What ``function`` gives in the page, or of the part of it that is then there, once that is true.

    Playwright's own ``wait_for_function`` asks a second time by ``eval``, which our content security policy forbids.
    """
    deadline = time.monotonic() + PATIENCE_MS / 1000
    page = where if isinstance(where, Page) else where.page
    while not (found := where.evaluate(function, argument)):
        assert time.monotonic() < deadline, f"never true: {function}"
        page.wait_for_timeout(20)
    return found


def at_rest(page: Page) -> None:
    """Waits until the page's script has ended."""
    expect(page.locator('[data-test-script-state="notRunning"]')).to_be_attached()
    expect(page.locator("[data-testid=stSkeleton]")).to_have_count(0)


def choose(field: Locator, name: str) -> None:
    """Opens the list of ``field`` and chooses ``name``.

    On a busy machine the page may be drawn once more under an open list, which closes it: then it is opened again.
    """
    option = field.page.get_by_role("option", name=name).first
    for _ in range(5):
        field.click()
        with contextlib.suppress(PlaywrightTimeout):
            option.click(timeout=5_000)
            return
    raise AssertionError(f"{name} could not be chosen")


def lines(page: Page) -> Locator:
    """The steps of the edited plan, as a list."""
    return page.locator(".plan-rows li")


def line(page: Page, index: int) -> Locator:
    return lines(page).nth(index)


def reads(page: Page, index: int) -> Locator:
    """What the list says that a step of the edited plan may read."""
    return line(page, index).locator(".reads")


def start(page: Page) -> Locator:
    """The button that runs the edited plan."""
    return page.locator(".start-edited")


def of_edit(page: Page, name: str) -> Locator:
    """A button of the bar while a plan is edited: Undo, Redo, Discard, Close."""
    return page.locator(".edit-actions").get_by_role("button", name=name, exact=True)


def status(page: Page) -> Locator:
    """The pill that says how the run stands."""
    return page.locator(".bar .status")


def begin_by_menu(page: Page, name: str) -> None:
    """Presses what stands in the menu beside Run."""
    page.get_by_role("button", name="More ways to begin").click()
    page.get_by_role("button", name=name, exact=True).click()


def run_of(page: Page, app: App) -> RunTrace:
    """The run in the page's address."""
    return app.store.trace(parse_qs(urlsplit(page.url).query)["run"][0])[0]


def begin_here(page: Page, app: App, plan: RunTrace) -> None:
    """Opens ``plan`` and lets the app itself run it: then the page can cancel it."""
    page.goto(app.run_url(plan.run_id))
    page.get_by_role("button", name="Run this plan").click()
    expect(status(page)).to_contain_text("Running")
    page.wait_for_url(lambda url: plan.run_id not in url)


@pytest.fixture
def start_run(app: App) -> Callable[..., str]:
    """Starts a run of PLAN (or of the given steps) and returns its id at once."""

    def start(*steps: tuple[str, str, AccessList], task: str = TASK, host: EngineHost = app.engine) -> str:
        workflow = Workflow(
            steps=tuple(
                Step(agent=agent, instruction=told, access_list=access) for agent, told, access in steps or PLAN
            )
        )
        # Playwright's event loop has this thread; the engine is asked from another.
        with ThreadPoolExecutor(1) as aside:
            request = RunRequest(task=task, workflow=workflow, door="page")
            return aside.submit(host.start, request).result()

    return start
