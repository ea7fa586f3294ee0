"""Runs for the pages: made at once by this process in the app's database, or begun by the page itself."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from conductor_core.chat.messages import Message, WorkerSpec
from conductor_core.engine.host import EngineHost
from conductor_core.rehearsal import rehearsal_specs
from conductor_core.run.request import RunRequest, new_run_id
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import PoolInfo
from conductor_core.settings import Settings
from conductor_core.workflow.model import AccessList, Step, Workflow
from pages.components.run import settings
from storage import Store
from tests.browser.conftest import PATIENCE_MS, App
from tests.support.run_events import created, planned, run_completed, step_completed, step_started

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


@contextmanager
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


Tell = Callable[..., str]


@pytest.fixture(scope="session")
def tell(app: App) -> Tell:
    """Writes a run of one step into the app's database and gives its id; the answer is whatever a test wants to see."""

    def tell(
        answer: str,
        *,
        task: str = "What is asked?",
        instruction: str = "Answer this: {question}",
        agent: str = "scientist",
        **completed: object,
    ) -> str:
        run_id = new_run_id()
        workflow = Workflow(steps=(Step(agent=agent, instruction=instruction),))
        done = step_completed(run_id, 0, answer, 2000, cost_usd=None).model_copy(update=completed)
        events = [
            created(
                run_id,
                task,
                pool=PoolInfo(name="mine", workers=(WORKER, *rehearsal_specs())),
                simulated=agent != WORKER.name,
            ),
            *planned(run_id, workflow),
            step_started(run_id, 0, 30).model_copy(update={"messages": (Message(role="user", content=instruction),)}),
            done,
            run_completed(run_id, answer, 2010),
        ]
        with ThreadPoolExecutor(1) as aside:
            for event in events:
                aside.submit(app.store.log.append_and_wait, event).result()
        return run_id

    return tell


WORKER = WorkerSpec(name="real", provider="openai", model="some-model", base_url="http://127.0.0.1:9/v1")


def becomes(page: Page, function: str, argument: object = None) -> Any:
    """What ``function`` gives in the page, once that is true.

    Playwright's own ``wait_for_function`` asks a second time by ``eval``, which our content security policy forbids.
    """
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while not (found := page.evaluate(function, argument)):
        assert time.monotonic() < deadline, f"never true: {function}"
        page.wait_for_timeout(20)
    return found


def choose(field: Locator, name: str) -> None:
    """Opens the list of ``field`` and chooses ``name``.

    On a busy machine the page may be drawn once more under an open list, which closes it: then it is opened again.
    """
    option = field.page.get_by_role("option", name=name).first
    for _ in range(5):
        field.click()
        with suppress(PlaywrightTimeout):
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
