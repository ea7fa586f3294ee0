"""The Context page in a real browser: the matrix by mouse and by keyboard, the Sankey, and no sideways scrolling."""

from collections.abc import Callable

from playwright.sync_api import Page, expect

from conductor_core.run.trace import RunTrace
from tests.browser.conftest import SIDEWAYS, App, Make

OpenPage = Callable[..., Page]


def test_from_the_run_to_who_saw_what_in_the_colours_of_the_theme_by_keyboard_to_a_message_and_back(
    app: App, open_page: OpenPage, make_run: Make
) -> None:
    run = make_run()
    page = open_page(app.run_url(run.run_id), dark=True, width=1280, height=720)
    page.get_by_role("link", name="Who saw what in this run").click()
    expect(page.locator(".sankey-node").first).to_be_visible()
    assert page.url == f"{app.url}/context?run={run.run_id}"
    assert page.evaluate(SIDEWAYS) == []
    node = page.evaluate("document.querySelector('.js-plotly-plot').data[0].node.color[1]")
    assert node == "#9b82ff"
    band = page.evaluate("document.querySelector('.js-plotly-plot').data[0].link.color.at(-1)")
    assert band == "#d3ad2e66"
    expect(page.locator('[data-test-script-state="notRunning"]')).to_be_visible()
    _a_cell_opens_the_message_by_keyboard(page, run)
    page.get_by_role("link", name="Open the run").click()
    expect(page.locator(".bar .status")).to_contain_text("Completed 5 of 5")
    assert page.url == app.run_url(run.run_id)
    # A figure that part of the library draws, and then one that needs all.
    page.get_by_role("link", name="Training").click()
    expect(page.locator(".scatterlayer .trace").first).to_be_visible()
    page.get_by_role("link", name="Context").click()
    page.locator(f".st-key-context-of-{run.run_id} button:visible").click()
    expect(page.locator(".sankey-node").first).to_be_visible()


def _a_cell_opens_the_message_by_keyboard(page: Page, run: RunTrace) -> None:
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
