"""The Context page in a real browser: the matrix by mouse and by keyboard, the Sankey, and no sideways scrolling."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from conductor_core.run.trace import RunTrace
from tests.browser.conftest import SIDEWAYS, App, Make

OpenPage = Callable[..., Page]


@pytest.fixture(scope="module")
def run(make_run: Make) -> RunTrace:
    return make_run()


def open_context(app: App, open_page: OpenPage, run: RunTrace, **view: object) -> Page:
    """Opens the page once its script has ended and its figure is drawn."""
    page = open_page(f"{app.url}/context?run={run.run_id}", **view)
    expect(page.locator(".sankey-node").first).to_be_visible()
    expect(page.locator('[data-test-script-state="notRunning"]')).to_be_visible()
    return page


def test_a_cell_opens_the_message_by_keyboard_alone(app: App, open_page: OpenPage, run: RunTrace) -> None:
    page = open_context(app, open_page, run)
    first = page.get_by_role("button", name="the task for step 0: granted")
    first.focus()
    expect(first).to_be_focused()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    cell = page.get_by_role("button", name="step 0 of planner for step 1: granted")
    expect(cell).to_be_focused()
    page.keyboard.press("Enter")
    message = page.locator(".st-key-context-message")
    expect(message).to_contain_text("Step 1 (reasoner) got the output of step 0 (planner).")
    expect(message.locator("pre").first).to_have_text(run.steps[0].output)
    expect(cell).to_be_focused()
    expect(cell).to_have_attribute("aria-pressed", "true")
    # The matrix is one stop of the Tab key, and the chosen cell is that stop.
    expect(page.locator('.context-cell[tabindex="0"]')).to_have_count(1)
    page.keyboard.press("End")
    expect(page.get_by_role("button", name="step 0 of planner for step 4: withheld")).to_be_focused()
    page.keyboard.press("Space")
    expect(message).to_contain_text("Step 4 (writer) was not shown the output of step 0 (planner).")


@pytest.mark.parametrize("dark", [False, True])
def test_from_the_run_to_who_saw_what_in_the_colours_of_the_theme_and_back(
    app: App, open_page: OpenPage, run: RunTrace, dark: bool
) -> None:
    page = open_page(app.run_url(run.run_id), dark=dark, width=1280, height=720)
    page.get_by_role("link", name="Who saw what in this run").click()
    expect(page.locator(".sankey-node").first).to_be_visible()
    assert page.url == f"{app.url}/context?run={run.run_id}"
    assert page.evaluate(SIDEWAYS) == []
    node = page.evaluate("document.querySelector('.js-plotly-plot').data[0].node.color[1]")
    assert node == ("#9b82ff" if dark else "#7c5cff")
    band = page.evaluate("document.querySelector('.js-plotly-plot').data[0].link.color.at(-1)")
    assert band == ("#d3ad2e66" if dark else "#8a6d0059")
    page.get_by_role("link", name="Open the run").click()
    expect(page.locator(".bar .status")).to_contain_text("Completed 5 of 5")
    assert page.url == app.run_url(run.run_id)
    if dark:
        return
    # A figure that part of the library draws, and then one that needs all.
    page.get_by_role("link", name="Training").click()
    expect(page.locator(".scatterlayer .trace").first).to_be_visible()
    page.get_by_role("link", name="Context").click()
    page.locator(f".st-key-context-of-{run.run_id} button:visible").click()
    expect(page.locator(".sankey-node").first).to_be_visible()
