"""Plans to start from and to choose from, by keyboard alone, in a real browser."""

import json
import re
from collections.abc import Callable

import pytest
from playwright.sync_api import FilePayload, Locator, Page, expect

from tests.browser.conftest import App, line, lines, of_edit, run_of, start, status

OpenPage = Callable[..., Page]
TASK = "What is the chemical symbol of tungsten?"


@pytest.fixture
def page(app: App, open_page: OpenPage) -> Page:
    """The Run page without a run, at the size of a projector, with a task that was typed."""
    page = open_page(f"{app.url}/run", width=1280, height=720)
    task(page).click()
    page.keyboard.type(TASK)
    page.keyboard.press("Tab")
    return page


def task(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Task")


def dialog(page: Page) -> Locator:
    return page.get_by_role("dialog")


def press(page: Page, button: Locator, key: str = "Enter") -> None:
    """Presses a button with the keyboard, wherever the focus was."""
    expect(button).to_be_enabled()
    button.focus()
    page.keyboard.press(key)


def ask_for_plans(page: Page, kind: str) -> None:
    press(page, page.get_by_role("button", name="More ways to begin"))
    press(page, page.get_by_role("button", name="Plans…"))
    expect(dialog(page)).to_be_visible()
    press(page, dialog(page).get_by_role("radio", name=kind), "Space")


def runs(app: App) -> int:
    return len(app.store.runs(limit=1000))


def test_a_template_is_edited_undone_and_run_by_keyboard_and_a_text_and_a_file_are_plans_too(
    app: App, page: Page
) -> None:
    before = runs(app)
    ask_for_plans(page, "A template")
    dialog(page).get_by_role("radio", name="Planner, executor, verifier").focus()
    page.keyboard.press("ArrowDown")
    expect(dialog(page).get_by_role("radio", name="Fan-out")).to_be_checked()
    expect(dialog(page).get_by_text("4 steps · fan-out")).to_be_visible()
    press(page, page.get_by_role("button", name="Open in the editor"))
    expect(lines(page)).to_have_count(4)
    expect(page.locator(".edit-title:visible")).to_contain_text("A plan of your own")
    for index in range(4):
        expect(page.get_by_label(re.compile(f"^Step {index}, .*, runs, "))).to_be_visible()
    press(page, line(page, 2).get_by_role("button", name="Remove step 2"))
    expect(lines(page)).to_have_count(3)
    # Undo in a field is the field's own; another page and a reload lose nothing.
    task(page).focus()
    page.keyboard.type("x")
    page.keyboard.press("Control+z")
    expect(task(page)).to_have_value(TASK)
    expect(lines(page)).to_have_count(3)
    page.get_by_role("link", name="History").click()
    expect(page.get_by_role("heading", name="History")).to_be_visible()
    page.get_by_role("link", name="Run", exact=True).click()
    expect(lines(page)).to_have_count(3)
    page.reload()
    expect(lines(page)).to_have_count(3)
    expect(task(page)).to_have_value(TASK)
    of_edit(page, "Close").focus()
    page.keyboard.press("Control+z")
    expect(lines(page)).to_have_count(4)
    page.keyboard.press("Control+Shift+z")
    expect(lines(page)).to_have_count(3)
    page.keyboard.press("Control+z")
    expect(lines(page)).to_have_count(4)
    assert runs(app) == before, "nothing is sent before the plan is run"
    page.keyboard.press("Control+Shift+Enter")
    expect(status(page)).to_contain_text("Completed 4 of 4")
    trace = run_of(page, app)
    assert (trace.task, trace.root.source, trace.root.topology) == (TASK, "file", "fan-out")
    expect(of_edit(page, "Close")).to_be_hidden()
    page.goto(f"{app.url}/run")
    _what_is_pasted_applies_by_itself_and_a_dropped_file_shows_its_fault_at_the_step(app, page)


def _what_is_pasted_applies_by_itself_and_a_dropped_file_shows_its_fault_at_the_step(app: App, page: Page) -> None:
    before = runs(app)
    steps = [
        {"instruction": "Plan <b>it</b>: {question}", "assigned_agent": "planner", "access_list": []},
        {"instruction": "Do it: {question}", "assigned_agent": "codr", "access_list": [0]},
    ]
    ask_for_plans(page, "A text or file")
    page.get_by_role("textbox", name="The plan").fill('model_id = [0]\nsubtasks = ["x"]\naccess_list = [[]')
    expect(dialog(page).get_by_text("line 3, column")).to_be_visible()
    page.keyboard.press("Control+Enter")
    page.get_by_role("textbox", name="The plan").fill(
        'model_id = [0]\nsubtasks = ["do {question}"]\naccess_list = [[]]'
    )
    expect(page.get_by_role("button", name="Open in the editor")).to_be_visible()
    page.keyboard.press("Control+Enter")
    expect(dialog(page).get_by_text("1 step · one shot")).to_be_visible()
    assert runs(app) == before
    file = FilePayload(name="plan.json", mimeType="application/json", buffer=json.dumps({"steps": steps}).encode())
    dialog(page).locator('input[type="file"]').set_input_files(file)
    expect(dialog(page).get_by_text("Plan <b>it</b>: the task")).to_be_visible()
    press(page, page.get_by_role("button", name="Open in the editor"))
    expect(page.locator(".edit-title:visible")).to_contain_text("did you mean coder?")
    expect(start(page)).to_be_disabled()
    expect(page.get_by_label(re.compile("^Step 1, codr, fault, "))).to_be_visible()
