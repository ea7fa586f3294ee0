"""A person chooses when a run waits, and every page says how many do."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import App, at_rest

OpenPage = Callable[..., Page]
BADGE = """
() => {
  const link = document.querySelector('[data-testid="stSidebarNavLink"][href$="/history"]')
  const drawn = getComputedStyle(link, "::after").content
  return drawn.includes("‖") ? getComputedStyle(document.documentElement).getPropertyValue("--waiting") : ""
}
"""


@pytest.fixture
def own_app(start_app: Callable[..., AbstractContextManager[App]], tmp_path: Path) -> Iterator[App]:
    """An app of its own: what is chosen here would hold for the runs of other tests."""
    with start_app(tmp_path / "data") as app:
        yield app


def say_when(page: Page, text: str) -> None:
    """Chooses a gate as a person does, who types again if the page was drawn anew under the first letters."""
    summary = page.locator(".st-key-settings summary")
    summary.click()
    field = page.get_by_role("combobox", name="Wait for approval")
    for patience_ms in (5_000, 10_000, None):
        field.fill("")
        field.press_sequentially(text)
        try:
            expect(page.get_by_role("option").first).to_contain_text(text, timeout=patience_ms)
            field.press("Enter")
            expect(summary).to_contain_text(f"Waits: {text}", timeout=patience_ms)
            break
        except AssertionError:
            if patience_ms is None:
                raise
    page.keyboard.press("Escape")


def run_a_task(page: Page) -> None:
    page.get_by_role("textbox", name="Task", exact=True).fill("What is the chemical symbol of tungsten?")
    at_rest(page)
    page.locator(".st-key-run button").click()


def test_a_run_waits_as_chosen_and_every_page_says_so(own_app: App, open_page: OpenPage) -> None:
    page = open_page(own_app.url)
    say_when(page, "before every step")
    run_a_task(page)
    expect(page.locator(".st-key-settings details")).not_to_have_attribute("open", "")  # what begins is to be seen
    expect(page.get_by_role("region", name="Approval")).to_contain_text("before every step")
    expect(page).to_have_title(re.compile("^‖ 1 waits · "))
    history = open_page(f"{own_app.url}/history")
    expect(history).to_have_title(re.compile("^‖ 1 waits · "))
    expect(history.locator(".pill.waiting")).to_have_text("‖ waits")
    assert "1" in history.evaluate(BADGE)
    asked = re.compile("approval of .*step.*by the gate steps")
    expect(history.locator(".pill.waiting")).to_have_attribute("title", asked)
    history.get_by_role("button", name="‖ 1 run waits for an approval").click()
    expect(history.get_by_role("combobox", name="Status")).to_have_value("‖ waits · 1")
    page.get_by_role("button", name="Approve the rest").click()
    expect(page.locator(".bar .status")).to_contain_text("Completed")
    for each in (page, history):
        expect(each).not_to_have_title(re.compile("‖"))
    assert history.evaluate(BADGE) == ""
    # The choice is kept for the next run of this browser.
    page.reload()
    expect(page.locator(".st-key-settings summary")).to_contain_text("Waits: before every step")
    page.close()
    history.close()
