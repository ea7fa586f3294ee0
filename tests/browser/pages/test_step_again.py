"""One step many times, and an output written by hand, by keyboard alone in a real browser."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, expect

from conductor_core.run.trace import RunTrace
from conductor_core.workflow.model import AccessList
from tests.browser.conftest import App, Make, at_rest, run_of, status

OpenPage = Callable[..., Page]
CHAIN: tuple[tuple[str, str, AccessList], ...] = (
    ("planner", "Plan how to solve this: {question}", ()),
    ("calculator", "Solve this: {question}", (0,)),
    ("writer", "Give the final answer: {question}", (1,)),
)


@pytest.fixture
def ran(make_run: Make) -> RunTrace:
    return make_run(*CHAIN, task="What is the chemical symbol of tungsten?")


def press(page: Page, button: Locator) -> None:
    """Presses Enter once the page rests: a drawing that is still to come closes a dialog that it does not know."""
    at_rest(page)
    expect(button).to_be_enabled()
    button.press("Enter")


def choose(page: Page, step: int) -> None:
    """Selects a step in the graph's text twin, and the tab about changing it, and waits until its fields are there."""
    press(page, page.get_by_label(re.compile(f"^Step {step}, ")))
    press(page, page.get_by_role("tab", name="Edit"))
    expect(page.get_by_role("textbox", name=f"Instruction of step {step}")).to_be_visible()


def test_a_step_is_asked_three_times_an_answer_opened_and_an_output_written_is_marked_where_it_was_read(
    app: App, ran: RunTrace, open_page: OpenPage
) -> None:
    page = open_page(app.run_url(ran.run_id), width=1280, height=720)
    expect(status(page)).to_contain_text("Completed 3 of 3")
    choose(page, 1)
    press(page, page.get_by_role("button", name="Run this step again…"))
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("will run in each")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Run this step again…")).to_be_focused()
    at_rest(page)
    page.keyboard.press("Enter")
    expect(dialog.get_by_text("will run in each")).to_be_visible()
    dialog.get_by_role("spinbutton", name="Times").fill("3")
    page.keyboard.press("Enter")
    press(page, dialog.get_by_role("button", name="Run 3 times"))
    panel = page.locator(".st-key-again-results")
    expect(panel.get_by_text("Step 1 alone, 3 times")).to_be_visible()
    expect(panel.get_by_text("3 of 3 answered")).to_be_visible()
    press(page, panel.get_by_role("button", name="0", exact=True))
    expect(status(page)).to_contain_text("Completed 2 of 3")
    opened = run_of(page, app)
    assert (opened.parent_run_id, opened.overrides.last_step) == (ran.run_id, 1)
    expect(page.get_by_role("button", name="Run the rest")).to_be_visible()

    # On the run that was asked again, an output is written by hand.
    page.goto(app.run_url(ran.run_id))
    expect(status(page)).to_contain_text("Completed 3 of 3")
    choose(page, 1)
    press(page, page.get_by_role("button", name="Write output…"))
    field = page.get_by_role("textbox", name="Output of step 1, written by you")
    expect(field).to_be_visible()
    field.fill("<b>The answer is 7.</b>")
    expect(page.get_by_label(re.compile("^Step 1, calculator, by a person"))).to_be_visible()
    page.keyboard.press("Control+Shift+Enter")
    expect(page.locator(".edit-fields:visible")).to_have_count(0)
    expect(page).not_to_have_url(app.run_url(ran.run_id))
    expect(page.get_by_label(re.compile("^Step 1, calculator, by a person"))).to_be_visible()
    expect(status(page)).to_contain_text("Completed 3 of 3")
    trace = run_of(page, app)
    assert trace.steps[1].output == "<b>The answer is 7.</b>"
    press(page, page.get_by_label(re.compile("^Step 2, ")))
    press(page, page.get_by_role("tab", name="What it saw"))
    expect(page.get_by_text("✎ written by a person")).to_be_visible()
