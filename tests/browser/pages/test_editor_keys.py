"""The keyboard in the plan editor: typing applies by itself, and no key starts a run that nobody asked for."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, WebSocketRoute, expect

from conductor_core.run.trace import RunTrace
from tests.browser.conftest import App, Make, line, lines, of_edit, run_of, start, status

OpenPage = Callable[..., Page]
PAIR = (
    ("planner", "Break the journey into legs: {question}", ()),
    ("reasoner", "Solve each leg, following the plan: {question}", (0,)),
)


@pytest.fixture
def source(make_run: Make) -> RunTrace:
    return make_run(*PAIR)


@pytest.fixture
def page(app: App, open_page: OpenPage, source: RunTrace) -> Page:
    """The editor of ``source``, open at its last step."""
    page = open_page(app.run_url(source.run_id))
    expect(status(page)).to_contain_text("Completed 2 of 2")
    page.get_by_label(re.compile("Step 1, reasoner")).click()
    page.get_by_role("button", name="Change a step").click()
    expect(instruction(page)).to_be_visible()
    return page


def instruction(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Instruction of step 1")


def all_runs(app: App) -> list[str]:
    return [run.run_id for run in app.store.runs(limit=1000)]


class SlowServer:
    """Holds back what the server answers to a page, until it is told to let go."""

    def __init__(self, page: Page) -> None:
        self.heard = 0
        self._held: list[str | bytes] | None = None
        page.route_web_socket(re.compile("_stcore/stream"), self._open)

    def _open(self, ours: WebSocketRoute) -> None:
        self._ours, server = ours, ours.connect_to_server()
        ours.on_message(lambda message: self._hear(server, message))
        server.on_message(self._answer)

    def _hear(self, server: WebSocketRoute, message: str | bytes) -> None:
        self.heard += 1
        server.send(message)

    def _answer(self, message: str | bytes) -> None:
        if self._held is None:
            self._ours.send(message)
        else:
            self._held.append(message)

    def hold(self) -> None:
        self._held = []

    def let_go(self) -> None:
        held, self._held = self._held or [], None
        for message in held:
            self._ours.send(message)


def test_an_answer_that_comes_late_takes_back_no_letter_and_no_focus(
    app: App, open_page: OpenPage, source: RunTrace
) -> None:
    page = open_page("about:blank", width=1280, height=720)
    slow = SlowServer(page)
    page.goto(app.run_url(source.run_id))
    expect(status(page)).to_contain_text("Completed 2 of 2")
    page.get_by_label(re.compile("Step 1, reasoner")).click()
    page.get_by_role("button", name="Change a step").click()
    instruction(page).fill("One. {question}")
    expect(line(page, 1)).to_contain_text("One.")
    slow.hold()
    before = slow.heard
    instruction(page).press("End")
    page.keyboard.type(" Two.")
    while slow.heard == before:  # the page has asked, and is not answered
        page.wait_for_timeout(20)
    page.keyboard.type(" Three.")
    slow.let_go()
    expect(line(page, 1)).to_contain_text("Two.")
    page.keyboard.type(" Four.")
    expect(line(page, 1)).to_contain_text("One. the task Two. Three. Four.")
    expect(instruction(page)).to_have_value("One. {question} Two. Three. Four.")
    expect(instruction(page)).to_be_focused()


def test_typing_applies_by_itself_undo_takes_it_back_and_a_key_of_its_own_runs_the_plan_another_the_task(
    app: App, page: Page, source: RunTrace
) -> None:
    before = all_runs(app)
    instruction(page).fill("First words: {question}")
    expect(start(page)).to_contain_text("Re-run 1 step")
    expect(start(page)).to_contain_text("Ctrl ⇧ ↵")
    expect(page.locator(".st-key-run").get_by_text("Ctrl + Enter").last).not_to_be_visible()
    expect(instruction(page)).to_be_focused()
    instruction(page).fill("Other words: {question}")
    page.keyboard.press("Control+Alt+z")
    expect(instruction(page)).to_have_value("First words: {question}")
    expect(instruction(page)).to_be_focused()
    page.keyboard.press("Control+Enter")
    expect(start(page)).to_contain_text("Re-run 1 step")
    page.get_by_role("combobox", name="Agent of step 1").focus()
    page.keyboard.press("Control+Enter")
    line(page, 0).get_by_role("button", name="Remove step 0").click(force=True)
    expect(lines(page)).to_have_count(1)
    page.keyboard.press("Control+Enter")  # what had the focus is gone
    of_edit(page, "Undo").click()
    expect(lines(page)).to_have_count(2)
    assert source.run_id in page.url
    assert all_runs(app) == before

    line(page, 1).click()
    instruction(page).fill("Solve it at once, without a pause: {question}")
    page.keyboard.press("Control+Shift+Enter")
    page.wait_for_url(lambda url: source.run_id not in url)
    expect(page.locator('.pane[data-status="reused"]')).to_have_count(1)
    expect(status(page)).to_contain_text("Completed 2 of 2")
    trace = run_of(page, app)
    assert trace.parent_run_id == source.run_id
    assert trace.steps[1].instruction == "Solve it at once, without a pause: {question}"
    assert [step.status for step in trace.steps] == ["reused", "completed"]

    # In the task, Ctrl and Enter run the task.
    rerun = trace
    page.get_by_label("Task", exact=True).fill("What is the chemical symbol of tungsten?")
    expect(page.get_by_text("Press Ctrl+Enter to apply")).not_to_be_visible()
    expect(page.locator(".st-key-run").get_by_text("Ctrl + Enter").last).to_be_visible()
    page.keyboard.press("Control+Enter")
    page.wait_for_url(lambda url: rerun.run_id not in url)
    trace = run_of(page, app)
    assert (trace.task, trace.parent_run_id) == ("What is the chemical symbol of tungsten?", None)
